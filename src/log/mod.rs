//! The file families: the commit log, and the files derived from it. Each module reads and writes one family and decides nothing
//! about another.

/// The mark of the flushed offset.
mod flushed_mark_file;
/// The note of a trim: where the log begins.
mod trim_note;
/// The commit log: read, appended to, truncated, salvaged.
mod commit_log;
/// RocksDB databases of a broker, by their files.
mod rocksdb;
/// Consume queues: the log position of each message of a queue.
mod consume_queue;
/// Index files: from message keys to physical offsets.
mod index;
/// The search for the next record after damage, by log, queues and index.
mod record_starts;
/// The checkpoint file: read and replaced.
mod store_checkpoint;
/// The recorded file sizes of a store that this crate has created.
mod recorded_geometry;
/// The settings files of a broker.
mod broker_settings;
/// The parts of a store that a broker keeps in files of other formats.
mod kept_elsewhere;

pub use broker_settings::{BrokerSettings, load_broker_settings};
pub(crate) use commit_log::LogEnd;
pub use commit_log::{
    Appended, CommitLog, LogFiles, LogRecord, LogScan, LogStats, Prepared, PutStats, QueueOffsets, QueueSlot, ReceivedTail,
    RecordCursor, SegmentStats, SequentialRead, StoredMessage, Watermarks,
};
pub use consume_queue::{ConsumeQueue, ConsumeQueueStore, EntryCursor, QueueHandle, QueueTable, QueueTail, ScatteredEntryCursor};
pub use flushed_mark_file::{FlushedMarkFile, is_flushed_mark_locked, load_flushed_mark, lock_flushed_mark};
pub use index::{Candidate, Candidates, Chains, IndexFile, IndexFileState, IndexService, Indexed, KeptIndex, KeyLookup, Source};
pub(crate) use index::{ChainItem, IndexPut};
pub use kept_elsewhere::{KeptElsewhere, StorePart, kept_elsewhere};
pub use record_starts::{LastWriter, RecordStarts};
pub use recorded_geometry::{fill_from_record, record as record_geometry};
pub use store_checkpoint::{load_checkpoint, save_checkpoint};
