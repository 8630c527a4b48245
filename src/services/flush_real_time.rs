//! The flusher: makes the log durable at an interval, and at once when a caller waits for that. `RocketMQ` calls it `FlushRealTime`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::log::CommitLog;
use crate::services::stepped::{Next, Stepped};
use crate::watermark::Watermark;

/// Syncs the log. All callers that wait during a sync share the next one.
#[derive(Debug)]
pub struct FlushRealTime {
    log: Arc<CommitLog>,
    /// Up to here a caller waits for the log to be durable. Never past the end of the log. Poisoned when the flusher is to end.
    wanted: Arc<Watermark>,
    interval: Duration,
    /// When the next sync comes if no caller waits.
    due: Option<Instant>,
}

impl FlushRealTime {
    /// Syncs whenever `wanted` rises, and after every `interval_ms`.
    pub fn new(log: Arc<CommitLog>, wanted: Arc<Watermark>, interval_ms: u64) -> Self {
        Self {
            log,
            wanted,
            interval: Duration::from_millis(interval_ms),
            due: None,
        }
    }
}

impl Stepped for FlushRealTime {
    fn step(&mut self, now: Instant) -> Result<Next> {
        if self.wanted.poisoned().is_some() {
            return Ok(Next::Done);
        }
        let is_due = self.due.is_some_and(|due| due <= now);
        if is_due || self.wanted.get() > self.log.flushed.get() {
            self.log.flush()?;
            self.due = None;
        }
        let until = *self.due.get_or_insert(now + self.interval);
        Ok(Next::Idle { until: Some(until) })
    }

    fn awaited(&self) -> (Arc<Watermark>, i64) {
        (self.wanted.clone(), self.log.flushed.get() + 1)
    }

    fn fail(&self, cause: Error) {
        self.log.poison(cause);
    }
}
