//! Random histories of delayed messages and timer messages with power cuts and kills: each is delivered exactly once, in time and in order.

use mqstore::broker::BrokerService;
use mqstore::config::StoreConfig;
use mqstore::format::Message;
use mqstore::storage::Step;
use mqstore::store::Incoming;

use super::delay::{Stepped, config, delay_file, delayed};
use super::delayed_log::DelayedLog;
use super::histories::{Model, carry_out_each, is_noticed};
use super::timer_recalls::{keyed, recall};
use super::timers::{after, check_file};
use crate::simulated_env::{Random, SimulatedEnv};

/// Histories of each write mode.
const HISTORIES: u64 = 150;
/// Longer than the longest delay of a history, and the most by which the clock is behind.
const LONG: i64 = 20_000;

#[derive(Debug, Clone, Copy)]
enum Own {
    Append,
    AppendTimers,
    Recall,
    Deliver,
    Persist,
    HandOver,
}

/// The log has all that a judge needs.
#[derive(Debug, Clone)]
struct Delays {
    /// The latest time that the clock has shown. A key with a second before it may belong to a recall that has passed.
    latest: i64,
}

impl Model for Delays {
    type Own = Own;

    const LIKELY: &'static [Own] = &[
        Own::Append,
        Own::Append,
        Own::Append,
        Own::AppendTimers,
        Own::AppendTimers,
        Own::Recall,
        Own::Deliver,
        Own::Deliver,
        Own::Persist,
        Own::HandOver,
    ];
    const LONGEST_PASS: u64 = 3000;

    fn begin(open: &Stepped) -> Self {
        open.store.append(delayed(2, "first")).unwrap();
        Self { latest: open.env.now() }
    }

    fn carry_out(&mut self, open: &mut Stepped, own: Own, random: &mut Random) {
        self.latest = self.latest.max(open.env.now());
        let behind = self.latest - open.env.now();
        match own {
            Own::Append => append(open, random),
            Own::AppendTimers => append_timers(open, random, behind),
            Own::Recall => append_recall(open, random, behind),
            Own::Deliver => {
                open.deliver();
                open.deliver_timers();
            }
            Own::Persist => {
                open.persist();
                open.persist_by(BrokerService::PersistTimers);
            }
            Own::HandOver => {
                open.broker.hand_over().unwrap();
                let progress = check_file(&open.env).and_then(|check| check.progress).unwrap();
                check(open).unwrap().check_handed_over(progress.first).unwrap();
            }
        }
    }

    fn check(&mut self, open: &Stepped, _after_crash: bool) -> Result<(), String> {
        check(open).map(drop)
    }

    /// Checks the progress in the file, and delivers everything.
    fn examine(mut self, env: SimulatedEnv, config: StoreConfig) -> Result<(), String> {
        let (file, timers) = (delay_file(&env), check_file(&env));
        let mut open = Stepped::open(env, config).map_err(|error| format!("the store does not open: {error}"))?;
        let found = check(&open)?;
        if let Some(file) = file {
            found.check_progress(&file)?;
        }
        if let Some(progress) = timers.and_then(|check| check.progress) {
            found.check_timer_progress(progress)?;
        }
        self.finish(&mut open)
    }

    /// Lets every message become due, and checks that each has a copy.
    fn finish(&mut self, open: &mut Stepped) -> Result<(), String> {
        make_readable(open);
        // A writer that has handed its timers over delivers none.
        open.close();
        let config = open.store.config().clone();
        *open = Stepped::open(open.env.clone(), config).map_err(|error| error.to_string())?;
        for _ in 0..2 {
            open.pass(LONG);
            open.deliver();
            open.deliver_timers();
            make_readable(open);
        }
        check(open)?.check_delivered()
    }
}

/// Checks the delayed messages of the log and their copies.
fn check(open: &Stepped) -> Result<DelayedLog, String> {
    let levels = open.store.config().delay_levels().unwrap();
    let found = DelayedLog::of(&open.log(), &levels);
    found.check().map(|()| found)
}

fn make_readable(open: &Stepped) {
    open.store.flush().unwrap();
    open.dispatch();
}

fn append(open: &Stepped, random: &mut Random) {
    let draw = |random: &mut Random| Message {
        // A few bodies, so that many messages have twins.
        born_time: random.below(2) as i64,
        ..delayed(1 + random.below(3) as i32, random.pick(&["x", "y"]))
    };
    let drafts = (0..=random.below(6))
        .map(|_| Incoming::Sent(draw(random)))
        .collect::<Vec<_>>();
    let durable = if random.one_in(4) { None } else { Some(false) };
    open.store.appender(durable).append_all(drafts, &mut Vec::new()).unwrap();
}

fn append_timers(open: &Stepped, random: &mut Random, behind: i64) {
    let drafts = (0..=random.below(6))
        .map(|_| {
            let ms = 1 + 500 * random.below(8) as i64 + random.below(2) as i64;
            let body = random.pick(&["x", "y", "z"]);
            Incoming::Sent(if body == "z" {
                after(open, ms, body)
            } else {
                keyed(open, behind + ms, body, body)
            })
        })
        .collect::<Vec<_>>();
    let durable = if random.one_in(4) { None } else { Some(false) };
    open.store.appender(durable).append_all(drafts, &mut Vec::new()).unwrap();
}

/// Recalls the timer messages of a key and a second, if there are any.
fn append_recall(open: &Stepped, random: &mut Random, behind: i64) {
    let ms = behind + 1 + 500 * random.below(8) as i64;
    let key = format!("orders+{}", random.pick(&["x", "y"]));
    let durable = if random.one_in(4) { None } else { Some(false) };
    open.store.appender(durable).append(recall(open, ms, &key)).unwrap();
}

fn settings() -> StoreConfig {
    StoreConfig {
        message_delay_level: "1s 3s 10s".to_owned(),
        ..config()
    }
}

#[test]
fn each_delayed_message_is_delivered_once_after_any_crash() {
    carry_out_each::<Delays>(HISTORIES, &settings());
}

#[test]
fn a_settings_file_that_was_not_synced_is_noticed() {
    assert!(is_noticed::<Delays>(HISTORIES, &settings(), Step::SettingsFile));
}
