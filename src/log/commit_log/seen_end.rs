//! Where the log ends at one moment, while another process may append to it.

use std::ops::Range;

use crate::error::Result;
use crate::format::{BLANK_SIZE, CLAIM_SIZE, Check, MIN_RECORD_SIZE, Record, claimed_offset, claimed_size, read_record};
use crate::log::commit_log::log_files::LogFiles;
use crate::storage::MappedFile;

impl LogFiles {
    /// The last record of the log now, at `from` or after, by the lengths of records alone: its start, and where the log ends. Empty if
    /// there is none. A record is checked more slowly than a writer appends the next one, so a scan without this bound would follow the
    /// writer for as long as its segment has room. `from` is where a record starts, or may start.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub fn last_seen(&self, from: i64) -> Result<Range<i64>> {
        let mut at = self.newest_written_start(from)?;
        let mut last = None;
        while let Some((file, position)) = self.locate(at)? {
            let mut position = position as u64;
            let next = loop {
                let mut head = [0; CLAIM_SIZE];
                let len = head.len().min((file.len() - position) as usize);
                let head = head.get_mut(..len).unwrap_or_default();
                if !file.read(position as usize, head) {
                    break None;
                }
                match size_of_record(head, (file.start() + position) as i64) {
                    Some(size) if position + size <= file.len() => {
                        last = Some((file.start() + position) as i64);
                        position += size;
                    }
                    _ => break next_segment(head, &file, position),
                }
            };
            at = (file.start() + position) as i64;
            match next.filter(|next| *next < self.files_end()) {
                Some(next) => at = next,
                None => break,
            }
        }
        Ok(last.unwrap_or(at)..at)
    }

    /// The start of the newest segment after `from` in which something was written; `from` if there is none.
    fn newest_written_start(&self, from: i64) -> Result<i64> {
        for start in self.starts().rev().take_while(|start| *start > from) {
            let mut head = [0; BLANK_SIZE];
            if let Some((file, position)) = self.locate(start)?
                && file.read(position, &mut head)
                && !matches!(read_record(&head, Check::Structure), Record::End)
            {
                return Ok(start);
            }
        }
        Ok(from)
    }
}

/// Where the log goes on if a BLANK starts so at a position of a segment, and ends with it.
fn next_segment(head: &[u8], file: &MappedFile, position: u64) -> Option<i64> {
    match read_record(head, Check::Structure) {
        Record::Blank { size } => (position + u64::from(size) == file.len()).then_some(file.end() as i64),
        _ => None,
    }
}

/// The size that the record with this head claims, if it names `at` as its physical offset.
fn size_of_record(head: &[u8], at: i64) -> Option<u64> {
    let claimed = head.first_chunk().map(|head| claimed_size(*head))?;
    (claimed >= MIN_RECORD_SIZE && claimed_offset(head) == Some(at)).then_some(claimed as u64)
}
