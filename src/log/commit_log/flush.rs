//! The flush of the log: the segments with unsynced bytes, zeros written ahead of records, and the delay of a group commit.
//!
//! The blocks of a new segment are allocated and not written. The sync of the first record in such a block waits for the journal of
//! the file system, which takes 1.2 to 1.7 times as long. So a commit that reaches the end of the written blocks writes zeros after
//! its records. The next sync includes them, and waits for the journal once for all of them.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::storage::{AppendFile, Step};
use crate::sync::lock;

/// The most segments that wait for a sync; each holds a descriptor and a mapping. A thread that needs one more syncs first.
const MAX_UNSYNCED: usize = 64;
/// The bytes of zeros that are written at once.
const ZEROS_AT_ONCE: u64 = 1 << 20;
/// The divisor of the sync time that limits the delay.
const PART_OF_SYNC: u32 = 2;
/// The longest delay, however slow the disk is.
const MAX_DELAY: Duration = Duration::from_millis(5);
/// Weight of the newest sync in the moving average (1/4), as a divisor.
const WEIGHT: u32 = 4;

/// The segments with unsynced bytes.
#[derive(Debug)]
pub(super) struct UnsyncedSegments {
    /// Oldest first.
    files: Mutex<Vec<Arc<AppendFile>>>,
    /// Set if zeros are written ahead of records, because callers wait for syncs.
    writes_ahead: bool,
    /// The offset after the last zero written ahead; 0 before the first.
    zeros_until: AtomicU64,
    /// The failed write or sync after which no later byte is made durable.
    failure: OnceLock<Error>,
}

/// The delay of a group commit: a fraction of the moving average of the sync time.
#[derive(Debug, Default)]
pub(super) struct GroupCommitDelay {
    /// The moving average.
    sync_time: Duration,
}

impl UnsyncedSegments {
    /// Starts with the current segment, if it exists.
    pub(super) fn new(current: Option<Arc<AppendFile>>) -> Self {
        Self {
            files: Mutex::new(current.into_iter().collect()),
            writes_ahead: false,
            zeros_until: AtomicU64::default(),
            failure: OnceLock::new(),
        }
    }

    /// Enables writing zeros ahead of records, if callers wait for syncs.
    pub(super) fn write_ahead(&mut self, callers_wait: bool) {
        self.writes_ahead = callers_wait;
    }

    /// Adds a segment that was just created.
    pub(super) fn add(&self, file: Arc<AppendFile>) {
        lock(&self.files).push(file);
    }

    /// Returns true if a sync must come before another segment is added.
    pub(super) fn is_full(&self) -> bool {
        lock(&self.files).len() >= MAX_UNSYNCED
    }

    /// Returns the failure after which no later byte is made durable.
    pub(super) fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    /// Ends syncing after a failure. The first failure stays.
    pub(super) fn fail(&self, cause: &Error) {
        let _ = self.failure.set(cause.clone());
    }

    /// Writes the pending bytes of a range from the pool to the segments. Only one thread may call this at a time.
    pub(super) fn commit(&self, range: Range<u64>) -> Result<()> {
        let files = lock(&self.files).clone();
        for file in files
            .iter()
            .filter(|file| range.start < file.end() && file.start() < range.end)
        {
            file.commit(range.start.max(file.start())..range.end.min(file.end()))?;
            self.zero_after(range.end, file);
        }
        Ok(())
    }

    /// Writes zeros to `file` from `end` on, if the records have reached the end of the written blocks. The caller has written the
    /// records up to `end`, and no other thread writes concurrently.
    fn zero_after(&self, end: u64, file: &AppendFile) {
        let is_written = end <= self.zeros_until.load(Ordering::Acquire);
        if !self.writes_ahead || file.is_warm() || is_written || end >= file.end() {
            return;
        }
        let until = file.end().min(end + ZEROS_AT_ONCE);
        // A sync without the zeros is also correct. If a page with records fails as well, the next sync reports it.
        let _ = file.zero(end..until);
        self.zeros_until.store(until, Ordering::Release);
    }

    /// Syncs a committed range. Only one thread may call this at a time.
    pub(super) fn sync(&self, range: &Range<u64>) -> Result<()> {
        let files = lock(&self.files).clone();
        for file in files.iter().filter(|file| file.start() < range.end) {
            // This sync includes the zeros after the records, which turns their blocks into written ones.
            let until = range.end.max(self.zeros_until.load(Ordering::Acquire)).min(file.end());
            file.sync(range.start.saturating_sub(file.start())..until - file.start(), Step::LogRange)?;
        }
        lock(&self.files).retain(|file| file.end() > range.end);
        Ok(())
    }

    /// Unmaps the pages of a range in one segment: the system drops no mapped page from the page cache.
    pub(super) fn release_pages(&self, range: &Range<u64>) {
        let files = lock(&self.files).clone();
        for file in files.iter().filter(|file| (file.start()..file.end()).contains(&range.start)) {
            file.release_pages(range.clone());
        }
    }
}

impl GroupCommitDelay {
    /// Returns the longest time for which the next sync waits for its group.
    pub(super) fn longest(&self) -> Duration {
        (self.sync_time / PART_OF_SYNC).min(MAX_DELAY)
    }

    /// Adds the time of a sync to the moving average.
    pub(super) fn add(&mut self, sync_time: Duration) {
        self.sync_time = (self.sync_time * (WEIGHT - 1) + sync_time) / WEIGHT;
    }
}
