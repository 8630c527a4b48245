//! Random histories of transactions with power cuts, kills and failing calls: each ends once, as it was asked for, or stays open.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mqstore::broker::{CheckRules, TransactionChecker, TransactionEnd};
use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::error::Error;
use mqstore::format::{GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC, Transaction};
use mqstore::storage::Step;

use super::delay::{Stepped, config};
use super::histories::{self, Model, Operation, carry_out_each, is_noticed};
use super::transactions::{open_by_the_log, paid, progress_file};
use crate::simulated_env::{Failure, Fault, Random, SimulatedEnv};

/// Histories of each write mode, unless `MQSTORE_TRANSACTION_HISTORIES` states another number. They are few, because a read of a store
/// without threads waits for the dispatch for as long as it is patient, at each call while the disk is full.
const HISTORIES: u64 = 25;
/// The most histories in which a step is left out.
const WITHOUT_A_STEP: u64 = 150;
const RULES: CheckRules = CheckRules {
    timeout: Duration::from_secs(6),
    interval: Duration::from_secs(60),
    max_checks: 2,
};

#[derive(Debug, Clone, Copy)]
enum Own {
    Send,
    End,
    EndAgain,
    Check,
    Persist,
    Full,
}

/// The end of a half message, as the log shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Committed,
    GivenUp,
    /// An op message lists it, and nothing else names it.
    RolledBack,
}

/// The ends that calls have returned, by physical offset of the half message, each with true if it is durable.
#[derive(Debug, Clone, Default)]
struct Ends {
    ended: BTreeMap<i64, (End, bool)>,
    is_full: bool,
    /// The check that runs.
    asking: Option<Arc<Mutex<TransactionChecker>>>,
}

impl Model for Ends {
    type Own = Own;

    const LIKELY: &'static [Operation<Own>] = &[
        Operation::Own(Own::Send),
        Operation::Own(Own::Send),
        Operation::Own(Own::Send),
        Operation::Own(Own::End),
        Operation::Own(Own::End),
        Operation::Own(Own::End),
        Operation::Own(Own::EndAgain),
        Operation::Own(Own::Check),
        Operation::Own(Own::Check),
        Operation::Plain,
        Operation::Pass,
        Operation::Pass,
        Operation::Dispatch,
        Operation::Commit,
        Operation::Flush,
        Operation::Own(Own::Persist),
        Operation::Own(Own::Full),
        Operation::End(histories::End::Close),
        Operation::End(histories::End::Kill),
        Operation::End(histories::End::PowerCut),
    ];
    const LONGEST_PASS: u64 = 60_000;

    fn begin(open: &Stepped) -> Self {
        open.half("first");
        Self::default()
    }

    fn carry_out(&mut self, open: &mut Stepped, own: Own, random: &mut Random) {
        match own {
            Own::Send => {
                let message = paid(random.pick(&["x", "y"]));
                drop(open.transactions().send_half(message, "tellers", Some(false)));
            }
            Own::End => self.end(open, random),
            Own::EndAgain => {
                let ended: Vec<_> = self.ended.keys().copied().collect();
                if !ended.is_empty() {
                    let ended = open.transactions().end(random.pick(&ended), TransactionEnd::Commit, None);
                    assert!(matches!(ended, Err(Error::TransactionEnded { .. })), "{ended:?}");
                }
            }
            Own::Check => self.ask(open),
            Own::Persist => open.keep(),
            Own::Full => {
                self.is_full = !self.is_full && !open.store.config().uses_pool();
                open.env.set_fault(self.is_full.then_some(Fault {
                    failure: Failure::Full,
                    number: 0,
                    stays: true,
                }));
            }
        }
    }

    fn note_flushed(&mut self) {
        for (_, is_durable) in self.ended.values_mut() {
            *is_durable = true;
        }
    }

    fn before_end(&mut self, open: &Stepped) {
        open.env.set_fault(None);
        self.is_full = false;
        self.asking = None;
    }

    fn is_full(&self) -> bool {
        self.is_full
    }

    fn check(&mut self, open: &Stepped, after_crash: bool) -> Result<(), String> {
        let found = ends(open)?;
        for (half, end) in &found {
            match self.ended.get(half) {
                Some((expected, _)) if expected != end => {
                    return Err(format!(
                        "the half message at {half} has the end {end:?}, and {expected:?} was asked for"
                    ));
                }
                // The call had appended it before the crash, and had not returned.
                None if after_crash => drop(self.ended.insert(*half, (*end, false))),
                None => {
                    return Err(format!(
                        "the half message at {half} has the end {end:?}, and none was asked for"
                    ));
                }
                Some(_) => {}
            }
        }
        for (half, (end, is_durable)) in self.ended.clone() {
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
            self.ended.remove(&half);
        }
        Ok(())
    }

    /// Compares the open transactions with the log, and commits each.
    fn examine(mut self, env: SimulatedEnv, config: StoreConfig) -> Result<(), String> {
        let file = progress_file(&env);
        let open = Stepped::open(env, config).map_err(|error| format!("the store does not open: {error}"))?;
        self.check(&open, true)?;
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
            if !places.get(&passed).is_some_and(|half| self.ended.contains_key(half)) {
                return Err(format!(
                    "the progress passes half message {passed}, and it has no end in the log"
                ));
            }
        }
        commit_all(&open)
    }

    fn finish(&mut self, open: &mut Stepped) -> Result<(), String> {
        // The dispatcher tries again some time after a full disk.
        open.pass(60_000);
        commit_all(open)
    }
}

impl Ends {
    /// Ends one of the open transactions.
    fn end(&mut self, open: &Stepped, random: &mut Random) {
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
        let is_durable =
            durable == Some(true) || (durable.is_none() && open.store.config().flush_disk_type == FlushDiskType::Sync);
        match open.transactions().end(half, how, durable) {
            Ok(_) => drop(self.ended.insert(half, (end, is_durable))),
            Err(Error::DiskFull { .. } | Error::Io { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Asks about the transactions that are due, twice each, and gives up those that were asked twice.
    fn ask(&mut self, open: &Stepped) {
        open.dispatch();
        let before = open_halves(open).unwrap();
        let asking = self.asking.get_or_insert_with(|| {
            let checker = TransactionChecker::new(open.transactions().clone(), RULES);
            Arc::new(Mutex::new(checker))
        });
        // A full disk refuses to give up, and the next check tries again.
        let _ = asking.lock().unwrap().take_due(open.env.now());
        let after = open_halves(open).unwrap();
        for half in before.difference(&after) {
            self.ended.insert(*half, (End::GivenUp, false));
        }
    }
}

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

fn histories() -> u64 {
    let stated = std::env::var("MQSTORE_TRANSACTION_HISTORIES").ok();
    stated.map_or(HISTORIES, |stated| stated.parse().unwrap())
}

#[test]
fn each_transaction_ends_once_as_asked_for_after_any_crash() {
    carry_out_each::<Ends>(histories(), &config());
}

#[test]
fn a_progress_file_that_was_not_synced_is_noticed() {
    assert!(is_noticed::<Ends>(WITHOUT_A_STEP, &config(), Step::SettingsFile));
}
