//! What a read of many messages does at one that was lost or is damaged: it ends there, or passes over it and counts it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::Errors;
use crate::error::{Error, Result};

const OPTION: &str = "errors=\"skip\" passes over such messages and counts them";

/// What to do, and how many messages were passed over so far. A clone shares the count.
#[derive(Debug, Clone)]
pub struct OnDamage {
    errors: Errors,
    skipped: Arc<AtomicU64>,
}

impl OnDamage {
    /// Nothing is passed over yet.
    pub fn new(errors: Errors) -> Self {
        Self {
            errors,
            skipped: Arc::default(),
        }
    }

    /// Messages that were passed over.
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// The same, with a count of its own.
    pub(super) fn apart(&self) -> Self {
        Self::new(self.errors)
    }

    /// Counts messages that another count has.
    pub(super) fn add_skipped(&self, messages: u64) {
        self.skipped.fetch_add(messages, Ordering::Relaxed);
    }

    /// Counts `messages` as passed over, or gives the error back with advice to skip. Errors of any other kind are always given back.
    pub(super) fn pass_over(&self, error: Error, messages: i64) -> Result<()> {
        match (error, self.errors) {
            (error, Errors::Skip) if error.is_damage() => {
                self.add_skipped(messages.unsigned_abs());
                Ok(())
            }
            (error @ Error::NotFound { .. }, _) => Err(error.advising(OPTION)),
            (error, _) => Err(error),
        }
    }
}
