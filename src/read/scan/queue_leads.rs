//! Whether a message that was found in the log is one to which its queue leads.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{CqUnit, MessageView};
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
    /// [`Error::Corrupt`] for a damaged entry, for one that leads to no message of the queue, and for a message that names another place in
    /// its topic's queues than the one that leads to it; [`Error::Io`].
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
            Some(unit) if unit.physical_offset == view.physical_offset() => return Ok(true),
            // A later topic of the same name has a message with this queue offset. Without one the entry is damaged.
            Some(unit) => reader
                .message_of_entry(&view.topic(), view.queue_id(), view.queue_offset(), unit)
                .map(drop)?,
            None => {}
        }
        expect_no_lead(view, reader)?;
        Ok(false)
    }
}

/// Refuses a message to which the topic's queues lead, but not to the place in them that it names: the entry or the record is damaged.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
fn expect_no_lead(view: &MessageView<'_>, reader: &MessageReader) -> Result<()> {
    let topic = view.topic();
    for id in reader.queue_ids(&topic)? {
        let Some(queue) = reader.queue(&topic, id)? else { continue };
        if let Some((offset, unit)) = find_entry(&queue, view.physical_offset())? {
            reader.message_of_entry(&topic, id, offset, unit)?;
        }
    }
    Ok(())
}

/// The entry that leads to this physical offset, and its queue offset.
fn find_entry(queue: &ConsumeQueue, physical_offset: i64) -> Result<Option<(i64, CqUnit)>> {
    // Nothing is known of a damaged entry.
    let unit = |offset: i64| match queue.unit(offset) {
        Err(Error::Corrupt { .. }) => Ok(None),
        unit => unit,
    };
    let Range { mut start, mut end } = queue.min_offset()..queue.max_offset();
    // Most messages to which nothing leads are older than the whole queue.
    if start < end && unit(start)?.is_some_and(|first| first.physical_offset > physical_offset) {
        return Ok(None);
    }
    while start < end {
        let middle = start.midpoint(end);
        match unit(middle)? {
            Some(found) if found.physical_offset == physical_offset => return Ok(Some((middle, found))),
            Some(found) if found.physical_offset > physical_offset => end = middle,
            _ => start = middle + 1,
        }
    }
    Ok(None)
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
