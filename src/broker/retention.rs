//! Retention: the messages that somebody still needs, and the removal of those that nobody does.
//!
//! A trim stops before the first message that a consumer group has not consumed or a connected slave has not acknowledged, and where the
//! progress of a group is not known, unless it is forced. It never removes a delayed message or timer message that was not delivered, nor
//! a half message of an open transaction: nothing else holds their content.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::consumer_groups::ConsumerGroups;
use super::lost_progress::expect_progress;
use super::timer_backlog::TimerBacklog;
use super::timer_offset::{TimerOffsets, TimerState, load_timer_check};
use super::timer_queue::first_left_by_broker;
use super::transaction::Transactions;
use super::transaction_record::TRANSACTION_GROUP;
use crate::error::{Error, Result};
use crate::format::{HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, retry_topic};
use crate::log::BrokerSettings;
use crate::read::{GroupOffset, MessageReader};
use crate::store::{MessageStore, Slave, TrimTo, Trimmed};

/// The reason why a message is still needed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum NeededBy {
    /// A consumer group.
    Group(String),
    /// The delivery of delayed messages.
    Delay,
    /// The delivery of timer messages.
    Timers,
    /// The end of open transactions.
    Transactions,
}

/// Messages of a queue that are still needed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hold {
    /// The reason.
    pub by: NeededBy,
    /// The topic.
    pub topic: String,
    /// The queue of the topic.
    pub queue_id: i32,
    /// The queue offset of the first one.
    pub queue_offset: i64,
    /// The number of messages; of timer messages, which are not delivered in their order, those that may wait.
    pub messages: i64,
    /// The physical offset of the first one.
    pub physical_offset: i64,
}

impl Hold {
    /// Returns true if a forced trim does not wait for it.
    pub(super) fn yields_to_force(&self) -> bool {
        matches!(self.by, NeededBy::Group(_))
    }
}

/// The holds and the slaves that keep messages of a store.
#[derive(Debug, Default)]
pub(super) struct Needed {
    pub(super) holds: Vec<Hold>,
    /// The connected slaves. Each needs what it has not acknowledged.
    pub(super) slaves: Vec<Slave>,
}

impl Needed {
    /// Returns what needs messages before this physical offset.
    pub(super) fn before(mut self, end: i64) -> Self {
        self.holds.retain(|hold| hold.physical_offset < end);
        self.slaves.retain(|slave| slave.acknowledged < end);
        self
    }

    /// Returns the physical offset of the first message that a trim keeps. A forced trim waits for no group and no slave.
    pub(super) fn floor(&self, forced: bool) -> i64 {
        let holds = self.holds.iter().filter(|hold| !forced || !hold.yields_to_force());
        let slaves = self.slaves.iter().filter(|_| !forced);
        let needed = holds
            .map(|hold| hold.physical_offset)
            .chain(slaves.map(|slave| slave.acknowledged));
        needed.min().unwrap_or(i64::MAX)
    }
}

/// The result of [`Retention::trim`].
#[derive(Debug, Clone, Default)]
pub struct TrimReport {
    /// The removed files; of a dry run only the segments that would be removed.
    pub trimmed: Trimmed,
    /// The store times, in ms, of the first removed message and of the first remaining message; `None` if nothing is removed.
    pub stored: Option<Range<i64>>,
    /// The messages that kept segments from being removed.
    pub holds: Vec<Hold>,
    /// The messages that were removed although a group has not consumed them, counted without those that remain.
    pub unread: Vec<Hold>,
    /// The connected slaves that kept segments from being removed.
    pub slaves: Vec<Slave>,
    /// The connected slaves that had not acknowledged all messages that were removed.
    pub unreplicated: Vec<Slave>,
}

impl TrimReport {
    /// Returns the report of a trim that removed `trimmed` of the segments up to `wanted`. The log began with a message of the time
    /// `oldest`.
    pub(super) fn new(
        reader: &MessageReader,
        trimmed: Trimmed,
        wanted: &[Range<i64>],
        oldest: Option<i64>,
        needed: Needed,
    ) -> Result<Self> {
        let end_of = |segments: &[Range<i64>]| segments.last().map_or(0, |segment| segment.end);
        let (removed, wanted) = (end_of(&trimmed.segments), end_of(wanted));
        let needed = needed.before(wanted);
        let (mut unread, holds): (Vec<Hold>, _) = needed.holds.into_iter().partition(|hold| hold.physical_offset < removed);
        let (unreplicated, slaves) = needed.slaves.into_iter().partition(|slave| slave.acknowledged < removed);
        for hold in &mut unread {
            if let Some(queue) = reader.queue_store().queue(&hold.topic, hold.queue_id)? {
                hold.messages = queue
                    .offset_from(removed)?
                    .saturating_sub(hold.queue_offset)
                    .clamp(0, hold.messages);
            }
        }
        let oldest = oldest.filter(|_| !trimmed.segments.is_empty());
        let newer = reader.log().claimed_store_time(removed)?;
        Ok(Self {
            trimmed,
            stored: oldest.zip(newer).map(|(oldest, newer)| oldest..newer),
            holds,
            unread,
            slaves,
            unreplicated,
        })
    }
}

/// The messages that are still needed in a store that is open for writing, and the removal of the others.
#[derive(Debug)]
pub(super) struct Retention {
    store: Arc<MessageStore>,
    groups: Arc<ConsumerGroups>,
    transactions: Arc<Transactions>,
    /// The timer messages, where this writer delivers them.
    timers: Option<Arc<TimerOffsets>>,
}

impl Retention {
    pub(super) fn new(
        store: &Arc<MessageStore>,
        groups: &Arc<ConsumerGroups>,
        transactions: &Arc<Transactions>,
        timers: Option<Arc<TimerOffsets>>,
    ) -> Self {
        Self {
            store: store.clone(),
            groups: groups.clone(),
            transactions: transactions.clone(),
            timers,
        }
    }

    /// Returns the messages that consumer groups, delays, timers and transactions still need.
    ///
    /// # Errors
    /// The damage of a settings file, and those of reading queues.
    pub(super) fn holds(&self) -> Result<Vec<Hold>> {
        let open = self.transactions.count_open()?;
        let known_timers = self.timers.as_ref().and_then(|timers| TimerBacklog::of_writer(timers));
        let mut holds = holds_by(self.store.reader(), known(self.groups.offsets())?, known_timers)?;
        for hold in &mut holds {
            if hold.by == NeededBy::Transactions {
                hold.messages = open;
            }
        }
        Ok(holds)
    }

    /// Returns what still needs messages: the holds, and the connected slaves.
    ///
    /// # Errors
    /// Those of [`Retention::holds`].
    pub(super) fn needed(&self) -> Result<Needed> {
        Ok(Needed {
            holds: self.holds()?,
            slaves: self.store.replicas().connected(),
        })
    }

    /// Refuses to remove messages while the progress of a group is lost.
    ///
    /// # Errors
    /// Those of [`expect_progress`].
    pub(super) fn expect_progress(&self) -> Result<()> {
        expect_progress(self.store.reader(), &known(self.groups.offsets())?)
    }

    /// Removes the oldest segments, and the queue and index files that lead only to them. It stops before the first message that is still
    /// needed. If it is `forced`, it also removes messages that groups have not consumed and slaves have not acknowledged. A dry run
    /// removes nothing.
    ///
    /// # Errors
    /// Those of [`Retention::holds`] and [`MessageStore::trim`](crate::store::MessageStore::trim); unless it is forced, those of
    /// [`Retention::expect_progress`].
    pub(super) fn trim(&self, to: TrimTo, forced: bool, dry_run: bool) -> Result<TrimReport> {
        if !forced {
            self.expect_progress()?;
        }
        let needed = self.needed()?;
        let floor = needed.floor(forced);
        let wanted = self.store.segments_to_trim(to, i64::MAX)?;
        let log = self.store.reader().log();
        let oldest = log.claimed_store_time(log.first_offset())?;
        let trimmed = if dry_run {
            Trimmed::planned(self.store.segments_to_trim(to, floor)?)
        } else {
            self.remove(to, floor, forced)?
        };
        TrimReport::new(self.store.reader(), trimmed, &wanted, oldest, needed)
    }

    /// Makes the progress of the groups durable, and removes segments before `floor`: a group that a crash sets back to older progress
    /// finds the messages after it. On a full disk the segments go first that no group needs by its progress on disk, which makes room.
    fn remove(&self, to: TrimTo, floor: i64, forced: bool) -> Result<Trimmed> {
        let mut trimmed = Trimmed::default();
        match self.groups.persist() {
            Err(shortage) if shortage.is_shortage() => {
                let on_disk = needed_in(self.store.reader())?.floor(forced);
                trimmed = self.store.trim(to, floor.min(on_disk))?;
                if trimmed.refused.is_some() || self.store.segments_to_trim(to, floor)?.is_empty() {
                    return Ok(trimmed);
                }
                if let Err(error) = self.groups.persist() {
                    return trimmed.or_refused(Some(error));
                }
            }
            persisted => persisted?,
        }
        trimmed.append(self.store.trim(to, floor)?);
        Ok(trimmed)
    }
}

/// Returns what still needs messages of a store by its settings files: consumer groups, delays, timers and transactions.
///
/// # Errors
/// The damage of a settings file, and those of reading queues.
pub(super) fn needed_in(reader: &Arc<MessageReader>) -> Result<Needed> {
    Ok(Needed {
        holds: holds_by(reader, known(reader.consumer_offsets())?, None)?,
        ..Needed::default()
    })
}

/// Returns the messages that are still needed, with this progress of the groups, and with the timer messages of a writer that knows them.
fn holds_by(reader: &Arc<MessageReader>, groups: Vec<GroupOffset>, mut timers: Option<TimerBacklog>) -> Result<Vec<Hold>> {
    let mut holds = Vec::new();
    for ((by, topic), progress) in progress_of_all(reader, groups)? {
        for queue_id in reader.queue_ids(&topic)? {
            let bounds = reader.queue_bounds(&topic, queue_id)?;
            let next = progress.get(&queue_id).copied().unwrap_or(bounds.start).max(bounds.start);
            if next >= bounds.end {
                continue;
            }
            let messages = if by == NeededBy::Timers {
                let backlog = timers.take().map_or_else(|| TimerBacklog::read(reader), Ok)?;
                backlog.needed(bounds.end)
            } else {
                bounds.end - next
            };
            // If the first one is lost, those after it are needed all the same.
            let first = reader.position(&topic, queue_id, next)?;
            holds.push(Hold {
                by: by.clone(),
                topic: topic.clone(),
                queue_id,
                queue_offset: next,
                messages,
                physical_offset: first.map_or(0, |first| first.physical_offset),
            });
        }
    }
    holds.sort();
    Ok(holds)
}

/// The progress by queue of each group in each topic, of the delivery of delayed messages and timers, and of transactions.
type Progress = BTreeMap<(NeededBy, String), BTreeMap<i32, i64>>;

fn progress_of_all(reader: &Arc<MessageReader>, groups: Vec<GroupOffset>) -> Result<Progress> {
    let mut all = Progress::new();
    for topic in reader.topics()? {
        let by = match topic.as_str() {
            TIMER_TOPIC => {
                let first = BTreeMap::from([(0, first_timer(reader)?)]);
                all.insert((NeededBy::Timers, topic), first);
                continue;
            }
            SCHEDULE_TOPIC => NeededBy::Delay,
            HALF_TOPIC => NeededBy::Transactions,
            _ => continue,
        };
        // Without any progress nothing was delivered or ended.
        all.entry((by, topic)).or_default();
    }
    for offset in groups {
        let by = match (offset.topic.as_str(), offset.group.as_str()) {
            (HALF_TOPIC, TRANSACTION_GROUP) => NeededBy::Transactions,
            // The first open half message lies before every op message that is still needed.
            (HALF_TOPIC, _) | (OP_TOPIC, TRANSACTION_GROUP) => continue,
            (_, group) => {
                // It has no progress in the queues of its retry topic before its first poll after a retry.
                let retries = (NeededBy::Group(group.to_owned()), retry_topic(group));
                all.entry(retries).or_default();
                NeededBy::Group(offset.group)
            }
        };
        let of_topic = all.entry((by, offset.topic)).or_default();
        of_topic.insert(offset.queue_id, offset.offset);
    }
    for offset in known(reader.delay_offsets())? {
        let of_levels = all.entry((NeededBy::Delay, SCHEDULE_TOPIC.to_owned())).or_default();
        of_levels.insert(offset.level - 1, offset.offset);
    }
    Ok(all)
}

/// Returns the queue offset of the first timer message that may not have been delivered. Without progress nothing was delivered, nor if
/// the progress is not that of this log. A broker has delivered those that its file says, whatever was appended since.
fn first_timer(reader: &Arc<MessageReader>) -> Result<i64> {
    match load_timer_check(reader)? {
        Some(check) if check.progress.is_none() => first_left_by_broker(reader, check),
        check => Ok(TimerState::begin(reader, check.unwrap_or_default())?.next()),
    }
}

/// Returns the content of a settings file; nothing if the file is missing.
fn known<T>(settings: Result<BrokerSettings<Vec<T>>>) -> Result<Vec<T>> {
    match settings {
        Err(Error::NotFound { .. }) => Ok(Vec::new()),
        settings => settings.map(|settings| settings.content),
    }
}
