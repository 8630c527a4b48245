//! Reading the entries of a queue one after the other.

use crate::format::CqUnit;

/// The next entries of a queue, of which some are read at once. Finding the file of an entry takes ten times as long as reading it.
#[derive(Debug)]
pub struct EntriesAhead {
    /// The queue offset of the first.
    pub(super) start: i64,
    /// Those of messages, without a gap.
    pub(super) units: Vec<CqUnit>,
    /// How many are read at once.
    pub(super) at_once: i64,
}

impl Default for EntriesAhead {
    fn default() -> Self {
        Self::of(Self::MOST)
    }
}

impl EntriesAhead {
    /// More at once save nothing.
    pub const MOST: i64 = 32;

    /// Where there are very many queues, fewer take less memory.
    pub fn of(at_once: i64) -> Self {
        Self {
            start: 0,
            units: Vec::new(),
            at_once,
        }
    }

    /// The entry at an offset, if it was read.
    pub(super) fn get(&self, offset: i64) -> Option<CqUnit> {
        let at = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        self.units.get(at).copied()
    }
}
