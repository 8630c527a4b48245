//! The services and settings of one store.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use super::consumer::Consumer;
use super::consumer_group::{Start, Subscription};
use super::consumer_groups::{ConsumerGroups, GroupKeeper};
use super::subscription_group::SubscriptionGroups;
use super::topic_config::TopicConfigs;
use crate::error::{Error, Result};
use crate::read::MessageReader;
use crate::services::{Next, Stepped, spawn, step};
use crate::store::MessageStore;
use crate::sync::{Mutex, lock};
use crate::watermark::Watermark;

/// A broker's work on a store that is open for writing. Close it before the store.
#[derive(Debug)]
pub struct BrokerController {
    topics: Arc<TopicConfigs>,
    settings: Arc<SubscriptionGroups>,
    store: Arc<MessageStore>,
    groups: Arc<ConsumerGroups>,
    /// Poisoned at the close, which ends the services.
    open: Arc<Watermark>,
    keeper: Arc<Mutex<dyn Stepped>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// False where only [`BrokerController::step`] runs services.
    has_threads: bool,
}

/// A service of a [`BrokerController`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BrokerService {
    /// Persists the progress of groups and the topics, and gives back what consumers have held for too long.
    Keep,
}

impl BrokerService {
    fn name(self) -> &'static str {
        match self {
            Self::Keep => "keeper",
        }
    }
}

impl BrokerController {
    /// Reads the settings of the store. Each service gets a thread at its first use.
    pub fn new(store: &Arc<MessageStore>) -> Self {
        Self {
            has_threads: true,
            ..Self::new_stepped(store)
        }
    }

    /// Same as [`BrokerController::new`], without threads: only [`BrokerController::step`] runs services.
    pub fn new_stepped(store: &Arc<MessageStore>) -> Self {
        let topics = Arc::new(TopicConfigs::load(store));
        let settings = Arc::new(SubscriptionGroups::load(store));
        let groups = Arc::new(ConsumerGroups::new(store, settings.clone()));
        let open = Arc::new(Watermark::new(0));
        let keeper = GroupKeeper::new(groups.clone(), topics.clone(), open.clone());
        Self {
            topics,
            settings,
            store: store.clone(),
            groups,
            open,
            keeper: Arc::new(Mutex::new(keeper)),
            threads: Mutex::default(),
            has_threads: false,
        }
    }

    /// Returns the topics and their settings.
    pub fn topics(&self) -> &TopicConfigs {
        &self.topics
    }

    /// Returns the settings of the consumer groups.
    pub fn subscription_groups(&self) -> &SubscriptionGroups {
        &self.settings
    }

    /// Returns a new consumer of the group; without a group it reads every message and keeps no progress.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Invalid`] for a name that no broker takes, and if consumers of the group have another
    /// subscription; the damage of `consumerOffset.json` and `subscriptionGroup.json`; [`Error::Io`] if a thread cannot be started.
    pub fn consumer(&self, group: Option<&str>, subscription: Subscription, start: &Start) -> Result<Consumer> {
        let mut threads = lock(&self.threads);
        if let Some(cause) = self.open.poisoned() {
            return Err(cause);
        }
        if threads.is_empty() && self.has_threads {
            let open = self.open.clone();
            let is_over = move || open.poisoned().is_some();
            threads.push(spawn(BrokerService::Keep.name(), self.keeper.clone(), false, is_over)?);
        }
        self.groups.consumer(group, subscription, start)
    }

    pub(super) fn store(&self) -> &MessageStore {
        &self.store
    }

    pub(super) fn reader(&self) -> &MessageReader {
        self.store.reader()
    }

    /// Makes the progress of all groups durable.
    pub(super) fn persist(&self) -> Result<()> {
        self.groups.persist()
    }

    /// Runs one step of a service, at the time `now`.
    ///
    /// # Errors
    /// The failure that ends the service.
    pub fn step(&self, service: BrokerService, now: Instant) -> Result<Next> {
        match service {
            BrokerService::Keep => step(service.name(), &self.keeper, now),
        }
    }

    /// Ends the services, and persists the progress of all groups and the topics. A second call does nothing.
    ///
    /// # Errors
    /// What could not be persisted.
    pub fn close(&self) -> Result<()> {
        self.open.poison(Error::Closed);
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            // A service that panicked has reported it.
            let _ = thread.join();
        }
        let persisted = self.groups.persist();
        persisted.and(self.topics.persist())
    }
}
