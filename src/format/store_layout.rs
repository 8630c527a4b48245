//! The names in a store directory, except those of topics, queues, segments and index files.

/// The directory of the segments.
pub const COMMIT_LOG_DIR: &str = "commitlog";
/// The directory of the consume queues, with a directory for each topic.
pub const CONSUME_QUEUE_DIR: &str = "consumequeue";
/// The directory of the batch consume queues.
pub const BATCH_CONSUME_QUEUE_DIR: &str = "batchconsumequeue";
/// A directory in which a broker may keep its queues as a RocksDB database. It may also keep that database in [`CONSUME_QUEUE_DIR`].
pub const ROCKSDB_CONSUME_QUEUE_DIR: &str = "consumequeue_rocksdb";
/// The file that every RocksDB database has.
pub const ROCKSDB_CURRENT_FILE: &str = "CURRENT";
/// The RocksDB database that every broker of 5.4 or later creates. Its content depends on the broker's options.
pub const ROCKSDB_STORE_DIR: &str = "rocksdbstore";
/// The directory of the compacted topics of 5.x, with a directory for each topic.
pub const COMPACTION_LOG_DIR: &str = "compaction/compactionLog";
/// The directory of the timers of 5.x that are in the timer wheel.
pub const TIMER_LOG_DIR: &str = "timerlog";
/// The timer wheel of 5.x. In [`CONFIG_DIR`] a snapshot of it has this name, a dot and a number.
pub const TIMER_WHEEL_FILE: &str = "timerwheel";
/// In [`CONFIG_DIR`]: the progress of the delivery of timer messages.
pub const TIMER_CHECK_FILE: &str = "timercheck";
/// The directory of the index files.
pub const INDEX_DIR: &str = "index";
/// The directory of the settings, both a broker's and ours.
pub const CONFIG_DIR: &str = "config";
/// In [`CONFIG_DIR`]: the file sizes of a store that this crate created.
pub const GEOMETRY_FILE: &str = "mqstore.json";
/// In [`CONFIG_DIR`]: the note of a recovery that has begun to change the store.
pub const RECOVERY_NOTE_FILE: &str = "mqstore-recovery.json";
/// In [`CONFIG_DIR`]: the note of a trim.
pub const TRIM_NOTE_FILE: &str = "mqstore-trim.json";
/// In [`CONFIG_DIR`]: the note of a slave.
pub const REPLICA_NOTE_FILE: &str = "mqstore-replica.json";
/// In [`CONFIG_DIR`]: the mark of the flushed offset.
pub const FLUSHED_MARK_FILE: &str = "mqstore.flushed";
/// The file of the stamps, which say what is on disk.
pub const CHECKPOINT_FILE: &str = "checkpoint";
/// The file that the writer of the store holds locked.
pub const LOCK_FILE: &str = "lock";
/// The file that exists while a writer has the store open, and after its crash.
pub const ABORT_FILE: &str = "abort";
/// The prefix of a file that this crate has not finished.
pub const UNFINISHED_PREFIX: &str = "mqstore-new-";
/// The prefix of a directory with the old bytes that a repair has moved or copied.
pub const BACKUP_PREFIX: &str = "mqstore-backup-";

/// A settings file that a broker writes as JSON, in [`CONFIG_DIR`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerFile {
    /// Its name. The previous version has the same name with `.bak`.
    pub name: &'static str,
    /// The directories in [`CONFIG_DIR`] of the RocksDB databases in which a broker may keep the same settings.
    pub rocksdb_dirs: &'static [&'static str],
}

/// The progress of consumer groups.
pub const CONSUMER_OFFSET_FILE: BrokerFile = BrokerFile {
    name: "consumerOffset.json",
    rocksdb_dirs: &["consumerOffsets", "rdb"],
};
/// The progress of consumer groups of a broker with light queues (`enableLmq`).
pub const LMQ_CONSUMER_OFFSET_FILE: BrokerFile = BrokerFile {
    name: "lmqConsumerOffset.json",
    rocksdb_dirs: &[],
};
/// The topics, and the number of queues of each.
pub const TOPICS_FILE: BrokerFile = BrokerFile {
    name: "topics.json",
    rocksdb_dirs: &["topics", "rdb"],
};
/// The consumer groups: how often a message is retried, and further settings.
pub const SUBSCRIPTION_GROUP_FILE: BrokerFile = BrokerFile {
    name: "subscriptionGroup.json",
    rocksdb_dirs: &["subscriptionGroups", "rdb"],
};
/// The progress of the delivery of delayed messages.
pub const DELAY_OFFSET_FILE: BrokerFile = BrokerFile {
    name: "delayOffset.json",
    rocksdb_dirs: &[],
};
