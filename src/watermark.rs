//! The one waiting primitive: an offset that only rises, and threads that wait for it to pass theirs.
//!
//! *Appended*, *flushed* and *dispatched* are watermarks. A thread that raises one wakes exactly the threads whose offset it reached,
//! lowest first. No thread polls.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Instant;

use crate::error::Error;

/// How a wait ended.
#[derive(Debug, Clone)]
pub enum Wait {
    /// The watermark reached the target.
    Reached,
    /// The deadline came first.
    TimedOut,
    /// It can no longer come: why.
    Poisoned(Error),
}

/// An offset that only rises.
#[derive(Debug, Default)]
pub struct Watermark {
    value: AtomicI64,
    /// How many threads are in `state.waiting`. Raising the watermark takes no lock while it is 0.
    waiting: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By target and arrival.
    waiting: BTreeMap<(i64, u64), Thread>,
    arrivals: u64,
    poisoned: Option<Error>,
}

impl Watermark {
    /// A watermark that starts at `value`.
    pub fn new(value: i64) -> Self {
        Self {
            value: AtomicI64::new(value),
            ..Self::default()
        }
    }

    /// Its value.
    pub fn get(&self) -> i64 {
        self.value.load(Ordering::Acquire)
    }

    /// Raises it to `value`, if that is higher, and wakes the threads that wait for `value` or less.
    pub fn advance(&self, value: i64) {
        // Sequentially consistent, as in `enter`: of two threads that each write one of the two numbers and then read the other,
        // at least one sees what the other wrote.
        self.value.fetch_max(value, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.wake(value);
        }
    }

    /// The watermark rises no more. Every thread that waits, now or later, for more than its value gets `cause`. The first cause stays.
    pub fn poison(&self, cause: Error) {
        self.state().poisoned.get_or_insert(cause);
        self.wake(i64::MAX);
    }

    /// Why it was poisoned, if it was.
    pub fn poisoned(&self) -> Option<Error> {
        self.state().poisoned.clone()
    }

    /// Waits until the watermark is at least `target`, or until the deadline. Without a deadline it waits for ever.
    pub fn wait(&self, target: i64, deadline: Option<Instant>) -> Wait {
        if self.get() >= target {
            return Wait::Reached;
        }
        let place = self.enter(target);
        let outcome = loop {
            if self.value.load(Ordering::SeqCst) >= target {
                break Wait::Reached;
            }
            if let Some(cause) = self.poisoned() {
                break Wait::Poisoned(cause);
            }
            match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => thread::park(),
                Some(left) if left.is_zero() => break Wait::TimedOut,
                Some(left) => thread::park_timeout(left),
            }
        };
        self.leave(place);
        outcome
    }

    fn enter(&self, target: i64) -> (i64, u64) {
        let mut state = self.state();
        state.arrivals += 1;
        let place = (target, state.arrivals);
        state.waiting.insert(place, thread::current());
        // Counted before the caller looks at the value again, so that either it sees the new value or `advance` sees it.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        place
    }

    fn leave(&self, place: (i64, u64)) {
        if self.state().waiting.remove(&place).is_some() {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn wake(&self, reached: i64) {
        let mut state = self.state();
        while let Some(entry) = state.waiting.first_entry().filter(|entry| entry.key().0 <= reached) {
            entry.remove().unpark();
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// A thread that panics while it holds the lock leaves the map whole, because every change to the map is one call.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
