//! The search for whole records where no record is known to start, and the sizes that damaged records claim.

use std::ops::Range;

use crate::error::Result;
use crate::format::{CLAIM_SIZE, Check, ClaimedSize, MessageView, claimed_size, record_heads, size_of_damaged};
use crate::interrupt;
use crate::log::commit_log::log_files::LogFiles;
use crate::log::commit_log::log_record::{LogRecord, StoredMessage};

/// Bytes that are searched for a record at once.
const SEARCHED_AT_ONCE: usize = 64 * 1024;
/// A search for a record that is known elsewhere looks at this many places that look like one.
const MAX_LOOKED_AT: usize = 64;
/// One search reads at most this many bytes of false record starts. A damaged log has few of them. In a log made by an attacker every
/// byte may be one.
const MAX_IMITATED: u64 = 4 << 30;

/// The end of a damaged record by its own lengths.
#[derive(Debug)]
pub(crate) enum ClaimedEnd {
    /// Its lengths agree.
    Known(i64),
    /// They do not: ascending, at most one is right.
    OneOf(Vec<i64>),
}

impl LogFiles {
    /// A search for whole records that were stored at `since` or after: older ones are stale.
    pub(crate) fn search_records(&self, since: i64) -> RecordSearch<'_> {
        RecordSearch {
            log: self,
            since,
            imitated: 0,
        }
    }

    /// Returns the first of these places of a segment at which a whole record starts that `is_known`; `None` if the first few places that
    /// look like the start of a record have no such record.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn find_known_record(&self, places: Range<i64>, is_known: impl Fn(&MessageView<'_>) -> bool) -> Result<Option<i64>> {
        let Some((file, position)) = self.locate(places.start)? else {
            return Ok(None);
        };
        let len = (places.end - places.start) as usize;
        let mut bytes = vec![0; (len + CLAIM_SIZE).min(file.len() as usize - position)];
        if !file.read(position, &mut bytes) {
            return Ok(None);
        }
        for head in record_heads(&bytes, places.start)
            .take_while(|head| *head < len)
            .take(MAX_LOOKED_AT)
        {
            let found = places.start + head as i64;
            if let LogRecord::Message(message) = self.read(found, Check::Structure)?
                && is_known(&message.view())
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns where the record that starts at `at` ends: by its own lengths, if they agree; otherwise by the first of them that leads to a
    /// record.
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

    /// Returns where the record that starts at `at` ends by its own lengths. They are known of a record of which one field is damaged.
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
}

/// A search by every byte. It ends with an error where bytes imitate records too often.
#[derive(Debug)]
pub(crate) struct RecordSearch<'a> {
    log: &'a LogFiles,
    since: i64,
    /// Bytes of the false record starts so far.
    imitated: u64,
}

impl RecordSearch<'_> {
    /// Returns the first whole record that starts at `from` or after.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] for bytes that imitate records so often that the search takes too long.
    pub(crate) fn next(&mut self, from: i64) -> Result<Option<StoredMessage>> {
        let log = self.log;
        for start in log.starts() {
            let asked = from.max(start)..log.files_end().min(start + log.segment_size() as i64);
            if asked.is_empty() {
                continue;
            }
            // Most of a segment that was made ahead was never written.
            let asked = (asked.start - start) as u64..(asked.end - start) as u64;
            for part in log.files.written(start as u64, asked)? {
                // A sparse copy may have left out a page of zeros, and the first bytes of a length with it.
                let part = (start + part.start as i64 - 3).max(from).max(start)..start + part.end as i64;
                if let Some(found) = self.find_whole(part)? {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// Counts bytes of whole records that are part of a body.
    ///
    /// # Errors
    /// [`Error::Corrupt`] as for [`next`](Self::next).
    pub(crate) fn count_imitated(&mut self, at: i64, bytes: i64) -> Result<()> {
        self.imitated += bytes.unsigned_abs();
        if self.imitated > MAX_IMITATED {
            let reason = "cannot find the next record: too many places after this one look like the start of a record";
            return Err(self.log.corrupt(at, reason.to_owned()));
        }
        Ok(())
    }

    /// Searches a part of one segment; see [`next`](Self::next).
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
                // A page that cannot be read hides its bytes and all later ones of this file.
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
