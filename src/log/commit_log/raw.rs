//! The bytes at a place of the log, whatever they are.

use std::path::PathBuf;

use crate::error::Result;
use crate::format::{BLANK_SIZE, size_to_dump};
use crate::log::commit_log::log_files::LogFiles;

/// Most bytes that are copied: a damaged length may claim a whole segment.
const MOST: usize = 64 << 20;

/// Bytes of a segment.
#[derive(Debug)]
pub(crate) struct RawBytes {
    /// The file.
    pub(crate) path: PathBuf,
    /// The first of them in it.
    pub(crate) offset: u64,
    /// As many as the record there claims, at most 64 MiB, and those of the smallest one where it claims nothing that can be.
    pub(crate) bytes: Vec<u8>,
}

impl LogFiles {
    /// The bytes from a physical offset on; `None` if no segment has it.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`], and [`crate::error::Error::Corrupt`] for a page that the disk has lost.
    pub(crate) fn raw(&self, offset: i64) -> Result<Option<RawBytes>> {
        let Some((file, position)) = self.locate(offset)? else {
            return Ok(None);
        };
        let remaining = (file.len() as usize).saturating_sub(position);
        let mut head = [0; BLANK_SIZE];
        let size = if remaining >= head.len() && file.read(position, &mut head) {
            size_to_dump(head).min(remaining).min(MOST)
        } else {
            remaining
        };
        let mut bytes = vec![0; size];
        if !file.read(position, &mut bytes) {
            file.check_intact(position..position + size)?;
        }
        file.check_intact(position..position + size)?;
        Ok(Some(RawBytes {
            path: file.path().to_owned(),
            offset: position as u64,
            bytes,
        }))
    }
}
