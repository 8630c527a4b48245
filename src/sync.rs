//! What a [`Watermark`](crate::watermark::Watermark) is made of: here, what std has. `tests/interleavings` compiles the same watermark
//! with a `sync` of its own, which runs its threads in every order.

use std::time::Instant;

pub(crate) use std::sync::atomic::{AtomicI64, AtomicUsize};
pub(crate) use std::sync::{Mutex, MutexGuard};
pub(crate) use std::thread::{Thread, current, park, park_timeout};

/// The time that deadlines are compared with.
pub(crate) fn now() -> Instant {
    Instant::now()
}
