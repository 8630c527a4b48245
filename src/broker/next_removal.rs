//! The segment of a store that retention removes next, and the time and reason by its rules.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::lost_progress::expect_progress;
use super::retention::{Hold, Needed, needed_in};
use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::format::{COMMIT_LOG_DIR, segment_name};
use crate::read::MessageReader;
use crate::services::{CleanReason, CleanRules, LimitedClock, Situation};
use crate::store::{Slave, TrimTo, last_stored, oldest_segments};

/// The segment that goes next.
#[derive(Debug, Clone, Default)]
pub struct NextRemoval {
    /// Its physical offsets; `None` if no message follows the oldest segment: the last one stays.
    pub segment: Option<Range<i64>>,
    /// The reason why it goes now; `None` if it is not to go yet.
    pub reason: Option<CleanReason>,
    /// The time from which its age lets it go, in ms; `None` without a rule for the age.
    pub due: Option<i64>,
    /// The messages of it that keep it, or would.
    pub holds: Vec<Hold>,
    /// The connected slaves that have not acknowledged all of it, and keep it, or would; none of a store that is only read.
    pub slaves: Vec<Slave>,
    /// The used part of the disk; `None` if no rule asks for it, or it is unknown.
    pub disk_percent: Option<u64>,
}

/// The rules of a store, applied to its oldest segment.
#[derive(Debug)]
pub(super) struct OldestSegment {
    pub(super) rules: CleanRules,
    clock: LimitedClock,
    expire_by_file_time: bool,
    /// The start of the segment, and the time of its last message: found once, because it takes a scan of the segment.
    last_time: Option<(i64, Option<i64>)>,
}

impl OldestSegment {
    /// Prepares the rules of `config` for a store whose newest message was stored at `newest`; `None` if it has none.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a malformed option.
    pub(super) fn new(reader: &MessageReader, config: &StoreConfig, newest: Option<i64>) -> Result<Self> {
        Ok(Self {
            rules: CleanRules::new(config)?,
            clock: LimitedClock::new(newest.unwrap_or_else(|| reader.env().now_ms()), Instant::now()),
            expire_by_file_time: config.expire_by_file_time,
            last_time: None,
        })
    }

    /// Returns what the rules ask for about the oldest segment of a log that ends at `end`, and the reason why the use of the disk is
    /// unknown.
    ///
    /// # Errors
    /// Those of reading the segment.
    pub(super) fn situation(
        &mut self,
        reader: &MessageReader,
        segment: &Range<i64>,
        end: i64,
        now: Instant,
    ) -> Result<(Situation, Option<Error>)> {
        let env = reader.env();
        let (mut disk_percent, mut unknown) = (None, None);
        if self.rules.look_at_disk() {
            match env.disk_usage(reader.path()) {
                Ok(usage) => disk_percent = Some(usage.percent()),
                Err(error) => unknown = Some(Error::io("measure the disk of", reader.path(), error)),
            }
        }
        let mut situation = Situation {
            now: self.clock.now_ms(env.now_ms(), now),
            local_now: env.now_local_ms(),
            oldest: None,
            log_bytes: end.abs_diff(segment.start),
            disk_percent,
        };
        if self.rules.look_at_age() {
            situation.oldest = self.stored_last(reader, segment, situation.now)?;
        }
        Ok((situation, unknown))
    }

    /// Returns the time from which the age of a segment counts, in ms, or a later one if that makes no difference now.
    fn stored_last(&mut self, reader: &MessageReader, segment: &Range<i64>, now: i64) -> Result<Option<i64>> {
        if self.expire_by_file_time {
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
        if let Some((start, last)) = self.last_time
            && start == segment.start
        {
            return Ok(last);
        }
        let last = last_stored(reader, segment)?;
        self.last_time = Some((segment.start, last));
        Ok(last)
    }

    /// Returns the removal of the oldest segment, with what still needs its messages.
    pub(super) fn removal(&self, segment: Range<i64>, situation: &Situation, needed: Needed) -> NextRemoval {
        let Needed { holds, slaves } = needed.before(segment.end);
        NextRemoval {
            segment: Some(segment),
            reason: self.rules.removable(situation).map(|removable| removable.reason),
            due: self.rules.due(situation),
            holds,
            slaves,
            disk_percent: situation.disk_percent,
        }
    }
}

/// Returns the segment that a writer with the options `config` would remove next from a store that is only read; `None` if it would keep
/// all. Reads the last segment, and the oldest one if some of its messages may be old enough.
///
/// # Errors
/// [`Error::Invalid`] for a malformed option; the damage of a settings file with the progress of groups; [`Error::Corrupt`] if the removal
/// waits for a group whose progress is lost; those of reading.
pub fn next_removal(reader: &Arc<MessageReader>, config: &StoreConfig) -> Result<Option<NextRemoval>> {
    if !config.removes_segments() {
        return Ok(None);
    }
    let end = reader.physical_bounds().end;
    let oldest = oldest_segments(reader, TrimTo::Offset(i64::MAX), end, end - 1)?
        .into_iter()
        .next();
    let Some(segment) = oldest else {
        return Ok(Some(NextRemoval::default()));
    };
    let newest = match reader.log().starts().next_back() {
        Some(start) => last_stored(reader, &(start..end))?,
        None => None,
    };
    let mut rules = OldestSegment::new(reader, config, newest)?;
    let (situation, unknown) = rules.situation(reader, &segment, end, Instant::now())?;
    if let Some(error) = unknown {
        return Err(error);
    }
    let needed = needed_in(reader)?;
    if config.retain_unconsumed {
        expect_progress(reader, &[])?;
    }
    Ok(Some(rules.removal(segment, &situation, needed)))
}
