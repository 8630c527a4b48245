//! Reading the entries of a queue one after the other.

use crate::format::CqUnit;

/// Entries that are read at once.
pub(super) const AHEAD: i64 = 32;

/// The next entries of a queue, of which some are read at once. Finding the file of an entry takes ten times as long as reading it.
#[derive(Debug, Default)]
pub struct EntriesAhead {
    /// The queue offset of the first.
    pub(super) start: i64,
    /// Those of messages, without a gap.
    pub(super) units: Vec<CqUnit>,
}

impl EntriesAhead {
    /// The entry at an offset, if it was read.
    pub(super) fn get(&self, offset: i64) -> Option<CqUnit> {
        let at = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        self.units.get(at).copied()
    }
}
