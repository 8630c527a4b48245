//! Periodic snapshots of the progress of a delivery: the service that writes it to its file, 10 s after the first change.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::services::{Next, Stepped};
use crate::watermark::Watermark;

/// The interval at which progress is persisted: RocketMQ's `flushDelayOffsetInterval`.
const PERSIST_INTERVAL: Duration = Duration::from_secs(10);
/// The growth of the log after which a new snapshot is due while messages wait, since a crash makes the next open read that much.
pub(super) const SNAPSHOT_AFTER: i64 = 64 << 20;

/// Counts the changes of a progress.
#[derive(Debug, Default)]
pub(super) struct ProgressChanges {
    /// Poisoned at the close.
    made: Arc<Watermark>,
    /// The changes that are in the file.
    persisted: AtomicI64,
}

impl ProgressChanges {
    /// Counts a change.
    pub(super) fn count(&self) {
        self.made.advance(self.made.get() + 1);
    }

    /// Returns the number of changes.
    pub(super) fn get(&self) -> i64 {
        self.made.get()
    }

    /// Notes that the file has the progress after this number of changes.
    pub(super) fn note_persisted(&self, changes: i64) {
        self.persisted.store(changes, Ordering::Relaxed);
    }

    /// Returns true if the progress has changed since it was persisted.
    pub(super) fn is_any(&self) -> bool {
        self.made.get() > self.persisted.load(Ordering::Relaxed)
    }

    /// Ends the service.
    pub(super) fn stop(&self) {
        self.made.poison(Error::Closed);
    }
}

/// A progress in memory, and its file.
pub(super) trait PersistedProgress: Send + Sync + std::fmt::Debug {
    /// Returns the count of changes.
    fn changes(&self) -> &ProgressChanges;

    /// Writes the progress to the file, durably.
    ///
    /// # Errors
    /// [`Error::Poisoned`]; [`Error::DiskFull`], [`Error::Io`]: the file has older progress.
    fn persist(&self) -> Result<()>;
}

/// The service of one progress.
#[derive(Debug)]
pub(super) struct ProgressPersister {
    progress: Arc<dyn PersistedProgress>,
    /// The time of the next persist; `None` while nothing has changed.
    due: Option<Instant>,
}

impl ProgressPersister {
    pub(super) fn new(progress: Arc<dyn PersistedProgress>) -> Self {
        Self { progress, due: None }
    }
}

impl Stepped for ProgressPersister {
    /// Persists the progress, when it is due. A failure is tried again at the next interval: the close raises it.
    fn step(&mut self, now: Instant) -> Result<Next> {
        let changes = self.progress.changes();
        if changes.made.poisoned().is_some() {
            return Ok(Next::Done);
        }
        if self.due.is_some_and(|due| now >= due) {
            let _ = self.progress.persist();
            self.due = None;
        }
        if changes.is_any() {
            self.due.get_or_insert(now + PERSIST_INTERVAL);
        }
        Ok(Next::Idle { until: self.due })
    }

    fn awaited(&self) -> (Arc<Watermark>, i64) {
        let changes = self.progress.changes();
        let persisted = changes.persisted.load(Ordering::Relaxed);
        let next = self.due.map_or(persisted + 1, |_| i64::MAX);
        (changes.made.clone(), next)
    }

    fn fail(&self, _cause: Error) {}
}
