//! Statistics of a log since it was opened for writing, and append-lock timing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::storage::Env;

const MS: i64 = 1_000_000;
/// The hold time from which on an append is slow. `RocketMQ` logs it.
const SLOW: i64 = 500 * MS;
/// The hold time after which `RocketMQ` treats the lock as free.
const FORGOTTEN: i64 = 10_000_000 * MS;
/// The most slow appends that are remembered for [`LockTime::take_slow`], the newest ones.
const MOST_REMEMBERED: usize = 64;

/// The appended messages of one topic, or of all.
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
    /// Segments that were created and then appended to.
    pub begun: u64,
    /// Segments of `begun` that were created before an append needed them.
    pub made_ahead: u64,
    /// Segments of `begun` whose pages the warm-up has locked in memory.
    pub locked: u64,
    /// Appends that had to wait for a segment, or create it.
    pub waits: u64,
}

/// The transient store pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PoolStats {
    /// The number of its buffers.
    pub count: u64,
    /// Buffers without a pending byte: `RocketMQ`'s `availableBufferNums`.
    pub available: u64,
    /// Set if they are locked in memory, as the option requests.
    pub is_locked: bool,
    /// Appends that had to wait for a buffer.
    pub waits: u64,
}

impl PoolStats {
    /// Returns true if less than 0.4 of the buffers are available.
    pub fn is_low(&self) -> bool {
        self.available * 10 < self.count * 4
    }
}

/// The statistics of a log since it was opened for writing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LogStats {
    /// The counts of each topic that was appended to.
    pub topics: BTreeMap<String, PutStats>,
    /// The longest time for which an append has held the append lock, to some ms.
    pub in_lock_time_max: Duration,
    /// Appends that held the append lock for more than 500 ms.
    pub slow_puts: u64,
    /// Syncs of the log that succeeded.
    pub syncs: u64,
    /// Syncs by appends that waited for durability.
    pub group_commits: u64,
    /// Appends that waited until they were durable.
    pub group_commit_requests: u64,
    /// The segments that appends have gone into.
    pub segments: SegmentStats,
    /// The transient store pool, if there is one.
    pub pool: Option<PoolStats>,
}

impl PutStats {
    /// Returns the sum with another topic.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            times: self.times + other.times,
            size: self.size + other.size,
        }
    }
}

impl LogStats {
    /// Returns the sum over all topics.
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

/// Append-lock timing. Only the thread that holds the lock changes it.
#[derive(Debug, Default)]
pub(super) struct LockTime {
    /// The time at which the lock was taken, in ns of [`Env::monotonic_ns`], plus 1; 0 while no append holds it.
    since: AtomicI64,
    /// The longest hold, in ns.
    max: AtomicI64,
    /// The number of slow holds.
    slow: AtomicU64,
    /// The number of slow holds that [`LockTime::take_slow`] has returned.
    reported: AtomicU64,
    /// The durations of the newest of the others.
    remembered: Mutex<VecDeque<Duration>>,
}

/// A hold of the append lock by an append. It ends before the lock is released, also in a panic.
pub(super) struct Hold<'a> {
    times: &'a LockTime,
    env: &'a dyn Env,
    begun: i64,
}

impl LockTime {
    /// Starts a hold. The caller has just taken the lock.
    #[inline]
    pub(super) fn begin<'a>(&'a self, env: &'a dyn Env) -> Hold<'a> {
        let begun = env.monotonic_ns();
        self.since.store(begun + 1, Ordering::Relaxed);
        Hold { times: self, env, begun }
    }

    /// Returns the time for which an append has held the lock, if it exceeds `limit` ms: `RocketMQ`'s `isOSPageCacheBusy`.
    #[inline]
    pub(super) fn busy(&self, env: &dyn Env, limit: u64) -> Option<Duration> {
        let since = self.since.load(Ordering::Relaxed);
        if since == 0 {
            return None;
        }
        let held = env.monotonic_ns() - (since - 1);
        let is_busy = held < FORGOTTEN && u64::try_from(held / MS).is_ok_and(|held| held > limit);
        is_busy.then(|| duration(held))
    }

    /// Returns the longest hold.
    pub(super) fn max(&self) -> Duration {
        duration(self.max.load(Ordering::Relaxed))
    }

    /// Returns the number of slow holds.
    pub(super) fn slow(&self) -> u64 {
        self.slow.load(Ordering::Acquire)
    }

    /// Takes the durations of the slow holds that no earlier call has returned.
    pub(super) fn take_slow(&self) -> Vec<Duration> {
        let slow = self.slow();
        if self.reported.load(Ordering::Relaxed) == slow {
            return Vec::new();
        }
        self.reported.store(slow, Ordering::Relaxed);
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.drain(..).collect()
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let Self { times, env, begun } = self;
        let held = env.monotonic_ns() - *begun;
        times.since.store(0, Ordering::Relaxed);
        if held > times.max.load(Ordering::Relaxed) {
            times.max.store(held, Ordering::Relaxed);
        }
        if held > SLOW {
            let mut remembered = times.remembered.lock().unwrap_or_else(PoisonError::into_inner);
            if remembered.len() == MOST_REMEMBERED {
                remembered.pop_front();
            }
            remembered.push_back(duration(held));
            times.slow.fetch_add(1, Ordering::Release);
        }
    }
}

fn duration(ns: i64) -> Duration {
    Duration::from_nanos(ns.unsigned_abs())
}
