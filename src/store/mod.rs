//! The writing process, put together.

/// What is checked and made of a message before it is appended.
mod message_checker;
/// The sizes of its files.
mod geometry;
/// The directory of a store that is opened for writing: lock, abort file, what must stand in it.
mod store_directory;
/// A store opened for writing.
mod message_store;

pub use message_checker::Incoming;
pub use message_store::{AppendResult, Attempt, MessageStore};
pub use store_directory::OpenMode;
