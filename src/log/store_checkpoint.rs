//! The checkpoint file: up to which store time each family is known to be on disk.

use std::path::Path;

use crate::error::Result;
use crate::format::{CHECKPOINT_FIELDS_SIZE, Checkpoint};
use crate::storage::{Env, Step, read_file, replace_file};

/// Reads the checkpoint at `path`. A missing or short file reads as zeros: its loss costs time, never data.
///
/// # Errors
/// [`crate::error::Error::Io`] when the file is there and cannot be read.
pub fn load_checkpoint(env: &dyn Env, path: &Path) -> Result<Checkpoint> {
    let fields = read_file(env, path, CHECKPOINT_FIELDS_SIZE)?;
    Ok(Checkpoint::decode(&fields.unwrap_or_default()))
}

/// Puts a new checkpoint in the place of the old one at `path`, durably: what it stamps was synced before. Never in place, for a
/// stamp that is half the old and half the new one vouches for what is not there.
///
/// # Errors
/// [`crate::error::Error::DiskFull`]: the old one stays. [`crate::error::Error::Io`].
pub fn save_checkpoint(env: &dyn Env, path: &Path, checkpoint: &Checkpoint) -> Result<()> {
    replace_file(env, path, &checkpoint.encode(), Step::Checkpoint, Step::CheckpointRenamed)
}
