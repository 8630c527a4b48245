//! The entries of a queue that are in memory, as stretches without a gap; most queues have one. A map of single entries takes twice the
//! memory and several times as long, and a store whose queue files are lost has all its entries here.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeFrom;

use crate::format::CqUnit;

/// Entries by queue offset.
#[derive(Debug, Clone, Default)]
pub struct QueueTail {
    /// By the offset of the first one; no two overlap.
    stretches: BTreeMap<i64, VecDeque<CqUnit>>,
    len: usize,
}

impl QueueTail {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The smallest offset that has an entry.
    pub fn first(&self) -> Option<i64> {
        self.stretches.first_key_value().map(|(start, _)| *start)
    }

    /// The offset after the largest one that has an entry.
    pub fn end(&self) -> Option<i64> {
        self.stretches.last_key_value().map(|(start, units)| end_of(*start, units))
    }

    /// The entry at an offset.
    pub fn get(&self, offset: i64) -> Option<CqUnit> {
        let (start, units) = self.stretches.range(..=offset).next_back()?;
        units.get(usize::try_from(offset - start).ok()?).copied()
    }

    /// The first offset in a range that has an entry.
    pub fn next(&self, from: RangeFrom<i64>) -> Option<i64> {
        let next = || self.stretches.range(from.clone()).next().map(|(start, _)| *start);
        self.get(from.start).map(|_| from.start).or_else(next)
    }

    /// The offset after the last entry before `offset`, which has none.
    pub fn end_before(&self, offset: i64) -> Option<i64> {
        let before = self.stretches.range(..offset).next_back();
        before.map(|(start, units)| end_of(*start, units))
    }

    /// Adds an entry; gives the one that it replaces.
    pub fn insert(&mut self, offset: i64, unit: CqUnit) -> Option<CqUnit> {
        if let Some((start, units)) = self.stretches.range_mut(..=offset).next_back() {
            let at = usize::try_from(offset - start).unwrap_or(usize::MAX);
            if let Some(known) = units.get_mut(at) {
                return Some(std::mem::replace(known, unit));
            }
            if at == units.len() {
                units.push_back(unit);
                self.len += 1;
                return None;
            }
        }
        self.stretches.insert(offset, VecDeque::from([unit]));
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
        while let Some(mut stretch) = self.stretches.first_entry().filter(|stretch| *stretch.key() < end) {
            let start = *stretch.key();
            let gone = usize::try_from(end - start).unwrap_or(usize::MAX).min(stretch.get().len());
            self.len -= gone;
            let rest = stretch.get_mut().split_off(gone);
            stretch.remove();
            if !rest.is_empty() {
                self.stretches.insert(end, rest);
            }
        }
    }

    /// The entries, by ascending offset.
    pub fn iter(&self) -> impl Iterator<Item = (i64, CqUnit)> {
        let stretches = self.stretches.iter();
        stretches.flat_map(|(start, units)| (*start..).zip(units.iter().copied()))
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

fn end_of(start: i64, units: &VecDeque<CqUnit>) -> i64 {
    start.saturating_add(units.len() as i64)
}
