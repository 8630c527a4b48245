//! One file family each, from the log that everything derives from to what is derived. Reads and bounds; decides nothing across families.

/// The commit log: read, appended to, cut, salvaged.
mod commit_log;
/// Consume queues: the places of the messages of each queue.
mod consume_queue;
/// Index files: from keys to places.
mod index;
/// Up to which store time each family is known to be on disk.
mod store_checkpoint;
/// The sizes of a store that this crate has made.
mod recorded_geometry;

pub(crate) use commit_log::LogEnd;
pub use commit_log::{Appended, CommitLog, LogFiles, LogRecord, LogScan, QueueOffsets, StoredMessage};
pub use consume_queue::{ConsumeQueue, ConsumeQueueStore, QueueTail};
pub use index::{IndexCut, IndexFile, IndexService, Source};
pub use recorded_geometry::{fill_from_record, record as record_geometry};
pub use store_checkpoint::{load_checkpoint, save_checkpoint};
