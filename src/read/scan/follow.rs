//! Messages as they come: of the whole log in its order, or of one queue.
//!
//! A start position is compared with the bounds of its queue after the refresh: a position above the upper bound would skip the messages
//! that are appended below it. Only [`OnMissing`] turns it into the first or the next message of the queue. A position whose message has
//! expired moves to the lower bound. A queue that begins again, because its topic was deleted and made again, is read from its first
//! message on, whatever its start position was, and the pass reports it.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::is_light_queue;
use crate::log::{RecordCursor, StoredMessage};
use crate::read::damage::OnDamage;
use crate::read::get_message::TagFilter;
use crate::read::lookup_by_time::Side;
use crate::read::message_reader::MessageReader;
use crate::read::queue_walk::QueueScan;
use crate::read::scan::absent_topics::AbsentTopics;
use crate::read::scan::known_end::KnownEnd;
use crate::read::scan::log_locations::LogLocations;
use crate::read::scan::pick::Picker;
use crate::read::scan::queue_leads::LostQueues;
use crate::read::scan::request::ScanRequest;
use crate::read::scan::scan::bounds;
use crate::remedy::Remedy;

/// A scan that continues when the store has grown.
#[derive(Debug)]
pub struct Follow {
    reader: Arc<MessageReader>,
    on_damage: OnDamage,
    of: Of,
    /// Queues that have begun again and were not reported yet.
    begun_again: Vec<(String, i32)>,
}

enum Of {
    Log(Box<OfLog>),
    Queue(Box<OfQueue>),
}

/// Messages of the log, in its order.
struct OfLog {
    /// The physical offset at which the pass began.
    start: i64,
    request: Arc<ScanRequest>,
    /// The queues that are followed; `None` for all.
    queues: Option<BTreeMap<(String, i32), FollowedQueue>>,
    locations: LogLocations,
    picker: Picker,
    lost: LostQueues,
}

/// A queue of a pass over the log.
struct FollowedQueue {
    /// The queue offset of the first message.
    start: i64,
    known: KnownEnd,
}

/// Messages of a queue.
struct OfQueue {
    topic: String,
    queue_id: i32,
    tags: TagFilter,
    /// The least store time, in ms.
    since: i64,
    /// The queue offset at which the pass began.
    start: i64,
    /// The next queue offset.
    next: i64,
    /// The last message at the last check.
    known: KnownEnd,
    /// The last message of the former queue, if this one has begun again: those up to it are not of this one.
    former: Option<KnownEnd>,
    /// True if another reader has come since the last check.
    is_moved: bool,
    scan: Option<QueueScan>,
}

impl fmt::Debug for Of {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(log) => f.debug_tuple("Log").field(&log.locations).finish(),
            Self::Queue(queue) => f.debug_tuple("Queue").field(&queue.next).finish(),
        }
    }
}

impl Follow {
    /// Follows the messages that `request` asks for, in the order of the log: its topics, queues, tags and other conditions; not its
    /// order, its limit and its stretch.
    ///
    /// # Errors
    /// [`Error::Invalid`] for topics and queues that can never return a message, [`Error::NotFound`] for a queue offset outside its
    /// queue; as [`MessageReader::queue_ids`], and [`Error::Corrupt`], [`Error::Io`].
    pub fn of_log(
        reader: Arc<MessageReader>,
        mut request: ScanRequest,
        mut from: FollowFrom,
        on_damage: OnDamage,
    ) -> Result<Self> {
        expect_followable(&reader, &request, &from)?;
        let start = match &mut from {
            FollowFrom::Latest => reader.physical_bounds().end,
            FollowFrom::Earliest => reader.physical_bounds().start,
            FollowFrom::Time(time) => {
                request.times.start = *time;
                bounds(&reader, &request)?.start
            }
            FollowFrom::Offsets(offsets, on_missing) => start_of_queues(&reader, offsets, *on_missing)?,
        };
        let request = Arc::new(request);
        let (lost, queues) = match from {
            FollowFrom::Offsets(offsets, _) => (LostQueues::among(offsets.clone()), Some(followed(&reader, offsets)?)),
            _ => (LostQueues::default(), None),
        };
        let of = OfLog {
            start,
            queues,
            locations: LogLocations::from_record(start, &request),
            picker: OfLog::picker(&reader, &request, &on_damage, &lost),
            request,
            lost,
        };
        Ok(Self {
            reader,
            on_damage,
            of: Of::Log(Box::new(of)),
            begun_again: Vec::new(),
        })
    }

    /// Follows the messages of a queue with one of some tags.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a queue offset outside the queue; as [`MessageReader::offset_at`].
    pub fn of_queue(
        reader: Arc<MessageReader>,
        topic: &str,
        queue_id: i32,
        tags: TagFilter,
        from: &FollowFrom,
        on_damage: OnDamage,
    ) -> Result<Self> {
        let bounds = reader.queue_bounds(topic, queue_id)?;
        let next = match from {
            FollowFrom::Latest => bounds.end,
            FollowFrom::Earliest => bounds.start,
            FollowFrom::Time(time) => reader.offset_at(topic, queue_id, *time, Side::Left)?,
            FollowFrom::Offsets(offsets, on_missing) => {
                let offset = offsets.values().next().copied().unwrap_or(bounds.start);
                start_offset(&reader, (topic, queue_id), offset, *on_missing)?
            }
        };
        let of = OfQueue {
            topic: topic.to_owned(),
            queue_id,
            tags,
            since: if let FollowFrom::Time(time) = from { *time } else { i64::MIN },
            start: next,
            next,
            known: KnownEnd::of(&reader, topic, queue_id, bounds.end)?,
            former: None,
            is_moved: false,
            scan: None,
        };
        Ok(Self {
            reader,
            on_damage,
            of: Of::Queue(Box::new(of)),
            begun_again: Vec::new(),
        })
    }

    /// Continues with another reader of the same store.
    pub fn move_to(&mut self, reader: Arc<MessageReader>) {
        match &mut self.of {
            Of::Log(log) => log.picker = OfLog::picker(&reader, &log.request, &self.on_damage, &log.lost),
            Of::Queue(queue) => {
                queue.scan = None;
                queue.is_moved = true;
            }
        }
        self.reader = reader;
    }

    /// Returns the reader of its messages.
    pub fn reader(&self) -> &Arc<MessageReader> {
        &self.reader
    }

    /// Returns the queues that had wanted messages and whose files are lost: the pass adds each when it meets the first such message. Empty
    /// for a pass over one queue.
    pub fn lost_queues(&self) -> LostQueues {
        match &self.of {
            Of::Log(log) => log.lost.clone(),
            Of::Queue(_) => LostQueues::default(),
        }
    }

    /// Returns the queue offsets at which a pass continues with the messages at the physical offset `from` and later, by default from its
    /// own start: those of its queue, of the queues that it was begun with, or of every queue of its topics that exists.
    ///
    /// # Errors
    /// As [`MessageReader::queue_ids`], and [`Error::Io`].
    pub fn positions(&self, from: Option<i64>) -> Result<QueueOffsets> {
        match &self.of {
            Of::Log(log) => log.positions(from.unwrap_or(log.start), &self.reader),
            Of::Queue(queue) => {
                let (topic, queue_id) = (queue.topic.clone(), queue.queue_id);
                let next = from.map_or(Ok(queue.start), |from| offset_from(&self.reader, &topic, queue_id, from))?;
                Ok(QueueOffsets::from([((topic, queue_id), next.max(queue.start))]))
            }
        }
    }

    /// Returns the next message; `None` if absent yet. Up to `end` every message of the log is in its queue.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for damage that is not skipped, [`Error::Io`], those of [`crate::interrupt::check`]. It can continue after each.
    pub fn next_until(&mut self, end: i64) -> Result<Option<StoredMessage>> {
        let begun_again = &mut self.begun_again;
        match &mut self.of {
            Of::Log(log) => log.next_until(end, &self.reader, &self.on_damage, begun_again),
            Of::Queue(queue) => queue.next(&self.reader, &self.on_damage, begun_again),
        }
    }

    /// Returns the followed queues that have begun again since the last call, and whose messages come from the first one on.
    pub fn take_begun_again(&mut self) -> Vec<(String, i32)> {
        std::mem::take(&mut self.begun_again)
    }
}

impl OfLog {
    fn picker(reader: &Arc<MessageReader>, request: &Arc<ScanRequest>, on_damage: &OnDamage, lost: &LostQueues) -> Picker {
        let absent = AbsentTopics::new(request, reader);
        Picker::new(
            Arc::clone(reader),
            Arc::clone(request),
            on_damage.clone(),
            absent,
            lost.clone(),
        )
    }

    fn next_until(
        &mut self,
        end: i64,
        reader: &Arc<MessageReader>,
        on_damage: &OnDamage,
        begun_again: &mut Vec<(String, i32)>,
    ) -> Result<Option<StoredMessage>> {
        if self.locations.extend(end) {
            self.picker.cursor = RecordCursor::default();
        }
        while let Some(location) = self.locations.next(reader, &mut self.picker.cursor, on_damage)? {
            self.locations.drop_before(reader.log(), location.physical_offset);
            if let Some(message) = self.picker.message(&location)?
                && self.is_followed(&message, begun_again)
            {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    fn positions(&self, physical: i64, reader: &MessageReader) -> Result<QueueOffsets> {
        let mut positions = QueueOffsets::new();
        if let Some(queues) = &self.queues {
            for ((topic, queue_id), queue) in queues {
                let next = offset_from(reader, topic, *queue_id, physical)?;
                positions.insert((topic.clone(), *queue_id), next.max(queue.start));
            }
            return Ok(positions);
        }
        let topics = self.request.topics.clone().map_or_else(|| reader.topics(), Ok)?;
        for topic in topics.into_iter().filter(|topic| !is_light_queue(topic)) {
            for queue_id in reader.queue_ids(&topic)? {
                let next = offset_from(reader, &topic, queue_id, physical)?;
                positions.insert((topic.clone(), queue_id), next);
            }
        }
        Ok(positions)
    }

    fn is_followed(&mut self, message: &StoredMessage, begun_again: &mut Vec<(String, i32)>) -> bool {
        let Some(queues) = &mut self.queues else { return true };
        let view = message.view();
        let name = (view.topic().into_owned(), view.queue_id());
        let Some(queue) = queues.get_mut(&name) else { return false };
        if queue.known.advance(message) {
            queue.start = 0;
            begun_again.push(name);
        }
        queue.start <= view.queue_offset()
    }
}

impl OfQueue {
    fn next(
        &mut self,
        reader: &Arc<MessageReader>,
        on_damage: &OnDamage,
        begun_again: &mut Vec<(String, i32)>,
    ) -> Result<Option<StoredMessage>> {
        loop {
            while let Some(scan) = &mut self.scan {
                match scan.next().transpose()? {
                    Some(message) if self.is_wanted(&message) => return Ok(Some(message)),
                    Some(_) => {}
                    None => self.scan = None,
                }
            }
            let bounds = reader.queue_bounds(&self.topic, self.queue_id)?;
            if (self.is_moved || bounds.end != self.known.end) && self.check(reader, &bounds)? {
                begun_again.push((self.topic.clone(), self.queue_id));
            }
            if self.next >= bounds.end {
                return Ok(None);
            }
            let scan = QueueScan::new(Arc::clone(reader), self.topic.clone(), self.queue_id, self.next..bounds.end)?;
            self.scan = Some(scan.on_damage(on_damage.clone()));
            self.next = bounds.end;
        }
    }

    /// Takes up the end of the queue. Returns true if the queue begins again: then the pass continues with its first message.
    fn check(&mut self, reader: &MessageReader, bounds: &Range<i64>) -> Result<bool> {
        let begins_again = self.known.begins_again(reader, &self.topic, self.queue_id, bounds.end)?;
        let known = KnownEnd::of(reader, &self.topic, self.queue_id, bounds.end)?;
        if begins_again {
            self.former = Some(self.known);
            (self.start, self.next) = (0, bounds.start);
        }
        (self.known, self.is_moved) = (known, false);
        Ok(begins_again)
    }

    fn is_wanted(&self, message: &StoredMessage) -> bool {
        let view = message.view();
        let is_new = self.former.is_none_or(|former| former.is_before(message));
        is_new && view.store_time() >= self.since && self.tags.matches_tags_of(&view)
    }
}

/// Returns the offset of the first message of a queue at the physical offset `physical` or later, or else of its next message.
fn offset_from(reader: &MessageReader, topic: &str, queue_id: i32, physical: i64) -> Result<i64> {
    match reader.queue(topic, queue_id)? {
        Some(queue) => Ok(queue.offset_from(physical)?.max(queue.min_offset())),
        None => Ok(0),
    }
}

/// Returns the queues that a pass over the log follows from these queue offsets on.
///
/// # Errors
/// As [`KnownEnd::of`].
fn followed(reader: &MessageReader, offsets: QueueOffsets) -> Result<BTreeMap<(String, i32), FollowedQueue>> {
    let of = |(name, start): ((String, i32), i64)| {
        let end = reader.queue_bounds(&name.0, name.1)?.end;
        let known = KnownEnd::of(reader, &name.0, name.1, end)?;
        Ok((name, FollowedQueue { start, known }))
    };
    offsets.into_iter().map(of).collect()
}

/// Returns the physical offset from which these queue offsets are read. An offset outside its queue is replaced in `offsets`.
///
/// # Errors
/// As [`start_offset`].
fn start_of_queues(reader: &MessageReader, offsets: &mut QueueOffsets, on_missing: OnMissing) -> Result<i64> {
    // Before the bounds are taken: a message after this offset may be in its queue or not, and is in the log in both cases.
    let mut first = reader.queued_until();
    for ((topic, queue_id), offset) in offsets {
        *offset = start_offset(reader, (topic, *queue_id), *offset, on_missing)?;
        if *offset < reader.queue_bounds(topic, *queue_id)?.end {
            let position = reader.position(topic, *queue_id, *offset)?;
            // The position of a lost message is unknown, and so are those of the messages after it.
            first = first.min(position.map_or(reader.physical_bounds().start, |position| position.physical_offset));
        }
    }
    Ok(first)
}

/// Queue offsets by topic and queue id.
pub type QueueOffsets = BTreeMap<(String, i32), i64>;

/// The start of a pass that follows a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FollowFrom {
    /// The first message of the store.
    Earliest,
    /// The next message that is appended.
    Latest,
    /// The first message that was stored at this time, in ms, or later.
    Time(i64),
    /// These queue offsets of these queues; no other queues are followed.
    Offsets(QueueOffsets, OnMissing),
}

/// The start in a queue whose bounds exclude the queue offset asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnMissing {
    /// The pass is refused, unless the offset has expired: then it starts at the first message.
    Refuse,
    /// The first message of the queue.
    Earliest,
    /// The next message of the queue.
    Latest,
}

impl OnMissing {
    /// Returns the bound of a queue at which a reader continues; `None` if it does not.
    pub fn bound(self, bounds: Range<i64>) -> Option<i64> {
        match self {
            Self::Refuse => None,
            Self::Earliest => Some(bounds.start),
            Self::Latest => Some(bounds.end),
        }
    }
}

/// Refuses topics and queues that can never return a message.
///
/// # Errors
/// [`Error::Invalid`]; as [`MessageReader::queue_bounds`].
fn expect_followable(reader: &MessageReader, request: &ScanRequest, from: &FollowFrom) -> Result<()> {
    let invalid = |what: String| Err(Error::Invalid { what });
    let topics = request.topics.as_ref();
    if topics.is_some_and(Vec::is_empty) {
        return invalid("topics names no topic, so that no message would come: leave it out to follow all of them".to_owned());
    }
    if let Some(light) = topics.into_iter().flatten().find(|topic| is_light_queue(topic)) {
        return invalid(light_queue("topics", light));
    }
    let FollowFrom::Offsets(offsets, _) = from else {
        return Ok(());
    };
    if offsets.is_empty() {
        return invalid("start names no queue, so that no message would come: name one, or leave start out".to_owned());
    }
    for (topic, queue_id) in offsets.keys() {
        if *queue_id < 0 {
            return invalid(format!("a queue id of start is {queue_id}: expected 0 or more"));
        }
        if let Some(topics) = topics.filter(|topics| !topics.contains(topic)) {
            let bounds = reader.queue_bounds(topic, *queue_id)?;
            return invalid(format!(
                "start names {topic}/{queue_id}, which has queue offsets from {} to {}, but topics is {topics:?}: add {topic:?} to topics, or \
                 leave its queues out of start",
                bounds.start, bounds.end
            ));
        }
        if is_light_queue(topic) {
            return invalid(light_queue("start", topic));
        }
    }
    Ok(())
}

fn light_queue(argument: &str, topic: &str) -> String {
    format!(
        "{argument} names the light queue {topic}, whose messages are stored under other topics: follow those, or use Queue.tail"
    )
}

/// Returns the queue offset at which a pass over a queue starts that is to start at `offset`. The offset of the next message, which
/// is the upper bound, is a valid start.
///
/// # Errors
/// [`Error::NotFound`] with the bounds; as [`MessageReader::queue_bounds`].
fn start_offset(reader: &MessageReader, (topic, queue_id): (&str, i32), offset: i64, on_missing: OnMissing) -> Result<i64> {
    let bounds = reader.queue_bounds(topic, queue_id)?;
    match on_missing {
        _ if bounds.contains(&offset) || offset == bounds.end => Ok(offset),
        OnMissing::Earliest => Ok(bounds.start),
        OnMissing::Latest => Ok(bounds.end),
        OnMissing::Refuse if 0 <= offset && offset < bounds.start => Ok(bounds.start),
        OnMissing::Refuse if reader.queue(topic, queue_id)?.is_none() => Err(Error::not_found(format!(
            "start is {topic}/{queue_id} at queue offset {offset}, and {}",
            absent(reader, topic, queue_id)?
        ))),
        OnMissing::Refuse => {
            let what = format!(
                "start is {topic}/{queue_id} at queue offset {offset}, but valid positions are {} to {}; the last one is the next message's",
                bounds.start, bounds.end
            );
            Err(Error::not_found(what).with_remedy(Remedy::StartAtBound))
        }
    }
}

/// Describes which is absent, the topic or only its queue, and what to do.
fn absent(reader: &MessageReader, topic: &str, queue_id: i32) -> Result<String> {
    let ids = reader.queue_ids(topic)?;
    let absent = if ids.is_empty() {
        format!("there is no topic {topic}")
    } else {
        format!("topic {topic} has no queue {queue_id}, only {ids:?}")
    };
    Ok(format!(
        "{absent}; start at queue offset 0 to follow it from its first message on, or correct the name"
    ))
}
