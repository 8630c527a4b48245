//! What runs beside the callers of a store, as steps: a thread runs them, or a caller that decides what happens when.
//!
//! A step does a little work, at a time that it is given. It may write and sync, and wait for a sync that another thread has begun, so it
//! can last as long as the disk takes. It never waits for new work.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::watermark::Watermark;

/// After so long a time a shortage of room on the disk, of descriptors or of memory may be over.
pub(super) const RETRY_AFTER: Duration = Duration::from_millis(100);

/// What a service wants after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The next step at once: there is more to do.
    Again,
    /// Nothing until what it [awaits](Stepped::awaited) has come, or until this time.
    Idle {
        /// When there is something to do in any case.
        until: Option<Instant>,
    },
    /// No more steps.
    Done,
}

/// A service, as the threads and the callers see it.
pub trait Stepped: Debug + Send {
    /// Does what there is to do at the time `now`, at most a little of it.
    ///
    /// # Errors
    /// What keeps it from going on: see [`Stepped::fail`].
    fn step(&mut self, now: Instant) -> Result<Next>;

    /// The watermark that brings it work, and the value from which it does. A poisoned watermark is work, too.
    fn awaited(&self) -> (Arc<Watermark>, i64);

    /// Called after a step has failed with `cause`: no step follows. Ends appending, and wakes all who wait for the service with `cause`.
    fn fail(&self, cause: Error);
}
