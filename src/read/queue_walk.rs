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
/// The distance, in entries, at which records are prefetched: memory answers within the time that reading four records takes.
const RECORDS_AHEAD: i64 = 4;

/// A queue with its name.
#[derive(Debug)]
pub(super) struct NamedQueue {
    pub(super) topic: String,
    pub(super) id: i32,
    pub(super) queue: Arc<ConsumeQueue>,
}

/// A walk over the entries of a stretch of a queue, from either end. It skips expired messages, each `PRE_BLANK`, damaged entries and
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

    /// Returns true if the entry at the start of the walk can be read, valid or not: its file exists, or it is in memory.
    ///
    /// # Errors
    /// Those of [`ConsumeQueue::is_readable`].
    pub(super) fn is_readable(&mut self) -> Result<bool> {
        let start = self.offsets.start;
        // The walk reads this entry next.
        let is_read = matches!(self.entries.unit_of(start, &self.offsets, false), Ok(Some(_)));
        Ok(is_read || self.queue.queue.is_readable(start)?)
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

/// A walk that also reads the records to which its entries lead.
#[derive(Debug)]
pub(super) struct MessageWalk {
    walk: QueueWalk,
    records: RecordCursor,
    /// The number of removals of segments before the segment of the last record was found.
    removals: u64,
}

impl MessageWalk {
    /// Begins a walk at a time of this number of removals, or before.
    pub(super) fn new(walk: QueueWalk, removals: u64) -> Self {
        Self {
            walk,
            records: RecordCursor::default(),
            removals,
        }
    }

    /// Takes the next entry from the start of the walk; see [`QueueWalk::next`]. Entries that were read remain when their messages expire.
    ///
    /// # Errors
    /// Those of [`QueueWalk::next`].
    pub(super) fn next(&mut self, reader: &MessageReader, on_damage: &OnDamage) -> Result<Option<(i64, CqUnit)>> {
        self.release_removed(reader);
        self.walk.next(reader, false, on_damage)
    }

    /// Releases the segment of the last record if segments were removed since, because it may have expired. Returns true then.
    fn release_removed(&mut self, reader: &MessageReader) -> bool {
        let removals = reader.log().removals();
        let is_removed = self.removals != removals;
        if is_removed {
            self.removals = removals;
            self.records = RecordCursor::default();
        }
        is_removed
    }

    /// Reads the message of an entry that was taken, and prefetches a later one. Returns `None` if another record or none is there:
    /// [`MessageReader::message_of_entry`] returns the reason.
    ///
    /// # Errors
    /// Those of reading the log.
    pub(super) fn message(&mut self, reader: &MessageReader, offset: i64, unit: CqUnit) -> Result<Option<StoredMessage>> {
        self.prefetch(offset);
        let of = &self.walk.queue;
        if reader.read_expected(&mut self.records, (&of.topic, of.id, offset), unit)? {
            return Ok(self.records.message());
        }
        Ok(None)
    }

    /// Reads the message of an entry that was taken; `None` if its segment has expired or is missing.
    ///
    /// # Errors
    /// Those of [`MessageReader::message_of_entry`].
    pub(super) fn message_or_removed(
        &mut self,
        reader: &MessageReader,
        offset: i64,
        unit: CqUnit,
    ) -> Result<Option<StoredMessage>> {
        if let Some(message) = self.message(reader, offset, unit)? {
            return Ok(Some(message));
        }
        let of = &self.walk.queue;
        reader.message_of_entry(&of.topic, of.id, offset, unit)
    }

    /// Returns the queue offset after the last entry of the walk.
    pub(super) fn end(&self) -> i64 {
        self.walk.offsets.end
    }

    /// Prefetches the record of a later entry than that of `offset`.
    fn prefetch(&self, offset: i64) {
        let is_reverse = self.walk.offsets.end == offset;
        let ahead = if is_reverse { -RECORDS_AHEAD } else { RECORDS_AHEAD };
        if let Some(unit) = self.walk.entries.get(offset.saturating_add(ahead)) {
            self.records
                .touch_record(unit.physical_offset, unit.size.unsigned_abs() as usize);
        }
    }
}

/// An iterator over the messages of a stretch of a queue, from either end. Messages that the log no longer holds are skipped, and so
/// is a `PRE_BLANK`. A lost message, a damaged entry or record, each message of a missing segment, and a missing
/// queue file as a whole, is an error, after which the iteration can continue, or is skipped.
#[derive(Debug)]
pub struct QueueScan {
    reader: Arc<MessageReader>,
    /// `None` for an absent queue.
    messages: Option<MessageWalk>,
    on_damage: OnDamage,
}

impl QueueScan {
    /// Walks the messages at the queue offsets `offsets`, clipped to what the queue holds. What is damaged is skipped if the store was
    /// opened so.
    ///
    /// # Errors
    /// As [`MessageReader::queue_ids`].
    pub fn new(reader: Arc<MessageReader>, topic: String, id: i32, offsets: Range<i64>) -> Result<Self> {
        // First: a removal while the queue is looked for counts.
        let removals = reader.log().removals();
        let messages = reader.queue(&topic, id)?.map(|queue| {
            let offsets = offsets.start.max(queue.min_offset())..offsets.end.min(queue.max_offset());
            MessageWalk::new(QueueWalk::new(NamedQueue { topic, id, queue }, offsets), removals)
        });
        let on_damage = OnDamage::new(reader.config().errors);
        Ok(Self {
            reader,
            messages,
            on_damage,
        })
    }

    /// Sets the option for damage.
    #[must_use]
    pub fn on_damage(self, on_damage: OnDamage) -> Self {
        Self { on_damage, ..self }
    }

    /// Returns the queue offsets to which the scan has not come.
    pub(crate) fn left(&self) -> Range<i64> {
        self.messages.as_ref().map_or(0..0, |messages| messages.walk.offsets.clone())
    }

    /// Takes the next entry from one end, with its queue offset. [`QueueScan::message`] reads its message.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged entry and for a missing file, unless that is skipped; [`Error::Io`].
    pub(crate) fn next_entry(&mut self, reverse: bool) -> Result<Option<(i64, CqUnit)>> {
        let (reader, Some(messages)) = (&self.reader, &mut self.messages) else {
            return Ok(None);
        };
        if messages.release_removed(reader) {
            messages.walk.entries.forget();
            reader.follow_removals(&messages.walk.queue.queue)?;
        }
        messages.walk.next(reader, reverse, &self.on_damage)
    }

    /// Reads the message of an entry that was taken.
    ///
    /// # Errors
    /// As [`MessageReader::message_in_queue`].
    pub(crate) fn message(&mut self, offset: i64, unit: CqUnit) -> Result<StoredMessage> {
        let Some(messages) = &mut self.messages else {
            return Err(Error::not_found("the queue is absent".to_owned()));
        };
        if let Some(message) = messages.message(&self.reader, offset, unit)? {
            return Ok(message);
        }
        // Another record or none is there: this returns the reason.
        let of = &messages.walk.queue;
        self.reader.message_of_queue(Some(&of.queue), &of.topic, of.id, offset)
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
        let messages = self.messages.as_mut();
        messages.map_or(Ok(0), |messages| messages.walk.pass_over(offset, &self.reader, reverse))
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
