//! Reading a queue from one offset to another, message by message.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::log::StoredMessage;
use crate::read::message_reader::MessageReader;

/// An iterator over the messages of a stretch of a queue, ascending. The filler in front of a late queue is passed over; a damaged
/// entry or record, each message of a missing segment, and a missing queue file as a whole, is an error, after which the iteration
/// can go on.
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
        while let Some(offset) = self.offsets.next() {
            match self.reader.message_in_queue(&self.topic, self.queue_id, offset) {
                Err(Error::NotFound { .. }) => {}
                Err(error) => {
                    if let Err(again) = self.pass_over_gap(offset) {
                        return Some(Err(again));
                    }
                    return Some(Err(error));
                }
                message => return Some(message),
            }
        }
        None
    }
}

impl QueueScan {
    /// Goes on behind the files that are missing at `offset`, if any are: one name that is wrong can make a gap without end.
    fn pass_over_gap(&mut self, offset: i64) -> Result<()> {
        if let Some(queue) = self.reader.queue(&self.topic, self.queue_id)?
            && !queue.is_readable(offset)?
        {
            self.offsets.start = queue.end_of_gap(offset).max(self.offsets.start);
        }
        Ok(())
    }
}
