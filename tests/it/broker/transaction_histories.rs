//! Random histories of transactions with power cuts, kills and failing calls: each ends once, as it was asked for, or stays open.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mqstore::broker::{CheckRules, TransactionChecker, TransactionEnd};
use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::error::Error;
use mqstore::read::MessageReader;
use mqstore::storage::Step;

use super::delay::{STORE, Stepped, config};
use super::histories::{Model, carry_out_each, is_noticed};
use super::transaction_log::{End, TransactionLog, check_reader, open_places};
use super::transactions::{paid, progress_file};
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

    const LIKELY: &'static [Own] = &[
        Own::Send,
        Own::Send,
        Own::Send,
        Own::End,
        Own::End,
        Own::End,
        Own::EndAgain,
        Own::Check,
        Own::Check,
        Own::Persist,
        Own::Full,
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
        let log = TransactionLog::of(&open.log())?;
        let found = log.ends();
        for (half, end) in found {
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
        let reader = MessageReader::open(&env.copy().shared(), Path::new(STORE), config.clone());
        let open = Stepped::open(env, config).map_err(|error| format!("the store does not open: {error}"))?;
        self.check(&open, true)?;
        let log = TransactionLog::of(&open.log())?;
        if let Some(file) = file {
            log.check_progress(&file)?;
        }
        check_reader(&Arc::new(reader.map_err(|error| error.to_string())?), &log)?;
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

fn commit_all(open: &Stepped) -> Result<(), String> {
    open.store.flush().unwrap();
    open.dispatch();
    let expected = TransactionLog::of(&open.log())?.open();
    let found = open_halves(open)?;
    if found != expected {
        return Err(format!("{found:?} are open, and by the log {expected:?}"));
    }
    for half in found {
        let ended = open.transactions().end(half, TransactionEnd::Commit, Some(false));
        ended.map_err(|error| format!("the half message at {half} is open, and its commit fails: {error}"))?;
    }
    open.store.flush().unwrap();
    let left = TransactionLog::of(&open.log())?.open();
    if !left.is_empty() {
        return Err(format!("{left:?} are open after their commits"));
    }
    Ok(())
}

fn open_halves(open: &Stepped) -> Result<BTreeSet<i64>, String> {
    let open = open.transactions().open().map_err(|error| error.to_string())?;
    Ok(open_places(&open))
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
