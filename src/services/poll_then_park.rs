//! Spin-then-park for the dispatcher, with timed sleeps instead of a spin. Waking a parked thread costs the thread that raises the
//! watermark 6 us, more than an append. So for a moment after its last work the dispatcher polls, and needs no wake. In an idle
//! store it is parked. A caller that waits for a message dispatches it itself, and does not wait for the next poll.

use std::time::{Duration, Instant};

use crate::sync::{now, sleep};
use crate::watermark::Watermark;

/// The time after its last work for which a thread polls before it parks.
const ACTIVE: Duration = Duration::from_millis(2);
/// The time between two polls. A poll takes some 10 us of processor time.
const INTERVAL: Duration = Duration::from_micros(200);

/// The wait of a thread that polls for a moment and then parks.
#[derive(Debug)]
pub(super) struct PollThenPark {
    /// The value that it waits for.
    target: i64,
    /// The time of its last work.
    since: Instant,
}

impl PollThenPark {
    /// Starts the first wait.
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
                left => sleep(left.map_or(INTERVAL, |left| left.min(INTERVAL))),
            }
        }
    }
}
