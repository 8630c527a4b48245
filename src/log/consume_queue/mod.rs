//! Consume queues: for each queue, where its messages lie in the log, in files and an in-memory tail.

/// Entries that are only in memory.
mod tail;
/// Entries in files.
mod entries;
/// Some of them, read at once.
mod entries_ahead;
/// What belongs to the queue of a message.
mod queue_table;
/// One queue.
mod consume_queue;
/// The files as they are.
mod as_written;
/// Reading entries wherever they lie.
mod unit_cursor;
/// What a sync of the queues has to cover.
mod unsynced;
/// From the tail to the files.
mod write_out;
/// Truncation of a queue's files.
mod truncate;
/// Names of topics and queues.
mod directories;
/// All queues of a store.
mod consume_queue_store;
/// File sizes: given, recorded and found.
mod file_sizes;
/// What another process adds and removes.
mod beside;
/// Lookups of entries by the physical offset that they name.
mod by_physical_offset;

pub use consume_queue::ConsumeQueue;
pub use consume_queue_store::ConsumeQueueStore;
pub use entries_ahead::EntriesAhead;
pub use queue_table::{Place, QueueTable};
pub use tail::QueueTail;
pub use unit_cursor::UnitCursor;
