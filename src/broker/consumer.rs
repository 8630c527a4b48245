//! A consumer: it polls messages, and acknowledges them or sends them back.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::consumer_group::{ConsumerGroup, QueueName, QueuePosition, Start, Subscription, Taken};
use super::group_store::GroupStore;
use super::tap::Tap;
use crate::error::{Error, Result};
use crate::format::MessageView;
use crate::interrupt;
use crate::read::{MessageReader, StoredMessage};
use crate::sync::{Mutex, lock};

/// A consumer: of a group, in the process that writes the store, or of any store with a positions file. Any number of threads may use it.
/// Dropping it leaves the group.
#[derive(Debug)]
pub struct Consumer {
    store: Arc<GroupStore>,
    group: Arc<ConsumerGroup>,
    member: u64,
    paused: Mutex<BTreeSet<QueueName>>,
    is_closed: AtomicBool,
}

impl Consumer {
    /// Joins a group.
    ///
    /// # Errors
    /// [`Error::Invalid`] if consumers of the group have another subscription; the damage of `consumerOffset.json`.
    pub(super) fn join(
        store: Arc<GroupStore>,
        group: Arc<ConsumerGroup>,
        member: u64,
        subscription: Subscription,
        start: &Start,
    ) -> Result<Self> {
        store.catch_up()?;
        group.join(member, subscription, start)?;
        Ok(Self {
            store,
            group,
            member,
            paused: Mutex::default(),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Opens a consumer of a store that another process may write to. It keeps its positions in the file at `path`, each with the identity
    /// of the record before it, and compares them with the store first. `reader` and what is made from it are only read.
    ///
    /// # Errors
    /// [`Error::PositionsLocked`] if another consumer has the file; [`Error::Corrupt`] if the file is damaged; [`Error::Invalid`] if it is
    /// in the store; [`Error::PositionMismatch`] and [`Error::OffsetOutOfRange`] if a position does not fit the store, with
    /// [`OnMissing::Refuse`](crate::read::OnMissing::Refuse); [`Error::Io`].
    pub fn with_positions(reader: Arc<MessageReader>, path: &Path, subscription: Subscription, start: &Start) -> Result<Self> {
        let store = Arc::new(GroupStore::Tapped(Box::new(Tap::open(reader, path)?)));
        let group = Arc::new(ConsumerGroup::new(None, Arc::clone(&store)));
        Self::join(store, group, 0, subscription, start)
    }

    /// Returns up to `most` messages, as soon as there is one, in order within each queue. An empty answer means that the deadline has
    /// passed. Messages that were not acknowledged may come again: each comes at least once.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::OffsetOutOfRange`]; the damage of a message; [`Error::Poisoned`]; those of [`interrupt::check`].
    pub fn poll(&self, most: usize, deadline: Option<Instant>) -> Result<Vec<StoredMessage>> {
        self.expect_open()?;
        self.store.catch_up()?;
        loop {
            self.expect_open()?;
            let (seen, now) = (self.store.queued_until(), Instant::now());
            let taken = self.take_due(most, now)?;
            if !taken.messages.is_empty() {
                self.store.note_messages();
                return Ok(taken.messages);
            }
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Ok(Vec::new());
            }
            // In slices, so that it takes up the queues that other consumers leave.
            let ends = [deadline, taken.due].into_iter().flatten();
            let left = ends.map(|end| end.saturating_duration_since(now)).min();
            let slice = left.map_or(interrupt::INTERVAL, |left| left.min(interrupt::INTERVAL));
            self.store.wait_past(seen, slice)?;
        }
    }

    /// Returns what a [`poll`](Self::poll) at the time `now` finds in the queues, without waiting.
    ///
    /// # Errors
    /// Those of [`Consumer::poll`].
    pub fn take(&self, most: usize, now: Instant) -> Result<Vec<StoredMessage>> {
        self.expect_open()?;
        Ok(self.take_due(most, now)?.messages)
    }

    fn take_due(&self, most: usize, now: Instant) -> Result<Taken> {
        self.group.take(self.member, &lock(&self.paused), most, now)
    }

    /// Acknowledges messages by topic, queue and queue offset of their records. Returns how many of them were in flight: a message
    /// that took longer than the timeout is not.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn ack<'a>(&self, messages: impl IntoIterator<Item = (&'a str, i32, i64)>) -> Result<usize> {
        self.expect_open()?;
        Ok(self.group.ack(messages))
    }

    /// Sends a message back. The group gets it again after `delay_level`, by default after a time that grows with each retry; after too
    /// many retries, and with a negative level, it becomes a dead letter. In an ordered topic its queue waits, and the message comes
    /// again 1 s after `now`. Returns false if it was not in flight.
    ///
    /// # Errors
    /// [`Error::Closed`]; those of an append: the message stays in flight.
    pub fn nack(&self, message: &MessageView<'_>, delay_level: Option<i32>, now: Instant) -> Result<bool> {
        self.expect_open()?;
        self.group.nack(message, delay_level, now)
    }

    /// Makes the progress of the store's groups durable, or the positions.
    ///
    /// # Errors
    /// [`Error::Closed`]; the damage of `consumerOffset.json`; [`Error::Poisoned`], [`Error::DiskFull`], [`Error::Io`]; with a positions
    /// file the errors of [`MessageReader::refresh`], and [`Error::PositionMismatch`] if the store was replaced.
    pub fn commit(&self) -> Result<()> {
        self.expect_open()?;
        self.store.persist()
    }

    /// Continues at a queue offset of a queue. What is in flight there is forgotten, and comes again if it lies after that.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::OffsetOutOfRange`].
    pub fn seek(&self, topic: &str, queue_id: i32, offset: i64) -> Result<()> {
        self.expect_open()?;
        self.group.seek(topic, queue_id, offset)
    }

    /// Stops handing out new messages of these queues, which stay with this consumer.
    pub fn pause(&self, queues: impl IntoIterator<Item = (String, i32)>) {
        lock(&self.paused).extend(queues);
    }

    /// Ends a [`pause`](Self::pause).
    pub fn resume(&self, queues: impl IntoIterator<Item = (String, i32)>) {
        let mut paused = lock(&self.paused);
        for queue in queues {
            paused.remove(&queue);
        }
    }

    /// Returns the paused queues.
    pub fn paused(&self) -> Vec<(String, i32)> {
        lock(&self.paused).iter().cloned().collect()
    }

    /// Returns the positions in the queues that this consumer reads now; ascending within each topic.
    ///
    /// # Errors
    /// [`Error::Closed`]; the damage of `consumerOffset.json`.
    pub fn positions(&self) -> Result<Vec<QueuePosition>> {
        self.expect_open()?;
        self.group.positions(self.member)
    }

    /// Returns the number of lost or damaged messages that the consumers of the group have skipped (`Errors::Skip`).
    pub fn skipped(&self) -> u64 {
        self.group.skipped()
    }

    /// Leaves the group, makes its progress durable, and releases a positions file. The other consumers get what this one holds at once. A second call does
    /// nothing.
    ///
    /// # Errors
    /// Those of [`Consumer::commit`].
    pub fn close(&self) -> Result<()> {
        if self.leave() { self.store.close() } else { Ok(()) }
    }

    fn leave(&self) -> bool {
        let was_open = !self.is_closed.swap(true, Ordering::AcqRel);
        if was_open {
            self.group.leave(self.member, Instant::now());
        }
        was_open
    }

    /// Returns true once this consumer has left its group.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    fn expect_open(&self) -> Result<()> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        Ok(())
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.leave();
    }
}
