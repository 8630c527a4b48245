//! The files of a store, one by one: segments of the log and index files.

use crate::error::Result;
use crate::log::IndexFileState;
use crate::read::message_reader::MessageReader;

/// A segment of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The physical offset at which it starts: its name.
    pub start: i64,
    /// Bytes of the log in it: all that it has, or up to the log's end.
    pub bytes: i64,
    /// Whether the log goes on in a later segment.
    pub is_sealed: bool,
    /// The store time of its first message, in ms; `None` if it has none, or if that cannot be read.
    pub first_store_time: Option<i64>,
}

impl MessageReader {
    /// The segments that are there and hold a part of the log, ascending. Reads the head of each one's first record.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub fn segments(&self) -> Result<Vec<Segment>> {
        let log = self.log();
        let end = self.physical_bounds().end;
        let mut segments = Vec::new();
        for start in log.starts().take_while(|start| *start < end) {
            let Some(segment) = log.segment(start)? else { continue };
            segments.push(Segment {
                start,
                bytes: segment.end.min(end) - start,
                is_sealed: start + (log.segment_size() as i64) < end,
                first_store_time: log.claimed_store_time(start)?,
            });
        }
        Ok(segments)
    }

    /// The index files, oldest first. Reads them whole.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub fn index_files(&self) -> Result<Vec<IndexFileState>> {
        self.index().states(&|file, geometry| self.is_of_log(file, geometry))
    }
}
