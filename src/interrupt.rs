//! A way out of long calls: their loops ask the caller from time to time whether to go on.
//!
//! The question is kept for the thread that makes the call, so no function between the caller and the loop has to pass it on.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::error::Result;

/// The time between two questions, at least.
pub const INTERVAL: Duration = Duration::from_millis(50);

type Ask = Rc<dyn Fn() -> Result<()>>;

/// The most checks that are made without a look at the clock: a look costs as much as reading a record.
const MAX_SKIPPED: u32 = 64;
/// If the checks since the last look took less than this, more of them are made before the next look.
const SHORT: Duration = Duration::from_millis(1);

struct Asked {
    ask: Ask,
    next: Instant,
    /// When the clock was last looked at.
    looked_at: Instant,
    /// Checks to make without a look after each look.
    skipped: u32,
}

impl Asked {
    fn new(ask: Ask) -> Self {
        let now = Instant::now();
        Self {
            ask,
            next: now + INTERVAL,
            looked_at: now,
            skipped: 0,
        }
    }

    /// Looks at the clock. Whether it is time for the question, and how many checks to make before the next look.
    fn look(&mut self) -> (bool, u32) {
        let now = Instant::now();
        let is_fast = now - self.looked_at < SHORT;
        self.skipped = if is_fast { (self.skipped * 2 + 1).min(MAX_SKIPPED) } else { 0 };
        self.looked_at = now;
        let is_due = now >= self.next;
        if is_due {
            self.next = now + INTERVAL;
        }
        (is_due, self.skipped)
    }
}

thread_local! {
    /// Checks to make before the next look. Apart from the rest, so that a check costs a load and a store.
    static LEFT: Cell<u32> = const { Cell::new(0) };
    /// `None` outside of an interruptible call.
    static ASKED: RefCell<Option<Asked>> = const { RefCell::new(None) };
}

/// Restores the question of the outer call, also after a panic.
struct Outer(Option<Asked>);

impl Drop for Outer {
    fn drop(&mut self) {
        ASKED.set(self.0.take());
        LEFT.set(0);
    }
}

/// Runs `work`. While it runs, the loops inside ask `ask` whether to go on, and end with the error that it gives.
pub fn interruptible<T>(ask: impl Fn() -> Result<()> + 'static, work: impl FnOnce() -> T) -> T {
    let _outer = Outer(ASKED.replace(Some(Asked::new(Rc::new(ask)))));
    LEFT.set(0);
    work()
}

/// Asks the caller whether to go on, if the last question is [`INTERVAL`] old. The long loops of reads and of batches call it.
///
/// # Errors
/// What the caller answers: see [`interruptible`].
#[inline]
pub fn check() -> Result<()> {
    match LEFT.get().checked_sub(1) {
        Some(left) => {
            LEFT.set(left);
            Ok(())
        }
        None => look(),
    }
}

/// As [`check`], after a wait: no check is left out, as those of a fast loop are.
///
/// # Errors
/// As [`check`].
pub fn check_after_wait() -> Result<()> {
    look()
}

fn look() -> Result<()> {
    let due = ASKED.with_borrow_mut(|asked| {
        let Some(asked) = asked else {
            LEFT.set(u32::MAX);
            return None;
        };
        let (is_due, skipped) = asked.look();
        LEFT.set(skipped);
        is_due.then(|| asked.ask.clone())
    });
    // Not while it is borrowed: the question may run code that makes a call of its own.
    due.map_or(Ok(()), |ask| ask())
}
