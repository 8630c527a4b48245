//! When a group commit begins.
//!
//! Threads that append again as soon as a sync has released them come back a moment after it. A sync that begins before they do carries
//! only those that came while the last one lasted, and two halves of the threads take turns. So the thread that leads waits for as many
//! followers as the last group had, but only for a fraction of what a sync takes.

use std::time::Duration;

/// The longest wait, as a part of what a sync takes.
const PART_OF_SYNC: u32 = 4;
/// The longest wait, however slow the disk is.
const MAX_PATIENCE: Duration = Duration::from_millis(5);
/// A sync counts in the average as one of so many.
const WEIGHT: u32 = 4;

/// What the thread that leads knows of the syncs before.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Threads that are expected to wait for the next sync beside the one that leads.
    pub(super) followers: usize,
    /// What a sync takes, on average.
    took: Duration,
}

impl Pace {
    /// How long the next sync waits for its followers at most.
    pub(super) fn patience(&self) -> Duration {
        (self.took / PART_OF_SYNC).min(MAX_PATIENCE)
    }

    /// A sync took so long, and so many followers are expected for the next one.
    pub(super) fn synced(&mut self, took: Duration, followers: usize) {
        self.took = (self.took * (WEIGHT - 1) + took) / WEIGHT;
        self.followers = followers;
    }
}
