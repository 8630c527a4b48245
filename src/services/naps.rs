//! How the dispatcher waits for messages. To wake a thread that sleeps for a watermark costs the one that raises it 6 us, which is more than
//! an append takes. So for a moment after it had work the dispatcher sleeps by the clock and then looks. Nobody has to wake it, and an idle
//! store sleeps.

use std::time::{Duration, Instant};

use crate::sync::{let_timers_be_exact, now, sleep};
use crate::watermark::Watermark;

/// So long after its last work a thread naps.
const ACTIVE: Duration = Duration::from_millis(2);
/// After so long a time work is no longer expected at once.
const EAGER: Duration = Duration::from_micros(400);
/// A nap is this part of the time since the last work, before that time and after it. A nap takes some 25 us
/// at least, and some us of a processor.
const PARTS_OF_IDLE: [u32; 2] = [32, 4];

/// When a thread has had work.
#[derive(Debug)]
pub(super) struct Naps {
    /// What it waited for then.
    target: i64,
    since: Instant,
}

impl Naps {
    /// Of the thread that calls, which has not had any.
    pub(super) fn begin() -> Self {
        let_timers_be_exact();
        Self { target: 0, since: now() }
    }

    /// Waits for the watermark, or until then. A new target means that there was work.
    pub(super) fn wait(&mut self, mark: &Watermark, target: i64, until: Option<Instant>) {
        if self.target != target {
            *self = Self { target, since: now() };
        }
        while mark.get() < target && mark.poisoned().is_none() {
            let time = now();
            let idle = time.saturating_duration_since(self.since);
            if idle >= ACTIVE {
                mark.wait(target, until);
                return;
            }
            let [eager, late] = PARTS_OF_IDLE;
            let nap = idle / if idle < EAGER { eager } else { late };
            let left = until.map_or(nap, |until| until.saturating_duration_since(time));
            if left.is_zero() && until.is_some() {
                return;
            }
            sleep(nap.min(left));
        }
    }
}
