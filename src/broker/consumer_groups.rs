//! The consumer groups of a store that have consumers in this process. The service [`GroupKeeper`] persists their progress and gives
//! back what consumers have held for too long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::consumer::Consumer;
use super::consumer_group::{ConsumerGroup, Start, Subscription, start_in_queue};
use super::consumer_offset::ConsumerOffsets;
use super::group_store::GroupStore;
use super::retry::{DEAD_LETTER_PREFIX, Resent, resend};
use super::subscription_group::SubscriptionGroups;
use super::topic_config::TopicConfigs;
use super::transaction::Transactions;
use crate::config::Errors;
use crate::error::{Error, Result};
use crate::format::{MessageView, TOPIC_GROUP_SEPARATOR};
use crate::log::BrokerSettings;
use crate::read::{GroupLag, GroupOffset, GroupState};
use crate::services::{Next, Stepped};
use crate::store::MessageStore;
use crate::sync::{Mutex, lock};
use crate::watermark::Watermark;

/// The interval at which progress is persisted: RocketMQ's `flushConsumerOffsetInterval`.
const KEEP_INTERVAL: Duration = Duration::from_secs(5);

/// The number of dead letters after which a resend makes its progress durable: a crash sends at most as many a second time.
const RESEND_BATCH: usize = 1000;

/// The consumer groups of a store.
#[derive(Debug)]
pub(super) struct ConsumerGroups {
    store: Arc<MessageStore>,
    offsets: Arc<ConsumerOffsets>,
    /// The store and the progress, as the groups read them.
    source: Arc<GroupStore>,
    settings: Arc<SubscriptionGroups>,
    /// Keyed by name. A group stays after its last consumer has left, with what is in flight.
    groups: Mutex<BTreeMap<String, Arc<ConsumerGroup>>>,
    next_member: AtomicU64,
    /// One join of a group, reset or deletion at a time: a consumer never joins a group of which a part is deleted.
    membership: Mutex<()>,
    /// One resend at a time.
    resend: Mutex<()>,
}

impl ConsumerGroups {
    pub(super) fn new(store: &Arc<MessageStore>, topics: &Arc<TopicConfigs>, settings: Arc<SubscriptionGroups>) -> Self {
        let offsets = Arc::new(ConsumerOffsets::load(store, topics.clone()));
        let source = GroupStore::Own {
            store: store.clone(),
            offsets: offsets.clone(),
        };
        Self {
            store: store.clone(),
            offsets,
            source: Arc::new(source),
            settings,
            groups: Mutex::default(),
            next_member: AtomicU64::new(0),
            membership: Mutex::default(),
            resend: Mutex::default(),
        }
    }

    /// Returns a new consumer of the group; without a group it reads every message and keeps no progress.
    ///
    /// # Errors
    /// Those of [`SubscriptionGroups::rule`] and [`Consumer::join`].
    pub(super) fn consumer(&self, group: Option<&str>, mut subscription: Subscription, start: &Start) -> Result<Consumer> {
        let _alone = group.map(|_| lock(&self.membership));
        let make = |named| Arc::new(ConsumerGroup::new(named, self.source.clone()));
        let joined = match group {
            None => make(None),
            Some(name) => {
                let rule = self.settings.rule(name)?;
                if !subscription.is_ordered {
                    subscription.max_reconsume_times.get_or_insert(rule.retry_max_times);
                }
                let mut groups = lock(&self.groups);
                let known = groups.entry(name.to_owned());
                known.or_insert_with(|| make(Some((name, rule.retry_queue_nums)))).clone()
            }
        };
        let member = self.next_member.fetch_add(1, Ordering::Relaxed);
        Consumer::join(self.source.clone(), joined, member, subscription, start)
    }

    /// Returns the progress of all groups.
    pub(super) fn progress(&self) -> &Arc<ConsumerOffsets> {
        &self.offsets
    }

    /// Makes the progress of all groups durable.
    ///
    /// # Errors
    /// Those of [`ConsumerOffsets::persist`].
    pub(super) fn persist(&self) -> Result<()> {
        self.offsets.persist()
    }

    /// Returns the progress of all groups: of those that have consumed in this process as it is now, of others as the file has it.
    ///
    /// # Errors
    /// Those of [`MessageReader::consumer_offsets`](crate::read::MessageReader::consumer_offsets).
    pub(super) fn offsets(&self) -> Result<BrokerSettings<Vec<GroupOffset>>> {
        let live: Vec<_> = self.offsets.live().into_iter().filter_map(to_group_offset).collect();
        let stored = match self.store.reader().consumer_offsets() {
            Err(Error::NotFound { .. }) if !live.is_empty() => BrokerSettings {
                content: Vec::new(),
                doubts: Vec::new(),
            },
            stored => stored?,
        };
        let all = stored.content.into_iter().chain(live);
        let by_queue: BTreeMap<_, _> = all
            .map(|offset| ((offset.group.clone(), offset.topic.clone(), offset.queue_id), offset))
            .collect();
        Ok(BrokerSettings {
            content: by_queue.into_values().collect(),
            doubts: stored.doubts,
        })
    }

    /// Returns the state of all groups in their queues, ascending.
    ///
    /// # Errors
    /// Those of [`ConsumerGroups::offsets`], and of reading.
    pub(super) fn states(&self) -> Result<BrokerSettings<Vec<GroupState>>> {
        let reader = self.store.reader();
        let mut states = reader.group_states(self.lags()?)?;
        let groups = lock(&self.groups).clone();
        for state in &mut states.content {
            let group = groups.get(&state.lag.group);
            let (consumers, in_flight) = group.map_or((0, 0), |group| group.in_flight(&state.lag.topic, state.lag.queue_id));
            state.consumers = i32::try_from(consumers).ok();
            state.in_flight = i64::try_from(in_flight).ok();
        }
        Ok(states)
    }

    /// Returns the lag of all groups by queue, ascending, as [`MessageReader::oldest_states`](crate::read::MessageReader::oldest_states).
    ///
    /// # Errors
    /// Those of [`ConsumerGroups::offsets`], and of reading.
    pub(super) fn backlog(&self) -> Result<BrokerSettings<Vec<GroupState>>> {
        self.store.reader().oldest_states(self.lags()?)
    }

    fn lags(&self) -> Result<BrokerSettings<Vec<GroupLag>>> {
        self.store.reader().lag_of(self.offsets()?)
    }

    /// Moves a group to an offset in each queue of a topic, durably, and returns the queue offsets. Its consumers continue there.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a topic without queues; the damage of the settings file; those of [`ConsumerOffsets::persist`].
    pub(super) fn reset(&self, group: &str, topic: &str, to: &Start) -> Result<BTreeMap<i32, i64>> {
        let _alone = lock(&self.membership);
        self.settings.ensure(group)?;
        self.source.catch_up()?;
        let reader = self.store.reader();
        let known = lock(&self.groups).get(group).cloned();
        let mut offsets = BTreeMap::new();
        for queue_id in reader.queue_ids(topic)? {
            let offset = start_in_queue(reader, topic, queue_id, to)?;
            match &known {
                Some(known) => known.seek(topic, queue_id, offset)?,
                None => self.offsets.of_queue(group, topic, queue_id)?.set(offset),
            }
            offsets.insert(queue_id, offset);
        }
        if offsets.is_empty() {
            return Err(Error::not_found(format!("the store has no queue of topic {topic:?}")));
        }
        self.offsets.forget_cut(group, topic)?;
        self.persist()?;
        Ok(offsets)
    }

    /// Removes the progress and the settings of a group, durably.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an unknown group; [`Error::Invalid`] if it has consumers; the damage of the settings files; those of
    /// [`ConsumerOffsets::persist`].
    pub(super) fn delete(&self, group: &str) -> Result<()> {
        let _alone = lock(&self.membership);
        let mut groups = lock(&self.groups);
        let consumers = groups.get(group).map_or(0, |known| known.in_flight("", 0).0);
        if consumers > 0 {
            let what = format!("group {group:?} has {consumers} open consumers: close them before the group is deleted");
            return Err(Error::Invalid { what });
        }
        // The progress first: it is what keeps messages.
        let had_progress = self.offsets.remove(group)?;
        let had_settings = self.settings.remove(group)?;
        let was_known = groups.remove(group).is_some();
        if had_progress || had_settings || was_known {
            Ok(())
        } else {
            Err(Error::not_found(format!("the store has no consumer group {group:?}")))
        }
    }

    /// Sends dead letters of a group again to their first topics. By default these are the letters after the progress of the group in
    /// its dead letters, which then passes them, durably. With `Errors::Skip` it also passes those that cannot be read.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a message that is not a dead letter of the group; those of reading and of an append. The letters before it
    /// are sent.
    pub(super) fn resend(&self, group: &str, letters: Option<&[MessageView<'_>]>, errors: Errors) -> Result<Resent> {
        self.settings.ensure(group)?;
        let topic = format!("{DEAD_LETTER_PREFIX}{group}");
        let _alone = lock(&self.resend);
        let mut resent = Resent::default();
        if let Some(letters) = letters {
            for (turn, letter) in letters.iter().enumerate() {
                if !letter.has_topic(&topic) {
                    let what = format!(
                        "a message of topic {:?} is not a dead letter of group {group:?}",
                        letter.topic()
                    );
                    return Err(Error::Invalid { what });
                }
                resend(&self.store, letter, turn)?;
                resent.sent += 1;
            }
            return Ok(resent);
        }
        self.source.catch_up()?;
        let queue_ids = self.store.reader().queue_ids(&topic)?;
        let mut of_queues = queue_ids.into_iter();
        let ended = of_queues.try_for_each(|queue_id| self.resend_queue(group, (&topic, queue_id), errors, &mut resent));
        // Also after an error: the letters before it must not be sent twice.
        let persisted = self.persist();
        ended.and(persisted).map(|()| resent)
    }

    /// Sends the dead letters of a queue again that the group has not passed, and passes them.
    fn resend_queue(&self, group: &str, (topic, queue_id): (&str, i32), errors: Errors, resent: &mut Resent) -> Result<()> {
        let reader = self.store.reader();
        let bounds = reader.queue_bounds(topic, queue_id)?;
        let progress = self.offsets.of_queue(group, topic, queue_id)?;
        let passed = progress.get().unwrap_or(0);
        resent.expired += u64::try_from(bounds.start - passed).unwrap_or(0);
        for (turn, offset) in (passed.max(bounds.start)..bounds.end).enumerate() {
            let letter = reader.message_in_queue(topic, queue_id, offset);
            match letter.and_then(|letter| resend(&self.store, &letter.view(), turn)) {
                Ok(_) => resent.sent += 1,
                Err(Error::NotFound { .. }) => resent.expired += 1,
                Err(Error::Corrupt { .. } | Error::Invalid { .. }) if errors == Errors::Skip => {
                    resent.skipped.push((queue_id, offset));
                }
                Err(error) => return Err(error),
            }
            progress.set(offset + 1);
            if (turn + 1) % RESEND_BATCH == 0 {
                self.persist()?;
            }
        }
        Ok(())
    }

    /// Gives back the messages that consumers have held for too long.
    fn give_back_expired(&self, now: Instant) {
        let groups: Vec<_> = lock(&self.groups).values().cloned().collect();
        for group in groups {
            // A message that cannot be sent back stays in flight. The next round and the next poll try again, and the poll raises why.
            let _ = group.give_back_all_expired(now);
        }
    }
}

/// Divides the name of an entry. A group that consumes here has no separator in its name.
fn to_group_offset((name, queue_id, offset): (String, i32, i64)) -> Option<GroupOffset> {
    let (topic, group) = name.rsplit_once(TOPIC_GROUP_SEPARATOR)?;
    Some(GroupOffset {
        group: group.to_owned(),
        topic: topic.to_owned(),
        queue_id,
        offset,
    })
}

/// The service that persists the progress of groups and the topics, and gives back what consumers have held for too long.
#[derive(Debug)]
pub(super) struct GroupKeeper {
    groups: Arc<ConsumerGroups>,
    topics: Arc<TopicConfigs>,
    transactions: Arc<Transactions>,
    /// Poisoned at the close of the store.
    open: Arc<Watermark>,
    next: Option<Instant>,
}

impl GroupKeeper {
    pub(super) fn new(
        groups: Arc<ConsumerGroups>,
        topics: Arc<TopicConfigs>,
        transactions: Arc<Transactions>,
        open: Arc<Watermark>,
    ) -> Self {
        Self {
            groups,
            topics,
            transactions,
            open,
            next: None,
        }
    }
}

impl Stepped for GroupKeeper {
    /// Does its work, when it is due. What cannot be persisted is tried again at the next interval: a durable commit and the close
    /// raise why.
    fn step(&mut self, now: Instant) -> Result<Next> {
        let due = *self.next.get_or_insert(now + KEEP_INTERVAL);
        if now >= due {
            self.groups.give_back_expired(now);
            self.transactions.renew_mark(false);
            let _ = self.groups.persist();
            let _ = self.topics.persist();
            self.next = Some(now + KEEP_INTERVAL);
        }
        Ok(Next::Idle { until: self.next })
    }

    fn awaited(&self) -> (Arc<Watermark>, i64) {
        (self.open.clone(), i64::MAX)
    }

    fn fail(&self, _cause: Error) {}
}
