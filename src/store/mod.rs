//! The writing process, put together.

/// What is checked and made of a message before it is appended.
mod draft;
/// A store opened for writing.
mod message_store;

pub use draft::Draft;
pub use message_store::{AppendResult, MessageStore, OpenMode};
