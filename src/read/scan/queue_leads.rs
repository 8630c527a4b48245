//! What leads to a message that was found in the log.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{CqUnit, MessageView};
use crate::log::{ConsumeQueue, EntriesAhead, QueueTable};
use crate::read::message_reader::MessageReader;
use crate::read::scan::asked_queues::AskedQueues;
use crate::read::scan::request::ScanRequest;

/// What leads to a message.
#[derive(Debug)]
pub(super) enum Lead {
    /// This entry of its queue.
    Entry(CqUnit),
    /// Nothing tells: its topic has no queue in files.
    Unknown,
    /// No queue: a later topic of the same name has the queue.
    None,
}

/// Looks into the queues of messages, in the order of the log.
#[derive(Debug)]
pub(super) struct QueueLeads {
    queues: QueueTable<Queue>,
    asked: AskedQueues,
}

#[derive(Debug)]
enum Queue {
    /// The topic has queues in files, and this may be one of them. Its next message comes soon.
    Files(Option<(Arc<ConsumeQueue>, EntriesAhead)>),
    /// Nothing leads to the messages of the topic.
    Lost,
}

impl QueueLeads {
    pub(super) fn new(request: &ScanRequest) -> Self {
        Self {
            queues: QueueTable::default(),
            asked: AskedQueues::new(request, request.reverse),
        }
    }

    /// What leads to a message of a queue that is asked for.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged entry, for one that leads to no message of the queue, and for a message that names
    /// another place than the one in a queue that leads to it; [`Error::Io`].
    pub(super) fn to(&mut self, view: &MessageView<'_>, reader: &MessageReader) -> Result<Lead> {
        let known = self.queues.find(view.topic_bytes(), view.queue_id());
        let place = if let Some(place) = known {
            place
        } else {
            let queue = Queue::of(view, reader)?;
            self.queues.add(view.topic_bytes(), view.queue_id(), queue)
        };
        let (unit, otherwise) = match self.queues.get_mut(place) {
            Some(Queue::Files(Some((queue, ahead)))) => (queue.unit_ahead(view.queue_offset(), ahead)?, Lead::None),
            Some(Queue::Files(None)) => (None, Lead::None),
            Some(Queue::Lost) | None => (None, Lead::Unknown),
        };
        match unit {
            Some(unit) if unit.physical_offset == view.physical_offset() => return Ok(Lead::Entry(unit)),
            // A later topic of the same name has a message with this queue offset. Without one the entry is damaged.
            Some(unit) => reader
                .message_of_entry(&view.topic(), view.queue_id(), view.queue_offset(), unit)
                .map(drop)?,
            None => {}
        }
        let is_led_to = self.is_asked_for(view, reader)?;
        Ok(if is_led_to { Lead::Unknown } else { otherwise })
    }

    /// Whether a queue that is asked for leads to the message, whatever it says of itself.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if one does, and the message names another place; [`Error::Io`].
    pub(super) fn is_asked_for(&mut self, view: &MessageView<'_>, reader: &MessageReader) -> Result<bool> {
        self.asked.lead_to(view.physical_offset(), reader)
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
