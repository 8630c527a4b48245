//! A service never blocks and never looks at the clock: a thread can run it, or a caller that wants to decide what happens when.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::watermark::Watermark;

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

/// A service of a store.
pub trait Stepped: Debug + Send {
    /// Does what there is to do at the time `now`, at most a little of it.
    ///
    /// # Errors
    /// What keeps it from going on: see [`Stepped::fail`].
    fn step(&mut self, now: Instant) -> Result<Next>;

    /// The watermark that brings it work, and where that must be for it. A poisoned one is work, too.
    fn awaited(&self) -> (Arc<Watermark>, i64);

    /// There will be no more steps, for this reason: nothing is appended any more, and all who wait for the service are told.
    fn fail(&self, cause: Error);
}
