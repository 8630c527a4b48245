//! The search for the next whole record behind damage.

use std::ops::Range;

use crate::error::Result;
use crate::format::{CLAIM_SIZE, Check, claimed_size, record_heads};
use crate::log::log_files::{LogFiles, LogRecord};

/// Bytes that are searched for a record at once.
const SEARCHED_AT_ONCE: usize = 64 * 1024;
/// Bytes of what only begins like a record that are looked at in one search: in a damaged log there are few, and in one that somebody
/// made so each of its bytes is one.
const MAX_IMITATED: u64 = 4 << 30;

impl LogFiles {
    /// Where behind `from` the next whole record starts that was not stored before `since`: older ones are stale. Searches every
    /// byte that was written, so only for who has met damage.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] for bytes that imitate records so often that telling takes too long.
    pub fn next_whole(&self, from: i64, since: i64) -> Result<Option<i64>> {
        let mut imitated = 0;
        for start in self.starts() {
            let asked = from.max(start)..self.files_end().min(start + self.segment_size() as i64);
            if asked.is_empty() {
                continue;
            }
            // Most of a segment that was made ahead was never written.
            let asked = (asked.start - start) as u64..(asked.end - start) as u64;
            for part in self.files.written(start as u64, asked)? {
                // A copy may have left out a page of zeros, and with it the first bytes of a length.
                let part = (start + part.start as i64 - 3).max(from).max(start)..start + part.end as i64;
                if let Some(found) = self.find_whole(part, since, &mut imitated)? {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// As [`LogFiles::next_whole`], in a part of one segment. Adds the bytes of what is none after all to `imitated`.
    fn find_whole(&self, part: Range<i64>, since: i64, imitated: &mut u64) -> Result<Option<i64>> {
        let mut at = part.start;
        let mut bytes = vec![0; SEARCHED_AT_ONCE + CLAIM_SIZE];
        while at < part.end {
            let Some((file, position)) = self.locate(at)? else { break };
            let len = bytes.len().min(file.len() as usize - position);
            let window = bytes.get_mut(..len).unwrap_or_default();
            if !file.read(position, window) {
                // A page that cannot be read hides what is in it, and what follows in this file.
                break;
            }
            for head in record_heads(window, at).filter(|head| *head < SEARCHED_AT_ONCE) {
                let found = at + head as i64;
                if let LogRecord::Message(message) = self.read(found, Check::Body)?
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
                    let reason = "so many bytes around here begin like a record and are none that the next one cannot be found";
                    return Err(self.corrupt(found, reason.to_owned()));
                }
            }
            at = (at + SEARCHED_AT_ONCE as i64).min(part.end);
        }
        Ok(None)
    }
}
