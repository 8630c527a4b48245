//! The flusher: makes the log durable at an interval, and at once when a caller asks for that. `RocketMQ` calls it `FlushRealTime`.

use std::sync::Arc;
use std::time::Instant;

use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::log::CommitLog;
use crate::services::drop_behind::DropBehind;
use crate::services::intervals::Intervals;
use crate::services::stepped::{Next, Stepped};
use crate::watermark::Watermark;

/// Syncs the log. All callers that wait during a sync share the next one.
#[derive(Debug)]
pub struct FlushRealTime {
    log: Arc<CommitLog>,
    /// Up to here somebody asks for the log to be durable. Never past the end of the log. Poisoned when the flusher is to end.
    wanted: Arc<Watermark>,
    intervals: Intervals,
    drop_behind: DropBehind,
}

impl FlushRealTime {
    /// Syncs whenever `wanted` rises, and at the intervals of the options. Keeps `cached` bytes of the log, and what is not
    /// `dispatched`, in the page cache.
    pub fn new(
        log: Arc<CommitLog>,
        wanted: Arc<Watermark>,
        dispatched: Arc<Watermark>,
        cached: i64,
        config: &StoreConfig,
    ) -> Self {
        let intervals = Intervals::new(
            config.flush_interval_commit_log,
            config.flush_commit_log_least_pages,
            config.flush_commit_log_thorough_interval,
        );
        Self {
            drop_behind: DropBehind::new(log.clone(), dispatched, cached),
            log,
            wanted,
            intervals,
        }
    }
}

impl Stepped for FlushRealTime {
    fn step(&mut self, now: Instant) -> Result<Next> {
        if self.wanted.poisoned().is_some() {
            return Ok(Next::Done);
        }
        let is_wanted = self.wanted.get() > self.log.flushed.get();
        let pages = self.log.unflushed_pages();
        let next = self.intervals.step(now, is_wanted, pages, || self.log.flush().map(drop))?;
        Ok(if self.drop_behind.step() { Next::Again } else { next })
    }

    fn awaited(&self) -> (Arc<Watermark>, i64) {
        (self.wanted.clone(), self.intervals.awaited(self.log.flushed.get()))
    }

    fn fail(&self, cause: Error) {
        self.log.poison(cause);
    }
}
