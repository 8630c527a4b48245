//! The flusher: makes the log durable every so often, and at once when somebody waits for it. `RocketMQ` calls it `FlushRealTime`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::log::CommitLog;
use crate::watermark::{Wait, Watermark};

/// Syncs the log; all who wait meanwhile share the next sync.
#[derive(Debug)]
pub struct FlushRealTime {
    log: Arc<CommitLog>,
    /// Up to where somebody waits for the log to be durable; at most where it ends. Poisoned when the flusher is to end.
    wanted: Arc<Watermark>,
    interval: Duration,
}

impl FlushRealTime {
    /// Syncs whenever `wanted` rises, and after every `interval_ms`.
    pub fn new(log: Arc<CommitLog>, wanted: Arc<Watermark>, interval_ms: u64) -> Self {
        Self {
            log,
            wanted,
            interval: Duration::from_millis(interval_ms),
        }
    }

    /// Waits until a sync is due or wanted, and makes it. `false` when none is wanted any more.
    ///
    /// # Errors
    /// As [`CommitLog::flush`]; the log is poisoned.
    pub fn step(&self) -> Result<bool> {
        let due = Instant::now() + self.interval;
        if let Wait::Poisoned(_) = self.wanted.wait(self.log.flushed.get() + 1, Some(due)) {
            return Ok(false);
        }
        self.log.flush()?;
        Ok(true)
    }
}
