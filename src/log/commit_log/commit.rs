//! The commit: a write-back from the transient store pool to the segments, in the order of the log. Appended bytes wait in the pool
//! until a thread commits them. Without a pool everything is committed as soon as it is appended.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::interrupt;
use crate::log::commit_log::append_state::{AppendState, PoolWait};
use crate::log::commit_log::flush::UnsyncedSegments;
use crate::log::commit_log::stats::PoolStats;
use crate::log::commit_log::watermarks::Watermarks;
use crate::storage::TransientStorePool;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::watermark::{Wait, Watermark};

/// The number of pending bytes from which on a commit is requested at once: large writes cost less for each byte.
const LARGE_WRITE: u64 = 256 << 10;
/// The largest share of the pool that they may take, as a divisor.
const PART_OF_POOL: u64 = 4;

/// The committer of a log: one thread at a time writes the pending bytes of the pool.
#[derive(Debug)]
pub(super) struct Committer {
    /// The pool; `None` if appends write to the mapped segments.
    pool: Option<Arc<TransientStorePool>>,
    watermarks: Watermarks,
    /// Held by the one thread that writes past *committed*: bytes from the pool and zeros after them, or a record that is larger
    /// than the pool.
    committing: Mutex<()>,
    /// The offset up to which a commit is requested. Never past the end of the log.
    wanted: Arc<Watermark>,
    /// The shortage of disk space or memory that ended the last commit; `None` once one has succeeded.
    refusal: Mutex<Option<Error>>,
    /// The number of appends that had to wait for space in the pool.
    waits: AtomicU64,
}

impl Committer {
    /// Creates the committer of a log with these watermarks.
    pub(super) fn new(pool: Option<Arc<TransientStorePool>>, watermarks: Watermarks) -> Self {
        Self {
            pool,
            watermarks,
            committing: Mutex::new(()),
            wanted: Arc::default(),
            refusal: Mutex::new(None),
            waits: AtomicU64::default(),
        }
    }

    /// Returns the pool, if there is one.
    pub(super) fn pool(&self) -> Option<&Arc<TransientStorePool>> {
        self.pool.as_ref()
    }

    /// Returns the watermark of the offset up to which a commit is requested.
    pub(super) fn wanted(&self) -> &Arc<Watermark> {
        &self.wanted
    }

    /// Returns the reason why the pool could not be locked in memory, if it could not.
    pub(super) fn lock_refusal(&self) -> Option<&io::Error> {
        self.pool.as_ref().and_then(|pool| pool.lock_refusal())
    }

    /// Commits everything appended so far. One thread commits at a time.
    ///
    /// # Errors
    /// A [shortage](Error::is_shortage): the caller may retry. Otherwise a write failed, now or before.
    pub(super) fn commit(&self, segments: &UnsyncedSegments) -> Result<()> {
        let appended = &self.watermarks.appended;
        if self.watermarks.committed.get() >= appended.get() {
            return Ok(());
        }
        let committed = {
            let _one_at_a_time = lock(&self.committing);
            self.write_out(segments, appended.get())
        };
        *lock(&self.refusal) = committed.as_ref().err().filter(|cause| cause.is_shortage()).cloned();
        committed
    }

    /// Writes the pending bytes of the pool to the segments, up to `target`, where a record ends. The caller holds `committing`.
    fn write_out(&self, segments: &UnsyncedSegments, target: i64) -> Result<()> {
        if let Some(cause) = segments.failure() {
            return Err(cause.clone());
        }
        let committed = &self.watermarks.committed;
        let written = segments.commit(committed.get() as u64..target as u64);
        written.inspect_err(|cause| {
            // Set under the lock: the next thread that commits must not write after a failure, nor succeed with the same bytes.
            if !cause.is_shortage() {
                segments.fail(cause);
            }
        })?;
        committed.advance(target);
        Ok(())
    }

    /// Waits until everything before `offset` is committed, or until the deadline.
    ///
    /// # Errors
    /// Those of [`interrupt::check`].
    pub(super) fn wait(&self, offset: i64, deadline: Instant) -> Result<Wait> {
        loop {
            let slice = deadline.min(Instant::now() + interrupt::INTERVAL);
            match self.watermarks.committed.wait(offset, Some(slice)) {
                Wait::TimedOut if slice < deadline => interrupt::check_after_wait()?,
                wait => return Ok(wait),
            }
        }
    }

    /// Starts the wait of an append for space, unless it has started, and returns its deadline.
    pub(super) fn start_wait(&self, wait: &mut PoolWait, patience: Duration) -> Instant {
        *wait.until.get_or_insert_with(|| {
            self.waits.fetch_add(1, Ordering::Relaxed);
            Instant::now() + patience
        })
    }

    /// Waits until the committing thread has committed every byte before `offset`.
    ///
    /// # Errors
    /// [`Error::PoolFull`], or the [shortage](Error::is_shortage) that is the reason; [`Error::Poisoned`], [`Error::Closed`], and
    /// those of [`interrupt::check`].
    pub(super) fn wait_for_space(&self, offset: i64, wait: &mut PoolWait, patience: Duration) -> Result<()> {
        let until = self.start_wait(wait, patience);
        self.wanted.advance(offset);
        match self.wait(offset, until)? {
            Wait::Reached => Ok(()),
            Wait::Poisoned(cause) => Err(self.watermarks.poisoned(cause)),
            Wait::TimedOut => Err(lock(&self.refusal).clone().unwrap_or(Error::PoolFull { waited: patience })),
        }
    }

    /// Requests a commit after an append up to `end`, if many bytes are pending.
    #[inline]
    pub(super) fn request_large_commit(&self, end: i64) {
        let Some(pool) = &self.pool else { return };
        let pending = (end - self.watermarks.committed.get()).cast_unsigned();
        if pending >= LARGE_WRITE.min(pool.capacity() / PART_OF_POOL) {
            self.wanted.advance(end);
        }
    }

    /// Returns the offset up to which the log must be committed before `len` bytes can be written; `None` if they can be written
    /// now. Records larger than the pool need an empty one. If other appends have filled it again, [`Committer::pass_pool`] commits
    /// the rest.
    #[inline]
    pub(super) fn must_be_committed(&self, state: &AppendState, len: u64, wait: &PoolWait) -> Option<i64> {
        let capacity = state.current.as_ref()?.pool()?.capacity();
        let offset = if len <= capacity {
            state.end.saturating_add(len).checked_sub(capacity)?
        } else if wait.until.is_none() {
            state.end
        } else {
            return None;
        };
        (self.watermarks.committed.get() < offset as i64).then_some(offset as i64)
    }

    /// Lets records of `len` bytes bypass the pool if they exceed its capacity. After all pending bytes of the pool are committed,
    /// the records are written through the mapping of the segment, and no thread commits while the guard lives. `None` for smaller
    /// records. The caller holds the append lock.
    ///
    /// # Errors
    /// Those of [`Committer::commit`].
    #[inline]
    pub(super) fn pass_pool(
        &self,
        segments: &UnsyncedSegments,
        state: &AppendState,
        len: u64,
    ) -> Result<Option<MutexGuard<'_, ()>>> {
        let pool = state.current.as_ref().and_then(|file| file.pool());
        if pool.is_none_or(|pool| len <= pool.capacity()) {
            return Ok(None);
        }
        let committing = lock(&self.committing);
        self.watermarks.appended.advance(state.end as i64);
        self.write_out(segments, state.end as i64)?;
        Ok(Some(committing))
    }

    /// Returns the statistics of the pool, if there is one.
    pub(super) fn pool_stats(&self, state: &AppendState) -> Option<PoolStats> {
        let pool = self.pool.as_ref()?;
        let pending = state.end.saturating_sub(self.watermarks.committed.get() as u64);
        Some(PoolStats {
            count: pool.count() as u64,
            available: pool.capacity().saturating_sub(pending) / pool.buffer_size(),
            is_locked: pool.is_locked(),
            waits: self.waits.load(Ordering::Relaxed),
        })
    }
}
