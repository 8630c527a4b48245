//! Lower bounds of the cost on this machine, measured in the same round.

/// An allocated and mapped file.
mod file_map;
/// The record kernel.
mod record;
/// The dispatch kernel.
mod dispatch;
/// The recovery and scan kernels.
mod scan;
/// Writes and syncs to the disk.
mod disk;

pub use disk::{Durable, simulated_syncs, wait_at_least};
pub use dispatch::{DispatchKernel, IndexKernel, hash};
pub use file_map::FileMap;
pub use record::{Lock, RecordKernel, Spin};
pub use scan::{check_messages, end_of_piece, scan_segment};
