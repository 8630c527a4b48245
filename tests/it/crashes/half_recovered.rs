//! A recovery that fails, and the next open on the same machine: the page cache shows what the first recovery wrote, and
//! the disk does not hold it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use mqstore::config::{FlushDiskType, Recovery, StoreConfig};
use mqstore::error::Error;
use mqstore::format::{CQ_UNIT_SIZE, Message};
use mqstore::read::MessageReader;
use mqstore::store::{MessageStore, OpenMode};

use super::examine::{Examiner, dispatch_all, root};
use super::files::Files;
use super::history::Geometry;
use super::model::{Checked, Expect, when, works};
use super::run::machine;
use crate::simulated_env::{Failure, Fault, Random, SimulatedEnv};

const GEOMETRY: Geometry = Geometry {
    segment: 64 * 1024,
    queue_file: 40_000,
    slots: 3,
    items: 5000,
    stamped_every: 64 << 20,
    flush_disk_type: FlushDiskType::Async,
    buffers: 0,
    is_warmed: false,
};
/// Power cuts that each store goes through.
const CUTS: u64 = 12;
const SEGMENT: &str = "commitlog/00000000000000000000";
const QUEUE: &str = "consumequeue/t/0/00000000000000000000";
const NOTE: &str = "config/mqstore-recovery.json";

impl Examiner<'_> {
    /// One call of a recovery of this image fails. The store is opened again on the same machine and continued.
    pub(super) fn recover_again(&self, image: &SimulatedEnv, expect: &Expect, calls: u64, random: &mut Random) -> Checked {
        let env = image.copy();
        env.set_fault(Some(Fault {
            failure: Failure::Device,
            number: random.below(calls),
            stays: random.one_in(2),
        }));
        let opened = self.open(&env, expect.is_made);
        let is_failed = opened.is_err();
        env.stop();
        drop(opened);
        if !is_failed {
            return Ok(());
        }
        self.counts.failed_recoveries.fetch_add(1, Ordering::Relaxed);
        let env = env.copy();
        when("reading after a recovery that failed", self.read(&env, expect, random))?;
        let store = works("a store opens after a recovery that failed", self.open(&env, expect.is_made))?;
        let recovered = self.recovered(image, &env, &store, expect, random);
        when("opened after a recovery that failed", recovered)?;
        let gone_on = self.go_on(&env, &store, expect, random);
        when("appending after a recovery that failed", gone_on)?;
        env.stop();
        Ok(())
    }
}

fn open(env: &SimulatedEnv, recovery: Recovery) -> Result<MessageStore, Error> {
    let config = StoreConfig {
        recovery,
        ..GEOMETRY.config()
    };
    MessageStore::open_stepped(&env.shared(), root(), config, OpenMode::Append)
}

/// Messages of one length, so that a stale one after the last looks like the next.
fn message(body: u8) -> Message<'static> {
    Message {
        topic: "t".into(),
        body: vec![body; 100].into(),
        properties: mqstore::format::encode_properties([("KEYS", "k")], true).unwrap().into(),
        ..Message::default()
    }
}

/// A store of `count` messages, not closed yet, and where each of them starts.
fn filled(env: &SimulatedEnv, count: usize) -> (MessageStore, Vec<usize>) {
    let store = open(env, Recovery::Heal).unwrap();
    let append = |n: usize| store.append(message(n as u8)).unwrap().appended.physical_offset as usize;
    let offsets = (0..count).map(append).collect();
    dispatch_all(&store).unwrap();
    (store, offsets)
}

/// Changes the bytes of the log, durably, and makes everything else durable.
fn edit(env: &SimulatedEnv, change: impl Fn(&mut [u8])) {
    for (path, mut bytes) in env.files(root()) {
        if path.ends_with(SEGMENT) {
            change(&mut bytes);
        }
        env.put(&path, &bytes);
    }
}

/// A store of `count` messages that was not closed, all of it on disk; the record of message `torn` is damaged.
fn torn(count: usize, torn: usize) -> SimulatedEnv {
    let env = machine();
    let (_store, offsets) = filled(&env, count);
    let env = env.kill();
    edit(&env, |log| log[offsets[torn] + 90] ^= 1);
    env
}

/// The first byte of each message's body.
fn bodies(reader: &MessageReader) -> Vec<u8> {
    let bounds = reader.queue_bounds("t", 0).unwrap();
    bounds
        .map(|n| reader.message_in_queue("t", 0, n).unwrap().view().body()[0])
        .collect()
}

fn read(env: &SimulatedEnv) -> Vec<u8> {
    bodies(&MessageReader::open(&env.shared(), root(), GEOMETRY.recorded()).unwrap())
}

/// Fails each call of a recovery once, and passes what is left to `then`, with the name of the failed call.
fn fail_each_call(image: &SimulatedEnv, recovery: Recovery, mut then: impl FnMut(&SimulatedEnv, &str)) -> BTreeMap<String, u32> {
    let mut failed = BTreeMap::new();
    for number in 0.. {
        let env = image.copy();
        env.log_calls();
        env.set_fault(Some(Fault {
            failure: Failure::Device,
            number,
            stays: false,
        }));
        let opened = open(&env, recovery);
        let is_over = env.concerned() <= number;
        env.set_fault(None);
        // After a failed call, recovery may remove what the call was for.
        let mut changes = env.take_log().into_iter().filter(|call| !call.starts_with("Unlink"));
        let call = changes.next_back().unwrap_or_default();
        if let Ok(store) = opened {
            env.stop();
            drop(store);
        } else {
            *failed.entry(call.split(' ').next().unwrap().to_owned()).or_default() += 1;
            then(&env, &format!("call {number}, {call}"));
        }
        if is_over {
            return failed;
        }
    }
    failed
}

/// The store on disk after one more message and a close: these messages and nothing else.
fn expect_nothing_stale(env: &SimulatedEnv, call: &str, expected: &[u8]) {
    for seed in 0..CUTS {
        let (cut, _) = env.crash(seed);
        assert_eq!(read(&cut), expected, "{call}, seed {seed}");
        let files = Files::of(&cut, root());
        let queue = files.get(QUEUE).unwrap();
        let end = expected.len() * CQ_UNIT_SIZE;
        assert!(
            queue[end..].iter().all(|byte| *byte == 0),
            "{call}, seed {seed}: stale entries"
        );
        let log = files.log();
        let end = expected.len() * message(0).encoded_len();
        assert!(log[end..].iter().all(|byte| *byte == 0), "{call}, seed {seed}: stale records");
        for (path, index) in cut.files(&root().join("index")) {
            let end = 40 + 4 * GEOMETRY.slots as usize + 20 * (expected.len() + 1);
            assert!(
                index[end..].iter().all(|byte| *byte == 0),
                "{call}, seed {seed}: stale keys in {}",
                path.display()
            );
        }
    }
}

/// Opens a store again whose recovery failed. What was cut does not come back, whatever the page cache shows.
fn expect_cut(env: &SimulatedEnv, call: &str, kept: &[u8]) {
    assert_eq!(read(env), kept, "{call}");
    let store = open(env, Recovery::Heal).unwrap_or_else(|error| panic!("{call}: {error}"));
    assert_eq!(bodies(store.reader()), kept, "{call}");
    store.append(message(b'+')).unwrap();
    store.flush().unwrap();
    let expected = [kept, b"+"].concat();
    for seed in 0..CUTS {
        assert_eq!(read(&env.crash(seed).0), expected, "{call}, seed {seed}");
    }
    dispatch_all(&store).unwrap();
    store.close().unwrap();
    assert!(env.is_durable(root()), "{call}");
    expect_nothing_stale(env, call, &expected);
}

fn expect_steps(failed: &BTreeMap<String, u32>, steps: &[&str]) {
    for step in steps {
        assert!(failed.contains_key(*step), "{step} is not among {failed:?}");
    }
}

#[test]
fn a_failed_recoverys_cut_is_made_by_the_next_one_whatever_memory_shows() {
    let image = torn(60, 3);
    let failed = fail_each_call(&image, Recovery::Heal, |env, call| expect_cut(env, call, &[0, 1, 2]));
    let steps = [
        "SyncDir(AbortCreated)",
        "Sync(QueuesCut)",
        "Sync(IndexCut)",
        "Sync(LogRewritten)",
        "Sync(TailZeroed)",
    ];
    expect_steps(&failed, &steps);
}

#[test]
fn stale_records_in_a_closed_store_stay_cut_though_the_sync_failed() {
    // A broker leaves such records when it cuts its log, those of the millisecond of the last message, too.
    for later in [10_000, 0] {
        let image = machine();
        image.set_now(image.now() + later);
        let (store, _) = filled(&image, 4);
        store.close().unwrap();
        let longer = machine();
        let (_store, offsets) = filled(&longer, 60);
        let stale = Files::of(&longer, root()).log();
        edit(&image, |log| log[offsets[5]..].copy_from_slice(&stale[offsets[5]..]));
        assert_eq!(read(&image), [0, 1, 2, 3]);
        let failed = fail_each_call(&image, Recovery::Heal, |env, call| expect_cut(env, call, &[0, 1, 2, 3]));
        expect_steps(&failed, &["Sync(TailZeroed)"]);
    }
}

#[test]
fn a_salvage_that_failed_is_durable_when_the_next_recovery_has_ended() {
    let image = machine();
    let (store, offsets) = filled(&image, 60);
    store.close().unwrap();
    edit(&image, |log| log[offsets[3] + 90] ^= 1);
    let failed = fail_each_call(&image, Recovery::Salvage, |env, call| {
        let store = open(env, Recovery::Heal).unwrap_or_else(|error| panic!("{call}: {error}"));
        store.append(message(b'+')).unwrap();
        dispatch_all(&store).unwrap();
        store.close().unwrap();
        assert!(env.is_durable(root()), "{call}");
        for (n, offset) in offsets.iter().enumerate().filter(|(n, _)| *n != 3) {
            let found = store.reader().message_at(*offset as i64);
            assert_eq!(found.unwrap().view().body()[0], n as u8, "{call}");
        }
    });
    expect_steps(
        &failed,
        &["Sync(LogRewritten)", "SyncAll(QueueFiles)", "SyncDir(CheckpointRenamed)"],
    );
}

#[test]
fn a_store_whose_making_failed_is_durable_after_the_next_open() {
    let failed = fail_each_call(&machine(), Recovery::Heal, |env, call| {
        let store = open(env, Recovery::Heal).unwrap_or_else(|error| panic!("{call}: {error}"));
        store.append(message(b'+')).unwrap();
        store.flush().unwrap();
        for seed in 0..CUTS {
            assert_eq!(read(&env.crash(seed).0), [b'+'], "{call}, seed {seed}");
        }
    });
    let steps = [
        "SyncDir(StoreDirectories)",
        "SyncDir(AbortCreated)",
        "Sync(ConfigFile)",
        "SyncDir(ConfigRenamed)",
    ];
    expect_steps(&failed, &steps);
}

#[test]
fn a_size_record_with_an_unsynced_name_is_durable_after_the_next_open() {
    let image = machine();
    filled(&image, 4).0.close().unwrap();
    let record = "config/mqstore.json";
    image.remove(&root().join(record));
    let failed = fail_each_call(&image, Recovery::Heal, |env, call| {
        let store = open(env, Recovery::Heal).unwrap_or_else(|error| panic!("{call}: {error}"));
        for seed in 0..CUTS {
            let (cut, _) = env.crash(seed);
            assert!(Files::of(&cut, root()).get(record).is_some(), "{call}, seed {seed}");
        }
        store.close().unwrap();
    });
    expect_steps(&failed, &["SyncDir(ConfigRenamed)"]);
}

#[test]
fn an_open_that_changes_nothing_writes_no_note_and_removes_an_old_one() {
    let env = machine();
    filled(&env, 10).0.close().unwrap();
    let before = Files::of(&env, root());
    env.put(&root().join(NOTE), b"{\"rewrite_from\":0}\n");
    env.log_calls();
    let store = open(&env, Recovery::Heal).unwrap();
    let wrote = env
        .take_log()
        .into_iter()
        .find(|call| call.starts_with("Write") && call.contains("recovery"));
    assert_eq!(wrote, None);
    assert!(Files::of(&env, root()).difference(&before).is_none());
    store.close().unwrap();
}

#[test]
fn a_note_of_another_time_or_of_any_bytes_costs_no_message() {
    let image = torn(60, 40);
    let expected: Vec<u8> = (0..40).collect();
    for note in [
        "{\"rewrite_from\":-5}",
        "{\"rewrite_from\":9223372036854775807}",
        "{\"rewrite_from\":1000}",
        "{}",
        "",
        "[",
        "\0\0",
    ] {
        let env = image.copy();
        env.put(&root().join(NOTE), note.as_bytes());
        assert_eq!(read(&env), expected, "{note}");
        expect_cut(&env, note, &expected);
        assert_eq!(Files::of(&env, root()).get(NOTE), None, "{note}");
    }
}
