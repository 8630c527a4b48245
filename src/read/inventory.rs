//! The files of a store, one by one: segments of the log and index files; and the parts in files of another format.

use crate::error::Result;
use crate::log::{IndexFileState, KeptElsewhere, kept_elsewhere};
use crate::read::message_reader::MessageReader;
use crate::read::resolve::is_of_log;

/// A segment of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The physical offset at which it starts: its name.
    pub start: i64,
    /// Bytes of the log in it: all of it, or up to the log's end, or up to the last whole record of a segment that is cut short.
    pub bytes: i64,
    /// True if the log continues in a later segment.
    pub is_sealed: bool,
    /// The store time of its first message, in ms; `None` if it has none, or if that cannot be read.
    pub first_store_time: Option<i64>,
}

impl MessageReader {
    /// Returns the segments that are there and hold a part of the log, ascending. Reads the head of each one's first record, and the records of one
    /// that is cut short.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub fn segments(&self) -> Result<Vec<Segment>> {
        let log = self.log();
        let end = self.physical_bounds().end;
        let mut segments = Vec::new();
        for start in log.starts().take_while(|start| *start < end) {
            let mut stop = log.end_of_segment(start);
            if log.is_cut_short(start)? {
                stop = log.end_of_records(start, stop)?;
            }
            segments.push(Segment {
                start,
                bytes: stop.min(end) - start,
                is_sealed: start + (log.segment_size() as i64) < end,
                first_store_time: log.claimed_store_time(start)?,
            });
        }
        Ok(segments)
    }

    /// Returns the parts of the store that a broker keeps in files of another format, by part.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub fn kept_elsewhere(&self) -> Result<Vec<KeptElsewhere>> {
        kept_elsewhere(self.env().as_ref(), self.path(), self.queue_store())
    }

    /// Returns the index files, oldest first. Reads them whole.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub fn index_files(&self) -> Result<Vec<IndexFileState>> {
        self.index().states(&|file, geometry| is_of_log(self, file, geometry))
    }
}
