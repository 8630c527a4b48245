//! A way out of long calls: their loops ask now and then whether the caller still wants the answer.
//!
//! The question belongs to the thread that makes the call, so that no function between the caller and the loop has to pass it on.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::error::Result;

/// The time between two questions, at least.
pub const INTERVAL: Duration = Duration::from_millis(50);

type Ask = Rc<dyn Fn() -> Result<()>>;

/// Checks without a look at the clock, at most: a look costs as much as reading a record.
const MAX_SKIPPED: u32 = 64;
/// Checks are skipped while so many of them take less than this.
const SHORT: Duration = Duration::from_millis(1);

struct Asked {
    ask: Ask,
    next: Instant,
    /// When the clock was last looked at.
    looked_at: Instant,
    /// Checks to skip after each look, and those that are left of them.
    skipped: u32,
    left: u32,
}

impl Asked {
    fn new(ask: Ask) -> Self {
        let now = Instant::now();
        Self {
            ask,
            next: now + INTERVAL,
            looked_at: now,
            skipped: 0,
            left: 0,
        }
    }

    /// Whether it is time for the question.
    fn is_due(&mut self) -> bool {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            return false;
        }
        let now = Instant::now();
        let is_fast = now - self.looked_at < SHORT;
        self.skipped = if is_fast { (self.skipped * 2 + 1).min(MAX_SKIPPED) } else { 0 };
        (self.looked_at, self.left) = (now, self.skipped);
        let is_due = now >= self.next;
        if is_due {
            self.next = now + INTERVAL;
        }
        is_due
    }
}

thread_local! {
    /// `None` where nobody can interrupt.
    static ASKED: RefCell<Option<Asked>> = const { RefCell::new(None) };
}

/// Puts the question of the call around this one back, after a panic too.
struct Outer(Option<Asked>);

impl Drop for Outer {
    fn drop(&mut self) {
        ASKED.set(self.0.take());
    }
}

/// Runs `work`. While it runs, the loops inside ask `ask` whether to go on, and end with the error that it gives.
pub fn interruptible<T>(ask: impl Fn() -> Result<()> + 'static, work: impl FnOnce() -> T) -> T {
    let _outer = Outer(ASKED.replace(Some(Asked::new(Rc::new(ask)))));
    work()
}

/// Asks whether to go on, if somebody can be asked and has not been for a while. Every loop whose length the caller does not see calls it.
///
/// # Errors
/// What the caller answers: see [`interruptible`].
pub fn check() -> Result<()> {
    let due = ASKED.with_borrow_mut(|asked| {
        let asked = asked.as_mut()?;
        asked.is_due().then(|| asked.ask.clone())
    });
    // Not while it is borrowed: the question may run code that makes a call of its own.
    due.map_or(Ok(()), |ask| ask())
}
