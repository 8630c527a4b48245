//! Whether a message that was found in the log is one to which its queue leads.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::MessageView;
use crate::log::{ConsumeQueue, EntriesAhead, QueueTable};
use crate::read::message_reader::MessageReader;

/// Looks into the queues of messages, in the order of the log.
#[derive(Debug, Default)]
pub(super) struct QueueLeads {
    queues: QueueTable<Queue>,
}

#[derive(Debug)]
enum Queue {
    /// The topic has queues in files, and this may be one of them. Its next message comes soon.
    Files(Option<(Arc<ConsumeQueue>, EntriesAhead)>),
    /// Nothing leads to the messages of the topic.
    Lost,
}

impl QueueLeads {
    /// Whether the queue of the message leads to it. `true` for a topic without queues in files: nothing tells then.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged entry, and for one that leads to no message of the queue; [`Error::Io`].
    pub(super) fn to(&mut self, view: &MessageView<'_>, reader: &MessageReader) -> Result<bool> {
        let known = self.queues.find(view.topic_bytes(), view.queue_id());
        let place = if let Some(place) = known {
            place
        } else {
            let queue = Queue::of(view, reader)?;
            self.queues.add(view.topic_bytes(), view.queue_id(), queue)
        };
        let unit = match self.queues.get_mut(place) {
            Some(Queue::Files(Some((queue, ahead)))) => queue.unit_ahead(view.queue_offset(), ahead)?,
            Some(Queue::Files(None)) => None,
            Some(Queue::Lost) | None => return Ok(true),
        };
        match unit {
            Some(unit) if unit.physical_offset != view.physical_offset() => {
                // A later topic of the same name has a message with this queue offset. Without one the entry is damaged.
                reader.message_of_entry(&view.topic(), view.queue_id(), view.queue_offset(), unit)?;
                Ok(false)
            }
            unit => Ok(unit.is_some()),
        }
    }
}

impl Queue {
    fn of(view: &MessageView<'_>, reader: &MessageReader) -> Result<Self> {
        let topic = view.topic();
        let queue = match reader.queue(&topic, view.queue_id()) {
            Err(Error::Unsupported { .. }) => return Ok(Self::Lost),
            queue => queue?,
        };
        Ok(match queue {
            None if !reader.has_topic(&topic)? => Self::Lost,
            queue => Self::Files(queue.map(|queue| (queue, EntriesAhead::default()))),
        })
    }
}
