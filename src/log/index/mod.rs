//! Index files: hash tables from message keys to physical offsets.

/// Chains of items, from the newest to the oldest.
mod chain;
/// A Bloom filter over the hashes of a file.
mod hash_filter;
/// One file, read and checked.
mod index_file;
/// The file that keys are put into.
mod index_appender;
/// Parts of the log, each with the index file that holds its keys.
mod source;
/// All files of a store, and which part of the log each of them indexes.
mod index_service;
/// The state of each file: how full it is, and how its keys are spread.
mod index_file_state;
/// Truncation: which files and items recovery keeps.
mod truncate;

pub use chain::{Candidate, Candidates, KeyLookup};
pub(crate) use index_file::ChainItem;
pub use index_file::IndexFile;
pub use index_file_state::{Chains, IndexFileState};
pub(crate) use index_service::IndexPut;
pub use index_service::IndexService;
pub use source::{Indexed, Source};
pub use truncate::KeptIndex;
