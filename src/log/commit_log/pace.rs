//! How long a group commit waits for its group: a fraction of what a sync takes.

use std::time::Duration;

/// The longest wait is the time that a sync takes, divided by this.
const PART_OF_SYNC: u32 = 2;
/// The longest wait, however slow the disk is.
const MAX_PATIENCE: Duration = Duration::from_millis(5);
/// A sync counts in the average as one of so many.
const WEIGHT: u32 = 4;

/// What is known of the syncs before.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// What a sync takes, on average.
    took: Duration,
}

impl Pace {
    /// How long the next sync waits for its group at most.
    pub(super) fn patience(&self) -> Duration {
        (self.took / PART_OF_SYNC).min(MAX_PATIENCE)
    }

    /// A sync took so long.
    pub(super) fn synced(&mut self, took: Duration) {
        self.took = (self.took * (WEIGHT - 1) + took) / WEIGHT;
    }
}
