//! Blocks that are written before the records that go into them.
//!
//! The blocks of a new segment are allocated and not written. The sync of the first record in such a block waits for the journal
//! of the file system, which takes 1.2 to 1.7 times as long. So a commit that comes to the end of the written blocks writes a
//! stretch of zeros after its records. The next sync takes that with it, and waits for the journal once for all of them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::storage::AppendFile;

/// Bytes of zeros that are written at once.
const STRETCH: u64 = 1 << 20;

/// Where the written blocks of the log end.
#[derive(Debug, Default)]
pub(super) struct WrittenBlocks {
    /// Whether callers wait for syncs. Nothing is written for others.
    is_waited_for: bool,
    until: AtomicU64,
}

impl WrittenBlocks {
    /// Writes blocks ahead if callers wait for syncs.
    pub(super) fn new(is_waited_for: bool) -> Self {
        Self {
            is_waited_for,
            until: AtomicU64::default(),
        }
    }

    /// The offset after the last zero that was written; 0 for none.
    pub(super) fn until(&self) -> u64 {
        self.until.load(Ordering::Acquire)
    }

    /// Writes zeros to `file` from `end` on, if the records before it have come to the end of the written blocks. The caller has written
    /// these records, and nobody else writes meanwhile.
    pub(super) fn write_past(&self, end: u64, file: &AppendFile) {
        if !self.is_waited_for || file.is_warm() || end <= self.until() || end >= file.end() {
            return;
        }
        let until = file.end().min(end + STRETCH);
        // A sync without them is as right. The failure of a page that has records, too, is told to that sync.
        let _ = file.zero(end..until);
        self.until.store(until, Ordering::Release);
    }
}
