//! Lookups of entries by the physical offset that they name.

use crate::error::Result;
use crate::format::CqUnit;
use crate::log::consume_queue::consume_queue::ConsumeQueue;
use crate::log::consume_queue::entries::{EntryReader, first_at, search};

impl ConsumeQueue {
    /// Hands over the entries that name a place at or after `physical`, with their queue offsets, until `take` returns false. Leaves out
    /// those of lost messages.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`]; those of `take`.
    pub(crate) fn visit_from(&self, physical: i64, mut take: impl FnMut(i64, CqUnit) -> Result<bool>) -> Result<()> {
        let mut entries = self.entries();
        for offset in self.first_from(&mut entries, physical)?..self.max_offset() {
            let unit = self.entry_of_message(&mut entries, offset)?;
            if let Some(unit) = unit.filter(|unit| unit.physical_offset >= physical)
                && !take(offset, unit)?
            {
                break;
            }
        }
        Ok(())
    }

    /// Returns the entry that comes before those that name a place at or after `physical`.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub(crate) fn last_before(&self, physical: i64) -> Result<Option<CqUnit>> {
        let mut entries = self.entries();
        let first = self.first_from(&mut entries, physical)?;
        self.entry_of_message(&mut entries, first - 1)
    }

    /// The queue offset of the first entry that names a place at or after `physical`.
    fn first_from(&self, entries: &mut EntryReader<'_>, physical: i64) -> Result<i64> {
        let in_files = self.state().in_files.clone();
        let end = in_files.end;
        let first = first_at(entries, in_files, physical)?;
        if first < end {
            return Ok(first);
        }
        let is_before = |offset| {
            self.state()
                .tail
                .get(offset)
                .is_some_and(|unit| unit.physical_offset < physical)
        };
        search(end..self.max_offset().max(end), |offset| Ok(is_before(offset)))
    }

    fn entry_of_message(&self, entries: &mut EntryReader<'_>, offset: i64) -> Result<Option<CqUnit>> {
        let in_memory = self.state().tail.get(offset);
        let unit = match in_memory {
            Some(unit) => Some(unit),
            None => entries.get(offset)?,
        };
        Ok(unit.filter(|unit| unit.is_valid() && !unit.is_pre_blank() && !unit.is_lost()))
    }
}
