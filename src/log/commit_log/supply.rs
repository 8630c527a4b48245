//! Making the pages past the end of the log ready to be written, where it is written through its mappings.

use std::ops::Range;

use crate::error::Result;
use crate::log::commit_log::commit_log::CommitLog;
use crate::sync::lock;

impl CommitLog {
    /// Makes the pages of a stretch past the end of the log ready to be written, as far as segments are made. Gives the offset up to which
    /// they are.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io), as [`Region::supply`](crate::storage::Region::supply). Writing works all the same.
    pub fn supply(&self, stretch: Range<u64>) -> Result<u64> {
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
}
