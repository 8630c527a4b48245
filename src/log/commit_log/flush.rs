//! Making the log durable: one thread syncs at a time, for all who wait (group commit).

use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::config::PAGE_SIZE;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::log::commit_log::commit_log::CommitLog;
use crate::log::flushed_mark_file::FlushedMarkFile;
use crate::storage::Step;
use crate::sync::lock;
use crate::watermark::{Leading, Wait};

impl CommitLog {
    /// Makes everything appended so far durable and says up to where. One thread syncs at a time. Threads that wait for it share the next
    /// sync, which covers what was appended meanwhile.
    ///
    /// # Errors
    /// A [shortage](Error::is_shortage): it may be tried again. [`Error::Poisoned`]: a part of the store failed, now or before; a sync that
    /// failed is never tried again.
    pub fn flush(&self) -> Result<i64> {
        let wanted = self.appended.get();
        match self.flushed.poisoned() {
            // A store that is being closed is flushed all the same.
            None | Some(Error::Closed) => {}
            Some(cause) => return Err(self.poisoned(cause)),
        }
        loop {
            match self.flushed.wait_or_lead(wanted, None) {
                Ok(leading) => self.sync_group(leading)?,
                Err(Wait::Reached) => return Ok(self.flushed.get()),
                Err(Wait::Poisoned(Error::Closed)) => return self.flush_appended(),
                Err(Wait::Poisoned(cause)) => return Err(self.poisoned(cause)),
                Err(Wait::TimedOut) => {}
            }
        }
    }

    /// As [`CommitLog::flush`], also after a failure outside the log: for the close of the store, after [`CommitLog::stop`]. Nothing
    /// becomes readable later.
    ///
    /// # Errors
    /// [`Error::Poisoned`]: a write or sync of the log failed, now or before.
    pub fn flush_rest(&self) -> Result<i64> {
        let flushed = self.flush_appended();
        if let Some(cause) = self.appended.poisoned() {
            for watermark in [&self.committed, &self.readable] {
                watermark.poison(cause.clone());
            }
        }
        flushed
    }

    /// Makes the mark of what was flushed durable.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sync_mark(&self) -> Result<()> {
        self.mark.as_ref().map_or(Ok(()), FlushedMarkFile::sync)
    }

    /// Pages that were begun since the last sync, as `RocketMQ` counts them.
    pub fn unflushed_pages(&self) -> u64 {
        (self.committed.get() as u64 / PAGE_SIZE).saturating_sub(self.flushed.get() as u64 / PAGE_SIZE)
    }

    fn flush_appended(&self) -> Result<i64> {
        let wanted = self.appended.get();
        if self.flushed.get() < wanted {
            let _one_at_a_time = lock(&self.flushing);
            if self.flushed.get() < wanted {
                let flushed = self.sync()?;
                self.flushed.advance(flushed);
            }
        }
        Ok(self.flushed.get())
    }

    /// Waits until every byte before `end` is durable, or until the deadline. The threads that wait sync themselves, one for all. Only that
    /// one may return later: it knows what became of the bytes.
    ///
    /// # Errors
    /// A [shortage](Error::is_shortage): nothing was synced. Those of [`interrupt::check`].
    pub fn wait_flushed(&self, end: i64, deadline: Instant) -> Result<Wait> {
        loop {
            let slice = deadline.min(Instant::now() + interrupt::INTERVAL);
            match self.flushed.wait_or_lead(end, Some(slice)) {
                Ok(leading) => match self.sync_group(leading) {
                    Ok(()) => {
                        self.sync_counts.group_commits.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(cause) if cause.is_shortage() => return Err(cause),
                    Err(_) => {}
                },
                Err(Wait::TimedOut) if slice < deadline => interrupt::check_after_wait()?,
                Err(wait) => {
                    if matches!(wait, Wait::Reached) {
                        self.sync_counts.requests.fetch_add(1, Ordering::Relaxed);
                    }
                    return Ok(wait);
                }
            }
        }
    }

    /// Syncs for all who wait.
    fn sync_group(&self, leading: Leading<'_>) -> Result<()> {
        let mut pace = lock(&self.flushing);
        let begun = Instant::now();
        let flushed = self.sync()?;
        pace.synced(begun.elapsed());
        let patience = pace.patience();
        drop(pace);
        leading.finish(flushed, patience);
        Ok(())
    }

    /// Says up to where the log is durable then. The caller holds `flushing`.
    fn sync(&self) -> Result<i64> {
        if let Some(cause) = self.broken.get() {
            return Err(self.poisoned(cause.clone()));
        }
        self.commit()?;
        let (from, target) = (self.flushed.get() as u64, self.committed.get());
        let end = target as u64;
        let unsynced = lock(&self.unsynced).clone();
        for file in unsynced.iter().filter(|file| file.start() < end) {
            // With the zeros that the commit has written after the records, so that this sync makes their blocks written ones.
            let until = end.max(self.blocks.until()).min(file.end());
            let range = from.saturating_sub(file.start())..until - file.start();
            if let Err(cause) = file.sync(range, Step::LogRange) {
                return Err(self.fail(cause));
            }
        }
        lock(&self.unsynced).retain(|file| file.end() > end);
        // After the sync: the mark is never above what is on disk. Before the acknowledgement: it covers every message that was
        // acknowledged.
        if let Some(mark) = &self.mark {
            mark.write(target);
        }
        self.sync_counts.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(target)
    }
}
