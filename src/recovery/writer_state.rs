//! The state that the last writer recorded in the small files of a store: `abort`, `lock`, the mark of what was flushed, the checkpoint.
//!
//! The `lock` file holds the offset from which every record of the log is ours; every start of a broker overwrites it. Our records have a
//! known form, so recovery recognises those that lost a sector of it in a power failure. The records of a broker may hold any bytes.

use std::io;
use std::path::Path;

use crate::error::{Error, Result};
use crate::format::{
    ABORT_FILE, CHECKPOINT_FILE, Checkpoint, FlushedMark, LOCK_FILE, LOCK_FILE_SIZE, NO_OWN_RECORDS, encode_lock_file, own_from,
};
use crate::log::{is_flushed_mark_locked, load_checkpoint, load_flushed_mark};
use crate::recovery::replica_note::ReplicaNote;
use crate::recovery::store_state::Exit;
use crate::storage::{Access, Env, Step, read_file};

/// The small files in which a writer records what it has done. Each open, recovery, flush and close changes one of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WriterState {
    /// There is no `abort` file: the last writer has closed the store.
    pub(crate) clean: bool,
    /// Another store of this process or another, or a broker, has the store open for writing. A closed store counts as not open:
    /// its next writer changes nothing before it makes the `abort` file.
    pub(crate) is_written_to: bool,
    /// The physical offset from which on every record is ours, as the lock file says.
    pub(crate) claim: Option<i64>,
    pub(super) mark: Option<FlushedMark>,
    /// The stamps, also those in the future.
    pub(super) checkpoint: Checkpoint,
    /// The note of a slave. It has received nothing if another writer has opened the store since.
    pub(crate) replica: ReplicaNote,
}

impl WriterState {
    /// Returns the exit of a writer that has made the store.
    pub(super) fn exit(&self) -> Exit {
        if self.clean { Exit::Clean } else { Exit::Crashed }
    }

    /// Reads the small files.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn read(env: &dyn Env, path: &Path) -> Result<Self> {
        let clean = is_closed(env, path)?;
        let claim = load_own_from(env, path)?;
        let mut replica = ReplicaNote::load(env, path)?;
        replica.received_from = replica.received_from.filter(|_| claim == Some(NO_OWN_RECORDS));
        Ok(Self {
            clean,
            is_written_to: !clean && is_locked(env, path)?,
            claim,
            replica,
            mark: load_flushed_mark(env, path)?,
            checkpoint: load_checkpoint(env, &path.join(CHECKPOINT_FILE))?,
        })
    }
}

/// Returns true if no writer has the store open, and the last one has closed it.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn is_closed(env: &dyn Env, path: &Path) -> Result<bool> {
    Ok(!exists(env, path, ABORT_FILE)?)
}

pub(super) fn is_locked(env: &dyn Env, path: &Path) -> Result<bool> {
    let path = path.join(LOCK_FILE);
    match env.is_locked(&path) {
        // Not a regular file, or a file that only its writer may read.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) => Ok(false),
        is_locked => is_locked.map_err(|error| Error::io("query the lock of", path, error)),
    }
}

/// Returns true if there is an entry of this name that is not a link that leads nowhere. It is not read, and may be of any type.
fn exists(env: &dyn Env, dir: &Path, name: &str) -> Result<bool> {
    let path = dir.join(name);
    match env.open(&path, Access::Read) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io("look for", path, error)),
    }
}

/// Returns the physical offset up to which a live writer with `SYNC_FLUSH` shows its messages, by the mark of what was flushed; `None`
/// without such a writer.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn shown_until(env: &dyn Env, path: &Path, mark: Option<FlushedMark>) -> Result<Option<i64>> {
    let Some(mark) = mark.filter(|mark| mark.is_sync) else {
        return Ok(None);
    };
    let is_locked = is_flushed_mark_locked(env, path)?;
    Ok(is_locked.then_some(mark.flushed))
}

/// Returns the physical offset below which the log is on disk, by the mark of its writer; `None` if the store was closed or has no
/// mark of this log.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn flushed_mark(env: &dyn Env, path: &Path) -> Result<Option<i64>> {
    if exists(env, path, ABORT_FILE)? {
        mark_of_log(env, path)
    } else {
        Ok(None)
    }
}

/// Returns the physical offset below which every byte of the log was on disk, by the mark of its writer, whether the store was closed
/// since or not; `None` if no mark is about this log.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn mark_of_log(env: &dyn Env, path: &Path) -> Result<Option<i64>> {
    let claim = load_own_from(env, path)?;
    let mark = load_flushed_mark(env, path)?.filter(|mark| Some(mark.own_from) == claim);
    Ok(mark.map(|mark| mark.flushed))
}

/// Returns the claim of the lock file: the physical offset from which on every record is mqstore's; `None` without one.
///
/// # Errors
/// [`Error::Io`] when the file is there and cannot be read.
pub(crate) fn load_own_from(env: &dyn Env, root: &Path) -> Result<Option<i64>> {
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
