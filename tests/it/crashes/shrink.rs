//! Shortens a failing history: operations are removed as long as the same check still fails.

use std::time::{Duration, Instant};

use super::campaign::{Drawn, Plan, carry_out};
use super::examine::Counts;
use super::history::History;
use super::model::Violation;

/// The longest time for which a failing history is shortened.
const PATIENCE: Duration = Duration::from_secs(20);
/// Runs of each candidate: with other operations the power goes at other calls.
const RUNS: u64 = 6;

/// A shorter history that fails the same check, with the plan and the seed that show it.
pub(super) fn shortest<O: Drawn>(history: &History<O>, seed: u64, plan: Plan, violation: &Violation) -> (History<O>, Plan, u64) {
    let until = Instant::now() + PATIENCE;
    // The power goes before every call, so that a candidate does not pass by luck.
    let dense = Plan { one_in: 1, ..plan };
    let fails = |candidate: &History<O>| {
        let mut runs = [(plan, seed)].into_iter().chain((0..RUNS).map(|run| (dense, run)));
        runs.find(|(plan, run)| {
            let outcome = carry_out(candidate, *run, *plan, &Counts::default(), None);
            outcome.is_err_and(|other| other.check == violation.check)
        })
    };
    let mut shortest = history.clone();
    let mut by = (plan, seed);
    // Half of the operations at once, then smaller pieces: few operations of a long history matter.
    let mut piece = shortest.operations.len().div_ceil(2);
    while piece > 0 {
        let before = shortest.operations.len();
        let mut end = before;
        while end > 0 && Instant::now() < until {
            let start = end.saturating_sub(piece);
            let candidate = shortest.without(start..end);
            if let Some(found) = fails(&candidate) {
                (shortest, by) = (candidate, found);
            }
            end = start;
        }
        let is_shorter = shortest.operations.len() < before && Instant::now() < until;
        piece = if is_shorter {
            piece.min(shortest.operations.len())
        } else {
            piece / 2
        };
    }
    (shortest, by.0, by.1)
}
