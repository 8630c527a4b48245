//! Transactions, a two-phase commit of one message: a half message waits where no consumer reads it, until a commit appends its copy to
//! its topic.
//!
//! A commit appends the copy and then the op message that lists the half message, under a lock; a rollback appends only the op message.
//! The copy names the half message. So after a crash between the two the log shows the commit, and only the op message is appended again.
//! Progress moves once both are in the log, and a persist makes the log durable first.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::consumer_offset::ConsumerOffsets;
use super::copies::real_place;
use super::transaction_record::{TRANSACTION_GROUP, committed, given_up, half, is_half, listed, op, prepared};
use super::transaction_state::TransactionState;
use crate::config::Errors;
use crate::error::{Error, Result, TransactionOutcome};
use crate::format::{Check, GIVEN_UP_TOPIC, HALF_TOPIC, Message, MessageView, OP_TOPIC, Transaction, property};
use crate::log::StoredMessage;
use crate::read::{OnDamage, QueueScan, Walked};
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

/// A half message whose transaction is open.
#[derive(Debug, Clone)]
pub struct OpenHalf {
    /// The half message.
    pub message: StoredMessage,
    /// The number of times that its producers were asked.
    pub checks: u32,
}

/// The half messages whose transactions are open.
#[derive(Debug, Clone, Default)]
pub struct OpenHalves {
    /// In the order in which they were stored.
    pub halves: Vec<OpenHalf>,
    /// Half messages that cannot be read.
    pub passed_over: u64,
    /// Op messages that could not be read at the open: some of the half messages may have been rolled back.
    pub lost_ops: u64,
}

/// The transactions of a store that is open for writing.
#[derive(Debug)]
pub struct Transactions {
    store: Arc<MessageStore>,
    offsets: Arc<ConsumerOffsets>,
    /// The half and op messages and the log that the open found.
    found: Result<Found>,
    /// `None` until a call needs it. Held while the end of a transaction is appended.
    state: Mutex<Option<TransactionState>>,
    /// The end of the log at the last request to persist the mark.
    marked: Mutex<i64>,
    /// The number of the next check.
    next_check: AtomicI64,
    /// The number of the check that runs. Poisoned at the close.
    checks: Watermark,
}

#[derive(Debug)]
struct Found {
    halves: Range<i64>,
    ops: Range<i64>,
    log_end: i64,
}

impl Transactions {
    /// Notes what a store that was just opened has.
    pub(super) fn new(store: &Arc<MessageStore>, offsets: Arc<ConsumerOffsets>) -> Self {
        let reader = store.reader();
        let found = || {
            Ok(Found {
                halves: reader.queue_bounds(HALF_TOPIC, 0)?,
                ops: reader.queue_bounds(OP_TOPIC, 0)?,
                log_end: reader.physical_bounds().end,
            })
        };
        Self {
            store: store.clone(),
            offsets,
            found: found(),
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

    /// Ends the transaction of the half message at a physical offset. Returns the place of the committed message.
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
        let (start, ended, checks, lost_ops) = {
            let mut state = lock(&self.state);
            let state = self.loaded(&mut state)?;
            let mut checks = BTreeMap::new();
            self.offsets.change_mark(|mark| checks.clone_from(&mark.checks));
            (state.half().max(from), state.ended(), checks, state.lost_ops())
        };
        self.store.catch_up(MessageStore::PATIENCE)?;
        let on_damage = OnDamage::new(Errors::Skip);
        let scan = QueueScan::new(self.store.reader().clone(), HALF_TOPIC.to_owned(), 0, start..i64::MAX)?;
        let mut open = OpenHalves {
            lost_ops,
            ..OpenHalves::default()
        };
        for message in scan.on_damage(on_damage.clone()) {
            let message = message?;
            let offset = message.view().queue_offset();
            if !ended.contains(&offset) {
                let checks = checks_of(&message.view()).saturating_add(checks.get(&offset).copied().unwrap_or(0));
                open.halves.push(OpenHalf { message, checks });
            }
        }
        open.passed_over = on_damage.skipped();
        Ok(open)
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
        let found = self.found.as_ref().map_err(Error::clone)?;
        let stored = |topic: &str, bounds: &Range<i64>| {
            let progress = self.offsets.of_queue(TRANSACTION_GROUP, topic, 0)?.get();
            Ok::<_, Error>(progress.unwrap_or(0).min(bounds.end).max(bounds.start))
        };
        let mut state = TransactionState::new(stored(HALF_TOPIC, &found.halves)?, stored(OP_TOPIC, &found.ops)?);
        let ops = state.op()..found.ops.end;
        self.load_ops(&mut state, ops)?;
        let mark = self.offsets.stored_mark()?;
        // A broker that has started since has ended transactions, too. Its ops may be lost, and it keeps no mark.
        let is_own = |settled_end: i64| self.store.was_own_from().is_some_and(|from| from <= settled_end);
        let mark = mark.filter(|mark| is_own(mark.settled_end) && state.lost_ops() == 0);
        if mark.is_none() {
            self.load_stored_again(&mut state, found.halves.end)?;
        }
        let open = self.open_places(&state, found.halves.end)?;
        let from = mark.as_ref().map(|mark| mark.settled_end);
        let from = from.or_else(|| open.keys().min().copied()).unwrap_or(found.log_end);
        if !open.is_empty() {
            self.load_copies(&mut state, &open, from..found.log_end)?;
        }
        self.offsets.change_mark(|known| {
            known.settled_end = from;
            known.checks = mark.map(|mark| mark.checks).unwrap_or_default();
        });
        let _ = self.list_unlisted(&mut state);
        self.publish(&state);
        Ok(state)
    }

    /// Reads op messages, and counts those that are lost or damaged.
    fn load_ops(&self, state: &mut TransactionState, offsets: Range<i64>) -> Result<()> {
        let on_damage = OnDamage::new(Errors::Skip);
        let scan = QueueScan::new(self.store.reader().clone(), OP_TOPIC.to_owned(), 0, offsets)?;
        for op in scan.on_damage(on_damage.clone()) {
            let op = op?;
            let halves = listed(&op.view());
            let start = state.half();
            for half in halves.iter().filter(|half| **half >= start) {
                state.end(*half, TransactionOutcome::Ended, false);
            }
            state.note_op(op.view().queue_offset(), halves.iter().max().copied());
        }
        state.note_lost_ops(on_damage.skipped());
        Ok(())
    }

    /// Returns the queue offsets of the open half messages by their physical offsets.
    fn open_places(&self, state: &TransactionState, end: i64) -> Result<HashMap<i64, i64>> {
        let scan = QueueScan::new(self.store.reader().clone(), HALF_TOPIC.to_owned(), 0, state.half()..end)?;
        let mut scan = scan.on_damage(OnDamage::new(Errors::Skip));
        let mut open = HashMap::new();
        while let Some((offset, unit)) = scan.next_entry(false)? {
            if state.outcome(offset).is_none() {
                open.insert(unit.physical_offset, offset);
            }
        }
        Ok(open)
    }

    /// Searches a stretch of the log for the copies of open half messages.
    fn load_copies(&self, state: &mut TransactionState, open: &HashMap<i64, i64>, stretch: Range<i64>) -> Result<()> {
        let reader = self.store.reader();
        let start = stretch.start.max(reader.physical_bounds().start);
        if start >= stretch.end {
            return Ok(());
        }
        // Other messages name physical offset 0, too, such as those that a broker gives up.
        let first = open.get(&0).and_then(|_| reader.message_at(0).ok());
        let is_named = |view: &MessageView<'_>| {
            view.prepared_transaction_offset() != 0 || first.as_ref().is_some_and(|first| is_copy(view, &first.view()))
        };
        let mut walk = reader.log_walk(start..stretch.end, Check::Structure);
        while let Some(walked) = walk.advance()? {
            if walked == Walked::Stop {
                walk.pass_damage()?;
                continue;
            }
            let view = walk.view().filter(is_named);
            let end = view.and_then(|view| outcome_by(&view, open));
            walk.check_intact()?;
            if let Some((half, outcome)) = end {
                state.end(half, outcome, true);
            }
        }
        Ok(())
    }

    /// Finds half messages that a broker has stored again for a question, and whose progress it did not write any more: the copy
    /// has all fields of the first one, and a higher number of questions.
    fn load_stored_again(&self, state: &mut TransactionState, end: i64) -> Result<()> {
        let scan = QueueScan::new(self.store.reader().clone(), HALF_TOPIC.to_owned(), 0, state.half()..end)?;
        let mut known: HashMap<_, VecDeque<(i64, u32)>> = HashMap::new();
        let mut again = BTreeSet::new();
        for message in scan.on_damage(OnDamage::new(Errors::Skip)) {
            let message = message?;
            let view = message.view();
            let Some(unique_key) = view.unique_key() else { continue };
            let key = (unique_key.into_owned(), view.born_time(), view.body_crc(), real_place(&view));
            let (offset, checks) = (view.queue_offset(), checks_of(&view));
            let copies = known.entry(key).or_default();
            if let Some(first) = copies.iter().position(|(_, before)| *before < checks) {
                again.extend(copies.remove(first).map(|(offset, _)| offset));
            }
            copies.push_back((offset, checks));
        }
        for offset in again {
            state.end(offset, TransactionOutcome::StoredAgain, false);
        }
        Ok(())
    }
}

/// Returns true if a message has the fields that a half message and its copies share.
fn is_copy(view: &MessageView<'_>, half: &MessageView<'_>) -> bool {
    let shared = |view: &MessageView<'_>| (view.born_time(), view.body_crc(), view.unique_key().map(Cow::into_owned));
    shared(view) == shared(half)
}

/// Returns the half message that a copy in the log ends, and how.
fn outcome_by(view: &MessageView<'_>, open: &HashMap<i64, i64>) -> Option<(i64, TransactionOutcome)> {
    let half = *open.get(&view.prepared_transaction_offset())?;
    if view.transaction() == Transaction::Commit {
        Some((half, TransactionOutcome::Committed(view.physical_offset())))
    } else {
        view.has_topic(GIVEN_UP_TOPIC).then_some((half, TransactionOutcome::GivenUp))
    }
}

/// Returns the number of questions that a half message states.
fn checks_of(view: &MessageView<'_>) -> u32 {
    let stated = view.properties().get(property::TRANSACTION_CHECK_TIMES);
    stated.and_then(|stated| stated.parse().ok()).unwrap_or(0)
}
