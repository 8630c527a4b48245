//! The writing process, put together.

/// What is checked and made of a message before it is appended.
mod draft;
/// The sizes of its files.
mod geometry;
/// The directory of a store that is opened for writing: lock, abort file, what must stand in it.
mod store_directory;
/// Recovery's plan, carried out on disk.
mod apply;
/// What runs beside the callers: threads, or the caller's own steps.
mod services;
/// A store opened for writing.
mod message_store;

pub use draft::Incoming;
pub use message_store::{AppendResult, Attempt, MessageStore};
pub use services::Service;
pub use store_directory::OpenMode;
