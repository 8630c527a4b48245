//! The one waiting primitive: an offset that only rises, and threads that wait for it to pass theirs.
//!
//! *Appended*, *committed*, *flushed* and *dispatched* are watermarks. A thread that raises one wakes exactly the threads whose offset it
//! reached, lowest first. No thread polls.
//!
//! Threads that wait may raise the watermark themselves, one at a time: the *leader* ([`Watermark::wait_or_lead`]). Group commit is this:
//! the leader syncs the log for all who wait.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::error::Error;
use crate::sync::{AtomicI64, AtomicUsize, Mutex, MutexGuard, Thread, current, now, park, park_timeout};

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
    waiting: BTreeMap<(i64, u64), Waiter>,
    arrivals: u64,
    /// The leader that waits for followers, and how many waiting threads it wants.
    gathering: Option<(usize, Thread)>,
    poisoned: Option<Error>,
}

#[derive(Debug)]
struct Waiter {
    thread: Thread,
    may_lead: bool,
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
        match self.wait_until(target, deadline, false, || None::<Infallible>) {
            Ok(never) => match never {},
            Err(wait) => wait,
        }
    }

    /// As [`Watermark::wait`], unless `lead` gives something: the thread then leads, and is to raise the watermark. Another thread is asked
    /// when [`Watermark::hand_over`] is called.
    ///
    /// # Errors
    /// How the wait ended, if the thread does not lead.
    pub fn wait_or_lead<T>(&self, target: i64, deadline: Option<Instant>, lead: impl Fn() -> Option<T>) -> Result<T, Wait> {
        self.wait_until(target, deadline, true, lead)
    }

    /// Lets another thread of those that wait lead. Called when the leader has ended.
    pub fn hand_over(&self) {
        let next = {
            let state = self.state();
            let mut waiting = state.waiting.values();
            waiting.find(|waiter| waiter.may_lead).map(|waiter| waiter.thread.clone())
        };
        if let Some(next) = next {
            next.unpark();
        }
    }

    /// Waits until so many threads wait, or until the deadline, and says how many do. Only the leader calls it.
    pub fn gather(&self, wanted: usize, deadline: Instant) -> usize {
        loop {
            let mut state = self.state();
            let (come, left) = (state.waiting.len(), deadline.saturating_duration_since(now()));
            if come >= wanted || left.is_zero() {
                state.gathering = None;
                return come;
            }
            // Again each time: the follower that woke this thread took it out, and may have left since.
            state.gathering = Some((wanted, current()));
            drop(state);
            park_timeout(left);
        }
    }

    /// How many threads wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    fn wait_until<T>(
        &self,
        target: i64,
        deadline: Option<Instant>,
        may_lead: bool,
        lead: impl Fn() -> Option<T>,
    ) -> Result<T, Wait> {
        if self.get() >= target {
            return Err(Wait::Reached);
        }
        let place = self.enter(target, may_lead);
        let outcome = loop {
            if self.value.load(Ordering::SeqCst) >= target {
                break Err(Wait::Reached);
            }
            if let Some(cause) = self.poisoned() {
                // It may have been raised after the look at the value, and before it was poisoned.
                let is_reached = self.get() >= target;
                break Err(if is_reached { Wait::Reached } else { Wait::Poisoned(cause) });
            }
            // After it has entered: a leader that ends from now on finds it.
            if let Some(leading) = lead() {
                break Ok(leading);
            }
            match deadline.map(|deadline| deadline.saturating_duration_since(now())) {
                None => park(),
                Some(left) if left.is_zero() => break Err(Wait::TimedOut),
                Some(left) => park_timeout(left),
            }
        };
        let was_waiting = self.leave(place);
        if may_lead && was_waiting && outcome.is_err() {
            // A leader may just have handed over to this thread, which does not lead. If it was woken instead, the leader that woke it
            // hands over later.
            self.hand_over();
        }
        outcome
    }

    fn enter(&self, target: i64, may_lead: bool) -> (i64, u64) {
        let mut state = self.state();
        state.arrivals += 1;
        let place = (target, state.arrivals);
        let thread = current();
        state.waiting.insert(place, Waiter { thread, may_lead });
        let come = state.waiting.len();
        if let Some((_, leader)) = state.gathering.take_if(|(wanted, _)| come >= *wanted) {
            leader.unpark();
        }
        // Counted before the caller looks at the value again, so that either it sees the new value or `advance` sees it.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        place
    }

    /// Whether it was still waiting, and not woken.
    fn leave(&self, place: (i64, u64)) -> bool {
        let was_waiting = self.state().waiting.remove(&place).is_some();
        if was_waiting {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        was_waiting
    }

    fn wake(&self, reached: i64) {
        let mut woken = Vec::new();
        {
            let mut state = self.state();
            while let Some(first) = state.waiting.first_entry().filter(|entry| entry.key().0 <= reached) {
                woken.push(first.remove().thread);
            }
            self.waiting.fetch_sub(woken.len(), Ordering::SeqCst);
        }
        // Without the lock, which the threads take next.
        for thread in woken {
            thread.unpark();
        }
    }

    /// A thread that panics while it holds the lock leaves the map whole, because every change to the map is one call.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
