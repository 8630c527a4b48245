//! The files of a queue as they are on disk, whether they are right or not.

use std::ops::Range;
use std::path::PathBuf;

use crate::error::Result;
use crate::format::CqUnit;
use crate::log::consume_queue::consume_queue::{ConsumeQueue, UNIT};
use crate::log::consume_queue::entries::on_file;

impl ConsumeQueue {
    /// The entry as the file has it, valid or not; `None` where there is no file.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub(crate) fn written_unit(&self, offset: i64) -> Result<Option<CqUnit>> {
        on_file(&self.files, offset)
    }

    /// The queue offsets from the first file's start to the last valid entry.
    pub(crate) fn written(&self) -> Range<i64> {
        self.state().in_files.clone()
    }

    /// The queue offset at which the last file starts; `None` for a queue without files.
    pub(crate) fn last_file_start(&self) -> Option<i64> {
        self.files.starts().last().map(|start| *start as i64 / UNIT)
    }

    /// Bytes of the last file; `None` for a queue without files.
    pub(crate) fn last_file_len(&self) -> Option<u64> {
        let start = *self.files.starts().last()?;
        Some(self.files.end_offset()?.saturating_sub(start))
    }

    /// The paths of the files that are no queue files.
    pub(crate) fn foreign_files(&self) -> impl Iterator<Item = PathBuf> {
        self.files.ignored().iter().map(|name| self.files.dir().join(name))
    }
}
