//! The barrier of reads in the writing process: a read waits until everything readable at the call is in queues and index.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::interrupt::{self, INTERVAL};
use crate::watermark::{Wait, Watermark};

/// A barrier for reads, which opens when *dispatched* reaches the value of *readable* at the start of the read.
#[derive(Debug)]
pub struct ReadBarrier {
    readable: Arc<Watermark>,
    dispatched: Arc<Watermark>,
    /// The number of system calls of the dispatcher that have returned. A rise counts as progress, even if nothing was dispatched.
    calls: AtomicU64,
    /// Set while the dispatcher waits for a shortage to end.
    is_short: AtomicBool,
    /// Set while the dispatcher may be inside a sync, which lasts as long as the disk takes.
    is_syncing: AtomicBool,
}

impl ReadBarrier {
    /// Creates a barrier between two watermarks.
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

    /// Waits until everything that is readable now is dispatched, and returns true if it is. Before each wait it calls `help` with
    /// the target offset; `help` may dispatch messages. It returns false if dispatching has ended, waits for a
    /// [shortage](crate::error::Error::is_shortage) to end, or makes no progress for `patience`. A sync is progress, however long
    /// it takes. Time in which this process was stopped does not count, because the dispatcher was stopped, too.
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

    /// Notes that the dispatcher has returned from a system call that may take long. `may_sync` is set if it may sync before the
    /// next such note.
    pub(super) fn call_returned(&self, may_sync: bool) {
        self.is_syncing.store(may_sync, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the flag that the dispatcher waits for a shortage to end. While it is set, no read waits for the dispatcher.
    pub(super) fn set_short(&self, is_short: bool) {
        self.is_short.store(is_short, Ordering::Relaxed);
    }
}
