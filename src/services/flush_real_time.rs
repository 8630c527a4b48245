//! The flusher: makes the log durable at an interval, and at once when a caller asks for that. `RocketMQ` calls it `FlushRealTime`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::log::CommitLog;
use crate::services::stepped::{Next, Stepped};
use crate::watermark::Watermark;

/// After so long a time a shortage may be over.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Syncs the log. All callers that wait during a sync share the next one.
#[derive(Debug)]
pub struct FlushRealTime {
    log: Arc<CommitLog>,
    /// Up to here somebody asks for the log to be durable. Never past the end of the log. Poisoned when the flusher is to end.
    wanted: Arc<Watermark>,
    interval: Duration,
    least_pages: u64,
    thorough_interval: Duration,
    /// When the next sync comes if nobody asks for one.
    due: Option<Instant>,
    /// When that sync asks for no number of pages.
    thorough_due: Option<Instant>,
    /// When it goes on after a shortage.
    retry_at: Option<Instant>,
}

impl FlushRealTime {
    /// Syncs whenever `wanted` rises, and at the intervals of the options.
    pub fn new(log: Arc<CommitLog>, wanted: Arc<Watermark>, config: &StoreConfig) -> Self {
        Self {
            log,
            wanted,
            interval: Duration::from_millis(config.flush_interval_commit_log),
            least_pages: config.flush_commit_log_least_pages,
            thorough_interval: Duration::from_millis(config.flush_commit_log_thorough_interval),
            due: None,
            thorough_due: None,
            retry_at: None,
        }
    }

    fn flush(&mut self, now: Instant) -> Result<()> {
        match self.log.flush() {
            Ok(_) => self.thorough_due = Some(now + self.thorough_interval),
            // Nothing was synced.
            Err(cause) if cause.is_shortage() => self.retry_at = Some(now + RETRY_AFTER),
            Err(cause) => return Err(cause),
        }
        Ok(())
    }
}

impl Stepped for FlushRealTime {
    fn step(&mut self, now: Instant) -> Result<Next> {
        if self.wanted.poisoned().is_some() {
            return Ok(Next::Done);
        }
        if self.retry_at.is_some_and(|at| now < at) {
            return Ok(Next::Idle { until: self.retry_at });
        }
        self.retry_at = None;
        let thorough_due = *self.thorough_due.get_or_insert(now + self.thorough_interval);
        if self.wanted.get() > self.log.flushed.get() {
            self.flush(now)?;
        } else if self.due.is_some_and(|due| due <= now) {
            if self.log.unflushed_pages() >= self.least_pages || thorough_due <= now {
                self.flush(now)?;
            }
            self.due = None;
        }
        let due = *self.due.get_or_insert(now + self.interval);
        let until = self.retry_at.or(Some(due));
        Ok(Next::Idle { until })
    }

    fn awaited(&self) -> (Arc<Watermark>, i64) {
        let next = self.retry_at.map_or(self.log.flushed.get() + 1, |_| i64::MAX);
        (self.wanted.clone(), next)
    }

    fn fail(&self, cause: Error) {
        self.log.poison(cause);
    }
}
