//! What a crash left: where the log ends, what queues and index lack, and what a writer does with it.

/// From which record on the log is ours alone.
mod own_records;
/// A recovery that has begun to change the store and has not ended.
mod recovery_note;
/// What an open found, for people and programs.
mod report;
/// A model of the recovery of `RocketMQ` after a crash.
mod broker_recovery;
/// The files of a store as an open finds them.
mod store_files;
/// From where the log is read.
mod scan_start;
/// What the queue files lack.
mod undispatched;
/// Where the log ends, and what to do so that the others agree.
mod plan;
/// What came since an open.
mod growth;
/// Signs that the end of a log, or all of it, is missing.
mod missing_end;
/// What a writer does with it: the table.
mod decision;
/// Where the index ends, and where indexing goes on.
mod index_end;
/// What a reader and a writer open: files, plan, decision.
mod open;
/// The plan of a writer, carried out on disk.
mod apply;

pub(crate) use apply::apply;
pub use broker_recovery::{BrokerRecovery, RecoveredQueue};
pub use decision::expect_recoverable;
pub(crate) use growth::find_growth;
pub(crate) use open::{Recovered, WritePlan, open_for_reading, open_for_writing};
pub use plan::{RecoveryPlan, plan};
pub use report::RecoveryReport;
pub use store_files::Opened;
pub(crate) use store_files::{WriterState, expect_store, flushed_mark, mark_of_log, measure};
