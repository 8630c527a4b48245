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

/// Replaces the checkpoint at `path` by a new one, durably. Everything that it vouches for was synced before. The old file is not
/// overwritten: a stamp that is half old and half new would vouch for what is not there.
///
/// # Errors
/// [`crate::error::Error::DiskFull`]: the old one stays. [`crate::error::Error::Io`].
pub fn save_checkpoint(env: &dyn Env, path: &Path, checkpoint: &Checkpoint) -> Result<()> {
    replace_file(env, path, &checkpoint.encode(), Step::Checkpoint, Step::CheckpointRenamed)
}
