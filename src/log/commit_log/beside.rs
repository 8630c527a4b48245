//! The log beside a writer of another process: what it has appended, removed or replaced since the files were listed.

use crate::error::Result;
use crate::format::{BLANK_SIZE, CLAIM_SIZE, claimed_offset, claimed_store_time};
use crate::log::commit_log::log_files::LogFiles;

impl LogFiles {
    /// Lists the segments again, and drops the mapping of the one that holds `end`, where the log ended, if it does not show what
    /// is in the file: one of a lower layer of overlayfs that was opened for writing since.
    ///
    /// # Errors
    /// As [`LogFiles::load`].
    pub fn list_again(&self, end: i64) -> Result<()> {
        self.files.list_again()?;
        let mut head = [0; BLANK_SIZE];
        let is_read = self.files.read_anew(end.cast_unsigned(), &mut head)?.is_some();
        if is_read && head != [0; BLANK_SIZE] && !self.may_go_on(end)? {
            self.files.forget_mappings(end.cast_unsigned());
        }
        Ok(())
    }

    /// Gets ready to read past `end`, where the log ended. If the log may go on after the last segment that is known, the
    /// segments are listed again. Those after `end` may not be the same files any more, because a close removes them and the next
    /// open makes others.
    ///
    /// # Errors
    /// As [`LogFiles::load`].
    pub fn prepare_growth(&self, end: i64) -> Result<()> {
        let next = self.end_of_segment(end);
        if next >= self.files_end() {
            self.files.list_again()?;
        }
        self.files.forget_mappings(next.cast_unsigned());
        Ok(())
    }

    /// Whether something may stand at `end`, where the log ended. `false` if nothing does, as far as mappings show. It is the
    /// cheapest look.
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

    /// Whether the record that started at `offset`, and was stored at this time, has been replaced or removed, and not because it
    /// expired: then its writer was killed, and the next one has cut the log. Lists the files again if the record's segment is gone.
    ///
    /// # Errors
    /// As [`LogFiles::load`].
    pub fn has_lost(&self, offset: i64, store_time: i64) -> Result<bool> {
        let mut head = [0; CLAIM_SIZE];
        if self.files.read_anew(offset.cast_unsigned(), &mut head)?.is_some() {
            return Ok((claimed_offset(&head), claimed_store_time(&head)) != (Some(offset), Some(store_time)));
        }
        // The segment may have expired since the files were listed.
        self.files.list_again()?;
        Ok(!self.is_removed(offset) || self.next_start(offset).is_none())
    }
}
