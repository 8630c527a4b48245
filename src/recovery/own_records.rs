//! The offset from which every record of the log is ours. The `lock` file holds it, and every start of a broker overwrites it.
//!
//! Our records have a known form, so recovery recognises those that lost a sector of it in a power cut. The records of a broker may hold
//! any bytes.

use std::io;
use std::path::Path;

use crate::error::{Error, Result};
use crate::format::{LOCK_FILE, LOCK_FILE_SIZE, encode_lock_file, own_from};
use crate::storage::{Access, Env, Step, read_file};

/// The physical offset from which on every record is ours, as the lock file in the store's directory says; `None` if it does not.
///
/// # Errors
/// [`Error::Io`] when the file is there and cannot be read.
pub(super) fn load_own_from(env: &dyn Env, root: &Path) -> Result<Option<i64>> {
    let path = root.join(LOCK_FILE);
    // One byte more than our lock file has: a longer file is not ours.
    match read_file(env, &path, LOCK_FILE_SIZE + 1) {
        // Not a regular file, or a file that only its writer may read.
        Err(Error::Io { source, .. })
            if matches!(source.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) =>
        {
            Ok(None)
        }
        read => Ok(read?.and_then(|bytes| own_from(&bytes))),
    }
}

/// Claims every record from `own_from` on, durably.
///
/// # Errors
/// [`Error::DiskFull`], [`Error::Io`].
pub(super) fn claim_log(env: &dyn Env, root: &Path, own_from: i64) -> Result<()> {
    let path = root.join(LOCK_FILE);
    let refused = |error| Error::full_or_io("write", &path, error);
    let file = env.open(&path, Access::ReadWrite).map_err(refused)?;
    // The name may be a link to another file, which is not overwritten. Such a store never has a claim.
    if file.len().map_err(refused)? > LOCK_FILE_SIZE as u64 {
        return Ok(());
    }
    file.write_all_at(&encode_lock_file(own_from), 0).map_err(refused)?;
    file.sync(Step::LogClaimed).map_err(refused)
}
