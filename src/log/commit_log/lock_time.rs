//! How long appends hold the append lock.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::storage::Env;

const MS: i64 = 1_000_000;
/// `RocketMQ` takes a lock that is held for so long for one that nobody holds.
const FORGOTTEN: i64 = 10_000_000 * MS;

/// What is known about the holds of the append lock. Only the thread that holds the lock changes it.
#[derive(Debug, Default)]
pub(super) struct LockTime {
    /// When the lock was taken, in ns of [`Env::monotonic_ns`], and 1 more; 0 while no append holds it.
    since: AtomicI64,
}

/// One hold of the append lock by an append. It ends before the lock is released, also in a panic.
pub(super) struct Hold<'a> {
    times: &'a LockTime,
}

impl LockTime {
    /// The caller has just taken the lock.
    pub(super) fn begin(&self, env: &dyn Env) -> Hold<'_> {
        let begun = env.monotonic_ns();
        self.since.store(begun + 1, Ordering::Relaxed);
        Hold { times: self }
    }

    /// For how long an append has held the lock, if that is more than `limit` ms: `RocketMQ`'s `isOSPageCacheBusy`.
    pub(super) fn busy(&self, env: &dyn Env, limit: u64) -> Option<Duration> {
        let since = self.since.load(Ordering::Relaxed);
        if since == 0 {
            return None;
        }
        let held = env.monotonic_ns() - (since - 1);
        let is_busy = held < FORGOTTEN && u64::try_from(held / MS).is_ok_and(|held| held > limit);
        is_busy.then(|| duration(held))
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.times.since.store(0, Ordering::Relaxed);
    }
}

fn duration(ns: i64) -> Duration {
    Duration::from_nanos(ns.unsigned_abs())
}
