//! Every name in a store directory, but those of topics, queues, segments and index files.

/// The directory of the segments.
pub const COMMIT_LOG_DIR: &str = "commitlog";
/// The directory of the consume queues, a directory for each topic.
pub const CONSUME_QUEUE_DIR: &str = "consumequeue";
/// The directory of the batch consume queues.
pub const BATCH_CONSUME_QUEUE_DIR: &str = "batchconsumequeue";
/// A directory in which a broker may keep its queues as a RocksDB database. It may also keep that database in [`CONSUME_QUEUE_DIR`].
pub const ROCKSDB_CONSUME_QUEUE_DIR: &str = "consumequeue_rocksdb";
/// The file that every RocksDB database has.
pub const ROCKSDB_CURRENT_FILE: &str = "CURRENT";
/// The RocksDB database that every broker of 5.4 or later makes. What it holds depends on the broker's options.
pub const ROCKSDB_STORE_DIR: &str = "rocksdbstore";
/// The directory of the compacted topics of 5.x, a directory for each topic.
pub const COMPACTION_LOG_DIR: &str = "compaction/compactionLog";
/// The directory of the timers of 5.x that are in the timer wheel.
pub const TIMER_LOG_DIR: &str = "timerlog";
/// The directory of the index files.
pub const INDEX_DIR: &str = "index";
/// The directory of the settings, a broker's and ours.
pub const CONFIG_DIR: &str = "config";
/// In [`CONFIG_DIR`]: the sizes of the files of a store that this crate has made.
pub const GEOMETRY_FILE: &str = "mqstore.json";
/// In [`CONFIG_DIR`]: the note of a recovery that has begun to change the store.
pub const RECOVERY_NOTE_FILE: &str = "mqstore-recovery.json";
/// In [`CONFIG_DIR`]: the mark of what was flushed.
pub const FLUSHED_MARK_FILE: &str = "mqstore.flushed";
/// The file that says how much of the store is on disk.
pub const CHECKPOINT_FILE: &str = "checkpoint";
/// The file that the writer of the store holds locked.
pub const LOCK_FILE: &str = "lock";
/// The file that is there while a writer has the store open, and after its crash.
pub const ABORT_FILE: &str = "abort";
/// How the name of a file begins that this crate has not finished.
pub const UNFINISHED_PREFIX: &str = "mqstore-new-";
/// How the name of a directory begins that holds what a repair has set aside.
pub const BACKUP_PREFIX: &str = "mqstore-backup-";

/// A file of settings that a broker writes as JSON, in [`CONFIG_DIR`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerFile {
    /// Its name. The same name with `.bak` is the one before.
    pub name: &'static str,
    /// The directories in [`CONFIG_DIR`] of the RocksDB databases in which a broker may keep the same.
    pub rocksdb_dirs: &'static [&'static str],
}

/// How far the groups of consumers have come.
pub const CONSUMER_OFFSET_FILE: BrokerFile = BrokerFile {
    name: "consumerOffset.json",
    rocksdb_dirs: &["consumerOffsets", "rdb"],
};
/// The same of a broker that has light queues (`enableLmq`).
pub const LMQ_CONSUMER_OFFSET_FILE: BrokerFile = BrokerFile {
    name: "lmqConsumerOffset.json",
    rocksdb_dirs: &[],
};
/// The topics, and how many queues each has.
pub const TOPICS_FILE: BrokerFile = BrokerFile {
    name: "topics.json",
    rocksdb_dirs: &["topics", "rdb"],
};
/// How far the delivery of delayed messages has come.
pub const DELAY_OFFSET_FILE: BrokerFile = BrokerFile {
    name: "delayOffset.json",
    rocksdb_dirs: &[],
};
