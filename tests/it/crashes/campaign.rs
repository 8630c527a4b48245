//! Runs many seeds on all cores, and reports a failing one.

use std::fmt::Debug;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use mqstore::storage::Step;

use super::examine::{Care, Counts, Examiner};
use super::failing::with_fault;
use super::history::History;
use super::model::{Checked, Violation};
use super::shrink::shortest;
use crate::simulated_env::{Failure, Fault, Random};

/// The operations of one kind of history.
pub(super) trait Drawn: Clone + Debug + Sync {
    /// Draws `count` operations.
    fn draw(random: &mut Random, count: usize) -> Vec<Self>;

    /// Carries a history out, and examines every image taken on the way. Adds lines for people to `told`.
    fn carry_out(
        history: &History<Self>,
        examiner: &Examiner<'_>,
        seed: u64,
        one_in: u64,
        told: Option<&mut Vec<String>>,
    ) -> Checked;
}

/// The work for each seed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// The most operations of a history.
    pub(super) longest: usize,
    /// One of this many calls is preceded by a power cut on a copy of the machine.
    pub(super) one_in: u64,
    pub(super) care: Care,
    /// Steps that do nothing.
    pub(super) without: Option<Step>,
}

/// The variable that multiplies the number of campaigns.
const SCALE: &str = "MQSTORE_CRASHES";
/// The variable that chooses one seed.
const SEED: &str = "MQSTORE_CRASH_SEED";

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// Multiplier for the number of campaign seeds.
pub(super) fn scale() -> u64 {
    let scale = number(SCALE).unwrap_or(1);
    assert!(scale > 0, "{SCALE}=0 tries nothing");
    scale
}

/// Returns `seeds` times the multiplier.
pub(super) fn seeds(first: u64, count: u64) -> Range<u64> {
    first..first + count * scale()
}

/// The least that a campaign of the usual length must have tried. A single seed is not checked.
pub(super) fn at_least(once: u64) -> u64 {
    if number(SEED).is_some() { 0 } else { once * scale() }
}

fn examiner<'a, O>(history: &History<O>, plan: Plan, counts: &'a Counts) -> Examiner<'a> {
    Examiner {
        geometry: history.geometry,
        care: plan.care,
        counts,
        without: plan.without,
    }
}

/// Carries one history out.
pub(super) fn carry_out<O: Drawn>(
    history: &History<O>,
    seed: u64,
    plan: Plan,
    counts: &Counts,
    told: Option<&mut Vec<String>>,
) -> Checked {
    let examiner = examiner(history, plan, counts);
    without_panic(|| O::carry_out(history, &examiner, seed, plan.one_in, told))
}

/// A panic is a violation like any other.
fn without_panic(work: impl FnOnce() -> Checked) -> Checked {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let what = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Violation {
            check: "nothing panics",
            what,
        })
    })
}

/// The first number of the range, in no particular order, for which the work fails; on all cores.
pub(super) fn first_failure(numbers: &Range<u64>, work: impl Fn(u64) -> Checked + Sync) -> Option<(u64, Violation)> {
    let next = AtomicU64::new(numbers.start);
    let is_over = AtomicBool::new(false);
    let failure = Mutex::new(None);
    let work = || {
        while !is_over.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= numbers.end {
                return;
            }
            if let Err(violation) = work(number) {
                is_over.store(true, Ordering::Relaxed);
                failure.lock().unwrap().get_or_insert((number, violation));
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    failure.into_inner().unwrap()
}

/// Tries all seeds, or the chosen one, and fails with everything that helps to find the reason.
pub(super) fn assert_none_fails<O: Drawn>(test: &str, seeds: Range<u64>, plan: Plan) -> Counts {
    let counts = Counts::default();
    let seeds = number(SEED).map_or(seeds, |seed| seed..seed + 1);
    let draw = |seed| History::<O>::draw(seed, plan.longest);
    if let Some((seed, violation)) = first_failure(&seeds, |seed| carry_out(&draw(seed), seed, plan, &counts, None)) {
        panic!("{}", explain::<O>(test, seed, &violation, plan));
    }
    counts
}

fn explain<O: Drawn>(test: &str, seed: u64, violation: &Violation, plan: Plan) -> String {
    let history = History::<O>::draw(seed, plan.longest);
    let (shortest, plan, seed_of_run) = shortest(&history, seed, plan, violation);
    let mut told = Vec::new();
    let again = carry_out(&shortest, seed_of_run, plan, &Counts::default(), Some(&mut told));
    let violation_of_shortest = again.err().unwrap_or_else(|| violation.clone());
    format!(
        "seed {seed}: {violation}\nagain: {SEED}={seed} cargo test --test it -- {test}\nthe shortest history that fails so, of {:?} \
         (run {seed_of_run}): {violation_of_shortest}\n{}\n",
        shortest.geometry,
        told.join("\n")
    )
}

/// The kinds of failure. Each is tried at every call that it concerns.
const FAULTS: [(Failure, bool); 10] = [
    (Failure::Device, false),
    (Failure::Device, true),
    (Failure::Full, false),
    (Failure::Full, true),
    (Failure::TooLarge, false),
    (Failure::TooLarge, true),
    (Failure::Shortage, false),
    (Failure::Shortage, true),
    (Failure::Short, false),
    (Failure::Short, true),
];

/// Carries a history out once for every call that can fail, and each way in which it can.
pub(super) fn fail_every_call(history: &History, seed: u64, plan: Plan, counts: &Counts) -> Checked {
    let examiner = examiner(history, plan, counts);
    for (failure, stays) in FAULTS {
        let mut number = 0;
        loop {
            let fault = Fault { failure, number, stays };
            let mut concerned = 0;
            without_panic(|| with_fault(&examiner, history, fault, seed ^ number).map(|calls| concerned = calls)).map_err(
                |Violation { check, what }| Violation {
                    check,
                    what: format!("{what} ({fault:?}, {:?})", history.operations),
                },
            )?;
            counts.faults.fetch_add(1, Ordering::Relaxed);
            number += 1;
            if concerned < number {
                break;
            }
        }
    }
    Ok(())
}
