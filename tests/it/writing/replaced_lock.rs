//! The lock file or the whole directory of a store is removed, moved or replaced under a live writer.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mqstore::check::{RepairRequest, repair};
use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::error::Error;
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode};

use super::services::stepped_with;
use super::{Place, SEGMENT, bodies, message, open, put, real, small};
use crate::simulated_env::SimulatedEnv;

/// Returns the error of an open, which fails.
fn refusal(opened: Result<MessageStore, Error>) -> Error {
    opened.expect_err("the store is refused")
}

/// The bytes of all files of a directory.
fn files_of(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_of(&path));
        } else {
            files.insert(path.clone(), fs::read(path).unwrap());
        }
    }
    files
}

/// Copies a directory.
fn copy(from: &Path, to: &Path) {
    for (path, bytes) in files_of(from) {
        let path = to.join(path.strip_prefix(from).unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

#[test]
fn a_writer_excludes_others_although_its_lock_file_was_removed() {
    for flush_disk_type in [FlushDiskType::Async, FlushDiskType::Sync] {
        let place = Place::new();
        let store = place.create_with(StoreConfig {
            flush_disk_type,
            ..small()
        });
        put(&store, "t", b"first");
        fs::remove_file(place.at("lock")).unwrap();
        for mode in [OpenMode::Existing, OpenMode::Append, OpenMode::Rebuild] {
            let refused = refusal(open(&place.store, StoreConfig::default(), mode));
            assert!(matches!(refused, Error::Locked { .. }), "{refused:?}");
        }
        assert!(!place.at("lock").exists(), "a refused writer makes no lock file");
        put(&store, "t", b"second");
        store.close().unwrap();
        let next = place.reopen();
        put(&next, "t", b"third");
        next.close().unwrap();
        let expected: [&[u8]; 3] = [b"first", b"second", b"third"];
        assert_eq!(bodies(&place.reader(), "t", 0), expected);
    }
}

#[test]
fn a_simulated_writer_excludes_others_as_a_real_one_does() {
    let env = SimulatedEnv::new();
    let (root, shared) = (Path::new("/store"), env.shared());
    let store = MessageStore::open_stepped(&shared, root, small(), OpenMode::New).unwrap();
    store.append(message("t", 0, b"x")).unwrap();
    env.unlink(&root.join("lock")).unwrap();
    let refused = refusal(MessageStore::open_stepped(&shared, root, small(), OpenMode::Existing));
    assert!(matches!(refused, Error::Locked { .. }), "{refused:?}");
    env.create(&root.join("lock")).unwrap();
    assert!(matches!(store.close(), Err(Error::Io { .. })));
    MessageStore::open_stepped(&shared, root, small(), OpenMode::Existing).unwrap();
}

#[test]
fn readers_and_a_repair_notice_a_writer_whose_lock_file_was_removed() {
    let place = Place::new();
    let store = place.create();
    put(&store, "t", b"first");
    fs::remove_file(place.at("lock")).unwrap();
    assert!(RealEnv::new().is_locked(&place.at("lock")).unwrap());
    let request = RepairRequest {
        is_dry_run: false,
        into: None,
    };
    let repaired = repair(&real(), &place.store, &StoreConfig::default(), request, |_, _| Ok(()));
    assert!(matches!(repaired, Err(Error::Locked { .. })), "{repaired:?}");
    store.close().unwrap();
    assert!(!RealEnv::new().is_locked(&place.at("lock")).unwrap());
}

#[test]
fn a_writer_whose_lock_file_was_replaced_removes_no_abort_file() {
    let place = Place::new();
    let store = place.create();
    put(&store, "t", b"first");
    fs::rename(place.at("lock"), place.at("moved")).unwrap();
    // A broker makes the file, locks it, and appends.
    fs::write(place.at("lock"), b"lock").unwrap();
    let abort = fs::metadata(place.at("abort")).unwrap().modified().unwrap();
    let checkpoint = fs::read(place.at("checkpoint")).ok();
    let refused = store.close().unwrap_err();
    assert!(refused.to_string().contains("the lock file was replaced"), "{refused}");
    assert_eq!(fs::metadata(place.at("abort")).unwrap().modified().unwrap(), abort);
    assert_eq!(fs::read(place.at("checkpoint")).ok(), checkpoint);
    let next = place.reopen();
    next.close().unwrap();
    assert_eq!(bodies(&place.reader(), "t", 0), [b"first"]);
}

#[test]
fn a_writer_changes_nothing_of_a_store_that_took_its_path() {
    let place = Place::new();
    let (_, store) = stepped_with(&place, small());
    for n in 0..2 {
        put(&store, "t", &[n; 5000]);
    }
    store.flush().unwrap();
    let moved = place.store.with_file_name("moved");
    let copied = place.store.with_file_name("copied");
    copy(&place.store, &copied);
    fs::rename(&place.store, &moved).unwrap();
    fs::rename(&copied, &place.store).unwrap();
    let other = place.reopen();
    put(&other, "t", &[9; 5000]);
    other.close().unwrap();
    let before = files_of(&place.store);

    let refused = refusal(open(&moved, StoreConfig::default(), OpenMode::Existing));
    assert!(
        matches!(refused, Error::Locked { .. }),
        "the writer still has its files: {refused:?}"
    );
    let mut acked = vec![vec![0; 5000], vec![1; 5000]];
    let refused = loop {
        let n = acked.len() as u8;
        match store.append(message("t", 0, &[n; 5000])) {
            Ok(_) => acked.push(vec![n; 5000]),
            Err(refused) => break refused,
        }
        assert!(store.appended_offset() <= 2 * SEGMENT as i64, "a roll is refused");
    };
    assert!(refused.to_string().contains("or its directory moved"), "{refused}");
    store.close().unwrap_err();
    drop(store);
    assert!(files_of(&place.store) == before, "the other store is unchanged");
    let back = open(&moved, StoreConfig::default(), OpenMode::Existing).unwrap();
    assert_eq!(bodies(back.reader(), "t", 0), acked);
    back.close().unwrap();
}
