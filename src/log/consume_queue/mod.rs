//! Consume queues: the log position of each message of a queue, in files and an in-memory tail.

/// The in-memory tail of a queue.
mod tail;
/// Entries in files.
mod entries;
/// A table by topic and queue id.
mod queue_table;
/// One queue.
mod consume_queue;
/// Cursors over the entries of a queue.
mod entry_cursor;
/// Write-back of the in-memory tail to the files.
mod write_out;
/// Truncation of a queue's files.
mod truncate;
/// All queues of a store.
mod consume_queue_store;

pub use consume_queue::ConsumeQueue;
pub use consume_queue_store::ConsumeQueueStore;
pub use entry_cursor::{EntryCursor, ScatteredEntryCursor};
pub use queue_table::{QueueHandle, QueueTable};
pub use tail::QueueTail;
