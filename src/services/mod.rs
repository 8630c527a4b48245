//! The background services of a store.

/// The interface of a service, which works in steps.
mod stepped;
/// The barrier that makes a read see the appends before it.
mod read_barrier;
/// The stamps of the checkpoint.
mod checkpointer;
/// The creation of queue files beside the dispatcher.
mod queue_files;
/// The dispatch from the log to queues and index: `RocketMQ`'s Reput.
mod dispatcher;
/// Write-back of the log: commits and syncs at an interval, or for a waiting caller.
mod write_back;
/// Segments created and pages prefaulted ahead of need.
mod allocate_mapped_file;
/// The rules of the removal of old segments.
mod clean;
/// Spin-then-park for the dispatcher.
mod poll_then_park;
/// A thread for each service, or the caller's own steps.
mod runner;

pub use allocate_mapped_file::{AllocateMappedFile, SupplyPages};
pub use checkpointer::{Checkpointer, LastDispatched};
pub use clean::{CleanReason, CleanRules, LimitedClock, Removable, Situation};
pub use dispatcher::Dispatcher;
pub use read_barrier::ReadBarrier;
pub use runner::Service;
pub(crate) use runner::{Services, spawn, step, without_panic};
pub use stepped::{Next, Stepped};
pub use write_back::{CommitRealTime, FlushRealTime};
