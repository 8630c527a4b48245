//! A queue's known files compared with a later listing of their directory: which have expired, which were made ahead and removed
//! unused, and which are new.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::mapping_pool::PooledFile;
use crate::error::Result;

/// Listings that may be compared before holes are believed.
const MOST_LISTINGS: usize = 8;

/// The files that a directory had at one moment.
pub(super) struct Relisting(BTreeMap<u64, PooledFile>);

impl Relisting {
    /// Lists the directory. A listing is not atomic: it may show a file that is then removed, and miss the next one, which was removed
    /// right after it. So the listing is repeated until no `known` file is missing between others, or the same ones are missing again.
    ///
    /// # Errors
    /// Those of `list`.
    pub(super) fn new(known: &[Arc<PooledFile>], list: impl Fn() -> Result<Vec<PooledFile>>) -> Result<Self> {
        let mut holes = None;
        let mut listings = 0;
        loop {
            let listed = Self(list()?.into_iter().map(|file| (file.start, file)).collect());
            let found = listed.holes_among(known);
            listings += 1;
            if found.is_empty() || holes.as_ref() == Some(&found) || listings == MOST_LISTINGS {
                return Ok(listed);
            }
            holes = Some(found);
        }
    }

    /// Returns the starts of the known files that are missing between others.
    fn holes_among(&self, known: &[Arc<PooledFile>]) -> Vec<u64> {
        let last = self.0.keys().next_back().copied().unwrap_or(0);
        let missing = known.iter().filter(|file| file.start < last && !self.has(file.start));
        missing
            .filter(|file| !self.is_expired(file.start))
            .map(|file| file.start)
            .collect()
    }

    /// Returns whether a file that starts there was listed.
    pub(super) fn has(&self, start: u64) -> bool {
        self.0.contains_key(&start)
    }

    /// Returns whether a file that started there has expired: files expire from the first one on, so that only a file before all that
    /// remain has. A file after them was made ahead and removed unused, and the next writer makes it again.
    pub(super) fn is_expired(&self, start: u64) -> bool {
        self.0.keys().next().is_none_or(|first| start < *first)
    }

    /// Returns, ascending, the listed files that are new or were replaced: files made since, made again after they were removed, and
    /// files that have their whole length by now. The last ones are left out until they have it.
    pub(super) fn into_new(self, known: &[Arc<PooledFile>], file_size: u64) -> Vec<PooledFile> {
        let known: BTreeMap<u64, &PooledFile> = known.iter().map(|file| (file.start, &**file)).collect();
        let is_new = |file: &PooledFile| {
            let known = known.get(&file.start).filter(|known| !known.is_removed());
            known.is_none_or(|known| known.len < file_size && file.len >= file_size)
        };
        let mut new: Vec<_> = self.0.into_values().filter(is_new).collect();
        while new.pop_if(|file| file.len < file_size).is_some() {}
        new
    }
}
