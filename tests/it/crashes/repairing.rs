//! A repair of each damage of verify's table that a kill or a power cut ends at any call, in place or of a copy: a second repair
//! completes it, and an unfinished copy never counts as whole.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use mqstore::check::{RepairReport, RepairRequest, VerifyRequest, repair, verify};
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
    readable_at(env, root())
}

fn readable_at(env: &SimulatedEnv, path: &Path) -> Result<Readable, Error> {
    MessageReader::open(&env.shared(), path, StoreConfig::default()).map(|reader| readable_of(&reader))
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
    on_three_damages(40, |seed, names, dir, _| {
        let Some(damaged) = machine_with(dir) else { return };
        let found = failures(&damaged, seed, ONE_IN);
        if !found.is_empty() {
            let _ = writeln!(wrong, "--- seed {seed}, {names}\n{found}");
        }
    });
    assert!(wrong.is_empty(), "{wrong}");
}

/// Repairs a copy of the store in the directory `into` beside it.
fn repaired_into(env: &SimulatedEnv, into: &Path) -> Result<RepairReport, Error> {
    let request = RepairRequest {
        is_dry_run: false,
        into: Some(into),
    };
    repair(&env.shared(), root(), &StoreConfig::default(), request, |_, _| Ok(()))
}

/// Returns true if a copy reads as a whole store: it opens without a sign of missing messages, and verify finds no error in it.
fn counts_as_whole(env: &SimulatedEnv, copy: &Path) -> bool {
    let Ok(reader) = MessageReader::open(&env.shared(), copy, StoreConfig::default()) else {
        return false;
    };
    let report = verify(&env.shared(), &reader, VerifyRequest::default(), |_, _| Ok(()));
    reader.recovery().missing.is_none() && report.is_ok_and(|report| report.is_ok())
}

/// Ends a repair of a copy before one in `one_in` calls, by a kill and a power cut, repairs another copy each time, and returns what is
/// wrong with the outcomes.
fn failures_of_copies(damaged: &SimulatedEnv, seed: u64, one_in: u64) -> String {
    let [first, second] = ["first", "second"].map(|name| root().with_extension(name));
    let is_whole = |report: &RepairReport| report.refusal.is_none() && report.left.is_empty() && report.path != root();
    let env = damaged.copy();
    if !repaired_into(&env, &first).is_ok_and(|report| is_whole(&report)) {
        return String::new();
    }
    let (whole, store) = (readable_at(&env, &first).unwrap(), damaged.files(root()));
    let mut wrong = String::new();
    for (crash, are_kills) in [("kill", true), ("power cut", false)] {
        let env = damaged.copy();
        if are_kills {
            env.take_kills(seed, one_in);
        } else {
            env.take_images(seed, one_in);
        }
        repaired_into(&env, &first).unwrap();
        for image in env.taken() {
            let place = format!("{crash} before call {}", image.call);
            if image.env.files(root()) != store {
                let _ = writeln!(wrong, "{place}: the store was changed");
            }
            let unfinished = readable_at(&image.env, &first).ok();
            let is_part = unfinished.as_ref().is_some_and(|found| *found != whole);
            if is_part && counts_as_whole(&image.env, &first) {
                let count = unfinished.map(|found| found.len());
                let _ = writeln!(
                    wrong,
                    "{place}: an unfinished copy counts as whole with {count:?} of {}",
                    whole.len()
                );
            }
            let again = repaired_into(&image.env, &second);
            let found = readable_at(&image.env, &second).ok();
            if !again.as_ref().is_ok_and(is_whole) || found.as_ref() != Some(&whole) {
                let _ = writeln!(wrong, "{place}: {again:?}");
            }
        }
    }
    wrong
}

#[test]
fn a_copy_whose_repair_ends_at_any_call_never_passes_for_the_store() {
    let mut wrong = String::new();
    let mut seed = 0;
    on_each_row(|row, id, dir| {
        let Some(damaged) = machine_with(dir) else { return };
        seed += 1;
        let one_in = if id.facts().name.starts_with("log.") { 1 } else { ONE_IN };
        let found = failures_of_copies(&damaged, seed, one_in);
        if !found.is_empty() {
            let _ = writeln!(wrong, "--- {row}\n{found}");
        }
    });
    assert!(wrong.is_empty(), "{wrong}");
}
