//! One file family each, from the log that everything derives from to what is derived. Reads and bounds; decides nothing across families.

mod log_files;
mod next_whole;
mod commit_log;
mod truncation;
mod lost;
mod queue_tail;
mod queue_entries;
mod consume_queue;
mod queue_write_out;
mod queue_cut;
mod consume_queue_store;
mod index_file;
mod index_appender;
mod index_service;
mod index_cut;
mod store_checkpoint;
mod recorded_geometry;
mod recovery_note;
mod own_records;

pub use commit_log::{Appended, CommitLog, LogEnd, QueueOffsets};
pub use consume_queue::ConsumeQueue;
pub use consume_queue_store::ConsumeQueueStore;
pub use index_cut::IndexCut;
pub use index_file::IndexFile;
pub use index_service::{IndexService, Source};
pub use log_files::{LogFiles, LogRecord, LogScan, StoredMessage};
pub use own_records::{claim_log, load_own_from};
pub use queue_tail::QueueTail;
pub use recorded_geometry::{fill_from_record, record as record_geometry};
pub use recovery_note::RecoveryNote;
pub use store_checkpoint::{load_checkpoint, save_checkpoint};
