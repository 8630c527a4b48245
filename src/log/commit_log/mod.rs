//! The commit log: every message of every topic, in the order of arrival.

/// The record at one offset.
mod log_record;
/// The segments, read.
mod log_files;
/// A cursor over records at any offset.
mod record_cursor;
/// Read-ahead, and the release of pages after a scan.
mod page_cache;
/// A scan, record by record.
mod log_scan;
/// The search for intact records after damage, and salvage records over lost ranges.
mod damage;
/// The allocator of segments.
mod allocate;
/// Statistics and append-lock timing.
mod stats;
/// The state under the append lock.
mod append_state;
/// Appended, committed, readable and flushed, and which of them coincide in each write mode.
mod watermarks;
/// The flush: segments with unsynced bytes, and the delay of a group commit.
mod flush;
/// The commit: from the transient store pool to the segments.
mod commit;
/// Appending at the end of the log.
mod commit_log;
/// Appending what a master has sent.
mod received;

pub(crate) use append_state::LogEnd;
pub use append_state::{Appended, Prepared, QueueOffsets, QueueSlot};
pub use commit_log::CommitLog;
pub(super) use damage::{ClaimedEnd, RecordSearch};
pub use log_files::LogFiles;
pub use log_record::{LogRecord, StoredMessage};
pub use log_scan::LogScan;
pub use page_cache::SequentialRead;
pub use received::ReceivedTail;
pub use record_cursor::RecordCursor;
pub use stats::{LogStats, PutStats, SegmentStats};
pub use watermarks::Watermarks;
