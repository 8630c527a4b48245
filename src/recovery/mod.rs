//! Recovery: the end of the log, the entries that are missing in queues and index, and the changes of a writer.

/// Queue offsets of lost messages.
mod lost_offsets;
/// A recovery that has begun to change the store and has not ended.
mod recovery_note;
/// The note of a slave: what it has received, and the cuts of its log.
mod replica_note;
/// State and intent: `StoreState`, `Exit`, `Intent`.
mod store_state;
/// The small files in which a writer records its state.
mod writer_state;
/// The files of a store, loaded family by family.
mod store_files;
/// The directory of a store.
mod directory;
/// A model of the recovery of `RocketMQ` after a crash.
mod broker_recovery;
/// The offset from which the log is read.
mod scan_start;
/// The entries that are missing in the queue files.
mod undispatched;
/// The end of the log, and the changes after which the other files agree with it.
mod plan;
/// The messages that came since an open.
mod growth;
/// The table of outcomes: which stores a writer refuses.
mod decision;
/// The end of the index, and the message from which indexing continues.
mod index_end;
/// The plan of a writer: the changes of each family.
mod write_plan;
/// The disk steps of an open, in their order.
mod unrecovered;
/// Opens for reading and for writing: files, plan, decision.
mod open;

pub use broker_recovery::{BrokerRecovery, RecoveredQueue};
pub use decision::{OUTCOMES, RowExit, expect_recoverable};
pub(crate) use directory::remove_abort;
pub(crate) use growth::find_growth;
pub use lost_offsets::LostOffsets;
pub(crate) use open::{open_for_reading, open_for_writing};
pub use plan::{Missing, RecoveryPlan, RecoveryReport, plan};
pub use recovery_note::RecoveryNote;
pub(crate) use replica_note::expect_uncut;
pub use replica_note::{Cuts, ReplicaNote};
pub(crate) use scan_start::last_unit;
pub(crate) use store_files::{expect_store, measure};
pub use store_state::{Exit, Families, Intent, LastShutdown, Opener, ReplicaLog, StoreState, WriterRecords};
pub(crate) use unrecovered::{Recovered, Unrecovered, Writable};
pub use write_plan::{DirectoryPlan, Facts, LogPlan, QueuesPlan, RecordsPlan, WritePlan};
pub(crate) use writer_state::{WriterState, flushed_mark, load_own_from, mark_of_log};
