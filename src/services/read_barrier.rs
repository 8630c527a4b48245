//! The barrier of reads in the writing process: a read waits until everything readable at the call is in queues and index.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::interrupt::{self, INTERVAL};
use crate::watermark::{Wait, Watermark};

/// Holds a read back until *dispatched* reaches *readable* as it was when the read began.
#[derive(Debug)]
pub struct ReadBarrier {
    readable: Arc<Watermark>,
    dispatched: Arc<Watermark>,
    /// Counts the system calls of the dispatcher that have returned. A rise is progress, even if nothing was dispatched.
    calls: AtomicU64,
    /// The dispatcher waits for a shortage to pass.
    is_short: AtomicBool,
    /// The dispatcher is in a stretch of work that may sync, for as long as the disk takes.
    is_syncing: AtomicBool,
}

impl ReadBarrier {
    /// A barrier between what is readable and what is dispatched.
    pub fn new(readable: Arc<Watermark>, dispatched: Arc<Watermark>) -> Self {
        Self {
            readable,
            dispatched,
            calls: AtomicU64::default(),
            is_short: AtomicBool::default(),
            is_syncing: AtomicBool::default(),
        }
    }

    /// Returns true if everything that is readable now is dispatched. Costs two loads.
    pub fn is_open(&self) -> bool {
        self.dispatched.get() >= self.readable.get()
    }

    /// Waits until everything that is readable now is dispatched, and says whether it is. Each look calls `help` first, with the
    /// offset up to which messages are waited for; it may dispatch them. They are not all dispatched if dispatching has ended,
    /// waits for a [shortage](crate::error::Error::is_shortage) to pass, or makes no progress for as long as `patience`. A sync
    /// is progress, however long it takes. Time in which this process was stopped does not count, because the dispatcher was
    /// stopped, too.
    ///
    /// # Errors
    /// Those of [`interrupt::check`] and of `help`.
    pub fn wait(&self, patience: Duration, help: impl Fn(i64) -> Result<()>) -> Result<bool> {
        let target = self.readable.get();
        let mut progress = self.progress();
        let mut left = patience;
        while self.dispatched.get() < target && !self.is_short.load(Ordering::Relaxed) {
            if self.progress() != progress || self.is_syncing.load(Ordering::Relaxed) {
                progress = self.progress();
                left = patience;
            }
            if left.is_zero() {
                break;
            }
            help(target)?;
            let step = left.min(INTERVAL);
            match self.dispatched.wait(target, Some(Instant::now() + step)) {
                Wait::Reached => return Ok(true),
                Wait::Poisoned(_) => break,
                Wait::TimedOut => interrupt::check_after_wait()?,
            }
            left -= step;
        }
        Ok(self.dispatched.get() >= target)
    }

    fn progress(&self) -> (i64, u64) {
        (self.dispatched.get(), self.calls.load(Ordering::Relaxed))
    }

    /// The dispatcher has come back from a call of the system that may take a while. `may_sync`: until the next such call it may sync,
    /// for as long as the disk takes.
    pub(super) fn call_returned(&self, may_sync: bool) {
        self.is_syncing.store(may_sync, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes whether the dispatcher waits for a shortage to pass. While it does, no read waits for it.
    pub(super) fn set_short(&self, is_short: bool) {
        self.is_short.store(is_short, Ordering::Relaxed);
    }
}
