//! The times at which the delayed messages of a level came, by a clock that nobody sets.
//!
//! Store times do not fall. While they are ahead of a clock that was set back, the due time in an entry says nothing about when its
//! message was stored. The writer that appended it has seen it come, and counts the delay from then.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

/// The lead of a due time over the end of the delay up to which the message waits for it. Each small step of the clock back leaves store
/// times ahead of it for a while.
const LEAD_MS: i64 = 10_000;
/// Messages that come within this part of the delay of their level count as one arrival, so that a level has few of them.
const PARTS: u32 = 1000;

/// The arrivals of the messages of a level that wait and came since the open, in their order.
#[derive(Debug)]
pub(super) struct Arrivals {
    delay: Duration,
    /// The end of the queue at the last look.
    seen: i64,
    noted: VecDeque<Arrival>,
}

/// Messages that came together.
#[derive(Debug)]
struct Arrival {
    offsets: Range<i64>,
    /// The time of the first look that saw one of them.
    first: Instant,
    /// The time of the last one, from which on all of them wait.
    last: Instant,
}

impl Arrivals {
    /// Begins at the open, with a queue that ends at `end`, of a level with this delay in ms.
    pub(super) fn new(delay_ms: i64, end: i64) -> Self {
        Self {
            delay: Duration::from_millis(delay_ms.max(0).unsigned_abs()),
            seen: end,
            noted: VecDeque::new(),
        }
    }

    /// Notes the messages that have come since the last look, in a queue that ends at `end` now.
    pub(super) fn note(&mut self, end: i64, now: Instant) {
        let from = std::mem::replace(&mut self.seen, end);
        if end <= from {
            return;
        }
        match self.noted.back_mut() {
            Some(last) if now.saturating_duration_since(last.first) <= self.delay / PARTS => {
                last.offsets.end = end;
                last.last = now;
            }
            _ => self.noted.push_back(Arrival {
                offsets: from..end,
                first: now,
                last: now,
            }),
        }
    }

    /// Returns the end of the queue at the last look.
    pub(super) fn seen(&self) -> i64 {
        self.seen
    }

    /// Forgets the messages before a queue offset, which were delivered.
    pub(super) fn forget_before(&mut self, offset: i64) {
        while self.noted.front().is_some_and(|first| first.offsets.end <= offset) {
            self.noted.pop_front();
        }
    }

    /// Returns the time at which a message is due, by a clock that shows `now_ms` at `now`. It is `stated`, the store time plus the delay,
    /// unless that lies further ahead than the delay can last. Then it is the end of the delay, or now as for a broker, if the open has
    /// found the message.
    pub(super) fn due(&self, offset: i64, stated: i64, now_ms: i64, now: Instant) -> i64 {
        let at = self.noted.partition_point(|arrival| arrival.offsets.end <= offset);
        let arrival = self.noted.get(at).filter(|arrival| arrival.offsets.start <= offset);
        let left = match arrival {
            Some(arrival) => self.delay.saturating_sub(now.saturating_duration_since(arrival.last)),
            None => self.delay,
        };
        // Rounded up: no message is delivered early.
        let left = i64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i64::MAX);
        let end = now_ms.saturating_add(left);
        if stated <= end.saturating_add(LEAD_MS) {
            stated
        } else if arrival.is_some() {
            end
        } else {
            now_ms
        }
    }
}
