//! The transactions that have ended, and the progress in half and op messages.
//!
//! A half message is open if it lies at or after the progress, and nothing has ended it: no op message lists it, and no committed message
//! names it. The progress moves over ended half messages, and that in op messages over those that list only half messages before it.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::TransactionOutcome;

/// The most outcomes before the progress that are kept, for the text of a refusal.
const KEPT_OUTCOMES: usize = 10_000;

/// The transactions that have ended, and the progress.
#[derive(Debug)]
pub(super) struct TransactionState {
    /// The queue offset of the first half message that may be open.
    half: i64,
    /// The queue offset of the first op message that lists a half message from there on.
    op: i64,
    /// Keyed by the queue offset of the half message: of all that have ended from the progress on, and of some before it.
    outcomes: BTreeMap<i64, TransactionOutcome>,
    /// The last half message that an op message lists, by the queue offset of the op message, from the progress on.
    ops: BTreeMap<i64, i64>,
    /// The half messages whose end is in the log, and their op message not yet.
    unlisted: BTreeSet<i64>,
    /// The offsets that could not be read.
    pub(super) unread: UnreadEnds,
}

/// Physical offsets that could not be read, and that may hold half messages or the ends of some.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnreadEnds {
    /// Op messages.
    pub ops: u64,
    /// Damaged stretches of the log after the first half message that may be open.
    pub stretches: u64,
    /// The topics of half and op messages whose queue is lost.
    pub queues: Vec<&'static str>,
    /// True if the open has found that messages of the log are missing.
    pub is_log_partial: bool,
}

impl TransactionState {
    /// Begins at a progress in half and op messages.
    pub(super) fn new(half: i64, op: i64) -> Self {
        Self {
            half,
            op,
            outcomes: BTreeMap::new(),
            ops: BTreeMap::new(),
            unlisted: BTreeSet::new(),
            unread: UnreadEnds::default(),
        }
    }

    /// Returns the queue offset of the first half message that may be open.
    pub(super) fn half(&self) -> i64 {
        self.half
    }

    /// Returns the queue offset of the first op message that lists a half message from there on.
    pub(super) fn op(&self) -> i64 {
        self.op
    }

    /// Returns how the transaction of a half message has ended; `None` if it is open.
    pub(super) fn outcome(&self, half: i64) -> Option<TransactionOutcome> {
        let known = self.outcomes.get(&half).copied();
        known.or_else(|| (half < self.half).then_some(TransactionOutcome::Ended))
    }

    /// Returns the half messages that have ended from the progress on.
    pub(super) fn ended(&self) -> BTreeSet<i64> {
        self.outcomes.range(self.half..).map(|(half, _)| *half).collect()
    }

    /// Notes the end of a transaction, whose op message is missing if `is_unlisted`.
    pub(super) fn end(&mut self, half: i64, outcome: TransactionOutcome, is_unlisted: bool) {
        self.outcomes.entry(half).or_insert(outcome);
        if is_unlisted {
            self.unlisted.insert(half);
        }
        self.advance();
    }

    /// Notes an op message, and the last half message that it lists; `None` if it lists none.
    pub(super) fn note_op(&mut self, op: i64, last: Option<i64>) {
        self.ops.insert(op, last.unwrap_or(-1));
        self.advance();
    }

    /// Returns a half message whose end has no op message.
    pub(super) fn first_unlisted(&self) -> Option<i64> {
        self.unlisted.first().copied()
    }

    /// Notes that the op message of a half message is in the log.
    pub(super) fn list(&mut self, half: i64) {
        self.unlisted.remove(&half);
        self.advance();
    }

    fn advance(&mut self) {
        while self.outcomes.contains_key(&self.half) && !self.unlisted.contains(&self.half) {
            self.half += 1;
        }
        while let Some(last) = self.ops.get(&self.op)
            && *last < self.half
        {
            self.ops.remove(&self.op);
            self.op += 1;
        }
        while self.outcomes.len() > KEPT_OUTCOMES
            && let Some(first) = self.outcomes.first_entry()
            && *first.key() < self.half
        {
            first.remove();
        }
    }
}
