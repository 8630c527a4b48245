//! Appending to the commit log: one lock, one copy. Checks, checksum, property bytes and header are made before the lock. Under the lock a
//! message gets its queue offset, physical offset and store time, and is copied into the mapped segment or into the transient store pool.
//!
//! [`LogFiles::truncate`] is the only way from a log that was read to one that can be appended to. It first removes everything past the
//! end of the log, durably: a stale record there would look like the next one.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use std::{io, slice};

use crate::config::{FlushDiskType, PAGE_SIZE, StoreConfig};
use crate::error::{Error, Result};
use crate::format::{BLANK_SIZE, EncodedMessage, encode_blank, fits, segment_name};
use crate::log::commit_log::allocate::{NotMade, SegmentAllocator};
use crate::log::commit_log::append_state::{AppendState, LogEnd, RoomWait};
use crate::log::commit_log::log_files::LogFiles;
use crate::log::commit_log::pace::Pace;
use crate::log::commit_log::stats::{LockTime, LogStats, SyncCounts};
use crate::log::commit_log::written_blocks::WrittenBlocks;
use crate::log::flushed_mark_file::FlushedMarkFile;
use crate::storage::{AppendFile, Env, Step, TransientStorePool, WarmUp};
use crate::sync::{lock, try_lock};
use crate::watermark::Watermark;

/// Segments that may wait for a sync; each holds a descriptor and a mapping. A thread that needs one more syncs first.
const MAX_UNSYNCED: usize = 64;

/// Where a message was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Appended {
    /// Its record's first byte.
    pub physical_offset: i64,
    /// Its queue offset.
    pub queue_offset: i64,
    /// Its record's bytes.
    pub wrote_bytes: i32,
    /// When, in ms.
    pub store_time: i64,
}

impl Appended {
    /// Physical offset after its record.
    pub fn end(&self) -> i64 {
        self.physical_offset + i64::from(self.wrote_bytes)
    }
}

/// The end of the log, for one writing process.
#[derive(Debug)]
pub struct CommitLog {
    pub(super) env: Arc<dyn Env>,
    pub(super) files: Arc<LogFiles>,
    pub(super) state: Mutex<AppendState>,
    /// The thread that makes a segment holds `state` only to look and to hand the segment over.
    pub(super) allocator: SegmentAllocator,
    pub(super) lock_time: LockTime,
    pub(super) sync_counts: SyncCounts,
    /// Held while the log is synced, by one thread.
    pub(super) flushing: Mutex<Pace>,
    /// Segments with bytes that no sync has covered yet, oldest first.
    pub(super) unsynced: Mutex<Vec<Arc<AppendFile>>>,
    /// Held by the one thread that writes past *committed*: bytes from the pool and zeros after them, or a record that is larger
    /// than the pool.
    pub(super) committing: Mutex<()>,
    pub(super) pool: Option<Arc<TransientStorePool>>,
    /// Appends that had to wait for room in the pool.
    pub(super) pool_waits: AtomicU64,
    /// Why the last commit found no room on the disk or no memory; `None` once one has succeeded.
    pub(super) commit_refusal: Mutex<Option<Error>>,
    /// Up to here somebody asks for the log to be committed. Never past its end.
    pub commit_wanted: Arc<Watermark>,
    /// Every byte below is written: to the pool, or to its segment.
    pub appended: Arc<Watermark>,
    /// Every byte below is written to its segment. Without a pool this is *appended*, the same watermark.
    pub committed: Arc<Watermark>,
    /// Every byte below may be read and dispatched. With [`FlushDiskType::Async`] that is what is committed, and this is the same
    /// watermark. With [`FlushDiskType::Sync`] it is what is flushed, and that watermark.
    pub readable: Arc<Watermark>,
    /// Every byte below survives a power cut. Poisoned when no later byte is acknowledged any more.
    pub flushed: Arc<Watermark>,
    /// Where the blocks end that a sync finds written.
    pub(super) blocks: WrittenBlocks,
    /// `None` until recovery has put it into the store.
    pub(super) mark: Option<FlushedMarkFile>,
    /// Why no later byte is made durable: a write or sync of the log itself failed.
    pub(super) broken: OnceLock<Error>,
}

/// The outcome of one attempt under the lock.
enum Outcome {
    Written,
    /// The next segment must be made first: this many bytes do not fit into the current one.
    NeedsSegment(u64),
    /// Every byte before this offset must be committed first: the pool has no room.
    NeedsCommit(i64),
}

impl CommitLog {
    /// Appends at the end of `files`, which lies in `current` unless the next segment has to be made. See [`LogFiles::truncate`].
    pub(super) fn new(
        env: Arc<dyn Env>,
        files: Arc<LogFiles>,
        segment_size: u64,
        current: Option<AppendFile>,
        end: LogEnd,
    ) -> Self {
        let current = current.map(Arc::new);
        let appended = Arc::new(Watermark::new(end.at));
        let flushed = Arc::new(Watermark::new(end.at));
        Self {
            allocator: SegmentAllocator::new(env.clone(), files.dir().to_owned(), segment_size),
            env,
            files,
            lock_time: LockTime::default(),
            sync_counts: SyncCounts::default(),
            flushing: Mutex::default(),
            committing: Mutex::default(),
            pool: None,
            pool_waits: AtomicU64::default(),
            commit_refusal: Mutex::default(),
            commit_wanted: Arc::default(),
            unsynced: Mutex::new(current.iter().cloned().collect()),
            state: Mutex::new(AppendState::new(end, current)),
            committed: appended.clone(),
            readable: appended.clone(),
            appended,
            flushed,
            blocks: WrittenBlocks::default(),
            mark: None,
            broken: OnceLock::new(),
        }
    }

    /// From now on `mark` follows what is flushed.
    pub(crate) fn keep_mark(&mut self, mark: FlushedMarkFile) {
        self.mark = Some(mark);
    }

    /// The same log, before anything is appended, in the write mode of the options. Appended bytes go by way of `pool`, if there is one.
    #[must_use]
    pub fn with_mode(mut self, config: &StoreConfig, pool: Option<TransientStorePool>) -> Self {
        let is_sync = config.flush_disk_type == FlushDiskType::Sync;
        // Where there is a pool no append writes to the pages of a segment, so warm pages are of no use. With SYNC_FLUSH warmed blocks are:
        // they were written and synced, and the sync of a record in them takes less time.
        if config.warm_mapped_file_enable && (is_sync || pool.is_none()) {
            let pages = config.flush_least_pages_when_warm_mapped_file;
            self.allocator.warm(WarmUp {
                synced_every: is_sync.then(|| pages.saturating_mul(PAGE_SIZE)),
            });
        }
        if let Some(pool) = pool.map(Arc::new) {
            if let Some(current) = &lock(&self.state).current {
                current.use_pool(pool.clone());
            }
            self.committed = Arc::new(Watermark::new(self.appended.get()));
            self.pool = Some(pool);
        }
        self.blocks = WrittenBlocks::new(is_sync);
        self.readable = match config.flush_disk_type {
            FlushDiskType::Async => self.committed.clone(),
            FlushDiskType::Sync => self.flushed.clone(),
        };
        self
    }

    /// What was written, for reading.
    pub fn files(&self) -> &LogFiles {
        &self.files
    }

    /// Bytes of each segment.
    pub fn segment_size(&self) -> u64 {
        self.allocator.segment_size()
    }

    /// Bytes that a record may have.
    pub fn max_record_size(&self) -> u64 {
        self.segment_size() - BLANK_SIZE as u64
    }

    /// Store time of the last message; 0 for none.
    pub fn last_store_time(&self) -> i64 {
        lock(&self.state).last_store_time
    }

    /// Gives every later message a store time after `store_time`, up to which the checkpoint will cover messages.
    pub fn close_store_time(&self, store_time: i64) {
        let mut state = lock(&self.state);
        state.covered_time = state.covered_time.max(store_time);
        let end = state.end as i64;
        drop(state);
        // A message that already has an older time is flushed with the rest, although its append may not have returned yet.
        self.appended.advance(end);
    }

    /// Appends a message unless it has to wait: for a segment, for a buffer, or for another thread. `None` then, and nothing was done.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`].
    pub fn try_append(&self, message: &EncodedMessage<'_>) -> Result<Option<Appended>> {
        let mut done = None;
        let room = RoomWait::default();
        if let Some(state) = try_lock(&self.state) {
            self.with_locked(state, |state, now| {
                self.put(state, now, slice::from_ref(message), &room, |appended| done = Some(appended))
            })?;
        }
        Ok(done)
    }

    /// Appends a message.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`], [`Error::PoolFull`]: the next segment cannot be made now, or no buffer comes free, and
    /// nothing is stored. [`Error::Poisoned`], [`Error::Closed`].
    #[inline]
    pub fn append(&self, message: &EncodedMessage<'_>) -> Result<Appended> {
        let (mut done, mut room) = (None, RoomWait::default());
        loop {
            let outcome = self.with_state(|state, now| {
                self.put(state, now, slice::from_ref(message), &room, |appended| done = Some(appended))
            })?;
            if let Some(appended) = done {
                return Ok(appended);
            }
            self.make_room(&outcome, &mut room)?;
        }
    }

    /// Appends messages in order, in one hold of the lock as long as no segment has to be made. If they `are_dated`, each keeps
    /// the store time that it states, unless that falls. What was appended is added to `done`, whatever happens.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`], [`Error::PoolFull`]: those in `done` are stored, the others not. [`Error::Poisoned`],
    /// [`Error::Closed`].
    pub fn append_all(&self, messages: &[EncodedMessage<'_>], are_dated: bool, done: &mut Vec<Appended>) -> Result<()> {
        let (mut waiting, mut room) = (messages, RoomWait::default());
        while !waiting.is_empty() {
            let before = done.len();
            let outcome = self.with_state(|state, now| {
                for message in waiting {
                    let time = if are_dated { message.stated_store_time() } else { now };
                    match self.put(state, time, slice::from_ref(message), &room, |appended| done.push(appended))? {
                        Outcome::Written => {}
                        blocked => return Ok(blocked),
                    }
                }
                Ok(Outcome::Written)
            })?;
            let appended = done.len() - before;
            if appended > 0 {
                room = RoomWait::default();
            }
            waiting = waiting.get(appended..).unwrap_or_default();
            self.make_room(&outcome, &mut room)?;
        }
        Ok(())
    }

    /// Appends all messages one after the other in one segment, in one hold of the lock, or none.
    ///
    /// # Errors
    /// As [`CommitLog::append`].
    pub fn append_together(&self, messages: &[EncodedMessage<'_>]) -> Result<Vec<Appended>> {
        let (mut done, mut room) = (Vec::with_capacity(messages.len()), RoomWait::default());
        while done.is_empty() && !messages.is_empty() {
            let outcome = self.with_state(|state, now| self.put(state, now, messages, &room, |appended| done.push(appended)))?;
            self.make_room(&outcome, &mut room)?;
        }
        Ok(done)
    }

    /// Waits, outside the lock, for what an attempt has lacked.
    fn make_room(&self, outcome: &Outcome, room: &mut RoomWait) -> Result<()> {
        match outcome {
            Outcome::Written => Ok(()),
            Outcome::NeedsSegment(len) => self.get_next_segment(*len),
            Outcome::NeedsCommit(offset) => self.wait_for_room(*offset, room),
        }
    }

    /// Calls `work` with the state and the time, under the append lock, and then raises *appended*.
    #[inline]
    fn with_state(&self, work: impl FnOnce(&mut AppendState, i64) -> Result<Outcome>) -> Result<Outcome> {
        self.with_locked(lock(&self.state), work)
    }

    #[inline]
    fn with_locked(
        &self,
        mut state: MutexGuard<'_, AppendState>,
        work: impl FnOnce(&mut AppendState, i64) -> Result<Outcome>,
    ) -> Result<Outcome> {
        if let Some(cause) = &state.stopped {
            return Err(self.poisoned(cause.clone()));
        }
        let hold = self.lock_time.begin(self.env.as_ref());
        let outcome = work(&mut state, self.env.now_ms());
        let end = state.end as i64;
        let asks_for_next = matches!(outcome, Ok(Outcome::Written)) && state.asks_for_next();
        drop(hold);
        drop(state);
        // Without the lock, so that a thread that this wakes does not wait for it. Of two raises the higher one counts.
        self.appended.advance(end);
        self.ask_for_large_commit(end);
        if asks_for_next {
            self.allocator.ask();
        }
        outcome
    }

    /// Writes messages that go into one segment, and tells where each of them is. The end moves when all of them are written.
    #[inline]
    fn put(
        &self,
        state: &mut AppendState,
        now: i64,
        messages: &[EncodedMessage<'_>],
        room: &RoomWait,
        mut tell: impl FnMut(Appended),
    ) -> Result<Outcome> {
        let len: u64 = messages.iter().map(|message| message.len() as u64).sum();
        if !fits(len, state.remaining()) {
            if state.next.is_none() {
                return Ok(Outcome::NeedsSegment(len));
            }
            if let Some(offset) = self.must_be_committed(state, BLANK_SIZE as u64, room) {
                return Ok(Outcome::NeedsCommit(offset));
            }
            self.roll(state)?;
        }
        if let Some(offset) = self.must_be_committed(state, len, room) {
            return Ok(Outcome::NeedsCommit(offset));
        }
        let passing = self.pass_pool(state, len)?;
        let store_time = now.max(state.last_store_time).max(state.covered_time + 1);
        state.last_store_time = store_time;
        let mut end = state.end;
        for message in messages {
            let queue_offset = state.next_queue_offset(message);
            let Some(file) = &state.current else {
                return Ok(Outcome::NeedsSegment(len));
            };
            let (at, physical_offset) = ((end - file.start()) as usize, end as i64);
            let is_written = message.write(queue_offset, physical_offset, store_time, |parts| match passing {
                None => file.write(at, parts),
                Some(_) => file.write_mapped(at, parts),
            });
            if !is_written {
                return Err(self.page_failed(state, at));
            }
            end += message.len() as u64;
            tell(Appended {
                physical_offset,
                queue_offset,
                wrote_bytes: message.len() as i32,
                store_time,
            });
        }
        state.end = end;
        if passing.is_some() {
            self.appended.advance(end as i64);
            self.committed.advance(end as i64);
        }
        Ok(Outcome::Written)
    }

    /// Ends appending. The first cause stays; gives the failure that every later caller gets.
    pub fn stop(&self, cause: Error) -> Error {
        self.end(cause, false)
    }

    /// Ends appending and acknowledging. What was appended can still be made durable: [`CommitLog::flush_rest`].
    pub fn refuse(&self, cause: Error) -> Error {
        self.end(cause, true)
    }

    fn end(&self, cause: Error, is_flush_refused: bool) -> Error {
        let mut state = lock(&self.state);
        let first = state.stopped.get_or_insert_with(|| cause.clone()).clone();
        // A close is no failure.
        let told = if matches!(first, Error::Closed) {
            cause
        } else {
            first.clone()
        };
        // Before the poison, so that a thread that follows the log sees all of it.
        self.appended.advance(state.end as i64);
        if is_flush_refused {
            // Under the lock: a caller whose append was refused finds that a flush is, too.
            self.flushed.poison(told.clone());
            for watermark in [&self.committed, &self.readable] {
                watermark.poison(first.clone());
            }
        }
        drop(state);
        self.allocator.end(&first);
        self.commit_wanted.poison(first.clone());
        self.appended.poison(first);
        told
    }

    /// Ends appending and making durable.
    pub fn poison(&self, cause: Error) -> Error {
        // A failure after another one says nothing about the log itself.
        if !matches!(cause, Error::Poisoned { .. }) {
            let _ = self.broken.set(cause.clone());
        }
        self.refuse(cause)
    }

    pub(super) fn fail(&self, cause: Error) -> Error {
        let first = self.poison(cause);
        self.poisoned(first)
    }

    /// The error that every later caller gets.
    pub(super) fn poisoned(&self, cause: Error) -> Error {
        Error::poisoned(cause, self.flushed.get())
    }

    /// As `fail`, for a page that could not be written. The caller holds the append lock.
    pub(super) fn page_failed(&self, state: &mut AppendState, at: usize) -> Error {
        let cause = Error::Corrupt {
            path: state.current.as_ref().map(|file| file.path().to_owned()).unwrap_or_default(),
            offset: at as u64,
            reason: "the device failed under this page while a message was written".to_owned(),
        };
        self.write_failed(state, cause)
    }

    /// As `fail`, for a write. The caller holds the append lock.
    pub(super) fn write_failed(&self, state: &mut AppendState, cause: Error) -> Error {
        state.stopped.get_or_insert_with(|| cause.clone());
        let _ = self.broken.set(cause.clone());
        self.allocator.end(&cause);
        for watermark in [&self.appended, &self.committed, &self.readable, &self.flushed] {
            watermark.poison(cause.clone());
        }
        self.poisoned(cause)
    }

    /// A thread calls [`CommitLog::make_asked_segment`] from now on. Appending waits for it for at most `patience`.
    pub fn serve_segments(&self, patience: Duration) {
        self.allocator.serve(patience);
    }

    /// Makes the next segment if it was asked for: by the first message of the current one, or by one that finds no room. Whether that
    /// failed is told to those who wait for the segment.
    pub fn make_asked_segment(&self) {
        // No segment has room for a whole one and the BLANK after it.
        self.allocator.answer(|| self.make_next_segment(self.segment_size()));
    }

    /// What brings work for [`CommitLog::make_asked_segment`].
    pub fn segments_asked(&self) -> (Arc<Watermark>, i64) {
        self.allocator.awaited()
    }

    /// Fills the rest of the segment and moves to the next one, which was made.
    pub(super) fn roll(&self, state: &mut AppendState) -> Result<()> {
        let remaining = state.remaining();
        if let Some(full) = &state.current
            && remaining > 0
        {
            let at = (state.end - full.start()) as usize;
            if !full.write(at, &[&encode_blank(remaining as u32)]) {
                return Err(self.page_failed(state, at));
            }
            full.fill_until(state.end + BLANK_SIZE as u64);
        }
        state.move_to_next();
        Ok(())
    }

    /// Makes the segment after the current one, or waits for the thread that makes it, outside the lock. Does nothing if there is room for
    /// `len` bytes by now.
    pub(super) fn get_next_segment(&self, len: u64) -> Result<()> {
        let start = {
            let mut state = lock(&self.state);
            if state.stopped.is_some() || state.has_room(len) {
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
        // A later request may have been answered better, and a log that was stopped says why.
        if state.stopped.is_some() || state.has_room(len) {
            return Ok(());
        }
        answered
    }

    /// Makes the segment after the current one, outside the lock, unless another thread has made room for `len` bytes.
    fn make_next_segment(&self, len: u64) -> Result<()> {
        let _one_at_a_time = self.allocator.lock();
        let start = {
            let state = lock(&self.state);
            if state.stopped.is_some() || state.has_room(len) {
                return Ok(());
            }
            state.next_start()
        };
        if lock(&self.unsynced).len() >= MAX_UNSYNCED {
            self.flush()?;
        }
        let file = self.allocator.make(start).map_err(|not_made| match not_made {
            NotMade::Gone(cause) => cause,
            NotMade::Left(cause) => self.fail(cause),
        })?;
        if let Some(pool) = &self.pool {
            file.use_pool(pool.clone());
        }
        lock(&self.unsynced).push(file.clone());
        self.files.add(start);
        lock(&self.state).next = Some(file);
        Ok(())
    }

    /// Waits until no segment is being made. After [`CommitLog::stop`] no thread begins another, and the log's directory stays as it is.
    pub fn end_allocation(&self) {
        drop(self.allocator.lock());
    }

    /// Removes the segment that was made ahead, once the log is stopped, and what is left of one that could not be made: a closed store
    /// has no segment past its end.
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

    /// Makes the pages of a stretch past the end of the log ready to be written, as far as segments are made. Gives the offset up to which
    /// they are.
    ///
    /// # Errors
    /// As [`Region::supply`](crate::storage::Region::supply). Writing works all the same.
    pub fn supply(&self, stretch: Range<u64>) -> io::Result<u64> {
        let files = {
            let state = lock(&self.state);
            [state.current.clone(), state.next.clone()]
        };
        let mut supplied = stretch.start;
        for file in files.iter().flatten() {
            if (file.start()..file.end()).contains(&supplied) {
                let end = stretch.end.min(file.end());
                file.supply(supplied..end)?;
                supplied = end;
            }
        }
        Ok(supplied)
    }

    /// Where the stretch that starts at `from` ends, if it ends at the next multiple of `step` bytes in its segment, or with the segment.
    pub fn end_of_step(&self, from: u64, step: u64) -> u64 {
        let end = self.files.end_of_segment(from as i64) as u64;
        let start = end.saturating_sub(self.segment_size());
        end.min(start + (from.saturating_sub(start) / step + 1) * step)
    }

    /// Drops the cached pages of a stretch in one segment, all of which is flushed.
    ///
    /// # Errors
    /// As the system gives them; ignoring one is always right.
    pub fn drop_cached(&self, stretch: Range<u64>) -> io::Result<()> {
        // The segments that are mapped for writing.
        let mapped = lock(&self.unsynced).clone();
        for file in mapped
            .iter()
            .filter(|file| (file.start()..file.end()).contains(&stretch.start))
        {
            file.let_go(stretch.clone());
        }
        self.files.drop_cached(stretch)
    }

    /// Refuses to append while another append holds the lock for more than `limit` ms. It does not wait for the lock.
    ///
    /// # Errors
    /// [`Error::Busy`].
    #[inline]
    pub fn expect_not_busy(&self, limit: u64) -> Result<()> {
        let busy = self.lock_time.busy(self.env.as_ref(), limit);
        busy.map_or(Ok(()), |held| Err(Error::Busy { held, limit }))
    }

    /// What has happened since the log was opened for writing.
    pub fn stats(&self) -> LogStats {
        let counts = &self.sync_counts;
        let (topics, segments, pool) = {
            let state = lock(&self.state);
            (state.put_stats(), state.segments, self.pool_stats(&state))
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

    /// Why no later byte is made durable, if a write or sync of the log itself failed, or a segment could not be made durable.
    pub fn failure(&self) -> Option<Error> {
        self.broken.get().cloned()
    }

    /// For how long appends held the append lock that were slow, of those that no earlier call has given: of many, the newest.
    pub fn take_slow_puts(&self) -> Vec<Duration> {
        self.lock_time.take_slow()
    }
}

impl LogFiles {
    /// Truncates the log at its end, where it can then be appended to.
    ///
    /// # Errors
    /// [`Error::DiskFull`] and [`Error::Io`] when a segment cannot be opened for writing, changed or synced.
    pub(crate) fn truncate(self: Arc<Self>, env: Arc<dyn Env>, segment_size: u64, end: LogEnd) -> Result<CommitLog> {
        let at = end.at;
        self.remove_after(env.as_ref(), at)?;
        let last = self.starts().next_back().filter(|start| at < start + segment_size as i64);
        let current = match last {
            None => None,
            Some(start) => Some(self.files.open_for_appending(start as u64)?),
        };
        if let Some(from) = end.rewrite_from {
            self.rewrite(from..at)?;
        }
        if let Some(current) = &current {
            let stale = at as u64..current.end().min(end.written_until.max(at) as u64);
            current.clear(stale)?;
            if end.rewrite_from.is_some() {
                // The segment may have been made just before the crash.
                current.sync_name(env.as_ref())?;
            }
        }
        Ok(CommitLog::new(env, self, segment_size, current, end))
    }

    /// Removes the segments that start after `end`, the newest first.
    fn remove_after(&self, env: &dyn Env, end: i64) -> Result<()> {
        for empty in self.files.empty_files() {
            match env.unlink(empty) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Error::io("remove", empty, error)),
                _ => {}
            }
        }
        for start in self.starts().rev().take_while(|start| *start > end) {
            self.remove(start)?;
            env.sync_dir(self.dir(), Step::LogCut)
                .map_err(|error| Error::io("sync", self.dir(), error))?;
        }
        Ok(())
    }

    /// Writes again what recovery has read, durably. Where a sync has failed, the bytes may be in memory alone, and the system
    /// does not write them a second time by itself.
    fn rewrite(&self, recovered: Range<i64>) -> Result<()> {
        for start in self.starts() {
            let segment = recovered.start.max(start)..recovered.end.min(start + self.segment_size() as i64);
            if segment.is_empty() {
                continue;
            }
            let path = self.dir().join(segment_name(start as u64));
            let refused = |error| Error::full_or_io("write again", &path, error);
            let file = self.files.open_for_writing(start as u64).map_err(refused)?;
            self.for_each_piece(segment, |at, bytes| {
                file.write_all_at(bytes, (at - start) as u64).map_err(refused)
            })?;
            file.sync(Step::LogRewritten).map_err(refused)?;
        }
        Ok(())
    }
}
