//! The store that a group reads, and the home of its progress: the store of this writer with `config/consumerOffset.json`, or the store
//! of another process with a positions file.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::consumer_offset::{ConsumerOffsets, QueueProgress};
use super::tap::Tap;
use crate::error::{Error, Result};
use crate::read::{MessageReader, OnMissing};
use crate::store::MessageStore;

/// The store that a group reads, and the home of its progress.
#[derive(Debug)]
pub(super) enum GroupStore {
    /// A store that this process writes to, and its `consumerOffset.json`.
    Own {
        store: Arc<MessageStore>,
        offsets: Arc<ConsumerOffsets>,
    },
    /// A store that another process may write to, and a positions file.
    Tapped(Box<Tap>),
}

impl GroupStore {
    pub(super) fn reader(&self) -> Arc<MessageReader> {
        match self {
            Self::Own { store, .. } => store.reader().clone(),
            Self::Tapped(tap) => tap.reader(),
        }
    }

    /// Makes what was appended before this call visible to a poll.
    ///
    /// # Errors
    /// Those of [`MessageStore::catch_up`] and [`Tap::look`].
    pub(super) fn catch_up(&self) -> Result<()> {
        match self {
            Self::Own { store, .. } if store.is_caught_up() => Ok(()),
            Self::Own { store, .. } => store.catch_up(MessageStore::PATIENCE).map(drop),
            Self::Tapped(tap) => {
                tap.persist_if_due(Instant::now());
                tap.look()
            }
        }
    }

    /// Returns the physical offset up to which messages are in their queues.
    pub(super) fn queued_until(&self) -> i64 {
        match self {
            Self::Own { store, .. } => store.dispatched_offset(),
            Self::Tapped(tap) => tap.reader().queued_until(),
        }
    }

    /// Waits up to `patience` for messages past `end`.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Poisoned`]; those of [`Tap::wait_past`].
    pub(super) fn wait_past(&self, end: i64, patience: Duration) -> Result<()> {
        match self {
            Self::Own { store, .. } => store.wait_past(end, patience)?.map(drop).ok_or(Error::Closed),
            Self::Tapped(tap) => tap.wait_past(end, patience),
        }
    }

    /// Notes that a poll has got messages.
    pub(super) fn note_messages(&self) {
        if let Self::Tapped(tap) = self {
            tap.note_message();
        }
    }

    /// Compares the stored progress in these topics with a store that another process may have changed.
    ///
    /// # Errors
    /// Those of [`Positions::verify`](super::positions::Positions::verify).
    pub(super) fn verify(&self, topics: &[String], on_missing: OnMissing) -> Result<()> {
        match self {
            Self::Own { .. } => Ok(()),
            Self::Tapped(tap) => tap.positions.verify(&tap.reader(), topics, on_missing),
        }
    }

    /// Returns the progress of a group in a queue; `None` for a consumer that keeps none.
    ///
    /// # Errors
    /// The damage of `consumerOffset.json`.
    pub(super) fn progress(&self, group: Option<&str>, topic: &str, queue_id: i32) -> Result<Option<Arc<QueueProgress>>> {
        match self {
            Self::Own { offsets, .. } => group.map(|group| offsets.of_queue(group, topic, queue_id)).transpose(),
            Self::Tapped(tap) => Ok(Some(tap.positions.of_queue(topic, queue_id))),
        }
    }

    /// Returns true if a group has progress in a queue of the topic.
    ///
    /// # Errors
    /// The damage of `consumerOffset.json`.
    pub(super) fn has_progress(&self, group: Option<&str>, topic: &str) -> Result<bool> {
        match self {
            Self::Own { offsets, .. } => group.map_or(Ok(false), |group| offsets.has_progress(group, topic)),
            Self::Tapped(tap) => Ok(tap.positions.has_progress(topic)),
        }
    }

    /// Returns true if a message that was not settled in time comes again from its own queue.
    pub(super) fn repeats_in_place(&self) -> bool {
        matches!(self, Self::Tapped(_))
    }

    /// Returns the store for appends.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] for a store that is only read.
    pub(super) fn writer(&self) -> Result<&MessageStore> {
        match self {
            Self::Own { store, .. } => Ok(store),
            Self::Tapped(_) => Err(Error::ReadOnly {
                what: "a message cannot be sent back to a store that is only read: handle it again, or do not acknowledge it, and it \
                       comes again after consume_timeout"
                    .to_owned(),
            }),
        }
    }

    /// Makes the progress durable.
    ///
    /// # Errors
    /// Those of [`ConsumerOffsets::persist`] and [`Tap::persist`].
    pub(super) fn persist(&self) -> Result<()> {
        match self {
            Self::Own { offsets, .. } => offsets.persist(),
            Self::Tapped(tap) => tap.persist(),
        }
    }

    /// Makes the progress durable, and releases the positions file, also after an error.
    ///
    /// # Errors
    /// Those of [`persist`](Self::persist).
    pub(super) fn close(&self) -> Result<()> {
        let persisted = self.persist();
        if let Self::Tapped(tap) = self {
            tap.positions.release();
        }
        persisted
    }
}
