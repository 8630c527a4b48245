//! The range that the stamps of one history cover in the next one: after a salvage, after a broker, after a power cut.

use std::fs;
use std::path::Path;

use mqstore::config::{Recovery, StoreConfig};
use mqstore::error::{Error, Result};
use mqstore::format::{Checkpoint, CqUnit, Message};
use mqstore::log::save_checkpoint;
use mqstore::read::MessageReader;
use mqstore::store::{MessageStore, OpenMode};
use tempfile::TempDir;

use super::{edit, real};
use crate::simulated_env::SimulatedEnv;

fn message(body: &str) -> Message<'static> {
    Message {
        topic: "orders".into(),
        body: body.as_bytes().to_vec().into(),
        ..Message::default()
    }
}

fn config(recovery: Recovery) -> StoreConfig {
    StoreConfig {
        mapped_file_size_commit_log: Some(65536),
        recovery,
        ..StoreConfig::default()
    }
}

fn open(path: &Path, recovery: Recovery) -> Result<MessageStore> {
    MessageStore::open(&real(), path, config(recovery), OpenMode::Append)
}

/// A store of `count` messages, closed by us; then `abort` again.
fn ours(dir: &Path, count: usize) -> Vec<i64> {
    let store = open(dir, Recovery::Heal).unwrap();
    let offsets = (0..count)
        .map(|n| {
            store
                .append(message(&format!("body {n:05}")))
                .unwrap()
                .appended
                .physical_offset
        })
        .collect();
    store.close().unwrap();
    fs::write(dir.join("abort"), "").unwrap();
    offsets
}

fn damage(dir: &Path, at: i64) {
    edit(&dir.join("commitlog/00000000000000000000"), |bytes| {
        bytes[at as usize + 90] ^= 1;
    });
}

fn stamps(dir: &Path) -> Checkpoint {
    Checkpoint::decode(&fs::read(dir.join("checkpoint")).unwrap())
}

/// Returns the store as a kill leaves it.
fn killed(from: &Path) -> TempDir {
    let to = TempDir::new_in("/dev/shm").unwrap();
    super::copy(from, to.path());
    to
}

#[test]
fn a_store_that_was_salvaged_and_killed_opens_again() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let offsets = ours(dir.path(), 10);
    damage(dir.path(), offsets[8]);
    damage(dir.path(), offsets[9]);
    assert!(open(dir.path(), Recovery::Heal).is_err());
    let store = open(dir.path(), Recovery::Salvage).unwrap();
    store.append(message("body 99999")).unwrap();
    store.flush().unwrap();
    let left = killed(dir.path());
    store.close().unwrap();
    open(left.path(), Recovery::Heal).unwrap().close().unwrap();
}

#[test]
fn damage_before_our_own_stamp_is_not_searched_and_reading_it_fails() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let offsets = ours(dir.path(), 10);
    damage(dir.path(), offsets[4]);
    let store = open(dir.path(), Recovery::Heal).unwrap();
    assert_eq!(store.reader().queue_bounds("orders", 0).unwrap(), 0..10);
    for (n, offset) in offsets.iter().enumerate() {
        let read = store.reader().message_at(*offset);
        assert_eq!(matches!(read, Err(Error::Corrupt { .. })), n == 4, "message {n}");
    }
    store.close().unwrap();
}

#[test]
fn a_stamp_of_before_a_salvage_covers_nothing_that_came_after() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let offsets = ours(dir.path(), 10);
    let before = stamps(dir.path());
    damage(dir.path(), offsets[8]);
    damage(dir.path(), offsets[9]);
    let store = open(dir.path(), Recovery::Salvage).unwrap();
    let first = store.append(message("body 88888")).unwrap().appended.physical_offset;
    let second = store.append(message("body 99999")).unwrap().appended.physical_offset;
    assert_eq!([first, second], [offsets[8], offsets[9]]);
    store.wait_dispatched(second, None).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let left = killed(dir.path());
    store.close().unwrap();
    // Neither message was flushed, and the power cut left nothing of the first.
    edit(&left.path().join("commitlog/00000000000000000000"), |bytes| {
        bytes[first as usize..second as usize].fill(0);
    });
    let reader = || MessageReader::open(&real(), left.path(), config(Recovery::Heal)).unwrap();
    assert_eq!(reader().recovery().log_end, first);
    // The old checkpoint, put back, covers nothing either.
    fs::write(left.path().join("checkpoint"), before.encode()).unwrap();
    assert_eq!(reader().recovery().log_end, first);
}

#[test]
fn a_broker_s_queue_stamp_before_its_first_log_stamp_is_not_ours() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let offsets = ours(dir.path(), 10);
    let record = offsets[1] - offsets[0];
    let lost = offsets[9] + record;
    let ours = stamps(dir.path());
    // A broker of 5.5 took over: its first sweep of the queues synced the entry of a message whose log was not synced yet.
    let broker = Checkpoint {
        logics_msg_timestamp: ours.logics_msg_timestamp + 1,
        logics_physical_offset: lost,
        ..ours
    };
    fs::write(dir.path().join("checkpoint"), broker.encode()).unwrap();
    edit(&dir.path().join("consumequeue/orders/0/00000000000000000000"), |bytes| {
        let unit = CqUnit {
            physical_offset: lost,
            size: record as i32,
            tags_code: 0,
        };
        bytes[200..220].copy_from_slice(&unit.encode());
    });
    open(dir.path(), Recovery::Heal).unwrap().close().unwrap();
}

#[test]
fn what_a_broker_with_a_pool_stamped_and_did_not_sync_is_made_durable() {
    for seed in 0..50 {
        let env = SimulatedEnv::new();
        let root = Path::new("/store");
        let store = MessageStore::open_stepped(&env.shared(), root, config(Recovery::Heal), OpenMode::Append).unwrap();
        store.append(message("flushed")).unwrap();
        store.flush().unwrap();
        let last = store.append(message("only in memory")).unwrap().appended;
        let env = env.kill();
        drop(store);
        // The broker committed it from its pool after it had stamped the time of the last message in there.
        let stamp = Checkpoint {
            physic_msg_timestamp: last.store_time + 1,
            logics_msg_timestamp: last.store_time + 1,
            ..Checkpoint::default()
        };
        save_checkpoint(env.shared().as_ref(), &root.join("checkpoint"), &stamp).unwrap();
        env.set_now(last.store_time + 1000);
        let store = MessageStore::open_stepped(&env.shared(), root, config(Recovery::Heal), OpenMode::Existing).unwrap();
        assert!(store.reader().message_at(last.physical_offset).is_ok());
        assert!(store.flush().unwrap() > last.physical_offset);
        let (cut, _) = env.crash(seed);
        let reader = MessageReader::open(&cut.shared(), root, StoreConfig::default()).unwrap();
        assert!(
            reader.message_at(last.physical_offset).is_ok(),
            "seed {seed}: flushed, and gone"
        );
    }
}

#[test]
fn an_unwritten_page_of_unstamped_entries_does_not_cause_a_full_log_read() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let config = || StoreConfig {
        mapped_file_size_commit_log: Some(1 << 20),
        ..StoreConfig::default()
    };
    let store = MessageStore::open(&real(), dir.path(), config(), OpenMode::Append).unwrap();
    for _ in 0..10 {
        store.append(message("stamped")).unwrap();
    }
    store.close().unwrap();
    let store = MessageStore::open(&real(), dir.path(), config(), OpenMode::Append).unwrap();
    let mut last = 0;
    for _ in 0..1000 {
        last = store.append(message("later")).unwrap().appended.physical_offset;
    }
    store.wait_dispatched(last, None).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let left = killed(dir.path());
    store.close().unwrap();
    edit(&left.path().join("consumequeue/orders/0/00000000000000000000"), |bytes| {
        bytes[4096..8192].fill(0);
    });
    let stamp = stamps(left.path());
    assert!(stamp.is_ours() && stamp.queue_entries == 10);
    let reader = MessageReader::open(&real(), left.path(), config()).unwrap();
    assert_eq!(reader.queue_bounds("orders", 0).unwrap(), 0..1010);
    assert!(
        reader.recovery().scan_start > stamp.logics_physical_offset,
        "read from {}",
        reader.recovery().scan_start
    );
}

#[test]
fn deleted_queues_of_a_salvaged_store_return_around_the_salvage_records() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let offsets = ours(dir.path(), 10);
    damage(dir.path(), offsets[5]);
    let store = open(dir.path(), Recovery::Salvage).unwrap();
    assert_eq!(store.reader().queue_bounds("orders", 0).unwrap(), 0..10);
    store.close().unwrap();
    fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
    let reader = MessageReader::open(&real(), dir.path(), config(Recovery::Heal)).unwrap();
    let report = reader.recovery();
    assert_eq!((reader.queue_bounds("orders", 0).unwrap(), report.refused), (0..10, 0));
    let lost = reader.message_in_queue("orders", 0, 5).unwrap_err().to_string();
    assert!(lost.contains("has put a salvage record in its place"), "{lost}");
}

#[test]
fn a_number_of_a_message_that_is_whole_is_not_given_again_after_a_salvage() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let offsets = ours(dir.path(), 10);
    damage(dir.path(), offsets[5]);
    open(dir.path(), Recovery::Salvage).unwrap().close().unwrap();
    fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
    let store = open(dir.path(), Recovery::Heal).unwrap();
    assert_eq!(store.append(message("next")).unwrap().appended.queue_offset, 10);
}
