//! Consume queues: for each queue the places of its messages, in files and an in-memory tail.

/// Entries that are in memory alone.
mod tail;
/// Entries in files, found and searched.
mod entries;
/// One queue.
mod consume_queue;
/// From the tail to the files.
mod write_out;
/// What recovery cuts off a queue's files.
mod truncate;
/// All queues of a store.
mod consume_queue_store;

pub use consume_queue::ConsumeQueue;
pub use consume_queue_store::ConsumeQueueStore;
pub use tail::QueueTail;
