//! From the transient store pool to the segments. Appended bytes wait in the pool until a thread commits them: writes them to
//! their segments, in the order of the log. Without a pool everything is committed as soon as it is appended.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::interrupt;
use crate::log::commit_log::append_state::{AppendState, RoomWait};
use crate::log::commit_log::commit_log::CommitLog;
use crate::log::commit_log::stats::PoolStats;
use crate::sync::{MutexGuard, lock};
use crate::watermark::Wait;

/// So many waiting bytes are committed at once, whatever the time: large writes cost less for each byte.
const LARGE_WRITE: u64 = 256 << 10;
/// Part of the pool that they may be, as a divisor.
const PART_OF_POOL: u64 = 4;

impl CommitLog {
    /// Commits everything appended so far. One thread commits at a time.
    ///
    /// # Errors
    /// A [shortage](Error::is_shortage): it may be tried again. [`Error::Poisoned`]: a write failed, now or before.
    pub fn commit(&self) -> Result<()> {
        if self.committed.get() >= self.appended.get() {
            return Ok(());
        }
        let committed = {
            let _one_at_a_time = lock(&self.committing);
            self.write_out(self.appended.get())
        };
        *lock(&self.commit_refusal) = committed.as_ref().err().filter(|cause| cause.is_shortage()).cloned();
        committed.map_err(|cause| if cause.is_shortage() { cause } else { self.fail(cause) })
    }

    /// Asks for everything appended so far to be committed. Where no thread commits, the caller does.
    ///
    /// # Errors
    /// Those of [`CommitLog::commit`], if the caller commits.
    pub fn ask_commit(&self) -> Result<()> {
        if self.allocator.patience().is_none() {
            return self.commit();
        }
        self.commit_wanted.advance(self.appended.get());
        Ok(())
    }

    /// Waits until everything appended so far is committed, for `patience` at most, and says whether it is.
    ///
    /// # Errors
    /// Those of [`interrupt::check`].
    pub fn commit_within(&self, patience: Duration) -> Result<bool> {
        let end = self.appended.get();
        if self.committed.get() >= end {
            return Ok(true);
        }
        // Why it cannot be committed is told to those who write.
        let is_asked = self.ask_commit().is_ok();
        Ok(is_asked && matches!(self.wait_committed(end, Instant::now() + patience)?, Wait::Reached))
    }

    /// Bytes that wait in the pool.
    pub fn uncommitted(&self) -> u64 {
        // In this order, so that the difference is not below zero.
        let committed = self.committed.get();
        (self.appended.get() - committed).unsigned_abs()
    }

    /// Why the pool could not be locked in memory, if it could not.
    pub fn lock_refusal(&self) -> Option<&io::Error> {
        self.pool.as_ref().and_then(|pool| pool.lock_refusal())
    }

    /// Writes what waits in the pool to the segments, up to `target`, where a record ends. The caller holds `committing`.
    fn write_out(&self, target: i64) -> Result<()> {
        if let Some(cause) = self.broken.get() {
            return Err(cause.clone());
        }
        self.write_segments(target).inspect_err(|cause| {
            // Under the lock: the next thread that commits must not write after a failure, nor succeed with the same bytes.
            if !cause.is_shortage() {
                let _ = self.broken.set(cause.clone());
            }
        })
    }

    fn write_segments(&self, target: i64) -> Result<()> {
        let (from, to) = (self.committed.get() as u64, target as u64);
        let unsynced = lock(&self.unsynced).clone();
        for file in unsynced.iter().filter(|file| from < file.end() && file.start() < to) {
            file.commit(from.max(file.start())..to.min(file.end()))?;
            self.blocks.write_past(to, file);
        }
        self.committed.advance(target);
        Ok(())
    }

    fn wait_committed(&self, offset: i64, deadline: Instant) -> Result<Wait> {
        loop {
            let slice = deadline.min(Instant::now() + interrupt::INTERVAL);
            match self.committed.wait(offset, Some(slice)) {
                Wait::TimedOut if slice < deadline => interrupt::check_after_wait()?,
                wait => return Ok(wait),
            }
        }
    }

    /// Waits until every byte before `offset` is committed. Where no thread commits, the caller does.
    ///
    /// # Errors
    /// [`Error::PoolFull`], or the [shortage](Error::is_shortage) that is the reason; [`Error::Poisoned`], [`Error::Closed`], and those of
    /// [`interrupt::check`].
    pub(super) fn wait_for_room(&self, offset: i64, room: &mut RoomWait) -> Result<()> {
        let patience = self.allocator.patience();
        let until = *room.until.get_or_insert_with(|| {
            self.pool_waits.fetch_add(1, Ordering::Relaxed);
            Instant::now() + patience.unwrap_or_default()
        });
        let Some(patience) = patience else {
            return self.commit();
        };
        self.commit_wanted.advance(offset);
        match self.wait_committed(offset, until)? {
            Wait::Reached => Ok(()),
            Wait::Poisoned(cause) => Err(self.poisoned(cause)),
            Wait::TimedOut => Err(lock(&self.commit_refusal)
                .clone()
                .unwrap_or(Error::PoolFull { waited: patience })),
        }
    }

    /// Called after an append: asks for a commit if much waits.
    #[inline]
    pub(super) fn ask_for_large_commit(&self, end: i64) {
        let Some(pool) = &self.pool else { return };
        let waiting = (end - self.committed.get()).cast_unsigned();
        if waiting >= LARGE_WRITE.min(pool.capacity() / PART_OF_POOL) {
            self.commit_wanted.advance(end);
        }
    }

    /// The offset before which everything must be committed before `len` bytes can be written; `None` if they can be now. Records of more
    /// bytes than the pool has need an empty one. If others have filled it again meanwhile, [`CommitLog::pass_pool`] commits the rest.
    #[inline]
    pub(super) fn must_be_committed(&self, state: &AppendState, len: u64, room: &RoomWait) -> Option<i64> {
        let capacity = state.current.as_ref()?.pool()?.capacity();
        let offset = if len <= capacity {
            state.end.saturating_add(len).checked_sub(capacity)?
        } else if room.until.is_none() {
            state.end
        } else {
            return None;
        };
        (self.committed.get() < offset as i64).then_some(offset as i64)
    }

    /// Lets records of `len` bytes, more than the pool has, pass it: they are written through the mapping of the segment, after all that
    /// waits in the pool is committed, and nobody commits meanwhile. `None` for fewer bytes. The caller holds the append lock.
    #[inline]
    pub(super) fn pass_pool(&self, state: &mut AppendState, len: u64) -> Result<Option<MutexGuard<'_, ()>>> {
        let pool = state.current.as_ref().and_then(|file| file.pool());
        if pool.is_none_or(|pool| len <= pool.capacity()) {
            return Ok(None);
        }
        let committing = lock(&self.committing);
        self.appended.advance(state.end as i64);
        match self.write_out(state.end as i64) {
            Ok(()) => Ok(Some(committing)),
            Err(cause) if cause.is_shortage() => Err(cause),
            Err(cause) => Err(self.write_failed(state, cause)),
        }
    }

    pub(super) fn pool_stats(&self, state: &AppendState) -> Option<PoolStats> {
        let pool = self.pool.as_ref()?;
        let waiting = state.end.saturating_sub(self.committed.get() as u64);
        Some(PoolStats {
            count: pool.count() as u64,
            available: pool.capacity().saturating_sub(waiting) / pool.buffer_size(),
            is_locked: pool.is_locked(),
            waits: self.pool_waits.load(Ordering::Relaxed),
        })
    }
}
