//! The commit log: every message of every topic, in the order of arrival.

/// What stands at one offset.
mod log_record;
/// The segments, read.
mod log_files;
/// A cursor over records, wherever they lie.
mod record_cursor;
/// Read-ahead, and the release of pages after a pass.
mod page_cache;
/// A scan, record by record.
mod log_scan;
/// The search for whole records after damage, and salvage records over lost stretches.
mod damage;
/// The allocator of segments.
mod allocate;
/// Statistics and append-lock timing.
mod stats;
/// The state under the append lock.
mod append_state;
/// How long a group commit waits for its group.
mod pace;
/// Zeros written ahead of records, so that a sync takes less time.
mod written_blocks;
/// Appending at the end of the log.
mod commit_log;
/// The commit: from the transient store pool to the segments.
mod commit;
/// The flush: group commit.
mod flush;

pub(crate) use append_state::LogEnd;
pub use append_state::QueueOffsets;
pub use commit_log::{Appended, CommitLog};
pub(super) use damage::{ClaimedEnd, RecordSearch};
pub use log_files::LogFiles;
pub use log_record::{LogRecord, StoredMessage};
pub use log_scan::LogScan;
pub use page_cache::SequentialRead;
pub use record_cursor::RecordCursor;
pub use stats::{LogStats, PutStats, SegmentStats};
