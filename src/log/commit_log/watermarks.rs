//! The watermarks of an appendable log, and which of them coincide in each write mode.
//!
//! | write mode | an append copies its record to | *committed* | *readable* |
//! |-|-|-|-|
//! | [`WriteMode::Mapped`] | the mapped segment | is *appended* | is *appended* |
//! | [`WriteMode::Pool`] | the transient store pool; a commit writes it to the segment | is raised by a commit | is *committed* |
//! | [`WriteMode::Sync`] | the same; a sync commits first | is raised by a commit | is *flushed* |
//!
//! In each mode *flushed* is raised by a sync, and *appended* >= *committed* >= *flushed*.

use std::sync::Arc;

use crate::error::Error;
use crate::watermark::Watermark;

/// The path of an appended record to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMode {
    /// `ASYNC_FLUSH` without a transient store pool.
    Mapped,
    /// `ASYNC_FLUSH` with a transient store pool.
    Pool,
    /// `SYNC_FLUSH`, which has a pool.
    Sync,
}

/// The four watermarks of a log. Clones share them.
#[derive(Debug, Clone)]
pub struct Watermarks {
    /// Every byte below it is written: to the pool, or to its segment.
    pub appended: Arc<Watermark>,
    /// Every byte below it is written to its segment.
    pub committed: Arc<Watermark>,
    /// Every byte below it may be read and dispatched.
    pub readable: Arc<Watermark>,
    /// Every byte below it survives a power failure. Poisoned when no later byte is acknowledged any more.
    pub flushed: Arc<Watermark>,
}

impl Watermarks {
    /// Creates the watermarks of a log that ends at `end`.
    pub fn new(end: i64, mode: WriteMode) -> Self {
        let at_end = || Arc::new(Watermark::new(end));
        let (appended, flushed) = (at_end(), at_end());
        let committed = match mode {
            WriteMode::Mapped => appended.clone(),
            WriteMode::Pool | WriteMode::Sync => at_end(),
        };
        let readable = match mode {
            WriteMode::Mapped | WriteMode::Pool => committed.clone(),
            WriteMode::Sync => flushed.clone(),
        };
        Self {
            appended,
            committed,
            readable,
            flushed,
        }
    }

    /// Returns the error of a caller whose bytes are not written or not made durable because of `cause`.
    pub(super) fn poisoned(&self, cause: Error) -> Error {
        Error::poisoned(cause, self.flushed.get())
    }
}
