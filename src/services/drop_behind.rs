//! Drops what was written long ago from the page cache. A cache that grows with the log takes new memory for each page; one that is bounded
//! takes the pages that were dropped.

use std::sync::Arc;

use crate::log::CommitLog;
use crate::watermark::Watermark;

/// Bytes that are dropped at once.
const STEP: u64 = 16 << 20;

/// Keeps the last bytes of the log in the page cache, and drops what this process has appended before them.
#[derive(Debug)]
pub(super) struct DropBehind {
    log: Arc<CommitLog>,
    dispatched: Arc<Watermark>,
    /// Bytes before the end of the log that stay.
    budget: i64,
    /// Up to where pages are dropped.
    dropped: u64,
}

impl DropBehind {
    /// Keeps `budget` bytes, and what is not `dispatched`.
    pub(super) fn new(log: Arc<CommitLog>, dispatched: Arc<Watermark>, budget: i64) -> Self {
        let dropped = log.flushed.get() as u64;
        Self {
            log,
            dispatched,
            budget,
            dropped,
        }
    }

    /// Drops one step, and says whether there may be another one.
    pub(super) fn step(&mut self) -> bool {
        let flushed = self.log.flushed.get();
        let kept_from = flushed.min(self.dispatched.get()).min(self.log.appended.get() - self.budget);
        let end = self.log.end_of_step(self.dropped, STEP);
        if i64::try_from(end).is_ok_and(|end| end <= kept_from) {
            // What cannot be dropped costs memory and nothing else.
            let _ = self.log.drop_cached(self.dropped..end);
            self.dropped = end;
            return true;
        }
        false
    }
}
