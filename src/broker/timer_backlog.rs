//! The fate of timer messages: they wait, or they do not. The writer that delivers them knows it, and a reader finds it from the progress
//! of such a writer and the copies in the log after it. Of a broker's timer messages a reader knows only those that were not due before
//! the last message of the store: the wheel is not read, and a search for their copies would read the whole log.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::timer_offset::{TimerOffsets, TimerState, load_timer_check};
use crate::error::Result;
use crate::interrupt;
use crate::read::MessageReader;

/// The timer messages that wait, by their queue offsets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TimerBacklog {
    waiting: BTreeSet<i64>,
    unknown: BTreeSet<i64>,
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
        let offsets = |timers: Vec<&(i64, i64)>| timers.into_iter().map(|(_, offset)| *offset).collect();
        Ok(Self {
            waiting: offsets(waiting),
            unknown: offsets(unknown),
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
            waiting: state.waiting.iter().map(|(_, offset)| *offset).collect(),
            unknown: BTreeSet::new(),
            next: state.next(),
            damaged: state.damaged,
        }
    }

    /// Returns the number of those that wait, in a queue that ends at this offset.
    pub fn waiting(&self, queue_end: i64) -> i64 {
        let later = (queue_end - self.next).max(0);
        i64::try_from(self.waiting.len()).map_or(i64::MAX, |known| known.saturating_add(later))
    }

    /// Returns the number of those that a broker may have delivered.
    pub fn unknown(&self) -> i64 {
        i64::try_from(self.unknown.len()).unwrap_or(i64::MAX)
    }

    /// Returns the fate of the timer message at a queue offset.
    pub fn fate(&self, queue_offset: i64) -> TimerFate {
        if queue_offset >= self.next || self.waiting.contains(&queue_offset) {
            TimerFate::Waiting
        } else if self.unknown.contains(&queue_offset) {
            TimerFate::Unknown
        } else {
            TimerFate::Done
        }
    }
}
