//! Crashes, simulated: random histories on a simulated machine, whose every crash image must recover to what was acknowledged.
//!
//! One thread drives a whole store, services included, so one seed decides everything: the history, the calls before which the
//! power goes, and what of the unsynced bytes and names arrives. `MQSTORE_CRASHES=50` makes the campaigns fifty times as long.

mod campaign;
mod examine;
mod failing;
mod files;
mod flushed_mark;
mod found;
mod groups;
mod half_recovered;
mod handing_over;
mod history;
mod lower_layer;
mod making;
mod model;
mod nodes;
mod reading;
mod rebuilding;
mod repairing;
mod replicating;
mod run;
mod scenes;
mod shrink;
mod steps;
mod torn;

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use mqstore::config::FlushDiskType;

use campaign::{Plan, assert_none_fails, at_least, carry_out, fail_every_call, first_failure, seeds};
use examine::{Care, Counts};
use history::{History, Operation};

#[test]
fn every_power_cut_keeps_what_was_acked() {
    let plan = Plan {
        longest: 60,
        one_in: 12,
        care: Care { deep: 0, one_in: 4 },
        without: None,
    };
    let counts = assert_none_fails::<Operation>("every_power_cut_keeps_what_was_acked", seeds(0, 700), plan);
    let [images, torn, garbled] = [&counts.images, &counts.torn, &counts.garbled].map(|count| count.load(Ordering::Relaxed));
    println!(
        "crash images: {images}; in {torn} a sector is torn, in {garbled} of these a message is another for it that nobody acknowledged"
    );
    assert!(images >= at_least(20_000), "{images} images");
    assert!(
        torn >= at_least(800) && garbled <= torn / 20,
        "{torn} torn images, {garbled} garbled"
    );
}

#[test]
fn crashes_inside_nested_recoveries_recover_to_the_same_store() {
    let plan = Plan {
        longest: 40,
        one_in: 60,
        care: Care { deep: 2, one_in: 8 },
        without: None,
    };
    let test = "crashes_inside_nested_recoveries_recover_to_the_same_store";
    let counts = assert_none_fails::<Operation>(test, seeds(1_000_000, 60), plan);
    let [two, three] = [0, 1].map(|deep: usize| counts.nested[deep].load(Ordering::Relaxed));
    println!("crash images: {two} inside a recovery, {three} inside the recovery of one of those");
    assert!(two + three >= at_least(2000), "{two} and {three} images");
}

#[test]
fn a_call_of_a_recovery_that_fails_costs_nothing_after_the_next_one() {
    let plan = Plan {
        longest: 40,
        one_in: 30,
        care: Care { deep: 0, one_in: 1 },
        without: None,
    };
    let test = "a_call_of_a_recovery_that_fails_costs_nothing_after_the_next_one";
    let counts = assert_none_fails::<Operation>(test, seeds(2_000_000, 150), plan);
    let failed = counts.failed_recoveries.load(Ordering::Relaxed);
    println!("recoveries of which a call failed: {failed}");
    assert!(failed >= at_least(1000), "{failed} recoveries");
}

#[test]
fn a_failing_call_is_reported_and_costs_no_acknowledged_message() {
    let plan = Plan {
        longest: 8,
        one_in: 1,
        care: Care { deep: 0, one_in: 6 },
        without: None,
    };
    let counts = Counts::default();
    let work = |seed| fail_every_call(&History::draw(seed, plan.longest), seed, plan, &counts);
    if let Some((seed, violation)) = first_failure(&seeds(0, 40), work) {
        panic!("seed {seed}: {violation}");
    }
    let faults = counts.faults.load(Ordering::Relaxed);
    println!("failed calls: {faults}");
    assert!(faults >= at_least(3000), "{faults} failed calls");
}

#[test]
fn a_crash_at_any_call_of_any_small_history_keeps_what_was_acked() {
    let plan = Plan {
        longest: 0,
        one_in: 1,
        care: Care { deep: 0, one_in: 6 },
        without: None,
    };
    let counts = Counts::default();
    let modes = [(FlushDiskType::Async, 0), (FlushDiskType::Async, 1), (FlushDiskType::Sync, 0)];
    let histories = modes.map(|(flush, buffers)| History::all_small(3, flush, buffers)).concat();
    let work = |number| carry_out(&histories[number as usize], number, plan, &counts, None);
    if let Some((number, violation)) = first_failure(&(0..histories.len() as u64), work) {
        let mut told = Vec::new();
        let _ = carry_out(&histories[number as usize], number, plan, &counts, Some(&mut told));
        panic!("history {number}: {violation}\n{}", told.join("\n"));
    }
    let images = counts.images.load(Ordering::Relaxed);
    println!(
        "crash images: {images} of all {} histories of up to 3 operations",
        histories.len()
    );
    assert!(images >= 20_000, "{images} images");
}

#[test]
#[ignore = "takes a minute on two cores: make slowtest runs it"]
fn every_step_is_needed() {
    let steps = steps::all();
    let survivors = Mutex::new(Vec::new());
    let work = |number| {
        let verdict = steps::leave_out(steps[number as usize]);
        println!("{verdict}");
        if verdict.killed_by.is_none() {
            survivors.lock().unwrap().push(verdict.step);
        }
        Ok(())
    };
    first_failure(&(0..steps.len() as u64), work);
    let survivors = survivors.into_inner().unwrap();
    assert!(survivors.is_empty(), "left out, these steps break nothing: {survivors:?}");
}
