//! A store opened for writing: one process appends, any number of its threads read.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::config::{FlushDiskType, StoreConfig};
use crate::error::{Error, Result};
use crate::format::CHECKPOINT_FILE;
use crate::interrupt;
use crate::log::{CommitLog, LogStats, lock_flushed_mark};
use crate::read::MessageReader;
use crate::recovery::{Writable, remove_abort};
use crate::services::{Checkpointer, Dispatcher, FlushRealTime, LastDispatched, Next, ReadBarrier};
use crate::services::{Service, Services, without_panic};
use crate::storage::{CheckedEnv, Env, Generation, Lock, TransientStorePool, guard_faults};
use crate::store::append_result::{AppendResult, PutStatus};
use crate::store::message_checker::MessageChecker;
use crate::store::opening::find;
use crate::store::replicas::Replicas;
use crate::store::store_directory::{OpenMode, enter};
use crate::store::topic_table::TopicTable;
use crate::watermark::{Wait, Watermark};

/// A store opened for writing. Dropping it closes it and hides an error of the close, so call [`MessageStore::close`].
pub struct MessageStore {
    pub(super) env: Arc<dyn Env>,
    path: PathBuf,
    pub(super) checker: MessageChecker,
    pub(super) topics: Arc<TopicTable>,
    reader: Arc<MessageReader>,
    pub(super) log: Arc<CommitLog>,
    dispatched: Arc<Watermark>,
    scheduled: Arc<Watermark>,
    replicas: Arc<Replicas>,
    was_own_from: Option<i64>,
    received_from: Option<i64>,
    barrier: Arc<ReadBarrier>,
    /// The physical offset up to which a durable log is requested.
    pub(super) flush_wanted: Arc<Watermark>,
    services: Services,
    running: Mutex<Option<Running>>,
    /// One trim at a time.
    pub(super) trimming: Mutex<()>,
    opened_in: Generation,
    /// Faults in mapped files before the open.
    pub(super) faults_before: u64,
}

struct Running {
    threads: Vec<JoinHandle<()>>,
    _locks: Vec<Arc<Lock>>,
}

impl MessageStore {
    /// The longest wait of a read in this process for a dispatcher that makes no progress.
    pub const PATIENCE: Duration = Duration::from_millis(100);

    /// Opens or makes the store in the directory `path`. Its lock is taken before anything is changed, and a store that is refused
    /// stays as it was.
    ///
    /// # Errors
    /// [`Error::Locked`] if another writer has the store for longer than `lock_timeout`, [`Error::NotAStore`], [`Error::Exists`],
    /// [`Error::Corrupt`] for a store whose files do not agree (see `recovery::expect_recoverable`), [`Error::Unsupported`], and those of
    /// [`MessageReader::open`].
    pub fn open(env: &Arc<dyn Env>, path: &Path, config: StoreConfig, mode: OpenMode) -> Result<Self> {
        let store = Self::open_stepped(env, path, config, mode)?;
        store.start_threads()?;
        Ok(store)
    }

    /// Calls [`MessageStore::open`] without threads. Only [`MessageStore::step`] dispatches, and makes durable what no caller has asked
    /// for.
    ///
    /// # Errors
    /// As [`MessageStore::open`].
    pub fn open_stepped(env: &Arc<dyn Env>, path: &Path, mut config: StoreConfig, mode: OpenMode) -> Result<Self> {
        config.validate()?;
        let (lock, is_new) = enter(env.as_ref(), path, mode, config.lock_timeout)?;
        let lock = Arc::new(lock);
        let locked: Arc<dyn Env> = Arc::new(CheckedEnv::locked(env.clone(), &lock));
        let unrecovered = find(&locked, path, &mut config, is_new, mode)?;
        let pool = make_pool(&config)?;
        let writable = unrecovered.recover(&locked, path, &config)?;
        let mut locks = Vec::new();
        if config.flush_disk_type.shows_only_flushed() {
            locks.push(Arc::new(lock_flushed_mark(env.as_ref(), path)?));
        }
        // The last lock that is released, so that the next writer finds the other one free.
        locks.push(lock);
        Self::assemble(&locked, path, config, writable, pool, locks)
    }

    /// Runs one step of a service of a store that [`MessageStore::open_stepped`] opened, at the time `now`.
    ///
    /// # Errors
    /// What ended the service: the store is poisoned.
    pub fn step(&self, service: Service, now: Instant) -> Result<Next> {
        self.services.step(service, now)
    }

    /// Builds the store on its recovered files.
    fn assemble(
        env: &Arc<dyn Env>,
        path: &Path,
        config: StoreConfig,
        writable: Writable,
        pool: Option<TransientStorePool>,
        locks: Vec<Arc<Lock>>,
    ) -> Result<Self> {
        let recovered = writable.found;
        let log = Arc::new(writable.log.with_mode(&config, pool));
        let dispatched = Arc::new(Watermark::new(writable.index_from));
        let (flush_wanted, scheduled) = (Arc::<Watermark>::default(), Arc::<Watermark>::default());
        let report = &recovered.report;
        let last = LastDispatched {
            physical_offset: report.last_offset,
            store_time: report.last_store_time,
        };
        let checkpointer = Checkpointer {
            env: env.clone(),
            path: path.join(CHECKPOINT_FILE),
            log: log.clone(),
            queues: recovered.queues.clone(),
            index: recovered.index.clone(),
            geometry: writable.index_geometry,
        };
        let barrier = Arc::new(ReadBarrier::new(log.watermarks.readable.clone(), dispatched.clone()));
        let dispatcher = Dispatcher::new(
            checkpointer,
            dispatched.clone(),
            scheduled.clone(),
            barrier.clone(),
            last,
            report.scan_start,
            &config,
        )?;
        let cached = config.memory_window(env.physical_memory());
        let flusher = FlushRealTime::new(log.clone(), flush_wanted.clone(), dispatched.clone(), cached, &config);
        Ok(Self {
            env: env.clone(),
            path: path.to_owned(),
            checker: MessageChecker::new(env, &config, log.max_record_size(), recovered.queues.batch_topics())?,
            topics: Arc::default(),
            barrier,
            flush_wanted,
            scheduled,
            replicas: Arc::new(Replicas::new(&config, log.watermarks.appended.get())),
            was_own_from: writable.was_own_from,
            received_from: writable.received_from,
            services: Services::new(dispatcher, flusher, &log, &config),
            running: Mutex::new(Some(Running {
                threads: Vec::new(),
                _locks: locks,
            })),
            trimming: Mutex::default(),
            opened_in: Generation::current(),
            faults_before: guard_faults(),
            reader: Arc::new(MessageReader::new(
                env,
                path,
                config,
                recovered,
                log.watermarks.readable.clone(),
                dispatched.clone(),
            )),
            dispatched,
            log,
        })
    }

    fn start_threads(&self) -> Result<()> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(running) = running.as_mut() else { return Ok(()) };
        let appended = self.log.watermarks.appended.clone();
        // `close` does what is left when the store is closed.
        let is_over = move || matches!(appended.poisoned(), Some(Error::Closed));
        self.services.spawn(&mut running.threads, is_over)?;
        self.log.serve_segments(Duration::from_millis(self.config().wait_time_out));
        Ok(())
    }

    /// Reads what this store holds: a message by its physical offset as soon as it is appended, in its queue once it is dispatched, for
    /// which [`MessageStore::catch_up`] waits.
    pub fn reader(&self) -> &Arc<MessageReader> {
        &self.reader
    }

    /// Returns the environment of the store's files.
    pub(crate) fn env(&self) -> &dyn Env {
        self.env.as_ref()
    }

    /// Returns the settings of topics that bind producers.
    pub fn topics(&self) -> &Arc<TopicTable> {
        &self.topics
    }

    /// Returns the highest id of the queues of each topic with messages, in ascending order of the topics.
    pub fn highest_queue_ids(&self) -> BTreeMap<String, i32> {
        self.log.highest_queue_ids()
    }

    /// Returns the options, sizes filled in.
    pub fn config(&self) -> &StoreConfig {
        self.reader.config()
    }

    /// Returns true if every message whose append has returned is in its queue and in the index, up to the readable end. Costs four loads.
    pub fn is_caught_up(&self) -> bool {
        self.is_readable() && self.barrier.is_open()
    }

    /// Returns true if everything appended so far is in the log, and the transient store pool is empty.
    pub fn is_committed(&self) -> bool {
        self.log.uncommitted() == 0
    }

    /// Returns the end of the log in its files.
    pub fn committed_offset(&self) -> i64 {
        self.log.watermarks.committed.get()
    }

    /// Returns the watermark of [`committed_offset`](Self::committed_offset). Poisoned once the store is closed.
    pub(crate) fn committed(&self) -> &Watermark {
        &self.log.watermarks.committed
    }

    /// Returns the slaves of the store.
    #[inline]
    pub fn replicas(&self) -> &Arc<Replicas> {
        &self.replicas
    }

    /// Returns the time of the clock, in ms.
    pub(crate) fn now_ms(&self) -> i64 {
        self.env.now_ms()
    }

    /// Returns true if no commit would make more of what was appended readable: with `ASYNC_FLUSH` everything is committed; with
    /// `SYNC_FLUSH` only a sync makes messages readable.
    pub fn is_readable(&self) -> bool {
        self.config().flush_disk_type.shows_only_flushed() || self.is_committed()
    }

    /// Waits before a read of the log until [`MessageStore::is_readable`], for `patience` at most, and says whether it is.
    ///
    /// # Errors
    /// Those of [`crate::interrupt::check`].
    pub fn make_readable(&self, patience: Duration) -> Result<bool> {
        Ok(self.is_readable() || self.log.commit_within(patience)?)
    }

    /// Writes everything appended so far to the log.
    ///
    /// # Errors
    /// A [shortage](Error::is_shortage): it may be tried again. [`Error::Poisoned`].
    pub fn commit(&self) -> Result<()> {
        self.log.commit()
    }

    /// Returns the reason why the transient store pool is not locked in memory, if it is not.
    pub fn lock_refusal(&self) -> Option<&io::Error> {
        self.log.lock_refusal()
    }

    /// Prepares a read: calls [`MessageStore::make_readable`], waits until every readable message is in its queue and in the
    /// index, and returns true if they are. It does not wait for a dispatcher that is blocked, or that makes no progress for
    /// `patience`.
    ///
    /// # Errors
    /// Those of [`crate::interrupt::check`].
    pub fn catch_up(&self, patience: Duration) -> Result<bool> {
        let is_readable = self.make_readable(patience)?;
        let help = |target| self.services.help(&self.dispatched, target);
        Ok(self.barrier.wait(patience, help)? && is_readable)
    }

    /// Waits until the log can be read past `end`, and what may be read is in its queue, for `patience` at most. `false` if
    /// nothing has come, and `None` if nothing will: the store was closed.
    ///
    /// # Errors
    /// [`Error::Poisoned`], those of [`crate::interrupt::check`].
    pub fn wait_past(&self, end: i64, patience: Duration) -> Result<Option<bool>> {
        let deadline = Instant::now() + patience;
        loop {
            self.catch_up(interrupt::INTERVAL)?;
            let left = deadline.saturating_duration_since(Instant::now());
            if self.log.watermarks.readable.get() > end || left.is_zero() {
                return Ok(Some(self.log.watermarks.readable.get() > end));
            }
            match self
                .awaited_by_reads()
                .wait(end + 1, Some(Instant::now() + left.min(interrupt::INTERVAL)))
            {
                Wait::Poisoned(Error::Closed) => return Ok(None),
                Wait::Poisoned(cause) => return Err(Error::poisoned(cause, self.flushed_offset())),
                Wait::Reached | Wait::TimedOut => interrupt::check_after_wait()?,
            }
        }
    }

    /// Returns true once [`wait_past`](Self::wait_past) may return: messages past `end`, which it may make readable first, or
    /// the end of the store.
    pub fn may_go_past(&self, end: i64) -> bool {
        let awaited = self.awaited_by_reads();
        awaited.get() > end || awaited.poisoned().is_some()
    }

    /// Returns the watermark for which a read waits. With `ASYNC_FLUSH` a read commits what was appended. With `SYNC_FLUSH` a sync makes
    /// it readable.
    fn awaited_by_reads(&self) -> &Watermark {
        match self.config().flush_disk_type {
            FlushDiskType::Async => &self.log.watermarks.appended,
            FlushDiskType::Sync => &self.log.watermarks.readable,
        }
    }

    /// Flushes what is appended before `end` if readers see only what is flushed (`SYNC_FLUSH`).
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn show(&self, end: i64) -> Result<()> {
        let is_hidden =
            self.config().flush_disk_type.shows_only_flushed() && self.flushed_offset() < end.min(self.appended_offset());
        if is_hidden { self.flush().map(drop) } else { Ok(()) }
    }

    /// Makes everything appended durable, and returns the durable end of the log.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn flush(&self) -> Result<i64> {
        self.log.flush()
    }

    /// Returns the physical offset up to which the log is durable.
    pub fn flushed_offset(&self) -> i64 {
        self.log.watermarks.flushed.get()
    }

    /// Returns the physical offset up to which messages are in their queues and in the index.
    pub fn dispatched_offset(&self) -> i64 {
        self.dispatched.get()
    }

    /// Returns the watermark that rises to the end of each delayed message and timer message of this open, once it is in its queue.
    pub(crate) fn scheduled(&self) -> &Arc<Watermark> {
        &self.scheduled
    }

    /// Returns true if a delayed message or a timer message was appended since the open, or is about to be.
    pub fn has_delayed(&self) -> bool {
        self.checker.has_delayed()
    }

    /// Returns the physical offset from which on every record was of this crate when the store was opened. `None` if a broker has
    /// started since the last writer of this crate.
    pub(crate) fn was_own_from(&self) -> Option<i64> {
        self.was_own_from
    }

    /// Returns the physical offset from which on the log of a slave was received from a master; `None` for a log that is appended to.
    #[inline]
    pub(crate) fn received_from(&self) -> Option<i64> {
        self.received_from
    }

    /// Returns the log, to append what a master has sent.
    pub(crate) fn received_log(&self) -> &CommitLog {
        &self.log
    }

    /// Refuses a physical offset at which nothing is appended: a wait for it may never end.
    ///
    /// # Errors
    /// [`Error::Invalid`]; [`Error::Poisoned`], [`Error::Closed`] if nothing will ever be appended there.
    pub fn expect_appended(&self, physical_offset: i64) -> Result<()> {
        let end = self.log.watermarks.appended.get();
        if (0..end).contains(&physical_offset) {
            return Ok(());
        }
        if let Some(cause) = self.log.watermarks.appended.poisoned() {
            return Err(Error::poisoned(cause, self.flushed_offset()));
        }
        Err(Error::Invalid {
            what: format!(
                "offset is {physical_offset}: nothing was appended there, the log ends at {end}; leave it out to wait for all"
            ),
        })
    }

    /// Returns the store time of the last message in ms, 0 if there is none.
    pub(crate) fn last_store_time(&self) -> i64 {
        self.log.last_store_time()
    }

    /// Returns the physical offset up to which messages are appended.
    pub fn appended_offset(&self) -> i64 {
        self.log.watermarks.appended.get()
    }

    /// Waits until the record at this physical offset is appended and durable; once it is appended it is synced at once, together with
    /// what else is there.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Poisoned`], [`Error::Closed`].
    pub fn wait_durable(&self, physical_offset: i64, deadline: Option<Instant>) -> Result<()> {
        let next = physical_offset.saturating_add(1);
        self.outcome(self.log.watermarks.appended.wait(next, deadline), "appended", physical_offset)?;
        self.ask_durable(physical_offset);
        self.outcome(self.log.watermarks.flushed.wait(next, deadline), "durable", physical_offset)
    }

    /// Asks for the record at this physical offset, which was appended, to be synced at once.
    pub fn ask_durable(&self, physical_offset: i64) {
        self.flush_wanted.advance(physical_offset.saturating_add(1));
    }

    /// Waits until the record at this physical offset is in its queue and in the index.
    ///
    /// # Errors
    /// As [`MessageStore::wait_durable`]; without threads also those of [`MessageStore::commit`].
    pub fn wait_dispatched(&self, physical_offset: i64, deadline: Option<Instant>) -> Result<()> {
        let next = physical_offset.saturating_add(1);
        self.log.ask_commit()?;
        // Only what is readable is dispatched.
        if self.log.watermarks.readable.get() < next && next <= self.log.watermarks.appended.get() {
            self.ask_durable(physical_offset);
        }
        self.services.help(&self.dispatched, next)?;
        let wait = self.dispatched.wait(next, deadline);
        self.outcome(wait, "dispatched", physical_offset)
    }

    fn outcome(&self, wait: Wait, what: &str, physical_offset: i64) -> Result<()> {
        match wait {
            Wait::Reached => Ok(()),
            Wait::TimedOut => Err(Error::TimedOut {
                what: format!("the log is not {what} up to physical offset {physical_offset} yet"),
            }),
            Wait::Poisoned(cause) => Err(Error::poisoned(cause, self.flushed_offset())),
        }
    }

    /// Closes the store: dispatches what is left, makes everything durable, stamps the checkpoint, and then removes the abort file.
    /// A second call does nothing, except after a [shortage](Error::is_shortage): then it tries again.
    ///
    /// # Errors
    /// What failed: the abort file then stays, and the next open knows.
    pub fn close(&self) -> Result<()> {
        // Held to the end: whoever closes at the same time returns when the store is closed.
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(threads) = running.as_mut().map(|running| std::mem::take(&mut running.threads)) else {
            return Ok(());
        };
        let outcome = without_panic("close", || self.finish(threads));
        // Waits for a caller that is making a segment. It must not rename that segment into the log after the next writer has taken the
        // lock.
        self.log.end_allocation();
        let cause = match &outcome {
            Err(cause) if !cause.is_shortage() => cause.clone(),
            _ => Error::Closed,
        };
        for watermark in [&self.log.watermarks.committed, &self.log.watermarks.flushed, &self.dispatched] {
            watermark.poison(cause.clone());
        }
        if !outcome.as_ref().is_err_and(Error::is_shortage) {
            *running = None;
        }
        self.replicas.close();
        outcome
    }

    /// Ends the store in this order: each step relies on those before it.
    fn finish(&self, threads: Vec<JoinHandle<()>>) -> Result<()> {
        self.log.stop(Error::Closed);
        self.flush_wanted.poison(Error::Closed);
        self.services.end_requests();
        // First, so that a failure of queues or index costs no message. It also ends the dispatcher, where that waits for a sync.
        let flushed = self.log.flush_rest();
        for thread in threads {
            // A service that panicked has poisoned its watermarks.
            let _ = thread.join();
        }
        for watermark in [&self.log.watermarks.appended, &self.log.watermarks.flushed, &self.dispatched] {
            match watermark.poisoned() {
                None | Some(Error::Closed) => {}
                Some(cause) => return Err(Error::poisoned(cause, self.flushed_offset())),
            }
        }
        // With `SYNC_FLUSH` *readable* is *flushed*: `flush_rest` has poisoned it as closed, and the first cause stays. A failure
        // after that, such as that of a segment that was being made, is only in the log.
        if let Some(cause) = self.log.failure() {
            return Err(Error::poisoned(cause, self.flushed_offset()));
        }
        flushed?;
        self.services.drain()?;
        self.log.remove_unused()?;
        self.services.stamp()?;
        remove_abort(self.env.as_ref(), &self.path)
    }

    /// Stamps the checkpoint for what is dispatched.
    pub(super) fn stamp(&self) -> Result<()> {
        self.services.stamp()
    }

    /// Syncs the queue files, and returns the physical offset before which each message has its queue entry on disk.
    pub(super) fn sync_queues(&self) -> Result<i64> {
        self.services.sync_queues()
    }

    /// Returns a handle to its durable end, which outlives the store.
    pub fn flushed(&self) -> Flushed {
        Flushed {
            end: self.log.watermarks.flushed.clone(),
            replicas: self.replicas.clone(),
            timeout: Duration::from_millis(self.config().sync_flush_timeout),
        }
    }

    /// Takes the times for which slow appends held the append lock (more than 500 ms) since the last call. Costs two loads if no append was
    /// slow.
    pub fn take_slow_puts(&self) -> Vec<Duration> {
        self.log.take_slow_puts()
    }

    /// Returns the statistics since the store was opened for writing.
    pub fn stats(&self) -> StoreStats {
        // In this order, so that the difference is not below zero.
        let dispatched = self.dispatched_offset();
        StoreStats {
            log: self.log.stats(),
            dispatch_behind_bytes: u64::try_from(self.appended_offset() - dispatched).unwrap_or(0),
            mapping_faults: guard_faults() - self.faults_before,
        }
    }
}

/// The durable end of the log of a store. It does not keep the store open, and can be asked after the close.
#[derive(Debug, Clone)]
pub struct Flushed {
    end: Arc<Watermark>,
    replicas: Arc<Replicas>,
    /// `sync_flush_timeout`.
    timeout: Duration,
}

impl Flushed {
    /// Returns the physical offset below which the log is durable.
    pub fn offset(&self) -> i64 {
        self.end.get()
    }

    /// Waits until the message at this physical offset, which was appended, is durable, or until the deadline. Returns the durable end of
    /// the log then. Asks for no sync.
    ///
    /// # Errors
    /// [`Error::NotDurable`].
    pub fn wait(&self, physical_offset: i64, deadline: Option<Instant>) -> Result<i64> {
        match self.end.wait(physical_offset.saturating_add(1), deadline) {
            Wait::Reached | Wait::TimedOut => Ok(self.offset()),
            Wait::Poisoned(cause) => Err(Error::not_durable(physical_offset, cause, self.offset())),
        }
    }

    /// Waits for slaves, and with `disk` until the message is durable, as an append does that waits itself. Returns the result of the
    /// append with its status. `deadline` is that of the disk.
    ///
    /// # Errors
    /// [`Error::NotDurable`]; those of [`interrupt::check`].
    pub fn wait_for_copies(&self, mut result: AppendResult, deadline: Instant, disk: bool) -> Result<AppendResult> {
        let offset = result.appended.physical_offset;
        if disk && self.wait(offset, Some(deadline))? <= offset {
            result.status = PutStatus::FlushDiskTimeout;
        }
        // `deadline` is one timeout after the append began.
        let begun = deadline.checked_sub(self.timeout).unwrap_or(deadline);
        result.status = result.status.with_slaves(self.replicas.wait(result.appended, begun)?);
        Ok(result)
    }
}

/// The statistics of a store since it was opened for writing: the puts of `RocketMQ`'s `StoreStatsService`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StoreStats {
    /// Statistics of its log.
    pub log: LogStats,
    /// Bytes of the log that are not in queues and index yet.
    pub dispatch_behind_bytes: u64,
    /// Faults in mapped files, of any store of this process: a page could not be read or written.
    pub mapping_faults: u64,
}

fn make_pool(config: &StoreConfig) -> Result<Option<TransientStorePool>> {
    if !config.uses_pool() {
        return Ok(None);
    }
    let (count, size) = (config.transient_store_pool_size, config.transient_store_pool_buffer_size);
    let pool = TransientStorePool::new(count, size);
    let mut pool = pool.map_err(|error| Error::io("make", "the transient store pool", error))?;
    if config.transient_store_pool_enable {
        pool.lock();
    }
    Ok(Some(pool))
}

impl fmt::Debug for MessageStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageStore")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Drop for MessageStore {
    fn drop(&mut self) {
        // A child of fork has neither the threads nor the pool.
        if self.opened_in == Generation::current() {
            // No caller is left to get the error. The abort file stays, so the next open recovers the store.
            let _ = self.close();
        }
    }
}
