//! A repair of each damage of verify's table, and of three at random, that a kill, a power cut or a failing call ends, in place or of a copy:
//! a later repair completes it, with three damages also after a second repair that ends early, and an unfinished copy never counts as whole.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use mqstore::check::{RepairReport, RepairRequest, VerifyRequest, repair, verify};
use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::read::MessageReader;

use super::campaign::scale;
use super::examine::root;
use super::rebuilding::repaired;
use super::run::machine;
use crate::repairing::{Readable, on_each_row, on_three_damages, readable_of};
use crate::simulated_env::{Failure, Fault, Random, SimulatedEnv};

/// A repair of derived files is ended before one in this many of its calls. `MQSTORE_CRASHES=16` ends it before each.
const ONE_IN: u64 = 16;
/// Stores with three damages.
const THREE_DAMAGES: u64 = 20;

fn one_in() -> u64 {
    (ONE_IN / scale()).max(1)
}

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

/// Makes a repair of which one call fails, and each later one too if the process is dead then. Returns the number of its calls.
fn end_repair(env: &SimulatedEnv, number: u64, is_dead: bool, repair: impl FnOnce(&SimulatedEnv)) -> u64 {
    env.set_fault(Some(Fault {
        failure: Failure::Device,
        number,
        stays: is_dead,
    }));
    repair(env);
    let concerned = env.concerned();
    env.set_fault(None);
    concerned
}

/// Repairs the store again, with a second repair that dies at one of its first `calls` calls, and a third one.
fn failure_of_third(env: &SimulatedEnv, place: &str, calls: u64, random: &mut Random, whole: &Readable) -> Option<String> {
    let number = random.below(calls);
    end_repair(env, number, true, |env| drop(repaired(env)));
    // What a dead process has locked is free.
    failure(&env.copy(), &format!("{place}, then a kill at call {number}"), whole)
}

/// Ends a repair of the damaged store before one in `one_in` calls, by a kill, a power cut and a failure of the call, repairs it again each
/// time, and returns what is wrong with the outcomes. With `is_repeated` the second repair is ended, too, at some of these places.
fn failures(damaged: &SimulatedEnv, seed: u64, one_in: u64, is_repeated: bool) -> String {
    let env = damaged.copy();
    let mut is_whole = false;
    let calls = end_repair(&env, u64::MAX, false, |env| {
        is_whole = repaired(env).is_ok_and(|report| report.refusal.is_none() && report.left.is_empty());
    });
    if !is_whole {
        return String::new();
    }
    let whole = readable(&env).unwrap();
    let mut random = Random::new(seed);
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
            let again = image.env.copy();
            wrong.extend(failure(&image.env, &place, &whole));
            if is_repeated && random.one_in(8) {
                wrong.extend(failure_of_third(&again, &place, calls, &mut random, &whole));
            }
        }
    }
    for number in (seed % one_in..).step_by(one_in as usize) {
        let env = damaged.copy();
        if end_repair(&env, number, false, |env| drop(repaired(env))) <= number {
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
        let one_in = if id.facts().name.starts_with("log.") { 1 } else { one_in() };
        let found = failures(&damaged, seed, one_in, false);
        if !found.is_empty() {
            let _ = writeln!(wrong, "--- {row}\n{found}");
        }
    });
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_repair_of_three_damages_that_ends_at_any_call_can_be_made_again() {
    let mut wrong = String::new();
    on_three_damages(THREE_DAMAGES, |seed, names, dir, _| {
        let Some(damaged) = machine_with(dir) else { return };
        let found = failures(&damaged, seed, one_in(), true);
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

/// A repair of a copy that is ended.
struct CopyRepair {
    /// The files of the damaged store.
    store: Vec<(PathBuf, Vec<u8>)>,
    /// The messages of a whole copy.
    whole: Readable,
}

impl CopyRepair {
    /// Repairs another copy after the `unfinished` copy, whose repair has ended early at `place`. Returns what is wrong with both and the store.
    fn failure(&self, env: &SimulatedEnv, [unfinished, copy]: [&Path; 2], place: &str) -> String {
        let mut wrong = String::new();
        if env.files(root()) != self.store {
            let _ = writeln!(wrong, "{place}: the store was changed");
        }
        let found = readable_at(env, unfinished).ok();
        if found.as_ref().is_some_and(|found| *found != self.whole) && counts_as_whole(env, unfinished) {
            let (count, all) = (found.map(|found| found.len()), self.whole.len());
            let _ = writeln!(wrong, "{place}: an unfinished copy counts as whole with {count:?} of {all}");
        }
        let again = repaired_into(env, copy);
        let found = readable_at(env, copy).ok();
        if !again.as_ref().is_ok_and(is_whole_copy) || found.as_ref() != Some(&self.whole) {
            let _ = writeln!(wrong, "{place}: {again:?}");
        }
        wrong
    }
}

fn is_whole_copy(report: &RepairReport) -> bool {
    report.refusal.is_none() && report.left.is_empty() && report.path != root()
}

/// Ends a repair of a copy before one in `one_in` calls, by a kill and a power cut, repairs another copy each time, and returns what is wrong
/// with the outcomes. With `is_repeated` a failure of the call ends it as well, and the second repair is ended, too, at some of these places.
fn failures_of_copies(damaged: &SimulatedEnv, seed: u64, one_in: u64, is_repeated: bool) -> String {
    let [first, second, third] = ["first", "second", "third"].map(|name| root().with_extension(name));
    let env = damaged.copy();
    let mut is_whole = false;
    let calls = end_repair(&env, u64::MAX, false, |env| {
        is_whole = repaired_into(env, &first).is_ok_and(|report| is_whole_copy(&report));
    });
    if !is_whole {
        return String::new();
    }
    let repair = CopyRepair {
        store: damaged.files(root()),
        whole: readable_at(&env, &first).unwrap(),
    };
    let mut random = Random::new(seed);
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
            let again = image.env.copy();
            wrong += &repair.failure(&image.env, [&first, &second], &place);
            if is_repeated && random.one_in(8) {
                let number = random.below(calls);
                end_repair(&again, number, true, |env| drop(repaired_into(env, &second)));
                let place = format!("{place}, then a kill at call {number}");
                wrong += &repair.failure(&again.copy(), [&second, &third], &place);
            }
        }
    }
    if !is_repeated {
        return wrong;
    }
    for number in (seed % one_in..).step_by(one_in as usize) {
        let env = damaged.copy();
        if end_repair(&env, number, false, |env| drop(repaired_into(env, &first))) <= number {
            break;
        }
        wrong += &repair.failure(&env, [&first, &second], &format!("failure of call {number}"));
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
        let one_in = if id.facts().name.starts_with("log.") { 1 } else { one_in() };
        let found = failures_of_copies(&damaged, seed, one_in, false);
        if !found.is_empty() {
            let _ = writeln!(wrong, "--- {row}\n{found}");
        }
    });
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_copy_of_three_damages_whose_repair_ends_never_passes_for_the_store() {
    let mut wrong = String::new();
    on_three_damages(THREE_DAMAGES, |seed, names, dir, _| {
        let Some(damaged) = machine_with(dir) else { return };
        let found = failures_of_copies(&damaged, seed, one_in(), true);
        if !found.is_empty() {
            let _ = writeln!(wrong, "--- seed {seed}, {names}\n{found}");
        }
    });
    assert!(wrong.is_empty(), "{wrong}");
}
