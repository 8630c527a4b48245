//! The service that removes old segments by itself, one at a time, so that appends are not disturbed.
//!
//! Each round asks the rules about the oldest segment, and trims it away as a caller of [`Retention::trim`] would. What cannot be removed
//! is tried again in the next round. Source: docs/OPERATING.md, "How do old messages leave a store?".

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::retention::{Hold, NeededBy, Retention, TrimReport};
use crate::error::{Error, Result};
use crate::format::{COMMIT_LOG_DIR, segment_name};
use crate::services::{CleanReason, CleanRules, LimitedClock, Next, Removable, Situation, Stepped};
use crate::store::{MessageStore, TrimTo, last_stored};
use crate::sync::{Mutex, lock};
use crate::watermark::Watermark;

/// The time from the open to the first round, as in RocketMQ.
const FIRST_ROUND: Duration = Duration::from_secs(60);
/// The most warnings that wait to be taken. Those after them are dropped.
const MOST_WARNINGS: usize = 16;

/// The state of the removal of old segments.
#[derive(Debug, Clone, Default)]
pub struct CleanStats {
    /// The number of segments that were removed since the open.
    pub segments: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Bytes of them that this process still read when they were removed.
    pub held_bytes: u64,
    /// Messages in them that some group had not consumed, counted for each group.
    pub unread: u64,
    /// The physical offsets of the segment that goes next; `None` if only one is left.
    pub next: Option<Range<i64>>,
    /// The reason why it goes now; `None` if it is not to go yet.
    pub reason: Option<CleanReason>,
    /// The time from which its age lets it go, in ms; `None` without a rule for the age.
    pub due: Option<i64>,
    /// The messages of it that keep it, or would.
    pub holds: Vec<Hold>,
    /// The used part of the disk; `None` if no rule asks for it, or it is unknown.
    pub disk_percent: Option<u64>,
    /// The reason why the last round could not do its work.
    pub refused: Option<Error>,
}

/// Warnings for the user of a store, until they are taken.
#[derive(Debug, Default)]
pub struct CleanWarnings {
    is_any: AtomicBool,
    texts: Mutex<Vec<String>>,
}

impl CleanWarnings {
    fn push(&self, text: String) {
        let mut texts = lock(&self.texts);
        if texts.len() < MOST_WARNINGS {
            texts.push(text);
        }
        self.is_any.store(true, Ordering::Release);
    }

    /// Takes the warnings. Costs one load if there are none.
    pub fn take(&self) -> Vec<String> {
        if !self.is_any.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.is_any.store(false, Ordering::Release);
        std::mem::take(&mut lock(&self.texts))
    }
}

/// The service that removes old segments.
#[derive(Debug)]
pub(super) struct CleanService {
    store: Arc<MessageStore>,
    retention: Arc<Retention>,
    rules: CleanRules,
    clock: LimitedClock,
    /// Poisoned at the close of the store.
    open: Arc<Watermark>,
    warnings: Arc<CleanWarnings>,
    next: Option<Instant>,
    /// The counts of removals, and the reason why the last round failed.
    done: CleanStats,
    /// The start of the oldest segment, and the time of its last message: found once, because it takes a scan of the segment.
    oldest: Option<(i64, Option<i64>)>,
    /// The start of the segment of the last warning that it cannot be removed.
    warned_of: Option<i64>,
}

impl CleanService {
    /// Prepares the service in a store that was just opened; `None` if no option asks for it.
    pub(super) fn new(
        store: &Arc<MessageStore>,
        retention: &Arc<Retention>,
        open: &Arc<Watermark>,
        warnings: &Arc<CleanWarnings>,
    ) -> Option<Self> {
        if !store.config().removes_segments() {
            return None;
        }
        let newest = match store.last_store_time() {
            0 => store.reader().env().now_ms(),
            newest => newest,
        };
        // The open has refused malformed options.
        let rules = CleanRules::new(store.config()).ok()?;
        Some(Self {
            store: store.clone(),
            retention: retention.clone(),
            rules,
            clock: LimitedClock::new(newest, Instant::now()),
            open: open.clone(),
            warnings: warnings.clone(),
            next: None,
            done: CleanStats::default(),
            oldest: None,
            warned_of: None,
        })
    }

    /// Returns the state of the service at the time `now`.
    ///
    /// # Errors
    /// Those of [`Retention::holds`], and of reading the oldest segment.
    pub(super) fn stats(&mut self, now: Instant) -> Result<CleanStats> {
        let mut stats = self.done.clone();
        let Some(segment) = self.oldest_segment()? else {
            return Ok(stats);
        };
        let situation = self.situation(&segment, now)?;
        stats.reason = self.rules.removable(&situation).map(|removable| removable.reason);
        stats.due = self.rules.due(&situation);
        stats.disk_percent = situation.disk_percent;
        stats.holds = self.retention.holds()?;
        stats.holds.retain(|hold| hold.physical_offset < segment.end);
        stats.next = Some(segment);
        Ok(stats)
    }

    /// Removes the oldest segment if the rules let it go. Returns true if more may go after a pause.
    fn clean(&mut self, now: Instant) -> Result<bool> {
        self.done.refused = None;
        let Some(segment) = self.oldest_segment()? else {
            return Ok(false);
        };
        let situation = self.situation(&segment, now)?;
        let Some(removable) = self.rules.removable(&situation) else {
            return Ok(false);
        };
        let report = self.retention.trim(TrimTo::Offset(segment.end), !removable.waits, false)?;
        self.note_unread(removable, &report);
        if report.trimmed.segments.is_empty() && removable.is_forced {
            self.warn_of_stop(&report, segment.start);
        }
        let trimmed = report.trimmed;
        self.done.segments += trimmed.segments.len() as u64;
        self.done.bytes += trimmed.bytes;
        self.done.held_bytes += trimmed.held_bytes;
        self.done.refused = trimmed.refused.or_else(|| self.done.refused.take());
        Ok(!trimmed.segments.is_empty() && self.done.refused.is_none())
    }

    /// Counts the messages that were removed although a group has not consumed them, and warns of them if a full disk is the reason.
    fn note_unread(&mut self, removable: Removable, report: &TrimReport) {
        for hold in &report.unread {
            self.done.unread += hold.messages.unsigned_abs();
            if removable.is_forced {
                self.warnings.push(format!(
                    "the disk is full: removed from queue {} of topic {:?} {} {}",
                    hold.queue_id,
                    hold.topic,
                    hold.messages,
                    held(&hold.by)
                ));
            }
        }
    }

    /// Warns once for each segment that stays on a full disk, because nothing else has the content of its messages.
    fn warn_of_stop(&mut self, report: &TrimReport, segment: i64) {
        if let Some(hold) = report.holds.first()
            && self.warned_of.replace(segment) != Some(segment)
        {
            self.warnings.push(format!(
                "the disk is full, and the oldest segment cannot be removed: it has {}",
                held(&hold.by)
            ));
        }
    }

    /// Returns the oldest segment; `None` if no message follows it.
    fn oldest_segment(&self) -> Result<Option<Range<i64>>> {
        let segments = self.store.segments_to_trim(TrimTo::Offset(i64::MAX), i64::MAX)?;
        Ok(segments.into_iter().next())
    }

    /// Returns what the rules ask for about the oldest segment.
    fn situation(&mut self, segment: &Range<i64>, now: Instant) -> Result<Situation> {
        let env = self.store.reader().env().clone();
        let wall = env.now_ms();
        let disk_percent = if self.rules.look_at_disk() {
            let path = self.store.reader().path();
            match env.disk_usage(path) {
                Ok(usage) => Some(usage.percent()),
                Err(error) => {
                    self.done.refused = Some(Error::io("measure the disk of", path, error));
                    None
                }
            }
        } else {
            None
        };
        let mut situation = Situation {
            now: self.clock.now_ms(wall, now),
            local_now: env.now_local_ms(),
            oldest: None,
            log_bytes: self.store.appended_offset().abs_diff(segment.start),
            disk_percent,
        };
        if self.rules.look_at_age() {
            situation.oldest = self.stored_last(segment, situation.now)?;
        }
        Ok(situation)
    }

    /// Returns the time from which the age of a segment counts, in ms, or a later one if that makes no difference now.
    fn stored_last(&mut self, segment: &Range<i64>, now: i64) -> Result<Option<i64>> {
        let reader = self.store.reader();
        if self.store.config().expire_by_file_time {
            let path = reader
                .path()
                .join(COMMIT_LOG_DIR)
                .join(segment_name(segment.start.unsigned_abs()));
            let changed = reader.env().modified_ms(&path);
            return Ok(Some(changed.map_err(|error| Error::io("examine", path, error))?));
        }
        let (first, next) = (
            reader.log().claimed_store_time(segment.start)?,
            reader.log().claimed_store_time(segment.end)?,
        );
        if let (Some(first), Some(next)) = (first, next)
            && next >= first
            && (self.rules.may_be_old(next, now) || !self.rules.may_be_old(first, now))
        {
            return Ok(Some(next));
        }
        if let Some((start, last)) = self.oldest
            && start == segment.start
        {
            return Ok(last);
        }
        let last = last_stored(self.store.reader(), segment)?;
        self.oldest = Some((segment.start, last));
        Ok(last)
    }
}

/// Names messages by who needs them, for a warning.
fn held(by: &NeededBy) -> String {
    match by {
        NeededBy::Group(group) => format!("messages that group {group:?} has not consumed"),
        NeededBy::Delay => "delayed messages that were not delivered".to_owned(),
        NeededBy::Timers => "timer messages that were not delivered".to_owned(),
        NeededBy::Transactions => "half messages of open transactions".to_owned(),
    }
}

impl Stepped for CleanService {
    /// Runs a round, when it is due. What fails is tried again in the next one.
    fn step(&mut self, now: Instant) -> Result<Next> {
        if self.open.poisoned().is_some() {
            return Ok(Next::Done);
        }
        let due = *self.next.get_or_insert(now + FIRST_ROUND);
        if now >= due {
            let config = self.store.config();
            let period = Duration::from_millis(config.clean_resource_interval);
            let pause = Duration::from_millis(config.delete_commit_log_files_interval);
            let after = match self.clean(now) {
                Ok(true) => pause,
                Ok(false) => period,
                Err(Error::Poisoned { .. } | Error::Closed) => return Ok(Next::Done),
                Err(error) => {
                    self.done.refused = Some(error);
                    period
                }
            };
            self.next = Some(now + after);
        }
        Ok(Next::Idle { until: self.next })
    }

    fn awaited(&self) -> (Arc<Watermark>, i64) {
        (self.open.clone(), i64::MAX)
    }

    fn fail(&self, _cause: Error) {}
}
