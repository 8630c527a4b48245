//! The background services of a store.

/// A service, step by step.
mod stepped;
/// The barrier that makes a read see the appends before it.
mod read_barrier;
/// When the checkpoint is stamped, and with what.
mod checkpointer;
/// From the log to queues and index: `RocketMQ`'s Reput.
mod dispatcher;
/// Write-back of the log: commits and syncs at an interval, or when a caller waits.
mod write_back;
/// Segments made and pages supplied ahead of need.
mod allocate_mapped_file;
/// Spin-then-park for the dispatcher.
mod poll_then_park;
/// A thread for each service, or the caller's own steps.
mod runner;

pub use allocate_mapped_file::{AllocateMappedFile, SupplyPages};
pub use checkpointer::{Checkpointer, LastDispatched};
pub use dispatcher::Dispatcher;
pub use read_barrier::ReadBarrier;
pub use runner::Service;
pub(crate) use runner::{Services, without_panic};
pub use stepped::{Next, Stepped};
pub use write_back::{CommitRealTime, FlushRealTime};
