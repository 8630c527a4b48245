//! A store of which verify, or a repair, reports no error can be opened by a writer.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use mqstore::check::{FindingId, Severity, VerifyReport, VerifyRequest, verify};
use mqstore::config::StoreConfig;
use mqstore::format::{IndexGeometry, Message, segment_name};
use mqstore::read::MessageReader;
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode};
use tempfile::tempdir;

use super::table::{MESSAGES, Store, edit};
use super::{copy, told, verified, verified_by};
use crate::damage::bases::append;
use crate::golden::golden_dir;
use crate::repairing::{on_each_row, repaired};

fn has_error(report: &VerifyReport) -> bool {
    report.findings.iter().any(|finding| finding.severity == Severity::Error)
}

/// Returns true if, according to the report, a writer opens the store without options.
pub(crate) fn promises_a_writer(report: &VerifyReport) -> bool {
    let asks_for_sizes = report
        .findings
        .iter()
        .any(|finding| finding.id == FindingId::IndexSizesUnknown);
    !has_error(report) && !asks_for_sizes
}

/// Opens, appends to and closes the store at `root` if the report of verify promises that. Returns what contradicts the promise.
pub(crate) fn contradiction(root: &Path) -> Option<String> {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let look = || verified_by(&env, root, VerifyRequest::default());
    let before = look().ok().filter(promises_a_writer)?;
    let written = MessageStore::open(&env, root, StoreConfig::default(), OpenMode::Existing).and_then(|store| {
        store.append(Message {
            topic: "appended".into(),
            ..Message::default()
        })?;
        store.close()
    });
    let before = told(&before);
    if let Err(error) = written {
        return Some(format!("verify reports {before:?}, and a writer: {error}"));
    }
    match look() {
        Ok(after) if !has_error(&after) => None,
        Ok(after) => Some(format!("verify reports {before:?}, and after a writer {}", told(&after))),
        Err(error) => Some(format!("verify reports {before:?}, and after a writer it fails: {error}")),
    }
}

type Damage = (&'static str, fn(&Store<'_>));

fn resize(path: &Path, by: i64) {
    edit(path, |bytes| {
        let len = (bytes.len() as i64 + by).max(0) as usize;
        bytes.resize(len, 0);
    });
}

macro_rules! index_lengths {
    ($($by:literal),*) => {
        &[$(
            (concat!("first index file by ", $by), |store| resize(&store.files("index")[0], $by)),
            (concat!("second index file by ", $by), |store| resize(&store.files("index")[1], $by)),
            (concat!("last index file by ", $by), |store| resize(store.files("index").last().unwrap(), $by)),
            (concat!("all index files by ", $by), |store| {
                store.files("index").iter().for_each(|file| resize(file, $by));
            }),
            (concat!("only index file by ", $by), |store| {
                store.files("index").iter().skip(1).for_each(|file| fs::remove_file(file).unwrap());
                resize(&store.files("index")[0], $by);
            }),
        )*]
    };
}

const INDEX_LENGTHS: &[Damage] = index_lengths![-4096, -20, -4, -1, 1, 4, 20, 400, 4096];

fn replace(store: &Store<'_>, name: &str, make: impl FnOnce(&Path)) {
    let path = store.0.join(name);
    if fs::symlink_metadata(&path).is_ok() {
        store.remove(name);
    }
    make(&path);
}

fn directory(store: &Store<'_>, name: &str) {
    replace(store, name, |path| fs::create_dir(path).unwrap());
}

fn file(store: &Store<'_>, name: &str) {
    replace(store, name, |path| fs::write(path, b"x").unwrap());
}

fn dangling(store: &Store<'_>, name: &str) {
    replace(store, name, |path| symlink("nowhere", path).unwrap());
}

fn first_of(store: &Store<'_>, dir: &str) -> String {
    let file = store.files(dir).swap_remove(0);
    file.strip_prefix(store.0).unwrap().to_str().unwrap().to_owned()
}

fn after_the_last_segment(store: &Store<'_>) -> String {
    let next = store.files("commitlog").len() * 4096;
    format!("commitlog/{}", segment_name(next as u64))
}

/// Names that stand for something else than they should.
const NAMES: &[Damage] = &[
    ("checkpoint is a directory", |store| directory(store, "checkpoint")),
    ("lock is a directory", |store| directory(store, "lock")),
    ("abort is a directory", |store| directory(store, "abort")),
    ("mark is a directory", |store| directory(store, "config/mqstore.flushed")),
    ("note is a directory", |store| {
        directory(store, "config/mqstore-recovery.json");
    }),
    ("sizes are a directory", |store| directory(store, "config/mqstore.json")),
    ("topics are a directory", |store| directory(store, "config/topics.json")),
    ("index file is a directory", |store| {
        directory(store, &first_of(store, "index"));
    }),
    ("index file that is not a file", |store| {
        directory(store, "index/29991231235959999");
    }),
    ("index file of the last name", |store| {
        store.put("index/99999999999999999", b"");
    }),
    ("segment is a directory", |store| {
        directory(store, &after_the_last_segment(store));
    }),
    ("queue file is a directory", |store| {
        directory(store, &first_of(store, "consumequeue/orders/0"));
    }),
    ("next queue file is a directory", |store| {
        let next = store.files("consumequeue/orders/0").len() * 100;
        directory(store, &format!("consumequeue/orders/0/{}", segment_name(next as u64)));
    }),
    ("directory in index", |store| directory(store, "index/x")),
    ("index is a file", |store| file(store, "index")),
    ("consumequeue is a file", |store| file(store, "consumequeue")),
    ("config is a file", |store| file(store, "config")),
    ("topic is a file", |store| file(store, "consumequeue/orders")),
    ("queue is a file", |store| file(store, "consumequeue/orders/0")),
    ("foreign topic file", |store| file(store, "consumequeue/x")),
    ("appended topic is a file", |store| file(store, "consumequeue/appended")),
    ("foreign queue file", |store| file(store, "consumequeue/orders/x")),
    ("queue without a number", |store| directory(store, "consumequeue/orders/x")),
    ("queue with a sign", |store| directory(store, "consumequeue/orders/-1")),
    ("queue of another spelling", |store| {
        directory(store, "consumequeue/orders/00");
    }),
    ("appended queue of another spelling", |store| {
        directory(store, "consumequeue/appended");
        directory(store, "consumequeue/appended/00");
    }),
    ("foreign index file", |store| file(store, "index/x")),
    ("empty foreign segment", |store| store.put("commitlog/x", b"")),
    ("directory in commitlog", |store| directory(store, "commitlog/x")),
    ("checkpoint leads nowhere", |store| dangling(store, "checkpoint")),
    ("lock leads nowhere", |store| dangling(store, "lock")),
    ("abort leads nowhere", |store| dangling(store, "abort")),
    ("mark leads nowhere", |store| dangling(store, "config/mqstore.flushed")),
    ("note leads nowhere", |store| dangling(store, "config/mqstore-recovery.json")),
    ("sizes lead nowhere", |store| dangling(store, "config/mqstore.json")),
    ("topics lead nowhere", |store| dangling(store, "config/topics.json")),
    ("index leads nowhere", |store| dangling(store, "index")),
    ("consumequeue leads nowhere", |store| dangling(store, "consumequeue")),
    ("config leads nowhere", |store| dangling(store, "config")),
    ("index file leads nowhere", |store| dangling(store, &first_of(store, "index"))),
    ("segment leads nowhere", |store| {
        dangling(store, &after_the_last_segment(store));
    }),
    ("topic leads nowhere", |store| dangling(store, "consumequeue/orders")),
    ("queue leads nowhere", |store| dangling(store, "consumequeue/orders/0")),
    ("queue file leads nowhere", |store| {
        dangling(store, &first_of(store, "consumequeue/orders/0"));
    }),
    ("appended topic leads nowhere", |store| {
        dangling(store, "consumequeue/appended");
    }),
    ("unfinished directory", |store| directory(store, "mqstore-new-x")),
    ("unfinished link", |store| dangling(store, "config/mqstore-new-x")),
];

/// Damages a copy of a store, passes it to `then`, and collects what that returns.
fn on_each(damages: &[Damage], then: impl Fn(&Path) -> Option<String>) -> String {
    let dir = tempdir().unwrap();
    let intact = dir.path().join("intact");
    append(&intact, OpenMode::New, 0..MESSAGES);
    let mut wrong = String::new();
    for (name, damage) in damages {
        for is_crashed in [false, true] {
            let root = dir.path().join("damaged");
            copy(&intact, &root);
            let store = Store(&root);
            damage(&store);
            if is_crashed && fs::symlink_metadata(root.join("abort")).is_err() {
                store.crash();
            }
            if let Some(what) = then(&root) {
                let _ = writeln!(wrong, "--- {name}, crashed: {is_crashed}: {what}");
            }
            fs::remove_dir_all(&root).unwrap();
        }
    }
    wrong
}

/// A store of a broker whose only index file has `len` bytes and no item, with the options of its broker.
fn without_index_item(root: &Path, len: u64) -> StoreConfig {
    copy(&golden_dir().join("533_v2_record"), root);
    fs::OpenOptions::new()
        .write(true)
        .open(&Store(root).files("index")[0])
        .and_then(|file| file.set_len(len))
        .unwrap();
    StoreConfig {
        max_hash_slot_num: Some(100),
        max_index_num: Some((len - 440) / 20),
        ..StoreConfig::default()
    }
}

/// Repairs the store at `root`, which then must be as verify and the repair report it.
fn contradiction_after_repair(root: &Path) -> Option<String> {
    let report = repaired(root, false, None).ok()?;
    let is_fixed = report.left.iter().all(|finding| finding.severity != Severity::Error);
    let found = contradiction(root).filter(|_| is_fixed)?;
    Some(format!("{:?}: {found}", report.changes))
}

#[test]
fn writer_opens_what_verify_reports_without_error() {
    let mut wrong = String::new();
    on_each_row(|row, _, root| {
        if let Some(what) = contradiction(root) {
            let _ = writeln!(wrong, "--- {row}: {what}");
        }
    });
    for name in [
        "491_multifile",
        "491_crash_image",
        "498_mixed",
        "533_mixed",
        "533_v2_record",
        "551_mixed",
    ] {
        let dir = tempdir().unwrap();
        let root = dir.path().join(name);
        copy(&golden_dir().join(name), &root);
        if let Some(what) = contradiction(&root) {
            let _ = writeln!(wrong, "--- {name}: {what}");
        }
    }
    wrong += &on_each(INDEX_LENGTHS, contradiction);
    wrong += &on_each(NAMES, contradiction);
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn writer_opens_what_a_repair_leaves_without_error() {
    let mut wrong = String::new();
    on_each_row(|row, _, root| {
        if let Some(what) = contradiction_after_repair(root) {
            let _ = writeln!(wrong, "--- {row}: {what}");
        }
    });
    wrong += &on_each(INDEX_LENGTHS, contradiction_after_repair);
    wrong += &on_each(NAMES, contradiction_after_repair);
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn repair_fixes_an_index_file_of_any_length() {
    let wrong = on_each(INDEX_LENGTHS, |root| {
        let report = match repaired(root, false, None) {
            Ok(report) => report,
            Err(error) => return Some(error.to_string()),
        };
        let left: Vec<_> = report.left.iter().map(|finding| finding.id).collect();
        (!left.is_empty()).then(|| format!("{left:?}"))
    });
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn verify_reports_unknown_index_sizes_exactly_if_a_writer_needs_them() {
    let default = IndexGeometry::ROCKETMQ.file_len();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    for (len, is_crashed, is_reported) in [
        (8440, false, true),
        // A crash may have interrupted the allocation of a file that is too short, so that a writer makes it again.
        (8440, true, false),
        (default + 20, false, true),
        (default + 20, true, true),
        (default, false, false),
        (default, true, false),
    ] {
        let dir = tempdir().unwrap();
        let root = dir.path().join("store");
        let options = without_index_item(&root, len);
        if is_crashed {
            Store(&root).crash();
        }
        let case = format!("{len} bytes, crashed: {is_crashed}");
        let is_found = |config: &StoreConfig| {
            let reader = MessageReader::open(&env, &root, config.clone()).unwrap();
            let report = verify(&env, &reader, VerifyRequest::default(), |_, _| Ok(())).unwrap();
            let found = report
                .findings
                .iter()
                .find(|finding| finding.id == FindingId::IndexSizesUnknown);
            assert!(!has_error(&report), "{case}: {}", told(&report));
            assert_eq!(report.is_ok(), found.is_none(), "{case}: {}", told(&report));
            found
                .inspect(|found| assert_eq!(found.file, Store(&root).files("index")[0]))
                .is_some()
        };
        let opened = |config: &StoreConfig| MessageStore::open(&env, &root, config.clone(), OpenMode::Existing);
        assert_eq!(is_found(&StoreConfig::default()), is_reported, "{case}");
        if is_reported {
            let refused = opened(&StoreConfig::default()).unwrap_err().to_string();
            assert!(refused.contains("max_hash_slot_num"), "{case}: {refused}");
            assert!(!is_found(&options), "{case}: with options");
            opened(&options).and_then(|store| store.close()).unwrap();
            assert!(
                !is_found(&StoreConfig::default()),
                "{case}: the writer has recorded the sizes"
            );
        } else {
            opened(&StoreConfig::default()).and_then(|store| store.close()).unwrap();
        }
    }
}

#[test]
fn rebuild_of_a_store_with_unknown_index_sizes_leaves_no_warning() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    without_index_item(&root, 8440);
    fs::remove_dir_all(root.join("consumequeue")).unwrap();
    let planned = repaired(&root, true, None).unwrap();
    let report = repaired(&root, false, None).unwrap();
    assert!(report.left.is_empty(), "{:?}", report.left);
    assert_eq!(planned.left, report.left);
    assert!(verified(&root).is_ok());
}

#[test]
fn writer_makes_an_index_file_again_that_is_too_long() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    append(&root, OpenMode::New, 0..MESSAGES);
    let store = Store(&root);
    for by in [1, 20, 4096] {
        for number in [0, 1, store.files("index").len() - 1] {
            resize(&store.files("index")[number], by);
            let env: Arc<dyn Env> = Arc::new(RealEnv::new());
            MessageStore::open(&env, &root, StoreConfig::default(), OpenMode::Existing)
                .and_then(|store| store.close())
                .unwrap_or_else(|error| panic!("file {number} by {by}: {error}"));
            let report = verified(&root);
            assert_eq!(told(&report), "", "file {number} by {by}");
        }
    }
}
