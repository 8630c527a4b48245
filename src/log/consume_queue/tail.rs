//! The entries of a queue that are in memory, as stretches without a gap; most queues have one. A map of single entries takes twice the
//! memory and several times as long, and a store whose queue files are lost has all its entries here.

use std::ops::RangeFrom;

use crate::format::CqUnit;

/// Entries by queue offset.
#[derive(Debug, Clone, Default)]
pub struct QueueTail {
    /// Ascending, and no two overlap. None is empty.
    stretches: Vec<Stretch>,
    len: usize,
}

/// Entries without a gap.
#[derive(Debug, Clone)]
struct Stretch {
    /// The queue offset of the first.
    start: i64,
    units: Vec<CqUnit>,
}

impl Stretch {
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
        self.stretches.first().map(|stretch| stretch.start)
    }

    /// Returns the offset after the last entry.
    pub fn end(&self) -> Option<i64> {
        self.stretches.last().map(Stretch::end)
    }

    /// Returns the entry at an offset.
    pub fn get(&self, offset: i64) -> Option<CqUnit> {
        let stretch = self.stretches.get(self.after(offset).checked_sub(1)?)?;
        stretch.units.get(usize::try_from(offset - stretch.start).ok()?).copied()
    }

    /// Returns the entries from an offset on, up to the next gap.
    pub fn from(&self, offset: i64) -> &[CqUnit] {
        let stretch = self
            .after(offset)
            .checked_sub(1)
            .and_then(|before| self.stretches.get(before));
        let units = stretch.and_then(|stretch| stretch.units.get(usize::try_from(offset - stretch.start).ok()?..));
        units.unwrap_or_default()
    }

    /// Returns the first offset in a range that has an entry.
    pub fn next(&self, from: RangeFrom<i64>) -> Option<i64> {
        let next = || self.stretches.get(self.after(from.start)).map(|stretch| stretch.start);
        self.get(from.start).map(|_| from.start).or_else(next)
    }

    /// Returns the offset after the last entry before `offset`, which has no entry.
    pub fn end_before(&self, offset: i64) -> Option<i64> {
        let before = self.stretches.get(self.after(offset).checked_sub(1)?);
        before.map(Stretch::end)
    }

    /// Adds an entry; returns the entry that it replaces.
    #[inline]
    pub fn insert(&mut self, offset: i64, unit: CqUnit) -> Option<CqUnit> {
        let after = self.after(offset);
        if let Some(stretch) = after.checked_sub(1).and_then(|before| self.stretches.get_mut(before)) {
            let at = usize::try_from(offset - stretch.start).unwrap_or(usize::MAX);
            if let Some(known) = stretch.units.get_mut(at) {
                return Some(std::mem::replace(known, unit));
            }
            if at == stretch.units.len() {
                stretch.units.push(unit);
                self.len += 1;
                return None;
            }
        }
        let units = vec![unit];
        self.stretches.insert(after, Stretch { start: offset, units });
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
        for stretch in self.stretches.iter_mut().take_while(|stretch| stretch.start < end) {
            let gone = usize::try_from(end - stretch.start)
                .unwrap_or(usize::MAX)
                .min(stretch.units.len());
            stretch.units.drain(..gone);
            stretch.start += gone as i64;
            self.len -= gone;
        }
        self.stretches.retain(|stretch| !stretch.units.is_empty());
    }

    /// Iterates over the entries, by ascending offset.
    pub fn iter(&self) -> impl Iterator<Item = (i64, CqUnit)> {
        let stretches = self.stretches.iter();
        stretches.flat_map(|stretch| (stretch.start..).zip(stretch.units.iter().copied()))
    }

    /// Returns the place of the first stretch that starts after `offset`. Entries are added at the end almost always.
    fn after(&self, offset: i64) -> usize {
        if self.stretches.last().is_none_or(|last| last.start <= offset) {
            return self.stretches.len();
        }
        self.stretches.partition_point(|stretch| stretch.start <= offset)
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
