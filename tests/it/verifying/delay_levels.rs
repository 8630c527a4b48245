//! A broker with other delays for its levels: the store does not hold them, so the times in the queue entries stay.

use std::fs;
use std::path::Path;

use mqstore::check::FindingId;
use mqstore::config::StoreConfig;
use mqstore::format::{CqUnit, Message, SCHEDULE_TOPIC, encode_properties};
use mqstore::store::{MessageStore, OpenMode};
use tempfile::tempdir;

use super::table::edit;
use super::{told, verified};
use crate::damage::bases::tiny;
use crate::repairing::{env, rebuilt, repaired};

/// The messages of each level.
const MESSAGES: usize = 4;

/// Creates a store of a writer with the levels "2s 1h".
fn create(root: &Path) {
    let config = StoreConfig {
        message_delay_level: "2s 1h".to_owned(),
        ..tiny()
    };
    let store = MessageStore::open(&env(), root, config, OpenMode::New).unwrap();
    for n in 0..2 * MESSAGES {
        let properties = encode_properties([("DELAY", ["1", "2"][n % 2])], true).unwrap();
        let message = Message {
            topic: "orders".into(),
            body: b"later".into(),
            properties: properties.into(),
            ..Message::default()
        };
        store.append(message).unwrap();
    }
    store.close().unwrap();
}

/// Returns the delays in the entries of a level, in ms.
fn delays(root: &Path, level: i32) -> Vec<i64> {
    let reader = crate::reading::open(root);
    let delay = |unit: CqUnit| {
        let message = reader.message_at(unit.physical_offset).unwrap();
        unit.tags_code - message.view().store_time()
    };
    units(root, level).into_iter().map(delay).collect()
}

fn file(root: &Path, level: i32) -> std::path::PathBuf {
    let dir = root.join("consumequeue").join(SCHEDULE_TOPIC).join((level - 1).to_string());
    dir.join("00000000000000000000")
}

fn units(root: &Path, level: i32) -> Vec<CqUnit> {
    let bytes = fs::read(file(root, level)).unwrap();
    let units = bytes.chunks_exact(20).map(|unit| CqUnit::decode(unit.try_into().unwrap()));
    units.filter(|unit| unit.is_valid()).collect()
}

fn expect_kept(root: &Path, what: &str) {
    assert_eq!(delays(root, 1), [2_000; MESSAGES], "{what}");
    assert_eq!(delays(root, 2), [3_600_000; MESSAGES], "{what}");
}

#[test]
fn due_times_of_another_level_table_are_no_finding() {
    let dir = tempdir().unwrap();
    create(dir.path());
    expect_kept(dir.path(), "created");
    assert_eq!(told(&verified(dir.path())), "");
}

#[test]
fn rebuild_and_repair_keep_due_times_of_another_level_table() {
    let dir = tempdir().unwrap();
    create(dir.path());
    // A finding of another queue is the reason for the rebuild.
    edit(&file(dir.path(), 2), |bytes| bytes[11 + 20 * (MESSAGES - 1)] ^= 1);
    for is_rebuild in [true, false] {
        let report = if is_rebuild {
            rebuilt(dir.path(), false)
        } else {
            fs::remove_file(dir.path().join("checkpoint")).unwrap();
            repaired(dir.path(), false, None)
        };
        report.unwrap();
        assert_eq!(delays(dir.path(), 1), [2_000; MESSAGES]);
        assert_eq!(delays(dir.path(), 2)[..MESSAGES - 1], [3_600_000; MESSAGES - 1]);
    }
}

#[test]
fn recovery_keeps_due_times_of_another_level_table() {
    for removed in ["checkpoint", "index"] {
        let dir = tempdir().unwrap();
        create(dir.path());
        fs::write(dir.path().join("abort"), "").unwrap();
        let path = dir.path().join(removed);
        fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path)).unwrap();
        assert!(verified(dir.path()).is_ok());
        let store = MessageStore::open(&env(), dir.path(), StoreConfig::default(), OpenMode::Existing).unwrap();
        store.close().unwrap();
        expect_kept(dir.path(), removed);
    }
}

#[test]
fn a_time_that_no_delay_gives_is_an_error_and_is_rebuilt() {
    let wrong: [fn(i64) -> i64; 5] = [
        |due| due + 1,
        |due| due - 7_200_000,
        |_| 0,
        |due| due ^ (1 << 50),
        |due| due ^ (1 << 4),
    ];
    for (number, change) in wrong.into_iter().enumerate() {
        let dir = tempdir().unwrap();
        create(dir.path());
        edit(&file(dir.path(), 2), |bytes| {
            let due = i64::from_be_bytes(bytes[12..20].try_into().unwrap());
            bytes[12..20].copy_from_slice(&change(due).to_be_bytes());
        });
        let report = verified(dir.path());
        let ids: Vec<_> = report.findings.iter().map(|finding| finding.id).collect();
        assert_eq!(ids, [FindingId::QueueTagsCode], "{number}: {}", told(&report));
        rebuilt(dir.path(), false).unwrap();
        // The delay of level 2 in the table of the rebuild.
        assert_eq!(delays(dir.path(), 2)[1..], [3_600_000; MESSAGES - 1], "{number}");
        assert_eq!(delays(dir.path(), 2)[0], 5_000, "{number}");
    }
}
