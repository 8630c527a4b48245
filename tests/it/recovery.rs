//! Opening a crashed store for writing: what is kept, what is cut, what is refused, and how much is read.

mod accidents;
mod checkpoints;
mod decision;
mod derived;
mod forged;
mod index;
mod kept;
mod missing_end;
mod salvage;
mod stamps;
mod states;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mqstore::config::{Recovery, StoreConfig};
use mqstore::error::{Error, Result};
use mqstore::format::Checkpoint;
use mqstore::read::{MessageReader, QueueScan};
use mqstore::recovery::RecoveryReport;
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode};
use tempfile::TempDir;

use crate::counting_env::CountingEnv;
use crate::queries::by_key;
use crate::store_writer::StoreWriter;

/// Bytes of a segment of [`StoreWriter::small`].
const SEGMENT: i64 = 16384;

/// A store on tmpfs, as a broker with small files leaves it.
struct Crashed {
    dir: TempDir,
    /// Of every message, in order.
    offsets: Vec<i64>,
    last_store_time: i64,
}

impl Crashed {
    /// `count` messages, alternately in `orders/0` and `orders/1`, keys k0, k1 ..., without a checkpoint.
    fn new(count: i32, clean: bool) -> Self {
        let dir = TempDir::new_in("/dev/shm").unwrap();
        let mut writer = StoreWriter::small(dir.path());
        let put = |n: i32| {
            let (body, key) = (format!("body {n}"), format!("k{n}"));
            writer.put("orders", n % 2, body.as_bytes(), &[("KEYS", &key), ("TAGS", "tag")])
        };
        let offsets = (0..count).map(put).collect();
        writer.finish(clean);
        let last_store_time = writer.last_store_time;
        Self {
            dir,
            offsets,
            last_store_time,
        }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// The segment that holds an offset, and the position in it.
    fn segment(&self, offset: i64) -> (PathBuf, usize) {
        let start = offset - offset % SEGMENT;
        (self.at("commitlog").join(format!("{start:020}")), (offset - start) as usize)
    }

    /// Flips a bit in the body of message `n`.
    fn damage(&self, n: usize) {
        let (path, at) = self.segment(self.offsets[n]);
        edit(&path, |bytes| bytes[at + 90] ^= 1);
    }

    /// Covers every message stored up to this long after the first one.
    fn stamp(&self, time: i64) {
        let stamps = Checkpoint {
            physic_msg_timestamp: time,
            logics_msg_timestamp: time,
            ..Checkpoint::default()
        };
        fs::write(self.at("checkpoint"), stamps.encode()).unwrap();
    }

    /// Zeroes the entries from `from` on of `orders/QUEUE`, and removes the files that then hold none.
    fn lose_entries(&self, queue: i32, from: usize) {
        let dir = self.at(&format!("consumequeue/orders/{queue}"));
        for name in names(&dir) {
            let start: usize = name.parse().unwrap();
            let path = dir.join(name);
            if from * 20 <= start {
                fs::remove_file(path).unwrap();
            } else {
                edit(&path, |bytes| {
                    let keep = (from * 20 - start).min(bytes.len());
                    bytes[keep..].fill(0);
                });
            }
        }
    }

    fn open(&self) -> Result<MessageStore> {
        self.open_with(Recovery::Heal)
    }

    fn open_with(&self, recovery: Recovery) -> Result<MessageStore> {
        let config = StoreConfig {
            recovery,
            ..StoreConfig::default()
        };
        MessageStore::open(&real(), self.path(), config, OpenMode::Existing)
    }

    fn open_counting(&self) -> (CountingEnv, Result<MessageStore>) {
        let env = CountingEnv::new();
        let seam: Arc<dyn Env> = Arc::new(env.clone());
        let store = MessageStore::open(&seam, self.path(), StoreConfig::default(), OpenMode::Existing);
        (env, store)
    }

    /// Opens, closes, and says what was found.
    fn recover(&self) -> RecoveryReport {
        let store = self.open().unwrap();
        let report = store.reader().recovery().clone();
        store.close().unwrap();
        report
    }

    /// Expects a refusal that names a place of the log, and that nothing but the lock was touched.
    fn refused_at(&self) -> (PathBuf, u64) {
        fs::write(self.at("lock"), "lock").unwrap();
        let before = contents(self.path());
        let refused = self.open().unwrap_err();
        assert!(contents(self.path()) == before, "changed, although refused: {refused}");
        match refused {
            Error::Corrupt { path, offset, .. } => (path, offset),
            other => panic!("not Corrupt: {other}"),
        }
    }

    fn reader(&self) -> Arc<MessageReader> {
        self.reader_with(Recovery::Heal)
    }

    fn reader_with(&self, recovery: Recovery) -> Arc<MessageReader> {
        let config = StoreConfig {
            recovery,
            ..StoreConfig::default()
        };
        Arc::new(MessageReader::open(&real(), self.path(), config).unwrap())
    }

    /// The bodies of both queues, by queue offset.
    fn bodies(&self) -> [Vec<String>; 2] {
        [0, 1].map(|queue| bodies(&self.reader(), queue))
    }

    /// Expects exactly the messages `0..count` in their queues, found by their keys, each once in the index.
    fn expect_messages(&self, count: i32) {
        let expected = [0, 1].map(|queue| (queue..count).step_by(2).map(|n| format!("body {n}")).collect::<Vec<_>>());
        assert_eq!(self.bodies(), expected);
        let reader = self.reader();
        for n in 0..count {
            assert_eq!(hits(&reader, &format!("k{n}")), [self.offsets[n as usize]], "k{n}");
        }
        let keys: usize = indexed(self.path()).values().sum();
        assert_eq!(keys, count as usize, "keys in the index");
        assert_eq!(reader.physical_bounds().end, reader.recovery().log_end);
    }
}

fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

fn bodies(reader: &Arc<MessageReader>, queue: i32) -> Vec<String> {
    let scan = QueueScan::new(reader.clone(), "orders".to_owned(), queue, 0..i64::MAX).unwrap();
    scan.map(|message| String::from_utf8(message.unwrap().view().body().to_vec()).unwrap())
        .collect()
}

fn hits(reader: &MessageReader, key: &str) -> Vec<i64> {
    let request = by_key("orders", key);
    let found = reader.query(&request).unwrap();
    assert!(found.complete);
    found.hits.iter().map(|hit| hit.physical_offset).collect()
}

/// Items by index file.
fn indexed(path: &Path) -> BTreeMap<String, usize> {
    let dir = path.join("index");
    let count = |name: &str| {
        let bytes = fs::read(dir.join(name)).unwrap();
        i32::from_be_bytes(bytes[36..40].try_into().unwrap()) as usize - 1
    };
    names(&dir).into_iter().map(|name| (name.clone(), count(&name))).collect()
}

fn real() -> Arc<dyn Env> {
    Arc::new(RealEnv::new())
}

fn names(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Every file below `dir`, by its path from there. A segment that a writer is just making may be missing.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(next) = dirs.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
                continue;
            }
            match fs::read(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                bytes => drop(found.insert(path.strip_prefix(dir).unwrap().to_owned(), bytes.unwrap())),
            }
        }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    for (name, bytes) in contents(from) {
        let path = to.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}
