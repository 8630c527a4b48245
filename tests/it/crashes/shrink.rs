//! The shortest history that still fails: operations go as long as the same check breaks without them.

use std::time::{Duration, Instant};

use super::campaign::{Plan, carry_out};
use super::examine::Counts;
use super::history::History;
use super::model::Violation;

/// How long a failing history is shortened.
const PATIENCE: Duration = Duration::from_secs(6);
/// Runs that each candidate gets: with other operations the power goes at other calls.
const RUNS: u64 = 6;

/// A shorter history that breaks the same check, with the plan and the seed by which it does.
pub(super) fn shortest(history: &History, seed: u64, plan: Plan, violation: &Violation) -> (History, Plan, u64) {
    let until = Instant::now() + PATIENCE;
    // The power goes before every call, so that a candidate does not pass by luck.
    let dense = Plan { one_in: 1, ..plan };
    let fails = |candidate: &History| {
        let mut runs = [(plan, seed)].into_iter().chain((0..RUNS).map(|run| (dense, run)));
        runs.find(|(plan, run)| {
            let outcome = carry_out(candidate, *run, *plan, &Counts::default(), None);
            outcome.is_err_and(|other| other.check == violation.check)
        })
    };
    let mut shortest = history.clone();
    let mut by = (plan, seed);
    let mut place = shortest.operations.len();
    while place > 0 && Instant::now() < until {
        place -= 1;
        let candidate = shortest.without(place);
        if let Some(found) = fails(&candidate) {
            (shortest, by) = (candidate, found);
        }
    }
    (shortest, by.0, by.1)
}
