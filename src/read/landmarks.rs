//! Telling whether a store that is opened again is the same one: its first and last records have not changed. Nothing tells of
//! other records between these two.

use std::sync::PoisonError;

use crate::error::Result;
use crate::format::{Check, crc32};
use crate::log::LogRecord;
use crate::read::message_reader::MessageReader;

impl MessageReader {
    /// Physical offsets of the first and the last record of the log, with their checksums; fewer if they cannot be read.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub fn landmarks(&self) -> Result<Vec<(i64, u32)>> {
        let mut found = Vec::new();
        let refreshed = self
            .last
            .as_ref()
            .map(|last| last.lock().unwrap_or_else(PoisonError::into_inner).0);
        for offset in [self.physical_bounds().start, refreshed.unwrap_or(self.recovery().last_offset)] {
            if let Some(checksum) = self.record_checksum(offset)? {
                found.push((offset, checksum));
            }
        }
        found.dedup();
        Ok(found)
    }

    /// A checksum over all bytes of the record that starts at a physical offset; `None` if none does.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub fn record_checksum(&self, physical_offset: i64) -> Result<Option<u32>> {
        if !self.physical_bounds().contains(&physical_offset) {
            return Ok(None);
        }
        Ok(match self.log().read(physical_offset, Check::Structure)? {
            LogRecord::Message(message) => Some(crc32(message.view().bytes())),
            _ => None,
        })
    }
}
