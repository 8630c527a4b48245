//! Interruption of long calls: their loops regularly call a function of the caller, which can end them with an error.
//!
//! The function is stored for the thread that makes the call, so it need not be passed through every function down to the loop.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::error::Result;

/// The least time between two calls of that function.
pub const INTERVAL: Duration = Duration::from_millis(50);

type Ask = Rc<dyn Fn() -> Result<()>>;

/// The most checks that are made without reading the clock, because reading it costs as much as reading a record.
const MAX_SKIPPED: u32 = 64;
/// If the checks since the last reading took less than this, more of them skip the clock before the next reading.
const SHORT: Duration = Duration::from_millis(1);

struct Asked {
    ask: Ask,
    next: Instant,
    /// The time of the last reading of the clock.
    read_at: Instant,
    /// The number of checks that skip the clock after each reading.
    skipped: u32,
}

impl Asked {
    fn new(ask: Ask) -> Self {
        let now = Instant::now();
        Self {
            ask,
            next: now + INTERVAL,
            read_at: now,
            skipped: 0,
        }
    }

    /// Reads the clock. Returns true if a call of the function is due, and the number of checks that skip the clock next.
    fn read_clock(&mut self) -> (bool, u32) {
        let now = Instant::now();
        let is_fast = now - self.read_at < SHORT;
        self.skipped = if is_fast { (self.skipped * 2 + 1).min(MAX_SKIPPED) } else { 0 };
        self.read_at = now;
        let is_due = now >= self.next;
        if is_due {
            self.next = now + INTERVAL;
        }
        (is_due, self.skipped)
    }
}

thread_local! {
    /// The checks before the next reading of the clock. Separate from the rest, so that a check costs a load and a store.
    static LEFT: Cell<u32> = const { Cell::new(0) };
    /// The current function; `None` outside of an interruptible call.
    static ASKED: RefCell<Option<Asked>> = const { RefCell::new(None) };
}

/// Restores the function of the outer call, also after a panic.
struct Outer(Option<Asked>);

impl Drop for Outer {
    fn drop(&mut self) {
        ASKED.set(self.0.take());
        LEFT.set(0);
    }
}

/// Runs `work`. The loops inside regularly call `ask`, and end with the error that it returns.
pub fn interruptible<T>(ask: impl Fn() -> Result<()> + 'static, work: impl FnOnce() -> T) -> T {
    let _outer = Outer(ASKED.replace(Some(Asked::new(Rc::new(ask)))));
    LEFT.set(0);
    work()
}

/// Calls the caller's function, if the last call is [`INTERVAL`] old. The long loops of reads and of batches call this.
///
/// # Errors
/// Those of the caller's function: see [`interruptible`].
#[inline]
pub fn check() -> Result<()> {
    match LEFT.get().checked_sub(1) {
        Some(left) => {
            LEFT.set(left);
            Ok(())
        }
        None => check_clock(),
    }
}

/// Checks as [`check`] does, but always reads the clock: for use after a wait.
///
/// # Errors
/// Those of [`check`].
pub fn check_after_wait() -> Result<()> {
    check_clock()
}

/// Calls the caller's function now: for use after a system call that a signal has ended, which may wait for ever when it is repeated.
///
/// # Errors
/// Those of [`check`].
pub fn check_now() -> Result<()> {
    let ask = ASKED.with_borrow(|asked| asked.as_ref().map(|asked| asked.ask.clone()));
    // Called after the borrow ends, as in `check_clock`.
    ask.map_or(Ok(()), |ask| ask())
}

fn check_clock() -> Result<()> {
    let due = ASKED.with_borrow_mut(|asked| {
        let Some(asked) = asked else {
            LEFT.set(u32::MAX);
            return None;
        };
        let (is_due, skipped) = asked.read_clock();
        LEFT.set(skipped);
        is_due.then(|| asked.ask.clone())
    });
    // Called after the borrow ends: the function may make an interruptible call itself.
    due.map_or(Ok(()), |ask| ask())
}
