//! A hand-over of timer messages, and a power cut after it.

use std::path::Path;
use std::sync::Arc;

use mqstore::broker::BrokerController;
use mqstore::format::{TIMER_TOPIC, property};
use mqstore::storage::Step;

use super::examine::{dispatch_all, root};
use super::model::{Checked, ensure, works};
use super::run::machine;
use super::scenes::{GEOMETRY, message, open};
use crate::writing::with;

/// A writer hands its timers over in a store with the timer wheel of an earlier broker, and the power goes.
pub(super) fn handed_over(without: Option<Step>, seed: u64) -> Checked {
    let check = "a wheel that a hand-over has removed stays removed";
    let env = machine();
    env.leave_out(without);
    let store = Arc::new(works(check, open(&env, GEOMETRY.config()))?);
    let deliver_at = (env.now() + 60_000).to_string();
    let appended = store.append(with(message(10), &[(property::TIMER_DELIVER_MS, &deliver_at)]));
    works(check, appended)?;
    works(check, dispatch_all(&store))?;
    let wheel = root().join("timerwheel");
    env.put(&wheel, b"wheel");
    let broker = BrokerController::new_stepped(&store);
    let handed = works(check, broker.hand_over())?;
    ensure(handed.timers == 1, check, || format!("{handed:?} of {TIMER_TOPIC}"))?;
    let (cut, _) = env.crash(seed);
    let is_there = cut.files(root()).iter().any(|(path, _)| path == Path::new(&wheel));
    ensure(!is_there, check, || format!("{} is there again", wheel.display()))
}

#[test]
fn a_wheel_that_a_hand_over_has_removed_stays_removed() {
    for seed in 0..50 {
        handed_over(None, seed).unwrap();
    }
}
