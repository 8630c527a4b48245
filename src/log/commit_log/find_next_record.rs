//! The search for the next whole record after damage.
//!
//! A body may hold bytes that look like a whole record of just that place. So the search follows the lengths of the damaged records as
//! far as they lead to a record. From there it looks at every byte.

use std::ops::Range;

use crate::error::Result;
use crate::format::{BLANK_SIZE, CLAIM_SIZE, Check, MessageView, claimed_size, record_heads};
use crate::interrupt;
use crate::log::commit_log::log_files::LogFiles;
use crate::log::commit_log::log_record::LogRecord;

/// Bytes that are searched for a record at once.
const SEARCHED_AT_ONCE: usize = 64 * 1024;
/// A search for a record that is known elsewhere looks at this many places that look like one.
const MAX_LOOKED_AT: usize = 64;
/// One search reads at most this many bytes of places that look like the start of a record and are none. A damaged log has few such
/// places. In a log made by an attacker every byte may be one.
const MAX_IMITATED: u64 = 4 << 30;

impl LogFiles {
    /// Where the next whole record starts that lies at `from` or after and was stored at `since` or after: older ones are stale.
    /// `damaged` is where the whole records before it end. Reads every byte that was written there, so call it only after damage.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] for bytes that imitate records so often that telling takes too long.
    pub fn find_next_record(&self, damaged: i64, from: i64, since: i64) -> Result<Option<i64>> {
        let end = self.end_of_damaged(damaged)?;
        if let LogRecord::Message(message) = self.read(end, Check::Whole)?
            && end >= from
            && message.view().store_time() >= since
        {
            return Ok(Some(end));
        }
        self.search(end.max(from), since)
    }

    /// The first of these places of a segment at which a whole record stands that `is_known`; `None` if there is none among the
    /// first few places that look like the start of a record.
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

    /// Follows damaged records from `damaged` on by their own lengths. Returns the first place that has no damaged record, or a damaged one
    /// whose lengths lead to no record.
    fn end_of_damaged(&self, damaged: i64) -> Result<i64> {
        let mut at = damaged;
        while let Some(end) = self.claimed_end(at)? {
            at = match self.read(end, Check::Whole)? {
                LogRecord::Blank { next } if next < self.files_end() => next,
                _ => end,
            };
            if !matches!(self.read(at, Check::Whole)?, LogRecord::Corrupt(_)) {
                break;
            }
        }
        Ok(at)
    }

    /// Where the record that claims to start at `at` ends: by all its lengths, if they agree; otherwise by its total size, if a record or a
    /// salvage record seems to start there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn claimed_end(&self, at: i64) -> Result<Option<i64>> {
        match self.read(at, Check::Structure)? {
            LogRecord::Message(message) => return Ok(Some(message.view().end())),
            LogRecord::Corrupt(_) => {}
            _ => return Ok(None),
        }
        let Some((file, position)) = self.locate(at)? else {
            return Ok(None);
        };
        let mut head = [0; BLANK_SIZE];
        if !file.read(position, &mut head) {
            return Ok(None);
        }
        let end = at + claimed_size(head) as i64;
        let is_record = |record| {
            matches!(
                record,
                LogRecord::Message(_) | LogRecord::Blank { .. } | LogRecord::Corrupt(_)
            )
        };
        Ok((end < file.end() as i64 && is_record(self.read(end, Check::Whole)?)).then_some(end))
    }

    /// As [`LogFiles::find_next_record`], by every byte from `from` on.
    fn search(&self, from: i64, since: i64) -> Result<Option<i64>> {
        let mut imitated = 0;
        for start in self.starts() {
            let asked = from.max(start)..self.files_end().min(start + self.segment_size() as i64);
            if asked.is_empty() {
                continue;
            }
            // Most of a segment that was made ahead was never written.
            let asked = (asked.start - start) as u64..(asked.end - start) as u64;
            for part in self.files.written(start as u64, asked)? {
                // A sparse copy may have left out a page of zeros, and the first bytes of a length with it.
                let part = (start + part.start as i64 - 3).max(from).max(start)..start + part.end as i64;
                if let Some(found) = self.find_whole(part, since, &mut imitated)? {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// As `search`, in a part of one segment. Adds the bytes of each imitation of a record to `imitated`.
    fn find_whole(&self, part: Range<i64>, since: i64, imitated: &mut u64) -> Result<Option<i64>> {
        let mut at = part.start;
        let mut bytes = vec![0; SEARCHED_AT_ONCE + CLAIM_SIZE];
        while at < part.end {
            interrupt::check()?;
            let Some((file, position)) = self.locate(at)? else { break };
            let len = bytes.len().min(file.len() as usize - position);
            let window = bytes.get_mut(..len).unwrap_or_default();
            if !file.read(position, window) {
                // A page that cannot be read hides its bytes and all later ones of this file.
                break;
            }
            for head in record_heads(window, at).filter(|head| *head < SEARCHED_AT_ONCE) {
                let found = at + head as i64;
                if let LogRecord::Message(message) = self.read(found, Check::Whole)?
                    && message.view().store_time() >= since
                {
                    return Ok(Some(found));
                }
                let claimed = window
                    .get(head..)
                    .and_then(<[u8]>::first_chunk)
                    .map_or(0, |head| claimed_size(*head));
                *imitated += claimed.min(file.len() as usize - position - head) as u64;
                if *imitated > MAX_IMITATED {
                    let reason = "cannot find the next record: too many places after this one look like the start of a record";
                    return Err(self.corrupt(found, reason.to_owned()));
                }
            }
            at = (at + SEARCHED_AT_ONCE as i64).min(part.end);
        }
        Ok(None)
    }
}
