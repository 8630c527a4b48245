//! Index files: hash tables from message keys to physical offsets.

/// The newest item of each slot.
mod newest_items;
/// Following chains of items.
mod follow;
/// Which hashes a file can hold.
mod hash_filter;
/// One file, read.
mod index_file;
/// How its items hang in its slots.
mod links;
/// The file that keys are put into.
mod index_appender;
/// Where keys are found.
mod source;
/// All files of a store, and which part of the log each of them indexes.
mod index_service;
/// What another process adds.
mod beside;
/// The chain of a key, for people.
mod chain;
/// How each file is.
mod index_file_state;
/// Counts of keys from the headers.
mod key_counts;
/// Lookups of items by the physical offset that they name.
mod by_physical_offset;
/// Truncation: which files and items recovery keeps.
mod truncate;

pub(crate) use chain::ChainItem;
pub use follow::{Candidate, Candidates, KeyLookup};
pub use index_file::IndexFile;
pub use index_file_state::{Chains, IndexFileState};
pub(crate) use index_service::IndexPut;
pub use index_service::IndexService;
pub use source::{Indexed, Source};
pub use truncate::KeptIndex;
