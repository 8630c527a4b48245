//! Reading the messages of a queue, one by one, from one offset to another.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{Check, CqUnit, MessageView, is_salvage_record};
use crate::interrupt;
use crate::log::{ConsumeQueue, EntriesAhead, LogRecord, RecordCursor, StoredMessage};
use crate::read::message_reader::MessageReader;
use crate::read::on_damage::OnDamage;

/// An iterator over the messages of a stretch of a queue, from either end. Messages that the log no longer holds are passed over, and so
/// is a `PRE_BLANK`. A lost message, a damaged entry or record, each message of a missing segment, and a missing
/// queue file as a whole, is an error, after which the iteration can go on, or is skipped.
#[derive(Debug)]
pub struct QueueScan {
    reader: Arc<MessageReader>,
    queue: Option<Arc<ConsumeQueue>>,
    topic: String,
    queue_id: i32,
    offsets: Range<i64>,
    on_damage: OnDamage,
    entries: EntriesAhead,
    cursor: RecordCursor,
    /// How often segments were found to be removed before the entries were read.
    removals: u64,
}

/// Entries that are read at once.
const BLOCK: i64 = 64;

impl QueueScan {
    /// The messages at the queue offsets `offsets`, clipped to what the queue holds. What is damaged is skipped if the store was opened
    /// so.
    ///
    /// # Errors
    /// As [`MessageReader::queue_ids`].
    pub fn new(reader: Arc<MessageReader>, topic: String, queue_id: i32, offsets: Range<i64>) -> Result<Self> {
        let queue = reader.queue(&topic, queue_id)?;
        let bounds = queue.as_ref().map_or(0..0, |queue| queue.min_offset()..queue.max_offset());
        let offsets = offsets.start.max(bounds.start)..offsets.end.min(bounds.end);
        let on_damage = OnDamage::new(reader.config().errors);
        Ok(Self {
            reader,
            queue,
            topic,
            queue_id,
            offsets,
            on_damage,
            entries: EntriesAhead::default(),
            cursor: RecordCursor::default(),
            removals: 0,
        })
    }

    /// The same, with this to do at damage.
    #[must_use]
    pub fn on_damage(self, on_damage: OnDamage) -> Self {
        Self { on_damage, ..self }
    }

    /// The message at `offset`. The entries at `kept` are those that are needed next.
    fn read(&mut self, offset: i64, kept: Range<i64>) -> Result<StoredMessage> {
        match self.read_expected(offset, kept)? {
            Some(message) => Ok(message),
            // Nothing is there, or not what should be: this tells why.
            None => self
                .reader
                .message_of_queue(self.queue.as_deref(), &self.topic, self.queue_id, offset),
        }
    }

    fn read_expected(&mut self, offset: i64, kept: Range<i64>) -> Result<Option<StoredMessage>> {
        let (Some(queue), log) = (&self.queue, self.reader.log()) else {
            return Ok(None);
        };
        if self.removals != log.removals() {
            // They lead to messages that have expired.
            (self.entries, self.cursor) = (EntriesAhead::default(), RecordCursor::default());
            self.removals = log.removals();
            return Ok(None);
        }
        let Ok(Some(unit)) = queue.unit_among(offset, kept, &mut self.entries) else {
            return Ok(None);
        };
        let place = (self.topic.as_str(), self.queue_id, offset);
        let is_expected = self.reader.read_expected(&mut self.cursor, place, unit)?;
        Ok(self.cursor.message().filter(|_| is_expected))
    }

    /// Passes over `offset`, where nothing was read, and all that is missing with it.
    fn pass_over(&mut self, offset: i64, error: Error) -> Result<()> {
        let next = self.reader.offset_after(&self.topic, self.queue_id, offset)?;
        self.offsets.start = next.min(self.offsets.end).max(self.offsets.start);
        match error {
            Error::NotFound { .. } => Ok(()),
            error => self.on_damage.pass_over(error, self.offsets.start - offset),
        }
    }

    /// The same, from the other end.
    fn pass_over_backward(&mut self, offset: i64, error: Error) -> Result<()> {
        let start = self.reader.start_of_gap(&self.topic, self.queue_id, offset)?;
        self.offsets.end = start.max(self.offsets.start).min(self.offsets.end);
        match error {
            Error::NotFound { .. } => Ok(()),
            error => self.on_damage.pass_over(error, offset + 1 - self.offsets.end),
        }
    }
}

impl Iterator for QueueScan {
    type Item = Result<StoredMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            // Before the offset is taken: who goes on after an interruption misses no message.
            if let Err(interrupted) = interrupt::check() {
                return Some(Err(interrupted));
            }
            let offset = self.offsets.next()?;
            match self.read(offset, offset..self.offsets.end.min(offset.saturating_add(BLOCK))) {
                Ok(message) => return Some(Ok(message)),
                Err(error) => {
                    if let Err(error) = self.pass_over(offset, error) {
                        return Some(Err(error));
                    }
                }
            }
        }
    }
}

impl DoubleEndedIterator for QueueScan {
    fn next_back(&mut self) -> Option<Self::Item> {
        loop {
            // Before the offset is taken: who goes on after an interruption misses no message.
            if let Err(interrupted) = interrupt::check() {
                return Some(Err(interrupted));
            }
            let offset = self.offsets.next_back()?;
            match self.read(offset, self.offsets.start.max(offset - BLOCK + 1)..offset + 1) {
                Ok(message) => return Some(Ok(message)),
                Err(error) => {
                    if let Err(error) = self.pass_over_backward(offset, error) {
                        return Some(Err(error));
                    }
                }
            }
        }
    }
}

impl MessageReader {
    /// Reads the record to which the entry of a topic, queue id and queue offset leads, and tells whether the message stands
    /// there, whole. If not, [`message_of_entry`](Self::message_of_entry) tells why.
    pub(super) fn read_expected(&self, cursor: &mut RecordCursor, place: (&str, i32, i64), unit: CqUnit) -> Result<bool> {
        let (topic, queue_id, queue_offset) = place;
        let found = cursor.read(self.log(), unit.physical_offset, Check::Whole)?;
        let stands_there =
            |view: MessageView<'_>| view.stands_in_queue(topic, queue_id, queue_offset) && !is_salvage_record(&view);
        Ok(matches!(found, LogRecord::Message(()))
            && unit.physical_offset < self.log_end()
            && cursor.view().is_some_and(stands_there))
    }

    /// The queue offset to go on with after nothing was read at `offset`: past the files that are missing there, if any are (one name that
    /// is wrong can make a gap without end), and past what has expired.
    pub(super) fn offset_after(&self, topic: &str, queue_id: i32, offset: i64) -> Result<i64> {
        let next = offset.saturating_add(1);
        let Some(queue) = self.queue(topic, queue_id)? else {
            return Ok(next);
        };
        let next = next.max(queue.min_offset());
        if queue.is_readable(offset)? {
            return Ok(next);
        }
        Ok(next.max(queue.end_of_gap(offset)))
    }

    /// The first queue offset of what is missing at `offset`: that itself, or the start of the missing files.
    pub(super) fn start_of_gap(&self, topic: &str, queue_id: i32, offset: i64) -> Result<i64> {
        match self.queue(topic, queue_id)? {
            Some(queue) if !queue.is_readable(offset)? => Ok(queue.start_of_gap(offset).min(offset)),
            _ => Ok(offset),
        }
    }
}
