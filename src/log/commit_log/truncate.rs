//! The only way from a log that was read to one that can be appended to. Everything past its end is removed first, durably: a stale record
//! there would look like the next one.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::segment_name;
use crate::log::commit_log::append_state::LogEnd;
use crate::log::commit_log::commit_log::CommitLog;
use crate::log::commit_log::log_files::LogFiles;
use crate::storage::{Env, Step};

impl LogFiles {
    /// Truncates the log at its end, where it can then be appended to.
    ///
    /// # Errors
    /// [`Error::DiskFull`] and [`Error::Io`] when a segment cannot be opened for writing, changed or synced.
    pub(crate) fn truncate(self: Arc<Self>, env: Arc<dyn Env>, segment_size: u64, end: LogEnd) -> Result<CommitLog> {
        let at = end.at;
        self.remove_after(env.as_ref(), at)?;
        let last = self.starts().next_back().filter(|start| at < start + segment_size as i64);
        let current = match last {
            None => None,
            Some(start) => Some(self.files.open_for_appending(start as u64)?),
        };
        if let Some(from) = end.rewrite_from {
            self.rewrite(from..at)?;
        }
        if let Some(current) = &current {
            let stale = at as u64..current.end().min(end.written_until.max(at) as u64);
            current.clear(stale)?;
            if end.rewrite_from.is_some() {
                // The segment may have been made just before the crash.
                current.sync_name(env.as_ref())?;
            }
        }
        Ok(CommitLog::new(env, self, segment_size, current, end))
    }

    /// Removes the segments that start after `end`, the newest first.
    fn remove_after(&self, env: &dyn Env, end: i64) -> Result<()> {
        for empty in self.files.empty_files() {
            match env.unlink(empty) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Error::io("remove", empty, error)),
                _ => {}
            }
        }
        for start in self.starts().rev().take_while(|start| *start > end) {
            self.remove(start)?;
            env.sync_dir(self.dir(), Step::LogCut)
                .map_err(|error| Error::io("sync", self.dir(), error))?;
        }
        Ok(())
    }

    /// Writes again what recovery has read, durably. Where a sync has failed, the bytes may be in memory alone, and the system
    /// does not write them a second time by itself.
    fn rewrite(&self, recovered: Range<i64>) -> Result<()> {
        for start in self.starts() {
            let segment = recovered.start.max(start)..recovered.end.min(start + self.segment_size() as i64);
            if segment.is_empty() {
                continue;
            }
            let path = self.dir().join(segment_name(start as u64));
            let refused = |error| Error::full_or_io("write again", &path, error);
            let file = self.files.open_for_writing(start as u64).map_err(refused)?;
            self.for_each_piece(segment, |at, bytes| {
                file.write_all_at(bytes, (at - start) as u64).map_err(refused)
            })?;
            file.sync(Step::LogRewritten).map_err(refused)?;
        }
        Ok(())
    }
}
