//! Appending to the commit log: one lock, one copy. Checks, checksum, property bytes and header are computed before the lock. Under
//! the lock a message gets its queue offset, physical offset and store time, and is copied into the mapped segment or into the
//! transient store pool.
//!
//! [`LogFiles::truncate`] is the only constructor of an appendable log (typestate). It first removes everything past the end of the
//! log, durably: a stale record there would look like the next one.
//!
//! Three states end a log. Each one also excludes everything that the previous one excludes:
//!
//! ```text
//!   open ---- stop ----------------> stopped   no append; a flush makes the rest durable and acknowledges it
//!     |                                 |
//!     |------ refuse --------------> refused   no acknowledgement; flush_rest makes the rest durable
//!     |       queues or index failed    |
//!     |                                 |
//!     `------ poison, write_failed -> broken   no byte is made durable
//!             a write or sync of the log failed
//! ```

use std::collections::BTreeMap;
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::config::{FlushDiskType, PAGE_SIZE, StoreConfig};
use crate::error::{Error, Result};
use crate::format::{BLANK_SIZE, EncodedMessage, fits};
use crate::interrupt;
use crate::log::commit_log::allocate::{CreateError, SegmentAllocator};
use crate::log::commit_log::append_state::{AppendState, Appended, Batch, Blocked, LogEnd, PoolWait, Prepared, QueueSlot};
use crate::log::commit_log::commit::Committer;
use crate::log::commit_log::flush::{GroupCommitDelay, UnsyncedSegments};
use crate::log::commit_log::log_files::LogFiles;
use crate::log::commit_log::stats::{LockTime, LogStats, SyncCounts};
use crate::log::commit_log::watermarks::{Watermarks, WriteMode};
use crate::log::flushed_mark_file::FlushedMarkFile;
use crate::storage::{AppendFile, Env, TransientStorePool, WarmUp};
use crate::sync::{lock, try_lock};
use crate::watermark::{Leading, Wait, Watermark};

/// The end of the log, for one writing process.
#[derive(Debug)]
pub struct CommitLog {
    env: Arc<dyn Env>,
    files: Arc<LogFiles>,
    state: Mutex<AppendState>,
    /// Creates segments. The creating thread takes `state` only to read the end and to hand the segment over.
    allocator: SegmentAllocator,
    lock_time: LockTime,
    sync_counts: SyncCounts,
    /// Held by the one thread that syncs the log.
    flushing: Mutex<GroupCommitDelay>,
    unsynced: UnsyncedSegments,
    committer: Committer,
    /// The watermarks of the log.
    pub watermarks: Watermarks,
    /// `None` until recovery sets it.
    mark: Option<FlushedMarkFile>,
}

/// A reservation to write one range. With the guard, the range is written through the mapping of the segment, bypassing the pool.
type Reserved<'a> = Option<MutexGuard<'a, ()>>;

/// The end states of a log; see the state diagram at the top.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Stopped,
    Refused,
    Broken,
}

impl CommitLog {
    /// Creates a log that appends at the end of `files`, which lies in `current` unless the next segment has to be created. See
    /// [`LogFiles::truncate`].
    pub(super) fn new(
        env: Arc<dyn Env>,
        files: Arc<LogFiles>,
        segment_size: u64,
        current: Option<AppendFile>,
        end: LogEnd,
    ) -> Self {
        let current = current.map(Arc::new);
        let watermarks = Watermarks::new(end.at, WriteMode::Mapped);
        Self {
            allocator: SegmentAllocator::new(env.clone(), files.dir().to_owned(), segment_size),
            env,
            files,
            lock_time: LockTime::default(),
            sync_counts: SyncCounts::default(),
            flushing: Mutex::default(),
            unsynced: UnsyncedSegments::new(current.clone()),
            state: Mutex::new(AppendState::new(end, current)),
            committer: Committer::new(None, watermarks.clone()),
            watermarks,
            mark: None,
        }
    }

    /// Writes `mark` after each sync from now on.
    pub(crate) fn keep_mark(&mut self, mark: FlushedMarkFile) {
        self.mark = Some(mark);
    }

    /// Sets the write mode of the options, before the first append. Appended bytes go through `pool`, if there is one.
    #[must_use]
    pub fn with_mode(mut self, config: &StoreConfig, pool: Option<TransientStorePool>) -> Self {
        let callers_wait = config.flush_disk_type.waits_for_sync();
        // With a pool no append writes to the pages of a segment, so warm pages are useless. If callers wait for syncs, warmed
        // blocks are useful: they were written and synced, and the sync of a record in them takes less time.
        if config.warm_mapped_file_enable && (callers_wait || pool.is_none()) {
            let pages = config.flush_least_pages_when_warm_mapped_file;
            self.allocator.warm(WarmUp {
                synced_every: callers_wait.then(|| pages.saturating_mul(PAGE_SIZE)),
            });
        }
        let pool = pool.map(Arc::new);
        if let (Some(pool), Some(current)) = (&pool, &lock(&self.state).current) {
            current.use_pool(pool.clone());
        }
        let mode = match config.flush_disk_type {
            FlushDiskType::Sync => WriteMode::Sync,
            FlushDiskType::Async if pool.is_some() => WriteMode::Pool,
            FlushDiskType::Async => WriteMode::Mapped,
        };
        self.watermarks = Watermarks::new(self.watermarks.appended.get(), mode);
        self.committer = Committer::new(pool, self.watermarks.clone());
        self.unsynced.write_ahead(callers_wait);
        self
    }

    /// Returns the files, for reading.
    pub fn files(&self) -> &LogFiles {
        &self.files
    }

    /// Returns the size of a segment.
    pub fn segment_size(&self) -> u64 {
        self.allocator.segment_size()
    }

    /// Returns the largest size of a record.
    pub fn max_record_size(&self) -> u64 {
        self.segment_size() - BLANK_SIZE as u64
    }

    /// Returns the store time of the last message; 0 without messages.
    pub fn last_store_time(&self) -> i64 {
        lock(&self.state).last_store_time
    }

    /// Gives every later message a store time after `store_time`, up to which the checkpoint will cover messages.
    pub fn close_store_time(&self, store_time: i64) {
        let mut state = lock(&self.state);
        state.covered_time = state.covered_time.max(store_time);
        let end = state.end as i64;
        drop(state);
        // A message with an older time is flushed with the rest, although its append may not have returned yet.
        self.watermarks.appended.advance(end);
    }

    /// Returns the slot of a queue, for [`CommitLog::append`]. A queue without messages gets one, too.
    pub fn queue_slot(&self, topic: &str, queue_id: i32) -> QueueSlot {
        lock(&self.state).slot(topic, queue_id)
    }

    /// Appends a message without waiting. Returns `None`, and does nothing, if it would have to wait for a segment, for a buffer,
    /// or for another thread.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`].
    pub fn try_append(&self, message: &EncodedMessage<'_>, prepared: Option<Prepared>) -> Result<Option<Appended>> {
        let (mut done, wait, batch) = (None, PoolWait::default(), Batch::of_one(message, prepared));
        if let Some(state) = try_lock(&self.state) {
            self.with_locked(state, prepared.map(|prepared| prepared.called_at), |state, now| {
                self.put(state, now, batch, &wait, |appended| done = Some(appended))
            })?;
        }
        Ok(done)
    }

    /// Appends a message. What is not `prepared`, its queue and the time, is looked up.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`], [`Error::PoolFull`]: the next segment cannot be created now, or no buffer became free,
    /// and nothing is stored. [`Error::Poisoned`], [`Error::Closed`].
    #[inline]
    pub fn append(&self, message: &EncodedMessage<'_>, prepared: Option<Prepared>) -> Result<Appended> {
        let (mut done, mut wait, batch) = (None, PoolWait::default(), Batch::of_one(message, prepared));
        let mut called_at = prepared.map(|prepared| prepared.called_at);
        loop {
            let blocked = self.with_state(called_at.take(), |state, now| {
                self.put(state, now, batch, &wait, |appended| done = Some(appended))
            })?;
            if let Some(appended) = done {
                return Ok(appended);
            }
            self.wait_for_blocked(blocked, &mut wait)?;
        }
    }

    /// Appends messages in order, holding the lock for as many as fit into the segment. If they `are_dated`, each keeps its own
    /// store time, unless that is earlier than the last. Appended messages are added to `done`, also after an error.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`], [`Error::PoolFull`]: those in `done` are stored, the others not. [`Error::Poisoned`],
    /// [`Error::Closed`].
    pub fn append_all(&self, messages: &[EncodedMessage<'_>], are_dated: bool, done: &mut Vec<Appended>) -> Result<()> {
        let (mut waiting, mut wait) = (messages, PoolWait::default());
        while !waiting.is_empty() {
            let before = done.len();
            let blocked = self.with_state(None, |state, now| {
                for message in waiting {
                    let time = if are_dated { message.stated_store_time() } else { now };
                    let batch = Batch::of_one(message, None);
                    let blocked = self.put(state, time, batch, &wait, |appended| done.push(appended))?;
                    if blocked.is_some() {
                        return Ok(blocked);
                    }
                }
                Ok(None)
            })?;
            let appended = done.len() - before;
            if appended > 0 {
                wait = PoolWait::default();
            }
            waiting = waiting.get(appended..).unwrap_or_default();
            self.wait_for_blocked(blocked, &mut wait)?;
        }
        Ok(())
    }

    /// Appends all messages consecutively in one segment, in one hold of the lock, or none of them.
    ///
    /// # Errors
    /// Those of [`CommitLog::append`].
    pub fn append_together(&self, messages: &[EncodedMessage<'_>]) -> Result<Vec<Appended>> {
        let (mut done, mut wait, batch) = (Vec::with_capacity(messages.len()), PoolWait::default(), Batch::of(messages));
        while done.is_empty() && !messages.is_empty() {
            let blocked = self.with_state(None, |state, now| {
                self.put(state, now, batch, &wait, |appended| done.push(appended))
            })?;
            self.wait_for_blocked(blocked, &mut wait)?;
        }
        Ok(done)
    }

    /// Waits for the reason that blocked an append, outside the lock. Without a committing thread, the caller commits.
    ///
    /// # Errors
    /// Those of [`CommitLog::append`], and of [`interrupt::check`].
    pub(super) fn wait_for_blocked(&self, blocked: Option<Blocked>, wait: &mut PoolWait) -> Result<()> {
        match (blocked, self.allocator.patience()) {
            (None, _) => Ok(()),
            (Some(Blocked::Segment(len)), _) => self.get_next_segment(len),
            (Some(Blocked::Commit(offset)), Some(patience)) => self.committer.wait_for_space(offset, wait, patience),
            (Some(Blocked::Commit(_)), None) => {
                self.committer.start_wait(wait, Duration::ZERO);
                self.commit()
            }
        }
    }

    /// Calls `work` with the state and the time, under the append lock, and then raises *appended*. The time is that of the call, unless it
    /// is unknown or this thread has to wait for the lock.
    #[inline]
    pub(super) fn with_state(
        &self,
        called_at: Option<i64>,
        work: impl FnOnce(&mut AppendState, i64) -> Result<Option<Blocked>>,
    ) -> Result<Option<Blocked>> {
        let (state, now) = try_lock(&self.state).map_or_else(|| (lock(&self.state), None), |state| (state, called_at));
        self.with_locked(state, now, work)
    }

    #[inline]
    fn with_locked(
        &self,
        mut state: MutexGuard<'_, AppendState>,
        now: Option<i64>,
        work: impl FnOnce(&mut AppendState, i64) -> Result<Option<Blocked>>,
    ) -> Result<Option<Blocked>> {
        if let Some(cause) = &state.stopped {
            return Err(self.watermarks.poisoned(cause.clone()));
        }
        let hold = self.lock_time.begin(self.env.as_ref());
        let blocked = work(&mut state, now.unwrap_or_else(|| self.env.now_ms()));
        let end = state.end as i64;
        let requests_next = matches!(blocked, Ok(None)) && state.requests_next();
        drop(hold);
        drop(state);
        // After the lock, so that a thread woken here does not wait for it. Of two concurrent raises the higher one counts.
        self.watermarks.appended.advance(end);
        self.committer.request_large_commit(end);
        if requests_next {
            self.allocator.ask();
        }
        blocked
    }

    /// Appends messages to one segment, and passes the result of each to `done`. Returns the reason to wait if nothing was written.
    #[inline]
    fn put(
        &self,
        state: &mut AppendState,
        now: i64,
        batch: Batch<'_, '_>,
        wait: &PoolWait,
        done: impl FnMut(Appended),
    ) -> Result<Option<Blocked>> {
        match self.reserve(state, batch.len(), wait)? {
            ControlFlow::Break(blocked) => Ok(Some(blocked)),
            ControlFlow::Continue(reserved) => self.write(state, now, batch, &reserved, done).map(|()| None),
        }
    }

    /// Reserves space for `len` bytes in one segment and in the pool. Rolls to the next segment if they do not fit.
    #[inline]
    fn reserve(&self, state: &mut AppendState, len: u64, wait: &PoolWait) -> Result<ControlFlow<Blocked, Reserved<'_>>> {
        if !fits(len, state.remaining()) {
            if state.next.is_none() {
                return Ok(ControlFlow::Break(Blocked::Segment(len)));
            }
            if let Some(offset) = self.committer.must_be_committed(state, BLANK_SIZE as u64, wait) {
                return Ok(ControlFlow::Break(Blocked::Commit(offset)));
            }
            self.roll(state)?;
        }
        if let Some(offset) = self.committer.must_be_committed(state, len, wait) {
            return Ok(ControlFlow::Break(Blocked::Commit(offset)));
        }
        match self.committer.pass_pool(&self.unsynced, state, len) {
            Ok(reserved) => Ok(ControlFlow::Continue(reserved)),
            Err(cause) if cause.is_shortage() => Err(cause),
            Err(cause) => Err(self.write_failed(state, cause)),
        }
    }

    /// Writes messages into the reserved range.
    #[inline]
    fn write(
        &self,
        state: &mut AppendState,
        now: i64,
        batch: Batch<'_, '_>,
        reserved: &Reserved<'_>,
        done: impl FnMut(Appended),
    ) -> Result<()> {
        let passes_pool = reserved.is_some();
        let written = state.write(now, batch, passes_pool, done);
        written.map_err(|at| self.page_failed(state, at))?;
        if passes_pool {
            self.watermarks.appended.advance(state.end as i64);
            self.watermarks.committed.advance(state.end as i64);
        }
        Ok(())
    }

    /// Ends appending, for the close of the store. Returns the error that every later caller gets.
    pub fn stop(&self, cause: Error) -> Error {
        self.end(&mut lock(&self.state), Ending::Stopped, cause)
    }

    /// Ends appending and acknowledging, after a failure outside the log. [`CommitLog::flush_rest`] can still make the rest
    /// durable.
    pub fn refuse(&self, cause: Error) -> Error {
        self.end(&mut lock(&self.state), Ending::Refused, cause)
    }

    /// Ends appending and syncing, after a failure of the log.
    pub fn poison(&self, cause: Error) -> Error {
        // A failure that follows from another one proves nothing about the log itself.
        let ending = if matches!(cause, Error::Poisoned { .. }) {
            Ending::Refused
        } else {
            Ending::Broken
        };
        self.end(&mut lock(&self.state), ending, cause)
    }

    /// Moves the log to an end state. The first cause stays. The caller holds the append lock, so that a caller whose append was
    /// refused finds that a flush is refused, too.
    fn end(&self, state: &mut AppendState, ending: Ending, cause: Error) -> Error {
        if ending == Ending::Broken {
            self.unsynced.fail(&cause);
        }
        let first = state.stopped.get_or_insert_with(|| cause.clone()).clone();
        // A close is not a failure.
        let failure = if matches!(first, Error::Closed) {
            cause
        } else {
            first.clone()
        };
        let watermarks = &self.watermarks;
        // Raised before the poison, so that a thread that follows the log sees all of it.
        watermarks.appended.advance(state.end as i64);
        if ending != Ending::Stopped {
            watermarks.flushed.poison(failure.clone());
            for watermark in [&watermarks.committed, &watermarks.readable] {
                watermark.poison(first.clone());
            }
        }
        self.allocator.end(&first);
        self.committer.wanted().poison(first.clone());
        watermarks.appended.poison(first);
        failure
    }

    /// Calls [`CommitLog::poison`], and returns the error of the caller.
    fn fail(&self, cause: Error) -> Error {
        let failure = self.poison(cause);
        self.watermarks.poisoned(failure)
    }

    /// Breaks the log after a failed write to a page. The caller holds the append lock.
    pub(super) fn page_failed(&self, state: &mut AppendState, at: usize) -> Error {
        let path = state.current.as_ref().map(|file| file.path().to_owned()).unwrap_or_default();
        let cause = Error::corrupt(
            path,
            at as u64,
            "the device failed under this page while a message was written",
        );
        self.write_failed(state, cause)
    }

    /// Breaks the log after a failed write. The caller holds the append lock.
    fn write_failed(&self, state: &mut AppendState, cause: Error) -> Error {
        let failure = self.end(state, Ending::Broken, cause);
        self.watermarks.poisoned(failure)
    }

    /// Commits everything appended so far. One thread commits at a time.
    ///
    /// # Errors
    /// A [shortage](Error::is_shortage): the caller may retry. [`Error::Poisoned`]: a write failed, now or before.
    pub fn commit(&self) -> Result<()> {
        let committed = self.committer.commit(&self.unsynced);
        committed.map_err(|cause| if cause.is_shortage() { cause } else { self.fail(cause) })
    }

    /// Requests a commit of everything appended so far. Without a committing thread, the caller commits.
    ///
    /// # Errors
    /// Those of [`CommitLog::commit`], if the caller commits.
    pub fn ask_commit(&self) -> Result<()> {
        if self.allocator.patience().is_none() {
            return self.commit();
        }
        self.committer.wanted().advance(self.watermarks.appended.get());
        Ok(())
    }

    /// Waits until everything appended so far is committed, for at most `patience`. Returns true if it is.
    ///
    /// # Errors
    /// Those of [`interrupt::check`].
    pub fn commit_within(&self, patience: Duration) -> Result<bool> {
        let end = self.watermarks.appended.get();
        if self.watermarks.committed.get() >= end {
            return Ok(true);
        }
        // A failed commit is an error of the writers, not of this reader.
        let is_asked = self.ask_commit().is_ok();
        Ok(is_asked && matches!(self.committer.wait(end, Instant::now() + patience)?, Wait::Reached))
    }

    /// Returns the watermark of the offset up to which a commit is requested. It is never past the end of the log.
    pub fn commit_wanted(&self) -> &Arc<Watermark> {
        self.committer.wanted()
    }

    /// Returns the number of pending bytes in the pool.
    pub fn uncommitted(&self) -> u64 {
        // Read in this order, so that the difference is never negative.
        let committed = self.watermarks.committed.get();
        (self.watermarks.appended.get() - committed).unsigned_abs()
    }

    /// Returns the reason why the pool could not be locked in memory, if it could not.
    pub fn lock_refusal(&self) -> Option<&io::Error> {
        self.committer.lock_refusal()
    }

    /// Syncs everything appended so far, and returns the offset up to which the log is durable. One thread syncs at a time. Threads
    /// that wait for it share the next sync, which covers everything appended before it begins.
    ///
    /// # Errors
    /// A [shortage](Error::is_shortage): the caller may retry. [`Error::Poisoned`]: a part of the store failed, now or before; a
    /// failed sync is never retried.
    pub fn flush(&self) -> Result<i64> {
        let wanted = self.watermarks.appended.get();
        match self.watermarks.flushed.poisoned() {
            // A store that is being closed is still flushed.
            None | Some(Error::Closed) => {}
            Some(cause) => return Err(self.watermarks.poisoned(cause)),
        }
        loop {
            match self.watermarks.flushed.wait_or_lead(wanted, None) {
                Ok(leading) => self.sync_group(leading)?,
                Err(Wait::Reached) => return Ok(self.watermarks.flushed.get()),
                Err(Wait::Poisoned(Error::Closed)) => return self.flush_appended(),
                Err(Wait::Poisoned(cause)) => return Err(self.watermarks.poisoned(cause)),
                Err(Wait::TimedOut) => {}
            }
        }
    }

    /// Flushes everything appended, also after a failure outside the log: for the close of the store, after [`CommitLog::stop`]. No
    /// later byte becomes readable.
    ///
    /// # Errors
    /// [`Error::Poisoned`]: a write or sync of the log failed, now or before.
    pub fn flush_rest(&self) -> Result<i64> {
        let flushed = self.flush_appended();
        if let Some(cause) = self.watermarks.appended.poisoned() {
            for watermark in [&self.watermarks.committed, &self.watermarks.readable] {
                watermark.poison(cause.clone());
            }
        }
        flushed
    }

    /// Stores the flushed offset in the mark, durably.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`].
    pub fn sync_mark(&self) -> Result<()> {
        let flushed = self.watermarks.flushed.get();
        self.mark.as_ref().map_or(Ok(()), |mark| mark.write_durably(flushed))
    }

    /// Returns the number of pages started since the last sync, as `RocketMQ` counts them.
    pub fn unflushed_pages(&self) -> u64 {
        (self.watermarks.committed.get() as u64 / PAGE_SIZE).saturating_sub(self.watermarks.flushed.get() as u64 / PAGE_SIZE)
    }

    fn flush_appended(&self) -> Result<i64> {
        let wanted = self.watermarks.appended.get();
        if self.watermarks.flushed.get() < wanted {
            let _one_at_a_time = lock(&self.flushing);
            if self.watermarks.flushed.get() < wanted {
                let flushed = self.sync()?;
                self.watermarks.flushed.advance(flushed);
            }
        }
        Ok(self.watermarks.flushed.get())
    }

    /// Waits until every byte before `end` is durable, or until the deadline (group commit). The waiting threads sync themselves,
    /// one for all. Only the syncing thread may return after the deadline, because it knows the outcome.
    ///
    /// # Errors
    /// A [shortage](Error::is_shortage): nothing was synced. Those of [`interrupt::check`].
    pub fn wait_flushed(&self, end: i64, deadline: Instant) -> Result<Wait> {
        loop {
            let slice = deadline.min(Instant::now() + interrupt::INTERVAL);
            match self.watermarks.flushed.wait_or_lead(end, Some(slice)) {
                Ok(leading) => match self.sync_group(leading) {
                    Ok(()) => {
                        self.sync_counts.group_commits.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(cause) if cause.is_shortage() => return Err(cause),
                    Err(_) => {}
                },
                Err(Wait::TimedOut) if slice < deadline => interrupt::check_after_wait()?,
                Err(wait) => {
                    if matches!(wait, Wait::Reached) {
                        self.sync_counts.requests.fetch_add(1, Ordering::Relaxed);
                    }
                    return Ok(wait);
                }
            }
        }
    }

    /// Leads a group commit: syncs for all waiting threads.
    fn sync_group(&self, leading: Leading<'_>) -> Result<()> {
        let mut delay = lock(&self.flushing);
        let begun = Instant::now();
        let flushed = self.sync()?;
        delay.add(begun.elapsed());
        let longest = delay.longest();
        drop(delay);
        leading.finish(flushed, longest);
        Ok(())
    }

    /// Commits and syncs the log, and returns the offset up to which it is durable. The caller holds `flushing`.
    fn sync(&self) -> Result<i64> {
        if let Some(cause) = self.unsynced.failure() {
            return Err(self.watermarks.poisoned(cause.clone()));
        }
        self.commit()?;
        let (from, target) = (self.watermarks.flushed.get(), self.watermarks.committed.get());
        let synced = self.unsynced.sync(&(from as u64..target as u64));
        synced.map_err(|cause| self.fail(cause))?;
        // Written after the sync, so that the mark is never above the durable end, and before the acknowledgement, so that it
        // covers every acknowledged message.
        if let Some(mark) = &self.mark {
            mark.write(target);
        }
        self.sync_counts.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(target)
    }

    /// Declares that a thread calls [`CommitLog::create_requested_segment`] from now on. Appends wait for it for `patience`.
    pub fn serve_segments(&self, patience: Duration) {
        self.allocator.serve(patience);
    }

    /// Creates the next segment if it was requested, by the first message of the current one or by a message that does not fit.
    /// Threads that wait for the segment get the error if its creation fails.
    pub fn create_requested_segment(&self) {
        // No segment has space for this many bytes and the BLANK after them.
        self.allocator.answer(|| self.make_next_segment(self.segment_size()));
    }

    /// Returns the watermark of the requests, and the value at which [`CommitLog::create_requested_segment`] has work.
    pub fn segments_requested(&self) -> (Arc<Watermark>, i64) {
        self.allocator.awaited()
    }

    /// Fills the rest of the segment and moves to the next one, which exists.
    fn roll(&self, state: &mut AppendState) -> Result<()> {
        state.fill_rest().map_err(|at| self.page_failed(state, at))?;
        state.move_to_next();
        Ok(())
    }

    /// Creates the segment after the current one, or waits for the thread that creates it, outside the lock. Does nothing if `len`
    /// bytes fit by now.
    fn get_next_segment(&self, len: u64) -> Result<()> {
        let start = {
            let mut state = lock(&self.state);
            if state.stopped.is_some() || state.has_space(len) {
                return Ok(());
            }
            state.wait_for_next();
            state.next_start()
        };
        let Some(patience) = self.allocator.patience() else {
            return self.make_next_segment(len);
        };
        let answered = self.allocator.wait(self.allocator.ask(), patience, start);
        let state = lock(&self.state);
        // A later request may have been answered with a segment, and a stopped log has its own error.
        if state.stopped.is_some() || state.has_space(len) {
            return Ok(());
        }
        answered
    }

    /// Creates the segment after the current one, outside the lock, unless `len` bytes fit because another thread has created it.
    fn make_next_segment(&self, len: u64) -> Result<()> {
        let _one_at_a_time = self.allocator.lock();
        let start = {
            let state = lock(&self.state);
            if state.stopped.is_some() || state.has_space(len) {
                return Ok(());
            }
            state.next_start()
        };
        if self.unsynced.is_full() {
            self.flush()?;
        }
        let file = self.allocator.create(start).map_err(|error| match error {
            CreateError::Retryable(cause) => cause,
            CreateError::Uncertain(cause) => self.fail(cause),
        })?;
        if let Some(pool) = self.committer.pool() {
            file.use_pool(pool.clone());
        }
        self.unsynced.add(file.clone());
        self.files.add(start);
        lock(&self.state).next = Some(file);
        Ok(())
    }

    /// Waits until no segment is being created. After [`CommitLog::stop`] no thread starts another one, and the directory of the
    /// log does not change any more.
    pub fn end_allocation(&self) {
        drop(self.allocator.lock());
    }

    /// Removes the segment that was created ahead, once the log is stopped, and the unfinished file of a segment whose creation
    /// failed: a closed store has no segment past its end.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove_unused(&self) -> Result<()> {
        let _one_at_a_time = self.allocator.lock();
        let unused = lock(&self.state).next.clone();
        self.allocator.remove(unused.as_deref())?;
        lock(&self.state).next = None;
        Ok(())
    }

    /// Prefaults pages past the end of the log for writing, in the segments that exist. Returns the offset up to which it did.
    ///
    /// # Errors
    /// Those of [`Region::supply`](crate::storage::Region::supply). Writing works nevertheless.
    pub fn supply(&self, range: Range<u64>) -> io::Result<u64> {
        let files = {
            let state = lock(&self.state);
            [state.current.clone(), state.next.clone()]
        };
        let mut supplied = range.start;
        for file in files.iter().flatten() {
            if (file.start()..file.end()).contains(&supplied) {
                let end = range.end.min(file.end());
                file.supply(supplied..end)?;
                supplied = end;
            }
        }
        Ok(supplied)
    }

    /// Drops a flushed range of one segment from the page cache.
    ///
    /// # Errors
    /// Those of the system; the caller can ignore any.
    pub fn drop_cached(&self, range: Range<u64>) -> io::Result<()> {
        // The mappings for writing are released first.
        self.unsynced.release_pages(&range);
        self.files.drop_cached(range)
    }

    /// Refuses an append while another one holds the lock for more than `limit` ms. Does not wait for the lock.
    ///
    /// # Errors
    /// [`Error::Busy`].
    #[inline]
    pub fn expect_not_busy(&self, limit: u64) -> Result<()> {
        let busy = self.lock_time.busy(self.env.as_ref(), limit);
        busy.map_or(Ok(()), |held| Err(Error::Busy { held, limit }))
    }

    /// Returns the statistics since the log was opened for writing.
    pub fn stats(&self) -> LogStats {
        let counts = &self.sync_counts;
        let (topics, segments, pool) = {
            let state = lock(&self.state);
            (state.put_stats(), state.segments, self.committer.pool_stats(&state))
        };
        LogStats {
            topics: topics.into_iter().collect(),
            in_lock_time_max: self.lock_time.max(),
            slow_puts: self.lock_time.slow(),
            syncs: counts.syncs.load(Ordering::Relaxed),
            group_commits: counts.group_commits.load(Ordering::Relaxed),
            group_commit_requests: counts.requests.load(Ordering::Relaxed),
            segments,
            pool,
        }
    }

    /// Returns the highest id of the queues of each topic, in ascending order of the topics.
    pub fn highest_queue_ids(&self) -> BTreeMap<String, i32> {
        lock(&self.state).highest_queue_ids().collect()
    }

    /// Returns the failed write or sync of the log, or of the name of a segment, after which no later byte is made durable.
    pub fn failure(&self) -> Option<Error> {
        self.unsynced.failure().cloned()
    }

    /// Takes the durations of the slow holds of the append lock that no earlier call has returned, at most the newest 64.
    pub fn take_slow_puts(&self) -> Vec<Duration> {
        self.lock_time.take_slow()
    }
}

impl LogFiles {
    /// Truncates the log at its end, so that it can be appended to.
    ///
    /// # Errors
    /// [`Error::DiskFull`] and [`Error::Io`] if a segment cannot be opened for writing, changed or synced.
    pub(crate) fn truncate(self: Arc<Self>, env: Arc<dyn Env>, segment_size: u64, end: LogEnd) -> Result<CommitLog> {
        let at = end.at;
        self.remove_after(env.as_ref(), at)?;
        let last = self.starts().next_back().filter(|start| at < start + segment_size as i64);
        if let Some(start) = last.filter(|_| end.is_replaced) {
            self.replace_segment(env.as_ref(), start..at)?;
        }
        let current = last.map(|start| self.files.open_for_appending(start as u64)).transpose()?;
        if let Some(from) = end.rewrite_from {
            self.rewrite(from..at)?;
        }
        if let Some(current) = &current {
            let stale = at as u64..current.end().min(end.written_until.max(at) as u64);
            current.clear(stale)?;
            if end.rewrite_from.is_some() {
                // The segment may have been created just before the crash.
                current.sync_name(env.as_ref())?;
            }
        }
        Ok(CommitLog::new(env, self, segment_size, current, end))
    }
}
