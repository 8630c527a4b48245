//! A store as an open finds it: its files, and what its last writer has recorded.

use crate::config::{Recovery, StoreConfig};
use crate::format::{Check, Checkpoint};
use crate::log::{ConsumeQueueStore, IndexService, LastWriter, LogFiles, RecordStarts};

/// The families of a store, and what is known of its last writer.
#[derive(Debug, Clone, Copy)]
pub struct Opened<'a> {
    /// The log.
    pub log: &'a LogFiles,
    /// The queues.
    pub queues: &'a ConsumeQueueStore,
    /// The index; `None` where nothing was opened of it.
    pub index: Option<&'a IndexService>,
    /// The stamps, without those in the future.
    pub checkpoint: &'a Checkpoint,
    /// Whether the last writer closed the store: there is no `abort` file.
    pub clean: bool,
    /// Whether another process may be appending: its last record may be half written.
    pub is_written_to: bool,
    /// The physical offset from which on every record is ours.
    pub own_from: Option<i64>,
    /// Every byte of the log below this physical offset was on disk: the mark of what was flushed. `None` if there is none, or if
    /// it is about the log of another history.
    pub flushed: Option<i64>,
    /// The physical offset of the last message with a key, by the headers of the index files.
    pub last_indexed: Option<i64>,
    /// A live writer shows nothing after this physical offset yet: it waits for its messages to be durable. `None` for any other store.
    pub shown_until: Option<i64>,
    /// Where the log ended when the store was last closed, if every later open has failed; `None` if one succeeded, or if nothing says so.
    pub closed_at: Option<i64>,
    /// How much of a record is verified.
    pub check: Check,
    /// Where a writer goes on putting keys into the index; a reader does not.
    pub index_from: Option<i64>,
    /// Whether a writer makes queues, index and checkpoint anew from the log.
    pub is_rebuilt: bool,
    /// The options.
    pub config: &'a StoreConfig,
}

impl Opened<'_> {
    /// Whether damage inside the log is passed over.
    pub fn is_salvage(&self) -> bool {
        self.config.recovery == Recovery::Salvage
    }

    /// Returns the evidence of where records start, for a search after damage.
    pub fn record_starts(&self) -> RecordStarts<'_> {
        RecordStarts::new(self.log, self.queues, self.index, self.last_writer())
    }

    /// Returns what the last writer left. A recovery that has not ended hides that the store was closed before it.
    pub(super) fn last_writer(&self) -> LastWriter {
        let stamped = Some(self.checkpoint.logics_physical_offset).filter(|_| self.checkpoint.is_ours());
        LastWriter {
            named: [self.flushed, stamped],
            has_closed: self.clean || self.closed_at.is_some(),
        }
    }

    /// Whether this process is the only one that writes to the store.
    pub(super) fn is_for_writing(&self) -> bool {
        self.index_from.is_some()
    }

    /// Whether the record at this physical offset is known to be ours.
    pub(super) fn is_own(&self, physical_offset: i64) -> bool {
        self.own_from.is_some_and(|from| from <= physical_offset)
    }

    /// Whether everything that is read is on disk.
    pub fn is_on_disk(&self) -> bool {
        self.clean && !self.is_salvage()
    }

    /// Whether the entries of the queues are taken for what they say, because their writer has closed the store.
    pub(super) fn trusts_queues(&self) -> bool {
        self.clean && !self.is_rebuilt
    }
}
