//! Index files that somebody has put beside a log: those of another store, or older ones of the same.

use std::fs;
use std::path::Path;

use mqstore::config::Errors;
use mqstore::format::segment_name;
use mqstore::read::{HitBounds, MessageReader};
use tempfile::{TempDir, tempdir};

use crate::queries::by_key;
use crate::reading::open;
use crate::store_writer::StoreWriter;

const SEGMENT: u64 = 16384;
const MESSAGES: usize = 700;

/// A store of messages in orders/0 with keys k0, k1 ... and bodies of one length. Its index has two files.
fn store(key: &str, body: &[u8], messages: usize) -> TempDir {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::small(dir.path());
    for n in 0..messages {
        writer.put("orders", 0, body, &[("KEYS", &format!("{key}{n}"))]);
    }
    writer.finish(true);
    dir
}

fn own() -> TempDir {
    store("k", b"body", MESSAGES)
}

fn copy_index_files(from: &Path, to: &Path, first: usize) {
    let mut files: Vec<_> = fs::read_dir(from.join("index"))
        .unwrap()
        .map(|file| file.unwrap().file_name())
        .collect();
    files.sort();
    for file in files.iter().skip(first) {
        fs::copy(from.join("index").join(file), to.join("index").join(file)).unwrap();
    }
}

fn expire(path: &Path, segments: u64) {
    for segment in 0..segments {
        fs::remove_file(path.join("commitlog").join(segment_name(segment * SEGMENT))).unwrap();
    }
}

/// Every message of the log is found by its key, and the answers say so.
fn expect_all(reader: &MessageReader, what: &str) {
    let first = MESSAGES - reader.queue_bounds("orders", 0).unwrap().count();
    let keys: Vec<String> = (0..MESSAGES).map(|n| format!("k{n}")).collect();
    let wanted: Vec<(&str, &str)> = keys.iter().map(|key| ("orders", key.as_str())).collect();
    let hits = reader.resolve_keys(&wanted, &HitBounds::default(), Errors::Raise).unwrap();
    for (n, key) in keys.iter().enumerate() {
        let expected = usize::from(n >= first);
        let found = reader.query(&by_key("orders", key)).unwrap();
        assert_eq!((found.hits.len(), found.complete), (expected, true), "{key}, {what}");
        assert_eq!(hits.of(n).len(), expected, "{key}, {what}");
    }
}

fn used(reader: &MessageReader) -> Vec<bool> {
    reader.index_files().unwrap().iter().map(|file| file.is_used).collect()
}

#[test]
fn index_files_of_another_store_hide_no_message() {
    let others = [
        ("no record starts where its items lead", store("k", b"another body", MESSAGES)),
        ("records of other keys start there", store("x", b"body", MESSAGES)),
    ];
    for (what, other) in others {
        for first in [0, 1] {
            let own = own();
            copy_index_files(other.path(), own.path(), first);
            let reader = open(own.path());
            expect_all(&reader, what);
            assert_eq!(used(&reader), [first == 1, false], "{what}");
        }
    }
}

#[test]
fn a_foreign_index_file_with_one_common_key_hides_no_message() {
    let own = store("common k", b"body", MESSAGES);
    copy_index_files(store("common x", b"body", MESSAGES).path(), own.path(), 0);
    let reader = open(own.path());
    expect_all(&reader, "a key in common");
    assert!(used(&reader).iter().all(|is_used| !is_used));
}

#[test]
fn a_foreign_index_file_hides_no_message_of_an_expired_log_start() {
    let own = own();
    let other = store("k", b"the body of a store in which other messages have expired", MESSAGES);
    copy_index_files(other.path(), own.path(), 0);
    expire(own.path(), 2);
    expect_all(&open(own.path()), "expired");
}

#[test]
fn the_index_of_a_log_serves_when_its_first_messages_have_expired() {
    let own = own();
    expire(own.path(), 2);
    let reader = open(own.path());
    expect_all(&reader, "expired");
    assert_eq!(used(&reader), [true, true]);
}

#[test]
fn an_older_index_of_the_same_log_serves_up_to_its_end() {
    let own = own();
    copy_index_files(store("k", b"body", 500).path(), own.path(), 0);
    let reader = open(own.path());
    expect_all(&reader, "older");
    assert_eq!(used(&reader), [true, true]);
}

#[test]
fn an_index_of_messages_cut_from_the_log_hides_no_later_message() {
    let own = own();
    let other = tempdir().unwrap();
    let mut writer = StoreWriter::small(other.path());
    for n in 0..MESSAGES {
        let (body, key): (&[u8], _) = if n < 600 { (b"body", 'k') } else { (b"another body", 'x') };
        writer.put("orders", 0, body, &[("KEYS", &format!("{key}{n}"))]);
    }
    writer.finish(true);
    copy_index_files(other.path(), own.path(), 0);
    let reader = open(own.path());
    expect_all(&reader, "cut");
    assert_eq!(used(&reader), [true, false]);
}
