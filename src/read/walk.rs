//! Walking the log, also past damage, where no queue or index serves.

use std::ops::Range;

use crate::config::Errors;
use crate::error::{Error, Result};
use crate::format::{Check, MIN_RECORD_SIZE, MessageView, is_salvage_record};
use crate::interrupt;
use crate::log::{LogRecord, LogScan, Source, StoredMessage};
use crate::read::damage::{OnDamage, Unread, Unreadable};
use crate::read::message_reader::MessageReader;
use crate::read::queue_walk::{NamedQueue, QueueWalk};

/// A walk over the whole records of a stretch of the log. It stops at everything else, and the caller says where it continues.
#[derive(Debug)]
pub(crate) struct LogWalk<'a> {
    reader: &'a MessageReader,
    scan: LogScan<'a>,
    end: i64,
    check: Check,
}

/// A thing to which a walk comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Walked {
    /// A whole record, which [`LogWalk::view`] shows.
    Record,
    /// Damage, or a missing segment, which [`LogWalk::stop`] shows. The walk stays here until the caller moves it.
    Stop,
}

impl LogWalk<'_> {
    /// Goes to the next record or stop; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Io`], those of [`interrupt::check`].
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<Option<Walked>> {
        interrupt::check()?;
        if self.scan.advance()? {
            return Ok(Some(Walked::Record));
        }
        Ok(self.stop().map(|_| Walked::Stop))
    }

    /// Returns the thing that is not a record, at which the walk has stopped.
    pub(crate) fn stop(&self) -> Option<&LogRecord<()>> {
        self.scan.stopped_by()
    }

    /// Returns the record that was read last. Ask [`check_intact`](Self::check_intact) after using it.
    #[inline]
    pub(crate) fn view(&self) -> Option<MessageView<'_>> {
        self.scan.view()
    }

    /// Fails if what was read of the last record so far were not the file's bytes.
    ///
    /// # Errors
    /// As [`LogScan::check_intact`].
    #[inline]
    pub(crate) fn check_intact(&self) -> Result<()> {
        self.scan.check_intact()
    }

    /// Returns where the next record is expected, or where the walk has stopped.
    #[inline]
    pub(crate) fn position(&self) -> i64 {
        self.scan.position()
    }

    /// Moves the walk to a record after a stop.
    pub(crate) fn resume_at(&mut self, at: i64) {
        self.scan = self.reader.log().scan(at, self.end, self.check);
    }

    /// Moves the walk to the next whole record after a stop, or to the end. Returns the damage, and the stretch that was skipped.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn pass_damage(&mut self) -> Result<(Option<Error>, Range<i64>)> {
        let at = self.position();
        let (damage, next) = match self.stop() {
            Some(stop) => self.reader.past_damage(at, stop, self.end)?,
            None => (None, at),
        };
        let next = next.min(self.end);
        self.resume_at(next);
        Ok((damage, at..next))
    }
}

impl MessageReader {
    /// Begins a walk at a record.
    pub(crate) fn log_walk(&self, stretch: Range<i64>, check: Check) -> LogWalk<'_> {
        LogWalk {
            reader: self,
            scan: self.log().scan(stretch.start, stretch.end, check),
            end: stretch.end,
            check,
        }
    }

    /// Hands every whole message of a stretch of the log to `visit`. After damage or a missing segment the walk continues at the next
    /// segment. Returns what it could not read.
    pub(super) fn walk(&self, range: Range<i64>, mut visit: impl FnMut(&MessageView<'_>)) -> Result<Unread> {
        let mut unread = Unread::new();
        let start = self.record_start(range.start, &mut unread)?;
        let mut walk = self.log_walk(start..range.end, Check::Structure);
        while let Some(walked) = walk.advance()? {
            if walked == Walked::Record {
                match walk.view() {
                    Some(view) if is_salvage_record(&view) => {
                        unread.insert(view.physical_offset(), Unreadable::Lost);
                    }
                    view => view.iter().for_each(&mut visit),
                }
                continue;
            }
            let at = walk.position();
            let why = match walk.stop() {
                Some(LogRecord::Missing) if self.log().is_removed(at) => Unreadable::Expired,
                Some(LogRecord::Corrupt(error) | LogRecord::NoRecord(error)) => Unreadable::Damaged(error.clone()),
                _ => {
                    let why = "no record starts here: the segment is missing or cut short; copy it again";
                    Unreadable::Damaged(self.log().corrupt(at, why.to_owned()))
                }
            };
            unread.insert(at, why);
            match self.log().next_start(at) {
                Some(next) if next < range.end => walk.resume_at(next),
                _ => break,
            }
        }
        Ok(unread)
    }

    /// Walks a stretch that no index file serves; see [`walk`](Self::walk).
    pub(super) fn walk_source(&self, source: &Source, visit: impl FnMut(&MessageView<'_>)) -> Result<Unread> {
        let range = source.range();
        let start = match source {
            Source::LogAfterIndex(_) => self.end_of_indexed(&range)?,
            Source::Index(..) | Source::Log(_) => range.start,
        };
        self.walk(start..range.end, visit)
    }

    /// Returns where a stretch continues after its first record, if that is damaged and no other record can be hidden in the damage:
    /// its own length leads to the next whole record, or there is no room for two. Otherwise returns the start of the stretch.
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

    /// Returns the start of the first record that is not before `at`: a record there may have been lost since, and then `at` is inside
    /// a salvage record.
    fn record_start(&self, at: i64, unread: &mut Unread) -> Result<i64> {
        let log = self.log();
        if at == log.first_offset() || matches!(log.read(at, Check::Structure)?, LogRecord::Message(_) | LogRecord::Missing) {
            return Ok(at);
        }
        let segment = log.start_of_segment(at).max(log.first_offset());
        for message in log.scan(segment, at + 1, Check::Structure) {
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
        // Damaged entries are skipped: no record is known to be theirs.
        let on_damage = OnDamage::new(Errors::Skip);
        for id in queue_ids {
            let Some(queue) = self.queue(topic, id)? else { continue };
            let offsets = queue.min_offset()..queue.max_offset();
            let topic = topic.to_owned();
            let mut walk = QueueWalk::new(NamedQueue { topic, id, queue }, offsets);
            while let Some((offset, unit)) = walk.next(self, false, &on_damage)? {
                if !range.contains(&unit.physical_offset) {
                    continue;
                }
                match self.message_of_entry(&walk.queue.topic, id, offset, unit) {
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

    /// Returns where the next record starts after damage at `at`; `end` if none does. A salvage has found that at the open, when the entries
    /// of lost messages still named their records.
    fn next_record(&self, at: i64, end: i64) -> Result<i64> {
        if let Some(lost) = self.recovery().lost.iter().find(|lost| lost.contains(&at)) {
            return Ok(lost.end);
        }
        Ok(self.record_starts().next_record(at, at + 1, i64::MIN)?.unwrap_or(end))
    }

    /// Returns what is wrong at an offset without a record, and where the walk continues: at the next whole record, or at
    /// `end`. The record there may have expired, and then nothing is wrong.
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
