//! The end of a log, and a checksum of the bytes before it: an answer about progress names its log so.

use crate::error::Result;
use crate::format::crc32;
use crate::store::MessageStore;

/// The most bytes that the checksum covers. They have records, and the times at which these were stored.
const COVERED: i64 = 64 * 1024;

/// The end of a log, and the checksum of the last bytes before it in their segment; `None` where the log has no byte before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogTail {
    pub(super) end: i64,
    pub(super) checksum: Option<u32>,
}

impl LogTail {
    /// Reads the bytes before `end`.
    ///
    /// # Errors
    /// Those of reading the log.
    pub(super) fn of(store: &MessageStore, end: i64) -> Result<Self> {
        let log = store.reader().log();
        if end <= log.first_offset() {
            return Ok(Self { end, checksum: None });
        }
        let start = log.start_of_segment(end - 1).max(end - COVERED);
        let mut bytes = vec![0; usize::try_from(end - start).unwrap_or_default()];
        log.fill(start, &mut bytes)?;
        let checksum = Some(crc32(&bytes));
        Ok(Self { end, checksum })
    }

    /// Returns true if both have a checksum, and it is not the same.
    pub(super) fn is_of_another_log(self, own: Self) -> bool {
        self.checksum.zip(own.checksum).is_some_and(|(named, own)| named != own)
    }
}
