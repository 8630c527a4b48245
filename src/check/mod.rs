//! Whether the files of a store agree with each other and with the format. Writes nothing, takes no lock.

/// The list of everything that can be found.
mod finding_id;
/// What was found.
mod findings;
/// What the comparisons share.
mod context;
/// Names of files, the checkpoint and the settings.
mod small_files;
/// Queues beside the log.
mod queues;
/// The items of the index files, in the order of the log.
mod key_items;
/// Index beside the log.
mod keys;
/// A section of the log beside queues and index, where all agree.
mod section;
/// The sections, read by several threads.
mod sections;
/// All of it, in one pass over the log.
mod verify;

pub use finding_id::{FindingId, Severity};
pub use findings::Finding;
pub use verify::{VerifyReport, VerifyRequest, verify};
