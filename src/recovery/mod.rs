//! Recovery: the end of the log, the entries that are missing in queues and index, and the changes of a writer.

/// A recovery that has begun to change the store and has not ended.
mod recovery_note;
/// The small files in which a writer records its state.
mod writer_state;
/// A store as an open finds it.
mod opened;
/// The files of a store.
mod store_files;
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
/// Opens for reading and for writing: files, plan, decision.
mod open;
/// The plan of a writer, carried out on disk.
mod apply;

pub(crate) use apply::apply;
pub use broker_recovery::{BrokerRecovery, RecoveredQueue};
pub use decision::expect_recoverable;
pub(crate) use growth::find_growth;
pub(crate) use open::{Recovered, WritePlan, open_for_reading, open_for_writing};
pub use opened::Opened;
pub use plan::{RecoveryPlan, RecoveryReport, plan};
pub(crate) use store_files::{expect_store, measure};
pub(crate) use writer_state::{WriterState, flushed_mark, mark_of_log};
