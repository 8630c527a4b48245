//! An in-place repair of each damage of verify's table that a kill or a power cut ends at any call: a second repair completes it.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::read::MessageReader;

use super::examine::root;
use super::rebuilding::repaired;
use super::run::machine;
use crate::repairing::{Readable, on_each_row, on_three_damages, readable_of};
use crate::simulated_env::{Failure, Fault, SimulatedEnv};

/// A repair of derived files is ended before one in this many of its calls.
const ONE_IN: u64 = 16;

/// Puts a store directory into a simulated machine. `None` for one with links, pipes or sockets.
fn machine_with(dir: &Path) -> Option<SimulatedEnv> {
    let env = machine();
    let mut dirs = vec![dir.to_owned()];
    while let Some(of) = dirs.pop() {
        let place = |path: &Path| root().join(path.strip_prefix(dir).unwrap());
        env.make_dir(&place(&of));
        for entry in fs::read_dir(&of).unwrap().map(Result::unwrap) {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                dirs.push(entry.path());
            } else if kind.is_file() {
                env.put(&place(&entry.path()), &fs::read(entry.path()).unwrap());
            } else {
                return None;
            }
        }
    }
    Some(env)
}

fn readable(env: &SimulatedEnv) -> Result<Readable, Error> {
    MessageReader::open(&env.shared(), root(), StoreConfig::default()).map(|reader| readable_of(&reader))
}

/// Repairs a store again after a repair that ended early at `place`, and returns what is wrong with the outcome.
fn failure(env: &SimulatedEnv, place: &str, whole: &Readable) -> Option<String> {
    let outcome = repaired(env).map(|report| (report.refusal, report.left));
    let found = readable(env);
    let is_complete = matches!(&outcome, Ok((None, left)) if left.is_empty()) && found.as_ref().ok() == Some(whole);
    (!is_complete).then(|| {
        let count = found.map(|found| found.len());
        format!("{place}: {outcome:?}, {count:?} of {} messages\n", whole.len())
    })
}

/// Ends a repair of the damaged store before one in `one_in` calls, by a kill, a power cut and a failure of the call, repairs it again each
/// time, and returns what is wrong with the outcomes.
fn failures(damaged: &SimulatedEnv, seed: u64, one_in: u64) -> String {
    let env = damaged.copy();
    let is_whole = repaired(&env).is_ok_and(|report| report.refusal.is_none() && report.left.is_empty());
    if !is_whole {
        return String::new();
    }
    let whole = readable(&env).unwrap();
    let mut wrong = String::new();
    for (crash, are_kills) in [("kill", true), ("power cut", false)] {
        let env = damaged.copy();
        if are_kills {
            env.take_kills(seed, one_in);
        } else {
            env.take_images(seed, one_in);
        }
        repaired(&env).unwrap();
        for image in env.taken() {
            let place = format!("{crash} before call {}", image.call);
            wrong.extend(failure(&image.env, &place, &whole));
        }
    }
    for number in (seed % one_in..).step_by(one_in as usize) {
        let env = damaged.copy();
        env.set_fault(Some(Fault {
            failure: Failure::Device,
            number,
            stays: false,
        }));
        let _ = repaired(&env);
        let is_over = env.concerned() <= number;
        env.set_fault(None);
        if is_over {
            break;
        }
        wrong.extend(failure(&env, &format!("failure of call {number}"), &whole));
    }
    wrong
}

#[test]
fn a_repair_of_any_damage_that_ends_at_any_call_can_be_made_again() {
    let mut wrong = String::new();
    let mut seed = 0;
    on_each_row(|row, id, dir| {
        let Some(damaged) = machine_with(dir) else { return };
        seed += 1;
        let one_in = if id.facts().name.starts_with("log.") { 1 } else { ONE_IN };
        let found = failures(&damaged, seed, one_in);
        if !found.is_empty() {
            let _ = writeln!(wrong, "--- {row}\n{found}");
        }
    });
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_repair_of_three_damages_that_ends_at_any_call_can_be_made_again() {
    let mut wrong = String::new();
    on_three_damages(|seed, names, dir, _| {
        let Some(damaged) = machine_with(dir) else { return };
        let found = failures(&damaged, seed, ONE_IN);
        if !found.is_empty() {
            let _ = writeln!(wrong, "--- seed {seed}, {names}\n{found}");
        }
    });
    assert!(wrong.is_empty(), "{wrong}");
}
