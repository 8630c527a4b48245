//! How the dispatcher waits for messages. To wake a thread that sleeps for a watermark costs the one that raises it 6 us, which
//! is more than an append takes. So for a moment after it had work the dispatcher sleeps by the clock and then looks. Nobody has
//! to wake it, and an idle store sleeps. A caller that waits for a message dispatches it and does not wait for the end of a nap.

use std::time::{Duration, Instant};

use crate::sync::{now, sleep};
use crate::watermark::Watermark;

/// For so long after its last work a thread naps. Then it sleeps until it is woken.
const ACTIVE: Duration = Duration::from_millis(2);
/// How long a nap is. Each takes some 10 us of a processor.
const NAP: Duration = Duration::from_micros(200);

/// When a thread last had work.
#[derive(Debug)]
pub(super) struct Naps {
    /// What it has waited for since then.
    target: i64,
    since: Instant,
}

impl Naps {
    /// Those of a thread that has had no work yet.
    pub(super) fn begin() -> Self {
        Self { target: 0, since: now() }
    }

    /// Waits until the watermark is at least `target`, or until the time `until`. A new target means that there was work.
    pub(super) fn wait(&mut self, mark: &Watermark, target: i64, until: Option<Instant>) {
        if self.target != target {
            *self = Self { target, since: now() };
        }
        while mark.get() < target && mark.poisoned().is_none() {
            let time = now();
            if time.saturating_duration_since(self.since) >= ACTIVE {
                mark.wait(target, until);
                return;
            }
            match until.map(|until| until.saturating_duration_since(time)) {
                Some(Duration::ZERO) => return,
                left => sleep(left.map_or(NAP, |left| left.min(NAP))),
            }
        }
    }
}
