//! A tap: the store of another process as the source of a consumer, with the positions of that consumer in a file.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::positions::Positions;
use crate::error::Result;
use crate::interrupt;
use crate::read::{GrowthPoll, MessageReader, Refreshed};
use crate::sync::{Mutex, lock};

/// The interval at which positions are persisted: RocketMQ's `persistConsumerOffsetInterval`.
const PERSIST_INTERVAL: Duration = Duration::from_secs(5);

/// A store that another process may write to. It is only read.
#[derive(Debug)]
pub(super) struct Tap {
    reader: Mutex<Arc<MessageReader>>,
    poll: Mutex<GrowthPoll>,
    pub(super) positions: Positions,
    persisted: Mutex<Instant>,
}

impl Tap {
    /// Reads the store, with the positions in the file at `path`.
    ///
    /// # Errors
    /// Those of [`Positions::open`], and of a refresh.
    pub(super) fn open(reader: Arc<MessageReader>, path: &Path) -> Result<Self> {
        let positions = Positions::open(&reader, path)?;
        let now = Instant::now();
        let tap = Self {
            reader: Mutex::new(reader),
            poll: Mutex::new(GrowthPoll::new(now)),
            positions,
            persisted: Mutex::new(now),
        };
        tap.refresh()?;
        Ok(tap)
    }

    pub(super) fn reader(&self) -> Arc<MessageReader> {
        lock(&self.reader).clone()
    }

    /// Refreshes the reader, with the directories.
    fn refresh(&self) -> Result<()> {
        let reader = self.reader();
        let refreshed = reader.refresh()?;
        self.take_up(&reader, refreshed)
    }

    /// Refreshes the reader if it may have grown.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::error::Error::Corrupt) if messages were cut from the log;
    /// [`Error::PositionMismatch`](crate::error::Error::PositionMismatch) if the store was replaced.
    pub(super) fn look(&self) -> Result<()> {
        let reader = self.reader();
        let refreshed = lock(&self.poll).look(&reader)?;
        self.take_up(&reader, refreshed)
    }

    fn take_up(&self, reader: &Arc<MessageReader>, refreshed: Refreshed) -> Result<()> {
        let Some(fresh) = refreshed.reopened else { return Ok(()) };
        self.positions.verify_again(&fresh)?;
        let mut current = lock(&self.reader);
        if Arc::ptr_eq(&current, reader) {
            *current = fresh;
        }
        Ok(())
    }

    /// Waits up to `patience` until the store has messages past `end`.
    ///
    /// # Errors
    /// As [`look`](Self::look); those of [`interrupt::check`].
    pub(super) fn wait_past(&self, end: i64, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            self.look()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if self.reader().queued_until() > end || left.is_zero() {
                return Ok(());
            }
            let pause = lock(&self.poll).pause();
            thread::sleep(pause.min(left));
            interrupt::check_after_wait()?;
        }
    }

    /// Notes that a message has come.
    pub(super) fn note_message(&self) {
        lock(&self.poll).note_message();
    }

    /// Makes the positions durable.
    ///
    /// # Errors
    /// Those of [`Positions::persist`], and of a refresh.
    pub(super) fn persist(&self) -> Result<()> {
        *lock(&self.persisted) = Instant::now();
        self.positions.persist(&self.reader(), || self.refresh())
    }

    /// Makes the positions durable every 5 s. A failure is tried again at the next interval; a durable commit and the close raise why.
    pub(super) fn persist_if_due(&self, now: Instant) {
        let since = now.saturating_duration_since(*lock(&self.persisted));
        if since >= PERSIST_INTERVAL {
            let _ = self.persist();
        }
    }
}
