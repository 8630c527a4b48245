//! Walking the log where no queue or index serves.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::format::{Check, is_salvage_record};
use crate::interrupt;
use crate::log::{LogRecord, StoredMessage};
use crate::read::message_reader::MessageReader;
use crate::read::nothing::{Unread, Unreadable};

impl MessageReader {
    /// Hands every whole message of a stretch of the log to `visit`. After damage or a missing segment the walk goes on at the next
    /// segment. Returns what it could not read.
    pub(super) fn walk(&self, range: Range<i64>, mut visit: impl FnMut(&StoredMessage)) -> Result<Unread> {
        let mut unread = Unread::new();
        let mut from = self.walk_start(&range, &mut unread)?;
        loop {
            let mut scan = self.log().scan(from, range.end, Check::Structure);
            for message in scan.by_ref() {
                interrupt::check()?;
                let message = message?;
                if is_salvage_record(&message.view()) {
                    unread.insert(message.view().physical_offset(), Unreadable::Lost);
                } else {
                    visit(&message);
                }
            }
            let at = scan.position();
            let why = match scan.stopped_by() {
                None => return Ok(unread),
                Some(LogRecord::Missing) if self.log().is_removed(at) => Unreadable::Expired,
                Some(LogRecord::Corrupt(error) | LogRecord::NoRecord(error)) => Unreadable::Damaged(error.clone()),
                Some(_) => {
                    let why = "no record starts here: the segment is missing or cut short; copy it again";
                    Unreadable::Damaged(self.log().corrupt(at, why.to_owned()))
                }
            };
            unread.insert(at, why);
            match self.log().next_start(at) {
                Some(next) if next < range.end => from = next,
                _ => return Ok(unread),
            }
        }
    }

    /// Where the first record of a stretch starts. A stretch between two index files starts at the last record of the first one, and ends
    /// after the first record of the second one. If that record was lost since, the stretch starts inside a salvage record. If it is
    /// damaged, and the next whole record is that of the second file, no other record is hidden.
    fn walk_start(&self, range: &Range<i64>, unread: &mut Unread) -> Result<i64> {
        let (log, at) = (self.log(), range.start);
        if at == log.first_offset() || matches!(log.read(at, Check::Structure)?, LogRecord::Message(_) | LogRecord::Missing) {
            return Ok(at);
        }
        let segment = log.end_of_segment(at) - log.segment_size() as i64;
        for message in log.scan(segment.max(log.first_offset()), at + 1, Check::Structure) {
            interrupt::check()?;
            let message = message?;
            let view = message.view();
            if view.end() > at && is_salvage_record(&view) {
                unread.insert(view.physical_offset(), Unreadable::Lost);
                return Ok(view.end());
            }
        }
        let second_file = range.end - 1;
        let next = log.find_next_record(at, at + 1, i64::MIN)?;
        Ok(next.filter(|next| *next == second_file).unwrap_or(at))
    }

    /// Hands the messages of a topic's queues over that lie in this stretch of the log and can be read. A walk that meets damage does not
    /// know where the next record starts: an entry does. Adds the entries' messages that cannot be read to `unread`.
    pub(super) fn visit_queued(
        &self,
        topic: &str,
        range: &Range<i64>,
        unread: &mut Unread,
        mut visit: impl FnMut(StoredMessage),
    ) -> Result<()> {
        let queue_ids = match self.queue_ids(topic) {
            Err(Error::Unsupported { .. }) => return Ok(()),
            queue_ids => queue_ids?,
        };
        for queue_id in queue_ids {
            let mut offsets = self.queue_bounds(topic, queue_id)?;
            while let Some(offset) = offsets.next() {
                interrupt::check()?;
                let unit = match self.entry(topic, queue_id, offset) {
                    Err(Error::Corrupt { .. }) => {
                        offsets.start = self.offset_after(topic, queue_id, offset)?.min(offsets.end);
                        continue;
                    }
                    unit => unit?.filter(|unit| range.contains(&unit.physical_offset)),
                };
                let Some(unit) = unit else { continue };
                match self.message_of_entry(topic, queue_id, offset, unit) {
                    Ok(Some(message)) => visit(message),
                    Ok(None) => {}
                    Err(damage @ Error::Corrupt { .. }) => {
                        unread.entry(unit.physical_offset).or_insert(Unreadable::Damaged(damage));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}
