//! A background service that works in steps: a thread runs them, or a caller that decides their order.
//!
//! A step does a little work, and gets the time as an argument. It may write and sync, and wait for a sync that another thread has
//! begun, so it can last as long as the disk takes. It never waits for new work.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::watermark::Watermark;

/// The time after which a shortage of disk space, descriptors or memory may be over.
pub(super) const RETRY_AFTER: Duration = Duration::from_millis(100);

/// The request of a service after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another step at once: there is more to do.
    Again,
    /// No step until the [awaited](Stepped::awaited) value, or until this time.
    Idle {
        /// The time of the next step in any case.
        until: Option<Instant>,
    },
    /// No more steps.
    Done,
}

/// A service as seen by threads and callers.
pub trait Stepped: Debug + Send {
    /// Does a little of the work that is due at the time `now`.
    ///
    /// # Errors
    /// The failure that ends the service: see [`Stepped::fail`].
    fn step(&mut self, now: Instant) -> Result<Next>;

    /// Returns the watermark that announces work, and the value from which on there is work. A poisoned watermark is work, too.
    fn awaited(&self) -> (Arc<Watermark>, i64);

    /// Handles the failure of a step; no step follows. Ends appending, and wakes all threads that wait for the service with
    /// `cause`.
    fn fail(&self, cause: Error);
}
