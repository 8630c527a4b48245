//! What no store can beat on this machine, measured in the same round.

/// A file, allocated and mapped.
mod file_map;
/// A record with everything that the format demands, and nothing else.
mod record;
/// Queue entries and index items, and nothing else.
mod dispatch;
/// Records of a log, and whether they are in their queues.
mod scan;
/// Bytes to the disk.
mod disk;

pub use disk::{Durable, simulated_syncs, wait_at_least};
pub use dispatch::{DispatchKernel, IndexKernel, hash};
pub use file_map::FileMap;
pub use record::{Lock, RecordKernel, Spin};
pub use scan::{check_messages, end_of_piece, scan_segment};
