//! The writing process, put together.

/// The checks of a message before it is appended.
mod message_checker;
/// The directory of a store that is opened for writing: lock, abort file, what must stand in it.
mod store_directory;
/// The sizes of its files.
mod geometry;
/// What it holds, before the writer changes anything.
mod opening;
/// A store opened for writing.
mod message_store;
/// Appending to it.
mod append;
/// What has happened to it.
mod stats;
/// Waiting for messages that were appended before.
mod flushed;
/// Unique keys of messages.
mod unique_key;
/// Copying messages of another store.
mod copy;

pub use append::{AppendResult, Appender, PutStatus};
pub use copy::{Copied, Copier};
pub use flushed::Flushed;
pub use geometry::choose_sizes;
pub(crate) use geometry::find_index_file_without_sizes;
pub use message_checker::Incoming;
pub use message_store::MessageStore;
pub(crate) use opening::{find_for_rebuild, misplaced_entries};
pub use stats::StoreStats;
pub use store_directory::OpenMode;
pub(crate) use store_directory::{expect_outside, expect_unlocked, take_lock};
pub use unique_key::new_unique_key;
