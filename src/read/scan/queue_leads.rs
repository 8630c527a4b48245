//! Whether a message that was found in the log is one to which its queue leads.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{CqUnit, MessageView};
use crate::log::{ConsumeQueue, QueueTable};
use crate::read::message_reader::MessageReader;

/// Entries of each queue that are kept: the next message of the queue is one of them.
const KEPT: i64 = 32;

/// Looks into the queues of messages, in the order of the log.
#[derive(Debug, Default)]
pub(super) struct QueueLeads {
    queues: QueueTable<Queue>,
}

#[derive(Debug)]
enum Queue {
    /// The topic has queues in files.
    Files(Option<Window>),
    /// Nothing leads to the messages of the topic.
    Lost,
}

/// Some entries of a queue.
#[derive(Debug)]
struct Window {
    queue: Arc<ConsumeQueue>,
    start: i64,
    units: Vec<CqUnit>,
}

impl QueueLeads {
    /// Whether the queue of the message leads to it. `true` for a topic without queues in files: nothing tells then.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged entry, [`Error::Io`].
    pub(super) fn to(&mut self, view: &MessageView<'_>, reader: &MessageReader) -> Result<bool> {
        let known = self.queues.find(view.topic_bytes(), view.queue_id());
        let place = if let Some(place) = known {
            place
        } else {
            let queue = Queue::of(view, reader)?;
            self.queues.add(view.topic_bytes(), view.queue_id(), queue)
        };
        Ok(match self.queues.get_mut(place) {
            Some(Queue::Files(Some(window))) => window
                .get(view.queue_offset())?
                .is_some_and(|unit| unit.physical_offset == view.physical_offset()),
            Some(Queue::Files(None)) => false,
            Some(Queue::Lost) | None => true,
        })
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
            queue => Self::Files(queue.map(|queue| Window {
                queue,
                start: 0,
                units: Vec::new(),
            })),
        })
    }
}

impl Window {
    fn get(&mut self, offset: i64) -> Result<Option<CqUnit>> {
        let kept = |window: &Self| {
            let at = usize::try_from(offset.checked_sub(window.start)?).ok()?;
            window.units.get(at).copied()
        };
        if let Some(unit) = kept(self) {
            return Ok(Some(unit));
        }
        self.start = offset;
        self.units.clear();
        self.queue.add_units(offset..offset.saturating_add(KEPT), &mut self.units)?;
        match kept(self) {
            Some(unit) => Ok(Some(unit)),
            None => self.queue.unit(offset),
        }
    }
}
