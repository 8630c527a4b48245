//! The files in the directory of the log, whether they belong there or not.

use std::path::PathBuf;

use crate::config::PAGE_SIZE;
use crate::error::{Error, Result};
use crate::format::segment_name;
use crate::log::commit_log::log_files::LogFiles;

impl LogFiles {
    /// The segment that holds `offset`, there or missing, and the position in it.
    pub fn path_of(&self, offset: i64) -> (PathBuf, u64) {
        let (start, position) = self.place(offset);
        (self.dir().join(segment_name(start)), position)
    }

    /// The paths of the files that are no segments.
    pub fn foreign_files(&self) -> impl Iterator<Item = PathBuf> {
        self.files.ignored().iter().map(|name| self.dir().join(name))
    }

    /// The segments without a byte, after the others.
    pub fn empty_files(&self) -> &[PathBuf] {
        self.files.empty_files()
    }

    /// The segments before others that are cut short, and the bytes that they have.
    pub fn cut_short(&self) -> &[(PathBuf, u64)] {
        self.files.cut_short()
    }

    /// Refuses a log whose last segment is cut short: nothing can be written after it. An only segment tells by its length.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn expect_whole(&self) -> Result<()> {
        let size = self.segment_size();
        let otherwise = format!(
            "give it its length in a copy of the store (truncate -s {size}) and open that: what was lost reads as zeros; \
             recovery=\"salvage\" is needed where the store says that it was on disk"
        );
        self.files.expect_whole(size, &otherwise)?;
        let mut starts = self.starts();
        match (starts.next(), starts.next()) {
            (Some(only), None) if !size.is_multiple_of(PAGE_SIZE) => Err(Error::Corrupt {
                path: self.dir().join(segment_name(only as u64)),
                offset: size,
                reason: format!(
                    "the only segment has {size} bytes, and no writer makes segments of such a size: it was cut short or extended; \
                     copy it again"
                ),
            }),
            _ => Ok(()),
        }
    }
}
