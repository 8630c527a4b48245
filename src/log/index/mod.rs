//! Index files: hash tables from message keys to physical offsets.

/// Hash chains of items, from the newest to the oldest.
mod chain;
/// A Bloom filter over the hashes of a file.
mod hash_filter;
/// An index file, read and checked.
mod index_file;
/// Appending keys to an index file.
mod index_appender;
/// Ranges of the log, each with the source of its keys.
mod source;
/// All files of a store, and the range of the log that each of them indexes.
mod index_service;
/// The state of each file: its fill level, and the lengths of its chains.
mod index_file_state;
/// Truncation: the files and items that recovery keeps.
mod truncate;

pub use chain::{Candidate, Candidates, KeyLookup};
pub(crate) use index_file::ChainItem;
pub use index_file::IndexFile;
pub use index_file_state::{Chains, IndexFileState};
pub(crate) use index_service::IndexPut;
pub use index_service::IndexService;
pub use source::{Indexed, Source};
pub use truncate::KeptIndex;
