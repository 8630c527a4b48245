//! What the log has in the page cache: how it gets there before it is written, and out of it again.

use std::io;
use std::ops::Range;

use crate::log::commit_log::commit_log::CommitLog;
use crate::sync::lock;

impl CommitLog {
    /// Makes the pages of a stretch past the end of the log ready to be written, as far as segments are made. Gives the offset up to which
    /// they are.
    ///
    /// # Errors
    /// As [`Region::supply`](crate::storage::Region::supply). Writing works all the same.
    pub fn supply(&self, stretch: Range<u64>) -> io::Result<u64> {
        let files = {
            let state = lock(&self.state);
            [state.current.clone(), state.next.clone()]
        };
        let mut supplied = stretch.start;
        for file in files.iter().flatten() {
            if (file.start()..file.end()).contains(&supplied) {
                let end = stretch.end.min(file.end());
                file.supply(supplied..end)?;
                supplied = end;
            }
        }
        Ok(supplied)
    }

    /// Where the stretch that starts at `from` ends, if it ends at the next multiple of `step` bytes in its segment, or with the segment.
    pub fn end_of_step(&self, from: u64, step: u64) -> u64 {
        let end = self.files.end_of_segment(from as i64) as u64;
        let start = end.saturating_sub(self.segment_size());
        end.min(start + (from.saturating_sub(start) / step + 1) * step)
    }

    /// Drops the cached pages of a stretch in one segment, all of which is flushed.
    ///
    /// # Errors
    /// As the system gives them; ignoring one is always right.
    pub fn drop_cached(&self, stretch: Range<u64>) -> io::Result<()> {
        // The segments that are mapped for writing.
        let mapped = lock(&self.unsynced).clone();
        for file in mapped
            .iter()
            .filter(|file| (file.start()..file.end()).contains(&stretch.start))
        {
            file.let_go(stretch.clone());
        }
        self.files.drop_cached(stretch)
    }
}
