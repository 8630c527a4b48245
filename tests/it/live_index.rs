//! An index file that is written while it is read: a reader that meets a half-done put looks again.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mqstore::config::StoreConfig;
use mqstore::format::INDEX_HEADER_SIZE;
use mqstore::read::MessageReader;
use mqstore::storage::Env;
use tempfile::tempdir;

use crate::counting_env::CountingEnv;
use crate::queries::by_key;
use crate::store_writer::StoreWriter;

const COUNT: usize = 300;
/// Fields of the header, by their first byte: begin and end time, begin and end offset, slots, items.
const FIELDS: [usize; 6] = [0, 8, 16, 24, 32, 36];

/// A store of `count` messages with distinct keys; `clean` or not.
fn store(root: &Path, count: usize, clean: bool) -> Vec<u8> {
    let mut writer = StoreWriter::new(root, 1 << 16, 1000, 100, 400);
    for n in 0..count {
        writer.put("orders", 0, &[7; 100], &[("KEYS", &format!("k{n}"))]);
    }
    writer.finish(clean);
    fs::read(only_index_file(root)).unwrap()
}

fn only_index_file(root: &Path) -> PathBuf {
    fs::read_dir(root.join("index")).unwrap().next().unwrap().unwrap().path()
}

/// Queries a key that one message has; gives the bytes of the log that were read for it.
fn bytes_for(env: &CountingEnv, reader: &MessageReader, root: &Path, key: usize) -> u64 {
    let log = root.join("commitlog");
    let before = env.bytes_read_below(&log);
    let request = by_key("orders", &format!("k{key}"));
    let result = reader.query(&request).unwrap();
    let found: Vec<_> = result.hits.iter().map(|hit| hit.queue_offset).collect();
    assert!(result.complete && found == [key as i64], "k{key}: {found:?}");
    env.bytes_read_below(&log) - before
}

fn open(env: &CountingEnv, root: &Path, given: bool) -> MessageReader {
    let config = StoreConfig {
        max_hash_slot_num: given.then_some(100),
        max_index_num: given.then_some(400),
        ..StoreConfig::default()
    };
    let env: Arc<dyn Env> = Arc::new(env.clone());
    MessageReader::open(&env, root, config).unwrap()
}

#[test]
fn a_put_seen_halfway_by_the_first_query_harms_no_later_query() {
    for (clean, given) in [(false, false), (false, true), (true, false), (true, true)] {
        let (before, after) = (tempdir().unwrap(), tempdir().unwrap());
        let old = store(before.path(), COUNT - 1, clean);
        let new = store(after.path(), COUNT, clean);
        let root = after.path();
        let index = OpenOptions::new().write(true).open(only_index_file(root)).unwrap();
        // Of the header the put has changed the fields before `changed`, and none after: a reader may see any mix.
        for mix in 0..1_usize << FIELDS.len() {
            let mut header = new[..INDEX_HEADER_SIZE].to_vec();
            for (number, at) in FIELDS.into_iter().enumerate().filter(|(number, _)| mix >> number & 1 == 1) {
                let end = FIELDS.get(number + 1).copied().unwrap_or(INDEX_HEADER_SIZE);
                header[at..end].copy_from_slice(&old[at..end]);
            }
            let what = format!("mix {mix:06b}, clean {clean}, geometry given {given}");
            index.write_all_at(&header, 0).unwrap();
            let env = CountingEnv::new();
            let reader = open(&env, root, given);
            bytes_for(&env, &reader, root, COUNT - 1);
            index.write_all_at(&new[..INDEX_HEADER_SIZE], 0).unwrap();
            for key in [0, COUNT / 2, COUNT - 1] {
                let read = bytes_for(&env, &reader, root, key);
                assert!(read < 2000, "{what}: {read} bytes of the log for k{key}");
            }
        }
    }
}

#[test]
fn a_damaged_index_file_with_an_unchanged_header_is_checked_once() {
    let dir = tempdir().unwrap();
    store(dir.path(), COUNT, false);
    let path = only_index_file(dir.path());
    let mut bytes = fs::read(&path).unwrap();
    bytes[31] ^= 1;
    fs::write(&path, bytes).unwrap();
    let env = CountingEnv::new();
    let reader = open(&env, dir.path(), false);
    let read_of_index = |key| {
        let before = env.bytes_read(&path);
        bytes_for(&env, &reader, dir.path(), key);
        env.bytes_read(&path) - before
    };
    let first = read_of_index(3);
    let later = read_of_index(4);
    assert!(first > 1000 && later <= INDEX_HEADER_SIZE as u64, "{first}, then {later}");
}
