//! What a store is opened with: its files as they were found, and what is asked of them.

use std::ops::Range;

use crate::config::{Recovery, StoreConfig};
use crate::format::{Check, Checkpoint};
use crate::log::{ConsumeQueueStore, LogFiles};

/// The families of a store, and what is known of its last writer.
#[derive(Debug, Clone, Copy)]
pub struct Opened<'a> {
    /// The log.
    pub log: &'a LogFiles,
    /// The queues.
    pub queues: &'a ConsumeQueueStore,
    /// The stamps, without those in the future.
    pub checkpoint: &'a Checkpoint,
    /// Whether the last writer said goodbye: no `abort` file.
    pub clean: bool,
    /// The physical offset from which on every record is ours.
    pub own_from: Option<i64>,
    /// Where the log ended when the store was closed, if only an open that failed has come since.
    pub closed_at: Option<i64>,
    /// How much of a record is verified.
    pub check: Check,
    /// Where a writer goes on putting keys into the index; a reader does not.
    pub index_from: Option<i64>,
    /// The options.
    pub config: &'a StoreConfig,
}

impl Opened<'_> {
    /// Whether what is damaged inside the log is passed over.
    pub fn is_salvage(&self) -> bool {
        self.config.recovery == Recovery::Salvage
    }

    /// Whether nobody else can have written the record at this physical offset.
    pub(super) fn is_own(&self, physical_offset: i64) -> bool {
        self.own_from.is_some_and(|from| from <= physical_offset)
    }

    /// Whether somebody has to make sure that what is read is on disk.
    pub fn is_trusted(&self) -> bool {
        self.clean && !self.is_salvage()
    }
}

/// What an open found, for people and programs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Whether the last writer said goodbye: no `abort` file.
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
    /// Messages that the log holds and the queue files lack.
    pub undispatched: u64,
    /// Messages whose topic or queue offset no queue can have: they are read by physical offset, id and key alone.
    pub refused: u64,
    /// Queue entries that point at or past the end of the log, or into what was lost of it.
    pub queue_entries_ahead: u64,
    /// Bytes behind the end of the log that were overwritten with zeros or removed: what was written of them, torn. 0 for a reader.
    pub bytes_cut: u64,
    /// Damaged stretches inside the log that were passed over, by physical offset: only with [`Recovery::Salvage`].
    pub lost: Vec<Range<i64>>,
    /// Why messages are missing that the store's own files tell of; `None` if no file tells of more.
    pub missing: Option<String>,
}
