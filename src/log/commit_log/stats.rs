//! Statistics of a log since it was opened for writing, and append-lock timing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::storage::Env;

const MS: i64 = 1_000_000;
/// An append that holds the lock for longer is slow. `RocketMQ` logs it.
const SLOW: i64 = 500 * MS;
/// `RocketMQ` takes a lock that is held for so long for one that nobody holds.
const FORGOTTEN: i64 = 10_000_000 * MS;
/// Slow appends that are remembered for [`LockTime::take_slow`]; of more, the newest.
const MOST_REMEMBERED: usize = 64;

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

/// What is known about the holds of the append lock. Only the thread that holds the lock changes it.
#[derive(Debug, Default)]
pub(super) struct LockTime {
    /// When the lock was taken, in ns of [`Env::monotonic_ns`], and 1 more; 0 while no append holds it.
    since: AtomicI64,
    /// The longest hold, in ns.
    max: AtomicI64,
    /// Holds that were slow.
    slow: AtomicU64,
    /// Of them, those that [`LockTime::take_slow`] has given.
    told: AtomicU64,
    /// How long the last of the others took.
    remembered: Mutex<VecDeque<Duration>>,
}

/// One hold of the append lock by an append. It ends before the lock is released, also in a panic.
pub(super) struct Hold<'a> {
    times: &'a LockTime,
    env: &'a dyn Env,
    begun: i64,
}

impl LockTime {
    /// The caller has just taken the lock.
    #[inline]
    pub(super) fn begin<'a>(&'a self, env: &'a dyn Env) -> Hold<'a> {
        let begun = env.monotonic_ns();
        self.since.store(begun + 1, Ordering::Relaxed);
        Hold { times: self, env, begun }
    }

    /// For how long an append has held the lock, if that is more than `limit` ms: `RocketMQ`'s `isOSPageCacheBusy`.
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

    /// The longest hold.
    pub(super) fn max(&self) -> Duration {
        duration(self.max.load(Ordering::Relaxed))
    }

    /// How many holds were slow.
    pub(super) fn slow(&self) -> u64 {
        self.slow.load(Ordering::Acquire)
    }

    /// How long the slow holds took that no earlier call has given.
    pub(super) fn take_slow(&self) -> Vec<Duration> {
        let slow = self.slow();
        if self.told.load(Ordering::Relaxed) == slow {
            return Vec::new();
        }
        self.told.store(slow, Ordering::Relaxed);
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
