//! A background service as steps: a thread runs them, or a caller that decides their order.
//!
//! A step does a little work, at a time that it is given. It may write and sync, and wait for a sync that another thread has begun, so it
//! can last as long as the disk takes. It never waits for new work.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::watermark::Watermark;

/// The time after which a shortage of room on the disk, of descriptors or of memory may be over.
pub(super) const RETRY_AFTER: Duration = Duration::from_millis(100);

/// The wish of a service after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The next step at once: there is more to do.
    Again,
    /// No step until the value that it [awaits](Stepped::awaited) has come, or until this time.
    Idle {
        /// When there is something to do in any case.
        until: Option<Instant>,
    },
    /// No more steps.
    Done,
}

/// A service, as the threads and the callers see it.
pub trait Stepped: Debug + Send {
    /// Does a little of the work that is due at the time `now`.
    ///
    /// # Errors
    /// The failure that ends the service: see [`Stepped::fail`].
    fn step(&mut self, now: Instant) -> Result<Next>;

    /// The watermark that brings it work, and the value from which it does. A poisoned watermark is work, too.
    fn awaited(&self) -> (Arc<Watermark>, i64);

    /// Called after a step has failed with `cause`: no step follows. Ends appending, and wakes all who wait for the service with `cause`.
    fn fail(&self, cause: Error);
}
