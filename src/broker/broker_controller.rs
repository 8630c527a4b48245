//! The services and settings of one store.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use super::consumer::Consumer;
use super::consumer_group::{Start, Subscription};
use super::consumer_groups::{ConsumerGroups, GroupKeeper};
use crate::error::{Error, Result};
use crate::services::{Next, Stepped, spawn, step};
use crate::store::MessageStore;
use crate::sync::{Mutex, lock};
use crate::watermark::Watermark;

/// A broker's work on a store that is open for writing. Close it before the store.
#[derive(Debug)]
pub struct BrokerController {
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
    /// Persists the progress of groups, and gives back what consumers have held for too long.
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
        let groups = Arc::new(ConsumerGroups::new(store));
        let open = Arc::new(Watermark::new(0));
        let keeper = GroupKeeper::new(groups.clone(), open.clone());
        Self {
            groups,
            open,
            keeper: Arc::new(Mutex::new(keeper)),
            threads: Mutex::default(),
            has_threads: false,
        }
    }

    /// Returns a new consumer of the group; without a group it reads every message and keeps no progress.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Invalid`] if consumers of the group have another subscription; the damage of
    /// `consumerOffset.json`; [`Error::Io`] if a thread cannot be started.
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

    /// Runs one step of a service, at the time `now`.
    ///
    /// # Errors
    /// The failure that ends the service.
    pub fn step(&self, service: BrokerService, now: Instant) -> Result<Next> {
        match service {
            BrokerService::Keep => step(service.name(), &self.keeper, now),
        }
    }

    /// Ends the services, and persists the progress of all groups. A second call does nothing.
    ///
    /// # Errors
    /// What could not be persisted.
    pub fn close(&self) -> Result<()> {
        self.open.poison(Error::Closed);
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            // A service that panicked has reported it.
            let _ = thread.join();
        }
        self.groups.persist()
    }
}
