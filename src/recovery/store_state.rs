//! A store as an open finds it: its files, the state in which its last writer left it, and the intent of the open.

use crate::config::{Recovery, StoreConfig};
use crate::format::{Check, Checkpoint};
use crate::log::{ConsumeQueueStore, IndexService, LastWriter, LogFiles, RecordStarts};
use crate::recovery::recovery_note::RecoveryNote;
use crate::recovery::replica_note::ReplicaNote;

/// The exit of the last writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// There was no writer: the directory is empty.
    New,
    /// The last writer has closed the store: there is no `abort` file.
    Clean,
    /// The last writer has not closed the store, or has it open.
    Crashed,
}

/// The state in which an open finds a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastShutdown {
    /// The exit of the last writer.
    pub exit: Exit,
    /// The recovery note. After a clean exit it is out of date: a writer has closed the store since.
    pub note: Option<RecoveryNote>,
}

impl LastShutdown {
    /// Returns true unless a writer may have left the store in the middle of a change.
    pub fn is_clean(&self) -> bool {
        self.exit != Exit::Crashed
    }

    /// Returns the note of a recovery that has not ended: its changes can be read, and may not be on disk.
    pub fn unfinished(&self) -> Option<RecoveryNote> {
        self.note.filter(|_| !self.is_clean())
    }

    /// Returns the end that the log had when the store was last closed, if every later open has failed. After a clean exit it is the end
    /// of the log, `log_end`.
    pub fn closed_at(&self, log_end: i64) -> Option<i64> {
        match self.exit {
            Exit::New | Exit::Clean => Some(log_end),
            Exit::Crashed => self.note.and_then(|note| note.closed_at),
        }
    }
}

/// The intent of an open: what it does with damage, and with the files that are derived from the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// The log ends at its first damage. A writer refuses damage of messages that were on disk.
    Heal,
    /// Damage inside the log is skipped, and every whole message is kept.
    Salvage,
    /// Queues, index and checkpoint are made again from the log, whose damage is healed or salvaged.
    Rebuild(Recovery),
    /// The log is received from a master. Its damage is healed.
    Replicate(ReplicaLog),
}

/// The log of a slave at an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaLog {
    /// It is continued at its end.
    Continued,
    /// It is new, and begins at this physical offset, the start of a segment.
    BeginsAt(i64),
    /// It is cut at this physical offset, the end of a record: the master has other bytes there.
    CutAt(i64),
}

impl Intent {
    /// Returns the intent of a reader or writer with this option.
    pub fn of(recovery: Recovery) -> Self {
        match recovery {
            Recovery::Heal => Self::Heal,
            Recovery::Salvage => Self::Salvage,
        }
    }

    /// Returns true if damage inside the log is skipped.
    pub fn is_salvage(self) -> bool {
        matches!(self, Self::Salvage | Self::Rebuild(Recovery::Salvage))
    }

    /// Returns true if whole messages that were on disk may go.
    pub fn removes_messages(self) -> bool {
        self.is_salvage() || self.cut_at().is_some()
    }

    /// Returns true if the log is received from a master.
    pub fn is_replica(self) -> bool {
        matches!(self, Self::Replicate(_))
    }

    /// Returns the physical offset at which a new log begins.
    pub fn begins_at(self) -> Option<i64> {
        match self {
            Self::Replicate(ReplicaLog::BeginsAt(begin)) => Some(begin),
            _ => None,
        }
    }

    /// Returns the physical offset at which the log is cut.
    pub fn cut_at(self) -> Option<i64> {
        match self {
            Self::Replicate(ReplicaLog::CutAt(end)) => Some(end),
            _ => None,
        }
    }

    /// Returns true if a writer makes queues, index and checkpoint again from the log.
    pub fn is_rebuild(self) -> bool {
        matches!(self, Self::Rebuild(_))
    }
}

/// The process that opens a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opener {
    /// A reader, beside which a writer may work.
    Reader {
        /// True if another process may be appending: its last record may be half written.
        is_written_to: bool,
        /// The physical offset after which a live writer shows nothing yet, because it waits for its messages to be durable. `None` for
        /// any other store.
        shown_until: Option<i64>,
    },
    /// The only writer.
    Writer,
}

/// The file families of a store.
#[derive(Debug, Clone, Copy)]
pub struct Families<'a> {
    /// The log.
    pub log: &'a LogFiles,
    /// The queues.
    pub queues: &'a ConsumeQueueStore,
    /// The index; `None` where nothing was opened of it.
    pub index: Option<&'a IndexService>,
}

/// The records that the last writer left in its small files.
#[derive(Debug, Clone, Copy)]
pub struct WriterRecords {
    /// Its exit, and the recovery note.
    pub shutdown: LastShutdown,
    /// The physical offset from which on every record is ours, as the lock file says.
    pub claim: Option<i64>,
    /// The mark of what was flushed: every byte of the log below this physical offset was on disk. `None` without a mark, and for one of
    /// the log of another history.
    pub flushed: Option<i64>,
    /// The stamps, without those in the future.
    pub checkpoint: Checkpoint,
    /// The note of a slave. It has received nothing if a writer or a broker has opened the store since.
    pub replica: ReplicaNote,
}

/// A store that is opened, with what is known of its last writer.
#[derive(Debug, Clone, Copy)]
pub struct StoreState<'a> {
    pub(super) log: &'a LogFiles,
    pub(super) queues: &'a ConsumeQueueStore,
    index: Option<&'a IndexService>,
    pub(super) records: WriterRecords,
    pub(super) intent: Intent,
    pub(super) opener: Opener,
    /// The physical offset of the last message with a key, by the headers of the index files.
    pub(super) last_indexed: Option<i64>,
    /// The part of a record that is verified.
    pub(super) check: Check,
    pub(super) config: &'a StoreConfig,
}

impl<'a> StoreState<'a> {
    /// Combines the files of a store with the records of its last writer.
    pub fn new(families: Families<'a>, records: WriterRecords, opener: Opener, intent: Intent, config: &'a StoreConfig) -> Self {
        let Families { log, queues, index } = families;
        Self {
            log,
            queues,
            index,
            records,
            intent,
            opener,
            last_indexed: index.and_then(IndexService::last_offset),
            check: if config.check_crc_on_recover {
                Check::Whole
            } else {
                Check::Structure
            },
            config,
        }
    }

    /// Returns the evidence of where records start, for a search after damage.
    pub fn record_starts(&self) -> RecordStarts<'a> {
        RecordStarts::new(self.log, self.queues, self.index, self.last_writer())
    }

    /// Returns what the last writer left. A recovery that has not ended hides that the store was closed before it.
    pub(super) fn last_writer(&self) -> LastWriter {
        LastWriter {
            named: [self.records.flushed, self.own_stamp()],
            has_closed: self.records.shutdown.is_clean()
                || self.records.shutdown.note.is_some_and(|note| note.closed_at.is_some()),
        }
    }

    /// Returns the physical offset of the message of our own stamp. A broker with a pool of buffers stamps messages that are in memory
    /// only.
    pub(super) fn own_stamp(&self) -> Option<i64> {
        Some(self.records.checkpoint.logics_physical_offset).filter(|_| self.records.checkpoint.is_ours())
    }

    /// Returns true if no other process writes to the store.
    pub(super) fn is_for_writing(&self) -> bool {
        self.opener == Opener::Writer
    }

    /// Returns true if another process may be appending.
    pub(super) fn is_written_to(&self) -> bool {
        matches!(self.opener, Opener::Reader { is_written_to: true, .. })
    }

    /// Returns the physical offset after which a live writer shows nothing yet.
    pub(super) fn shown_until(&self) -> Option<i64> {
        match self.opener {
            Opener::Reader { shown_until, .. } => shown_until,
            Opener::Writer => None,
        }
    }

    /// Returns true if the record at this physical offset is known to be ours. In a closed store none needs to be: every record is whole,
    /// whoever wrote it.
    pub(super) fn is_own(&self, physical_offset: i64) -> bool {
        !self.records.shutdown.is_clean() && self.records.claim.is_some_and(|from| from <= physical_offset)
    }

    /// Returns true if the entries of the queues are taken for what they say, because their writer has closed the store.
    pub(super) fn trusts_queues(&self) -> bool {
        self.records.shutdown.is_clean() && !self.intent.is_rebuild()
    }
}
