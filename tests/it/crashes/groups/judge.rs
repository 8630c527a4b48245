//! Judges what groups are given and what their progress says, by the anomalies of Jepsen's Kafka tests: lost writes, skips, duplicates
//! beyond at-least-once, inconsistent offsets, offsets that fall, and progress beyond what is durable.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use mqstore::broker::QueuePosition;
use mqstore::format::{DelayLevels, MessageView, SCHEDULE_TOPIC, property};
use mqstore::read::{MessageReader, StoredMessage};
use serde_json::Value;

use super::super::files::Files;
use super::super::model::{Checked, Violation, ensure, works};
use super::history::{CONSUME_TIMEOUT, GROUPS, Group};
use super::transactions::Transactions;
use crate::broker::delayed_log::{DelayedLog, level_of_copy};

/// The time for which a queue of an ordered topic waits for a message that failed.
const ORDERED_RETRY: Duration = Duration::from_secs(1);

/// A queue of a topic.
pub(super) type QueueName = (String, i32);
/// The failures of messages that the log has: retries that wait or were delivered, and dead letters. Counted by the number of the group,
/// that of the message, and the failures before.
type SentBack = BTreeMap<(usize, u64, i32), usize>;
/// The progress of groups, by their number and a queue.
pub(super) type Progress = BTreeMap<(usize, QueueName), i64>;

/// A message that was produced.
#[derive(Debug, Clone)]
pub(super) struct Produced {
    pub(super) queue: QueueName,
    /// Its queue offset and the physical offset of its end; `None` if the append failed: then it may be there or not.
    pub(super) stored: Option<(i64, i64)>,
}

/// The state of a message that a group was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Held {
        by: u64,
        since: Instant,
    },
    /// It comes again, at this time or later.
    Back {
        until: Instant,
    },
    /// Held for too long. It was sent back at a poll or a step since, or is still held.
    Late {
        by: u64,
        may_come: bool,
    },
    Settled,
}

#[derive(Debug, Clone)]
struct Given {
    id: u64,
    state: State,
    /// The number of times that it failed in its ordered queue; `None` after a timeout.
    failures: Option<i32>,
    reconsume_times: i32,
}

/// A group in one queue since its process began.
#[derive(Debug, Clone, Default)]
struct Queue {
    /// Every wanted message before this offset was given, or need not be.
    next: i64,
    given: BTreeMap<i64, Given>,
}

impl Queue {
    /// Returns the lowest offset that is in flight for sure.
    fn first_open(&self) -> Option<i64> {
        let is_open = |given: &Given| matches!(given.state, State::Held { .. } | State::Back { .. });
        self.given.iter().find(|(_, given)| is_open(given)).map(|(offset, _)| *offset)
    }

    fn has_late(&self) -> bool {
        self.given.values().any(|given| matches!(given.state, State::Late { .. }))
    }

    /// Returns the number of messages that are in flight.
    fn open(&self) -> usize {
        self.given.values().filter(|given| given.state != State::Settled).count()
    }
}

/// The record of what producers, consumers and groups did and saw.
#[derive(Debug, Default)]
pub(super) struct Judge {
    /// Keyed by the number in their body.
    produced: BTreeMap<u64, Produced>,
    queues: BTreeMap<(usize, QueueName), Queue>,
    /// Messages that a group acknowledged, in any process, that lie before its start, or that a seek has passed over: with their
    /// queue, their offset, and their number.
    settled: BTreeSet<(usize, QueueName, i64, u64)>,
    /// The progress of [`Consumer::positions`](mqstore::broker::Consumer::positions).
    pub(super) progress: Progress,
    /// Topics of groups that have begun in this process, whose start may not be durable.
    beginning: BTreeSet<(usize, String)>,
    /// Topics of groups whose start is durable, in any process.
    joined: BTreeSet<(usize, String)>,
    /// The values that the file may have after a power cut. Without an entry: no value.
    durable: BTreeMap<(usize, QueueName), BTreeSet<Option<i64>>>,
    pub(super) transactions: Transactions,
    /// Numbers of messages that were given, and of those that were given before.
    pub(super) given: (u64, u64),
}

/// Returns the number in the body of a message.
pub(super) fn number_of(body: &[u8]) -> Option<u64> {
    let digits = body.split(|byte| *byte == b':').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn fail<T>(check: &'static str, what: String) -> Checked<T> {
    Err(Violation { check, what })
}

/// Reads the progress in `consumerOffset.json`.
pub(super) fn written(files: &Files) -> Checked<Progress> {
    let check = "the file of progress is whole";
    let mut progress = Progress::new();
    let Some(bytes) = files.get("config/consumerOffset.json") else {
        return Ok(progress);
    };
    let Ok(file) = serde_json::from_slice::<Value>(bytes) else {
        return fail(check, String::from_utf8_lossy(bytes).into_owned());
    };
    for (name, queues) in file["offsetTable"].as_object().into_iter().flatten() {
        let Some((topic, group)) = name.split_once('@') else {
            continue;
        };
        let Some(group) = Group::number(group) else { continue };
        for (queue_id, offset) in queues.as_object().into_iter().flatten() {
            let (Ok(queue_id), Some(offset)) = (queue_id.parse(), offset.as_i64()) else {
                return fail(check, file.to_string());
            };
            progress.insert((group, (topic.to_owned(), queue_id)), offset);
        }
    }
    Ok(progress)
}

impl Judge {
    pub(super) fn produced(&mut self, id: u64, queue: QueueName, stored: Option<(i64, i64)>) {
        self.produced.insert(id, Produced { queue, stored });
    }

    /// A half message was committed. `copy` is the place in its queue, and the end of its record.
    pub(super) fn committed(&mut self, half: i64, copy: (i64, i64)) {
        let id = self.transactions.id(half);
        if let Some(produced) = id.and_then(|id| self.produced.get_mut(&id)) {
            produced.stored = Some(copy);
        }
    }

    /// A consumer was to join, and the store shows progress of its group in these topics. A group begins once in each topic: at the end of
    /// the queues that are there if it asks for that, and else at their first messages.
    pub(super) fn begins(&mut self, group: usize, is_latest: bool, shown: &BTreeSet<String>, reader: &MessageReader) -> Checked {
        for topic in shown.iter().filter(|topic| GROUPS[group].subscribes(topic)) {
            if Self::is_known(&self.progress, group, topic) {
                continue;
            }
            let has_joined = self.joined.contains(&(group, topic.clone()));
            ensure(!has_joined, "a group begins once in a topic", || {
                format!("{} in {topic}", GROUPS[group].name)
            })?;
            self.beginning.insert((group, topic.clone()));
            let queue_ids = works("queues are listed", reader.queue_ids(topic))?;
            if queue_ids.is_empty() {
                self.progress.insert((group, (topic.clone(), 0)), 0);
            }
            for queue_id in queue_ids {
                let name = (topic.clone(), queue_id);
                let bounds = works("queues are listed", reader.queue_bounds(topic, queue_id))?;
                let next = if is_latest { bounds.end } else { bounds.start };
                self.excuse(group, &name, 0..next, reader)?;
                self.queues.entry((group, name.clone())).or_default().next = next;
                self.progress.insert((group, name), next);
            }
        }
        Ok(())
    }

    /// A consumer has joined: the starts of its group are durable.
    pub(super) fn joins(&mut self, group: usize) {
        let begun: Vec<_> = self.beginning.iter().filter(|(of, _)| *of == group).cloned().collect();
        for joined in begun {
            self.beginning.remove(&joined);
            let own = self
                .progress
                .iter()
                .filter(|((of, queue), _)| (*of, &queue.0) == (joined.0, &joined.1));
            self.durable
                .extend(own.map(|(key, offset)| (key.clone(), [Some(*offset)].into())));
            self.joined.insert(joined);
        }
    }

    fn is_known(progress: &Progress, group: usize, topic: &str) -> bool {
        progress.keys().any(|(of, queue)| *of == group && queue.0 == topic)
    }

    fn excuse(&mut self, group: usize, queue: &QueueName, offsets: std::ops::Range<i64>, reader: &MessageReader) -> Checked {
        for offset in offsets {
            let stored = works("a message is read", reader.message_in_queue(&queue.0, queue.1, offset))?;
            let id = number_of(stored.view().body());
            self.settled.extend(id.map(|id| (group, queue.clone(), offset, id)));
        }
        Ok(())
    }

    /// A group moves to an offset of a queue.
    pub(super) fn seeks(&mut self, group: usize, queue: &QueueName, to: i64, reader: &MessageReader) -> Checked {
        let key = (group, queue.clone());
        let from = self.progress.get(&key).copied().unwrap_or(0);
        self.excuse(group, queue, from..to.max(from), reader)?;
        let given = BTreeMap::new();
        self.queues.insert(key.clone(), Queue { next: to, given });
        self.progress.insert(key, to);
        Ok(())
    }

    /// A consumer was given these messages by one poll.
    pub(super) fn gives(
        &mut self,
        group: usize,
        member: u64,
        messages: &[StoredMessage],
        now: Instant,
        reader: &MessageReader,
    ) -> Checked {
        for message in messages {
            let view = message.view();
            self.give(group, member, &view, now, reader)?;
        }
        Ok(())
    }

    fn give(&mut self, group: usize, member: u64, view: &MessageView<'_>, now: Instant, reader: &MessageReader) -> Checked {
        let queue = (view.topic().into_owned(), view.queue_id());
        let offset = view.queue_offset();
        let place = format!("{} gets {} {} {offset}", GROUPS[group].name, queue.0, queue.1);
        let id = self.identify(view, &queue).ok_or_else(|| Violation {
            check: "a message is where it was produced",
            what: place.clone(),
        })?;
        let tag = view.properties().get(property::TAGS).unwrap_or_default();
        ensure(GROUPS[group].wants(&queue.0, &tag), "a group gets only what it wants", || {
            place.clone()
        })?;
        let own = self.queues.entry((group, queue.clone())).or_default();
        self.given.0 += 1;
        self.given.1 += u64::from(own.given.contains_key(&offset));
        let failures = if let Some(given) = own.given.get(&offset) {
            expect_due(given, now, &place)?;
            given.failures
        } else {
            ensure(offset >= own.next, "offsets rise within a queue", || {
                format!("{place} after {}", own.next)
            })?;
            for passed in own.next..offset {
                let passed = works("a message is read", reader.message_in_queue(&queue.0, queue.1, passed))?;
                let tag = passed
                    .view()
                    .properties()
                    .get(property::TAGS)
                    .unwrap_or_default()
                    .into_owned();
                ensure(!GROUPS[group].wants(&queue.0, &tag), "a poll skips no message", || {
                    format!("{place}, expected {}", own.next)
                })?;
            }
            own.next = offset + 1;
            Some(0)
        };
        if GROUPS[group].is_ordered {
            expect_order(own, member, offset, &place)?;
        }
        let given = Given {
            id,
            state: State::Held { by: member, since: now },
            failures,
            reconsume_times: view.reconsume_times(),
        };
        own.given.insert(offset, given);
        Ok(())
    }

    /// Returns the number of a message, if it was produced at this place, or is the copy of a delayed one or a retry.
    fn identify(&mut self, view: &MessageView<'_>, queue: &QueueName) -> Option<u64> {
        let id = number_of(view.body())?;
        if self.transactions.has(id) && !self.transactions.may_be_committed(id) {
            return None;
        }
        let produced = self.produced.get_mut(&id)?;
        if level_of_copy(view).is_some() {
            let is_delayed = produced.queue.0 == SCHEDULE_TOPIC || queue.0.starts_with("%RETRY%");
            return is_delayed.then_some(id);
        }
        let end = view.physical_offset() + i64::from(view.size());
        let (offset, _) = *produced.stored.get_or_insert((view.queue_offset(), end));
        (produced.queue == *queue && offset == view.queue_offset()).then_some(id)
    }

    /// Messages that were held for too long at this time may have been sent back.
    pub(super) fn times_out(&mut self, now: Instant) {
        for ((group, _), queue) in &mut self.queues {
            let is_ordered = GROUPS[*group].is_ordered;
            let mut is_late = false;
            for given in queue.given.values_mut() {
                let State::Held { by, since } = given.state else { continue };
                is_late = now.saturating_duration_since(since) >= CONSUME_TIMEOUT || (is_ordered && is_late);
                if is_late {
                    given.state = State::Late {
                        by,
                        may_come: is_ordered,
                    };
                    given.failures = None;
                }
            }
        }
    }

    /// A consumer has left, and its messages are given again.
    pub(super) fn leaves(&mut self, member: u64, now: Instant) {
        let all = self.queues.values_mut().flat_map(|queue| queue.given.values_mut());
        for given in all {
            match &mut given.state {
                State::Held { by, .. } if *by == member => given.state = State::Back { until: now },
                State::Late { by, may_come } if *by == member => *may_come = true,
                _ => {}
            }
        }
    }

    /// Returns the places of messages of a group: in a state, or those that were settled.
    pub(super) fn places(&self, group: usize, by: Option<u64>, are_settled: bool) -> Vec<(QueueName, i64)> {
        let own = self.queues.iter().filter(|((of, _), _)| *of == group);
        own.flat_map(|((_, name), queue)| queue.given.iter().map(move |(offset, given)| (name, *offset, given)))
            .filter(|(_, _, given)| match given.state {
                State::Settled => are_settled,
                State::Held { by: holder, .. } | State::Late { by: holder, .. } => {
                    !are_settled && by.is_none_or(|by| by == holder)
                }
                State::Back { .. } => !are_settled && by.is_none(),
            })
            .map(|(name, offset, _)| (name.clone(), offset))
            .collect()
    }

    /// Returns an offset that no consumer of the group was given yet, in a queue that it knows.
    pub(super) fn unknown(&self, group: usize, number: u64) -> Option<(QueueName, i64)> {
        let own: Vec<_> = self.queues.iter().filter(|((of, _), _)| *of == group).collect();
        let ((_, name), queue) = own.get(number as usize % own.len().max(1))?;
        Some((name.clone(), queue.next))
    }

    /// Checks the count of an acknowledgement, and settles its messages.
    pub(super) fn acks(&mut self, group: usize, places: &[(QueueName, i64)], counted: usize) -> Checked {
        let (mut sure, mut late) = (0, 0);
        for (queue, offset) in places {
            let own = self.queues.get_mut(&(group, queue.clone()));
            let Some(given) = own.and_then(|own| own.given.get_mut(offset)) else {
                continue;
            };
            match given.state {
                State::Settled => {}
                State::Late { .. } => late += 1,
                State::Held { .. } | State::Back { .. } => sure += 1,
            }
            given.state = State::Settled;
            self.settled.insert((group, queue.clone(), *offset, given.id));
        }
        let check = "an acknowledgement counts the messages in flight";
        ensure((sure..=sure + late).contains(&counted), check, || {
            format!("{counted} of {places:?}: {sure} are in flight, {late} may be")
        })
    }

    /// A message was sent back at this time; `is_taken` is the answer.
    pub(super) fn nacks(
        &mut self,
        group: usize,
        place: &(QueueName, i64),
        level: Option<i32>,
        now: Instant,
        is_taken: bool,
    ) -> Checked {
        let of = &GROUPS[group];
        let own = self.queues.entry((group, place.0.clone())).or_default();
        let Some(given) = own.given.get(&place.1).cloned() else {
            return ensure(!is_taken, "only a held message is sent back", || format!("{place:?}"));
        };
        let is_possible = match given.state {
            State::Held { .. } => is_taken,
            State::Late { .. } => true,
            State::Back { .. } | State::Settled => !is_taken,
        };
        ensure(is_possible, "only a held message is sent back", || {
            format!("{place:?} is {:?}, answer {is_taken}", given.state)
        })?;
        if !is_taken {
            return Ok(());
        }
        let is_dead = level.is_some_and(|level| level < 0);
        let failed = given.failures.map(|failures| failures + given.reconsume_times);
        if !of.is_ordered || is_dead || failed.is_some_and(|failed| failed >= of.max_reconsume_times) {
            own.given.entry(place.1).and_modify(|given| given.state = State::Settled);
            return Ok(());
        }
        for (offset, given) in own.given.range_mut(place.1..) {
            if let (State::Held { by, .. }, None) | (State::Late { by, .. }, _) = (given.state, failed) {
                given.state = State::Late { by, may_come: true };
            } else if let State::Held { .. } = given.state {
                given.state = State::Back {
                    until: now + ORDERED_RETRY,
                };
            }
            if *offset == place.1 {
                given.failures = given.failures.map(|failures| failures + 1);
            }
        }
        Ok(())
    }

    /// Compares the positions of a consumer with what its group was given.
    pub(super) fn observe(&mut self, group: usize, positions: Vec<QueuePosition>) -> Checked {
        for position in positions {
            let shown = format!("{}: {position:?}", GROUPS[group].name);
            let key = (group, (position.topic, position.queue_id));
            let own = self.queues.entry(key.clone()).or_default();
            let open = own.first_open().unwrap_or(position.next);
            ensure(position.committed <= open, "progress passes no message in flight", || {
                format!("{shown}, {open} is in flight")
            })?;
            let is_exact = position.committed == open && position.in_flight == own.open();
            ensure(
                is_exact || own.has_late(),
                "progress is the lowest message that is not settled",
                || format!("{shown}, expected {open} and {}", own.open()),
            )?;
            ensure(position.next >= own.next, "offsets rise within a queue", || {
                format!("{shown}, {} was given", own.next)
            })?;
            ensure(
                position.committed <= position.queue.end,
                "progress is within its queue",
                || shown.clone(),
            )?;
            let before = self.progress.insert(key, position.committed);
            ensure(
                before.is_none_or(|before| before <= position.committed),
                "progress does not fall",
                || format!("{shown}, it was {before:?}"),
            )?;
        }
        Ok(())
    }

    /// Progress may be written now.
    pub(super) fn may_persist(&mut self) {
        for (key, offset) in &self.progress {
            let known = self.durable.entry(key.clone()).or_insert_with(|| [None].into());
            known.insert(Some(*offset));
        }
    }

    /// Progress is durable.
    pub(super) fn persisted(&mut self) {
        for (key, offset) in &self.progress {
            self.durable.insert(key.clone(), [Some(*offset)].into());
        }
    }

    /// A new process continues with the progress in the file, which is durable after a power cut.
    pub(super) fn restart(&mut self, progress: Progress, is_durable: bool, reader: &MessageReader) {
        self.queues.clear();
        self.beginning.clear();
        for (key, offset) in &progress {
            let next = *offset;
            let given = BTreeMap::new();
            self.queues.insert(key.clone(), Queue { next, given });
            let known = self.durable.entry(key.clone()).or_insert_with(|| [None].into());
            known.insert(Some(next));
        }
        if is_durable {
            self.durable.retain(|key, _| progress.contains_key(key));
            for (key, offset) in &progress {
                self.durable.insert(key.clone(), [Some(*offset)].into());
            }
        }
        self.progress = progress;
        let is_there = |id: u64, produced: &Produced| {
            let Some((offset, _)) = produced.stored else { return true };
            let stored = reader.message_in_queue(&produced.queue.0, produced.queue.1, offset);
            stored.is_ok_and(|stored| number_of(stored.view().body()) == Some(id))
        };
        let transactions = &self.transactions;
        self.produced.retain(|id, produced| {
            let is_there = is_there(*id, produced);
            if !is_there && transactions.has(*id) {
                // The commit is lost, and the transaction is open again.
                produced.stored = None;
            }
            is_there || transactions.has(*id)
        });
    }

    /// Checks what a crash left: every message before `flushed`, and progress that is durable and passes no message.
    pub(super) fn examine(&self, reader: &MessageReader, log: &[StoredMessage], files: &Files, flushed: i64) -> Checked {
        for (id, produced) in &self.produced {
            let Some((offset, end)) = produced.stored.filter(|(_, end)| *end <= flushed) else {
                continue;
            };
            let stored = reader.message_in_queue(&produced.queue.0, produced.queue.1, offset);
            let found = stored.is_ok_and(|stored| number_of(stored.view().body()) == Some(*id));
            ensure(found, "no durable message is lost", || {
                format!("{id}: {produced:?}, end {end}")
            })?;
        }
        let progress = written(files)?;
        for (key, known) in &self.durable {
            let value = progress.get(key).copied();
            ensure(known.contains(&value), "progress is what was made durable", || {
                format!("{key:?} is {value:?}, expected one of {known:?}")
            })?;
        }
        for (group, topic) in &self.joined {
            ensure(
                Self::is_known(&progress, *group, topic),
                "the start of a group is durable once it has joined",
                || format!("{} in {topic}: {progress:?}", GROUPS[*group].name),
            )?;
        }
        let sent_back = sent_back(log);
        for ((group, queue), offset) in &progress {
            self.expect_settled(*group, queue, *offset, reader, &sent_back)?;
        }
        expect_copies(log, files)
    }

    /// Every message before `end` in a queue is there, and acknowledged or sent back.
    fn expect_settled(&self, group: usize, queue: &QueueName, end: i64, reader: &MessageReader, sent_back: &SentBack) -> Checked {
        let bounds = works("a queue is read", reader.queue_bounds(&queue.0, queue.1))?;
        ensure(end <= bounds.end, "progress is within what is durable", || {
            format!("{} {queue:?}: {end} of {bounds:?}", GROUPS[group].name)
        })?;
        let mut failures = BTreeMap::new();
        for offset in 0..end {
            let stored = works("a message is read", reader.message_in_queue(&queue.0, queue.1, offset))?;
            let view = stored.view();
            let tag = view.properties().get(property::TAGS).unwrap_or_default();
            let id = number_of(view.body());
            let is_settled = id.is_some_and(|id| self.settled.contains(&(group, queue.clone(), offset, id)));
            if is_settled || !GROUPS[group].wants(&queue.0, &tag) {
                continue;
            }
            // Each of the messages with this number needs its own record.
            let failed = id.map(|id| (group, id, view.reconsume_times()));
            let count = failures.entry(failed).or_insert(0);
            *count += 1;
            ensure(
                failed.is_some_and(|failed| sent_back.get(&failed) >= Some(count)),
                "progress passes no message that is not settled",
                || format!("{} {queue:?} {offset}, progress {end}", GROUPS[group].name),
            )?;
        }
        Ok(())
    }

    /// Checks that each group has settled each of its queues to the end.
    pub(super) fn expect_consumed(&self, reader: &MessageReader, log: &[StoredMessage]) -> Checked {
        let sent_back = sent_back(log);
        for (group, of) in GROUPS.iter().enumerate() {
            for topic in of.all_topics() {
                for queue_id in works("queues are listed", reader.queue_ids(&topic))? {
                    let queue = (topic.clone(), queue_id);
                    let end = works("queues are listed", reader.queue_bounds(&topic, queue_id))?.end;
                    let progress = self.progress.get(&(group, queue.clone())).copied();
                    ensure(progress == Some(end), "a healthy group consumes everything", || {
                        format!("{} {queue:?}: {progress:?} of {end}", of.name)
                    })?;
                    self.expect_settled(group, &queue, end, reader, &sent_back)?;
                }
            }
        }
        Ok(())
    }
}

/// A message that was given comes again only if it was given back, and not before its time.
fn expect_due(given: &Given, now: Instant, place: &str) -> Checked {
    let check = "a message comes again only after it was given back";
    match given.state {
        State::Back { until } => ensure(until <= now, "a message that failed waits", || place.to_owned()),
        State::Late { may_come, .. } => ensure(may_come, check, || format!("{place}: {given:?}")),
        State::Held { .. } | State::Settled => fail(check, format!("{place}: {given:?}")),
    }
}

/// In an ordered queue a consumer gets a message only if it holds all that come before it and are not settled.
fn expect_order(queue: &Queue, member: u64, offset: i64, place: &str) -> Checked {
    let check = "an ordered queue is given in order to one consumer";
    for (other, given) in &queue.given {
        let is_before = *other < offset;
        match given.state {
            State::Held { by, .. } => ensure(by == member, check, || format!("{place}: another holds {other}"))?,
            State::Back { .. } => ensure(!is_before || *other == offset, check, || format!("{place}: {other} waits"))?,
            State::Late { .. } | State::Settled => {}
        }
    }
    Ok(())
}

/// Finds the failures of messages in a log.
fn sent_back(log: &[StoredMessage]) -> SentBack {
    let mut found = SentBack::new();
    for message in log {
        let view = message.view();
        let group = if view.has_topic(SCHEDULE_TOPIC) {
            let real = view.properties().get(property::REAL_TOPIC).unwrap_or_default();
            real.strip_prefix("%RETRY%").and_then(Group::number)
        } else {
            view.topic().strip_prefix("%DLQ%").and_then(Group::number)
        };
        if let Some((group, id)) = group.zip(number_of(view.body())) {
            *found.entry((group, id, view.reconsume_times() - 1)).or_default() += 1;
        }
    }
    found
}

/// Checks that each delivered copy is in a log once, in order and in time, and that the progress of the delivery does not pass them.
fn expect_copies(log: &[StoredMessage], files: &Files) -> Checked {
    let found = DelayedLog::of(log, &DelayLevels::default());
    let progress = files.get("config/delayOffset.json");
    let progress = progress.map(serde_json::from_slice::<Value>);
    let checked = match progress {
        Some(Err(error)) => Err(error.to_string()),
        Some(Ok(file)) => found.check_progress(&file),
        None => Ok(()),
    };
    let check = "each delayed message is delivered once";
    checked.and(found.check()).map_err(|what| Violation { check, what })
}
