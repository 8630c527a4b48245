//! The commit log: every message of every topic, in the order of arrival.

/// What stands at one offset.
mod log_record;
/// Reading the segments.
mod log_files;
/// What is in its directory.
mod as_listed;
/// Which of its bytes never change.
mod settled;
/// Reading records wherever they lie.
mod record_cursor;
/// The bytes at a place, whatever they are.
mod raw;
/// Reading many of them from disk.
mod read_ahead;
/// Reading them one after the other, and what that leaves in the page cache.
mod sequential_read;
/// Reading them record by record.
mod log_scan;
/// Where the log ends while it is appended to.
mod seen_end;
/// What another process has changed meanwhile.
mod beside;
/// Whole records where none is known to start, and the sizes that damaged records claim.
mod record_search;
/// Making segments.
mod allocate;
/// How long it is held.
mod lock_time;
/// What is counted.
mod log_stats;
/// What the append lock protects.
mod append_state;
/// When a group commit begins.
mod pace;
/// Which of its blocks were written before.
mod written_blocks;
/// Appending at the end of the log.
mod commit_log;
/// From the transient store pool to the segments.
mod commit;
/// Making it durable.
mod flush;
/// What it tells of itself.
mod telling;
/// What it has in the page cache.
mod page_cache;
/// From one segment to the next.
mod roll;
/// Truncation: from a log that was read to one that is appended to.
mod truncate;
/// Salvage records over lost stretches.
mod salvage;

pub(crate) use append_state::LogEnd;
pub use append_state::QueueOffsets;
pub use commit_log::{Appended, CommitLog};
pub use log_files::LogFiles;
pub use log_record::{LogRecord, StoredMessage};
pub use log_scan::LogScan;
pub use log_stats::{LogStats, PutStats, SegmentStats};
pub use record_cursor::RecordCursor;
pub(super) use record_search::{ClaimedEnd, RecordSearch};
pub use sequential_read::SequentialRead;
