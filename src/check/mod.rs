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
/// Index beside the log.
mod keys;
/// All of it, in one pass over the log.
mod verify;

pub use finding_id::{FindingId, Severity};
pub use findings::Finding;
pub use verify::{VerifyReport, VerifyRequest, verify};
