//! Makes the segments of the log ahead of need. `RocketMQ` calls it `AllocateMappedFileService`.

use std::sync::Arc;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::log::CommitLog;
use crate::services::stepped::{Next, Stepped};
use crate::watermark::Watermark;

/// Makes the next segment as soon as the first message is appended to the current one.
#[derive(Debug)]
pub struct AllocateMappedFile {
    log: Arc<CommitLog>,
}

impl AllocateMappedFile {
    /// Makes the segments of `log`.
    pub fn new(log: Arc<CommitLog>) -> Self {
        Self { log }
    }
}

impl Stepped for AllocateMappedFile {
    /// # Errors
    /// None: a segment that cannot be made is a matter of the append that needs it.
    fn step(&mut self, _now: Instant) -> Result<Next> {
        if self.log.appended.poisoned().is_some() {
            return Ok(Next::Done);
        }
        self.log.make_asked_segment();
        Ok(Next::Idle { until: None })
    }

    fn awaited(&self) -> (Arc<Watermark>, i64) {
        self.log.segments_asked()
    }

    fn fail(&self, cause: Error) {
        self.log.poison(cause);
    }
}
