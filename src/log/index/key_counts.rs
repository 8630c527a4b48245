//! Counts of keys, and the last message with one, from the headers of the index files.

use crate::error::Result;
use crate::log::index::index_service::IndexService;

impl IndexService {
    /// Returns the number of keys of messages before `end` in the files whose last message was stored after `since`.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub(crate) fn count_keys(&self, since: i64, end: i64) -> Result<u64> {
        let mut keys = 0;
        for file in self.files().iter() {
            let header = file.header();
            if header.end_time <= since || header.begin_physical_offset >= end {
                continue;
            }
            let items = if header.end_physical_offset < end {
                header.items()
            } else {
                let geometry = self.geometry_of(file)?;
                let first = geometry.map_or(Ok(1), |geometry| file.first_at(geometry, header.index_count, end))?;
                i64::from(first) - 1
            };
            keys += items.max(0).unsigned_abs();
        }
        Ok(keys)
    }

    /// Returns the physical offset of the last message with a key, by the header of the newest file; `None` if no file has a key.
    pub(crate) fn last_offset(&self) -> Option<i64> {
        let files = self.files();
        let mut headers = files.iter().rev().map(|file| file.header());
        headers
            .find(|header| header.items() > 0)
            .map(|header| header.end_physical_offset)
    }
}
