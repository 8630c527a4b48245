//! Walking a queue from either end: its entries, and the messages to which they lead.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::CqUnit;
use crate::interrupt;
use crate::log::{ConsumeQueue, EntryCursor, RecordCursor, StoredMessage};
use crate::read::damage::OnDamage;
use crate::read::message_reader::MessageReader;

/// Entries that are read at once. A scan in the order of the log has a block of each queue in memory.
const BLOCK: i64 = 64;

/// A queue with its name.
#[derive(Debug)]
pub(super) struct NamedQueue {
    pub(super) topic: String,
    pub(super) id: i32,
    pub(super) queue: Arc<ConsumeQueue>,
}

/// A walk over the entries of a stretch of a queue, from either end. It passes over expired messages, each `PRE_BLANK`, damaged entries and
/// missing files.
#[derive(Debug)]
pub(super) struct QueueWalk {
    pub(super) queue: Arc<NamedQueue>,
    /// The queue offsets to which the walk has not come.
    pub(super) offsets: Range<i64>,
    entries: EntryCursor,
}

impl QueueWalk {
    pub(super) fn new(queue: NamedQueue, offsets: Range<i64>) -> Self {
        Self::reading_at_once(queue, offsets, BLOCK)
    }

    /// Begins a walk that is likely to end soon: reads at most this number of entries at once.
    pub(super) fn reading_at_once(queue: NamedQueue, offsets: Range<i64>, entries: i64) -> Self {
        Self {
            entries: EntryCursor::reading_at_once(Arc::clone(&queue.queue), entries.clamp(1, BLOCK)),
            queue: Arc::new(queue),
            offsets,
        }
    }

    /// Takes the next entry, the last one first if `reverse`; returns it with its queue offset. Damage is skipped, or is an error,
    /// after which the walk can continue.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged entry and for a missing file, unless that is skipped; [`Error::Io`].
    pub(super) fn next(&mut self, reader: &MessageReader, reverse: bool, on_damage: &OnDamage) -> Result<Option<(i64, CqUnit)>> {
        loop {
            // Before the offset is taken: a caller that continues after an interruption misses no message.
            interrupt::check()?;
            if self.offsets.is_empty() {
                return Ok(None);
            }
            let Range { start, end } = self.offsets;
            let offset = if reverse { end - 1 } else { start };
            match self.entries.unit_of(offset, &self.offsets, reverse) {
                Ok(Some(unit)) => {
                    if reverse {
                        self.offsets.end = offset;
                    } else {
                        self.offsets.start = offset + 1;
                    }
                    return Ok(Some((offset, unit)));
                }
                Ok(None) | Err(Error::NotFound { .. }) => {
                    self.pass_over(offset, reader, reverse)?;
                }
                Err(damage) => {
                    let count = self.pass_over(offset, reader, reverse)?;
                    on_damage.pass_over(damage, count)?;
                }
            }
        }
    }

    /// Passes over `offset`, where nothing could be read, and over all that is missing or has expired with it. Returns the number of queue
    /// offsets.
    fn pass_over(&mut self, offset: i64, reader: &MessageReader, reverse: bool) -> Result<i64> {
        let queue = &self.queue.queue;
        reader.follow_removals(queue)?;
        let Range { start, end } = self.offsets;
        if reverse {
            self.offsets.end = queue.first_missing(offset)?.clamp(start, end.min(offset).max(start));
            Ok(offset + 1 - self.offsets.end)
        } else {
            self.offsets.start = queue.offset_after(offset)?.clamp(start, end);
            Ok(self.offsets.start - offset)
        }
    }
}

/// An iterator over the messages of a stretch of a queue, from either end. Messages that the log no longer holds are passed over, and so
/// is a `PRE_BLANK`. A lost message, a damaged entry or record, each message of a missing segment, and a missing
/// queue file as a whole, is an error, after which the iteration can continue, or is skipped.
#[derive(Debug)]
pub struct QueueScan {
    reader: Arc<MessageReader>,
    /// `None` for an absent queue.
    walk: Option<QueueWalk>,
    on_damage: OnDamage,
    cursor: RecordCursor,
    /// The number of removals of segments before the entries were read.
    removals: u64,
}

impl QueueScan {
    /// The messages at the queue offsets `offsets`, clipped to what the queue holds. What is damaged is skipped if the store was opened
    /// so.
    ///
    /// # Errors
    /// As [`MessageReader::queue_ids`].
    pub fn new(reader: Arc<MessageReader>, topic: String, id: i32, offsets: Range<i64>) -> Result<Self> {
        // First: a removal while the queue is looked for counts.
        let removals = reader.log().removals();
        let walk = reader.queue(&topic, id)?.map(|queue| {
            let offsets = offsets.start.max(queue.min_offset())..offsets.end.min(queue.max_offset());
            QueueWalk::new(NamedQueue { topic, id, queue }, offsets)
        });
        let on_damage = OnDamage::new(reader.config().errors);
        Ok(Self {
            reader,
            walk,
            on_damage,
            cursor: RecordCursor::default(),
            removals,
        })
    }

    /// Sets the option for damage.
    #[must_use]
    pub fn on_damage(self, on_damage: OnDamage) -> Self {
        Self { on_damage, ..self }
    }

    /// Returns the queue offsets to which the scan has not come.
    pub(crate) fn left(&self) -> Range<i64> {
        self.walk.as_ref().map_or(0..0, |walk| walk.offsets.clone())
    }

    /// Takes the next entry from one end, with its queue offset. [`QueueScan::message`] reads its message.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged entry and for a missing file, unless that is skipped; [`Error::Io`].
    pub(crate) fn next_entry(&mut self, reverse: bool) -> Result<Option<(i64, CqUnit)>> {
        let (reader, Some(walk)) = (&self.reader, &mut self.walk) else {
            return Ok(None);
        };
        if self.removals != reader.log().removals() {
            self.removals = reader.log().removals();
            reader.follow_removals(&walk.queue.queue)?;
            walk.entries.forget();
            self.cursor = RecordCursor::default();
        }
        walk.next(reader, reverse, &self.on_damage)
    }

    /// Reads the message of an entry that was taken.
    ///
    /// # Errors
    /// As [`MessageReader::message_in_queue`].
    pub(crate) fn message(&mut self, offset: i64, unit: CqUnit) -> Result<StoredMessage> {
        let Some(walk) = &self.walk else {
            return Err(Error::not_found("the queue is absent".to_owned()));
        };
        read_entry(&self.reader, &mut self.cursor, &walk.queue, offset, unit)
    }

    /// Reads the next message from one end.
    fn read_next(&mut self, reverse: bool) -> Result<Option<StoredMessage>> {
        while let Some((offset, unit)) = self.next_entry(reverse)? {
            match self.message(offset, unit) {
                Ok(message) => return Ok(Some(message)),
                Err(Error::NotFound { .. }) => {
                    self.pass_over(offset, reverse)?;
                }
                Err(error) => {
                    let count = self.pass_over(offset, reverse)?;
                    self.on_damage.pass_over(error, count)?;
                }
            }
        }
        Ok(None)
    }

    fn pass_over(&mut self, offset: i64, reverse: bool) -> Result<i64> {
        let walk = self.walk.as_mut();
        walk.map_or(Ok(0), |walk| walk.pass_over(offset, &self.reader, reverse))
    }
}

/// Reads the message to which an entry leads.
fn read_entry(
    reader: &MessageReader,
    cursor: &mut RecordCursor,
    of: &NamedQueue,
    offset: i64,
    unit: CqUnit,
) -> Result<StoredMessage> {
    let is_expected = reader.read_expected(cursor, (&of.topic, of.id, offset), unit)?;
    match cursor.message().filter(|_| is_expected) {
        Some(message) => Ok(message),
        // Another record or none is there: this returns the reason.
        None => reader.message_of_queue(Some(&of.queue), &of.topic, of.id, offset),
    }
}

impl Iterator for QueueScan {
    type Item = Result<StoredMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read_next(false).transpose()
    }
}

impl DoubleEndedIterator for QueueScan {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.read_next(true).transpose()
    }
}
