//! The queue entries that lead to the messages that are found in the log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use crate::error::{Error, Result};
use crate::format::{CqUnit, MessageView};
use crate::interrupt;
use crate::log::{EntryCursor, QueueTable};
use crate::read::asked_queues::AskedQueues;
use crate::read::message_reader::MessageReader;
use crate::read::scan::request::ScanRequest;
use crate::sync::lock;

/// The queue entry that leads to a message, if any.
#[derive(Debug)]
pub(super) enum Lead {
    /// This entry of its queue.
    Entry(CqUnit),
    /// Unknown: its topic has no queue in files.
    Unknown,
    /// No queue: a later topic of the same name has the queue.
    None,
    /// No queue: its files are lost.
    Lost,
}

/// Queues without files of which a pass has found messages in the log. A clone takes part in the same pass.
#[derive(Debug, Clone, Default)]
pub struct LostQueues {
    shared: Arc<Mutex<BTreeSet<(String, i32)>>>,
    /// The queues of the pass, with the queue offsets at which it starts in them; `None` for all.
    starts: Option<Arc<BTreeMap<(String, i32), i64>>>,
}

impl LostQueues {
    /// Returns an empty set, of a pass over these queues from these queue offsets on.
    pub(super) fn among(starts: BTreeMap<(String, i32), i64>) -> Self {
        Self {
            shared: Arc::default(),
            starts: Some(Arc::new(starts)),
        }
    }

    pub(super) fn add(&self, view: &MessageView<'_>) {
        let queue = (view.topic().into_owned(), view.queue_id());
        let is_wanted = |starts: &BTreeMap<_, i64>| starts.get(&queue).is_some_and(|start| *start <= view.queue_offset());
        if self.starts.as_deref().is_none_or(is_wanted) {
            lock(&self.shared).insert(queue);
        }
    }

    /// Returns topics and queue ids, ascending.
    pub fn names(&self) -> Vec<(String, i32)> {
        lock(&self.shared).iter().cloned().collect()
    }

    /// Returns true if no queue is lost.
    pub fn is_empty(&self) -> bool {
        lock(&self.shared).is_empty()
    }
}

/// Looks into the queues of messages, in the order of the log.
#[derive(Debug)]
pub(super) struct QueueLeads {
    queues: QueueTable<Queue>,
    asked: AskedQueues,
}

#[derive(Debug)]
enum Queue {
    /// A queue in files. Its next message comes soon. The physical offset, once it is needed, is that of [`Queue::Absent`].
    Files(EntryCursor, Option<i64>),
    /// The topic has queues in files, and this one has none. The physical offset is that of the first message in the queues of the
    /// topic: messages before it may be of a topic of the same name that was deleted, and those after it were in the queue.
    Absent(i64),
    /// No entry leads to the messages of the topic.
    Unknown,
}

impl QueueLeads {
    pub(super) fn new(request: &ScanRequest) -> Self {
        Self {
            queues: QueueTable::default(),
            asked: AskedQueues::new(request.topics.clone(), request.queue_ids.clone(), request.reverse),
        }
    }

    /// Returns the entry that leads to a message of a requested queue.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged entry, for an entry that leads to no message of the queue, and for a message that names
    /// another place than the one in a queue that leads to it; [`Error::Io`].
    pub(super) fn to(&mut self, view: &MessageView<'_>, reader: &MessageReader) -> Result<Lead> {
        let (unit, otherwise) = match self.queue(view, reader)? {
            Some(Queue::Files(entries, _)) => (entries.unit(view.queue_offset())?, Lead::None),
            Some(Queue::Absent(_)) => (None, Lead::None),
            Some(Queue::Unknown) | None => (None, Lead::Unknown),
        };
        match unit {
            Some(unit) if unit.physical_offset == view.physical_offset() => return Ok(Lead::Entry(unit)),
            // A later topic of the same name has a message with this queue offset. Without one the entry is damaged.
            Some(unit) => reader
                .message_of_entry(&view.topic(), view.queue_id(), view.queue_offset(), unit)
                .map(drop)?,
            None => {}
        }
        if self.is_asked_for(view, reader)? {
            return Ok(Lead::Unknown);
        }
        Ok(if self.is_lost(view, reader)? { Lead::Lost } else { otherwise })
    }

    /// Returns true if the message was in a queue whose files are lost. Recovery may have found later messages of the queue.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn is_lost(&mut self, view: &MessageView<'_>, reader: &MessageReader) -> Result<bool> {
        let first = match self.queue(view, reader)? {
            Some(Queue::Absent(first)) => *first,
            Some(Queue::Files(entries, first)) if view.queue_offset() < entries.min_offset() => match first {
                Some(first) => *first,
                None => *first.insert(first_of_topic(&view.topic(), reader)?),
            },
            Some(Queue::Files(..) | Queue::Unknown) | None => return Ok(false),
        };
        Ok(first < view.physical_offset())
    }

    fn queue(&mut self, view: &MessageView<'_>, reader: &MessageReader) -> Result<Option<&mut Queue>> {
        let known = self.queues.find(view.topic_bytes(), view.queue_id());
        let handle = if let Some(handle) = known {
            handle
        } else {
            let queue = Queue::of(view, reader)?;
            self.queues.add(view.topic_bytes(), view.queue_id(), queue)
        };
        Ok(self.queues.get_mut(handle))
    }

    /// Returns true if a requested queue leads to the message, whatever the record names.
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
            Err(Error::Unsupported { .. }) => return Ok(Self::Unknown),
            queue => queue?,
        };
        Ok(match queue {
            Some(queue) => Self::Files(EntryCursor::new(queue), None),
            None if reader.has_topic(&topic)? => Self::Absent(first_of_topic(&topic, reader)?),
            None => Self::Unknown,
        })
    }
}

/// Returns the physical offset of the first message to which the queues of a topic lead.
fn first_of_topic(topic: &str, reader: &MessageReader) -> Result<i64> {
    let mut first = i64::MAX;
    for id in reader.queue_ids(topic)? {
        interrupt::check()?;
        if let Some(queue) = reader.queue(topic, id)?
            && queue.min_offset() < queue.max_offset()
            && let Some(unit) = queue.known_unit(queue.min_offset())?
        {
            first = first.min(unit.physical_offset);
        }
    }
    Ok(first)
}
