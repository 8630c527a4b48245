//! Preparation of the space that appends write to: segments created ahead of need, and pages prefaulted ahead of the end of the
//! log.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::log::CommitLog;
use crate::services::stepped::{Next, Stepped};
use crate::watermark::Watermark;

/// The time whose appended bytes make the window past the end of the log. Prefaulting one MiB takes about one ms.
const PACE: Duration = Duration::from_millis(32);
/// The bounds of the window. A large one costs disk writes: the system writes back prefaulted pages although they are still empty.
const MIN_WINDOW: u64 = 1 << 20;
const MAX_WINDOW: u64 = 16 << 20;
/// The divisor of the segment size that limits the window.
const PART_OF_SEGMENT: u64 = 4;
/// The most bytes that one step prefaults, so that the next step takes new appends into account.
const STEP_BYTES: u64 = 1 << 20;
/// The shortest time over which the rate of appends is measured.
const MIN_MEASURED: Duration = Duration::from_millis(1);

/// The allocator service: creates the next segment as soon as the first message is appended to the current one.
#[derive(Debug)]
pub struct AllocateMappedFile {
    log: Arc<CommitLog>,
}

impl AllocateMappedFile {
    /// Creates the service for the segments of `log`.
    pub fn new(log: Arc<CommitLog>) -> Self {
        Self { log }
    }
}

impl Stepped for AllocateMappedFile {
    /// # Errors
    /// None: the append that needs a segment reports the failure to create it.
    fn step(&mut self, _now: Instant) -> Result<Next> {
        if self.log.watermarks.appended.poisoned().is_some() {
            return Ok(Next::Done);
        }
        self.log.create_requested_segment();
        Ok(Next::Idle { until: None })
    }

    fn awaited(&self) -> (Arc<Watermark>, i64) {
        self.log.segments_requested()
    }

    fn fail(&self, cause: Error) {
        self.log.poison(cause);
    }
}

/// The prefault service: keeps pages past the end of the log ready for writing.
#[derive(Debug)]
pub struct SupplyPages {
    log: Arc<CommitLog>,
    max_window: u64,
    window: u64,
    /// The end of the prefaulted pages.
    supplied: u64,
    /// The time of the last measurement of the rate, and the end of the log at that time.
    measured: Option<(Instant, u64)>,
    /// The end of the log from which on there is work.
    next_at: u64,
}

impl SupplyPages {
    /// Creates the service for the pages of `log`. It does nothing until a message is appended.
    pub fn new(log: Arc<CommitLog>) -> Self {
        let end = log.watermarks.appended.get() as u64;
        let max_window = MAX_WINDOW.min(log.segment_size() / PART_OF_SEGMENT);
        Self {
            log,
            max_window,
            window: MIN_WINDOW.min(max_window),
            supplied: end,
            measured: None,
            next_at: end + 1,
        }
    }

    /// Sets the window by the rate since the last measurement.
    fn measure(&mut self, now: Instant, end: u64) {
        let (before, from) = *self.measured.get_or_insert((now, end));
        let elapsed = now.saturating_duration_since(before);
        if elapsed >= MIN_MEASURED {
            let in_window = u128::from(end - from) * PACE.as_nanos() / elapsed.as_nanos();
            self.window = u64::try_from(in_window)
                .unwrap_or(u64::MAX)
                .clamp(MIN_WINDOW.min(self.max_window), self.max_window);
            self.measured = Some((now, end));
        }
    }
}

impl Stepped for SupplyPages {
    /// # Errors
    /// None. Pages that cannot be prefaulted are faulted in by the appends.
    fn step(&mut self, now: Instant) -> Result<Next> {
        if self.log.watermarks.appended.poisoned().is_some() {
            return Ok(Next::Done);
        }
        let end = self.log.watermarks.appended.get() as u64;
        if end < self.next_at {
            return Ok(Next::Idle { until: None });
        }
        self.measure(now, end);
        self.supplied = self.supplied.max(end);
        let until = (end + self.window).min(self.supplied + STEP_BYTES);
        if self.supplied < until {
            let Ok(supplied) = self.log.supply(self.supplied..until) else {
                return Ok(Next::Done);
            };
            self.supplied = supplied;
        }
        if self.supplied == until && until < end + self.window {
            return Ok(Next::Again);
        }
        // Also if the next segment is not created yet.
        self.next_at = self.supplied.max(end + self.window) - self.window / 2;
        Ok(Next::Idle { until: None })
    }

    fn awaited(&self) -> (Arc<Watermark>, i64) {
        (self.log.watermarks.appended.clone(), self.next_at as i64)
    }

    fn fail(&self, _cause: Error) {}
}
