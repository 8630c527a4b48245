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

struct Asked {
    ask: Ask,
    next: Instant,
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
    let _outer = Outer(ASKED.replace(Some(Asked {
        ask: Rc::new(ask),
        next: Instant::now() + INTERVAL,
    })));
    work()
}

/// Asks whether to go on, if somebody can be asked and has not been for a while. Every loop whose length the caller does not see calls it.
///
/// # Errors
/// What the caller answers: see [`interruptible`].
pub fn check() -> Result<()> {
    let due = ASKED.with_borrow_mut(|asked| {
        let asked = asked.as_mut()?;
        let now = Instant::now();
        if now < asked.next {
            return None;
        }
        asked.next = now + INTERVAL;
        Some(asked.ask.clone())
    });
    // Not while it is borrowed: the question may run code that makes a call of its own.
    due.map_or(Ok(()), |ask| ask())
}
