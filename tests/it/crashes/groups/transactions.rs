//! Judges transactions: a half message ends once, as calls have asked for, or stays open, and its end is as durable as its log.

use std::collections::{BTreeMap, BTreeSet};

use mqstore::error::TransactionOutcome;

use super::super::model::{Checked, ensure};
use super::judge::number_of;
use crate::broker::transaction_log::{End, TransactionLog};

/// A half message that was sent.
#[derive(Debug, Clone)]
struct Half {
    /// The number in its body.
    id: u64,
    /// Its place among the half messages.
    queue_offset: i64,
    /// The physical offset at which its record ends.
    stored_until: i64,
    /// The ends that calls have asked for: the log may have one of these.
    may_have: BTreeSet<End>,
    /// Its end, and the physical offset up to which the log must be durable for that.
    end: Option<(End, i64)>,
    /// Questions about it.
    asked: u32,
}

/// The half messages that were sent, by physical offset.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    halves: BTreeMap<i64, Half>,
    /// The numbers of all, also of those whose append failed.
    ids: BTreeSet<u64>,
    /// The numbers of ends, and of those that were refused because there was one.
    pub(super) ended: (u64, u64),
}

impl Transactions {
    /// A half message with this number is appended. `stored` is its place: physical offset, queue offset, end.
    pub(super) fn sends(&mut self, id: u64, stored: Option<(i64, i64, i64)>) {
        self.ids.insert(id);
        if let Some((half, queue_offset, stored_until)) = stored {
            self.adopt(half, id, queue_offset, stored_until);
        }
    }

    fn adopt(&mut self, half: i64, id: u64, queue_offset: i64, stored_until: i64) {
        let new = Half {
            id,
            queue_offset,
            stored_until,
            may_have: BTreeSet::new(),
            end: None,
            asked: 0,
        };
        self.halves.entry(half).or_insert(new);
    }

    /// Returns true if the number is that of a half message.
    pub(super) fn has(&self, id: u64) -> bool {
        self.ids.contains(&id)
    }

    /// Returns true if a commit of the half message with this number was asked for.
    pub(super) fn may_be_committed(&self, id: u64) -> bool {
        let mut of_id = self.halves.values().filter(|half| half.id == id);
        of_id.any(|half| half.may_have.contains(&End::Committed))
    }

    /// Returns the number of the half message at a physical offset.
    pub(super) fn id(&self, half: i64) -> Option<u64> {
        Some(self.halves.get(&half)?.id)
    }

    /// Chooses a half message: an open one, or, if `any`, any of them.
    pub(super) fn choose(&self, number: u64, any: bool) -> Option<i64> {
        let of: Vec<_> = self.halves.iter().filter(|(_, half)| any || half.end.is_none()).collect();
        of.get(number as usize % of.len().max(1)).map(|(place, _)| **place)
    }

    /// A call will end a half message so.
    pub(super) fn may_end(&mut self, half: i64, end: End) {
        if let Some(half) = self.halves.get_mut(&half).filter(|half| half.end.is_none()) {
            half.may_have.insert(end);
        }
    }

    /// A check may give up half messages with this number of questions. Returns these with their places among the half messages.
    pub(super) fn may_give_up(&mut self, max_checks: u32) -> Vec<(i64, i64)> {
        let mut may = Vec::new();
        for (place, half) in &mut self.halves {
            if half.end.is_none() && half.asked >= max_checks {
                half.may_have.insert(End::GivenUp);
                may.push((*place, half.queue_offset));
            }
        }
        may
    }

    /// A check asks about a half message.
    pub(super) fn asks(&mut self, half: i64) -> Checked {
        let known = self.halves.get_mut(&half);
        let is_open = known.as_ref().is_some_and(|half| half.end.is_none());
        ensure(is_open, "only an open transaction is asked about", || {
            format!("{half}: {known:?}")
        })?;
        if let Some(half) = known {
            half.asked += 1;
        }
        Ok(())
    }

    /// A check has ended a half message that it could give up, unless another call had ended it.
    pub(super) fn gives_up(&mut self, half: i64, until: i64) -> Checked {
        let is_sole = self.halves.get(&half).is_some_and(|half| half.may_have.len() == 1);
        if is_sole {
            self.ends(half, End::GivenUp, until)
        } else {
            Ok(())
        }
    }

    /// A half message has ended; its end is durable once the log is up to `until`.
    pub(super) fn ends(&mut self, half: i64, end: End, until: i64) -> Checked {
        let known = self.halves.get_mut(&half);
        let is_first = known.as_ref().is_some_and(|half| half.end.is_none());
        ensure(is_first, "a transaction ends once", || format!("{half} {end:?}: {known:?}"))?;
        if let Some(half) = known {
            half.may_have = [end].into();
            half.end = Some((end, until));
        }
        self.ended.0 += 1;
        Ok(())
    }

    /// A call was refused because the half message has ended.
    pub(super) fn refused(&mut self, half: i64, outcome: TransactionOutcome, until: i64) -> Checked {
        self.ended.1 += 1;
        let Some(known) = self.halves.get_mut(&half) else {
            return Ok(());
        };
        let end = match outcome {
            TransactionOutcome::Committed(_) => Some(End::Committed),
            TransactionOutcome::RolledBack => Some(End::RolledBack),
            TransactionOutcome::GivenUp => Some(End::GivenUp),
            // An earlier process has ended it.
            TransactionOutcome::Ended => known.end.map(|(end, _)| end),
            TransactionOutcome::StoredAgain => None,
        };
        let is_known = end.is_some_and(|end| known.may_have.contains(&end));
        ensure(is_known, "a second end is refused with the first one", || {
            format!("{half} {outcome:?}: {known:?}")
        })?;
        if known.end.is_none() {
            known.end = end.map(|end| (end, until));
            known.may_have = end.into_iter().collect();
        }
        Ok(())
    }

    /// Adds the half messages of a log whose append has failed or not returned.
    pub(super) fn adopt_all(&mut self, found: &TransactionLog) {
        for (place, half) in found.halves() {
            if let Some(id) = number_of(&half.body) {
                if self.halves.get(place).is_some_and(|known| known.id != id) {
                    self.halves.remove(place);
                }
                self.adopt(*place, id, half.queue_offset, half.end);
            }
        }
    }

    /// A new process continues with the transactions of a log that ends at `until`.
    pub(super) fn restart(&mut self, found: &TransactionLog, until: i64) {
        self.adopt_all(found);
        self.halves.retain(|place, half| {
            found
                .halves()
                .get(place)
                .is_some_and(|there| number_of(&there.body) == Some(half.id))
        });
        for (place, half) in &mut self.halves {
            half.end = found.ends().get(place).map(|end| (*end, until));
            half.may_have = half.end.map(|(end, _)| end).into_iter().collect();
        }
    }

    /// Checks what a crash left: durable half messages and ends are there, and no end that nobody asked for.
    pub(super) fn examine(&self, found: &TransactionLog, flushed: i64) -> Checked {
        for (half, end) in found.ends() {
            let known = self.halves.get(half);
            let is_asked_for = known.is_some_and(|half| half.may_have.contains(end));
            ensure(is_asked_for, "a transaction ends as it was asked to", || {
                format!("{half} has the end {end:?}: {known:?}")
            })?;
        }
        for (place, half) in &self.halves {
            let is_there = half.stored_until > flushed || found.halves().contains_key(place);
            ensure(is_there, "no durable half message is lost", || format!("{place}: {half:?}"))?;
            if let Some((end, until)) = half.end.filter(|(_, until)| *until <= flushed) {
                ensure(found.ends().get(place) == Some(&end), "no durable end is lost", || {
                    format!("{place}, durable up to {until}: {half:?}")
                })?;
            }
        }
        Ok(())
    }
}
