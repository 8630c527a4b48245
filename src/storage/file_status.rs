//! What the system says of a file beside its bytes: mount, mode and owner.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// The bits of a mode with which the owner of a file reads and writes it.
const OWNER_READS_AND_WRITES: u32 = 0o600;

/// The device and the mount in which a directory lies. The subvolumes of btrfs are devices of one mount, and one device may be mounted at
/// several places; before Linux 5.8 the number of every mount is 0.
pub(super) fn mount_of(dir: &Path) -> io::Result<(u32, u32, u64)> {
    let found = statx(CWD, dir, AtFlags::empty(), StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)?;
    Ok((found.stx_dev_major, found.stx_dev_minor, found.stx_mnt_id))
}

/// See [`Env::copy_mode_and_owner`](super::env::Env::copy_mode_and_owner).
pub(super) fn copy_mode_and_owner(original: &Path, copy: &Path) -> io::Result<()> {
    let found = fs::metadata(original)?;
    // A process may not give files away, and a container may not know the owner: then the copy stays its own.
    let _ = chown(copy, Some(found.uid()), Some(found.gid()));
    fs::set_permissions(copy, fs::Permissions::from_mode(found.mode() | OWNER_READS_AND_WRITES))
}
