//! Verification: compares the files of a store with each other and with the format, and repairs them. Only [`repair`] and [`rebuild`]
//! write and take the lock.

/// The list of everything that can be found.
mod finding_id;
/// Messages of which record and queue entry name different places.
mod contradictions;
/// Findings.
mod findings;
/// Shared state of the comparisons.
mod context;
/// The last message that a live writer has dispatched.
mod last_dispatched;
/// Names of files, the checkpoint and the settings.
mod small_files;
/// Queues beside the log.
mod queues;
/// The items of the index files, in the order of the log.
mod index_items;
/// Length, header and links of an index file.
mod index_files;
/// Index beside the log.
mod index;
/// Store times that are out of order.
mod store_times;
/// Sections of the log, compared with queues and index by several threads.
mod sections;
/// The whole verification, in one pass over the log.
mod verify;
/// Segments that a repaired copy gets in the place of missing ones.
mod missing_log;
/// Files that are copied or moved before a repair changes a store.
mod set_aside;
/// Repair of what was found.
mod repair;

pub use finding_id::{FindingId, Fix, REFUSED, Severity};
pub use findings::Finding;
pub use repair::{Change, RepairReport, RepairRequest, rebuild, repair};
pub use verify::{VerifyReport, VerifyRequest, verify};
