//! What compares or moves state between the file families.

/// What a store is opened with, and what that found.
mod opened;
/// Whether a record of ours lost bytes in a power cut.
mod torn;
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
/// What runs beside the callers, step by step.
mod service;
/// When the checkpoint is stamped, and with what.
mod checkpointer;
mod dispatch;
mod flush_real_time;

pub use checkpointer::{Checkpointer, LastDispatched};
pub use decision::{expect_recoverable, find_missing};
pub use dispatch::Dispatcher;
pub use flush_real_time::FlushRealTime;
pub use index_end::{IndexStart, cut_index, estimate_index_start};
pub use opened::{Opened, RecoveryReport};
pub use plan::{RecoveryPlan, plan};
pub use service::{Next, Stepped};
pub use torn::MAX_NUL_RUN;
