//! Why no message starts at a place of the log, where that is no damage: nobody can bring it back.

use crate::error::Error;

/// Why nothing stands where recovery has put a salvage record.
pub(super) const WAS_LOST: &str = "the message here was lost, and recovery has put a salvage record in its place";
/// Why nothing stands where a segment was when the store was opened.
pub(super) const EXPIRED: &str = "its segment was removed since the store was opened";

/// No message that can be read starts there.
pub(super) fn nothing_at(physical_offset: i64, why: &str) -> Error {
    Error::NotFound {
        what: format!("no message starts at physical offset {physical_offset}: {why}"),
    }
}
