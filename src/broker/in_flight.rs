//! The messages of one queue that a group has handed out and not settled: its in-flight table.
//!
//! Offsets below `next` were handed out or passed over once. The progress of the group is the lowest offset that is not settled, so a
//! crash hands out a message again, and never skips one (at least once).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The in-flight table of a queue.
#[derive(Debug)]
pub(super) struct InFlight {
    /// Ascending by offset. The first one is not settled.
    messages: VecDeque<Handed>,
    /// The lowest offset that was never handed out or passed over.
    next: i64,
    /// The number of messages that wait to be handed out again.
    waiting: usize,
    /// At or before the time since which any message is held; `None` if none was held since the last search.
    held_since: Option<Instant>,
}

/// A message that was handed out.
#[derive(Debug, Clone, Copy)]
struct Handed {
    offset: i64,
    state: State,
    /// The number of times that it was given back in place.
    attempts: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A consumer has it.
    Held { by: u64, since: Instant },
    /// It is handed out again at this time.
    Waits { until: Instant },
    /// Acknowledged, or sent to the retry topic, while a message before it is not settled.
    Settled,
}

impl InFlight {
    /// A table that starts at the queue offset `next`.
    pub(super) fn new(next: i64) -> Self {
        Self {
            messages: VecDeque::new(),
            next,
            waiting: 0,
            held_since: None,
        }
    }

    /// Returns the lowest offset that was never handed out.
    pub(super) fn next(&self) -> i64 {
        self.next
    }

    /// Returns the progress: the lowest offset that is not settled.
    pub(super) fn progress(&self) -> i64 {
        self.messages.front().map_or(self.next, |first| first.offset)
    }

    /// Raises `next`: the messages before it do not match the subscription, or have expired.
    pub(super) fn pass_to(&mut self, next: i64) {
        self.next = self.next.max(next);
    }

    /// Hands out the message at `offset`, for the first time or again.
    pub(super) fn hand_out(&mut self, offset: i64, by: u64, since: Instant) {
        let state = State::Held { by, since };
        self.held_since = Some(self.held_since.map_or(since, |held| held.min(since)));
        if offset >= self.next {
            let attempts = 0;
            self.messages.push_back(Handed { offset, state, attempts });
            self.next = offset + 1;
            return;
        }
        if let Some(handed) = find(&mut self.messages, offset)
            && matches!(handed.state, State::Waits { .. })
        {
            handed.state = state;
            self.waiting -= 1;
        }
    }

    /// Settles a message, and returns true if it was in flight.
    pub(super) fn settle(&mut self, offset: i64) -> bool {
        let Some(handed) = find(&mut self.messages, offset) else {
            return false;
        };
        let before = std::mem::replace(&mut handed.state, State::Settled);
        self.waiting -= usize::from(matches!(before, State::Waits { .. }));
        while self.messages.front().is_some_and(|first| first.state == State::Settled) {
            self.messages.pop_front();
        }
        before != State::Settled
    }

    /// Returns true if a consumer holds the message.
    pub(super) fn is_held(&self, offset: i64) -> bool {
        self.at(offset)
            .is_some_and(|handed| matches!(handed.state, State::Held { .. }))
    }

    /// Returns the number of times that the message was given back.
    pub(super) fn attempts(&self, offset: i64) -> i32 {
        self.at(offset).map_or(0, |handed| handed.attempts)
    }

    /// Gives back each held message from `offset` on: all are handed out again, in order, at the time `until`. Counts an attempt of
    /// the first one.
    pub(super) fn give_back_from(&mut self, offset: i64, until: Instant) {
        self.give_back(until, |handed, _| handed.offset >= offset);
        if let Some(handed) = find(&mut self.messages, offset) {
            handed.attempts = handed.attempts.saturating_add(1);
        }
    }

    /// Gives back a held message, to be handed out again at once.
    pub(super) fn give_back_one(&mut self, offset: i64, now: Instant) {
        self.give_back(now, |handed, _| handed.offset == offset);
    }

    /// Gives back what a consumer holds, to be handed out again at once.
    pub(super) fn give_back_all_of(&mut self, consumer: u64, now: Instant) {
        self.give_back(now, |_, by| by == consumer);
    }

    fn give_back(&mut self, until: Instant, is_meant: impl Fn(&Handed, u64) -> bool) {
        for handed in &mut self.messages {
            if let State::Held { by, .. } = handed.state
                && is_meant(handed, by)
            {
                handed.state = State::Waits { until };
                self.waiting += 1;
            }
        }
    }

    /// Returns the offset of the first message that waits, and the time at which it is handed out again.
    pub(super) fn first_waiting(&self) -> Option<(i64, Instant)> {
        if self.waiting == 0 {
            return None;
        }
        self.messages.iter().find_map(|handed| match handed.state {
            State::Waits { until } => Some((handed.offset, until)),
            State::Held { .. } | State::Settled => None,
        })
    }

    /// Returns the first message that a consumer has held for `timeout`.
    pub(super) fn first_expired(&mut self, now: Instant, timeout: Duration) -> Option<i64> {
        let is_expired = |since: Instant| now.saturating_duration_since(since) >= timeout;
        // Most polls end here, and search nothing.
        if !self.held_since.is_some_and(is_expired) {
            return None;
        }
        let held = || {
            self.messages.iter().filter_map(|handed| match handed.state {
                State::Held { since, .. } => Some((handed.offset, since)),
                State::Waits { .. } | State::Settled => None,
            })
        };
        let expired = held().find(|(_, since)| is_expired(*since)).map(|(offset, _)| offset);
        if expired.is_none() {
            self.held_since = held().map(|(_, since)| since).min();
        }
        expired
    }

    /// Returns true if another consumer than this one holds a message.
    pub(super) fn is_held_by_another(&self, consumer: u64) -> bool {
        self.messages
            .iter()
            .any(|handed| matches!(handed.state, State::Held { by, .. } if by != consumer))
    }

    /// Returns the number of messages that are not settled.
    pub(super) fn len(&self) -> usize {
        self.messages.iter().filter(|handed| handed.state != State::Settled).count()
    }

    fn at(&self, offset: i64) -> Option<&Handed> {
        self.messages.get(index_of(&self.messages, offset)?)
    }
}

fn find(messages: &mut VecDeque<Handed>, offset: i64) -> Option<&mut Handed> {
    let at = index_of(messages, offset)?;
    messages.get_mut(at)
}

/// Returns the index of the message at a queue offset.
fn index_of(messages: &VecDeque<Handed>, offset: i64) -> Option<usize> {
    // Most queues have no gap.
    let distance = usize::try_from(offset - messages.front()?.offset).ok()?;
    if messages.get(distance).is_some_and(|handed| handed.offset == offset) {
        return Some(distance);
    }
    messages.binary_search_by_key(&offset, |handed| handed.offset).ok()
}
