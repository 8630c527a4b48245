//! Retention by rules: the service that removes old segments, one at a time, so that appends are not disturbed. RocketMQ:
//! `CleanCommitLogService`.
//!
//! Each round asks the rules about the oldest segment, and trims it away as a caller of [`Retention::trim`] would. What cannot be removed
//! is tried again in the next round. Source: docs/OPERATING.md, "How do old messages leave a store?".

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::next_removal::{NextRemoval, OldestSegment};
use super::retention::{NeededBy, Retention, TrimReport};
use crate::error::{Error, Result};
use crate::services::{Next, Removable, Situation, Stepped};
use crate::store::{MessageStore, TrimTo};
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
    /// The segment that goes next.
    pub removal: NextRemoval,
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
    oldest: OldestSegment,
    /// Poisoned at the close of the store.
    open: Arc<Watermark>,
    warnings: Arc<CleanWarnings>,
    next: Option<Instant>,
    /// The counts of removals, and the reason why the last round failed.
    done: CleanStats,
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
        let newest = Some(store.last_store_time()).filter(|newest| *newest != 0);
        // The open has refused malformed options.
        let oldest = OldestSegment::new(store.reader(), store.config(), newest).ok()?;
        Some(Self {
            store: store.clone(),
            retention: retention.clone(),
            oldest,
            open: open.clone(),
            warnings: warnings.clone(),
            next: None,
            done: CleanStats::default(),
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
        stats.removal = self.oldest.removal(segment, &situation, self.retention.needed()?);
        if self.store.config().retain_unconsumed {
            stats.refused = stats.refused.or(self.retention.expect_progress().err());
        }
        Ok(stats)
    }

    /// Removes the oldest segment if the rules let it go. Returns true if more may go after a pause.
    fn clean(&mut self, now: Instant) -> Result<bool> {
        self.done.refused = None;
        let Some(segment) = self.oldest_segment()? else {
            return Ok(false);
        };
        let situation = self.situation(&segment, now)?;
        let Some(removable) = self.oldest.rules.removable(&situation) else {
            return Ok(false);
        };
        let report = self.retention.trim(TrimTo::Offset(segment.end), !removable.waits, false)?;
        self.note_unread(removable, &report);
        self.warn_of_slaves(removable, &report);
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

    /// Warns of slaves that had not acknowledged what was removed because the disk is full.
    fn warn_of_slaves(&self, removable: Removable, report: &TrimReport) {
        let Some(removed) = report.trimmed.segments.last().filter(|_| removable.is_forced) else {
            return;
        };
        for slave in &report.unreplicated {
            self.warnings.push(format!(
                "the disk is full: removed messages up to the physical offset {}; the slave {} had acknowledged the log up to {}",
                removed.end, slave.address, slave.acknowledged
            ));
        }
    }

    /// Warns once for each segment that stays on a full disk, because nothing else has the content of its messages.
    fn warn_of_stop(&mut self, report: &TrimReport, segment: i64) {
        if let Some(hold) = report.holds.iter().find(|hold| !hold.yields_to_force())
            && self.warned_of.replace(segment) != Some(segment)
        {
            self.warnings.push(format!(
                "the disk is full, and the oldest segment cannot be removed: it has {}",
                held(&hold.by)
            ));
        }
    }

    fn situation(&mut self, segment: &Range<i64>, now: Instant) -> Result<Situation> {
        let end = self.store.appended_offset();
        let (situation, unknown) = self.oldest.situation(self.store.reader(), segment, end, now)?;
        self.done.refused = unknown.or_else(|| self.done.refused.take());
        Ok(situation)
    }

    /// Returns the oldest segment; `None` if no message follows it.
    fn oldest_segment(&self) -> Result<Option<Range<i64>>> {
        let segments = self.store.segments_to_trim(TrimTo::Offset(i64::MAX), i64::MAX)?;
        Ok(segments.into_iter().next())
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
