//! Records whose bytes look as if a power cut had torn them: which are kept, which are refused before they are written, and which
//! are cut.

use std::fs;
use std::path::Path;

use mqstore::config::{Recovery, StoreConfig};
use mqstore::error::Error;
use mqstore::format::{Message, encode_properties};
use mqstore::read::MessageReader;
use mqstore::store::{MessageStore, OpenMode};
use tempfile::TempDir;

use super::{edit, real};
use crate::store_writer::StoreWriter;

const SECTOR: usize = 512;
/// The size of the log that is damaged here.
const FIRST: &str = "commitlog/00000000000000000000";

fn message(properties: Vec<u8>) -> Message<'static> {
    Message {
        topic: "orders".into(),
        properties: properties.into(),
        ..Message::default()
    }
}

/// Properties of one pair, with the last separator or without.
fn pair(name: &str, value: &str, is_ended: bool) -> Vec<u8> {
    encode_properties([(name, value)], is_ended).unwrap()
}

fn in_memory() -> TempDir {
    TempDir::new_in("/dev/shm").unwrap()
}

fn config(recovery: Recovery) -> StoreConfig {
    StoreConfig {
        mapped_file_size_commit_log: Some(16384),
        recovery,
        ..StoreConfig::default()
    }
}

fn open(dir: &Path) -> MessageStore {
    MessageStore::open(&real(), dir, config(Recovery::Heal), OpenMode::Append).unwrap()
}

/// Returns the store as a kill leaves it.
fn killed(store: &MessageStore) -> TempDir {
    let to = in_memory();
    super::copy(store.reader().path(), to.path());
    assert!(to.path().join("abort").exists());
    to
}

/// Returns the number of messages that each way of opening the store finds; the last opens it for writing, and leaves it recovered.
fn found(dir: &Path) -> [i64; 4] {
    let count = |reader: &MessageReader| reader.queue_bounds("orders", 0).unwrap().end;
    let read = |recovery| count(&MessageReader::open(&real(), dir, config(recovery)).unwrap());
    let write = |recovery| {
        let copied = in_memory();
        super::copy(dir, copied.path());
        let store = MessageStore::open(&real(), copied.path(), config(recovery), OpenMode::Existing).unwrap();
        let found = count(store.reader());
        store.close().unwrap();
        found
    };
    [
        read(Recovery::Heal),
        read(Recovery::Salvage),
        write(Recovery::Salvage),
        write(Recovery::Heal),
    ]
}

#[test]
fn every_record_of_a_killed_broker_is_kept_whatever_its_properties_hold() {
    let nul = |count| "\0".repeat(count);
    for properties in [
        pair("k", &nul(40), false),
        pair("k", &nul(1400), false),
        pair("k", &nul(1400), true),
        pair(&nul(1400), "v", true),
        vec![0; 2000],
        b"no pair".to_vec(),
    ] {
        let dir = in_memory();
        let mut writer = StoreWriter::small(dir.path());
        for _ in 0..3 {
            writer.append(message(properties.clone()));
        }
        writer.finish(false);
        assert_eq!(found(dir.path()), [3; 4], "{}", properties.escape_ascii());
    }
}

#[test]
fn a_record_that_is_appended_without_its_last_separator_survives_a_kill() {
    let dir = in_memory();
    let store = open(dir.path());
    for count in [1, 40, 400] {
        let properties = pair("k", &"\0".repeat(count), false);
        let done = store.append(message(properties.clone())).unwrap().appended;
        let stored = store.reader().message_at(done.physical_offset).unwrap();
        assert_eq!(stored.view().properties().bytes(), [&properties[..], &[2]].concat());
    }
    assert_eq!(found(killed(&store).path()), [3; 4]);
}

#[test]
fn properties_that_could_fill_a_sector_with_nul_are_refused() {
    let dir = in_memory();
    let store = open(dir.path());
    for (name, value) in [("k".to_owned(), "\0".repeat(511)), ("\0".repeat(511), "v".repeat(254))] {
        let refused = store.append(message(pair(&name, &value, true))).unwrap_err();
        assert!(matches!(refused, Error::IllegalMessage { .. }), "{refused}");
    }
    // The low byte of the length of each properties is 0, too, and directly before the run.
    let properties = pair(&"\0".repeat(510), &"v".repeat(768 - 512), true);
    assert_eq!(properties.len() % 256, 0);
    let body = [b'x'; SECTOR];
    let record = message(properties.clone()).encoded_len();
    for shift in 0..SECTOR as i64 {
        let end = store.reader().physical_bounds().end + record as i64;
        let len = (shift - end).rem_euclid(SECTOR as i64) as usize;
        let aligned = Message {
            body: body[..len].into(),
            ..message(properties.clone())
        };
        store.append(aligned).unwrap();
    }
    assert_eq!(found(killed(&store).path()), [SECTOR as i64; 4]);
}

/// Writes into the lock file what a broker does as it starts.
fn broker_starts(dir: &Path) {
    let mut bytes = fs::read(dir.join("lock")).unwrap();
    bytes.resize(bytes.len().max(4), 0);
    bytes[..4].copy_from_slice(b"lock");
    fs::write(dir.join("lock"), bytes).unwrap();
}

/// Appends a record as a broker writes it.
fn broker_appends(dir: &Path, queue_offset: i64, properties: Vec<u8>) {
    let reader = MessageReader::open(&real(), dir, config(Recovery::Heal)).unwrap();
    let record = Message {
        queue_offset,
        physical_offset: reader.physical_bounds().end,
        store_time: reader.recovery().last_store_time + 1,
        ..message(properties)
    };
    let (at, bytes) = (record.physical_offset as usize, record.encode().unwrap());
    edit(&dir.join(FIRST), |log| log[at..at + bytes.len()].copy_from_slice(&bytes));
}

#[test]
fn a_brokers_appends_to_our_crash_are_kept_though_killed_before_its_stamp() {
    let dir = in_memory();
    let store = open(dir.path());
    store.append(message(Vec::new())).unwrap();
    // Our stamp stays beside what the broker appends.
    store.close().unwrap();
    let store = open(dir.path());
    store.append(message(Vec::new())).unwrap();
    let left = killed(&store);
    broker_starts(left.path());
    for n in 2..5 {
        broker_appends(left.path(), n, pair("k", &"\0".repeat(600), false));
    }
    assert_eq!(found(left.path()), [5; 4]);
    // We open the store again, append, and are killed.
    let store = open(left.path());
    store.append(message(pair("k", "v", true))).unwrap();
    let again = killed(&store);
    assert_eq!(found(again.path()), [6; 4]);
    // The last byte of our record never arrived.
    edit(&again.path().join(FIRST), |log| {
        let last = log.iter().rposition(|byte| *byte != 0).unwrap();
        log[last] = 0;
    });
    assert_eq!(found(again.path()), [5; 4]);
}

#[test]
fn nobody_knows_whose_records_are_when_the_lock_file_is_gone_or_torn() {
    let dir = in_memory();
    let store = open(dir.path());
    store.append(message(pair("k", "v", true))).unwrap();
    let left = killed(&store);
    edit(&left.path().join(FIRST), |log| {
        let last = log.iter().rposition(|byte| *byte != 0).unwrap();
        log[last] = 0;
    });
    assert_eq!(
        MessageReader::open(&real(), left.path(), config(Recovery::Heal))
            .unwrap()
            .physical_bounds(),
        0..0
    );
    let lock = left.path().join("lock");
    for at in 0..fs::read(&lock).unwrap().len() {
        let whole = fs::read(&lock).unwrap();
        edit(&lock, |bytes| bytes[at] ^= 1);
        assert_eq!(found(left.path()), [1; 4], "byte {at}");
        fs::write(&lock, whole).unwrap();
    }
    fs::remove_file(&lock).unwrap();
    assert_eq!(found(left.path()), [1; 4]);
}
