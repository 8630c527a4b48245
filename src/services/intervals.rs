//! When a service works that writes the log out: at an interval if there are enough pages, after a longer one whatever there is, and at
//! once when somebody asks.

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::services::stepped::{Next, RETRY_AFTER};

/// The intervals of one service.
#[derive(Debug)]
pub(super) struct Intervals {
    interval: Duration,
    least_pages: u64,
    thorough_interval: Duration,
    /// When the next look at the pages comes.
    due: Option<Instant>,
    /// When the service works however few pages there are.
    thorough_due: Option<Instant>,
    /// When it goes on after a shortage.
    retry_at: Option<Instant>,
}

impl Intervals {
    /// Times are in ms.
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

    /// Calls `work` if it is time, somebody wants it, or enough pages are there when a look at them is due. After a
    /// [shortage](crate::error::Error::is_shortage), which `work` may meet before it has done anything, it is called again a while later.
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

    /// The offset that brings work before that time, where everything is done up to `done`.
    pub(super) fn awaited(&self, done: i64) -> i64 {
        self.retry_at.map_or(done + 1, |_| i64::MAX)
    }
}
