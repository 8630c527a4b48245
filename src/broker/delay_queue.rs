//! The queue of a delay level: entries in order, each with the time at which its message is due.

use std::ops::Range;
use std::sync::Arc;

use crate::config::Errors;
use crate::error::Result;
use crate::format::{CqUnit, SCHEDULE_TOPIC};
use crate::log::StoredMessage;
use crate::read::{OnDamage, QueueScan};
use crate::store::MessageStore;

/// A pass over a stretch of the queue of a level, from either end. It counts damaged entries, and continues after them.
#[derive(Debug)]
pub(super) struct DelayQueue {
    scan: QueueScan,
    on_damage: OnDamage,
    /// Damaged entries that the caller has counted.
    counted: u64,
    delay_ms: i64,
}

/// An entry of the queue of a level.
#[derive(Debug, Clone, Copy)]
pub(super) struct DelayEntry {
    pub(super) offset: i64,
    unit: CqUnit,
}

impl DelayEntry {
    /// Returns the physical offset of its message.
    pub(super) fn physical_offset(self) -> i64 {
        self.unit.physical_offset
    }
}

impl DelayQueue {
    /// Begins a pass over the messages at these queue offsets.
    ///
    /// # Errors
    /// Those of finding the queue.
    pub(super) fn open(store: &Arc<MessageStore>, level: i32, offsets: Range<i64>) -> Result<Self> {
        let on_damage = OnDamage::new(Errors::Skip);
        let scan = QueueScan::new(store.reader().clone(), SCHEDULE_TOPIC.to_owned(), level - 1, offsets)?;
        Ok(Self {
            scan: scan.on_damage(on_damage.clone()),
            on_damage,
            counted: 0,
            delay_ms: store.config().delay_levels()?.delay_ms(level),
        })
    }

    /// Takes the next entry, the last one first if `reverse`.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub(super) fn next(&mut self, reverse: bool) -> Result<Option<DelayEntry>> {
        let entry = self.scan.next_entry(reverse)?;
        Ok(entry.map(|(offset, unit)| DelayEntry { offset, unit }))
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

    /// Returns the physical offset of the next message; `None` at the end.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub(super) fn next_physical_offset(&mut self) -> Result<Option<i64>> {
        Ok(self.next(false)?.map(DelayEntry::physical_offset))
    }

    /// Returns the time at which a message is due: its store time plus the delay of its level. `None` if the entry does not have it, and
    /// the message is lost.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub(super) fn due(&mut self, entry: DelayEntry) -> Result<Option<i64>> {
        // Other entries have the hash of a tag, or the address of an extension unit.
        if entry.unit.tags_code > i64::from(i32::MAX) {
            return Ok(Some(entry.unit.tags_code));
        }
        let message = self.message(entry)?;
        Ok(message.map(|message| message.view().store_time().saturating_add(self.delay_ms)))
    }

    /// Reads the message of an entry; `None` if it is lost, damaged, or has expired.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub(super) fn message(&mut self, entry: DelayEntry) -> Result<Option<StoredMessage>> {
        match self.scan.message(entry.offset, entry.unit) {
            Err(damage) if damage.is_damage() => Ok(None),
            read => read.map(Some),
        }
    }
}
