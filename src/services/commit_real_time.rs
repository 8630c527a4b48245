//! The committer: writes what waits in the transient store pool to the log. `RocketMQ` calls it `CommitRealTimeService`.

use std::sync::Arc;
use std::time::Instant;

use crate::config::{PAGE_SIZE, StoreConfig};
use crate::error::{Error, Result};
use crate::log::CommitLog;
use crate::services::intervals::Intervals;
use crate::services::stepped::{Next, Stepped};
use crate::watermark::Watermark;

/// Commits the log at an interval, and when somebody asks for that: an append that finds much waiting or no room, or a read.
#[derive(Debug)]
pub struct CommitRealTime {
    log: Arc<CommitLog>,
    intervals: Intervals,
}

impl CommitRealTime {
    /// Commits `log` as the options say.
    pub fn new(log: Arc<CommitLog>, config: &StoreConfig) -> Self {
        let intervals = Intervals::new(
            config.commit_interval_commit_log,
            config.commit_commit_log_least_pages,
            config.commit_commit_log_thorough_interval,
        );
        Self { log, intervals }
    }
}

impl Stepped for CommitRealTime {
    fn step(&mut self, now: Instant) -> Result<Next> {
        // A log that was stopped is committed by its last flush.
        if self.log.appended.poisoned().is_some() {
            return Ok(Next::Done);
        }
        let is_wanted = self.log.commit_wanted.get() > self.log.committed.get();
        let pages = self.log.uncommitted() / PAGE_SIZE;
        self.intervals.step(now, is_wanted, pages, || self.log.commit())
    }

    fn awaited(&self) -> (Arc<Watermark>, i64) {
        (
            self.log.commit_wanted.clone(),
            self.intervals.awaited(self.log.committed.get()),
        )
    }

    fn fail(&self, cause: Error) {
        self.log.poison(cause);
    }
}
