//! Waiting for messages that were appended before.

use std::sync::Arc;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::store::message_store::MessageStore;
use crate::watermark::{Wait, Watermark};

/// Up to where the log of a store is durable. It does not keep the store open, and can be asked after the close.
#[derive(Debug, Clone)]
pub struct Flushed(Arc<Watermark>);

impl MessageStore {
    /// Up to where its log is durable, for whoever outlives the store.
    pub fn flushed(&self) -> Flushed {
        Flushed(self.log.flushed.clone())
    }
}

impl Flushed {
    /// The physical offset below which the log is durable.
    pub fn offset(&self) -> i64 {
        self.0.get()
    }

    /// Waits until the message at this physical offset, which was appended, is durable, or until the deadline. Says up to where the log
    /// is durable then. Asks for no sync.
    ///
    /// # Errors
    /// [`Error::NotDurable`].
    pub fn wait(&self, physical_offset: i64, deadline: Option<Instant>) -> Result<i64> {
        match self.0.wait(physical_offset.saturating_add(1), deadline) {
            Wait::Reached | Wait::TimedOut => Ok(self.offset()),
            Wait::Poisoned(cause) => Err(Error::not_durable(physical_offset, cause, self.offset())),
        }
    }
}
