//! Why no message is read at a place of the log.

use std::collections::BTreeMap;

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

/// Why a search could not read what stands at a place of the log.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// Its segment was removed since the store was opened.
    Expired,
    /// Recovery has put a salvage record there.
    Lost,
    /// What is damaged, or missing from the middle of the log.
    Damaged(Error),
}

/// What a search could not read, by physical offset.
pub(super) type Unread = BTreeMap<i64, Unreadable>;

/// The damage that comes first in the log.
pub(super) fn first_damage(unread: &Unread) -> Option<&Error> {
    unread.values().find_map(|why| match why {
        Unreadable::Damaged(error) => Some(error),
        Unreadable::Expired | Unreadable::Lost => None,
    })
}

/// Why the first message that has expired or was lost is not found.
pub(super) fn first_gone(unread: &Unread) -> Option<Error> {
    unread.iter().find_map(|(offset, why)| match why {
        Unreadable::Expired => Some(nothing_at(*offset, EXPIRED)),
        Unreadable::Lost => Some(nothing_at(*offset, WAS_LOST)),
        Unreadable::Damaged(_) => None,
    })
}
