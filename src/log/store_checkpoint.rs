//! The checkpoint file: up to which store time each family is known to be on disk.

use std::io;
use std::path::Path;

use crate::error::{Error, Result};
use crate::format::{CHECKPOINT_FIELDS_SIZE, Checkpoint};
use crate::storage::{Access, Env, Step, replace_file};

/// Reads the checkpoint at `path`. A missing or short file reads as zeros: its loss costs time, never data.
///
/// # Errors
/// [`Error::Io`] when the file is there and cannot be read.
pub fn load_checkpoint(env: &dyn Env, path: &Path) -> Result<Checkpoint> {
    let file = match env.open(path, Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Checkpoint::default()),
        Err(error) => return Err(Error::io("open", path, error)),
    };
    let mut fields = [0; CHECKPOINT_FIELDS_SIZE];
    let read = file
        .read_full_at(&mut fields, 0)
        .map_err(|error| Error::io("read", path, error))?;
    Ok(Checkpoint::decode(fields.get(..read).unwrap_or_default()))
}

/// Puts a new checkpoint in the place of the old one at `path`, durably: what it stamps was synced before. Never in place, for a
/// stamp that is half the old and half the new one vouches for what is not there.
///
/// # Errors
/// [`Error::DiskFull`]: the old one stays. [`Error::Io`].
pub fn save_checkpoint(env: &dyn Env, path: &Path, checkpoint: &Checkpoint) -> Result<()> {
    replace_file(env, path, &checkpoint.encode(), Step::Checkpoint, Step::CheckpointRenamed)
}
