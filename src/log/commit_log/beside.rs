//! The log beside a writer of another process: what it has appended, removed or replaced since the files were listed.

use crate::error::Result;
use crate::format::{BLANK_SIZE, CLAIM_SIZE, claimed_offset, claimed_store_time};
use crate::log::commit_log::log_files::LogFiles;

impl LogFiles {
    /// Lists the segments again, and maps anew what may not be the same file any more: the segments after `end`, where the log ended, and the
    /// one that holds it if its mapping does not show what is in the file (a file of a lower layer of overlayfs that was opened for writing
    /// since).
    ///
    /// # Errors
    /// As [`LogFiles::load`].
    pub fn list_again(&self, end: i64) -> Result<()> {
        self.files.list_again()?;
        let (offset, mut head) = (end.cast_unsigned(), [0; BLANK_SIZE]);
        let is_written = self.files.read_anew(offset, &mut head)?.is_some() && head != [0; BLANK_SIZE];
        let is_stale = is_written && !self.may_go_on(end)?;
        let from = if is_stale {
            offset
        } else {
            self.end_of_segment(end).cast_unsigned()
        };
        self.files.forget_mappings(from);
        Ok(())
    }

    /// Whether something may stand at `end`, where the log ended. `false` if nothing does, as far as mappings show. It is the cheapest look.
    ///
    /// # Errors
    /// As [`LogFiles::read`].
    pub fn may_go_on(&self, end: i64) -> Result<bool> {
        let mut head = [0; BLANK_SIZE];
        Ok(match self.locate(end)? {
            Some((file, position)) => file.read(position, &mut head) && head != [0; BLANK_SIZE],
            // The next segment may be there by now.
            None => true,
        })
    }

    /// Whether the record that started at `offset`, and was stored at this time, has been replaced or removed, and not because it expired: then
    /// its writer was killed, and the next one has cut the log.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub fn has_lost(&self, offset: i64, store_time: i64) -> Result<bool> {
        let mut head = [0; CLAIM_SIZE];
        Ok(match self.files.read_anew(offset.cast_unsigned(), &mut head)? {
            Some(_) => (claimed_offset(&head), claimed_store_time(&head)) != (Some(offset), Some(store_time)),
            None => self.next_start(offset).is_none(),
        })
    }
}
