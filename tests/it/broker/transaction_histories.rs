//! Random histories of transactions with power cuts, kills and failing calls: each ends once, as it was asked for, or stays open.

use std::collections::{BTreeMap, BTreeSet};

use mqstore::broker::{CheckRules, TransactionChecker, TransactionEnd};
use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::error::Error;
use mqstore::format::{GIVEN_UP_TOPIC, HALF_TOPIC, Message, OP_TOPIC, Transaction};
use mqstore::storage::Step;

use super::delay::{Stepped, config, machine};
use super::transactions::{open_by_the_log, paid, progress_file};
use crate::simulated_env::{Failure, Fault, Random, SimulatedEnv};

/// Histories of each write mode, unless `MQSTORE_TRANSACTION_HISTORIES` states another number.
const HISTORIES: u64 = 25;
const OPERATIONS: usize = 40;
/// One of this many changing calls is preceded by a power cut, or a kill, on a copy of the machine.
const IMAGE_ONE_IN: u64 = 25;

#[derive(Debug, Clone, Copy)]
enum Operation {
    Send,
    End,
    EndAgain,
    Check,
    Plain,
    Pass,
    Dispatch,
    Commit,
    Flush,
    Persist,
    Full,
    Reopen,
    Kill,
    PowerCut,
}

const LIKELY: [Operation; 20] = [
    Operation::Send,
    Operation::Send,
    Operation::Send,
    Operation::End,
    Operation::End,
    Operation::End,
    Operation::EndAgain,
    Operation::Check,
    Operation::Check,
    Operation::Plain,
    Operation::Pass,
    Operation::Pass,
    Operation::Dispatch,
    Operation::Commit,
    Operation::Flush,
    Operation::Persist,
    Operation::Full,
    Operation::Reopen,
    Operation::Kill,
    Operation::PowerCut,
];

/// The end of a half message, as the log shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Committed,
    GivenUp,
    /// An op message lists it, and nothing else names it.
    RolledBack,
}

/// The ends that calls have returned, by physical offset of the half message, each with true if it is durable.
type Model = BTreeMap<i64, (End, bool)>;

/// Returns the ends that the log shows, by physical offset of the half message.
fn ends(open: &Stepped) -> Result<BTreeMap<i64, End>, String> {
    let log = open.log();
    let (mut ends, mut places, mut listed) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    for message in &log {
        let view = message.view();
        let half = view.prepared_transaction_offset();
        let end = match view.transaction() {
            Transaction::Commit => End::Committed,
            _ if view.has_topic(GIVEN_UP_TOPIC) => End::GivenUp,
            _ if view.has_topic(HALF_TOPIC) => {
                places.insert(view.queue_offset(), view.physical_offset());
                continue;
            }
            _ if view.has_topic(OP_TOPIC) => {
                listed.insert(String::from_utf8_lossy(view.body()).parse::<i64>().unwrap());
                continue;
            }
            _ => continue,
        };
        if let Some(before) = ends.insert(half, end) {
            return Err(format!("the half message at {half} has two ends: {before:?} and {end:?}"));
        }
    }
    for offset in listed {
        let half = places
            .get(&offset)
            .ok_or_else(|| format!("an op message lists {offset}, and no half message is there"))?;
        ends.entry(*half).or_insert(End::RolledBack);
    }
    Ok(ends)
}

/// Compares the log with the model. Ends that a power cut has taken leave the model, unless they were durable.
fn compare(open: &Stepped, model: &mut Model, after_crash: bool) -> Result<(), String> {
    let found = ends(open)?;
    for (half, end) in &found {
        match model.get(half) {
            Some((expected, _)) if expected != end => {
                return Err(format!(
                    "the half message at {half} has the end {end:?}, and {expected:?} was asked for"
                ));
            }
            // The call had appended it before the crash, and had not returned.
            None if after_crash => drop(model.insert(*half, (*end, false))),
            None => {
                return Err(format!(
                    "the half message at {half} has the end {end:?}, and none was asked for"
                ));
            }
            Some(_) => {}
        }
    }
    for (half, (end, is_durable)) in model.clone() {
        if found.contains_key(&half) {
            continue;
        }
        // Before a sync or commit the log of a pool does not show it.
        if !after_crash {
            continue;
        }
        if is_durable {
            return Err(format!("the end {end:?} of the half message at {half} is lost"));
        }
        model.remove(&half);
    }
    Ok(())
}

/// Opens what a crash has left, compares the open transactions with the log, and commits each.
fn examine(env: SimulatedEnv, config: StoreConfig, model: &Model) -> Result<(), String> {
    let file = progress_file(&env);
    let open = Stepped::open(env, config).map_err(|error| format!("the store does not open: {error}"))?;
    let mut model = model.clone();
    compare(&open, &mut model, true)?;
    let progress = |topic: &str| {
        let name = format!("{topic}@CID_RMQ_SYS_TRANS");
        file.as_ref()
            .and_then(|file| file["offsetTable"][name]["0"].as_i64())
            .unwrap_or(0)
    };
    let places: BTreeMap<i64, i64> = open
        .log()
        .iter()
        .map(|message| message.view())
        .filter(|view| view.has_topic(HALF_TOPIC))
        .map(|view| (view.queue_offset(), view.physical_offset()))
        .collect();
    for passed in 0..progress(HALF_TOPIC) {
        if !places.get(&passed).is_some_and(|half| model.contains_key(half)) {
            return Err(format!(
                "the progress passes half message {passed}, and it has no end in the log"
            ));
        }
    }
    commit_all(&open)
}

fn commit_all(open: &Stepped) -> Result<(), String> {
    open.store.flush().unwrap();
    open.dispatch();
    let expected = open_by_the_log(open);
    let found = open_halves(open)?;
    if found != expected {
        return Err(format!("{found:?} are open, and by the log {expected:?}"));
    }
    for half in found {
        let ended = open.transactions().end(half, TransactionEnd::Commit, Some(false));
        ended.map_err(|error| format!("the half message at {half} is open, and its commit fails: {error}"))?;
    }
    open.store.flush().unwrap();
    let left = open_by_the_log(open);
    if !left.is_empty() {
        return Err(format!("{left:?} are open after their commits"));
    }
    ends(open).map(drop)
}

fn open_halves(open: &Stepped) -> Result<BTreeSet<i64>, String> {
    let open = open.transactions().open().map_err(|error| error.to_string())?;
    let halves = open.halves.iter().map(|half| half.message.view().physical_offset());
    Ok(halves.collect())
}

fn end(open: &Stepped, random: &mut Random, model: &mut Model) {
    let halves: Vec<i64> = open_halves(open).unwrap().into_iter().collect();
    if halves.is_empty() {
        return;
    }
    let half = random.pick(&halves);
    let (how, end) = if random.one_in(2) {
        (TransactionEnd::Commit, End::Committed)
    } else {
        (TransactionEnd::Rollback, End::RolledBack)
    };
    let durable = random.pick(&[None, Some(false), Some(true)]);
    let is_durable = durable == Some(true) || (durable.is_none() && open.store.config().flush_disk_type == FlushDiskType::Sync);
    match open.transactions().end(half, how, durable) {
        Ok(_) => drop(model.insert(half, (end, is_durable))),
        Err(Error::DiskFull { .. } | Error::Io { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

fn check(open: &Stepped, checker: &mut TransactionChecker, model: &mut Model) {
    open.dispatch();
    let before = open_halves(open).unwrap();
    // A full disk refuses to give up, and the next check tries again.
    let _ = checker.take_due(open.env.now());
    let after = open_halves(open).unwrap();
    for half in before.difference(&after) {
        model.insert(*half, (End::GivenUp, false));
    }
}

fn checker(open: &Stepped) -> TransactionChecker {
    let rules = CheckRules {
        max_checks: 2,
        ..CheckRules::default()
    };
    TransactionChecker::new(open.transactions().clone(), rules)
}

/// Carries out one history, and examines the machines that crashes leave on the way.
fn carry_out(seed: u64, config: &StoreConfig, without: Option<Step>) -> Result<(), String> {
    let mut random = Random::new(seed);
    let (mut model, mut is_full) = (Model::new(), false);
    let mut open = Stepped::open(machine(), config.clone()).unwrap();
    // A log whose start is lost is refused.
    open.half("first");
    open.store.flush().unwrap();
    open.env.leave_out(without);
    let mut asking = checker(&open);
    set_camera(&open.env, &mut random);
    for _ in 0..OPERATIONS {
        let operation = random.pick(&LIKELY);
        let before = model.clone();
        match operation {
            Operation::Send => drop(
                open.transactions()
                    .send_half(paid(random.pick(&["x", "y"])), "tellers", Some(false)),
            ),
            Operation::End => end(&open, &mut random, &mut model),
            Operation::EndAgain => {
                let ended: Vec<_> = model.keys().copied().collect();
                if !ended.is_empty() {
                    let ended = open.transactions().end(random.pick(&ended), TransactionEnd::Commit, None);
                    assert!(matches!(ended, Err(Error::TransactionEnded { .. })), "{ended:?}");
                }
            }
            Operation::Check => check(&open, &mut asking, &mut model),
            Operation::Plain => append_plain(&open, &mut random),
            Operation::Pass => open.pass(random.below(60_000) as i64),
            Operation::Dispatch => open.dispatch(),
            Operation::Commit if !is_full => open.store.commit().unwrap(),
            Operation::Flush if !is_full => {
                open.store.flush().unwrap();
                for (_, is_durable) in model.values_mut() {
                    *is_durable = true;
                }
            }
            Operation::Commit | Operation::Flush => {}
            Operation::Persist => open.keep(),
            Operation::Full => {
                is_full = !is_full && !config.uses_pool();
                open.env.set_fault(is_full.then_some(Fault {
                    failure: Failure::Full,
                    number: 0,
                    stays: true,
                }));
            }
            Operation::Reopen | Operation::Kill | Operation::PowerCut => {
                open.env.set_fault(None);
                is_full = false;
                open = crash(open, operation, &mut random, config, &mut model)?;
                open.env.leave_out(without);
                asking = checker(&open);
            }
        }
        for image in open.env.taken() {
            let seed = image.seed;
            image.env.set_fault(None);
            examine(image.env, config.clone(), &before).map_err(|error| format!("{operation:?}, image {seed}: {error}"))?;
        }
        set_camera(&open.env, &mut random);
        compare(&open, &mut model, false).map_err(|error| format!("{operation:?}: {error}"))?;
    }
    open.env.set_fault(None);
    // The dispatcher tries again some time after a full disk.
    open.pass(60_000);
    commit_all(&open)
}

/// Appends a message of no transaction.
fn append_plain(open: &Stepped, random: &mut Random) {
    let plain = Message {
        topic: "plain".into(),
        body: vec![b'p'; random.index(3000)].into(),
        ..Message::default()
    };
    drop(open.store.appender(Some(false)).append(plain));
}

/// Ends the process, and opens the store again.
fn crash(open: Stepped, how: Operation, random: &mut Random, config: &StoreConfig, model: &mut Model) -> Result<Stepped, String> {
    if matches!(how, Operation::Reopen) {
        for (_, is_durable) in model.values_mut() {
            *is_durable = true;
        }
        return Ok(open.reopened(config.clone()));
    }
    let crashed = if matches!(how, Operation::Kill) {
        open.env.kill()
    } else {
        let (crashed, _) = open.env.crash(random.next());
        open.env.stop();
        crashed
    };
    examine(crashed.copy(), config.clone(), model)?;
    let open = Stepped::open(crashed, config.clone()).map_err(|error| error.to_string())?;
    compare(&open, model, true)?;
    Ok(open)
}

fn set_camera(env: &SimulatedEnv, random: &mut Random) {
    if random.one_in(2) {
        env.take_images(random.next(), IMAGE_ONE_IN);
    } else {
        env.take_kills(random.next(), IMAGE_ONE_IN);
    }
}

fn modes() -> [StoreConfig; 3] {
    let with_pool = StoreConfig {
        transient_store_pool_enable: true,
        transient_store_pool_buffer_size: 4096,
        ..config()
    };
    let sync = StoreConfig {
        flush_disk_type: FlushDiskType::Sync,
        transient_store_pool_buffer_size: 4096,
        sync_flush_timeout: 10,
        ..config()
    };
    [config(), with_pool, sync]
}

fn histories() -> u64 {
    let stated = std::env::var("MQSTORE_TRANSACTION_HISTORIES").ok();
    stated.map_or(HISTORIES, |stated| stated.parse().unwrap())
}

#[test]
fn each_transaction_ends_once_as_asked_for_after_any_crash() {
    for (number, mode) in modes().iter().enumerate() {
        for seed in 0..histories() {
            if let Err(error) = carry_out(seed, mode, None) {
                panic!("write mode {number}, seed {seed}: {error}");
            }
        }
    }
}

#[test]
fn a_progress_file_that_was_not_synced_is_noticed() {
    let fails = |seed| carry_out(seed, &modes()[0], Some(Step::SettingsFile)).is_err();
    assert!((0..HISTORIES).any(fails));
}
