//! The checkpoint file: up to which store time each family is known to be on disk.

use std::io;
use std::path::Path;

use crate::error::{Error, Result};
use crate::format::Checkpoint;
use crate::storage::{Access, Env, Step};

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
    let mut fields = [0; 48];
    let read = file
        .read_full_at(&mut fields, 0)
        .map_err(|error| Error::io("read", path, error))?;
    Ok(Checkpoint::decode(fields.get(..read).unwrap_or_default()))
}

/// Writes the checkpoint, durably: what it stamps was synced before.
///
/// # Errors
/// [`Error::Io`].
pub fn save_checkpoint(env: &dyn Env, path: &Path, checkpoint: &Checkpoint) -> Result<()> {
    let write = || {
        let file = match env.open(path, Access::ReadWrite) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => env.create(path)?,
            opened => opened?,
        };
        file.write_all_at(&checkpoint.encode(), 0)?;
        file.sync(Step::Checkpoint)
    };
    write().map_err(|error| Error::io("write", path, error))
}
