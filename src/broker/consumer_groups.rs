//! The consumer groups of a store that have consumers in this process, and the service that keeps them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::consumer::Consumer;
use super::consumer_group::{ConsumerGroup, Start, Subscription};
use super::consumer_offset::ConsumerOffsets;
use super::group_store::GroupStore;
use super::subscription_group::SubscriptionGroups;
use super::topic_config::TopicConfigs;
use crate::error::{Error, Result};
use crate::services::{Next, Stepped};
use crate::store::MessageStore;
use crate::sync::{Mutex, lock};
use crate::watermark::Watermark;

/// The interval at which progress is persisted: RocketMQ's `flushConsumerOffsetInterval`.
const KEEP_INTERVAL: Duration = Duration::from_secs(5);

/// The consumer groups of a store.
#[derive(Debug)]
pub(super) struct ConsumerGroups {
    store: Arc<GroupStore>,
    settings: Arc<SubscriptionGroups>,
    /// By name. A group stays after its last consumer has left, with what is in flight.
    groups: Mutex<BTreeMap<String, Arc<ConsumerGroup>>>,
    next_member: AtomicU64,
}

impl ConsumerGroups {
    pub(super) fn new(store: &Arc<MessageStore>, settings: Arc<SubscriptionGroups>) -> Self {
        Self {
            store: Arc::new(GroupStore::Own {
                store: store.clone(),
                offsets: Arc::new(ConsumerOffsets::load(store)),
            }),
            settings,
            groups: Mutex::default(),
            next_member: AtomicU64::new(0),
        }
    }

    /// Returns a new consumer of the group; without a group it reads every message and keeps no progress.
    ///
    /// # Errors
    /// Those of [`SubscriptionGroups::ensure`] and [`Consumer::join`].
    pub(super) fn consumer(&self, group: Option<&str>, subscription: Subscription, start: &Start) -> Result<Consumer> {
        if let Some(name) = group {
            self.settings.ensure(name)?;
        }
        let make = |name| Arc::new(ConsumerGroup::new(name, self.store.clone()));
        let joined = match group {
            None => make(None),
            Some(name) => {
                let mut groups = lock(&self.groups);
                let known = groups.entry(name.to_owned());
                known.or_insert_with(|| make(Some(name.to_owned()))).clone()
            }
        };
        let member = self.next_member.fetch_add(1, Ordering::Relaxed);
        Consumer::join(self.store.clone(), joined, member, subscription, start)
    }

    /// Makes the progress of all groups durable.
    ///
    /// # Errors
    /// Those of [`ConsumerOffsets::persist`].
    pub(super) fn persist(&self) -> Result<()> {
        self.store.persist()
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

/// The service that persists the progress of groups and the topics, and gives back what consumers have held for too long.
#[derive(Debug)]
pub(super) struct GroupKeeper {
    groups: Arc<ConsumerGroups>,
    topics: Arc<TopicConfigs>,
    /// Poisoned at the close of the store.
    open: Arc<Watermark>,
    next: Option<Instant>,
}

impl GroupKeeper {
    pub(super) fn new(groups: Arc<ConsumerGroups>, topics: Arc<TopicConfigs>, open: Arc<Watermark>) -> Self {
        Self {
            groups,
            topics,
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
