//! The newest item of each slot of an index file, for a window of slots at a time: all slots of a large file would take gigabytes.

use std::ops::Range;

use crate::format::IndexGeometry;

/// Slots that are looked at together, so that they take 64 MiB at most. A broker's file has five million; a file of 2 GiB may have
/// five hundred million.
const MOST: u32 = 1 << 24;
/// As many take little memory.
const FEW: u32 = 1 << 16;

/// The slots of a file, some at a time. Each time the items before number `count` are read: of few items a window takes little memory, of
/// many it has so many slots that they are not read often.
pub(super) fn windows(geometry: IndexGeometry, count: i32) -> impl Iterator<Item = Range<u32>> {
    let size = count.unsigned_abs().saturating_mul(4).clamp(FEW, MOST);
    let firsts = (0..geometry.slots).step_by(size as usize);
    firsts.map(move |first| first..geometry.slots.min(first.saturating_add(size)))
}

/// The number of the newest item of each slot of a window, 0 for none.
#[derive(Debug)]
pub(super) struct NewestItems {
    first: u32,
    numbers: Vec<i32>,
}

impl NewestItems {
    /// No slot has an item.
    pub(super) fn none(window: Range<u32>) -> Self {
        Self {
            first: window.start,
            numbers: vec![0; window.len()],
        }
    }

    /// Sets the newest item of a slot, and gives the one before; `None` if the slot is not in the window.
    pub(super) fn replace(&mut self, slot: u32, number: i32) -> Option<i32> {
        let newest = self.numbers.get_mut(slot.checked_sub(self.first)? as usize)?;
        Some(std::mem::replace(newest, number))
    }

    /// The first slot of the window.
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// By slot.
    pub(super) fn numbers(&self) -> &[i32] {
        &self.numbers
    }
}
