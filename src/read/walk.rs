//! Walking the log where no queue or index serves.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::format::{Check, MIN_RECORD_SIZE, is_salvage_record};
use crate::interrupt;
use crate::log::{LogRecord, Source, StoredMessage};
use crate::read::message_reader::MessageReader;
use crate::read::unreadable::{Unread, Unreadable};

impl MessageReader {
    /// Hands every whole message of a stretch of the log to `visit`. After damage or a missing segment the walk goes on at the next
    /// segment. Returns what it could not read.
    pub(super) fn walk(&self, range: Range<i64>, mut visit: impl FnMut(&StoredMessage)) -> Result<Unread> {
        let mut unread = Unread::new();
        let mut from = self.record_start(range.start, &mut unread)?;
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

    /// Walks a stretch that no index file serves; see [`walk`](Self::walk).
    pub(super) fn walk_source(&self, source: &Source, visit: impl FnMut(&StoredMessage)) -> Result<Unread> {
        let range = source.range();
        let start = match source {
            Source::LogAfterIndex(_) => self.end_of_indexed(&range)?,
            Source::Index(..) | Source::Log(_) => range.start,
        };
        self.walk(start..range.end, visit)
    }

    /// Where a stretch goes on after its first record, if that is damaged and no other record can be hidden in the damage: its own length
    /// leads to the next whole record, or there is no room for two. Otherwise where the stretch starts.
    fn end_of_indexed(&self, range: &Range<i64>) -> Result<i64> {
        let (log, at) = (self.log(), range.start);
        if !matches!(
            log.read(at, Check::Structure)?,
            LogRecord::Corrupt(_) | LogRecord::NoRecord(_)
        ) {
            return Ok(at);
        }
        let next = self.next_record(at, range.end)?.min(range.end);
        let is_alone = next - at < 2 * MIN_RECORD_SIZE as i64 || log.claimed_end(at)? == Some(next);
        Ok(if is_alone { next } else { at })
    }

    /// Where the first record starts that is not before `at`: a record that stood there may have been lost since, and then `at` is inside
    /// a salvage record.
    fn record_start(&self, at: i64, unread: &mut Unread) -> Result<i64> {
        let log = self.log();
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
        Ok(at)
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

    /// Returns where the next record starts after damage at `at`; `end` if none does. A salvage has found that at the open, when the entries of
    /// lost messages still named their records.
    fn next_record(&self, at: i64, end: i64) -> Result<i64> {
        if let Some(lost) = self.recovery().lost.iter().find(|lost| lost.contains(&at)) {
            return Ok(lost.end);
        }
        Ok(self.record_starts().next_record(at, at + 1, i64::MIN)?.unwrap_or(end))
    }

    /// What is wrong at a place where a pass over the log found no record, and where it goes on: at the next whole record, or at
    /// `end`. What stood there may have expired, and then nothing is wrong.
    pub(crate) fn past_damage(&self, at: i64, found: &LogRecord<()>, end: i64) -> Result<(Option<Error>, i64)> {
        let log = self.log();
        let next_segment = || log.next_start(at).unwrap_or(end);
        let next_record = || self.next_record(at, end);
        let (damage, next) = match found {
            LogRecord::Missing if at < log.first_offset() || log.is_removed(at) => return Ok((None, next_segment())),
            LogRecord::Corrupt(error) | LogRecord::NoRecord(error) => (error.clone(), next_record()?),
            LogRecord::Missing => (
                log.corrupt(at, "the segment is missing: copy it again".to_owned()),
                next_segment(),
            ),
            _ => {
                let why = "no record starts here, and the log does not end here: the segment is cut short or damaged".to_owned();
                (log.corrupt(at, why), next_record()?)
            }
        };
        Ok((Some(self.advise(damage)), next))
    }
}
