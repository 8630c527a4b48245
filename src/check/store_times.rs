//! Store times that are out of order.

use std::mem;

use crate::check::finding_id::FindingId;
use crate::check::findings::Affected;
use crate::format::MessageView;

/// A difference, in ms, after which a time that the next message contradicts is damage rather than a clock that was adjusted.
pub(super) const FAR: i64 = 3_600_000;

/// Compares the store times of messages in the order of the log.
#[derive(Debug)]
pub(super) struct StoreTimes {
    /// The latest time that a message can have: the clock may be behind by [`FAR`].
    most: i64,
    /// The latest time so far, without those that are wrong.
    last: Option<i64>,
    /// The last message, if its time is far from the time before it. The next message decides about it.
    undecided: Option<Stored>,
}

#[derive(Debug)]
struct Stored {
    at: i64,
    time: i64,
    affected: Affected,
}

/// A message whose store time is out of order.
#[derive(Debug)]
pub(super) struct OutOfOrder {
    pub(super) id: FindingId,
    /// Its physical offset.
    pub(super) at: i64,
    pub(super) what: String,
    pub(super) affected: Affected,
}

impl StoreTimes {
    /// Creates a comparison, by a clock that shows `now`.
    pub(super) fn new(now: i64) -> Self {
        Self {
            most: now.saturating_add(FAR),
            last: None,
            undecided: None,
        }
    }

    /// Returns true if a message of this time is in order, and not far from the one before it.
    pub(super) fn are_followed_by(&self, time: i64) -> bool {
        self.undecided.is_none() && self.last.is_none_or(|last| last <= time && time <= last.saturating_add(FAR))
    }

    /// Returns true if the times of these messages, which do not fall, are in order after those before. A second message confirms
    /// a first message that is far from the message before it.
    pub(super) fn are_followed_by_all(&self, (first, last): (i64, i64), messages: u64) -> bool {
        let is_later = self.undecided.is_none() && self.last.is_none_or(|before| before <= first);
        is_later && last <= self.most && (messages > 1 || self.are_followed_by(first))
    }

    /// Continues after messages that are in order.
    pub(super) fn take_agreed(&mut self, last: i64) {
        self.last = Some(last);
    }

    /// Takes the next message. Returns what it shows to be out of order.
    #[inline]
    pub(super) fn take(&mut self, view: &MessageView<'_>) -> Vec<OutOfOrder> {
        let time = view.store_time();
        if self.are_followed_by(time) {
            self.last = Some(time);
            return Vec::new();
        }
        let mut found = Vec::new();
        found.extend(mem::take(&mut self.undecided).and_then(|stored| self.decide(stored, time)));
        let last = self.last.unwrap_or(time);
        let stored = Stored {
            at: view.physical_offset(),
            time,
            affected: Affected::of(view),
        };
        if time.abs_diff(last) > FAR.unsigned_abs() {
            self.undecided = Some(stored);
        } else if time < last {
            found.push(stored.fallen(last));
        } else {
            self.last = Some(time);
        }
        found
    }

    /// Decides about a message that is far from the one before it, by the time of the next one.
    fn decide(&mut self, stored: Stored, next: i64) -> Option<OutOfOrder> {
        let last = self.last?;
        let is_above = stored.time > last;
        if is_above && stored.time <= next.saturating_add(FAR) {
            self.last = Some(stored.time);
            // A writer continues from the time of the last message, so the next one has the wrong time, too.
            return (stored.time > self.most).then(|| stored.in_the_future(last));
        }
        if is_above || next >= last {
            let what = format!(
                "stored at {}, the message before at {last}, and the one after at {next}",
                stored.time
            );
            return Some(stored.wrong(what));
        }
        Some(stored.fallen(last))
    }

    /// Decides about the last message by the clock. Returns the latest store time, too.
    pub(super) fn finish(&mut self) -> (Option<i64>, Option<OutOfOrder>) {
        let (last, undecided) = (self.last, self.undecided.take());
        let (Some(last), Some(stored)) = (last, undecided) else {
            return (last, None);
        };
        let latest = Some(last.max(stored.time));
        let found = if stored.time < last {
            Some(stored.fallen(last))
        } else if stored.time > self.most {
            Some(stored.in_the_future(last))
        } else {
            None
        };
        (latest, found)
    }
}

impl Stored {
    fn fallen(self, last: i64) -> OutOfOrder {
        let what = format!("stored at {}, the message before at {last}", self.time);
        self.out_of_order(FindingId::LogStoreTimeFalls, what)
    }

    fn in_the_future(self, last: i64) -> OutOfOrder {
        let what = format!("stored at {}, in the future, the message before at {last}", self.time);
        self.wrong(what)
    }

    fn wrong(self, what: String) -> OutOfOrder {
        self.out_of_order(FindingId::LogStoreTimeWrong, what)
    }

    fn out_of_order(self, id: FindingId, what: String) -> OutOfOrder {
        OutOfOrder {
            id,
            at: self.at,
            what,
            affected: self.affected,
        }
    }
}
