//! Locks that outlive a panic, and what a [`Watermark`](crate::watermark::Watermark) is made of: here, what std has. `tests/interleavings`
//! compiles the watermark, the allocator of segments and the commits of the transient store pool with a `sync` of its own, which runs
//! their threads in every order.

use std::sync::{PoisonError, TryLockError};
use std::time::Instant;

pub(crate) use std::sync::atomic::{AtomicI64, AtomicUsize};
pub(crate) use std::sync::{Mutex, MutexGuard};
pub(crate) use std::thread::{Thread, current, park, park_timeout};

/// The time that deadlines are compared with.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Locks even after a panic of a thread that held the lock. What the lock protects is as it should be at every moment: under the append
/// lock, for one, the end moves last, so that no half of a record lies before it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`], unless another thread holds it.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(held) => Some(held),
        Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
