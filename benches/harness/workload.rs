//! The messages and stores that rows measure.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use mqstore::config::StoreConfig;
use mqstore::format::{Message, encode_properties};
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{AppendResult, Incoming, MessageStore, OpenMode};

pub const TOPIC: &str = "orders";
/// The tag of all messages, and the key of those that share one.
pub const TAG: &str = "paid";
pub const KEY: &str = "order-1";
/// The body sizes of rows.
pub const BODIES: [usize; 3] = [100, 1024, 16 * 1024];
/// The limits of a round, in bytes of bodies (so that it fits into one segment of 64 MiB) and in messages.
const ROUND_BYTES: usize = 40 << 20;
const MOST_MESSAGES: usize = 150_000;

/// The parts that all messages of a row share.
pub struct Workload {
    pub body: Vec<u8>,
    /// A key and a tag.
    pub properties: Vec<u8>,
}

impl Workload {
    /// Creates a workload with bodies of `size` bytes.
    pub fn of_bodies(size: usize) -> Self {
        Self {
            body: vec![b'x'; size],
            properties: properties(KEY),
        }
    }

    /// Creates a workload without properties.
    pub fn plain(size: usize) -> Self {
        Self {
            properties: Vec::new(),
            ..Self::of_bodies(size)
        }
    }

    /// Returns a message as a caller creates it.
    pub fn message(&self, queue_id: i32) -> Message<'_> {
        Message {
            topic: TOPIC.into(),
            queue_id,
            body: self.body.as_slice().into(),
            properties: self.properties.as_slice().into(),
            ..Message::default()
        }
    }

    /// Returns the size of its record.
    pub fn record_size(&self) -> usize {
        self.message(0).encoded_len()
    }

    /// Returns the number of messages of a round.
    pub fn messages(&self, is_smoke: bool) -> usize {
        if is_smoke {
            50
        } else {
            (ROUND_BYTES / self.body.len()).min(MOST_MESSAGES)
        }
    }
}

/// Returns encoded properties with this key, and a tag.
pub fn properties(key: &str) -> Vec<u8> {
    encode_properties([("KEYS", key), ("TAGS", TAG)], true).unwrap()
}

/// Opens or creates a store with its threads.
pub fn open(path: &Path, config: StoreConfig) -> MessageStore {
    MessageStore::open(&real(), path, config, OpenMode::Append).unwrap()
}

/// Opens or creates a store without threads, which does nothing by itself.
pub fn open_stepped(path: &Path, config: StoreConfig) -> MessageStore {
    MessageStore::open_stepped(&real(), path, config, OpenMode::Append).unwrap()
}

/// Creates a store without threads whose segment is warmed up. The first message, which creates the segment, is appended.
pub fn warmed(path: &Path, segment: u64, workload: &Workload) -> MessageStore {
    let config = StoreConfig {
        mapped_file_size_commit_log: Some(segment),
        warm_mapped_file_enable: true,
        ..StoreConfig::default()
    };
    let store = open_stepped(path, config);
    store.append(workload.message(0)).unwrap();
    store
}

fn real() -> Arc<dyn Env> {
    Arc::new(RealEnv::new())
}

/// Appends `count` messages in batches, each with its own key, to `queues` queues in turn.
pub fn fill(store: &MessageStore, workload: &Workload, count: usize, queues: usize) {
    let mut done: Vec<AppendResult> = Vec::new();
    for first in (0..count).step_by(1000) {
        let message = |number: usize| -> Incoming<'_> {
            let keyed = Message {
                properties: properties(&format!("order-{number}")).into(),
                ..workload.message((number % queues) as i32)
            };
            keyed.into()
        };
        done.clear();
        let batch = (first..count.min(first + 1000)).map(message).collect();
        store.appender(None).append_all(batch, &mut done).unwrap();
    }
}

/// Copies a closed store, and calls `made` with each file of the copy.
pub fn copy_store(from: &Path, to: &Path, made: impl Fn(&Path)) {
    let mut waiting = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = waiting.pop() {
        if from.is_dir() {
            fs::create_dir(&to).unwrap();
            let names = fs::read_dir(&from).unwrap().map(|entry| entry.unwrap().file_name());
            waiting.extend(names.map(|name| (from.join(&name), to.join(&name))));
        } else {
            fs::copy(&from, &to).unwrap();
            made(&to);
        }
    }
}
