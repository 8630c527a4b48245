//! Making the log ready to be written a little ahead of its end, so that neither an append nor a sync does it.
//!
//! A log that is written through its mappings gets its pages. A log that goes by way of the pool has no pages to supply: it gets blocks that
//! are written. The blocks of a new segment are allocated and not written, and the sync of the first record in such a block waits for the
//! journal of the file system: 1.2 to 1.7 times as long.

use std::ops::Range;

use crate::error::Result;
use crate::log::commit_log::commit_log::CommitLog;
use crate::storage::{AppendFile, Step};
use crate::sync::lock;

/// Bytes of zeros that one hold of the lock writes. A commit waits meanwhile.
const ZEROED_AT_ONCE: u64 = 256 << 10;

impl CommitLog {
    /// Makes a stretch past the end of the log ready to be written, as far as segments are made. Gives the offset up to which it is.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::DiskFull`]: not all of it is ready, and writing works all the same. [`Error::Poisoned`]: a sync failed, and
    /// the log is poisoned.
    pub fn supply(&self, stretch: Range<u64>) -> Result<u64> {
        let files = {
            let state = lock(&self.state);
            [state.current.clone(), state.next.clone()]
        };
        let mut supplied = stretch.start;
        for file in files.iter().flatten() {
            if (file.start()..file.end()).contains(&supplied) {
                let part = supplied..stretch.end.min(file.end());
                supplied = part.end;
                match file.pool() {
                    _ if file.is_warm() => {}
                    None => file.supply(part)?,
                    Some(_) => self.write_blocks(file, part)?,
                }
            }
        }
        Ok(supplied)
    }

    /// Writes zeros past what is committed, and syncs them.
    fn write_blocks(&self, file: &AppendFile, range: Range<u64>) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at + ZEROED_AT_ONCE);
            // Nobody commits meanwhile. What was committed since the call stays.
            let _committing = lock(&self.committing);
            at = at.max(self.committed.get() as u64);
            if at < end {
                file.zero(at..end)?;
            }
            at = at.max(end);
        }
        // The system tells a failure of the log's own bytes to one sync, and that may be this one.
        let synced = file.sync(range.start - file.start()..range.end - file.start(), Step::SegmentAllocated);
        synced.map_err(|cause| self.fail(cause))
    }
}
