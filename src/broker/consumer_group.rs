//! A consumer group in this process: its consumers divide the queues of its topics (competing consumers), and share its progress and
//! its in-flight messages.
//!
//! The progress in a queue is the lowest offset that is not settled, so each message comes at least once.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::allocate::allocate_averagely;
use super::consumer_offset::QueueProgress;
use super::group_store::GroupStore;
use super::in_flight::InFlight;
use super::retry::send_back;
use crate::config::Errors;
use crate::error::{Error, Result};
use crate::format::{MessageView, RETRY_PREFIX, retry_topic};
use crate::read::{GetMessageStatus, GetRequest, MessageReader, OnMissing, Side, StoredMessage, TagFilter};
use crate::sync::{Mutex, MutexGuard, lock};

/// The delay before a message of an ordered topic is given again: RocketMQ's `suspendCurrentQueueTimeMillis`.
const ORDERED_RETRY: Duration = Duration::from_secs(1);

/// The subscription of the consumers of a group, which all of them share, as in RocketMQ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// The topics, ascending. The retry topic of the group is read, too.
    pub topics: Vec<String>,
    /// The wanted tags: `"paid || refund"`; `"*"` for all.
    pub tags: String,
    /// True if messages of a queue are given strictly in order: a message that fails keeps its queue waiting.
    pub is_ordered: bool,
    /// The number of retries before a message becomes a dead letter. `None` takes `retryMaxTimes` of the group's settings, and has no limit
    /// if messages are given in order.
    pub max_reconsume_times: Option<i32>,
    /// The time after which a message that was neither acknowledged nor sent back is given again.
    pub consume_timeout: Duration,
    /// The action where the progress lies outside the queue.
    pub on_missing: OnMissing,
}

/// The start of a group in the queues in which it has no progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// At the first message.
    Earliest,
    /// At the next message.
    Latest,
    /// At the first message that was stored at this time or later, in ms.
    Time(i64),
    /// At these queue offsets, by topic and queue; in other queues at the first message.
    Offsets(BTreeMap<(String, i32), i64>),
}

/// A queue of a topic.
pub(super) type QueueName = (String, i32);

/// The position of a group in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuePosition {
    /// The topic.
    pub topic: String,
    /// The queue of the topic.
    pub queue_id: i32,
    /// The queue offset of the next message that is handed out for the first time.
    pub next: i64,
    /// The progress: the lowest queue offset that is not acknowledged.
    pub committed: i64,
    /// Messages that were handed out and are not acknowledged.
    pub in_flight: usize,
    /// The offsets of the queue's messages.
    pub queue: Range<i64>,
}

/// A group of consumers.
#[derive(Debug)]
pub(super) struct ConsumerGroup {
    /// `None` for a consumer that reads every message itself: it keeps no progress (broadcast), or has a positions file.
    name: Option<String>,
    /// The retry topic.
    retry: Option<String>,
    /// The number of queues of the retry topic.
    retry_queues: i32,
    store: Arc<GroupStore>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    subscription: Option<Arc<Subscription>>,
    tags: TagFilter,
    /// Ids of the consumers, ascending by the time of their join.
    members: BTreeSet<u64>,
    queues: BTreeMap<QueueName, GroupQueue>,
    /// The number of polls: the queues take turns in being first, so that a busy one does not starve the others.
    polls: usize,
    /// Messages that were lost or are damaged, and were passed over with `errors="skip"`.
    skipped: u64,
    /// Set while the group has a start that is not durable.
    has_new_start: bool,
}

/// The state of a group in one queue.
#[derive(Debug)]
struct GroupQueue {
    /// `None` for a broadcast.
    progress: Option<Arc<QueueProgress>>,
    in_flight: InFlight,
}

impl GroupQueue {
    /// Publishes the progress. What settles the messages before it was appended before this call.
    fn publish(&self) {
        if let Some(progress) = &self.progress {
            progress.set(self.in_flight.progress());
        }
    }
}

/// The messages that one poll has got.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) messages: Vec<StoredMessage>,
    /// The time at which a message that was given back is due.
    pub(super) due: Option<Instant>,
}

impl Taken {
    /// Adds the messages of one read. The first ones are not copied: most polls read once.
    fn add(&mut self, messages: Vec<StoredMessage>) {
        if self.messages.is_empty() {
            self.messages = messages;
        } else {
            self.messages.extend(messages);
        }
    }
}

impl ConsumerGroup {
    /// Returns a group without consumers. `named` has its name and the number of its retry queues.
    pub(super) fn new(named: Option<(&str, i32)>, store: Arc<GroupStore>) -> Self {
        Self {
            name: named.map(|(name, _)| name.to_owned()),
            retry: named.map(|(name, _)| retry_topic(name)),
            retry_queues: named.map_or(0, |(_, retry_queues)| retry_queues),
            store,
            state: Mutex::default(),
        }
    }

    /// Adds a consumer. The start of the group in topics that are new to it is durable before that: a crash would else move it to the
    /// messages after those that came in the meantime.
    ///
    /// # Errors
    /// [`Error::Invalid`] if other consumers of the group have another subscription; those of reading bounds and times, and of
    /// [`GroupStore::persist`].
    pub(super) fn join(&self, member: u64, subscription: Subscription, start: &Start) -> Result<()> {
        let mut state = self.state();
        match &state.subscription {
            Some(known) if !state.members.is_empty() && **known != subscription => {
                return Err(Error::Invalid {
                    what: format!(
                        "consumers of group {:?} have another subscription: topics {}, tags {:?}; all consumers of a group have the same \
                         topics and options",
                        self.name.as_deref().unwrap_or_default(),
                        known.topics.join(", "),
                        known.tags
                    ),
                });
            }
            _ => {}
        }
        self.store.verify(&subscription.topics, subscription.on_missing)?;
        for (name, start) in self.starts(&subscription, start)? {
            self.ensure_queue(&mut state, &name, Some(start))?;
        }
        if state.has_new_start {
            self.store.persist()?;
            state.has_new_start = false;
        }
        state.tags = TagFilter::parse(&subscription.tags);
        state.subscription = Some(Arc::new(subscription));
        state.members.insert(member);
        Ok(())
    }

    /// Resolves the start in the queues that exist now. In a queue that comes later, and in any queue without progress once the group
    /// knows the topic, it starts at the first message: all came after the group did. A topic without queues is known by the progress 0
    /// in queue 0, as clients of a broker store it for a new topic.
    fn starts(&self, subscription: &Subscription, start: &Start) -> Result<BTreeMap<QueueName, i64>> {
        let reader = self.reader();
        let mut starts = match start {
            Start::Offsets(offsets) => offsets.clone(),
            Start::Earliest | Start::Latest | Start::Time(_) => BTreeMap::new(),
        };
        for topic in &subscription.topics {
            if self.store.has_progress(self.name.as_deref(), topic)? {
                continue;
            }
            let queue_ids = reader.queue_ids(topic)?;
            if queue_ids.is_empty() {
                starts.entry((topic.clone(), 0)).or_insert(0);
            }
            for queue_id in queue_ids {
                if let Entry::Vacant(unset) = starts.entry((topic.clone(), queue_id)) {
                    unset.insert(start_in_queue(&reader, topic, queue_id, start)?);
                }
            }
        }
        Ok(starts)
    }

    /// Removes a consumer. What it holds is given to the others at once.
    pub(super) fn leave(&self, member: u64, now: Instant) {
        let mut state = self.state();
        state.members.remove(&member);
        for queue in state.queues.values_mut() {
            queue.in_flight.give_back_all_of(member, now);
        }
    }

    /// Takes up to `most` messages for a consumer: those that were given back and are due, then new ones.
    ///
    /// # Errors
    /// [`Error::OffsetOutOfRange`], the damage of a message or a settings file, and those of reading. What was taken before stays in
    /// flight, and is returned first.
    pub(super) fn take(&self, member: u64, paused: &BTreeSet<QueueName>, most: usize, now: Instant) -> Result<Taken> {
        let mut state = self.state();
        let mut taken = Taken::default();
        let queues = self.queues_of(&state, member)?;
        state.polls = state.polls.wrapping_add(1);
        let turn = state.polls.checked_rem(queues.len()).unwrap_or(0);
        let (before, after) = queues.split_at_checked(turn).unwrap_or_default();
        for name in after.iter().chain(before) {
            if taken.messages.len() >= most {
                break;
            }
            if paused.contains(name) {
                continue;
            }
            let read = self.take_from(&mut state, member, name, most, now, &mut taken);
            match read {
                Err(_) if !taken.messages.is_empty() => break,
                read => read?,
            }
        }
        Ok(taken)
    }

    fn take_from(
        &self,
        state: &mut State,
        member: u64,
        name: &QueueName,
        most: usize,
        now: Instant,
        taken: &mut Taken,
    ) -> Result<()> {
        let Some(subscription) = state.subscription.clone() else {
            return Ok(());
        };
        self.ensure_queue(state, name, None)?;
        self.give_back_expired(state, name, &subscription, now)?;
        let tags = state.tags.clone();
        let Some(queue) = state.queues.get_mut(name) else {
            return Ok(());
        };
        if subscription.is_ordered && queue.in_flight.is_held_by_another(member) {
            return Ok(());
        }
        while let Some((offset, due)) = queue.in_flight.first_waiting() {
            if due > now {
                taken.due = Some(taken.due.map_or(due, |known| known.min(due)));
                if subscription.is_ordered {
                    return Ok(());
                }
                break;
            }
            if taken.messages.len() >= most {
                return Ok(());
            }
            match self.reader().message_in_queue(&name.0, name.1, offset) {
                Ok(message) => {
                    queue.in_flight.hand_out(offset, member, now);
                    taken.messages.push(message);
                }
                Err(Error::NotFound { .. }) => {
                    queue.in_flight.settle(offset);
                    state.skipped += 1;
                }
                Err(error) => return Err(error),
            }
        }
        let request = Request {
            name,
            tags: if name.0.starts_with(RETRY_PREFIX) {
                TagFilter::default()
            } else {
                tags
            },
            on_missing: subscription.on_missing,
        };
        state.skipped += self.take_new(queue, &request, member, most, now, taken)?;
        queue.publish();
        Ok(())
    }

    /// Takes messages that were never handed out. Returns the number of lost messages that were skipped.
    fn take_new(
        &self,
        queue: &mut GroupQueue,
        request: &Request<'_>,
        member: u64,
        most: usize,
        now: Instant,
        taken: &mut Taken,
    ) -> Result<u64> {
        let (topic, queue_id) = request.name;
        let (mut skipped, mut at_once) = (0, most);
        while taken.messages.len() < most {
            let offset = queue.in_flight.next();
            let get = GetRequest {
                topic: topic.clone(),
                queue_id: *queue_id,
                offset,
                max_messages: at_once.min(most - taken.messages.len()),
                tags: request.tags.clone(),
                // A filter examines a bounded number of entries at a time, so that other consumers of the group get their turn.
                bounded: !request.tags.is_any(),
                errors: self.reader().config().errors,
            };
            let got = match self.reader().get(&get, |_| Ok::<_, Error>(true)) {
                // The messages before a damaged one are handed out, and the error is raised in its turn.
                Err(error) if error.is_damage() && get.max_messages > 1 => {
                    at_once = 1;
                    continue;
                }
                got => got?,
            };
            let is_gapless = i64::try_from(got.messages.len()).is_ok_and(|count| got.next_begin_offset == offset + count);
            if !is_gapless && let Some(start) = self.start_after_expired(request, offset)? {
                queue.in_flight = InFlight::new(start);
                continue;
            }
            if !got.missing.is_empty() && get.max_messages > 1 {
                at_once = 1;
                continue;
            }
            skipped += self.pass_gap(request, got.missing, get.errors)? + got.skipped;
            match got.status {
                GetMessageStatus::Found => {
                    for message in &got.messages {
                        queue.in_flight.hand_out(message.view().queue_offset(), member, now);
                    }
                    taken.add(got.messages);
                    queue.in_flight.pass_to(got.next_begin_offset);
                }
                GetMessageStatus::NoMatchedMessage | GetMessageStatus::MessageWasRemoving | GetMessageStatus::OffsetFoundNull => {
                    queue.in_flight.pass_to(got.next_begin_offset);
                    if got.next_begin_offset <= offset {
                        break;
                    }
                }
                GetMessageStatus::OffsetOverflowOne => break,
                GetMessageStatus::NoMessageInQueue if offset == 0 => break,
                GetMessageStatus::OffsetTooSmall | GetMessageStatus::OffsetOverflowBadly | GetMessageStatus::NoMessageInQueue => {
                    let bounds = got.min_offset..got.max_offset;
                    queue.in_flight = InFlight::new(request.bound(bounds, offset)?);
                    if got.status == GetMessageStatus::NoMessageInQueue {
                        break;
                    }
                }
            }
        }
        Ok(skipped)
    }

    /// Returns the queue offset at which the group continues if the message at `offset` has expired. Messages that expire during a read are
    /// left out of it: a group that has not consumed them must know.
    ///
    /// # Errors
    /// [`Error::OffsetOutOfRange`], unless `on_missing` permits that.
    fn start_after_expired(&self, request: &Request<'_>, offset: i64) -> Result<Option<i64>> {
        let bounds = self.reader().queue_bounds(&request.name.0, request.name.1)?;
        let is_expired = offset < bounds.start;
        is_expired.then(|| request.bound(bounds, offset)).transpose()
    }

    /// Passes messages between others that the log no longer holds. Returns the number of those that were lost.
    ///
    /// # Errors
    /// [`Error::OffsetOutOfRange`] if they have expired, unless `on_missing` permits that; the damage of the log, unless that is
    /// skipped.
    fn pass_gap(&self, request: &Request<'_>, missing: Range<i64>, errors: Errors) -> Result<u64> {
        if missing.is_empty() {
            return Ok(0);
        }
        let (topic, queue_id) = request.name;
        match self.reader().message_in_queue(topic, *queue_id, missing.start) {
            Err(Error::NotFound { .. }) => {
                let bounds = self.reader().queue_bounds(topic, *queue_id)?;
                request.bound(bounds, missing.start).map(|_| 0)
            }
            Err(error) if error.is_damage() && errors == Errors::Skip => Ok(missing.end.abs_diff(missing.start)),
            read => read.map(|_| 0),
        }
    }

    /// Makes the state of a queue at its first use: at the stored progress, or at `start`, or at the first message.
    fn ensure_queue(&self, state: &mut State, name: &QueueName, start: Option<i64>) -> Result<()> {
        if state.queues.contains_key(name) {
            return Ok(());
        }
        let progress = self.store.progress(self.name.as_deref(), &name.0, name.1)?;
        let stored = progress.as_ref().and_then(|progress| progress.get());
        state.has_new_start |= progress.is_some() && stored.is_none() && start.is_some();
        let start = match stored.or(start) {
            Some(start) => start,
            None => self.reader().queue_bounds(&name.0, name.1)?.start,
        };
        let queue = GroupQueue {
            progress,
            in_flight: InFlight::new(start),
        };
        queue.publish();
        state.queues.insert(name.clone(), queue);
        Ok(())
    }

    /// Gives back the messages that a consumer has held for too long.
    fn give_back_expired(&self, state: &mut State, name: &QueueName, subscription: &Subscription, now: Instant) -> Result<()> {
        while let Some(queue) = state.queues.get_mut(name)
            && let Some(offset) = queue.in_flight.first_expired(now, subscription.consume_timeout)
        {
            match self.reader().message_in_queue(&name.0, name.1, offset) {
                Ok(message) => self.give_back(queue, subscription, &message.view(), offset, None, now)?,
                Err(Error::NotFound { .. }) => {
                    queue.in_flight.settle(offset);
                }
                Err(error) => return Err(error),
            }
            queue.publish();
        }
        Ok(())
    }

    /// Gives back the expired messages of all queues, also of consumers that do not poll.
    ///
    /// # Errors
    /// Those of an append, and of reading.
    pub(super) fn give_back_all_expired(&self, now: Instant) -> Result<()> {
        let mut state = self.state();
        let Some(subscription) = state.subscription.clone() else {
            return Ok(());
        };
        let names: Vec<_> = state.queues.keys().cloned().collect();
        for name in names {
            self.give_back_expired(&mut state, &name, &subscription, now)?;
        }
        Ok(())
    }

    /// Acknowledges messages, and returns how many of them were in flight.
    pub(super) fn ack<'a>(&self, messages: impl IntoIterator<Item = (&'a str, i32, i64)>) -> usize {
        let mut state = self.state();
        let queues = &mut state.queues;
        let mut settled = 0;
        let mut of_queue: Option<(&str, i32)> = None;
        let mut queue: Option<&mut GroupQueue> = None;
        for (topic, queue_id, offset) in messages {
            if of_queue != Some((topic, queue_id)) {
                if let Some(before) = &queue {
                    before.publish();
                }
                of_queue = Some((topic, queue_id));
                queue = queues.get_mut(&(topic.to_owned(), queue_id));
            }
            settled += usize::from(queue.as_mut().is_some_and(|queue| queue.in_flight.settle(offset)));
        }
        if let Some(last) = &queue {
            last.publish();
        }
        settled
    }

    /// Sends a message back, which the group gets again later, or as a dead letter. Returns false if it was not in flight.
    ///
    /// # Errors
    /// Those of an append: the message stays in flight.
    pub(super) fn nack(&self, view: &MessageView<'_>, delay_level: Option<i32>, now: Instant) -> Result<bool> {
        self.store.writer()?;
        let mut state = self.state();
        let Some(subscription) = state.subscription.clone() else {
            return Ok(false);
        };
        let (name, offset) = ((view.topic().into_owned(), view.queue_id()), view.queue_offset());
        let Some(queue) = state.queues.get_mut(&name).filter(|queue| queue.in_flight.is_held(offset)) else {
            return Ok(false);
        };
        self.give_back(queue, &subscription, view, offset, delay_level, now)?;
        queue.publish();
        Ok(true)
    }

    fn give_back(
        &self,
        queue: &mut GroupQueue,
        subscription: &Subscription,
        view: &MessageView<'_>,
        offset: i64,
        delay_level: Option<i32>,
        now: Instant,
    ) -> Result<()> {
        let Some(group) = &self.name else {
            if self.store.repeats_in_place() {
                queue.in_flight.give_back_one(offset, now);
            } else {
                queue.in_flight.settle(offset);
            }
            return Ok(());
        };
        let store = self.store.writer()?;
        let limit = subscription.max_reconsume_times;
        if subscription.is_ordered {
            let given = view.reconsume_times().saturating_add(queue.in_flight.attempts(offset));
            let is_dead = limit.is_some_and(|limit| given >= limit) || delay_level.is_some_and(|level| level < 0);
            if !is_dead {
                queue.in_flight.give_back_from(offset, now + ORDERED_RETRY);
                return Ok(());
            }
            send_back(store, group, view, Some(-1), i32::MAX, 0)?;
        } else {
            let limit = limit.unwrap_or(i32::MAX);
            send_back(store, group, view, delay_level, limit, self.retry_queues)?;
        }
        queue.in_flight.settle(offset);
        Ok(())
    }

    /// Moves the group to a queue offset of a queue. What is in flight there is forgotten.
    ///
    /// # Errors
    /// [`Error::OffsetOutOfRange`]; the damage of the settings file.
    pub(super) fn seek(&self, topic: &str, queue_id: i32, offset: i64) -> Result<()> {
        let bounds = self.reader().queue_bounds(topic, queue_id)?;
        if offset < bounds.start || offset > bounds.end {
            return Err(out_of_range(topic, queue_id, offset, bounds));
        }
        let mut state = self.state();
        let name = (topic.to_owned(), queue_id);
        self.ensure_queue(&mut state, &name, None)?;
        if let Some(queue) = state.queues.get_mut(&name) {
            queue.in_flight = InFlight::new(offset);
            queue.publish();
        }
        Ok(())
    }

    /// Returns the positions in the queues of a consumer.
    ///
    /// # Errors
    /// The damage of the settings file; those of reading bounds.
    pub(super) fn positions(&self, member: u64) -> Result<Vec<QueuePosition>> {
        let mut state = self.state();
        let mut positions = Vec::new();
        for name in self.queues_of(&state, member)? {
            self.ensure_queue(&mut state, &name, None)?;
            let Some(queue) = state.queues.get(&name) else { continue };
            let bounds = self.reader().queue_bounds(&name.0, name.1)?;
            positions.push(QueuePosition {
                next: queue.in_flight.next(),
                committed: queue.in_flight.progress(),
                in_flight: queue.in_flight.len(),
                queue: bounds,
                topic: name.0,
                queue_id: name.1,
            });
        }
        Ok(positions)
    }

    /// Returns the number of consumers, and the number of messages that they have in flight in a queue.
    pub(super) fn in_flight(&self, topic: &str, queue_id: i32) -> (usize, usize) {
        let state = self.state();
        let queue = state.queues.get(&(topic.to_owned(), queue_id));
        (state.members.len(), queue.map_or(0, |queue| queue.in_flight.len()))
    }

    /// Returns the number of lost or damaged messages that were skipped.
    pub(super) fn skipped(&self) -> u64 {
        self.state().skipped
    }

    /// Returns the queues that a consumer reads now: its share of each topic, and of the retry topic of the group.
    fn queues_of(&self, state: &State, member: u64) -> Result<Vec<QueueName>> {
        let Some(index) = state.members.iter().position(|listed| *listed == member) else {
            return Err(Error::Closed);
        };
        let topics = state.subscription.iter().flat_map(|subscription| &subscription.topics);
        let mut queues = Vec::new();
        for topic in topics.chain(&self.retry) {
            let ids = self.reader().queue_ids(topic)?;
            let share = allocate_averagely(ids.len(), state.members.len(), index);
            queues.extend(ids.get(share).unwrap_or_default().iter().map(|id| (topic.clone(), *id)));
        }
        Ok(queues)
    }

    fn reader(&self) -> Arc<MessageReader> {
        self.store.reader()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Returns the queue offset at which a group starts in a queue.
///
/// # Errors
/// Those of reading bounds and times.
pub(super) fn start_in_queue(reader: &MessageReader, topic: &str, queue_id: i32, start: &Start) -> Result<i64> {
    let bounds = reader.queue_bounds(topic, queue_id)?;
    match start {
        Start::Latest => Ok(bounds.end),
        Start::Time(ms) => reader.offset_at(topic, queue_id, *ms, Side::Left),
        Start::Earliest | Start::Offsets(_) => Ok(bounds.start),
    }
}

/// The read of a queue.
struct Request<'a> {
    name: &'a QueueName,
    tags: TagFilter,
    on_missing: OnMissing,
}

impl Request<'_> {
    /// Returns the bound of the queue at which the group continues.
    fn bound(&self, bounds: Range<i64>, offset: i64) -> Result<i64> {
        let continued = self.on_missing.bound(bounds.clone());
        continued.ok_or_else(|| out_of_range(&self.name.0, self.name.1, offset, bounds))
    }
}

fn out_of_range(topic: &str, queue_id: i32, offset: i64, bounds: Range<i64>) -> Error {
    Error::OffsetOutOfRange {
        topic: topic.to_owned(),
        queue_id,
        offset,
        bounds,
    }
}
