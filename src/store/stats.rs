//! What has happened to a store since it was opened for writing.

use std::time::Duration;

use crate::log::LogStats;
use crate::storage::guard_faults;
use crate::store::message_store::MessageStore;

/// What has happened to a store since it was opened for writing: `RocketMQ`'s `StoreStatsService`, as far as it is about putting.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StoreStats {
    /// To its log.
    pub log: LogStats,
    /// Bytes of the log that are not in queues and index yet.
    pub dispatch_behind_bytes: u64,
    /// Faults in mapped files, of any store of this process: a page could not be read or written.
    pub mapping_faults: u64,
}

impl MessageStore {
    /// For how long appends held the append lock that were slow (more than 500 ms), of those that no earlier call has given. Costs two
    /// loads if there is none.
    pub fn take_slow_puts(&self) -> Vec<Duration> {
        self.log.take_slow_puts()
    }

    /// What has happened since the store was opened for writing.
    pub fn stats(&self) -> StoreStats {
        // In this order, so that the difference is not below zero.
        let dispatched = self.dispatched_offset();
        StoreStats {
            log: self.log.stats(),
            dispatch_behind_bytes: u64::try_from(self.appended_offset() - dispatched).unwrap_or(0),
            mapping_faults: guard_faults() - self.faults_before,
        }
    }
}
