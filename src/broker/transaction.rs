//! Transactions, a two-phase commit of one message: a half message waits where no consumer reads it, until a commit appends its copy to
//! its topic.
//!
//! A commit appends the copy and then the op message that lists the half message, under a lock; a rollback appends only the op message.
//! The copy names the half message. So after a crash between the two the log shows the commit, and only the op message is appended again.
//! Progress moves once both are in the log, and a persist makes the log durable first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::consumer_offset::ConsumerOffsets;
use super::transaction_record::{TRANSACTION_GROUP, committed, given_up, half, is_half, op, prepared};
use super::transaction_search::{Bounds, OpenHalf, OpenHalves, StoredProgress, find_ended, list_open};
use super::transaction_state::TransactionState;
use crate::error::{Error, Result, TransactionOutcome};
use crate::format::{HALF_TOPIC, Message, OP_TOPIC, property};
use crate::log::StoredMessage;
use crate::store::{AppendResult, Incoming, MessageStore};
use crate::sync::{Mutex, lock};
use crate::watermark::Watermark;

/// The growth of the log after which the mark is persisted again while transactions are open: a crash makes the next call read that much.
const MARK_AFTER: i64 = 64 << 20;

/// The end of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionEnd {
    /// Consumers get the message.
    Commit,
    /// Consumers do not get the message.
    Rollback,
}

/// The transactions of a store that is open for writing.
#[derive(Debug)]
pub struct Transactions {
    store: Arc<MessageStore>,
    offsets: Arc<ConsumerOffsets>,
    /// The half and op messages and the log that the open found.
    found: Result<Bounds>,
    /// `None` until a call needs it. Held while the end of a transaction is appended.
    state: Mutex<Option<TransactionState>>,
    /// The end of the log at the last request to persist the mark.
    marked: Mutex<i64>,
    /// The number of the next check.
    next_check: AtomicI64,
    /// The number of the check that runs. Poisoned at the close.
    checks: Watermark,
}

impl Transactions {
    /// Notes what a store that was just opened has.
    pub(super) fn new(store: &Arc<MessageStore>, offsets: Arc<ConsumerOffsets>) -> Self {
        let reader = store.reader();
        Self {
            store: store.clone(),
            offsets,
            found: Bounds::of(reader),
            state: Mutex::default(),
            marked: Mutex::new(reader.physical_bounds().end),
            next_check: AtomicI64::new(1),
            checks: Watermark::new(0),
        }
    }

    /// Appends the half message of a transaction: consumers do not get it. `message` is what they get after the commit, and must satisfy
    /// the settings of its topic.
    ///
    /// # Errors
    /// [`Error::IllegalMessage`] for a delayed message too; those of an append.
    pub fn send_half(&self, message: Message<'_>, group: &str, durable: Option<bool>) -> Result<AppendResult> {
        let mut message = prepared(message, group)?;
        self.store.appender(durable).of_producer().checked(&mut message)?;
        self.store.appender(durable).append(half(message))
    }

    /// Ends the transaction of the half message at a physical offset. Returns the result of the committed message.
    ///
    /// # Errors
    /// [`Error::TransactionEnded`] if it has ended; [`Error::Invalid`] where no half message is; [`Error::NotFound`] if nothing is there;
    /// those of reading and of an append. Of these only [`Error::NotDurable`] comes after the end was appended.
    pub fn end(&self, physical_offset: i64, end: TransactionEnd, durable: Option<bool>) -> Result<Option<AppendResult>> {
        let message = self.message(physical_offset)?;
        let view = message.view();
        if !is_half(&view) {
            return Err(Error::Invalid {
                what: format!(
                    "the message at physical offset {physical_offset} is one of topic {:?}, and no half message: end takes what \
                     send_half has returned",
                    view.topic()
                ),
            });
        }
        let copy = match end {
            TransactionEnd::Rollback => None,
            TransactionEnd::Commit => Some(committed(&view).ok_or_else(|| Error::Invalid {
                what: format!(
                    "the half message at physical offset {physical_offset} names no topic in {} and {}: it can only be rolled back",
                    property::REAL_TOPIC,
                    property::REAL_QID
                ),
            })?),
        };
        let (first, last) = {
            let mut state = lock(&self.state);
            let state = self.loaded(&mut state)?;
            if let Some(outcome) = state.outcome(view.queue_offset()) {
                return Err(Error::TransactionEnded {
                    half: physical_offset,
                    outcome,
                });
            }
            let outcome = |at| match end {
                TransactionEnd::Commit => TransactionOutcome::Committed(at),
                TransactionEnd::Rollback => TransactionOutcome::RolledBack,
            };
            self.append_end(state, view.queue_offset(), copy, outcome, durable)?
        };
        let status = self.store.appender(durable).wait_for(&last)?;
        Ok((end == TransactionEnd::Commit).then_some(AppendResult { status, ..first }))
    }

    /// Counts the open transactions. Their progress is exact after it.
    ///
    /// # Errors
    /// Those of [`Transactions::open`].
    pub(super) fn count_open(&self) -> Result<i64> {
        if !self.has_halves()? {
            return Ok(0);
        }
        let open = self.open()?;
        let count = open.halves.len() as u64 + open.passed_over;
        Ok(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// Returns the half messages whose transactions are open.
    ///
    /// # Errors
    /// The damage of `consumerOffset.json`; those of reading.
    pub fn open(&self) -> Result<OpenHalves> {
        self.open_from(0)
    }

    /// Returns the half messages from a queue offset on whose transactions are open.
    pub(super) fn open_from(&self, from: i64) -> Result<OpenHalves> {
        let (start, ended, checks, unread) = {
            let mut state = lock(&self.state);
            let state = self.loaded(&mut state)?;
            let mut checks = BTreeMap::new();
            self.offsets.change_mark(|mark| checks.clone_from(&mark.checks));
            (state.half().max(from), state.ended(), checks, state.unread.clone())
        };
        self.store.catch_up(MessageStore::PATIENCE)?;
        list_open(self.store.reader(), start..i64::MAX, &ended, &checks, unread)
    }

    /// Returns true if the transaction of the half message with this queue offset is open.
    ///
    /// # Errors
    /// Those of [`Transactions::open`].
    pub fn is_open(&self, half: i64) -> Result<bool> {
        let mut state = lock(&self.state);
        Ok(self.loaded(&mut state)?.outcome(half).is_none())
    }

    /// Returns true if the store has half messages.
    pub(super) fn has_halves(&self) -> Result<bool> {
        Ok(!self.store.reader().queue_bounds(HALF_TOPIC, 0)?.is_empty())
    }

    /// Counts a question about a half message. Returns false if its transaction has ended.
    pub(super) fn count_check(&self, half: i64) -> Result<bool> {
        let mut state = lock(&self.state);
        let is_open = self.loaded(&mut state)?.outcome(half).is_none();
        if is_open {
            self.offsets.change_mark(|mark| *mark.checks.entry(half).or_default() += 1);
            self.offsets.note_change();
        }
        Ok(is_open)
    }

    /// Moves a half message whose producers did not answer to the topic for that. Does nothing if its transaction has ended.
    ///
    /// # Errors
    /// Those of an append.
    pub(super) fn give_up(&self, half: &OpenHalf) -> Result<()> {
        let view = half.message.view();
        let copy = given_up(&view, half.checks)?;
        let mut state = lock(&self.state);
        let state = self.loaded(&mut state)?;
        if state.outcome(view.queue_offset()).is_none() {
            self.append_end(
                state,
                view.queue_offset(),
                Some(copy),
                |_| TransactionOutcome::GivenUp,
                Some(false),
            )?;
        }
        Ok(())
    }

    /// Begins a check, which ends the one before it, and returns its number.
    pub(super) fn begin_check(&self) -> i64 {
        let number = self.next_check.fetch_add(1, Ordering::Relaxed);
        self.checks.advance(number);
        number
    }

    /// Returns the watermark with the number of the check that runs. Poisoned at the close.
    pub(super) fn checks(&self) -> &Watermark {
        &self.checks
    }

    /// Requests to persist the mark if transactions are open and the log has grown: much, or at the close at all.
    pub(super) fn renew_mark(&self, is_last: bool) {
        let mut state = lock(&self.state);
        let Some(state) = state.as_mut() else { return };
        let _ = self.list_unlisted(state);
        self.publish(state);
        let end = self.store.appended_offset();
        let mut marked = lock(&self.marked);
        let growth = end - *marked;
        let has_open = || {
            self.store
                .reader()
                .queue_bounds(HALF_TOPIC, 0)
                .is_ok_and(|bounds| bounds.end > state.half())
        };
        if growth >= MARK_AFTER || (is_last && growth > 0 && has_open()) {
            self.offsets.note_change();
            *marked = end;
        }
    }

    /// Reads the message at a physical offset. It makes a message readable that was just appended.
    ///
    /// # Errors
    /// Those of [`MessageReader::message_at`](crate::read::MessageReader::message_at); [`Error::Poisoned`].
    pub fn message(&self, physical_offset: i64) -> Result<StoredMessage> {
        self.store.make_readable(MessageStore::PATIENCE)?;
        self.store.show(physical_offset.saturating_add(1))?;
        self.store.reader().message_at(physical_offset)
    }

    /// Appends the copy of a half message, if there is one, and its op message. If only the copy can be appended, the transaction has
    /// ended, and the op message follows later. Returns the first and the last result.
    fn append_end(
        &self,
        state: &mut TransactionState,
        half: i64,
        copy: Option<Message<'_>>,
        outcome: impl Fn(i64) -> TransactionOutcome,
        durable: Option<bool>,
    ) -> Result<(AppendResult, AppendResult)> {
        // A failure is tried again at the next call: the log shows these ends.
        let _ = self.list_unlisted(state);
        let op = op(half, self.store.reader().env().now_ms())?;
        let has_copy = copy.is_some();
        let messages: Vec<_> = copy.into_iter().chain([op]).map(Incoming::Copied).collect();
        let mut done = Vec::new();
        let appended = self.store.appender(durable).without_waiting().append_all(messages, &mut done);
        let (Some(first), Some(last)) = (done.first().copied(), done.last().copied()) else {
            return Err(appended.err().unwrap_or(Error::Closed));
        };
        let has_op = done.len() == 1 + usize::from(has_copy);
        if has_op {
            state.note_op(last.appended.queue_offset, Some(half));
        }
        state.end(half, outcome(first.appended.physical_offset), !has_op);
        self.offsets.change_mark(|mark| {
            mark.checks.remove(&half);
        });
        self.publish(state);
        Ok((first, last))
    }

    /// Appends the op messages that are missing after a crash or a failure.
    fn list_unlisted(&self, state: &mut TransactionState) -> Result<()> {
        while let Some(half) = state.first_unlisted() {
            let op = op(half, self.store.reader().env().now_ms())?;
            let result = self.store.appender(Some(false)).append(op)?;
            state.note_op(result.appended.queue_offset, Some(half));
            state.list(half);
        }
        Ok(())
    }

    /// Passes the progress on, for the next persist.
    fn publish(&self, state: &TransactionState) {
        for (topic, offset) in [(HALF_TOPIC, state.half()), (OP_TOPIC, state.op())] {
            // A damaged file was refused when the state was loaded.
            let Ok(progress) = self.offsets.of_queue(TRANSACTION_GROUP, topic, 0) else {
                continue;
            };
            if progress.get().unwrap_or(0) < offset {
                progress.set(offset);
            }
        }
        if state.first_unlisted().is_none() {
            let end = self.store.appended_offset();
            self.offsets.change_mark(|mark| mark.settled_end = end);
        }
    }

    fn loaded<'s>(&self, state: &'s mut Option<TransactionState>) -> Result<&'s mut TransactionState> {
        let loaded = match state.take() {
            Some(loaded) => loaded,
            None => self.load()?,
        };
        Ok(state.insert(loaded))
    }

    /// Finds the transactions that have ended before the open, and appends the op messages that a crash has prevented.
    fn load(&self) -> Result<TransactionState> {
        let bounds = self.found.as_ref().map_err(Error::clone)?;
        let stored = |topic: &str| {
            let progress = self.offsets.of_queue(TRANSACTION_GROUP, topic, 0)?.get();
            Ok::<_, Error>(progress.unwrap_or(0))
        };
        let mark = self.offsets.stored_mark()?;
        let stored = StoredProgress {
            half: stored(HALF_TOPIC)?,
            op: stored(OP_TOPIC)?,
            mark: mark.filter(|mark| mark.is_valid(self.store.was_own_from())),
        };
        let (mut state, mark) = find_ended(self.store.reader(), bounds, stored)?;
        self.offsets.change_mark(|known| *known = mark);
        let _ = self.list_unlisted(&mut state);
        self.publish(&state);
        Ok(state)
    }
}
