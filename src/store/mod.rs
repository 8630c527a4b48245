//! The writing process, put together.

/// The settings of topics that bind producers.
mod topic_table;
/// The checks of a message before it is appended.
mod message_checker;
/// The directory of a store that is opened for writing: its lock, and what must be in it.
mod store_directory;
/// The files of a store before the writer changes anything, and their sizes.
mod opening;
/// The outcome of an append.
mod append_result;
/// The slaves of a store, and the wait of an append for them.
mod replicas;
/// A store opened for writing.
mod message_store;
/// Appending to it.
mod append;
/// A prepared writer of one queue.
mod topic_writer;
/// Trimming the oldest messages.
mod trim;
/// Unique keys of messages.
mod unique_key;
/// Copying messages of another store.
mod copy;

pub use append::{Appender, Checked, Waits};
pub use append_result::{AppendResult, PutStatus};
pub use copy::{Copied, Copier};
pub use message_checker::Incoming;
pub use message_store::{Flushed, MessageStore, StoreStats};
pub use opening::choose_sizes;
pub(crate) use opening::{find_for_rebuild, find_index_file_without_sizes};
pub use replicas::{RefusedSlave, Replicas, Slave};
pub use store_directory::OpenMode;
pub(crate) use store_directory::{expect_outside, expect_unlocked, misplaced_entries, take_lock};
pub use topic_table::{QueueChoice, TopicQueues, TopicRule, TopicTable};
pub use topic_writer::TopicWriter;
pub use trim::{TrimTo, Trimmed};
pub(crate) use trim::{last_stored, oldest_segments, remove_segments};
pub use unique_key::new_unique_key;
