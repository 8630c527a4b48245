//! The end of a log that is received from a master, in pieces of any size.
//!
//! A record is appended once all of it has come: the log of a slave ends with a whole record at every moment, and a slave acknowledges
//! nothing that it would cut after a crash. The rest waits in memory. A BLANK is appended as it came, with the stale bytes that some brokers
//! leave after its head.

use crate::error::{Error, Result};
use crate::format::{BLANK_SIZE, Check, MAX_QUEUE_OFFSET, MessageView, Record, claimed_size, fits, read_record, validate_topic};
use crate::log::commit_log::append_state::{AppendState, Blocked, PoolWait};
use crate::log::commit_log::commit_log::CommitLog;

/// The received bytes that are not in the log yet.
#[derive(Debug, Default)]
pub struct ReceivedTail {
    bytes: Vec<u8>,
    last_record: Option<i64>,
}

/// The bytes at the start of a record.
enum Head {
    /// A record of this size.
    Record(usize),
    /// The BLANK that ends the segment, of this size.
    Blank(usize),
}

impl ReceivedTail {
    /// Returns the number of bytes that wait for the rest of their record.
    pub fn waiting(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the start of the last record that was appended.
    pub fn last_record(&self) -> Option<i64> {
        self.last_record
    }

    /// Forgets the part of a record that waits for its rest.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Takes the next bytes of the log, and appends the records that are whole then.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with the position where the bytes are no record, [`Error::Unsupported`] where they do not fit in the segments of
    /// this log: what came before them is appended. Those of [`CommitLog::append`].
    pub fn take(&mut self, log: &CommitLog, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        let mut taken = 0;
        let outcome = loop {
            match append_part(log, self.bytes.get(taken..).unwrap_or_default()) {
                Ok(Appended { len: 0, .. }) => break Ok(()),
                Ok(appended) => {
                    taken += appended.len;
                    self.last_record = appended.last_record.or(self.last_record);
                }
                Err(error) => break Err(error),
            }
        };
        self.bytes.drain(..taken);
        outcome
    }
}

/// The bytes that were appended at once.
#[derive(Default)]
struct Appended {
    len: usize,
    /// The start of the last of their records.
    last_record: Option<i64>,
}

/// Appends the first records, or the BLANK, of these bytes: nothing if the first of them is not whole.
fn append_part(log: &CommitLog, bytes: &[u8]) -> Result<Appended> {
    let end = log.watermarks.appended.get();
    let (mut part, mut last_store_time) = (Appended::default(), 0);
    while let Some(rest) = bytes.get(part.len..) {
        let at = end + part.len as i64;
        match first_record(log, at, rest) {
            Ok(Some((Head::Record(size), store_time))) => {
                last_store_time = last_store_time.max(store_time);
                part = Appended {
                    len: part.len + size,
                    last_record: Some(at),
                };
            }
            Ok(Some((Head::Blank(len), _))) if part.len == 0 => {
                append(log, |state| state.write_blank(rest.get(..len).unwrap_or_default()))?;
                return Ok(Appended { len, last_record: None });
            }
            Err(error) if part.len == 0 => return Err(error),
            // What is wrong after whole records is found by the next call.
            Ok(_) | Err(_) => break,
        }
    }
    let records = bytes.get(..part.len).unwrap_or_default();
    if !records.is_empty() {
        append(log, |state| state.write_records(records, last_store_time))?;
    }
    Ok(part)
}

/// Returns the size and the store time of the record at the physical offset `at`, or of the BLANK there; `None` if not all of it has come.
fn first_record(log: &CommitLog, at: i64, bytes: &[u8]) -> Result<Option<(Head, i64)>> {
    let Some(head) = bytes.first_chunk::<BLANK_SIZE>() else {
        return Ok(None);
    };
    let refuse = |reason: String| Err(log.files().corrupt(at, reason));
    let left = (log.files().end_of_segment(at) - at) as usize;
    let claimed = claimed_size(*head);
    if claimed == BLANK_SIZE {
        return match read_record(head, Check::Structure) {
            Record::Blank { size } if size as usize == left => Ok((bytes.len() >= left).then_some((Head::Blank(left), 0))),
            Record::Blank { size } => Err(wrong_segment(
                log,
                at,
                &format!("a BLANK of {size} bytes, and {left} are left"),
            )),
            Record::Corrupt(malformed) => refuse(format!("the master sent what is not a record: {}", malformed.reason)),
            Record::Message(_) | Record::End => refuse("the master sent zeros where a record begins".to_owned()),
        };
    }
    if !fits(claimed as u64, left as u64) {
        return Err(wrong_segment(
            log,
            at,
            &format!("a record of {claimed} bytes, and {left} are left"),
        ));
    }
    let Some(record) = bytes.get(..claimed) else {
        return Ok(None);
    };
    match read_record(record, Check::Whole) {
        Record::Message(view) if view.physical_offset() == at => match unqueueable(&view) {
            Some(reason) => refuse(format!("the master sent a record that no queue can have: {reason}")),
            None => Ok(Some((Head::Record(claimed), view.store_time()))),
        },
        Record::Message(view) => {
            let own = view.physical_offset();
            refuse(format!("the master sent a record that states {own} as its physical offset"))
        }
        Record::Corrupt(malformed) => refuse(format!("the master sent a damaged record: {}", malformed.reason)),
        Record::Blank { .. } | Record::End => refuse("the master sent what is not a record".to_owned()),
    }
}

/// Returns the reason why no queue file can be made for a record. A queue is a directory with the name of its topic, so an unchecked name
/// would lead out of the store.
fn unqueueable(view: &MessageView<'_>) -> Option<String> {
    if !view.has_queue_entry() {
        return None;
    }
    let Ok(topic) = str::from_utf8(view.topic_bytes()) else {
        return Some("its topic is not UTF-8".to_owned());
    };
    if let Err(malformed) = validate_topic(topic, view.version()) {
        return Some(malformed.reason.into());
    }
    let (queue_id, offset) = (view.queue_id(), view.queue_offset());
    let is_possible = queue_id >= 0 && (0..MAX_QUEUE_OFFSET).contains(&offset);
    (!is_possible).then(|| format!("queue offset {offset} of queue {queue_id}"))
}

/// Returns the refusal of a log whose segments end elsewhere. No later attempt can succeed.
fn wrong_segment(log: &CommitLog, at: i64, found: &str) -> Error {
    Error::Unsupported {
        path: log.files().path_of(at).0,
        what: format!(
            "the master sent {found} of the segment here, at physical offset {at}: its segments have another size, or its log is damaged; \
             follow it into an empty directory, with the sizes of the master (geometry, mapped_file_size_commit_log)"
        ),
        remedy: None,
    }
}

/// Appends by `write`, which returns false until the next segment is created.
fn append(log: &CommitLog, write: impl Fn(&mut AppendState) -> std::result::Result<bool, usize>) -> Result<()> {
    let mut wait = PoolWait::default();
    loop {
        let mut is_written = false;
        let blocked = log.with_state(None, |state, _| match write(state) {
            Ok(written) => {
                is_written = written;
                Ok((!written).then(|| Blocked::Segment(log.segment_size())))
            }
            Err(at) => Err(log.page_failed(state, at)),
        })?;
        if is_written {
            return Ok(());
        }
        log.wait_for_blocked(blocked, &mut wait)?;
    }
}
