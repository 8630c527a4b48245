//! The texts of errors and reports: which message, entry, file or option is wrong, where it is, and what to do.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mqstore::config::{Errors, Recovery, StoreConfig};
use mqstore::error::Error;
use mqstore::format::{Checkpoint, segment_name};
use mqstore::read::{GetRequest, HitBounds, MessageReader, QueryBy, QueryRequest};
use mqstore::recovery::Missing;
use mqstore::remedy::Remedy;
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode};
use tempfile::tempdir;

use crate::reading::{open, open_with};
use crate::store_writer::StoreWriter;

const SEGMENT: i64 = 16384;
const COUNT: i64 = 300;

/// A store of 300 messages in orders/0; gives their physical offsets.
fn orders(root: &Path, clean: bool) -> Vec<i64> {
    let mut writer = StoreWriter::small(root);
    let offsets = (0..COUNT).map(|n| writer.put("orders", 0, format!("body {n}").as_bytes(), &[("KEYS", "k")]));
    let offsets = offsets.collect();
    writer.finish(clean);
    offsets
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

fn segment(root: &Path, physical_offset: i64) -> PathBuf {
    let start = physical_offset - physical_offset % SEGMENT;
    root.join("commitlog").join(segment_name(start as u64))
}

fn says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

#[test]
fn an_entry_that_points_out_of_the_log_is_named_with_file_and_place() {
    let dir = tempdir().unwrap();
    orders(dir.path(), true);
    let file = dir.path().join("consumequeue/orders/0").join(segment_name(1000));
    for wrong in [1_i64 << 40, 7 << 32] {
        overwrite(&file, 60, &wrong.to_be_bytes());
        let reader = open(dir.path());
        let get = GetRequest {
            offset: 53,
            ..by_offset()
        };
        let got = reader.get::<Error>(&get, |_| Ok(true)).unwrap_err();
        for error in [reader.message_in_queue("orders", 0, 53).unwrap_err(), got] {
            let Error::Corrupt { path, offset, .. } = &error else {
                panic!("{error}")
            };
            assert_eq!((path, *offset), (&file, 60));
            says(
                &error,
                &["topic \"orders\"", "queue 0", "queue offset 53", &wrong.to_string()],
            );
            assert_eq!(error.remedy(), Some(Remedy::SkipOrSalvage), "{error}");
        }
    }
}

fn by_offset() -> GetRequest {
    GetRequest {
        topic: "orders".to_owned(),
        queue_id: 0,
        offset: 0,
        max_messages: 32,
        tags: mqstore::read::TagFilter::default(),
        bounded: true,
        errors: Errors::Raise,
    }
}

#[test]
fn an_entry_whose_segment_is_missing_names_the_entry_and_the_segment() {
    let dir = tempdir().unwrap();
    let offsets = orders(dir.path(), true);
    let gone = segment(dir.path(), SEGMENT);
    fs::remove_file(&gone).unwrap();
    let n = offsets.iter().position(|offset| *offset >= SEGMENT).unwrap() as i64;
    let error = open(dir.path()).message_in_queue("orders", 0, n).unwrap_err();
    let entry = format!("consumequeue/orders/0/{}", segment_name((n / 50 * 1000) as u64));
    says(
        &error,
        &[&gone.display().to_string(), &entry, &format!("byte {}", n % 50 * 20)],
    );
    says(&error, &[&format!("queue offset {n}")]);
}

#[test]
fn no_read_error_advises_a_salvage_that_a_missing_segment_prevents() {
    let gaps: [fn(&Path); 2] = [
        |segment| fs::remove_file(segment).unwrap(),
        |segment| fs::write(segment, b"").unwrap(),
    ];
    gaps.into_iter().for_each(expect_no_advice_of_a_salvage);
}

fn expect_no_advice_of_a_salvage(make_gap: fn(&Path)) {
    let dir = tempdir().unwrap();
    let offsets = orders(dir.path(), true);
    let hole = offsets.iter().position(|offset| *offset >= SEGMENT).unwrap() as i64;
    make_gap(&segment(dir.path(), SEGMENT));
    let salvage = StoreConfig {
        recovery: Recovery::Salvage,
        ..StoreConfig::default()
    };
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    assert!(MessageStore::open(&env, dir.path(), salvage, OpenMode::Existing).is_err());
    let walk = QueryRequest {
        topic: "orders".to_owned(),
        by: QueryBy::Tag("none".to_owned()),
        times: i64::MIN..i64::MAX,
        limit: None,
        errors: Errors::Raise,
    };
    let walked = open(dir.path()).query(&walk).unwrap_err();
    overwrite(&segment(dir.path(), 0), offsets[5] as u64 + 88, b"?");
    let reader = open(dir.path());
    for error in [
        walked,
        reader.message_in_queue("orders", 0, hole).unwrap_err(),
        reader.message_in_queue("orders", 0, 5).unwrap_err(),
        reader.message_at(offsets[5]).unwrap_err(),
        reader.query(&walk).unwrap_err(),
        reader
            .resolve_keys(&[("orders", "k")], &HitBounds::default(), Errors::Raise)
            .unwrap_err(),
    ] {
        assert_eq!(error.remedy(), Some(Remedy::SkipOrPutBack), "{error}");
    }
}

#[test]
fn a_damaged_body_is_reported_with_message_checksums_and_remedy() {
    let dir = tempdir().unwrap();
    let offsets = orders(dir.path(), true);
    let at = offsets[200];
    assert!(at > SEGMENT);
    overwrite(&segment(dir.path(), at), (at % SEGMENT) as u64 + 88, b"?");
    let reader = open(dir.path());
    let stored = crc32fast::hash(b"body 200") & 0x7fff_ffff;
    let found = crc32fast::hash(b"?ody 200") & 0x7fff_ffff;
    let message = format!("physical offset {at}");
    for error in [
        reader.message_in_queue("orders", 0, 200).unwrap_err(),
        reader.message_at(at).unwrap_err(),
    ] {
        let Error::Corrupt { path, offset, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((path, *offset), (&segment(dir.path(), at), (at % SEGMENT) as u64), "{error}");
        says(&error, &[&message, &format!("{stored:#010x}"), &format!("{found:#010x}")]);
        assert_eq!(error.remedy(), Some(Remedy::SkipOrSalvage), "{error}");
    }
    let by_queue = reader.message_in_queue("orders", 0, 200).unwrap_err();
    says(&by_queue, &["topic \"orders\"", "queue 0", "queue offset 200"]);
}

/// A store of `COUNT` messages that we closed, which then looks as after a crash.
fn stamped(root: &Path) -> Vec<i64> {
    let config = StoreConfig {
        mapped_file_size_commit_log: Some(65536),
        ..StoreConfig::default()
    };
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let store = MessageStore::open(&env, root, config, OpenMode::New).unwrap();
    let append = |n: i64| {
        let message = mqstore::format::Message {
            topic: "orders".into(),
            body: format!("body {n}").into_bytes().into(),
            ..mqstore::format::Message::default()
        };
        store.append(message).unwrap().appended.physical_offset
    };
    let offsets = (0..COUNT).map(append).collect();
    store.close().unwrap();
    fs::write(root.join("abort"), "").unwrap();
    offsets
}

#[test]
fn a_reader_warns_if_a_crashed_log_ends_before_its_own_stamp() {
    let last = COUNT as usize - 1;
    // The stamped message itself is damaged; and one before it, where a lost queue file makes the log be read again.
    for (damaged, lose_queue) in [(last, false), (last, true), (100, true)] {
        let dir = tempdir().unwrap();
        let root = dir.path().join("store");
        let offsets = stamped(&root);
        let stamps = Checkpoint::decode(&fs::read(root.join("checkpoint")).unwrap());
        assert_eq!(stamps.logics_physical_offset, offsets[last]);
        assert_eq!(open(&root).recovery().missing, None);
        // With the mark of what was flushed, the reader would report that instead.
        fs::remove_file(root.join("config/mqstore.flushed")).unwrap();
        overwrite(
            &root.join("commitlog").join(segment_name(0)),
            offsets[damaged] as u64 + 88,
            b"?",
        );
        if lose_queue {
            fs::remove_dir_all(root.join("consumequeue")).unwrap();
        }
        let reader = open(&root);
        let report = reader.recovery();
        assert_eq!(report.log_end, offsets[damaged]);
        let missing = report.missing.as_ref().map_or("", |missing| &missing.what);
        let place = offsets[last].to_string();
        for word in ["checkpoint", &place, &offsets[damaged].to_string(), &report.stop_reason] {
            assert!(missing.contains(word), "{word} is not in {missing:?}");
        }
        if !lose_queue {
            assert!(missing.contains("1 queue entr"), "{missing}");
        }
        assert!(says_salvaged(&root).is_some(), "and a salvage by a writer reports it, too");
    }
}

/// Returns what a writer that salvages the store says of what is missing.
fn says_salvaged(root: &Path) -> Option<Missing> {
    let config = StoreConfig {
        recovery: Recovery::Salvage,
        ..StoreConfig::default()
    };
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let store = MessageStore::open(&env, root, config, OpenMode::Existing).unwrap();
    let missing = store.reader().recovery().missing.clone();
    store.close().unwrap();
    missing
}

#[test]
fn a_reader_beside_a_live_writer_misses_nothing() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    let config = StoreConfig {
        mapped_file_size_commit_log: Some(4096),
        checkpoint_interval: 4096,
        ..StoreConfig::default()
    };
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let store = MessageStore::open(&env, &root, config, OpenMode::New).unwrap();
    for n in 0..400 {
        let message = mqstore::format::Message {
            topic: "orders".into(),
            body: vec![b'x'; 200].into(),
            ..mqstore::format::Message::default()
        };
        store.append(message).unwrap();
        if n % 4 == 0 {
            let reader = open(&root);
            assert_eq!(reader.recovery().missing, None);
        }
    }
    store.close().unwrap();
}

#[test]
fn a_size_option_that_the_files_contradict_is_a_wrong_option() {
    let dir = tempdir().unwrap();
    orders(dir.path(), true);
    let cases = [
        (Some(4096), None, "mapped_file_size_commit_log", "4096", "16384"),
        (Some(65536), None, "mapped_file_size_commit_log", "65536", "16384"),
        (None, Some(500), "mapped_file_size_consume_queue", "500", "1000"),
        (None, Some(2000), "mapped_file_size_consume_queue", "2000", "1000"),
    ];
    for (log, queue, name, given, found) in cases {
        let config = StoreConfig {
            mapped_file_size_commit_log: log,
            mapped_file_size_consume_queue: queue,
            ..StoreConfig::default()
        };
        let env: Arc<dyn Env> = Arc::new(RealEnv::new());
        let to_read = open_with(dir.path(), config.clone()).unwrap_err();
        let to_write = MessageStore::open(&env, dir.path(), config, OpenMode::Existing).unwrap_err();
        for error in [to_read, to_write] {
            assert!(matches!(error, Error::Invalid { .. }), "{name}: {error}");
            says(&error, &[name, given, found, &segment_name(0)]);
        }
    }
}

#[test]
fn a_path_where_nothing_is_is_no_such_directory() {
    let dir = tempdir().unwrap();
    let missing = dir.path().join("missing");
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let to_read = MessageReader::open(&env, &missing, StoreConfig::default()).unwrap_err();
    let to_write = MessageStore::open(&env, &missing, StoreConfig::default(), OpenMode::Existing).unwrap_err();
    for error in [to_read, to_write] {
        let text = format!("{}: no such directory", missing.display());
        assert_eq!(error.to_string(), text);
    }
}
