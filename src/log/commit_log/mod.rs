//! The commit log: every message of every topic, in the order of arrival.

/// The segments, read.
mod log_files;
/// Where the log goes on after damage.
mod find_next_record;
/// The end of the log, appended to.
mod commit_log;
/// From a log that was read to one that is appended to.
mod truncate;
/// What stands in the place of what was lost.
mod salvage;

pub(crate) use commit_log::LogEnd;
pub use commit_log::{Appended, CommitLog, QueueOffsets};
pub use log_files::{LogFiles, LogRecord, LogScan, StoredMessage};
