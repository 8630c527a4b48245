//! Writing: what is appended reads back and is right on disk, with any threads, limits, clocks and device failures.

mod ahead;
mod appending;
mod batches;
mod beside;
mod busy;
mod closing;
mod concurrency;
mod dispatching;
mod dropping;
mod failures;
mod flushing;
mod full_disk;
mod group_commit;
mod handing_over;
mod helping;
mod kinds;
mod limits;
mod many_queues;
mod model;
mod nowait;
mod opening;
mod own_writes;
mod pool;
mod prepared;
mod queue_files;
mod refreshing;
mod reopening;
mod replaced_lock;
mod services;
mod shortages;
mod sizes;
mod start_positions;
mod stats;
mod supplied;
mod sync_order;
mod trim_closed;
mod trimming;
mod unique_keys;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::format::{Message, encode_properties};
use mqstore::read::{MessageReader, QueueScan, StoredMessage};
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{AppendResult, MessageStore, OpenMode};
use tempfile::TempDir;

use crate::counting_env::CountingEnv;

/// Appends messages together, as the options of the store say.
pub fn append_together(store: &MessageStore, messages: Vec<Message<'_>>) -> Result<Vec<AppendResult>, Error> {
    let mut done = Vec::new();
    store.appender(None).append_together(messages, &mut done)?;
    Ok(done)
}

/// Appends a producer's batch, as the options of the store say.
pub fn append_producer_batch(
    store: &MessageStore,
    common: &Message<'_>,
    batch_properties: Option<&[u8]>,
) -> Result<Vec<AppendResult>, Error> {
    let mut done = Vec::new();
    store
        .appender(None)
        .append_producer_batch(common, batch_properties, &mut done)?;
    Ok(done)
}

/// Sizes with which segments, queue files and index files roll soon.
const SEGMENT: u64 = 16384;
/// No append is refused because the machine does not run a thread that holds the lock.
const NEVER_BUSY: u64 = 3_600_000;

fn small() -> StoreConfig {
    StoreConfig {
        mapped_file_size_commit_log: Some(SEGMENT),
        mapped_file_size_consume_queue: Some(1000),
        max_hash_slot_num: Some(100),
        max_index_num: Some(400),
        os_page_cache_busy_time_out_mills: NEVER_BUSY,
        ..StoreConfig::default()
    }
}

/// A directory for a store, on tmpfs for many files. `store` in it does not exist yet.
struct Place {
    _dir: TempDir,
    store: PathBuf,
}

impl Place {
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() {
            TempDir::new_in(memory)
        } else {
            TempDir::new()
        };
        Self::in_dir(dir.unwrap())
    }

    fn on_disk() -> Self {
        Self::in_dir(TempDir::new().unwrap())
    }

    fn in_dir(dir: TempDir) -> Self {
        let store = dir.path().join("store");
        Self { _dir: dir, store }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.store.join(name)
    }

    fn names(&self, dir: &str) -> Vec<String> {
        names(&self.at(dir))
    }

    fn create(&self) -> MessageStore {
        self.create_with(small())
    }

    fn create_with(&self, config: StoreConfig) -> MessageStore {
        open(&self.store, config, OpenMode::New).unwrap()
    }

    fn reopen(&self) -> MessageStore {
        open(&self.store, StoreConfig::default(), OpenMode::Existing).unwrap()
    }

    /// A new store in a counting environment.
    fn create_counting(&self, config: StoreConfig) -> (CountingEnv, MessageStore) {
        let env = CountingEnv::new();
        let store = open_in(&env, &self.store, config, OpenMode::New).unwrap();
        (env, store)
    }

    fn reader(&self) -> Arc<MessageReader> {
        reader(&self.store)
    }
}

fn real() -> Arc<dyn Env> {
    Arc::new(RealEnv::new())
}

fn open(path: &Path, config: StoreConfig, mode: OpenMode) -> Result<MessageStore, Error> {
    MessageStore::open(&real(), path, config, mode)
}

fn open_in(env: &CountingEnv, path: &Path, config: StoreConfig, mode: OpenMode) -> Result<MessageStore, Error> {
    let env: Arc<dyn Env> = Arc::new(env.clone());
    MessageStore::open(&env, path, config, mode)
}

/// A reader as another process would open it.
fn reader(path: &Path) -> Arc<MessageReader> {
    Arc::new(MessageReader::open(&real(), path, StoreConfig::default()).unwrap())
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

pub fn message<'a>(topic: &'a str, queue_id: i32, body: &'a [u8]) -> Message<'a> {
    Message {
        topic: topic.into(),
        queue_id,
        body: body.into(),
        ..Message::default()
    }
}

pub fn with<'a>(message: Message<'a>, properties: &[(&str, &str)]) -> Message<'a> {
    Message {
        properties: encode_properties(properties.iter().copied(), true).unwrap().into(),
        ..message
    }
}

/// Appends and gives the physical offset.
fn put(store: &MessageStore, topic: &str, body: &[u8]) -> i64 {
    store.append(message(topic, 0, body)).unwrap().appended.physical_offset
}

/// A message whose record has exactly this many bytes.
fn record_of(len: usize) -> Message<'static> {
    let mut message = Message {
        topic: "t".into(),
        ..Message::default()
    };
    message.body = vec![b'x'; len - message.encoded_len()].into();
    message
}

/// Every message of a log with segments of this size, in order: no byte of it is passed over but the BLANKs.
fn walk(reader: &MessageReader, segment: u64) -> Vec<StoredMessage> {
    let mut found = Vec::new();
    let mut bounds = reader.physical_bounds();
    while !bounds.is_empty() {
        match reader.message_at(bounds.start) {
            Ok(stored) => {
                bounds.start += i64::from(stored.view().size());
                found.push(stored);
            }
            Err(Error::NotFound { .. }) => bounds.start = (bounds.start / segment as i64 + 1) * segment as i64,
            Err(error) => panic!("{error}"),
        }
    }
    found
}

/// Appends a message, and waits until its queue has a file. The dispatcher itself writes the next entries to that file.
fn put_in_file(place: &Place, store: &MessageStore, topic: &str, body: &[u8]) {
    put(store, topic, body);
    let give_up = soon();
    while !place.at(&format!("consumequeue/{topic}/0/{}", "0".repeat(20))).exists() {
        assert!(Instant::now() < give_up, "the queue of {topic} gets no file");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn bodies(reader: &Arc<MessageReader>, topic: &str, queue_id: i32) -> Vec<Vec<u8>> {
    let scan = QueueScan::new(reader.clone(), topic.to_owned(), queue_id, 0..i64::MAX).unwrap();
    scan.map(|message| message.unwrap().view().body().to_vec()).collect()
}

/// Waits until this many segments were made, names and all.
fn wait_for_segments(env: &CountingEnv, count: usize) {
    let named = |changes: Vec<String>| {
        changes
            .iter()
            .filter(|change| change.starts_with("sync directory SegmentRenamed "))
            .count()
    };
    while named(env.changes()) < 2 * count {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// A deadline that only a hang reaches.
fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn io_error() -> io::Error {
    io::Error::from_raw_os_error(5)
}

/// Returns the store as a kill of the writer leaves it now.
fn killed(place: &Place) -> TempDir {
    killed_at(&place.store)
}

/// Returns the store at `path` as a kill of the writer leaves it now.
pub fn killed_at(path: &Path) -> TempDir {
    let left = TempDir::new().unwrap();
    for (name, bytes) in contents(path) {
        let path = left.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    left
}

/// Every file below `dir` with its bytes, by its path from there.
fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = tree(dir).into_iter();
    files.filter_map(|(path, bytes)| Some((path, bytes?))).collect()
}

/// Every file and every directory below `dir`; directories have no bytes. Reads all again if a writer renames a file during the call.
fn tree(dir: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    loop {
        match tree_once(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && dir.exists() => {}
            found => return found.unwrap(),
        }
    }
}

fn tree_once(dir: &Path) -> io::Result<Vec<(PathBuf, Option<Vec<u8>>)>> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(next) = dirs.pop() {
        for entry in fs::read_dir(&next)? {
            let path = entry?.path();
            fs::symlink_metadata(&path)?;
            let bytes = if path.is_file() { Some(fs::read(&path)?) } else { None };
            found.push((path.strip_prefix(dir).unwrap().to_owned(), bytes));
            if path.is_dir() {
                dirs.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
