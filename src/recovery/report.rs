//! What an open found.

use std::ops::Range;

/// What an open found, for people and programs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Whether the last writer closed the store: there was no `abort` file.
    pub clean_exit: bool,
    /// Physical offset from which the log was read.
    pub scan_start: i64,
    /// Physical offset at which the log ends.
    pub log_end: i64,
    /// Why it ends there.
    pub stop_reason: String,
    /// Store time of the log's last message, in ms; 0 if there is none.
    pub last_store_time: i64,
    /// Where the log's last message starts; 0 if there is none.
    pub last_offset: i64,
    /// Messages of the log that the queue files lack.
    pub undispatched: u64,
    /// Undispatched messages that the recovery of a broker does not put at their queue offsets: rebuild before a broker starts. 0 beside
    /// a live writer and for a writing open.
    pub lost_by_brokers: u64,
    /// Keys in the index that the recovery of a broker drops, under the same conditions.
    pub keys_lost_by_brokers: u64,
    /// Messages without a queue entry, because their topic or queue offset is impossible, or another message has it. They are read by
    /// physical offset, id and key only.
    pub refused: u64,
    /// Queue entries that point at or past the end of the log, or into what was lost of it.
    pub queue_entries_ahead: u64,
    /// Queue entries past the last segment. More than one shows that the end of the log is missing.
    pub queue_entries_past_segments: u64,
    /// Written bytes past the end of the log that were overwritten with zeros or removed. 0 for a reader.
    pub bytes_cut: u64,
    /// Damaged stretches inside the log that were passed over, by physical offset: only with
    /// [`Recovery::Salvage`](crate::config::Recovery::Salvage).
    pub lost: Vec<Range<i64>>,
    /// What shows that messages are missing; `None` if nothing does.
    pub missing: Option<String>,
}
