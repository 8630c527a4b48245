//! The parts of a store that a broker keeps in files of another format.

use std::fs;
use std::path::Path;

use mqstore::format::{RocksdbFamily, rocksdb_family};
use mqstore::log::StorePart;
use tempfile::tempdir;

use crate::golden::unpack;
use crate::reading::open;

fn parts(path: &Path) -> Vec<StorePart> {
    let kept = open(path).kept_elsewhere().unwrap();
    kept.into_iter().map(|kept| kept.part).collect()
}

/// The table file of a database.
fn table(path: &Path) -> Vec<u8> {
    let mut files = fs::read_dir(path.join("rocksdbstore"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    fs::read(
        files
            .find(|file| file.extension().is_some_and(|ending| ending == "sst"))
            .unwrap(),
    )
    .unwrap()
}

#[test]
fn the_properties_of_a_table_file_name_its_column_family() {
    let dir = tempdir().unwrap();
    for (name, family) in [
        ("551_index_rocksdb", RocksdbFamily::Index),
        ("551_timer_rocksdb", RocksdbFamily::Timer),
        ("551_trans_rocksdb", RocksdbFamily::Transaction),
    ] {
        let bytes = table(&unpack(name, dir.path()));
        assert_eq!(rocksdb_family(&bytes), Some(family));
        for end in 0..bytes.len() {
            // A file that is cut short names this family or none.
            assert_eq!(rocksdb_family(&bytes[..end]).unwrap_or(family), family);
        }
    }
}

#[test]
fn a_table_file_without_properties_may_hold_any_part() {
    let dir = tempdir().unwrap();
    let path = unpack("551_timer_rocksdb", dir.path());
    assert_eq!(parts(&path), [StorePart::Timers]);
    fs::write(path.join("rocksdbstore/000020.sst"), b"no properties").unwrap();
    assert_eq!(parts(&path), [StorePart::Keys, StorePart::Transactions, StorePart::Timers]);
}

#[test]
fn a_database_without_current_file_keeps_nothing() {
    let dir = tempdir().unwrap();
    let path = unpack("551_timer_rocksdb", dir.path());
    fs::remove_file(path.join("rocksdbstore/CURRENT")).unwrap();
    assert_eq!(parts(&path), []);
}

#[test]
fn timers_of_the_wheel_are_kept_elsewhere() {
    let dir = tempdir().unwrap();
    let path = unpack("551_lite", dir.path());
    assert_eq!(parts(&path), []);
    fs::create_dir(path.join("timerlog")).unwrap();
    assert_eq!(parts(&path), []);
    fs::write(path.join("timerlog/00000000000000000000"), [0; 52]).unwrap();
    assert_eq!(parts(&path), [StorePart::Timers]);
}
