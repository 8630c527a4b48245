//! Watermarks, the one waiting primitive: a monotonic offset, and threads that wait until it reaches their target.
//!
//! *Appended*, *committed*, *flushed* and *dispatched* are watermarks. A thread that raises one wakes exactly the threads whose
//! target it reached, lowest first. No thread polls.
//!
//! Leader/follower group commit: waiting threads may raise the watermark themselves, one at a time. The *leader*
//! ([`Watermark::wait_or_lead`]) syncs the log for all waiting threads. Those that arrived before it led are its *followers*. They
//! wait at one gate, and one system call wakes all of them.
//!
//! Threads that append again as soon as a sync has released them return a moment later. A leader that starts before they do syncs
//! only for those that arrived during the last sync, and two halves of the threads alternate. So the next leader is the thread that
//! completes the group: as many threads as the last leader found, itself included. It needs no wake, because it has just arrived.
//! If some of them do not come, a waiting thread leads a moment later ([`Leading::finish`]).
//!
//! The states of a thread in [`Watermark::wait_or_lead`]:
//!
//! ```text
//!   arrives
//!      |
//!      v       the group is complete, or lead_at has come
//!    open  ------------------------------------------------------> leads
//!    ^   |                                                           |
//!    |   | another thread of the group leads                         | finishes, or fails
//!    |   v                                                           v
//!    |  led  ---- the leader ends, the target is reached ----> returns
//!    |   |
//!    +---+ the leader ends, the target is not reached
//!
//!   From open and led a thread also returns at its target, a poison, or its deadline.
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::sync::{AtomicI64, AtomicUsize, Gate, Mutex, MutexGuard, Thread, current, now, park, park_timeout};

/// The outcome of a wait.
#[derive(Debug, Clone)]
pub enum Wait {
    /// The watermark has reached the target.
    Reached,
    /// The deadline has passed.
    TimedOut,
    /// The watermark cannot reach the target any more, for this reason.
    Poisoned(Error),
}

/// A monotonic offset.
#[derive(Debug, Default)]
pub struct Watermark {
    value: AtomicI64,
    /// The number of waiting threads. Raising the watermark takes no lock while it is 0.
    waiting: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Threads that only wait and never lead, by target and arrival.
    bystanders: BTreeMap<(i64, u64), Thread>,
    arrivals: u64,
    /// Threads that may lead, and have arrived since the leader started.
    open: Group,
    /// The followers of the current leader. `None` while no thread leads.
    led: Option<Group>,
    /// The number of threads that are expected to arrive before one of them leads.
    expected: usize,
    /// The time at which one of them leads, however many have arrived.
    lead_at: Option<Instant>,
    poisoned: Option<Error>,
}

/// Threads that sleep until one of them leads, or has led.
#[derive(Debug)]
struct Group {
    gate: Arc<Gate>,
    size: usize,
    /// The lowest target. Targets of threads that have left count, too.
    lowest: i64,
    /// The highest target.
    highest: i64,
    /// Set if one of them sleeps only until the group is to be led.
    is_timed: bool,
}

/// The right of one thread to raise the watermark for all waiting threads. After its drop another thread may lead.
#[derive(Debug)]
pub struct Leading<'w> {
    mark: &'w Watermark,
    finished: Option<(i64, Duration)>,
}

/// The next step of a thread that has read the state.
enum NextStep {
    Leads,
    Ends(Wait),
    Sleeps {
        /// The longest sleep without a wake.
        left: Option<Duration>,
        /// Set if it sleeps only until the whole group is to be led.
        keeps_time: bool,
    },
}

impl Watermark {
    /// Creates a watermark that starts at `value`.
    pub fn new(value: i64) -> Self {
        Self {
            value: AtomicI64::new(value),
            ..Self::default()
        }
    }

    /// Returns its value.
    pub fn get(&self) -> i64 {
        self.value.load(Ordering::Acquire)
    }

    /// Raises it to `value`, if that is higher, and wakes the threads that wait for `value` or less.
    pub fn advance(&self, value: i64) {
        // Sequentially consistent, as in `wait` and `wait_or_lead`: of two threads that each write one of the two numbers and then
        // read the other, at least one sees the write of the other.
        self.value.fetch_max(value, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.wake(value, |_| None);
        }
    }

    /// Ends the rise of the watermark. Every thread that waits, now or later, for more than its value gets `cause`. The first cause
    /// stays.
    pub fn poison(&self, cause: Error) {
        self.wake(i64::MAX, |state| {
            state.poisoned.get_or_insert(cause);
            None
        });
    }

    /// Returns the reason why it was poisoned, if it was.
    pub fn poisoned(&self) -> Option<Error> {
        self.state().poisoned.clone()
    }

    /// Returns the number of waiting threads.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Waits until the watermark is at least `target`, or until the deadline. Without a deadline it waits for ever.
    pub fn wait(&self, target: i64, deadline: Option<Instant>) -> Wait {
        if self.get() >= target {
            return Wait::Reached;
        }
        // Counted before the value is read, so that either this thread sees the new value or `advance` sees this thread.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let (mut time, mut state) = (now(), self.state());
        state.arrivals += 1;
        let key = (target, state.arrivals);
        let outcome = loop {
            let left = match self.check(&state, target, deadline, time) {
                Ok(left) => left,
                Err(wait) => break wait,
            };
            state.bystanders.entry(key).or_insert_with(current);
            drop(state);
            left.map_or_else(park, park_timeout);
            (time, state) = (now(), self.state());
        };
        state.bystanders.remove(&key);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    /// Waits as [`Watermark::wait`] does, unless this thread becomes the leader: then it must raise the watermark.
    ///
    /// # Errors
    /// The outcome of the wait, if the thread does not lead.
    pub fn wait_or_lead(&self, target: i64, deadline: Option<Instant>) -> Result<Leading<'_>, Wait> {
        if self.get() >= target {
            return Err(Wait::Reached);
        }
        // As in `wait`.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let (mut time, mut state) = (now(), self.state());
        let mut gate = None;
        let outcome = loop {
            match self.check_to_lead(&mut state, target, deadline, time) {
                NextStep::Leads => {
                    break Ok(Leading {
                        mark: self,
                        finished: None,
                    });
                }
                NextStep::Ends(wait) => break Err(wait),
                NextStep::Sleeps { left, keeps_time } => {
                    let entered = state.enter(gate, target, keeps_time);
                    let seen = entered.seen();
                    drop(state);
                    if entered.wait(seen, left) {
                        // The leader has raised the watermark for the whole group.
                        self.waiting.fetch_sub(1, Ordering::SeqCst);
                        return Err(Wait::Reached);
                    }
                    (time, state) = (now(), self.state());
                    state.leave(&entered, keeps_time);
                    gate = Some(entered);
                }
            }
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        // This thread may be the sleeper until `lead_at`, or may have been woken for that.
        let untimed = state.untimed();
        drop(state);
        if let Some(gate) = untimed {
            gate.wake_one();
        }
        outcome
    }

    /// Returns the longest sleep of a thread, or the outcome of its wait.
    fn check(&self, state: &State, target: i64, deadline: Option<Instant>, time: Instant) -> Result<Option<Duration>, Wait> {
        if self.value.load(Ordering::SeqCst) >= target {
            return Err(Wait::Reached);
        }
        if let Some(cause) = &state.poisoned {
            return Err(Wait::Poisoned(cause.clone()));
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(time));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(Wait::TimedOut);
        }
        Ok(left)
    }

    fn check_to_lead(&self, state: &mut State, target: i64, deadline: Option<Instant>, time: Instant) -> NextStep {
        let outcome = self.check(state, target, deadline, time);
        if state.led.is_some() || matches!(outcome, Err(Wait::Reached | Wait::Poisoned(_))) {
            return outcome.map_or_else(NextStep::Ends, |left| NextStep::Sleeps { left, keeps_time: false });
        }
        let is_complete = state.open.size + 1 >= state.expected;
        let until_led = state.lead_at.map(|lead_at| lead_at.saturating_duration_since(time));
        match until_led.filter(|left| !is_complete && !left.is_zero()) {
            // Applies also to a thread whose deadline has passed, because the others of its group sleep.
            None => {
                state.led = Some(std::mem::take(&mut state.open));
                NextStep::Leads
            }
            Some(until_led) => outcome.map_or_else(NextStep::Ends, |left| {
                let keeps_time = !state.open.is_timed;
                let until_led = keeps_time.then_some(until_led);
                NextStep::Sleeps {
                    left: left.into_iter().chain(until_led).min(),
                    keeps_time,
                }
            }),
        }
    }

    /// Changes the state, and wakes the threads that wait for `reached` or less, and the group whose leader has ended, if the
    /// change returns one.
    fn wake(&self, reached: i64, change: impl FnOnce(&mut State) -> Option<Group>) {
        let (ended, woken, untimed, bystanders) = {
            let mut state = self.state();
            let ended = change(&mut state);
            let groups = [Some(&state.open), state.led.as_ref()].into_iter().flatten();
            let woken: Vec<_> = groups
                .filter(|group| group.lowest <= reached)
                .map(|group| group.gate.clone())
                .collect();
            let untimed = state.untimed();
            (ended, woken, untimed, state.take_bystanders(reached))
        };
        // Without the lock, which the threads take next. Those that may lead come first, because they append again.
        match ended {
            Some(group) if group.size == 0 => {}
            Some(group) if group.highest <= reached => group.gate.open(),
            Some(group) => group.gate.wake_all(),
            None => {}
        }
        for gate in woken {
            gate.wake_all();
        }
        for thread in bystanders {
            thread.unpark();
        }
        if let Some(gate) = untimed {
            gate.wake_one();
        }
    }

    /// Locks the state. A panic of a thread that holds the lock leaves the state consistent, because every change to it is one
    /// call.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take_bystanders(&mut self, reached: i64) -> Vec<Thread> {
        let mut taken = Vec::new();
        while let Some(first) = self.bystanders.first_entry().filter(|entry| entry.key().0 <= reached) {
            taken.push(first.remove());
        }
        taken
    }

    /// Enters the open group, or the led group again if the thread has slept at its gate.
    fn enter(&mut self, slept_at: Option<Arc<Gate>>, target: i64, keeps_time: bool) -> Arc<Gate> {
        let again = self
            .led
            .as_mut()
            .filter(|led| slept_at.is_some_and(|gate| Arc::ptr_eq(&led.gate, &gate)));
        let group = again.unwrap_or(&mut self.open);
        group.size += 1;
        group.lowest = group.lowest.min(target);
        group.highest = group.highest.max(target);
        group.is_timed |= keeps_time;
        group.gate.clone()
    }

    /// Leaves the group of this gate, at which the thread has slept.
    fn leave(&mut self, gate: &Arc<Gate>, kept_time: bool) {
        let mut groups = [Some(&mut self.open), self.led.as_mut()].into_iter().flatten();
        if let Some(group) = groups.find(|group| Arc::ptr_eq(&group.gate, gate)) {
            group.size -= 1;
            group.is_timed &= !kept_time;
        }
    }

    /// Returns the gate of a group that is not led, and in which no thread sleeps only until `lead_at`.
    fn untimed(&self) -> Option<Arc<Gate>> {
        let is_untimed = self.led.is_none() && self.open.size > 0 && !self.open.is_timed;
        is_untimed.then(|| self.open.gate.clone())
    }
}

impl Default for Group {
    fn default() -> Self {
        Self {
            gate: Arc::default(),
            size: 0,
            lowest: i64::MAX,
            highest: i64::MIN,
            is_timed: false,
        }
    }
}

impl Leading<'_> {
    /// Raises the watermark to `value`, ends leading, and then wakes the threads that waited for `value` or less. The next leader
    /// waits for as many threads as this one has found, itself included, for at most `patience`.
    pub fn finish(mut self, value: i64, patience: Duration) {
        self.finished = Some((value, patience));
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        if let Some((value, _)) = self.finished {
            self.mark.value.fetch_max(value, Ordering::SeqCst);
        }
        let reached = self.finished.map_or(i64::MIN, |(value, _)| value);
        self.mark.wake(reached, |state| {
            let led = state.led.take();
            if let Some((_, patience)) = self.finished {
                state.expected = led.as_ref().map_or(0, |led| led.size) + state.open.size + 1;
                state.lead_at = Some(now() + patience);
            }
            led
        });
    }
}
