//! The committer: writes what waits in the transient store pool to the log. `RocketMQ` calls it `CommitRealTimeService`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::{PAGE_SIZE, StoreConfig};
use crate::error::{Error, Result};
use crate::log::CommitLog;
use crate::services::stepped::{Next, Stepped};
use crate::watermark::Watermark;

/// So many waiting bytes are written at once, whatever the time: large writes cost less for each byte.
const LARGE_WRITE: u64 = 256 << 10;
/// Part of the pool that such a write may be, as a divisor.
const PART_OF_POOL: u64 = 4;

/// After so long a time a shortage may be over.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Commits the log at an interval, and when much waits.
#[derive(Debug)]
pub struct CommitRealTime {
    log: Arc<CommitLog>,
    interval: Duration,
    least_pages: u64,
    thorough_interval: Duration,
    /// So many waiting bytes are much.
    much: u64,
    /// When the next look at what waits comes.
    due: Option<Instant>,
    /// When that look asks for no number of pages.
    thorough_due: Option<Instant>,
    /// When it goes on after a shortage.
    retry_at: Option<Instant>,
}

impl CommitRealTime {
    /// Commits `log` as the options say.
    pub fn new(log: Arc<CommitLog>, config: &StoreConfig) -> Self {
        let pool = config.transient_store_pool_size as u64 * config.transient_store_pool_buffer_size as u64;
        Self {
            log,
            interval: Duration::from_millis(config.commit_interval_commit_log),
            least_pages: config.commit_commit_log_least_pages,
            thorough_interval: Duration::from_millis(config.commit_commit_log_thorough_interval),
            much: LARGE_WRITE.min(pool / PART_OF_POOL),
            due: None,
            thorough_due: None,
            retry_at: None,
        }
    }

    fn commit(&mut self, now: Instant) -> Result<()> {
        match self.log.commit() {
            Ok(()) => self.thorough_due = Some(now + self.thorough_interval),
            Err(cause) if cause.is_shortage() => self.retry_at = Some(now + RETRY_AFTER),
            Err(cause) => return Err(cause),
        }
        Ok(())
    }
}

impl Stepped for CommitRealTime {
    fn step(&mut self, now: Instant) -> Result<Next> {
        // A log that was stopped is committed by its last flush.
        if self.log.appended.poisoned().is_some() {
            return Ok(Next::Done);
        }
        if self.retry_at.is_some_and(|at| now < at) {
            return Ok(Next::Idle { until: self.retry_at });
        }
        self.retry_at = None;
        let thorough_due = *self.thorough_due.get_or_insert(now + self.thorough_interval);
        if self.log.uncommitted() >= self.much {
            self.commit(now)?;
        } else if self.due.is_some_and(|due| due <= now) {
            if self.log.uncommitted() / PAGE_SIZE >= self.least_pages || thorough_due <= now {
                self.commit(now)?;
            }
            self.due = None;
        }
        let due = *self.due.get_or_insert(now + self.interval);
        let until = self.retry_at.or(Some(due));
        Ok(Next::Idle { until })
    }

    fn awaited(&self) -> (Arc<Watermark>, i64) {
        let next = self
            .retry_at
            .map_or(self.log.committed.get() + self.much as i64, |_| i64::MAX);
        (self.log.appended.clone(), next)
    }

    fn fail(&self, cause: Error) {
        self.log.poison(cause);
    }
}
