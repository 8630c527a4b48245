//! Index files: hash tables from keys to places in the log.

/// The newest item of each slot.
mod newest_items;
/// One file, read.
mod index_file;
/// The file that keys are put into.
mod index_appender;
/// All files of a store, and which part of the log each speaks for.
mod index_service;
/// Which of them recovery keeps.
mod truncate;

pub use index_file::IndexFile;
pub use index_service::{IndexService, Source};
pub use truncate::IndexCut;
