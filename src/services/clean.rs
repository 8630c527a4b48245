//! The rules of the removal of old segments: `RocketMQ`'s `CleanCommitLogService`, with a clock that is not believed too far ahead.
//!
//! They decide about the oldest segment alone, and know neither its messages nor who still needs them: see `broker::retention`.
//! Source: docs/OPERATING.md, "How do old messages leave a store?".

use std::time::{Duration, Instant};

use crate::config::StoreConfig;
use crate::error::Result;

/// The most by which the wall clock may be ahead of the newest message of a store at its open.
const MOST_AHEAD: Duration = Duration::from_secs(24 * 3600);
/// Milliseconds of an hour.
const HOUR: i64 = 3_600_000;

/// The wall clock, limited: after a jump ahead, or at the open of a store on a machine whose clock is years ahead, every message would
/// be old. It counts at most as [`MOST_AHEAD`] past the newest message that the store had at its open, and the time since then.
#[derive(Debug, Clone, Copy)]
pub struct LimitedClock {
    /// The store time of the newest message at the open; in a store without messages the wall clock then.
    newest: i64,
    opened: Instant,
}

impl LimitedClock {
    /// Creates the clock of a store that was opened at `opened`.
    pub fn new(newest: i64, opened: Instant) -> Self {
        Self { newest, opened }
    }

    /// Returns the time in ms since 1970, at most `wall`.
    pub fn now_ms(&self, wall: i64, now: Instant) -> i64 {
        let since = now.saturating_duration_since(self.opened).saturating_add(MOST_AHEAD);
        let since = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        wall.min(self.newest.saturating_add(since))
    }
}

/// The reason why a segment is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CleanReason {
    /// Its age: `file_reserved_time`.
    Age,
    /// The length of the log: `max_log_bytes`.
    LogBytes,
    /// A full disk: `disk_space_clean_forcibly_ratio`.
    Disk,
}

/// The permission to remove the oldest segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removable {
    /// The reason.
    pub reason: CleanReason,
    /// True if it waits until each consumer group has consumed its messages.
    pub waits: bool,
    /// True if it would wait, and a full disk is why it does not.
    pub is_forced: bool,
}

/// The store and its disk, as the rules see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Situation {
    /// The time of the [`LimitedClock`], in ms.
    pub now: i64,
    /// The local time of the wall clock, in ms.
    pub local_now: i64,
    /// The time from which the age of the oldest segment counts, in ms; `None` if it is unknown.
    pub oldest: Option<i64>,
    /// Bytes from the start of the log to its end.
    pub log_bytes: u64,
    /// The used part of the disk; `None` if it is unknown.
    pub disk_percent: Option<u64>,
}

/// The rules of one store.
#[derive(Debug, Clone)]
pub struct CleanRules {
    /// In ms.
    reserved: Option<i64>,
    /// Empty: every hour.
    hours: Vec<u8>,
    max_log_bytes: Option<u64>,
    disk_max_used: Option<u64>,
    disk_forcibly: Option<u64>,
    retain_unconsumed: bool,
}

impl CleanRules {
    /// Returns the rules that the options state.
    ///
    /// # Errors
    /// [`crate::error::Error::Invalid`] for a malformed option.
    pub fn new(config: &StoreConfig) -> Result<Self> {
        let is_forcible = config.disk_max_used_space_ratio.is_some() && config.clean_file_forcibly_enable;
        let reserved = config.file_reserved_time;
        Ok(Self {
            reserved: reserved.map(|age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX)),
            hours: config.delete_hours()?,
            max_log_bytes: config.max_log_bytes,
            disk_max_used: config.disk_max_used_space_ratio,
            disk_forcibly: is_forcible.then_some(config.disk_space_clean_forcibly_ratio),
            retain_unconsumed: config.retain_unconsumed,
        })
    }

    /// Returns true if a rule asks for the use of the disk.
    pub fn look_at_disk(&self) -> bool {
        self.disk_max_used.is_some()
    }

    /// Returns true if a rule asks for the age of segments.
    pub fn look_at_age(&self) -> bool {
        self.reserved.is_some()
    }

    /// Returns true if the oldest segment may be old enough, given a time before which nothing in it was stored.
    pub fn may_be_old(&self, first_stored: i64, now: i64) -> bool {
        self.reserved
            .is_some_and(|reserved| first_stored.saturating_add(reserved) <= now)
    }

    /// Returns why the oldest segment goes now; `None` if it stays.
    pub fn removable(&self, situation: &Situation) -> Option<Removable> {
        let is_above = |limit: Option<u64>| limit.zip(situation.disk_percent).is_some_and(|(limit, used)| used > limit);
        let is_full = is_above(self.disk_max_used);
        let removable = |reason, is_forced: bool| {
            Some(Removable {
                reason,
                waits: self.retain_unconsumed && !is_forced,
                is_forced: self.retain_unconsumed && is_forced,
            })
        };
        if is_above(self.disk_forcibly) {
            return removable(CleanReason::Disk, true);
        }
        let is_old = situation.oldest.is_some_and(|oldest| self.may_be_old(oldest, situation.now));
        if is_old && (is_full || self.is_in_hours(situation.local_now)) {
            return removable(CleanReason::Age, is_full);
        }
        if self.max_log_bytes.is_some_and(|most| situation.log_bytes > most) {
            return removable(CleanReason::LogBytes, false);
        }
        None
    }

    /// Returns the time in ms at which the oldest segment is old enough, in one of the hours; `None` without a rule for the age.
    pub fn due(&self, situation: &Situation) -> Option<i64> {
        let due = situation.oldest?.saturating_add(self.reserved?).max(situation.now);
        let zone = situation.local_now.saturating_sub(situation.now);
        let mut local = due.saturating_add(zone);
        while !self.is_in_hours(local) {
            local = (local.div_euclid(HOUR) + 1).saturating_mul(HOUR);
        }
        Some(local.saturating_sub(zone))
    }

    fn is_in_hours(&self, local: i64) -> bool {
        let hour = local.div_euclid(HOUR).rem_euclid(24);
        self.hours.is_empty() || self.hours.iter().any(|listed| i64::from(*listed) == hour)
    }
}
