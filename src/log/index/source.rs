//! The source of the keys of a range of the log: an index file, or the log itself.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::error::Result;
use crate::format::{IndexGeometry, IndexHeader, index_key_hash};
use crate::log::index::chain::{Candidates, KeyLookup, find_many, find_one, follow_one};
use crate::log::index::index_file::IndexFile;

/// The source of the keys of one range of the log.
#[derive(Debug)]
pub enum Source {
    /// An index file.
    Index(Indexed),
    /// The log itself: these physical offsets must be walked.
    Log(Range<i64>),
    /// The log after an index file. Its first record is the last that the file indexes, so only the rest is of interest.
    LogAfterIndex(Range<i64>),
}

impl Source {
    /// Returns the physical offsets of the range.
    pub fn range(&self) -> Range<i64> {
        match self {
            Self::Index(indexed) => indexed.range.clone(),
            Self::Log(range) | Self::LogAfterIndex(range) => range.clone(),
        }
    }
}

/// A range of the log with its index file, and the header at the time of the division: keys that are put later do not count.
#[derive(Debug)]
pub struct Indexed {
    pub(super) file: Arc<IndexFile>,
    pub(super) geometry: IndexGeometry,
    pub(super) header: IndexHeader,
    pub(super) range: Range<i64>,
}

impl Indexed {
    /// Returns the physical offsets of the range.
    pub fn range(&self) -> &Range<i64> {
        &self.range
    }

    /// Returns the header of the file.
    pub fn header(&self) -> &IndexHeader {
        &self.header
    }

    /// Returns true if the file is full.
    pub fn is_full(&self) -> bool {
        self.header.is_full(self.geometry)
    }

    /// Returns the physical offsets of the items whose key has this hash, newest first; stops at the first broken link. The second
    /// value is true if the chain was not broken.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io).
    pub fn offsets(&self, key_hash: i32) -> Result<(Vec<i64>, bool)> {
        let mut found = Vec::new();
        let Some(mapped) = self.file.mapped()? else {
            return Ok((found, false));
        };
        let is_whole = follow_one(&mapped, self.geometry, &self.header, key_hash, |_, item| {
            found.push(item.physical_offset);
            true
        })?;
        Ok((found, is_whole))
    }

    /// Returns the physical offsets of the salvage records in the file, newest first.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io).
    pub fn salvage_records(&self) -> Result<Vec<i64>> {
        let find = || Ok(self.offsets(index_key_hash("", ""))?.0);
        let has_some = self.file.has_salvage_records(self.header, || Ok(!find()?.is_empty()))?;
        if has_some { find() } else { Ok(Vec::new()) }
    }

    /// Returns the records that can have these keys; `None` if a chain is broken, or the file was cut or zeroed. `budget` is the rest of the memory budget of
    /// filters, in bytes.
    pub(super) fn find_all(&self, lookup: KeyLookup<'_>, budget: Option<&AtomicU64>) -> Result<Option<Candidates>> {
        let Some(mapped) = self.file.mapped()? else { return Ok(None) };
        let filter = match budget.filter(|_| self.is_full()) {
            Some(budget) => self.file.filter(self.geometry, lookup.keys.len(), budget)?,
            None => None,
        };
        let may_hold = |hash| filter.is_none_or(|filter| filter.may_hold(hash));
        if let [only] = *lookup.keys {
            if !may_hold(only.1) {
                return Ok(Some(Candidates::default()));
            }
            if !IndexFile::begins_with(&mapped, &self.header) {
                return Ok(None);
            }
            return find_one(&mapped, self.geometry, &self.header, lookup, only);
        }
        if !IndexFile::begins_with(&mapped, &self.header) {
            return Ok(None);
        }
        find_many(&mapped, self.geometry, &self.header, lookup, may_hold)
    }
}
