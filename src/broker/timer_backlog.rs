//! The fate of timer messages: they wait, or they do not. The writer that delivers them knows it, and a reader finds it from the progress
//! of such a writer and the copies in the log after it. Of a broker's timer messages a reader knows only those that were not due before
//! the last message of the store: the wheel is not read, and a search for their copies would read the whole log.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::timer_copies::Timer;
use super::timer_offset::{TimerOffsets, TimerState, load_timer_check};
use super::timer_recalls::is_recalled;
use crate::error::Result;
use crate::interrupt;
use crate::read::MessageReader;

/// The timer messages that wait, by their queue offsets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TimerBacklog {
    waiting: BTreeSet<i64>,
    unknown: BTreeSet<i64>,
    /// The recalls whose second has not passed.
    recalls: BTreeSet<i64>,
    /// The queue offset from which on all wait.
    next: i64,
    /// The number of lost or damaged messages, from the first one on that was read.
    pub damaged: u64,
}

/// The fate of a timer message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimerFate {
    /// It waits for its delivery.
    Waiting,
    /// A broker may have delivered it.
    Unknown,
    /// A record with its unique key has recalled it, or had come too late for that: then there is a copy.
    Recalled,
    /// It was delivered, stored again or passed over.
    Done,
}

impl TimerBacklog {
    /// Judges the timer messages of a store that this process does not deliver.
    ///
    /// # Errors
    /// Those of reading `timercheck`, queue and log.
    pub fn read(reader: &Arc<MessageReader>) -> Result<Self> {
        let file = load_timer_check(reader)?.unwrap_or_default();
        let mut state = TimerState::begin(reader, file)?;
        if state.has_progress() {
            while !state.is_settled() {
                interrupt::check()?;
                state.read_some(reader)?;
            }
            return Ok(Self::known(&state));
        }
        while !state.take_up(reader)? {
            interrupt::check()?;
        }
        state.pass_stored_again(reader)?;
        let last = reader.recovery().last_store_time;
        let (waiting, unknown): (Vec<_>, Vec<_>) = state.waiting.iter().partition(|(due, _)| *due > last);
        Ok(Self {
            waiting: offsets(waiting),
            unknown: offsets(unknown),
            recalls: offsets(state.recalls.iter().filter(|(end, _)| *end > last)),
            next: state.next(),
            damaged: state.damaged,
        })
    }

    /// Returns the timer messages that a writer knows to wait; `None` while it searches for the copies of an earlier crash.
    pub(super) fn of_writer(timers: &TimerOffsets) -> Option<Self> {
        let state = timers.state();
        state.is_settled().then(|| Self::known(&state))
    }

    fn known(state: &TimerState) -> Self {
        Self {
            waiting: offsets(&state.waiting),
            unknown: BTreeSet::new(),
            recalls: offsets(state.recalls.iter()),
            next: state.next(),
            damaged: state.damaged,
        }
    }

    /// Returns the number of those that wait, in a queue that ends at this offset.
    pub fn waiting(&self, queue_end: i64) -> i64 {
        number(&self.waiting).saturating_add((queue_end - self.next).max(0))
    }

    /// Returns the number of those that a broker may have delivered.
    pub fn unknown(&self) -> i64 {
        number(&self.unknown)
    }

    /// Returns the number of records that the delivery still needs, in a queue that ends at this offset: also recalls.
    pub fn needed(&self, queue_end: i64) -> i64 {
        let known = self.unknown().saturating_add(number(&self.recalls));
        self.waiting(queue_end).saturating_add(known)
    }

    /// Returns the fate of the timer message at a queue offset. A recall waits until its second has passed.
    ///
    /// # Errors
    /// Those of reading the queue, for recalls.
    pub fn fate(&self, reader: &Arc<MessageReader>, queue_offset: i64) -> Result<TimerFate> {
        let waits = [&self.waiting, &self.recalls]
            .iter()
            .any(|known| known.contains(&queue_offset));
        Ok(if queue_offset >= self.next || waits {
            TimerFate::Waiting
        } else if self.unknown.contains(&queue_offset) {
            TimerFate::Unknown
        } else if is_recalled(reader, queue_offset)? {
            TimerFate::Recalled
        } else {
            TimerFate::Done
        })
    }
}

fn offsets<'a>(timers: impl IntoIterator<Item = &'a Timer>) -> BTreeSet<i64> {
    timers.into_iter().map(|(_, offset)| *offset).collect()
}

fn number(offsets: &BTreeSet<i64>) -> i64 {
    i64::try_from(offsets.len()).unwrap_or(i64::MAX)
}
