//! What a crash left: where the log ends, what queues and index lack, and what a writer does with it.

/// From which record on the log is ours alone.
mod own_records;
/// A recovery that has begun to change the store and has not ended.
mod recovery_note;
/// What a store is opened with, and what that found.
mod opened;
/// Whether a record of ours lost bytes in a power cut.
mod torn_record;
/// From where the log is read.
mod scan_start;
/// What the queue files lack.
mod undispatched;
/// Where the log ends, and what to do so that the others agree.
mod plan;
/// What a writer does with it: the table.
mod decision;
/// Where the index ends, and where indexing goes on.
mod index_end;
/// The files of a store as an open finds them.
mod store_files;

pub use decision::{expect_recoverable, find_missing};
pub use index_end::{IndexStart, cut_index, estimate_index_start};
pub use opened::{Opened, RecoveryReport};
pub use own_records::{claim_log, load_own_from};
pub use plan::{RecoveryPlan, plan};
pub use recovery_note::RecoveryNote;
pub(crate) use store_files::{StoreFiles, WritePlan, expect_store, measure};
pub use torn_record::MAX_NUL_RUN;
