//! Every consume queue of a store, by topic and queue id, and the forms of queue that this crate does not read.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::log::consume_queue::ConsumeQueue;
use crate::storage::{EntryKind, Env, MappingPool};

const QUEUES: &str = "consumequeue";
const BATCH_QUEUES: &str = "batchconsumequeue";
const ROCKSDB_QUEUES: &str = "consumequeue_rocksdb";
/// Queue files that stay mapped: the log and the index need some of the guard's places, too.
const MAX_MAPPED_FILES: usize = 3000;

/// The queues of one topic.
#[derive(Debug)]
pub enum TopicQueues {
    /// By queue id.
    Files(BTreeMap<i32, ConsumeQueue>),
    /// The topic has a batch consume queue, below this directory.
    Batch(PathBuf),
}

/// The queues of all topics.
#[derive(Debug)]
pub struct ConsumeQueueStore {
    env: Arc<dyn Env>,
    root: PathBuf,
    file_size: Option<u64>,
    pool: Arc<MappingPool>,
    topics: BTreeMap<String, TopicQueues>,
    /// Where the queues are a RocksDB database and nowhere else.
    rocksdb: Option<PathBuf>,
}

impl ConsumeQueueStore {
    /// Lists the queues below the store directory `root`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a queue file of the wrong length or name, [`Error::Io`].
    pub fn load(env: Arc<dyn Env>, root: &Path, file_size: Option<u64>) -> Result<Self> {
        let mut store = Self {
            env,
            root: root.to_owned(),
            file_size,
            pool: Arc::new(MappingPool::new(MAX_MAPPED_FILES)),
            topics: BTreeMap::new(),
            rocksdb: None,
        };
        for (topic, dir) in store.topic_dirs(QUEUES)? {
            let queues = store.load_topic(&dir)?;
            if !queues.is_empty() {
                store.topics.insert(topic, TopicQueues::Files(queues));
            }
        }
        for (topic, dir) in store.topic_dirs(BATCH_QUEUES)? {
            store.topics.entry(topic).or_insert(TopicQueues::Batch(dir));
        }
        if store.topics.is_empty() {
            store.rocksdb = store.find_rocksdb()?;
        }
        Ok(store)
    }

    /// The database directory, if the queues are kept in RocksDB only.
    pub fn rocksdb(&self) -> Option<&Path> {
        self.rocksdb.as_deref()
    }

    /// Whether any topic has queues in files.
    pub fn has_files(&self) -> bool {
        self.topics.values().any(|queues| matches!(queues, TopicQueues::Files(_)))
    }

    /// The topics, ascending by name.
    pub fn topics(&self) -> impl Iterator<Item = (&str, &TopicQueues)> {
        self.topics.iter().map(|(topic, queues)| (topic.as_str(), queues))
    }

    /// Whether the topic has queues of any form but RocksDB's.
    pub fn has_topic(&self, topic: &str) -> bool {
        self.topics.contains_key(topic)
    }

    /// The queues of `topic` by id; `None` for a topic that has none.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for RocksDB and batch consume queues.
    pub fn queues(&self, topic: &str) -> Result<Option<&BTreeMap<i32, ConsumeQueue>>> {
        if let Some(path) = &self.rocksdb {
            return Err(unsupported(path, "the consume queues are a RocksDB database"));
        }
        match self.topics.get(topic) {
            None => Ok(None),
            Some(TopicQueues::Files(queues)) => Ok(Some(queues)),
            Some(TopicQueues::Batch(path)) => Err(unsupported(path, "the topic has a batch consume queue")),
        }
    }

    /// One queue; `None` if it is absent.
    ///
    /// # Errors
    /// As [`ConsumeQueueStore::queues`].
    pub fn queue(&self, topic: &str, queue_id: i32) -> Result<Option<&ConsumeQueue>> {
        Ok(self.queues(topic)?.and_then(|queues| queues.get(&queue_id)))
    }

    /// Every queue that is kept in files.
    pub fn file_queues(&self) -> impl Iterator<Item = &ConsumeQueue> {
        self.topics
            .values()
            .filter_map(|queues| match queues {
                TopicQueues::Files(queues) => Some(queues.values()),
                TopicQueues::Batch(_) => None,
            })
            .flatten()
    }

    pub(crate) fn file_queues_mut(&mut self) -> impl Iterator<Item = &mut ConsumeQueue> {
        self.topics
            .values_mut()
            .filter_map(|queues| match queues {
                TopicQueues::Files(queues) => Some(queues.values_mut()),
                TopicQueues::Batch(_) => None,
            })
            .flatten()
    }

    /// The queue for messages that only the log holds yet; `None` for a batch topic.
    pub(crate) fn queue_for_tail(&mut self, topic: &str, queue_id: i32) -> Result<Option<&mut ConsumeQueue>> {
        let queues = self
            .topics
            .entry(topic.to_owned())
            .or_insert_with(|| TopicQueues::Files(BTreeMap::new()));
        let TopicQueues::Files(queues) = queues else { return Ok(None) };
        Ok(Some(match queues.entry(queue_id) {
            Entry::Occupied(queue) => queue.into_mut(),
            Entry::Vacant(place) => {
                let dir = self.root.join(QUEUES).join(topic).join(queue_id.to_string());
                place.insert(ConsumeQueue::load(self.env.clone(), &dir, self.file_size, self.pool.clone())?)
            }
        }))
    }

    fn load_topic(&self, dir: &Path) -> Result<BTreeMap<i32, ConsumeQueue>> {
        let mut queues = BTreeMap::new();
        for entry in list(self.env.as_ref(), dir)? {
            // RocketMQ passes over entries that are no number, too.
            if entry.kind == EntryKind::Directory
                && let Some(queue_id) = entry.name.to_str().and_then(|name| name.parse().ok())
            {
                let queue = ConsumeQueue::load(self.env.clone(), &dir.join(&entry.name), self.file_size, self.pool.clone())?;
                queues.insert(queue_id, queue);
            }
        }
        Ok(queues)
    }

    fn topic_dirs(&self, kind: &str) -> Result<BTreeSet<(String, PathBuf)>> {
        let dir = self.root.join(kind);
        let entries = list(self.env.as_ref(), &dir)?;
        let topics = entries.into_iter().filter(|entry| entry.kind == EntryKind::Directory);
        Ok(topics
            .filter_map(|entry| Some((entry.name.to_str()?.to_owned(), dir.join(&entry.name))))
            .collect())
    }

    fn find_rocksdb(&self) -> Result<Option<PathBuf>> {
        for kind in [QUEUES, ROCKSDB_QUEUES] {
            let dir = self.root.join(kind);
            if list(self.env.as_ref(), &dir)?.iter().any(|entry| entry.name == "CURRENT") {
                return Ok(Some(dir));
            }
        }
        Ok(None)
    }
}

fn list(env: &dyn Env, dir: &Path) -> Result<Vec<crate::storage::DirEntry>> {
    match env.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.map_err(|error| Error::io("list", dir, error)),
    }
}

fn unsupported(path: &Path, what: &str) -> Error {
    Error::Unsupported {
        path: path.to_owned(),
        what: format!("{what}, which is not read by queue; message_at, message and query work on this store"),
    }
}
