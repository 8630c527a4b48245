//! The broker of one store: its settings files, groups, transactions and background services. RocketMQ: `BrokerController`.
//!
//! A [`BrokerService`] implements [`Stepped`]. It gets a thread at its first use, or is run step by step in tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use super::clean::{CleanService, CleanStats, CleanWarnings};
use super::consumer::Consumer;
use super::consumer_group::{Start, Subscription};
use super::consumer_groups::{ConsumerGroups, GroupKeeper};
use super::delay::delays_of;
use super::delay_offset::{DelayOffsets, DelayStats};
use super::delivery::DeliverySchedule;
use super::replicated_settings::ReplicatedFile;
use super::retention::{Hold, Retention, TrimReport};
use super::retry::Resent;
use super::subscription_group::SubscriptionGroups;
use super::timer::{HandOver, TimerService, timers_of};
use super::timer_backlog::TimerBacklog;
use super::timer_offset::{TimerOffsets, load_timer_check};
use super::topic_config::TopicConfigs;
use super::transaction::Transactions;
use super::transaction_record::TRANSACTION_GROUP;
use crate::config::Errors;
use crate::error::{Error, Result};
use crate::format::{DelayOffset, MessageView};
use crate::log::BrokerSettings;
use crate::read::{GroupOffset, GroupState};
use crate::services::{Next, Stepped, spawn, step};
use crate::store::{MessageStore, TrimTo};
use crate::sync::{Mutex, lock};
use crate::watermark::Watermark;

/// The most steps of a search for delivered copies that a close takes. A step reads up to 4 MiB of the log, or the messages of a level.
const SEARCH_STEPS: u32 = 40;

/// A broker's work on a store that is open for writing. Close it before the store.
#[derive(Debug)]
pub struct BrokerController {
    store: Arc<MessageStore>,
    topics: Arc<TopicConfigs>,
    settings: Arc<SubscriptionGroups>,
    groups: Arc<ConsumerGroups>,
    /// Poisoned at the close, which ends the services.
    open: Arc<Watermark>,
    transactions: Arc<Transactions>,
    keeper: Arc<Mutex<dyn Stepped>>,
    /// The threads of the services that were needed.
    threads: Mutex<BTreeMap<BrokerService, JoinHandle<()>>>,
    /// The delivery of delayed messages: `None` where it does not run, or the reason why it cannot.
    delays: Result<Option<DeliverySchedule<DelayOffsets>>>,
    /// The delivery of timer messages. It runs where `delays` does.
    timers: Result<Option<DeliverySchedule<TimerOffsets>>>,
    retention: Arc<Retention>,
    /// The removal of old segments: `None` where it does not run.
    cleaner: Option<Arc<Mutex<CleanService>>>,
    warnings: Arc<CleanWarnings>,
    /// False where only [`BrokerController::step`] runs services.
    has_threads: bool,
}

/// A service of a [`BrokerController`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BrokerService {
    /// Persists the progress of groups and the topics, and gives back what consumers have held for too long.
    Keep,
    /// Delivers delayed messages.
    Deliver,
    /// Persists the progress of the delivery of delayed messages.
    PersistDelays,
    /// Delivers timer messages.
    DeliverTimers,
    /// Persists the progress of the delivery of timer messages.
    PersistTimers,
    /// Removes old segments.
    Clean,
}

impl BrokerService {
    fn name(self) -> &'static str {
        match self {
            Self::Keep => "keeper",
            Self::Deliver => "deliverer",
            Self::PersistDelays => "delay-persister",
            Self::DeliverTimers => "timer",
            Self::PersistTimers => "timer-persister",
            Self::Clean => "cleaner",
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
        let groups = Arc::new(ConsumerGroups::new(store, &topics, settings.clone()));
        let transactions = Arc::new(Transactions::new(store, groups.progress().clone()));
        let open = Arc::new(Watermark::new(0));
        let keeper = GroupKeeper::new(groups.clone(), topics.clone(), transactions.clone(), open.clone());
        let timer_check = load_timer_check(store.reader());
        let has_progress = matches!(&timer_check, Ok(Some(check)) if check.progress.is_some());
        let delays = delays_of(store, has_progress);
        let timers = match delays {
            Ok(None) => Ok(None),
            _ => timer_check.and_then(|check| timers_of(store, check.unwrap_or_default()).map(Some)),
        };
        let known_timers = timers
            .as_ref()
            .ok()
            .and_then(Option::as_ref)
            .map(|timers| timers.offsets.clone());
        let retention = Arc::new(Retention::new(store, &groups, &transactions, known_timers));
        let warnings = Arc::new(CleanWarnings::default());
        // It runs where the delivery of delayed messages does. If the progress of the delivery is damaged, each round fails.
        let cleaner = match delays {
            Ok(None) => None,
            _ => CleanService::new(store, &retention, &open, &warnings),
        };
        Self {
            store: store.clone(),
            topics,
            settings,
            groups,
            open,
            transactions,
            keeper: Arc::new(Mutex::new(keeper)),
            threads: Mutex::default(),
            delays,
            timers,
            retention,
            cleaner: cleaner.map(|cleaner| Arc::new(Mutex::new(cleaner))),
            warnings,
            has_threads: false,
        }
    }

    /// Returns the topics and their settings.
    pub fn topics(&self) -> &TopicConfigs {
        &self.topics
    }

    /// Returns true if one of the topics was created as an ordered one.
    ///
    /// # Errors
    /// The damage of `topics.json`.
    pub fn is_ordered(&self, topics: &[String]) -> Result<bool> {
        for topic in topics {
            if self.topics.get(topic)?.and_then(|known| known.order) == Some(true) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the settings of the consumer groups.
    pub fn subscription_groups(&self) -> &SubscriptionGroups {
        &self.settings
    }

    /// Returns a new consumer of the group; without a group it reads every message and keeps no progress.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::IllegalMessage`] for a topic without the permission to read; [`Error::Invalid`] for a name that no
    /// broker takes, if the settings of the group forbid it to consume, and if its consumers have another subscription; the damage of
    /// `consumerOffset.json` and `subscriptionGroup.json`; [`Error::Poisoned`], [`Error::DiskFull`], [`Error::Io`] if the start of the
    /// group cannot be made durable; [`Error::Io`] if a thread cannot be started.
    pub fn consumer(&self, group: Option<&str>, subscription: Subscription, start: &Start) -> Result<Consumer> {
        for topic in &subscription.topics {
            self.store.topics().expect_readable(topic)?;
        }
        self.keep()?;
        // A consumer sends messages back, which are delayed. It works without their delivery, which a later call refuses.
        let _ = self.serve_delayed();
        self.groups.consumer(group, subscription, start)
    }

    /// Returns the transactions.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Io`] if a thread cannot be started.
    pub fn transactions(&self) -> Result<&Arc<Transactions>> {
        self.keep()?;
        Ok(&self.transactions)
    }

    /// Starts the thread of [`BrokerService::Keep`], once.
    fn keep(&self) -> Result<()> {
        self.run(BrokerService::Keep, self.keeper.clone())
    }

    /// Starts the thread of a service, once. Without threads it does nothing.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Io`] if the thread cannot be started.
    fn run(&self, service: BrokerService, stepped: Arc<Mutex<dyn Stepped>>) -> Result<()> {
        let mut threads = lock(&self.threads);
        if let Some(cause) = self.open.poisoned() {
            return Err(cause);
        }
        if self.has_threads && !threads.contains_key(&service) {
            let open = self.open.clone();
            let is_over = move || open.poisoned().is_some();
            threads.insert(service, spawn(service.name(), stepped, false, is_over)?);
        }
        Ok(())
    }

    /// Returns a settings file as it is on disk, for a slave: what it says of progress survives a power failure. Each topic with messages
    /// has an entry in it.
    ///
    /// # Errors
    /// The damage of the file; [`Error::DiskFull`], [`Error::Io`].
    pub fn settings_on_disk(&self, file: ReplicatedFile) -> Result<Vec<u8>> {
        if file == ReplicatedFile::Topics {
            self.topics.persist()?;
        }
        file.on_disk(&self.store)
    }

    /// Returns the messages that consumer groups, delays and transactions still need.
    ///
    /// # Errors
    /// The damage of a settings file, and those of reading queues.
    pub fn holds(&self) -> Result<Vec<Hold>> {
        self.retention.holds()
    }

    /// Removes the oldest segments, and the queue and index files that lead only to them. It stops before the first message that is still
    /// needed. If it is `forced`, it also removes messages that groups have not consumed and slaves have not acknowledged. A dry run
    /// removes nothing.
    ///
    /// # Errors
    /// Those of [`BrokerController::holds`] and [`MessageStore::trim`].
    pub fn trim(&self, to: TrimTo, forced: bool, dry_run: bool) -> Result<TrimReport> {
        self.retention.trim(to, forced, dry_run)
    }

    /// Returns the state of the removal of old segments at the time `now`; `None` where it does not run.
    ///
    /// # Errors
    /// Those of [`BrokerController::holds`], and of reading the oldest segment.
    pub fn clean_stats(&self, now: Instant) -> Result<Option<CleanStats>> {
        let cleaner = self.cleaner.as_ref();
        cleaner.map(|cleaner| lock(cleaner).stats(now)).transpose()
    }

    /// Returns the warnings of the removal of old segments.
    pub fn clean_warnings(&self) -> &Arc<CleanWarnings> {
        &self.warnings
    }

    /// Starts the delivery of delayed messages and timer messages if some wait, and the removal of old segments if an option asks for it.
    ///
    /// # Errors
    /// [`Error::Io`] if a thread cannot be started.
    pub fn start(&self) -> Result<()> {
        if let Some(cleaner) = &self.cleaner {
            self.run(BrokerService::Clean, cleaner.clone())?;
        }
        match self.delay_stats() {
            Ok(Some(stats)) if stats.waiting > 0 => self.serve_delayed().map(drop),
            // A later call returns why it cannot run.
            _ => Ok(()),
        }
    }

    /// Starts the threads that deliver delayed messages and timer messages, once. Returns false if this store does not deliver them.
    ///
    /// # Errors
    /// [`Error::Closed`]; the damage of `delayOffset.json`; [`Error::Io`] if a thread cannot be started, or `timercheck` cannot be read.
    pub fn serve_delayed(&self) -> Result<bool> {
        if let Ok(Some(timers)) = &self.timers {
            self.run(BrokerService::DeliverTimers, timers.deliverer.clone())?;
            self.run(BrokerService::PersistTimers, timers.persister.clone())?;
        }
        let Some(delays) = self.delays.as_ref().map_err(Error::clone)? else {
            return Ok(false);
        };
        self.run(BrokerService::Deliver, delays.deliverer.clone())?;
        self.run(BrokerService::PersistDelays, delays.persister.clone())?;
        self.timers.as_ref().map(Option::is_some).map_err(Error::clone)
    }

    /// Returns the number of delayed messages and timer messages that wait, and of those that could not be delivered; `None` if this
    /// store does not deliver them.
    ///
    /// # Errors
    /// The damage of `delayOffset.json`; those of reading `timercheck` and the queues.
    pub fn delay_stats(&self) -> Result<Option<DelayStats>> {
        let delays = self.delays.as_ref().map_err(Error::clone)?;
        let timers = self.timers.as_ref().map_err(Error::clone)?;
        match (delays, timers) {
            (Some(delays), Some(timers)) => Ok(Some(delays.offsets.stats()?.and(timers.offsets.stats()?))),
            _ => Ok(None),
        }
    }

    /// Hands the timer messages that wait over to a broker: each is stored again at the end of its queue, and this writer delivers none any
    /// more. A broker that starts on the store after its close delivers each of them once, and so does the next writer. Timer messages
    /// that are appended from now on wait with them. A second call does nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] if this store does not deliver timer messages; those of reading `timercheck` and the queue, and of an append and a
    /// flush: after such an error a later call hands over the rest.
    pub fn hand_over(&self) -> Result<HandOver> {
        let Some(timers) = self.timers.as_ref().map_err(Error::clone)? else {
            return Err(Error::Invalid {
                what: "this writer delivers no timers, so that it has none to hand over: those of a store that a broker has written are the \
                       broker's, unless services is True"
                    .to_owned(),
            });
        };
        TimerService::new(&self.store, &timers.offsets).hand_over()
    }

    /// Returns the timer messages that wait.
    ///
    /// # Errors
    /// Those of reading `timercheck`, queue and log.
    pub fn timer_backlog(&self) -> Result<TimerBacklog> {
        let known = self.timers.as_ref().ok().and_then(Option::as_ref);
        match known.and_then(|timers| TimerBacklog::of_writer(&timers.offsets)) {
            Some(known) => Ok(known),
            None => TimerBacklog::read(self.store.reader()),
        }
    }

    /// Returns the progress of the delivery of delayed messages, by level; `None` if this store does not deliver them.
    ///
    /// # Errors
    /// The damage of `delayOffset.json`.
    pub fn delay_offsets(&self) -> Result<Option<Vec<DelayOffset>>> {
        let delays = self.delays.as_ref().map_err(Error::clone)?;
        Ok(delays.as_ref().map(|delays| delays.offsets.all()))
    }

    /// Returns the progress of all groups: of those that have consumed in this process as it is now, of others as the file has it.
    ///
    /// # Errors
    /// Those of [`MessageReader::consumer_offsets`](crate::read::MessageReader::consumer_offsets).
    pub fn consumer_offsets(&self) -> Result<BrokerSettings<Vec<GroupOffset>>> {
        self.groups.offsets()
    }

    /// Returns the state of all groups in their queues, ascending.
    ///
    /// # Errors
    /// Those of [`BrokerController::consumer_offsets`], and of reading.
    pub fn group_states(&self) -> Result<BrokerSettings<Vec<GroupState>>> {
        self.groups.states()
    }

    /// Returns the lag of all groups by queue, ascending. Of the queues of a topic only the one with the oldest message that a group has
    /// not consumed has its time, so that few messages are read.
    ///
    /// # Errors
    /// Those of [`BrokerController::consumer_offsets`], and of reading.
    pub fn group_backlog(&self) -> Result<BrokerSettings<Vec<GroupState>>> {
        self.groups.backlog()
    }

    /// Returns the progress that may pass messages whose retries were cut while the store was a slave's, as topic and group
    /// ("orders@billing"): [`BrokerController::reset`] sets it back.
    pub fn progress_of_cut_log(&self) -> BTreeSet<String> {
        self.groups.progress().of_cut_log()
    }

    /// Moves a group to an offset in each queue of a topic, durably, and returns the queue offsets. Its consumers continue there, and
    /// what they have in flight is forgotten.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a topic without queues; [`Error::Invalid`] for a name that no broker accepts; the damage of
    /// `consumerOffset.json`; [`Error::Poisoned`], [`Error::DiskFull`], [`Error::Io`].
    pub fn reset(&self, group: &str, topic: &str, to: &Start) -> Result<BTreeMap<i32, i64>> {
        self.groups.reset(group, topic, to)
    }

    /// Removes the progress and the settings of a group, durably: no message is kept for it any more. Its progress in the file of a broker
    /// with light queues (`lmqConsumerOffset.json`) goes, too. Its retry messages and dead letters stay.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an unknown group; [`Error::Invalid`] if it has open consumers, and for the group of transactions; the
    /// damage of the settings files; [`Error::Poisoned`], [`Error::DiskFull`], [`Error::Io`].
    pub fn delete_group(&self, group: &str) -> Result<()> {
        if group == TRANSACTION_GROUP {
            return Err(Error::Invalid {
                what: format!("{group} is the progress of transactions, and no group of consumers"),
            });
        }
        self.groups.delete(group)
    }

    /// Appends dead letters of a group again to their first topics, as their producer would. By default these are the letters that were
    /// not sent again before: the progress of the group in its dead letters passes them, durably after each 1,000 letters and at the end,
    /// so that a crash repeats at most as many. With `Errors::Skip` it also passes those that are lost or damaged, which the answer names.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a message that is not a dead letter of the group; those of reading and of an append. The letters before it
    /// are sent.
    pub fn resend(&self, group: &str, letters: Option<&[MessageView<'_>]>, errors: Errors) -> Result<Resent> {
        self.groups.resend(group, letters, errors)
    }

    /// Runs one step of a service, at the time `now`.
    ///
    /// # Errors
    /// The failure that ends the service.
    pub fn step(&self, service: BrokerService, now: Instant) -> Result<Next> {
        let delays = self.delays.as_ref().ok().and_then(Option::as_ref);
        let timers = self.timers.as_ref().ok().and_then(Option::as_ref);
        match service {
            BrokerService::Keep => step(service.name(), &self.keeper, now),
            BrokerService::Deliver => delays.map_or(Ok(Next::Done), |delays| step(service.name(), &delays.deliverer, now)),
            BrokerService::PersistDelays => delays.map_or(Ok(Next::Done), |delays| step(service.name(), &delays.persister, now)),
            BrokerService::DeliverTimers => timers.map_or(Ok(Next::Done), |timers| step(service.name(), &timers.deliverer, now)),
            BrokerService::PersistTimers => timers.map_or(Ok(Next::Done), |timers| step(service.name(), &timers.persister, now)),
            BrokerService::Clean => self.cleaner.as_ref().map_or(Ok(Next::Done), |cleaner| {
                let cleaner: Arc<Mutex<dyn Stepped>> = cleaner.clone();
                step(service.name(), &cleaner, now)
            }),
        }
    }

    /// Steps a delivery until it has found the copies in the log, or for [`SEARCH_STEPS`].
    fn search_copies(&self, delivery: BrokerService, is_settled: impl Fn() -> bool) {
        for _ in 0..SEARCH_STEPS {
            if is_settled() || !matches!(self.step(delivery, Instant::now()), Ok(Next::Again)) {
                return;
            }
        }
    }

    /// Ends the services, and persists the progress of all groups and of the delivery, and the topics. A second call does nothing.
    ///
    /// # Errors
    /// What could not be persisted.
    pub fn close(&self) -> Result<()> {
        self.open.poison(Error::Closed);
        self.transactions.checks().poison(Error::Closed);
        let delays = self.delays.as_ref().ok().and_then(Option::as_ref);
        let timers = self.timers.as_ref().ok().and_then(Option::as_ref);
        // After a crash the progress in the file is old until the copies in the log are found, and a broker would deliver again. If that
        // fails or takes too long, the file stays as it is, and the next open searches.
        self.search_copies(BrokerService::Deliver, || {
            delays.is_none_or(|delays| delays.offsets.is_settled())
        });
        self.search_copies(BrokerService::DeliverTimers, || {
            timers.is_none_or(|timers| timers.offsets.is_settled())
        });
        self.store.scheduled().poison(Error::Closed);
        delays.into_iter().for_each(DeliverySchedule::stop);
        timers.into_iter().for_each(DeliverySchedule::stop);
        for thread in std::mem::take(&mut *lock(&self.threads)).into_values() {
            // A service that panicked has reported it.
            let _ = thread.join();
        }
        let delivery = delays.map_or(Ok(()), |delays| delays.offsets.persist_last());
        let delivery = delivery.and(timers.map_or(Ok(()), |timers| timers.offsets.persist_last()));
        self.transactions.renew_mark(true);
        let persisted = self.groups.persist();
        persisted.and(self.topics.persist()).and(delivery)
    }
}
