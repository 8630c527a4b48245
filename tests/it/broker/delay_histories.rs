//! Random histories of delayed messages with power cuts and kills: each is delivered exactly once, in time and in order.

use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::format::Message;
use mqstore::storage::Step;
use mqstore::store::Incoming;

use super::delay::{Stepped, config, delay_file, delayed, machine};
use super::delayed_log::DelayedLog;
use crate::simulated_env::{Random, SimulatedEnv};

/// Histories of each write mode.
const HISTORIES: u64 = 150;
const OPERATIONS: usize = 40;
/// One of this many changing calls is preceded by a power cut, or a kill, on a copy of the machine.
const IMAGE_ONE_IN: u64 = 25;
/// Longer than the longest delay of a history.
const LONG: i64 = 20_000;

#[derive(Debug, Clone, Copy)]
enum Operation {
    Delayed,
    Plain,
    Pass,
    Dispatch,
    Commit,
    Flush,
    Deliver,
    Persist,
    Reopen,
    Kill,
    PowerCut,
}

const LIKELY: [Operation; 15] = [
    Operation::Delayed,
    Operation::Delayed,
    Operation::Delayed,
    Operation::Plain,
    Operation::Pass,
    Operation::Pass,
    Operation::Dispatch,
    Operation::Commit,
    Operation::Flush,
    Operation::Deliver,
    Operation::Deliver,
    Operation::Persist,
    Operation::Reopen,
    Operation::Kill,
    Operation::PowerCut,
];

/// Checks the delayed messages of the log and their copies.
fn check(open: &Stepped) -> Result<DelayedLog, String> {
    let levels = open.store.config().delay_levels().unwrap();
    let found = DelayedLog::of(&open.log(), &levels);
    found.check().map(|()| found)
}

/// Opens what a crash has left, checks the progress in the file, and delivers everything.
fn examine(env: SimulatedEnv, config: StoreConfig) -> Result<(), String> {
    let file = delay_file(&env);
    let mut open = Stepped::open(env, config).map_err(|error| format!("the store does not open: {error}"))?;
    let found = check(&open)?;
    if let Some(file) = file {
        found.check_progress(&file)?;
    }
    deliver_all(&mut open)
}

/// Lets every message become due, and checks that each has a copy.
fn deliver_all(open: &mut Stepped) -> Result<(), String> {
    make_readable(open);
    for _ in 0..2 {
        open.pass(LONG);
        open.deliver();
        make_readable(open);
    }
    check(open)?.check_delivered()
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

/// Carries out one history, and examines the machines that crashes leave on the way.
fn carry_out(seed: u64, config: &StoreConfig, without: Option<Step>) -> Result<(), String> {
    let mut random = Random::new(seed);
    let env = machine();
    let mut open = Stepped::open(env, config.clone()).unwrap();
    // A log whose start is lost is refused.
    open.store.append(delayed(2, "first")).unwrap();
    open.store.flush().unwrap();
    open.env.leave_out(without);
    set_camera(&open.env, &mut random);
    for _ in 0..OPERATIONS {
        let operation = random.pick(&LIKELY);
        match operation {
            Operation::Delayed => append(&open, &mut random),
            Operation::Plain => {
                let plain = Message {
                    topic: "plain".into(),
                    body: vec![b'p'; random.index(3000)].into(),
                    ..Message::default()
                };
                open.store.appender(Some(false)).append(plain).map(drop).unwrap();
            }
            Operation::Pass => open.pass(random.below(3000) as i64),
            Operation::Dispatch => open.dispatch(),
            Operation::Commit => open.store.commit().unwrap(),
            Operation::Flush => drop(open.store.flush().unwrap()),
            Operation::Deliver => drop(open.deliver()),
            Operation::Persist => open.persist(),
            Operation::Reopen => open = open.reopened(config.clone()),
            Operation::Kill | Operation::PowerCut => {
                let crashed = if matches!(operation, Operation::Kill) {
                    open.env.kill()
                } else {
                    let (crashed, _) = open.env.crash(random.next());
                    open.env.stop();
                    crashed
                };
                examine(crashed.copy(), config.clone())?;
                open = Stepped::open(crashed, config.clone()).map_err(|error| error.to_string())?;
                open.env.leave_out(without);
            }
        }
        for image in open.env.taken() {
            let seed = image.seed;
            examine(image.env, config.clone()).map_err(|error| format!("{operation:?}, image {seed}: {error}"))?;
        }
        set_camera(&open.env, &mut random);
        check(&open).map_err(|error| format!("{operation:?}: {error}"))?;
    }
    deliver_all(&mut open)
}

fn set_camera(env: &SimulatedEnv, random: &mut Random) {
    if random.one_in(2) {
        env.take_images(random.next(), IMAGE_ONE_IN);
    } else {
        env.take_kills(random.next(), IMAGE_ONE_IN);
    }
}

fn modes() -> [StoreConfig; 3] {
    let levels = StoreConfig {
        message_delay_level: "1s 3s 10s".to_owned(),
        ..config()
    };
    let with_pool = StoreConfig {
        transient_store_pool_enable: true,
        transient_store_pool_buffer_size: 4096,
        ..levels.clone()
    };
    let sync = StoreConfig {
        flush_disk_type: FlushDiskType::Sync,
        transient_store_pool_buffer_size: 4096,
        ..levels.clone()
    };
    [levels, with_pool, sync]
}

#[test]
fn each_delayed_message_is_delivered_once_after_any_crash() {
    for (number, mode) in modes().iter().enumerate() {
        for seed in 0..HISTORIES {
            if let Err(error) = carry_out(seed, mode, None) {
                panic!("write mode {number}, seed {seed}: {error}");
            }
        }
    }
}

#[test]
fn a_settings_file_that_was_not_synced_is_noticed() {
    let fails = |seed| carry_out(seed, &modes()[0], Some(Step::SettingsFile)).is_err();
    assert!((0..HISTORIES).any(fails));
}
