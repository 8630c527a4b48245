//! The order of the syncs that durability rests on, as the environment saw them.

use std::path::Path;

use mqstore::config::StoreConfig;
use mqstore::store::OpenMode;

use super::services::stepped_with;
use super::{Place, SEGMENT, message, open_in, put, small, soon, wait_for_segments, with};
use crate::counting_env::CountingEnv;

/// Returns the changes from the `from`th on, with paths from the store's parent on.
fn done(env: &CountingEnv, place: &Place, from: usize) -> Vec<String> {
    let root = format!("{}/", place.store.parent().unwrap().display());
    let changes = env.changes().into_iter().skip(from);
    changes
        .map(|change| change.replace(&root, "").replace(root.trim_end_matches('/'), "."))
        .collect()
}

fn never_flushing() -> StoreConfig {
    StoreConfig {
        flush_interval_commit_log: 1_000_000,
        ..small()
    }
}

const SEGMENT_0: [&str; 8] = [
    "unlink store/mqstore-new-00000000000000000000",
    "create store/mqstore-new-00000000000000000000",
    "allocate store/mqstore-new-00000000000000000000",
    "sync SegmentAllocated store/mqstore-new-00000000000000000000",
    "map for writing store/mqstore-new-00000000000000000000",
    "rename store/commitlog/00000000000000000000",
    "sync directory SegmentRenamed store/commitlog",
    "sync directory SegmentRenamed store",
];

#[test]
fn a_new_store_is_locked_first_and_marked_before_its_first_segment() {
    let place = Place::new();
    let (env, store) = place.create_counting(never_flushing());
    let expected = [
        "create directory store",
        "lock store/lock",
        "create directory store/commitlog",
        "create directory store/consumequeue",
        "create directory store/index",
        "create directory store/config",
        "sync directory StoreDirectories store",
        "sync directory StoreDirectories .",
        "create store/abort",
        "write store/abort",
        "sync directory AbortCreated store",
        "unlink store/config/mqstore-new-mqstore.json",
        "create store/config/mqstore-new-mqstore.json",
        "write store/config/mqstore-new-mqstore.json",
        "sync ConfigFile store/config/mqstore-new-mqstore.json",
        "rename store/config/mqstore.json",
        "sync directory ConfigRenamed store/config",
        "unlink store/config/mqstore-new-mqstore.flushed",
        "create store/config/mqstore-new-mqstore.flushed",
        "write store/config/mqstore-new-mqstore.flushed",
        "sync ConfigFile store/config/mqstore-new-mqstore.flushed",
        "rename store/config/mqstore.flushed",
        "sync directory ConfigRenamed store/config",
        "open for writing store/config/mqstore.flushed",
        "open for writing store/lock",
        "write store/lock",
        "sync LogClaimed store/lock",
    ];
    assert_eq!(done(&env, &place, 0), expected);
    let opened = expected.len();
    put(&store, "t", b"first");
    let appended = done(&env, &place, opened);
    assert_eq!(appended[..8], SEGMENT_0);
    // The dispatcher may have begun on its queue, and the allocator on the next segment.
    let next = format!("{SEGMENT:020}");
    let is_begun = |change: &String| {
        change.contains("/consumequeue/") || change.contains(&next) || change.starts_with("sync directory SegmentRenamed ")
    };
    assert!(appended[8..].iter().all(is_begun), "{appended:?}");
    store.close().unwrap();
}

#[test]
fn a_reopened_store_is_locked_and_marked_before_any_change() {
    let place = Place::new();
    put(&place.create(), "t", b"first");
    // Something to clear past the end.
    let segment = place.at("commitlog/00000000000000000000");
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[5000] = 1;
    std::fs::write(&segment, bytes).unwrap();
    let env = CountingEnv::new();
    let store = open_in(&env, &place.store, never_flushing(), OpenMode::Existing).unwrap();
    let expected = [
        "lock store/lock",
        "create directory store/commitlog",
        "create directory store/consumequeue",
        "create directory store/index",
        "create directory store/config",
        "unlink store/config/mqstore-new-mqstore-recovery.json",
        "create store/config/mqstore-new-mqstore-recovery.json",
        "write store/config/mqstore-new-mqstore-recovery.json",
        "sync RecoveryNote store/config/mqstore-new-mqstore-recovery.json",
        "rename store/config/mqstore-recovery.json",
        "sync directory RecoveryNoteRenamed store/config",
        "create store/abort",
        "write store/abort",
        "sync directory AbortCreated store",
        "open for writing store/commitlog/00000000000000000000",
        "allocate store/commitlog/00000000000000000000",
        "map for writing store/commitlog/00000000000000000000",
        "zero store/commitlog/00000000000000000000",
        "sync TailZeroed store/commitlog/00000000000000000000",
        "open for writing store/config/mqstore.flushed",
        "unlink store/config/mqstore-recovery.json",
    ];
    assert_eq!(done(&env, &place, 0), expected);
    store.close().unwrap();
}

#[test]
fn a_flush_syncs_every_segment_below_the_end_before_it_reports() {
    let place = Place::new();
    let (env, store) = place.create_counting(never_flushing());
    let offsets: Vec<i64> = (0..3).map(|_| put(&store, "t", &[0; 10_000])).collect();
    store.wait_dispatched(offsets[2], Some(soon())).unwrap();
    let syncs = || {
        let changes = done(&env, &place, 0).into_iter();
        let syncs: Vec<String> = changes.filter(|change| change.starts_with("sync LogRange")).collect();
        syncs
            .iter()
            .map(|change| change[change.len() - 5..].to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(syncs(), [""; 0]);
    assert_eq!(store.flush().unwrap(), store.flushed_offset());
    assert!(store.flushed_offset() > offsets[2]);
    assert_eq!(syncs(), ["00000", "16384", "32768"]);
    // What is durable is not synced again, and full segments never.
    store.flush().unwrap();
    assert_eq!(syncs().len(), 3);
    put(&store, "t", &[0; 100]);
    store.flush().unwrap();
    assert_eq!(syncs()[3..], ["32768"]);
    store.close().unwrap();
    assert_eq!(syncs().len(), 4);
}

#[test]
fn a_roll_is_durable_before_a_record_in_it_can_be() {
    let place = Place::new();
    let (env, store) = stepped_with(&place, never_flushing());
    put(&store, "t", &[0; 10_000]);
    let before = env.changes().len();
    put(&store, "t", &[0; 10_000]);
    store.flush().unwrap();
    let log: Vec<String> = done(&env, &place, before)
        .into_iter()
        .filter(|change| !change.contains("/consumequeue/"))
        .collect();
    let mut expected: Vec<String> = SEGMENT_0
        .iter()
        .map(|change| change.replace("00000000000000000000", "00000000000000016384"))
        .collect();
    expected.extend([
        "sync LogRange store/mqstore-new-00000000000000000000".to_owned(),
        "sync LogRange store/mqstore-new-00000000000000016384".to_owned(),
        "write store/config/mqstore.flushed".to_owned(),
    ]);
    assert_eq!(log, expected);
    store.close().unwrap();
}

#[test]
fn a_clean_close_syncs_log_queues_index_checkpoint_before_removing_abort() {
    let place = Place::new();
    let (env, store) = place.create_counting(never_flushing());
    let keyed = with(message("t", 0, b"x"), &[("KEYS", "k")]);
    let offset = store.append(keyed).unwrap().appended.physical_offset;
    store.wait_dispatched(offset, Some(soon())).unwrap();
    while !place.at("consumequeue/t/0").exists() || place.names("consumequeue/t/0").is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    wait_for_segments(&env, 2);
    let before = env.changes().len();
    store.close().unwrap();
    let index = place.names("index").remove(0);
    let expected = [
        "sync LogRange store/mqstore-new-00000000000000000000".to_owned(),
        "write store/config/mqstore.flushed".to_owned(),
        format!("unlink store/commitlog/{SEGMENT:020}"),
        "sync directory SegmentRemoved store/commitlog".to_owned(),
        "sync everything QueueFiles store".to_owned(),
        format!("sync IndexFile store/index/{index}"),
        "sync directory IndexDirectory store/index".to_owned(),
        "write store/config/mqstore.flushed".to_owned(),
        "sync FlushedMark store/config/mqstore.flushed".to_owned(),
        "unlink store/mqstore-new-checkpoint".to_owned(),
        "create store/mqstore-new-checkpoint".to_owned(),
        "write store/mqstore-new-checkpoint".to_owned(),
        "sync Checkpoint store/mqstore-new-checkpoint".to_owned(),
        "rename store/checkpoint".to_owned(),
        "sync directory CheckpointRenamed store".to_owned(),
        "unlink store/abort".to_owned(),
        "sync directory AbortRemoved store".to_owned(),
    ];
    assert_eq!(done(&env, &place, before), expected);
    assert!(Path::new(&place.store).join("checkpoint").exists());
}

#[test]
fn pending_entries_are_written_before_the_queues_are_synced_at_a_close() {
    let place = Place::new();
    let (env, store) = place.create_counting(never_flushing());
    for n in 0..200 {
        store.append(message("t", n % 7, b"x")).unwrap();
    }
    store.close().unwrap();
    let changes = done(&env, &place, 0);
    let position = |start: &str| changes.iter().rposition(|change| change.starts_with(start)).unwrap();
    let last_write = changes
        .iter()
        .rposition(|change| change.contains("/consumequeue/") && !change.starts_with("sync"))
        .unwrap();
    assert!(last_write < position("sync everything QueueFiles"));
    assert!(position("sync LogRange") < position("sync everything QueueFiles"));
    assert!(position("sync everything QueueFiles") < position("rename store/checkpoint"));
    assert!(position("sync Checkpoint") < position("unlink store/abort"));
}

#[test]
fn a_full_index_file_is_synced_before_the_checkpoint_counts_it() {
    let place = Place::new();
    let (env, store) = place.create_counting(StoreConfig {
        max_hash_slot_num: Some(2),
        max_index_num: Some(3),
        ..never_flushing()
    });
    for n in 0..5 {
        store
            .append(with(message("t", 0, b"x"), &[("KEYS", &format!("k{n}"))]))
            .unwrap();
    }
    store.close().unwrap();
    let changes = done(&env, &place, 0);
    let at = |change: &str| changes.iter().position(|found| found == change).unwrap();
    for name in place.names("index") {
        assert!(at(&format!("sync IndexFile store/index/{name}")) < at("rename store/checkpoint"));
    }
    assert!(at("sync directory IndexDirectory store/index") < at("rename store/checkpoint"));
}

#[test]
fn a_store_without_a_segment_gets_its_names_synced_by_its_next_opener() {
    // The writer that made it may have been killed before the syncs.
    let place = Place::new();
    place.create_with(never_flushing()).close().unwrap();
    let env = CountingEnv::new();
    let store = open_in(&env, &place.store, never_flushing(), OpenMode::Append).unwrap();
    let opened = done(&env, &place, 0);
    for name in [
        "sync directory StoreDirectories store",
        "sync directory StoreDirectories .",
        "sync directory ConfigRenamed store/config",
    ] {
        assert!(opened.iter().any(|change| change == name), "{name}: {opened:?}");
    }
    store.close().unwrap();
}
