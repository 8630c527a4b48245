//! What runs beside the callers of a store.

/// A service, step by step.
mod stepped;
/// When a service works that writes the log out.
mod intervals;
/// What reads of the writing process wait for.
mod read_barrier;
/// When the checkpoint is stamped, and with what.
mod checkpointer;
/// From the log to queues and index: `RocketMQ`'s Reput.
mod dispatcher;
/// Drops what was written long ago from the page cache.
mod drop_behind;
/// Makes the log durable at an interval, and when a caller waits for that.
mod flush_real_time;
/// Writes what waits in the transient store pool to the log.
mod commit_real_time;
/// Makes the segments of the log ahead of need.
mod allocate_mapped_file;
/// Supplies the pages that appends are about to write.
mod supply_pages;
/// How the dispatcher waits for messages.
mod naps;
/// A thread for each service, or the caller's own steps.
mod runner;

pub use allocate_mapped_file::AllocateMappedFile;
pub use checkpointer::{Checkpointer, LastDispatched};
pub use commit_real_time::CommitRealTime;
pub use dispatcher::Dispatcher;
pub use flush_real_time::FlushRealTime;
pub use read_barrier::ReadBarrier;
pub use runner::Service;
pub(crate) use runner::{Services, without_panic};
pub use stepped::{Next, Stepped};
pub use supply_pages::SupplyPages;
