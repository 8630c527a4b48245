//! The records of a stretch of the log, in order. After damage it continues at the next whole record.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::format::{Check, MessageView, is_salvage_record};
use crate::interrupt;
use crate::log::{LogFiles, LogRecord, RecordCursor, SequentialRead};
use crate::read::asked_queues::AskedQueues;
use crate::read::damage::{OnDamage, WAS_LOST};
use crate::read::message_reader::MessageReader;
use crate::read::scan::record_location::{LedBy, RecordLocation};
use crate::read::scan::request::ScanRequest;
use crate::remedy::Remedy;

/// Distances before an offset in which a record is looked for, one after the other.
const SEARCHED: [i64; 3] = [64 << 10, 1 << 20, 16 << 20];

/// A walk over the log.
#[derive(Debug)]
pub(super) struct LogLocations {
    /// The offset of the next record.
    at: i64,
    /// The lowest offset that is returned.
    start: i64,
    end: i64,
    /// `None` where another walk reads ahead for this one.
    read: Option<SequentialRead>,
    /// Queues that show how many messages of a stretch cannot be read.
    asked: AskedQueues,
    /// The queues are read, too, and what they lead to is counted there.
    is_beside_queues: bool,
}

impl LogLocations {
    /// Locates the records that start in a stretch of the log.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn new(reader: &MessageReader, request: &ScanRequest, stretch: Range<i64>) -> Result<Self> {
        let mut locations = Self::from_record(record_before(reader, stretch.start)?, request);
        locations.start = stretch.start;
        locations.end = stretch.end;
        Ok(locations)
    }

    /// Locates the records from `start` on; none before [`extend`](Self::extend) is called.
    pub(super) fn from_record(start: i64, request: &ScanRequest) -> Self {
        Self {
            at: start,
            start,
            end: start,
            read: Some(SequentialRead::default()),
            asked: AskedQueues::new(request.topics.clone(), request.queue_ids.clone(), false),
            is_beside_queues: false,
        }
    }

    /// Returns the walk for a scan that also reads the queues.
    pub(super) fn beside_queues(mut self) -> Self {
        self.is_beside_queues = true;
        self
    }

    /// Continues up to `end`. Returns true if the log has grown up to there: its files may be others than before.
    pub(super) fn extend(&mut self, end: i64) -> bool {
        let has_grown = self.end < end;
        self.end = self.end.max(end);
        has_grown
    }

    /// Returns the bytes that were not examined yet.
    pub(super) fn left(&self) -> i64 {
        self.end - self.at.max(self.start)
    }

    /// Returns the next record, which `cursor` then shows.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for damage, unless that is skipped, after which the walk can continue; [`Error::Io`].
    pub(super) fn next(
        &mut self,
        reader: &MessageReader,
        cursor: &mut RecordCursor,
        on_damage: &OnDamage,
    ) -> Result<Option<RecordLocation>> {
        let log = reader.log();
        while self.at < self.end {
            interrupt::check()?;
            let at = self.at;
            self.read_ahead(log, at);
            match cursor.read(log, at, Check::Structure)? {
                LogRecord::Message(()) => {
                    let Some(view) = cursor.view() else { break };
                    let (is_lost, size) = (is_salvage_record(&view), view.size());
                    self.at += i64::from(size);
                    if at < self.start {
                        continue;
                    }
                    if is_lost {
                        let lost = log.corrupt(at, WAS_LOST.to_owned()).with_remedy(Remedy::Skip);
                        self.miss(reader, lost, at..self.at, on_damage)?;
                        continue;
                    }
                    return Ok(Some(RecordLocation {
                        physical_offset: at,
                        size,
                        by: LedBy::Log,
                    }));
                }
                LogRecord::Blank { next } if next < log.files_end() => self.at = next,
                damage => self.pass_over(reader, &damage, on_damage)?,
            }
        }
        Ok(None)
    }

    /// Splits off a walk over the next records, of about `bytes` bytes, for another thread. This walk continues after
    /// them, and reads ahead for both. `None`, without a split, where something is not a record, and at the end.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub(super) fn take_front(
        &mut self,
        reader: &MessageReader,
        request: &ScanRequest,
        cursor: &mut RecordCursor,
        bytes: u64,
    ) -> Result<Option<LogLocations>> {
        let log = reader.log();
        let (mut at, until) = (self.at, self.end.min(self.at.saturating_add_unsigned(bytes)));
        if let Some(read) = &mut self.read {
            read.at_range(log, at..until, self.end);
        }
        while at < until {
            interrupt::check()?;
            match cursor.claimed_end(log, at)? {
                Some(end) => at = end,
                None => return Ok(None),
            }
        }
        // A record that is damaged may lead anywhere. Both walks agree where there is a whole one.
        let is_agreed = at == self.end || matches!(cursor.read(log, at, Check::Structure)?, LogRecord::Message(()));
        if at == self.at || at > self.end || !is_agreed {
            return Ok(None);
        }
        let front = Self {
            at: self.at,
            start: self.start,
            end: at,
            read: None,
            asked: AskedQueues::new(request.topics.clone(), request.queue_ids.clone(), false),
            is_beside_queues: self.is_beside_queues,
        };
        self.at = at;
        Ok(Some(front))
    }

    #[inline]
    fn read_ahead(&mut self, log: &LogFiles, at: i64) {
        if let Some(read) = &mut self.read {
            read.at(log, at, self.end);
        }
    }

    /// Drops pages as [`SequentialRead::drop_before`] does.
    pub(super) fn drop_before(&mut self, log: &LogFiles, offset: i64) {
        if let Some(read) = &mut self.read {
            read.drop_before(log, offset);
        }
    }

    /// Returns the offset of the next record.
    pub(super) fn position(&self) -> i64 {
        self.at
    }

    /// Continues after an offset where no record starts.
    fn pass_over(&mut self, reader: &MessageReader, found: &LogRecord<()>, on_damage: &OnDamage) -> Result<()> {
        let at = self.at;
        let (damage, next) = reader.past_damage(at, found, self.end)?;
        self.at = next;
        match damage {
            // What is not asked for is not missed.
            Some(damage) if next > self.start => self.miss(reader, damage, at.max(self.start)..next, on_damage),
            _ => Ok(()),
        }
    }

    /// Counts the messages of a stretch to which the queues lead that are asked for. One to which none leads may have had some,
    /// and counts as one.
    fn miss(&mut self, reader: &MessageReader, damage: Error, stretch: Range<i64>, on_damage: &OnDamage) -> Result<()> {
        let messages = self.asked.count(&stretch, reader)?;
        if messages > 0 && self.is_beside_queues {
            return Ok(());
        }
        on_damage.pass_over(damage, messages.max(1))
    }
}

/// Returns the start of a record at this offset or, if possible, shortly before it. Only the start of a segment and the target of a
/// queue entry are known to be starts of records: a body may hold bytes that look like a record of that offset.
fn record_before(reader: &MessageReader, offset: i64) -> Result<i64> {
    let log = reader.log();
    let segment = log.start_of_segment(offset).max(log.first_offset());
    let mut end = offset.saturating_add(1);
    for distance in SEARCHED {
        let start = offset.saturating_sub(distance);
        if start <= segment {
            break;
        }
        if let Some(found) = log.find_known_record(start..end, |view| is_led_to(reader, view))? {
            return Ok(found);
        }
        end = start;
    }
    Ok(segment)
}

/// Returns true if the queue of a record leads to it, or cannot show whether it does.
fn is_led_to(reader: &MessageReader, view: &MessageView<'_>) -> bool {
    let position = reader.position(&view.topic(), view.queue_id(), view.queue_offset());
    position.is_ok_and(|found| found.is_some_and(|found| found.physical_offset == view.physical_offset()))
}

/// An iterator over the same records in reverse order: segment by segment, with the locations of one segment in memory.
#[derive(Debug)]
pub(super) struct LogLocationsBackward {
    /// The range that is still unread.
    left: Range<i64>,
    /// The records of a segment, the next one at the end.
    found: Vec<RecordLocation>,
    /// The read-ahead of the search.
    read: SequentialRead,
}

impl LogLocationsBackward {
    pub(super) fn new(stretch: Range<i64>) -> Self {
        Self {
            left: stretch,
            found: Vec::new(),
            read: SequentialRead::default(),
        }
    }

    /// Returns the bytes that were not examined yet.
    pub(super) fn left(&self) -> i64 {
        self.found.last().map_or(self.left.end, |next| next.physical_offset) - self.left.start
    }

    /// Returns the next record.
    ///
    /// # Errors
    /// As [`LogLocations::next`].
    pub(super) fn next(
        &mut self,
        reader: &MessageReader,
        request: &ScanRequest,
        cursor: &mut RecordCursor,
        on_damage: &OnDamage,
    ) -> Result<Option<RecordLocation>> {
        let log = reader.log();
        if self.found.is_empty() {
            self.read.drop_before(log, i64::MAX);
        }
        while self.found.is_empty() && !self.left.is_empty() {
            let segment = log.start_of_segment(self.left.end - 1);
            let start = segment.clamp(self.left.start, self.left.end);
            let mut locations = LogLocations::new(reader, request, start..self.left.end)?;
            self.left.end = start;
            while let Some(location) = locations.next(reader, cursor, on_damage)? {
                self.found.push(location);
            }
            self.read = locations.read.unwrap_or_default();
        }
        Ok(self.found.pop())
    }
}
