//! The committer: writes what waits in the transient store pool to the log. `RocketMQ` calls it `CommitRealTimeService`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::{PAGE_SIZE, StoreConfig};
use crate::error::{Error, Result};
use crate::log::CommitLog;
use crate::services::stepped::{Next, Stepped};
use crate::watermark::Watermark;

/// After so long a time a shortage may be over.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Commits the log at an interval, and when somebody asks for that: an append that finds much waiting or no room, or a read.
#[derive(Debug)]
pub struct CommitRealTime {
    log: Arc<CommitLog>,
    interval: Duration,
    least_pages: u64,
    thorough_interval: Duration,
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
        Self {
            log,
            interval: Duration::from_millis(config.commit_interval_commit_log),
            least_pages: config.commit_commit_log_least_pages,
            thorough_interval: Duration::from_millis(config.commit_commit_log_thorough_interval),
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
        let is_due = self.due.is_some_and(|due| due <= now);
        let is_wanted = self.log.commit_wanted.get() > self.log.committed.get();
        let is_much = self.log.uncommitted() / PAGE_SIZE >= self.least_pages;
        if is_wanted || thorough_due <= now || (is_due && is_much) {
            self.commit(now)?;
        }
        if is_due {
            self.due = None;
        }
        let due = *self.due.get_or_insert(now + self.interval);
        // No byte waits for longer than the thorough interval.
        let next = self.thorough_due.map_or(due, |thorough_due| due.min(thorough_due));
        Ok(Next::Idle {
            until: Some(self.retry_at.unwrap_or(next)),
        })
    }

    fn awaited(&self) -> (Arc<Watermark>, i64) {
        let next = self.retry_at.map_or(self.log.committed.get() + 1, |_| i64::MAX);
        (self.log.commit_wanted.clone(), next)
    }

    fn fail(&self, cause: Error) {
        self.log.poison(cause);
    }
}
