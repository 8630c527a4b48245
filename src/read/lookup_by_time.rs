//! Binary search for the first message of a time in a queue.
//!
//! The store times of a queue rise, and a binary search finds the offset, unless a broker's clock was set back: then several
//! offsets have a message of the time after an earlier one, and RocketMQ finds any of them. The first one is wanted, since a
//! consumer that starts there misses nothing. So the search looks back from the offset that it has found, at points whose distance
//! grows by an eighth, and where a point was stored later than the next one, at every message between the two.

use std::ops::Range;
use std::sync::Arc;

use crate::config::Errors;
use crate::error::{Error, Result};
use crate::format::Round;
use crate::interrupt;
use crate::log::{ConsumeQueue, RecordCursor, ScatteredEntryCursor};
use crate::read::message_reader::MessageReader;

/// An end of the range of messages with one store time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The first message stored at or after the time (`RocketMQ`'s LOWER).
    Left,
    /// The first message stored after the time.
    Right,
}

impl Side {
    /// Returns how a time between two whole ms is rounded: no message was stored there.
    pub fn round(self) -> Round {
        match self {
            Self::Left => Round::Up,
            Self::Right => Round::Down,
        }
    }
}

impl MessageReader {
    /// Returns the queue offset of the first message stored at or after (`Side::Left`) or after (`Side::Right`) a time in ms; the queue's max
    /// offset otherwise. Messages that expired or were lost are skipped, and with [`Errors::Skip`] damaged ones, too.
    /// Where a clock was set back, this is the first such message that the search sees: a short stretch of them further back can be
    /// missed. Source: docs/FORMAT.md, "Lookup by time".
    ///
    /// # Errors
    /// As [`MessageReader::queue_ids`], and [`Error::Corrupt`], [`Error::Io`].
    pub fn offset_at(&self, topic: &str, queue_id: i32, time_ms: i64, side: Side) -> Result<i64> {
        let errors = self.config().errors;
        Ok(self.resolve_time(topic, queue_id, time_ms, side, errors)?.unwrap_or(0))
    }

    /// Calls [`MessageReader::offset_at`] with an action for damage; `None` where there is no such queue.
    ///
    /// # Errors
    /// As [`MessageReader::offset_at`].
    pub fn resolve_time(&self, topic: &str, queue_id: i32, time_ms: i64, side: Side, errors: Errors) -> Result<Option<i64>> {
        let Some(queue) = self.queue(topic, queue_id)? else {
            return Ok(None);
        };
        let (start, end) = (queue.min_offset(), queue.max_offset());
        let mut lookup = Lookup {
            reader: self,
            topic,
            queue_id,
            units: ScatteredEntryCursor::new(Arc::clone(&queue)),
            record: RecordCursor::default(),
            queue,
            start,
            time_ms,
            side,
            errors,
        };
        let mut found = lookup.search(end)?;
        while let Some(earlier) = lookup.look_back(found)? {
            found = earlier;
        }
        Ok(Some(found))
    }
}

/// A search in one queue.
struct Lookup<'a> {
    reader: &'a MessageReader,
    topic: &'a str,
    queue_id: i32,
    queue: Arc<ConsumeQueue>,
    units: ScatteredEntryCursor,
    record: RecordCursor,
    /// The queue's min offset.
    start: i64,
    time_ms: i64,
    side: Side,
    errors: Errors,
}

impl Lookup<'_> {
    /// Returns a message of the time or later whose predecessor is earlier; `end` if none precedes it.
    fn search(&mut self, end: i64) -> Result<i64> {
        let (mut low, mut high, mut found) = (self.start, end, end);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.next_readable(middle..high)? {
                Some((offset, stored)) if self.is_wanted(stored) => (high, found) = (middle, offset),
                Some((offset, _)) => low = offset + 1,
                None => high = middle,
            }
        }
        Ok(found)
    }

    /// Returns queue offset and store time of the first message of a stretch that can be read.
    fn next_readable(&mut self, mut offsets: Range<i64>) -> Result<Option<(i64, i64)>> {
        while let Some(offset) = offsets.next() {
            if let Some(stored) = self.store_time(offset)? {
                return Ok(Some((offset, stored)));
            }
            self.reader.follow_removals(&self.queue)?;
            offsets.start = self.queue.offset_after(offset)?.min(offsets.end);
        }
        Ok(None)
    }

    /// Returns such a message before `found`, if it sees one. A damaged message is skipped.
    fn look_back(&mut self, found: i64) -> Result<Option<i64>> {
        let (mut newer, mut newer_time) = (found, i64::MAX);
        let mut point = found;
        while point > self.start {
            point = (point - 1 - (found - point) / 8).max(self.start);
            let Some(older_time) = self.whole_store_time(point)? else {
                continue;
            };
            if self.is_wanted(older_time) {
                return self.search(point).map(Some);
            }
            if older_time > newer_time {
                for between in point + 1..newer {
                    if self.whole_store_time(between)?.is_some_and(|stored| self.is_wanted(stored)) {
                        return Ok(Some(between));
                    }
                }
            }
            (newer, newer_time) = (point, older_time);
        }
        Ok(None)
    }

    /// Returns the store time of a message; `None` also if it is damaged.
    fn whole_store_time(&mut self, queue_offset: i64) -> Result<Option<i64>> {
        match self.store_time(queue_offset) {
            Err(Error::Corrupt { .. }) => Ok(None),
            read => read,
        }
    }

    fn is_wanted(&self, stored: i64) -> bool {
        match self.side {
            Side::Left => stored >= self.time_ms,
            Side::Right => stored > self.time_ms,
        }
    }

    /// Returns the store time of a message; `None` if it has expired or was lost.
    fn store_time(&mut self, queue_offset: i64) -> Result<Option<i64>> {
        let Self {
            reader, topic, queue_id, ..
        } = *self;
        interrupt::check()?;
        if let Ok(Some(unit)) = self.units.unit(queue_offset)
            && reader.read_expected(&mut self.record, (topic, queue_id, queue_offset), unit)?
            && let Some(view) = self.record.view()
        {
            let stored = view.store_time();
            self.record.check_intact()?;
            return Ok(Some(stored));
        }
        match reader.message_of_queue(Some(&self.queue), topic, queue_id, queue_offset) {
            Ok(message) => Ok(Some(message.view().store_time())),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(Error::Corrupt { .. }) if self.errors == Errors::Skip => Ok(None),
            Err(Error::Corrupt { .. }) if reader.position(topic, queue_id, queue_offset)?.is_none() => Ok(None),
            Err(error) => Err(error),
        }
    }
}
