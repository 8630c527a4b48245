//! What the log tells of itself: what has happened, and whether an append holds it up.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::log::commit_log::commit_log::CommitLog;
use crate::log::commit_log::log_stats::LogStats;
use crate::sync::lock;

impl CommitLog {
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
