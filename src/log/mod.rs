//! One file family each, from the log that everything derives from to what is derived. Reads and bounds; decides nothing across families.

mod commit_log;
mod consume_queue;
mod consume_queue_store;
mod index_file;
mod index_service;
mod store_checkpoint;

pub use commit_log::{LogFiles, LogRecord, LogScan, StoredMessage};
pub use consume_queue::ConsumeQueue;
pub use consume_queue_store::{ConsumeQueueStore, TopicQueues};
pub use index_file::IndexFile;
pub use index_service::{IndexService, Source};
pub use store_checkpoint::load_checkpoint;
