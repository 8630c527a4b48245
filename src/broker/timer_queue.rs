//! The queue of timer messages: entries in order, each with the head of its record. No body is read for a time of delivery.

use std::sync::Arc;

use crate::config::Errors;
use crate::error::Result;
use crate::format::{Check, MessageView, TIMER_TOPIC, TimerCheck, TimerRecord};
use crate::log::RecordCursor;
use crate::read::{MessageReader, OnDamage, QueueScan};

/// A pass over the queue from a queue offset on. It counts damaged entries, and continues after them.
#[derive(Debug)]
pub(super) struct TimerQueue {
    reader: Arc<MessageReader>,
    scan: QueueScan,
    on_damage: OnDamage,
    /// Damaged entries that the caller has counted.
    counted: u64,
    heads: TimerHeads,
}

/// Reads records of timer messages up to their properties.
#[derive(Debug, Default)]
pub(super) struct TimerHeads(RecordCursor);

impl TimerQueue {
    /// Begins a pass at a queue offset.
    ///
    /// # Errors
    /// Those of finding the queue.
    pub(super) fn open(reader: &Arc<MessageReader>, from: i64) -> Result<Self> {
        let on_damage = OnDamage::new(Errors::Skip);
        let scan = QueueScan::new(reader.clone(), TIMER_TOPIC.to_owned(), 0, from..i64::MAX)?;
        Ok(Self {
            reader: reader.clone(),
            scan: scan.on_damage(on_damage.clone()),
            on_damage,
            counted: 0,
            heads: TimerHeads::default(),
        })
    }

    /// Takes the next entry. Returns its queue offset, and what `read` returns for its message: `None` if that is lost or damaged.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub(super) fn next<T>(&mut self, read: impl FnOnce(&MessageView<'_>) -> Option<T>) -> Result<Option<(i64, Option<T>)>> {
        let Some((offset, unit)) = self.scan.next_entry(false)? else {
            return Ok(None);
        };
        let found = self.heads.read(&self.reader, (offset, unit.physical_offset), read)?;
        Ok(Some((offset, found)))
    }

    /// Returns the queue offset to which the pass has come.
    pub(super) fn position(&self) -> i64 {
        self.scan.left().start
    }

    /// Returns the number of damaged entries since the last call.
    pub(super) fn take_damaged(&mut self) -> u64 {
        let counted = std::mem::replace(&mut self.counted, self.on_damage.skipped());
        self.counted - counted
    }
}

/// Returns the queue offset of the first timer message or recall that a broker with this `timercheck` may not have delivered; the end of
/// the queue without one. Those that were stored again count, and those that are lost do not. What was appended since is due later than
/// the time in the file, or lies from the queue offset on, if the clock was set back.
///
/// # Errors
/// Those of reading the queue.
pub(super) fn first_left_by_broker(reader: &Arc<MessageReader>, check: TimerCheck) -> Result<i64> {
    let mut queue = TimerQueue::open(reader, 0)?;
    while let Some((offset, record)) = queue.next(TimerRecord::of)? {
        if record.is_some_and(|record| record.due > check.read_until || offset >= check.queue_offset) {
            return Ok(offset);
        }
    }
    Ok(reader.queue_bounds(TIMER_TOPIC, 0)?.end)
}

impl TimerHeads {
    /// Returns what `read` returns for the timer message at a queue offset and a physical offset; `None` if it is lost or damaged.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub(super) fn read<T>(
        &mut self,
        reader: &MessageReader,
        (offset, physical_offset): (i64, i64),
        read: impl FnOnce(&MessageView<'_>) -> Option<T>,
    ) -> Result<Option<T>> {
        self.0.read(reader.log(), physical_offset, Check::Structure)?;
        let view = self.0.view().filter(|view| view.is_in_queue_at(TIMER_TOPIC, 0, offset));
        let found = view.and_then(|view| read(&view));
        self.0.check_intact()?;
        Ok(found)
    }
}
