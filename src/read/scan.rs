//! Reading a queue from one offset to another, message by message.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::log::StoredMessage;
use crate::read::message_reader::MessageReader;

/// An iterator over the messages of a stretch of a queue, ascending. The filler in front of a late queue is passed over; a damaged
/// entry or record, and a missing segment, is an error, after which the iteration can go on.
#[derive(Debug)]
pub struct QueueScan {
    reader: Arc<MessageReader>,
    topic: String,
    queue_id: i32,
    offsets: Range<i64>,
}

impl QueueScan {
    /// The messages at the queue offsets `offsets`, clipped to what the queue holds.
    ///
    /// # Errors
    /// As [`MessageReader::queue_ids`].
    pub fn new(reader: Arc<MessageReader>, topic: String, queue_id: i32, offsets: Range<i64>) -> Result<Self> {
        let bounds = reader.queue_bounds(&topic, queue_id)?;
        let offsets = offsets.start.max(bounds.start)..offsets.end.min(bounds.end);
        Ok(Self {
            reader,
            topic,
            queue_id,
            offsets,
        })
    }
}

impl Iterator for QueueScan {
    type Item = Result<StoredMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        for offset in self.offsets.by_ref() {
            match self.reader.message_in_queue(&self.topic, self.queue_id, offset) {
                Err(Error::NotFound { .. }) => {}
                message => return Some(message),
            }
        }
        None
    }
}
