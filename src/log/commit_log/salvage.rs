//! Writes salvage records over the lost stretches of a log. The log is then one chain of records again, for us and for a broker.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::format::{Check, encode_salvage_record, salvage_record_size, segment_name};
use crate::log::commit_log::log_files::LogFiles;
use crate::log::commit_log::log_record::LogRecord;

impl LogFiles {
    /// Writes salvage records over a lost stretch. They get the store time of the message after it, so that store times never fall. They
    /// become durable with the rest of the log, which a salvage writes again from its start.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`], [`Error::Corrupt`] for a stretch that no record fits into.
    pub fn write_salvage_records(&self, lost: &Range<i64>) -> Result<()> {
        let LogRecord::Message(after) = self.read(lost.end, Check::Structure)? else {
            return Err(self.corrupt(lost.end, "expected the message after the lost stretch".to_owned()));
        };
        let store_time = after.view().store_time();
        for (start, part, at_end) in self.parts(lost) {
            let path = self.dir().join(segment_name(start as u64));
            let refused = |error| Error::full_or_io("fill", &path, error);
            let file = self.files.open_for_writing(start as u64).map_err(refused)?;
            let mut at = part.start;
            while at < part.end {
                let record = encode_salvage_record(at, (part.end - at) as usize, at_end, store_time);
                let record = record.map_err(|malformed| self.corrupt(at, malformed.to_string()))?;
                file.write_all_at(&record, (at - start) as u64).map_err(refused)?;
                at += record.len() as i64;
            }
        }
        Ok(())
    }

    /// Where the first salvage record of a lost stretch stands, and its bytes. The end of a segment may have room for none.
    pub fn first_salvage_record(&self, lost: &Range<i64>) -> Option<(i64, i32)> {
        let mut records = self.parts(lost).map(|(_, part, at_end)| {
            (
                part.start,
                salvage_record_size((part.end - part.start) as usize, at_end) as i32,
            )
        });
        records.find(|(_, size)| *size > 0)
    }

    /// A stretch divided at the ends of segments: the segment's start, the part in it, and whether that reaches its end.
    fn parts(&self, lost: &Range<i64>) -> impl Iterator<Item = (i64, Range<i64>, bool)> {
        let (lost, size) = (lost.clone(), self.segment_size() as i64);
        let parts = self.starts().map(move |start| {
            let part = lost.start.max(start)..lost.end.min(start + size);
            let at_end = part.end == start + size;
            (start, part, at_end)
        });
        parts.filter(|(_, part, _)| !part.is_empty())
    }
}
