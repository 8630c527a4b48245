//! The parts of a store that a broker keeps in files of other formats. They are recognised and not read.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::format::{
    BATCH_CONSUME_QUEUE_DIR, COMPACTION_LOG_DIR, CONSUMER_OFFSET_FILE, INDEX_DIR, ROCKSDB_STORE_DIR, RocksdbFamily,
    SUBSCRIPTION_GROUP_FILE, TIMER_LOG_DIR, TOPICS_FILE,
};
use crate::log::broker_settings::database_of;
use crate::log::consume_queue::ConsumeQueueStore;
use crate::log::rocksdb::families;
use crate::storage::{DirEntry, EntryKind, Env};

/// A part of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StorePart {
    /// Consume queues.
    Queues,
    /// Keys of messages.
    Keys,
    /// Transactions that have not ended.
    Transactions,
    /// Messages with a delivery time of their own.
    Timers,
    /// Compacted topics.
    CompactedTopics,
    /// The progress of consumer groups.
    ConsumerOffsets,
    /// The settings of topics.
    TopicConfigs,
    /// The settings of consumer groups.
    GroupConfigs,
}

impl StorePart {
    /// Returns its name in Python and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queues => "queues",
            Self::Keys => "keys",
            Self::Transactions => "transactions",
            Self::Timers => "timers",
            Self::CompactedTopics => "compacted_topics",
            Self::ConsumerOffsets => "consumer_offsets",
            Self::TopicConfigs => "topic_configs",
            Self::GroupConfigs => "group_configs",
        }
    }
}

/// A part of a store that is kept in files of another format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptElsewhere {
    /// The part.
    pub part: StorePart,
    /// The directory of these files.
    pub path: PathBuf,
    /// The topic, if the part belongs to one.
    pub topic: Option<String>,
    /// A sentence on the content of these files, and on what is read instead.
    pub what: String,
}

/// Returns the parts of the store at `root` that are kept in files of another format, by part.
///
/// # Errors
/// [`Error::Io`].
pub fn kept_elsewhere(env: &dyn Env, root: &Path, queues: &ConsumeQueueStore) -> Result<Vec<KeptElsewhere>> {
    let mut found = Vec::new();
    let mut add = |part, path, topic, what: String| found.push(KeptElsewhere { part, path, topic, what });
    if let Some(path) = queues.rocksdb() {
        let what = "the consume queues are a RocksDB database: messages are read from the log alone";
        add(StorePart::Queues, path.to_owned(), None, what.to_owned());
    } else if let Some(path) = queues.second_rocksdb() {
        let what =
            "a RocksDB database holds consume queues, too, among them those of light queues (%LMQ%) that have no directory here";
        add(StorePart::Queues, path.to_owned(), None, what.to_owned());
    }
    for topic in queues.batch_topics() {
        let path = root.join(BATCH_CONSUME_QUEUE_DIR).join(&topic);
        let what = format!("topic {topic:?} has a batch consume queue");
        add(StorePart::Queues, path, Some(topic), what);
    }
    let database = root.join(ROCKSDB_STORE_DIR);
    for family in families(env, &database)? {
        let (part, what) = match family {
            RocksdbFamily::Index if has_files(env, &root.join(INDEX_DIR))? => (StorePart::Keys, KEYS_TOO),
            RocksdbFamily::Index => (StorePart::Keys, KEYS),
            RocksdbFamily::Transaction => (StorePart::Transactions, TRANSACTIONS),
            RocksdbFamily::Timer => (StorePart::Timers, TIMERS),
        };
        add(part, database.clone(), None, what.to_owned());
    }
    let wheel = root.join(TIMER_LOG_DIR);
    if has_files(env, &wheel)? {
        add(StorePart::Timers, wheel, None, TIMERS_OF_WHEEL.to_owned());
    }
    let compacted = root.join(COMPACTION_LOG_DIR);
    for topic in directories(env, &compacted)? {
        let what = format!(
            "topic {topic:?} is compacted: consumers get the last message of each key from files of its own, and here its messages are \
             those that are still in the log"
        );
        add(StorePart::CompactedTopics, compacted.join(&topic), Some(topic), what);
    }
    for (part, file) in [
        (StorePart::ConsumerOffsets, CONSUMER_OFFSET_FILE),
        (StorePart::TopicConfigs, TOPICS_FILE),
        (StorePart::GroupConfigs, SUBSCRIPTION_GROUP_FILE),
    ] {
        if let Some(path) = database_of(env, root, file)? {
            let what = format!(
                "a RocksDB database holds the contents of {}, or newer ones: a broker exports it (mqadmin rocksDBConfigToJson)",
                file.name
            );
            add(part, path, None, what);
        }
    }
    found.sort_by_key(|kept| kept.part);
    Ok(found)
}

const KEYS: &str = "a RocksDB database holds keys, and there is no index file: a query by key walks the log";
const KEYS_TOO: &str = "a RocksDB database holds keys, too: a query by key uses the index files and the log";
const TRANSACTIONS: &str = "a RocksDB database holds the open transactions, with the number of checks of each: the log alone shows \
                            which half messages are not ended";
const TIMERS: &str = "a RocksDB database holds the timers that wait: the log alone shows the messages with a later time";
const TIMERS_OF_WHEEL: &str = "the timer wheel holds the timers that wait: the log alone shows the messages with a later time";

fn has_files(env: &dyn Env, dir: &Path) -> Result<bool> {
    Ok(list(env, dir)?.iter().any(|entry| entry.kind == EntryKind::File))
}

/// Returns the names of the directories in a directory, ascending.
fn directories(env: &dyn Env, dir: &Path) -> Result<Vec<String>> {
    let entries = list(env, dir)?;
    let dirs = entries.iter().filter(|entry| entry.kind == EntryKind::Directory);
    let mut names: Vec<_> = dirs.filter_map(|entry| Some(entry.name.to_str()?.to_owned())).collect();
    names.sort();
    Ok(names)
}

/// Returns the entries of a directory; no entries if it is missing.
fn list(env: &dyn Env, dir: &Path) -> Result<Vec<DirEntry>> {
    match env.list(dir) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(Vec::new()),
        listed => listed.map_err(|error| Error::io("list", dir, error)),
    }
}
