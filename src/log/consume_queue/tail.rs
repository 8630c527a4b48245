//! The in-memory tail of a queue, stored as runs of consecutive entries; most queues have one run. A map of single entries takes
//! twice the memory and several times as long, and a store that lost its queue files has all of its entries here.

use std::ops::RangeFrom;

use crate::format::CqUnit;

/// The entries of a queue in memory, by queue offset.
#[derive(Debug, Clone, Default)]
pub struct QueueTail {
    /// Ascending, without overlaps. No run is empty.
    runs: Vec<Run>,
    len: usize,
}

/// A run of consecutive entries.
#[derive(Debug, Clone)]
struct Run {
    /// The queue offset of the first.
    start: i64,
    units: Vec<CqUnit>,
}

impl Run {
    fn end(&self) -> i64 {
        self.start.saturating_add(self.units.len() as i64)
    }
}

impl QueueTail {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if it has no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the offset of the first entry.
    pub fn first(&self) -> Option<i64> {
        self.runs.first().map(|run| run.start)
    }

    /// Returns the offset after the last entry.
    pub fn end(&self) -> Option<i64> {
        self.runs.last().map(Run::end)
    }

    /// Returns the entry at an offset.
    pub fn get(&self, offset: i64) -> Option<CqUnit> {
        let run = self.runs.get(self.after(offset).checked_sub(1)?)?;
        run.units.get(usize::try_from(offset - run.start).ok()?).copied()
    }

    /// Returns the entries from an offset on, up to the next gap.
    pub fn from(&self, offset: i64) -> &[CqUnit] {
        let run = self.after(offset).checked_sub(1).and_then(|before| self.runs.get(before));
        let units = run.and_then(|run| run.units.get(usize::try_from(offset - run.start).ok()?..));
        units.unwrap_or_default()
    }

    /// Returns the first offset in a range that has an entry.
    pub fn next(&self, from: RangeFrom<i64>) -> Option<i64> {
        let next = || self.runs.get(self.after(from.start)).map(|run| run.start);
        self.get(from.start).map(|_| from.start).or_else(next)
    }

    /// Returns the offset after the last entry before `offset`, which must have no entry.
    pub fn end_before(&self, offset: i64) -> Option<i64> {
        let before = self.runs.get(self.after(offset).checked_sub(1)?);
        before.map(Run::end)
    }

    /// Adds an entry; returns the entry that it replaces.
    #[inline]
    pub fn insert(&mut self, offset: i64, unit: CqUnit) -> Option<CqUnit> {
        let after = self.after(offset);
        if let Some(run) = after.checked_sub(1).and_then(|before| self.runs.get_mut(before)) {
            let at = usize::try_from(offset - run.start).unwrap_or(usize::MAX);
            if let Some(known) = run.units.get_mut(at) {
                return Some(std::mem::replace(known, unit));
            }
            if at == run.units.len() {
                run.units.push(unit);
                self.len += 1;
                return None;
            }
        }
        let units = vec![unit];
        self.runs.insert(after, Run { start: offset, units });
        self.len += 1;
        None
    }

    /// Adds all entries of another tail.
    pub fn extend(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        for (offset, unit) in other.iter() {
            self.insert(offset, unit);
        }
    }

    /// Removes every entry before `end`.
    pub fn forget_before(&mut self, end: i64) {
        for run in self.runs.iter_mut().take_while(|run| run.start < end) {
            let gone = usize::try_from(end - run.start).unwrap_or(usize::MAX).min(run.units.len());
            run.units.drain(..gone);
            run.start += gone as i64;
            self.len -= gone;
        }
        self.runs.retain(|run| !run.units.is_empty());
    }

    /// Iterates over the entries, by ascending offset.
    pub fn iter(&self) -> impl Iterator<Item = (i64, CqUnit)> {
        let runs = self.runs.iter();
        runs.flat_map(|run| (run.start..).zip(run.units.iter().copied()))
    }

    /// Returns the index of the first run that starts after `offset`. Fast path: entries are almost always added at the end.
    fn after(&self, offset: i64) -> usize {
        if self.runs.last().is_none_or(|last| last.start <= offset) {
            return self.runs.len();
        }
        self.runs.partition_point(|run| run.start <= offset)
    }
}

impl FromIterator<(i64, CqUnit)> for QueueTail {
    fn from_iter<I: IntoIterator<Item = (i64, CqUnit)>>(entries: I) -> Self {
        let mut tail = Self::default();
        for (offset, unit) in entries {
            tail.insert(offset, unit);
        }
        tail
    }
}
