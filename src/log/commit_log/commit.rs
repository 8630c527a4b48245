//! From the transient store pool to the segments. Appended bytes wait in the pool until a thread commits them: writes them to their segments,
//! in the order of the log. Without a pool everything is committed as soon as it is appended.

use std::io;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::interrupt;
use crate::log::commit_log::allocate::lock;
use crate::log::commit_log::append_state::AppendState;
use crate::log::commit_log::commit_log::CommitLog;
use crate::log::commit_log::log_stats::PoolStats;
use crate::watermark::Wait;

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
        committed.map_err(|cause| if cause.is_shortage() { cause } else { self.fail(cause) })
    }

    /// Bytes that wait in the pool.
    pub fn uncommitted(&self) -> u64 {
        // In this order, so that the difference is not below zero.
        let committed = self.committed.get();
        (self.appended.get() - committed).unsigned_abs()
    }

    /// Why the pool is not locked in memory, if there is one and it is not.
    pub fn lock_refusal(&self) -> Option<&io::Error> {
        self.pool.as_ref().and_then(|pool| pool.lock_refusal())
    }

    /// Writes what waits in the pool to the segments, up to `target`, where a record ends. The caller holds `committing`.
    fn write_out(&self, target: i64) -> Result<()> {
        if let Some(cause) = self.broken.get() {
            return Err(cause.clone());
        }
        let (from, to) = (self.committed.get() as u64, target as u64);
        let unsynced = lock(&self.unsynced).clone();
        for file in unsynced.iter().filter(|file| from < file.end() && file.start() < to) {
            file.commit(from.max(file.start())..to.min(file.end()))?;
        }
        self.committed.advance(target);
        Ok(())
    }

    /// Waits until every byte before `offset` is committed. Where no thread commits, the caller does.
    ///
    /// # Errors
    /// [`Error::PoolFull`], [`Error::Poisoned`], [`Error::Closed`], and those of [`interrupt::check`].
    pub(super) fn wait_committed(&self, offset: i64) -> Result<()> {
        self.pool_waits.fetch_add(1, Ordering::Relaxed);
        let Some(patience) = self.allocator.patience() else {
            return self.commit();
        };
        let deadline = Instant::now() + patience;
        loop {
            let slice = deadline.min(Instant::now() + interrupt::INTERVAL);
            match self.committed.wait(offset, Some(slice)) {
                Wait::Reached => return Ok(()),
                Wait::Poisoned(cause) => return Err(self.poisoned(cause)),
                Wait::TimedOut if slice < deadline => interrupt::check()?,
                Wait::TimedOut => return Err(Error::PoolFull { waited: patience }),
            }
        }
    }

    /// The offset before which everything must be committed before `len` bytes find room in the pool; `None` if they do, if they never will,
    /// and if they do not go there.
    pub(super) fn must_be_committed(&self, state: &AppendState, len: u64) -> Option<i64> {
        let pool = state.current.as_ref()?.pool()?;
        let offset = state.end.saturating_add(len).checked_sub(pool.capacity())? as i64;
        (len <= pool.capacity() && self.committed.get() < offset).then_some(offset)
    }

    /// Lets records of `len` bytes, more than the pool has, pass it: they are written through the mapping of the segment, after all that
    /// waits in the pool is committed, and nobody commits meanwhile. `None` for fewer bytes. The caller holds the append lock.
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
            is_locked: pool.lock_refusal().is_none(),
            waits: self.pool_waits.load(Ordering::Relaxed),
        })
    }
}
