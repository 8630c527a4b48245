//! Damage that a read meets: whether it ends the read or is skipped and counted, and why an offset could not be read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::Errors;
use crate::error::{Error, Result};
use crate::remedy::Remedy;

/// The option for damage, and the number of messages that were skipped so far. A clone shares the count.
#[derive(Debug, Clone)]
pub struct OnDamage {
    errors: Errors,
    skipped: Arc<AtomicU64>,
}

impl OnDamage {
    /// Begins with nothing skipped.
    pub fn new(errors: Errors) -> Self {
        Self {
            errors,
            skipped: Arc::default(),
        }
    }

    /// Returns the number of skipped messages.
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// Returns the same option with a count of its own.
    pub(super) fn apart(&self) -> Self {
        Self::new(self.errors)
    }

    /// Counts messages that another count has.
    pub(super) fn add_skipped(&self, messages: u64) {
        self.skipped.fetch_add(messages, Ordering::Relaxed);
    }

    /// Counts `messages` as skipped, or returns the error with a remedy. Errors of any other kind are always returned.
    pub(super) fn pass_over(&self, error: Error, messages: i64) -> Result<()> {
        match (error, self.errors) {
            (error, Errors::Skip) if error.is_damage() => {
                self.add_skipped(messages.unsigned_abs());
                Ok(())
            }
            (error @ Error::NotFound { .. }, _) => Err(error.with_remedy(Remedy::Skip)),
            (error, _) => Err(error),
        }
    }
}

/// The reason where recovery has put a salvage record.
pub(super) const WAS_LOST: &str = "the message here was lost, and recovery has put a salvage record in its place";
/// The reason where a segment was removed since the store was opened.
pub(super) const EXPIRED: &str = "its segment was removed since the store was opened";

/// Returns the error for an offset where no message that can be read starts.
pub(super) fn nothing_at(physical_offset: i64, why: &str) -> Error {
    Error::not_found(format!("no message starts at physical offset {physical_offset}: {why}"))
}

/// The reason why a search could not read an offset of the log.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// Its segment was removed since the store was opened.
    Expired,
    /// Recovery has put a salvage record there.
    Lost,
    /// It is damaged, or missing from the middle of the log.
    Damaged(Error),
}

/// The damage that a search met, by physical offset.
pub(crate) type Unread = BTreeMap<i64, Unreadable>;

/// Returns the damage that comes first in the log.
pub(super) fn first_damage(unread: &Unread) -> Option<&Error> {
    unread.values().find_map(|why| match why {
        Unreadable::Damaged(error) => Some(error),
        Unreadable::Expired | Unreadable::Lost => None,
    })
}

/// Returns the error of the first message that has expired or was lost.
pub(super) fn first_gone(unread: &Unread) -> Option<Error> {
    unread.iter().find_map(|(offset, why)| match why {
        Unreadable::Expired => Some(nothing_at(*offset, EXPIRED)),
        Unreadable::Lost => Some(nothing_at(*offset, WAS_LOST)),
        Unreadable::Damaged(_) => None,
    })
}
