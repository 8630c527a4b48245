//! The checkpoint file: its stamps say which messages are on disk, in their queues and in the index.

use std::path::Path;

use crate::error::Result;
use crate::format::{CHECKPOINT_FIELDS_SIZE, Checkpoint};
use crate::storage::{Env, Step, read_file, replace_file};

/// Reads the checkpoint at `path`. A missing or short file reads as zeros: its loss costs time, never data.
///
/// # Errors
/// [`crate::error::Error::Io`] if the file exists and cannot be read.
pub fn load_checkpoint(env: &dyn Env, path: &Path) -> Result<Checkpoint> {
    let fields = read_file(env, path, CHECKPOINT_FIELDS_SIZE)?;
    Ok(Checkpoint::decode(&fields.unwrap_or_default()))
}

/// Replaces the checkpoint at `path`, durably and atomically. Everything that the new one covers must have been synced before. The
/// old file is not overwritten: a stamp that is half old and half new would cover messages that are not on disk.
///
/// # Errors
/// [`crate::error::Error::DiskFull`]: the old one remains. [`crate::error::Error::Io`].
pub fn save_checkpoint(env: &dyn Env, path: &Path, checkpoint: &Checkpoint) -> Result<()> {
    replace_file(env, path, &checkpoint.encode(), Step::Checkpoint, Step::CheckpointRenamed)
}
