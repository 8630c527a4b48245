//! The outcome of an append of a message that is stored, with `RocketMQ`'s `PutMessageStatus`.

use crate::format::MessageId;
use crate::log::Appended;

/// The outcome of a message that was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AppendResult {
    /// Its copies.
    pub status: PutStatus,
    /// Its location.
    pub appended: Appended,
    /// Its offset message id.
    pub message_id: MessageId,
}

/// The copies of a stored message, as far as its append has waited for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PutStatus {
    /// Durable, and held by slaves, as requested.
    PutOk,
    /// Not durable yet when `sync_flush_timeout` was over. It may become durable a moment later.
    FlushDiskTimeout,
    /// Not held by enough slaves when `slave_timeout` was over. They may get it a moment later.
    FlushSlaveTimeout,
    /// Not waited for: too few slaves are connected, or they are far behind.
    SlaveNotAvailable,
}

impl PutStatus {
    const ALL: [Self; 4] = [
        Self::PutOk,
        Self::FlushDiskTimeout,
        Self::FlushSlaveTimeout,
        Self::SlaveNotAvailable,
    ];

    /// Returns `RocketMQ`'s word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::PutOk => "PUT_OK",
            Self::FlushDiskTimeout => "FLUSH_DISK_TIMEOUT",
            Self::FlushSlaveTimeout => "FLUSH_SLAVE_TIMEOUT",
            Self::SlaveNotAvailable => "SLAVE_NOT_AVAILABLE",
        }
    }

    /// Returns the status of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Returns the status of an append that has waited for the disk and for slaves: a failure of slaves wins.
    pub(super) fn with_slaves(self, slaves: Self) -> Self {
        if slaves == Self::PutOk { self } else { slaves }
    }
}
