//! Detection of a queue that begins again while a pass follows it: its topic was deleted and made again.
//!
//! Queue offsets of a queue ascend with the physical offsets of its messages. So a queue offset that is assigned again at a later physical
//! offset is one of a new queue with the same name, also if that queue is longer by now than the former one.

use crate::error::{Error, Result};
use crate::log::StoredMessage;
use crate::read::message_reader::MessageReader;

/// The last message that a pass knows of a queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownEnd {
    /// The queue offset after it.
    pub(super) end: i64,
    /// Its physical offset.
    last: i64,
}

impl KnownEnd {
    /// Returns the last message of a queue that ends at the queue offset `end`.
    ///
    /// # Errors
    /// Those of [`MessageReader::queue`], [`Error::Io`].
    pub(super) fn of(reader: &MessageReader, topic: &str, queue_id: i32, end: i64) -> Result<Self> {
        let last = match physical_offset(reader, topic, queue_id, end - 1)? {
            Some(last) => last,
            // The entry is lost. Each message of the queue is before the end of what is readable.
            None => reader.physical_bounds().end - 1,
        };
        Ok(Self { end, last })
    }

    /// Returns true if the queue, which ends at `end` now, begins again: it is shorter, or another message is the last known one.
    ///
    /// # Errors
    /// As [`KnownEnd::of`].
    pub(super) fn begins_again(&self, reader: &MessageReader, topic: &str, queue_id: i32, end: i64) -> Result<bool> {
        let last = physical_offset(reader, topic, queue_id, self.end - 1)?;
        Ok(end < self.end || last.is_some_and(|last| last > self.last))
    }

    /// Returns true if the message was appended after the last known one.
    pub(super) fn is_before(&self, message: &StoredMessage) -> bool {
        self.last < message.view().physical_offset()
    }

    /// Takes a message of the queue for the last known one if it is a later one. Returns true if the queue begins again with it or before
    /// it.
    pub(super) fn advance(&mut self, message: &StoredMessage) -> bool {
        if !self.is_before(message) {
            return false;
        }
        let view = message.view();
        let begins_again = view.queue_offset() < self.end;
        self.end = view.queue_offset() + 1;
        self.last = view.physical_offset();
        begins_again
    }
}

/// Returns the physical offset of a message by its queue entry; `None` if it has no entry.
fn physical_offset(reader: &MessageReader, topic: &str, queue_id: i32, queue_offset: i64) -> Result<Option<i64>> {
    let Some(queue) = reader
        .queue(topic, queue_id)?
        .filter(|queue| queue.min_offset() <= queue_offset)
    else {
        return Ok(None);
    };
    match queue.known_unit(queue_offset) {
        Ok(unit) => Ok(unit.map(|unit| unit.physical_offset)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
