//! Locks that ignore poisoning, and the primitives of a [`Watermark`](crate::watermark::Watermark), here those of std and the
//! system. `tests/interleavings` compiles the watermark, the wait of the dispatcher, the allocator of segments and the commits of
//! the transient store pool with a `sync` of its own, which runs their threads in every order.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::thread::futex;

pub(crate) use std::sync::atomic::{AtomicI64, AtomicUsize};
pub(crate) use std::sync::{Mutex, MutexGuard};
pub(crate) use std::thread::{Thread, current, park, park_timeout, sleep};

/// Returns the time with which deadlines are compared.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A gate at which threads sleep until another thread wakes one of them, or all of them with one system call.
#[derive(Debug, Default)]
pub(crate) struct Gate(AtomicU32);

impl Gate {
    /// Set once the gate is open: no thread sleeps at it any more. The other bits count wakes.
    const OPEN: u32 = 1;
    const ONE_WAKE: u32 = 2;

    /// Returns the state that [`Gate::wait`] takes: a wake after this call ends that wait.
    pub(crate) fn seen(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Sleeps until a wake, for at most `left`, and returns true if the gate is open. May also return without a wake.
    pub(crate) fn wait(&self, seen: u32, left: Option<Duration>) -> bool {
        if seen & Self::OPEN == 0 {
            let left = left.and_then(|left| left.try_into().ok());
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, seen, left.as_ref());
        }
        self.seen() & Self::OPEN != 0
    }

    /// Wakes the thread that has slept longest.
    pub(crate) fn wake_one(&self) {
        self.0.fetch_add(Self::ONE_WAKE, Ordering::Release);
        self.wake(1);
    }

    /// Wakes every thread.
    pub(crate) fn wake_all(&self) {
        self.0.fetch_add(Self::ONE_WAKE, Ordering::Release);
        self.wake(i32::MAX.unsigned_abs());
    }

    /// Wakes every thread, now and later.
    pub(crate) fn open(&self) {
        self.0.fetch_or(Self::OPEN, Ordering::Release);
        self.wake(i32::MAX.unsigned_abs());
    }

    fn wake(&self, most: u32) {
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, most);
    }
}

/// Locks a mutex, also after a panic of a thread that held it. The protected state is consistent at every moment: under the append
/// lock, for example, the end moves last, so that no partial record lies before it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a mutex, as [`lock`] does, unless another thread holds it.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(held) => Some(held),
        Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
