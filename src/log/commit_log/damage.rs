//! Damaged ranges of the log: the search for the next intact record, the sizes that damaged records claim, raw bytes, and salvage
//! records, which make the log one chain of records again, for this crate and for a broker.

use std::cell::Cell;
use std::ops::Range;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::format::{
    BLANK_SIZE, CLAIM_SIZE, Check, ClaimedSize, MessageView, claimed_size, encode_salvage_record, record_heads,
    salvage_record_size, segment_name, size_of_damaged, size_to_dump,
};
use crate::interrupt;
use crate::log::commit_log::log_files::LogFiles;
use crate::log::commit_log::log_record::{LogRecord, StoredMessage};

/// The bytes that are searched for a record at once.
const SEARCHED_AT_ONCE: usize = 64 * 1024;
/// The most record heads that a search for a known record examines.
const MAX_EXAMINED: usize = 64;
/// The most bytes of false record heads that a search reads. A damaged log has few of them. In a log made by an attacker every
/// byte may be one.
const MAX_IMITATED: u64 = 4 << 30;
/// The most bytes that are copied: a damaged length may claim a whole segment.
const MAX_RAW_BYTES: usize = 64 << 20;

/// The end of a damaged record by its own lengths.
#[derive(Debug)]
pub(crate) enum ClaimedEnd {
    /// Its lengths agree.
    Known(i64),
    /// Its lengths do not agree: the ends that they claim, ascending. At most one is right.
    OneOf(Vec<i64>),
}

impl LogFiles {
    /// Starts a search for intact records that were stored at `since` or after, since older ones are stale, and that start before `until`.
    /// `imitated` counts the bytes of false record heads, of one search or of several.
    pub(crate) fn search_records<'a>(&'a self, since: i64, until: i64, imitated: &'a Cell<u64>) -> RecordSearch<'a> {
        RecordSearch {
            log: self,
            since,
            until,
            imitated,
        }
    }

    /// Returns the first offset in a range of a segment at which an intact record starts that `is_known`; `None` if it is not among
    /// the first [`MAX_EXAMINED`] record heads.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn find_known_record(&self, range: Range<i64>, is_known: impl Fn(&MessageView<'_>) -> bool) -> Result<Option<i64>> {
        let Some((file, position)) = self.locate(range.start)? else {
            return Ok(None);
        };
        let len = (range.end - range.start) as usize;
        let mut bytes = vec![0; (len + CLAIM_SIZE).min(file.len() as usize - position)];
        if !file.read(position, &mut bytes) {
            return Ok(None);
        }
        for head in record_heads(&bytes, range.start)
            .take_while(|head| *head < len)
            .take(MAX_EXAMINED)
        {
            let found = range.start + head as i64;
            if let LogRecord::Message(message) = self.read(found, Check::Structure)?
                && is_known(&message.view())
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns the end of the record at `at`: by its own lengths, if they agree; otherwise the first claimed end at which a record
    /// starts.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn claimed_end(&self, at: i64) -> Result<Option<i64>> {
        let ends = match self.claimed_ends(at)? {
            ClaimedEnd::Known(end) => return Ok(Some(end)),
            ClaimedEnd::OneOf(ends) => ends,
        };
        for end in ends {
            if self.has_record_at(end)? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    /// Returns the end of the record at `at` by its own lengths. One end is known if only one header field is damaged.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn claimed_ends(&self, at: i64) -> Result<ClaimedEnd> {
        let Some((file, position)) = self.locate(at)? else {
            return Ok(ClaimedEnd::OneOf(Vec::new()));
        };
        let is_inside = |end: i64| at < end && end < file.end() as i64;
        let read = |from: usize| {
            let mut bytes = [0; 4];
            let is_read = position.checked_add(from).is_some_and(|from| file.read(from, &mut bytes));
            if is_read { bytes } else { [0; 4] }
        };
        Ok(match size_of_damaged(at, read) {
            ClaimedSize::Known(size) if is_inside(at.saturating_add_unsigned(size as u64)) => ClaimedEnd::Known(at + size as i64),
            ClaimedSize::Known(_) => ClaimedEnd::OneOf(Vec::new()),
            ClaimedSize::OneOf(sizes) => {
                let ends = sizes.into_iter().map(|size| at.saturating_add_unsigned(size as u64));
                ClaimedEnd::OneOf(ends.filter(|end| is_inside(*end)).collect())
            }
        })
    }

    /// Returns true if a record seems to start at `at`, or the segment seems to end there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn has_record_at(&self, at: i64) -> Result<bool> {
        Ok(matches!(
            self.read(at, Check::Whole)?,
            LogRecord::Message(_) | LogRecord::Blank { .. } | LogRecord::Corrupt(_)
        ))
    }

    /// Overwrites a lost range with salvage records. They get the store time of the next message, so that store times never fall.
    /// They become durable with the rest of the log, which a salvage rewrites from its start.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`], [`Error::Corrupt`] for a range smaller than a record.
    pub fn write_salvage_records(&self, lost: &Range<i64>) -> Result<()> {
        let LogRecord::Message(after) = self.read(lost.end, Check::Structure)? else {
            return Err(self.corrupt(lost.end, "expected the message after the lost range".to_owned()));
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

    /// Returns the offset and the size of the first salvage record of a lost range. The end of a segment may be smaller than a
    /// record.
    pub fn first_salvage_record(&self, lost: &Range<i64>) -> Option<(i64, i32)> {
        let mut records = self.parts(lost).map(|(_, part, at_end)| {
            (
                part.start,
                salvage_record_size((part.end - part.start) as usize, at_end) as i32,
            )
        });
        records.find(|(_, size)| *size > 0)
    }

    /// Divides a range at the ends of segments. Returns the start of each segment, its part of the range, and true if that reaches
    /// the segment's end.
    fn parts(&self, lost: &Range<i64>) -> impl Iterator<Item = (i64, Range<i64>, bool)> {
        let (lost, size) = (lost.clone(), self.segment_size() as i64);
        let parts = self.starts().map(move |start| {
            let part = lost.start.max(start)..lost.end.min(start + size);
            let at_end = part.end == start + size;
            (start, part, at_end)
        });
        parts.filter(|(_, part, _)| !part.is_empty())
    }

    /// Returns the bytes at a physical offset; `None` if no segment contains it.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`], and [`crate::error::Error::Corrupt`] for an unreadable page.
    pub(crate) fn raw(&self, offset: i64) -> Result<Option<RawBytes>> {
        let Some((file, position)) = self.locate(offset)? else {
            return Ok(None);
        };
        let remaining = (file.len() as usize).saturating_sub(position);
        let mut head = [0; BLANK_SIZE];
        let size = if remaining >= head.len() && file.read(position, &mut head) {
            size_to_dump(head).min(remaining).min(MAX_RAW_BYTES)
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

/// A search for records at every byte. It ends with an error if bytes imitate records too often.
#[derive(Debug)]
pub(crate) struct RecordSearch<'a> {
    log: &'a LogFiles,
    since: i64,
    until: i64,
    /// The bytes of the false record heads so far.
    imitated: &'a Cell<u64>,
}

impl RecordSearch<'_> {
    /// Returns the first intact record that starts at `from` or after.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] for bytes that imitate records so often that the search takes too long.
    pub(crate) fn next(&mut self, from: i64) -> Result<Option<StoredMessage>> {
        let log = self.log;
        for start in log.starts() {
            let asked = from.max(start)..log.files_end().min(self.until).min(start + log.segment_size() as i64);
            if asked.is_empty() {
                continue;
            }
            // Most of a segment that was created ahead was never written.
            let asked = (asked.start - start) as u64..(asked.end - start) as u64;
            for part in log.files.written(start as u64, asked)? {
                // A sparse copy may have omitted a page of zeros, and with it the first bytes of a record's length.
                let part = (start + part.start as i64 - 3).max(from).max(start)..start + part.end as i64;
                if let Some(found) = self.find_whole(part)? {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// Counts the bytes of intact records that are part of a body.
    ///
    /// # Errors
    /// [`Error::Corrupt`] as for [`next`](Self::next).
    pub(crate) fn count_imitated(&mut self, at: i64, bytes: i64) -> Result<()> {
        self.imitated.set(self.imitated.get().saturating_add(bytes.unsigned_abs()));
        if self.imitated.get() > MAX_IMITATED {
            let reason = "cannot find the next record: too many offsets after this one look like the start of a record";
            return Err(self.log.corrupt(at, reason.to_owned()));
        }
        Ok(())
    }

    /// Searches a range of one segment; see [`next`](Self::next).
    fn find_whole(&mut self, part: Range<i64>) -> Result<Option<StoredMessage>> {
        let log = self.log;
        let mut at = part.start;
        let mut bytes = vec![0; SEARCHED_AT_ONCE + CLAIM_SIZE];
        while at < part.end {
            interrupt::check()?;
            let Some((file, position)) = log.locate(at)? else { break };
            let len = bytes.len().min(file.len() as usize - position);
            let window = bytes.get_mut(..len).unwrap_or_default();
            if !file.read(position, window) {
                // An unreadable page hides its bytes and all later ones of this file.
                break;
            }
            for head in record_heads(window, at).filter(|head| *head < SEARCHED_AT_ONCE) {
                let found = at + head as i64;
                if let LogRecord::Message(message) = log.read(found, Check::Whole)?
                    && message.view().store_time() >= self.since
                {
                    return Ok(Some(message));
                }
                let claimed = window
                    .get(head..)
                    .and_then(<[u8]>::first_chunk)
                    .map_or(0, |head| claimed_size(*head));
                self.count_imitated(found, claimed.min(file.len() as usize - position - head) as i64)?;
            }
            at = (at + SEARCHED_AT_ONCE as i64).min(part.end);
        }
        Ok(None)
    }
}

/// The raw bytes of a record in a segment.
#[derive(Debug)]
pub(crate) struct RawBytes {
    /// The file.
    pub(crate) path: PathBuf,
    /// The position in the file.
    pub(crate) offset: u64,
    /// The bytes that the record there claims, at most 64 MiB. If it claims an impossible size: those of the smallest record.
    pub(crate) bytes: Vec<u8>,
}
