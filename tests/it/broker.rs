//! A broker's work on a store, without a network.

mod cleaning;
mod consumers;
mod damaged_settings;
mod delay;
mod delay_histories;
pub(crate) mod delayed_log;
mod positions;
mod groups;
mod hand_over;
mod histories;
mod open_transactions;
mod progress;
mod retention;
mod retries;
mod starts;
mod subscription_groups;
mod timer_recalls;
mod timers;
mod topics;
mod transaction_histories;
pub(crate) mod transaction_log;
mod transactions;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mqstore::broker::{BrokerController, Consumer, Start, Subscription};
use mqstore::config::StoreConfig;
use mqstore::read::{OnMissing, StoredMessage};
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode};
use serde_json::Value;
use tempfile::TempDir;

use crate::writing::{message, with};

/// Bytes of a small segment.
const SEGMENT: i64 = 16384;
/// The time after which a message is given again.
const CONSUME_TIMEOUT: Duration = Duration::from_secs(900);

/// A store that is open for writing, with a broker's work on it.
struct Open {
    store: Arc<MessageStore>,
    broker: BrokerController,
}

impl Open {
    fn at(path: &Path) -> Self {
        Self::with(path, StoreConfig::default())
    }

    /// Opens a store with segments of this size.
    fn with_segments(path: &Path, bytes: u64) -> Self {
        let config = StoreConfig {
            mapped_file_size_commit_log: Some(bytes),
            ..StoreConfig::default()
        };
        Self::with(path, config)
    }

    fn with(path: &Path, config: StoreConfig) -> Self {
        let env: Arc<dyn Env> = Arc::new(RealEnv::new());
        Self::in_env(&env, path, config)
    }

    fn in_env(env: &Arc<dyn Env>, path: &Path, config: StoreConfig) -> Self {
        let store = MessageStore::open(env, path, config, OpenMode::Append).unwrap();
        let store = Arc::new(store);
        let broker = BrokerController::new(&store);
        Self { store, broker }
    }

    /// Appends a message with its tag as body, and returns its queue offset.
    fn append(&self, topic: &str, queue_id: i32, tag: &str) -> i64 {
        let tagged = with(message(topic, queue_id, tag.as_bytes()), &[("TAGS", tag)]);
        self.store.append(tagged).unwrap().appended.queue_offset
    }

    fn consumer(&self, group: &str, subscription: Subscription) -> Consumer {
        self.broker.consumer(Some(group), subscription, &Start::Earliest).unwrap()
    }

    /// The death of the process: nothing is closed.
    fn kill(self) {
        std::mem::forget(self.broker);
        std::mem::forget(self.store);
    }

    fn close(self) {
        self.broker.close().unwrap();
        self.store.close().unwrap();
    }
}

/// A store directory, and the files of settings in it.
struct Settings(TempDir);

impl Settings {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// A store that was opened for writing once, with these settings.
    fn with(name: &str, settings: &str) -> Self {
        let place = Self::new();
        place.open().close();
        fs::write(place.file(name), settings).unwrap();
        place
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join("config").join(name)
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.file(name)).unwrap()).unwrap()
    }

    fn open(&self) -> Open {
        Open::at(self.0.path())
    }
}

fn directory() -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let store = dir.path().join("store");
    (dir, store)
}

fn subscription(topics: &[&str]) -> Subscription {
    Subscription {
        topics: topics.iter().map(|topic| (*topic).to_owned()).collect(),
        tags: "*".to_owned(),
        is_ordered: false,
        max_reconsume_times: Some(16),
        consume_timeout: CONSUME_TIMEOUT,
        on_missing: OnMissing::Refuse,
    }
}

fn bodies(messages: &[StoredMessage]) -> Vec<String> {
    let body = |message: &StoredMessage| String::from_utf8_lossy(message.view().body()).into_owned();
    messages.iter().map(body).collect()
}

fn ack(consumer: &Consumer, messages: &[StoredMessage]) -> usize {
    let topics: Vec<_> = messages.iter().map(|message| message.view().topic().into_owned()).collect();
    let places = messages.iter().zip(&topics).map(|(message, topic)| {
        let view = message.view();
        (topic.as_str(), view.queue_id(), view.queue_offset())
    });
    consumer.ack(places).unwrap()
}
