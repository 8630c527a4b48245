//! What has happened to the log since it was opened for writing.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// What was appended to one topic, or to all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PutStats {
    /// Messages.
    pub times: u64,
    /// Bytes of their records.
    pub size: u64,
}

/// The segments that appends have gone into.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SegmentStats {
    /// Segments that were made, and begun by an append.
    pub begun: u64,
    /// Those of them that were there before an append needed them.
    pub made_ahead: u64,
    /// Those of `begun` whose pages the warm-up has locked in memory.
    pub locked: u64,
    /// Appends that had to wait for a segment, or make it.
    pub waits: u64,
}

/// The transient store pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PoolStats {
    /// Its buffers.
    pub count: u64,
    /// Those of them that hold no byte that waits to be committed: `RocketMQ`'s `availableBufferNums`.
    pub available: u64,
    /// Whether they are locked in memory, as the option asks.
    pub is_locked: bool,
    /// Appends that had to wait for a buffer.
    pub waits: u64,
}

impl PoolStats {
    /// Whether less than 0.4 of the buffers are available.
    pub fn is_low(&self) -> bool {
        self.available * 10 < self.count * 4
    }
}

/// What has happened to the log since it was opened for writing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LogStats {
    /// Topic by topic, of those that anything was appended to.
    pub topics: BTreeMap<String, PutStats>,
    /// The longest time for which an append has held the append lock, to some ms.
    pub in_lock_time_max: Duration,
    /// Appends that held the append lock for more than 500 ms.
    pub slow_puts: u64,
    /// Syncs of the log that succeeded.
    pub syncs: u64,
    /// Those of them that appends made which waited for durability.
    pub group_commits: u64,
    /// Appends that waited until they were durable.
    pub group_commit_requests: u64,
    /// The segments that appends have gone into.
    pub segments: SegmentStats,
    /// The transient store pool, if there is one.
    pub pool: Option<PoolStats>,
}

impl PutStats {
    /// Adds what another topic got.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            times: self.times + other.times,
            size: self.size + other.size,
        }
    }
}

impl LogStats {
    /// What was appended to all topics together.
    pub fn total(&self) -> PutStats {
        self.topics.values().copied().fold(PutStats::default(), PutStats::plus)
    }
}

/// The counts of [`LogStats`] that no lock protects.
#[derive(Debug, Default)]
pub(super) struct SyncCounts {
    pub(super) syncs: AtomicU64,
    pub(super) group_commits: AtomicU64,
    pub(super) requests: AtomicU64,
}
