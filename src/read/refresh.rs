//! Changes that another process has made in a store since it was opened, and the landmarks that show whether it is still the same store.
//!
//! A refresh continues where the open has ended, by the same plan: it reads the log from there, and gives the entries of the new
//! messages to the queues in memory. Changes that it cannot see this way need a new open.

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::format::{Check, crc32};
use crate::log::LogRecord;
use crate::read::message_reader::MessageReader;
use crate::recovery::{expect_uncut, find_growth, flushed_mark};
use crate::storage::Env;

/// The outcome of a refresh.
#[derive(Debug)]
pub struct Refreshed {
    /// The number of bytes by which the log has grown.
    pub bytes: i64,
    /// The reader to continue with, if the refreshed one stays as it was: the topics of the store have changed, or it had no message.
    pub reopened: Option<Arc<MessageReader>>,
}

impl MessageReader {
    /// Takes up what another process has changed since the open or the last refresh: new messages, segments, queues and topics,
    /// and what was removed. A store that this process writes to is always up to date, and nothing happens.
    ///
    /// # Errors
    /// [`Error::LogCut`] if a slave has cut messages from the log; [`Error::Corrupt`] if messages that were readable are gone for another
    /// reason and have not expired, and for damage that whole records follow; [`Error::Io`], those of [`crate::interrupt::check`].
    pub fn refresh(&self) -> Result<Refreshed> {
        self.unless_cut(|| self.refresh_uncut())
    }

    /// Calls [`refresh`](Self::refresh) for messages alone: removed files are noticed only where they matter.
    ///
    /// # Errors
    /// As [`refresh`](Self::refresh).
    pub fn read_on(&self) -> Result<Refreshed> {
        self.unless_cut(|| self.read_on_uncut())
    }

    /// Calls `refresh` unless a slave has cut the log since the open, or cuts it during the call. Then it opens the store again, if the log
    /// still has the last message that this reader knows.
    fn unless_cut(&self, refresh: impl FnOnce() -> Result<Refreshed>) -> Result<Refreshed> {
        let expect_uncut = || expect_uncut(self.env.as_ref(), self.path(), self.cuts);
        let Some(last) = &self.last else {
            return refresh();
        };
        let cut = match expect_uncut().and_then(|()| refresh()) {
            Err(cut @ Error::LogCut { .. }) => cut,
            Err(error) => match expect_uncut() {
                Err(cut @ Error::LogCut { .. }) => cut,
                _ => return Err(error),
            },
            refreshed => return refreshed,
        };
        let last = last.lock().unwrap_or_else(PoisonError::into_inner).0;
        let refreshed = self.reopen(self.readable.get())?;
        let has_last = |fresh: &Self| {
            if fresh.cuts.have_kept(self.cuts, self.readable.get()) {
                return Ok(true);
            }
            let (own, now) = (self.record_checksum(last)?, fresh.record_checksum(last)?);
            Ok(own.is_some() && own == now)
        };
        match &refreshed.reopened {
            Some(fresh) if !self.physical_bounds().is_empty() && !has_last(fresh)? => Err(cut),
            _ => Ok(refreshed),
        }
    }

    fn refresh_uncut(&self) -> Result<Refreshed> {
        let (log, end) = (self.log(), self.readable.get());
        if let Some(last) = self.last.as_ref().filter(|_| log.segment_size() > 0) {
            log.list_again(end)?;
            if self.queue_store().has_lost_topic()? {
                self.expect_last(*last.lock().unwrap_or_else(PoisonError::into_inner))?;
                return self.reopen(end);
            }
        }
        self.read_on_uncut()
    }

    fn read_on_uncut(&self) -> Result<Refreshed> {
        let unchanged = Refreshed {
            bytes: 0,
            reopened: None,
        };
        let Some(last) = &self.last else {
            return Ok(unchanged);
        };
        // Held to the end: of two refreshes at the same time, the second one continues after the first.
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        self.expect_last(*last)?;
        let (log, end) = (self.log(), self.readable.get());
        if log.segment_size() == 0 {
            return self.reopen(end);
        }
        if !log.may_continue(end)? {
            return Ok(unchanged);
        }
        log.prepare_growth(end)?;
        let growth = find_growth(self.env.as_ref(), self.path(), self.config(), log, self.queue_store(), end)?;
        let Some(growth) = growth else {
            return self.reopen(end);
        };
        // First the log: an entry must not lead past its end.
        self.readable.advance(growth.report.log_end);
        let entries = growth.entries.into_iter();
        let queues: Vec<_> = entries
            .filter_map(|((topic, queue_id), entries)| self.queue_store().add(&topic, queue_id, entries))
            .collect();
        if growth.report.last_store_time != 0 {
            *last = (growth.report.last_offset, growth.report.last_store_time);
            self.index().note_growth();
        }
        queues.iter().try_for_each(|queue| queue.release_written())?;
        Ok(Refreshed {
            bytes: growth.report.log_end - end,
            reopened: None,
        })
    }

    /// Returns true if a refresh may find more messages: the cheapest check, without a system call.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn may_have_grown(&self) -> Result<bool> {
        self.log().may_continue(self.readable.get())
    }

    /// Returns the physical offset below which the log survives a power failure, by the mark of its writer now; `None` if the store was
    /// closed or has no mark of this log.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io).
    pub fn flushed_mark(&self) -> Result<Option<i64>> {
        flushed_mark(self.env.as_ref(), self.path())
    }

    /// Returns the physical offset below which every message is in its queue. Waits for a refresh that runs. A writer of this process puts
    /// its last messages there a moment after their append.
    pub fn queued_until(&self) -> i64 {
        let _refreshing = self.last.as_ref().map(Mutex::lock);
        self.readable.get().min(self.dispatched.get().max(self.recovery().log_end))
    }

    /// Returns a reader of the store as it is now; `None` if a writer of this process keeps this one up to date.
    ///
    /// # Errors
    /// As [`MessageReader::open`].
    pub(crate) fn reopened(&self, env: &Arc<dyn Env>) -> Result<Option<Self>> {
        let open = |_| Self::open(env, self.path(), self.config().clone());
        self.last.as_ref().map(open).transpose()
    }

    fn reopen(&self, end: i64) -> Result<Refreshed> {
        let reopened = Self::open(&self.env, self.path(), self.config().clone())?;
        Ok(Refreshed {
            bytes: reopened.readable.get() - end,
            reopened: Some(Arc::new(reopened)),
        })
    }

    /// Refuses a log from which its last message was cut: other messages may be where some were read.
    fn expect_last(&self, (last, store_time): (i64, i64)) -> Result<()> {
        if store_time == 0 || !self.log().is_replaced(last, store_time)? {
            return Ok(());
        }
        Err(self.log().corrupt(
            last,
            "the message that was the last one is not there any more: its writer died, and the next one has cut the log before it, or the store \
             was replaced; open the store again, and read again what was read near its end"
                .to_owned(),
        ))
    }

    /// Returns the physical offsets of the first and the last record of the log, with their checksums; fewer if they cannot be read.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub fn landmarks(&self) -> Result<Vec<(i64, u32)>> {
        let mut found = Vec::new();
        let refreshed = self
            .last
            .as_ref()
            .map(|last| last.lock().unwrap_or_else(PoisonError::into_inner).0);
        for offset in [self.physical_bounds().start, refreshed.unwrap_or(self.recovery().last_offset)] {
            if let Some(checksum) = self.record_checksum(offset)? {
                found.push((offset, checksum));
            }
        }
        found.dedup();
        Ok(found)
    }

    /// Returns a checksum over all bytes of the record that starts at a physical offset; `None` if none does.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub fn record_checksum(&self, physical_offset: i64) -> Result<Option<u32>> {
        if !self.physical_bounds().contains(&physical_offset) {
            return Ok(None);
        }
        Ok(match self.log().read(physical_offset, Check::Structure)? {
            LogRecord::Message(message) => Some(crc32(message.view().bytes())),
            _ => None,
        })
    }
}
