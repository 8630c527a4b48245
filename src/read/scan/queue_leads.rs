//! The queue entries that lead to the messages that are found in the log. A record that says that it is in none of the queues that are
//! asked for may be damaged: no checksum covers its topic.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::error::{Error, Result};
use crate::format::{CqUnit, MessageView, is_light_queue};
use crate::interrupt;
use crate::log::{EntryCursor, QueueTable};
use crate::read::message_reader::MessageReader;
use crate::read::scan::merge::Heads;
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

/// Queues without files of which a scan along the log has found messages. A clone takes part in the same scan.
#[derive(Debug, Clone, Default)]
pub(super) struct LostQueues {
    shared: Arc<Mutex<BTreeSet<(String, i32)>>>,
}

impl LostQueues {
    pub(super) fn add(&self, view: &MessageView<'_>) {
        lock(&self.shared).insert((view.topic().into_owned(), view.queue_id()));
    }

    /// Topics and queue ids, ascending.
    pub(super) fn names(&self) -> Vec<(String, i32)> {
        lock(&self.shared).iter().cloned().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
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
            asked: AskedQueues::new(request, request.reverse),
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
        let place = if let Some(place) = known {
            place
        } else {
            let queue = Queue::of(view, reader)?;
            self.queues.add(view.topic_bytes(), view.queue_id(), queue)
        };
        Ok(self.queues.get_mut(place))
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

/// The queues in files that a scan asks for, each at the next message to which it leads. Records are asked about in the order of the scan.
#[derive(Debug)]
pub(super) struct AskedQueues {
    topics: Option<Vec<String>>,
    ids: Option<Vec<i32>>,
    reverse: bool,
    queues: Vec<AskedQueue>,
    heads: Heads,
    /// Up to here every message of the log was in its queue when the queues were listed.
    until: i64,
    /// The record that was asked about last, and the answer.
    last: Option<(i64, bool)>,
}

#[derive(Debug)]
struct AskedQueue {
    topic: String,
    id: i32,
    /// The queue offsets of the messages that were not passed yet.
    left: Range<i64>,
    entries: EntryCursor,
}

impl AskedQueues {
    /// In the order of the log, or from its end.
    pub(super) fn new(request: &ScanRequest, reverse: bool) -> Self {
        Self {
            topics: request.topics.clone(),
            ids: request.queue_ids.clone(),
            reverse,
            queues: Vec::new(),
            heads: Heads::new(reverse),
            until: i64::MIN,
            last: None,
        }
    }

    /// Returns true if one of the queues leads to the record at this physical offset, which is its message.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a queue leads to it and it is not the message of that queue: the entry or the record is damaged;
    /// [`Error::Io`].
    pub(super) fn lead_to(&mut self, at: i64, reader: &MessageReader) -> Result<bool> {
        if let Some((last, answer)) = self.last
            && last == at
        {
            return Ok(answer);
        }
        self.go_to(at, reader)?;
        self.last = Some((at, false));
        let after = if self.reverse { at - 1 } else { at + 1 };
        let mut found = Vec::new();
        while let Some(n) = self.heads.pop_up_to(at) {
            let Some(queue) = self.queues.get_mut(n) else { continue };
            let mut head = queue.pass(at, self.reverse)?;
            if let Some((offset, unit)) = head.filter(|(_, unit)| unit.physical_offset == at) {
                found.push((n, offset, unit));
                head = queue.pass(after, self.reverse)?;
            }
            if let Some((_, unit)) = head {
                self.heads.push(unit.physical_offset, n);
            }
        }
        let mut is_led = false;
        for (n, offset, unit) in found {
            let Some(queue) = self.queues.get(n) else { continue };
            is_led |= reader.message_of_entry(&queue.topic, queue.id, offset, unit)?.is_some();
        }
        self.last = Some((at, is_led));
        Ok(is_led)
    }

    /// The messages to which the queues lead in a stretch of the log, which comes after those that were counted before.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn count(&mut self, stretch: &Range<i64>, reader: &MessageReader) -> Result<i64> {
        self.go_to(stretch.start, reader)?;
        let mut count = 0;
        while let Some(n) = self.heads.pop_up_to(stretch.end - 1) {
            let Some(queue) = self.queues.get_mut(n) else { continue };
            queue.pass(stretch.start, false)?;
            let first = queue.left.start;
            let head = queue.pass(stretch.end, false)?;
            count += queue.left.start - first;
            if let Some((_, unit)) = head {
                self.heads.push(unit.physical_offset, n);
            }
        }
        self.last = Some((stretch.end - 1, false));
        Ok(count)
    }

    /// Lists the queues again where they do not serve: at the start, after a step back, and where they may have grown.
    fn go_to(&mut self, at: i64, reader: &MessageReader) -> Result<()> {
        match self.last {
            Some((last, _)) if self.heads.is_before(last, at) && at < self.until => Ok(()),
            _ => self.begin(at, reader),
        }
    }

    /// Lists the queues, each at the first message that is not before a place.
    fn begin(&mut self, at: i64, reader: &MessageReader) -> Result<()> {
        self.last = None;
        self.until = reader.queued_until();
        self.queues = self.list(reader).collect();
        self.heads.clear();
        for (n, queue) in self.queues.iter_mut().enumerate() {
            interrupt::check()?;
            let head = queue.pass(at, self.reverse)?;
            if let Some((_, unit)) = head {
                self.heads.push(unit.physical_offset, n);
            }
        }
        Ok(())
    }

    fn list(&self, reader: &MessageReader) -> impl Iterator<Item = AskedQueue> {
        let all = reader.queue_store().file_queues().into_iter();
        let asked = all.filter(|(topic, id, _)| {
            let is_named = match &self.topics {
                Some(topics) => topics.iter().any(|named| **named == **topic),
                // It leads to messages of other topics, which are not given twice.
                None => !is_light_queue(topic),
            };
            is_named && self.ids.as_ref().is_none_or(|ids| ids.contains(id))
        });
        asked.map(|(topic, id, queue)| AskedQueue {
            topic: topic.to_string(),
            id,
            left: queue.min_offset()..queue.max_offset(),
            entries: EntryCursor::new(queue),
        })
    }
}

impl AskedQueue {
    /// Passes the messages that come before a place. Gives the queue offset and the entry of the next one. Nothing is known of a damaged
    /// entry.
    fn pass(&mut self, at: i64, reverse: bool) -> Result<Option<(i64, CqUnit)>> {
        let Range { mut start, mut end } = self.left;
        // The next message is likely to be near.
        let mut step = 0;
        while start < end {
            let near = ((end - start) / 2).min(step);
            let middle = if reverse { end - 1 - near } else { start + near };
            let is_passed = match self.entries.known_unit(middle)? {
                Some(unit) if reverse => unit.physical_offset > at,
                Some(unit) => unit.physical_offset < at,
                None => true,
            };
            if is_passed {
                step = 2 * step + 1;
            }
            if is_passed == reverse {
                end = middle;
            } else {
                start = middle + 1;
            }
        }
        let next = if reverse {
            self.left.end = end;
            end - 1
        } else {
            self.left.start = start;
            start
        };
        if self.left.is_empty() {
            return Ok(None);
        }
        let unit = self.entries.known_unit(next)?;
        Ok(unit.map(|unit| (next, unit)))
    }
}
