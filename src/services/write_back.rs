//! Write-back of the log, at an interval or for a waiting caller: commits from the transient store pool, syncs, and the release of
//! cached pages (drop-behind).

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::{PAGE_SIZE, StoreConfig};
use crate::error::{Error, Result};
use crate::log::CommitLog;
use crate::services::stepped::{Next, RETRY_AFTER, Stepped};
use crate::watermark::Watermark;

/// The bytes that are dropped at once.
const STEP: u64 = 16 << 20;

/// The schedule of one service.
#[derive(Debug)]
pub(super) struct Intervals {
    interval: Duration,
    least_pages: u64,
    thorough_interval: Duration,
    /// The time of the next check of the number of pages.
    due: Option<Instant>,
    /// The time at which the service works regardless of the number of pages.
    thorough_due: Option<Instant>,
    /// The time of the next attempt after a shortage.
    retry_at: Option<Instant>,
}

impl Intervals {
    /// Creates a schedule; times are in ms.
    pub(super) fn new(interval: u64, least_pages: u64, thorough_interval: u64) -> Self {
        Self {
            interval: Duration::from_millis(interval),
            least_pages,
            thorough_interval: Duration::from_millis(thorough_interval),
            due: None,
            thorough_due: None,
            retry_at: None,
        }
    }

    /// Calls `work` if it is wanted, overdue, or due with enough pages. If `work` meets a
    /// [shortage](crate::error::Error::is_shortage) before it has done anything, it is called again later.
    pub(super) fn step(&mut self, now: Instant, is_wanted: bool, pages: u64, work: impl FnOnce() -> Result<()>) -> Result<Next> {
        if self.retry_at.is_some_and(|at| now < at) {
            return Ok(Next::Idle { until: self.retry_at });
        }
        self.retry_at = None;
        let thorough_due = *self.thorough_due.get_or_insert(now + self.thorough_interval);
        let is_due = self.due.is_some_and(|due| due <= now);
        if is_due {
            self.due = None;
        }
        if is_wanted || thorough_due <= now || (is_due && pages >= self.least_pages) {
            match work() {
                Ok(()) => self.thorough_due = Some(now + self.thorough_interval),
                Err(cause) if cause.is_shortage() => self.retry_at = Some(now + RETRY_AFTER),
                Err(cause) => return Err(cause),
            }
        }
        let due = *self.due.get_or_insert(now + self.interval);
        let next = self.thorough_due.map_or(due, |thorough_due| due.min(thorough_due));
        Ok(Next::Idle {
            until: Some(self.retry_at.unwrap_or(next)),
        })
    }

    /// Returns the offset that announces work before that time, if everything is done up to `done`.
    pub(super) fn awaited(&self, done: i64) -> i64 {
        self.retry_at.map_or(done + 1, |_| i64::MAX)
    }
}

/// The commit service: commits the log at an interval, and on request: by an append with many pending bytes or a full pool, or by a
/// read.
#[derive(Debug)]
pub struct CommitRealTime {
    log: Arc<CommitLog>,
    intervals: Intervals,
}

impl CommitRealTime {
    /// Creates the service for `log` with the intervals of the options.
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
        // A stopped log is committed by its last flush.
        if self.log.watermarks.appended.poisoned().is_some() {
            return Ok(Next::Done);
        }
        let is_wanted = self.log.commit_wanted().get() > self.log.watermarks.committed.get();
        let pages = self.log.uncommitted() / PAGE_SIZE;
        self.intervals.step(now, is_wanted, pages, || self.log.commit())
    }

    fn awaited(&self) -> (Arc<Watermark>, i64) {
        (
            self.log.commit_wanted().clone(),
            self.intervals.awaited(self.log.watermarks.committed.get()),
        )
    }

    fn fail(&self, cause: Error) {
        self.log.poison(cause);
    }
}

/// The flush service: syncs the log. All callers that wait during a sync share the next one.
#[derive(Debug)]
pub struct FlushRealTime {
    log: Arc<CommitLog>,
    /// The offset up to which durability is requested. Never past the end of the log. Poisoned when the flusher is to end.
    wanted: Arc<Watermark>,
    intervals: Intervals,
    drop_behind: DropBehind,
}

impl FlushRealTime {
    /// Creates a service that syncs whenever `wanted` rises, and at the intervals of the options. It keeps the last `cached` bytes
    /// of the log, and everything that is not `dispatched`, in the page cache.
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
        let is_wanted = self.wanted.get() > self.log.watermarks.flushed.get();
        let pages = self.log.unflushed_pages();
        let next = self.intervals.step(now, is_wanted, pages, || self.log.flush().map(drop))?;
        Ok(if self.drop_behind.step() { Next::Again } else { next })
    }

    fn awaited(&self) -> (Arc<Watermark>, i64) {
        (self.wanted.clone(), self.intervals.awaited(self.log.watermarks.flushed.get()))
    }

    fn fail(&self, cause: Error) {
        self.log.poison(cause);
    }
}

/// Drop-behind: keeps the last bytes of the log in the page cache, and drops older ones that this process has appended. A cache that only
/// grows needs new memory for each page, which can cost more than the append on a virtual machine.
#[derive(Debug)]
pub(super) struct DropBehind {
    log: Arc<CommitLog>,
    dispatched: Arc<Watermark>,
    /// The bytes before the end of the log that stay cached.
    budget: i64,
    /// The end of the dropped range.
    dropped: u64,
}

impl DropBehind {
    /// Keeps `budget` bytes, and everything that is not `dispatched`.
    pub(super) fn new(log: Arc<CommitLog>, dispatched: Arc<Watermark>, budget: i64) -> Self {
        let dropped = log.watermarks.flushed.get() as u64;
        Self {
            log,
            dispatched,
            budget,
            dropped,
        }
    }

    /// Drops one step, and returns true if there may be another one.
    pub(super) fn step(&mut self) -> bool {
        let flushed = self.log.watermarks.flushed.get();
        let kept_from = flushed
            .min(self.dispatched.get())
            .min(self.log.watermarks.appended.get() - self.budget);
        let end = self.log.files().end_of_step(self.dropped, STEP);
        if i64::try_from(end).is_ok_and(|end| end <= kept_from) {
            // Pages that cannot be dropped only cost memory.
            let _ = self.log.drop_cached(self.dropped..end);
            self.dropped = end;
            return true;
        }
        false
    }
}
