//! Trimming of a store that no writer has open, such as that of a broker whose disk is full.
//!
//! It takes the lock and only removes files: it recovers nothing, leaves `abort`, checkpoint and the end of the log as they are, and
//! needs no free space. The last file of each queue stays, whatever its entries are, so that each queue keeps its largest offset.

use std::path::Path;
use std::sync::Arc;

use super::lost_progress::expect_progress;
use super::retention::{TrimReport, needed_in};
use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::format::Check;
use crate::log::LogRecord;
use crate::read::MessageReader;
use crate::recovery::{expect_store, mark_of_log};
use crate::storage::{CheckedEnv, Env, Lock};
use crate::store::{TrimTo, Trimmed, oldest_segments, remove_segments, take_lock};

/// The options of [`trim_closed`].
#[derive(Debug, Clone, Copy)]
pub struct TrimRequest {
    /// The messages to remove.
    pub to: TrimTo,
    /// True removes also messages that consumer groups have not consumed.
    pub is_forced: bool,
    /// True for a dry run: it takes no lock, and removes nothing.
    pub is_dry_run: bool,
}

/// Removes the oldest segments of the store at `path`, and the queue and index files that lead only to them. It stops before the first
/// message that is still needed, and before messages that are missing in the queue files: the next writer puts them there. After an error
/// or a crash it may be called again.
///
/// # Errors
/// [`Error::Locked`] while a writer has the store, [`Error::Corrupt`] if the first segment that would stay does not begin with a record,
/// a settings file with the progress of groups is damaged, or, unless it is forced, the progress of a group is lost; those of
/// [`MessageReader::open`] and [`Error::Io`].
pub fn trim_closed(env: &Arc<dyn Env>, path: &Path, config: &StoreConfig, request: TrimRequest) -> Result<TrimReport> {
    expect_store(env.as_ref(), path)?;
    let lock = lock_of(env.as_ref(), path, config, request)?;
    let env: Arc<dyn Env> = match &lock {
        Some(lock) => Arc::new(CheckedEnv::locked(env.clone(), lock)),
        None => env.clone(),
    };
    let reader = Arc::new(MessageReader::open(&env, path, config.clone())?);
    let end = reader.physical_bounds().end;
    let needed = needed_in(&reader)?;
    if !request.is_forced {
        expect_progress(&reader, &[])?;
    }
    let safe = safe_until(&reader)?;
    let wanted = oldest_segments(&reader, request.to, end, end - 1)?;
    let floor = needed.floor(request.is_forced).min(end - 1);
    let segments = oldest_segments(&reader, request.to, end, floor.min(safe))?;
    let refused = (segments.len() < oldest_segments(&reader, request.to, end, floor)?.len()).then(|| Error::Invalid {
        what: format!(
            "messages at the physical offset {safe} and after it are not in their queues on disk: a writer puts them there when it \
             opens the store"
        ),
    });
    if let Some(last) = segments.last() {
        expect_record(&reader, last.end)?;
    }
    let log = reader.log();
    let oldest = log.claimed_store_time(log.first_offset())?;
    let mut trimmed = match segments.last() {
        Some(last) if !request.is_dry_run => remove_segments(&reader, last.end)?,
        _ => Trimmed::planned(segments),
    };
    trimmed.refused = trimmed.refused.or(refused);
    TrimReport::new(&reader, trimmed, &wanted, oldest, needed)
}

/// Takes the lock of the store; a dry run takes none.
fn lock_of(env: &dyn Env, path: &Path, config: &StoreConfig, request: TrimRequest) -> Result<Option<Arc<Lock>>> {
    if request.is_dry_run {
        return Ok(None);
    }
    Ok(Some(Arc::new(take_lock(env, path, config.lock_timeout)?)))
}

/// Returns the physical offset before which every message is in its queue file, and at or before the mark of what was flushed: a log
/// that starts after the mark counts as damaged.
fn safe_until(reader: &MessageReader) -> Result<i64> {
    let recovery = reader.recovery();
    let queued = if recovery.undispatched == 0 {
        recovery.log_end
    } else {
        recovery.scan_start
    };
    Ok(mark_of_log(reader.env().as_ref(), reader.path())?.map_or(queued, |mark| queued.min(mark)))
}

/// Refuses a segment that does not begin with a record: neither recovery nor a broker could start there.
fn expect_record(reader: &MessageReader, start: i64) -> Result<()> {
    let log = reader.log();
    let found = match log.read(start, Check::Whole)? {
        LogRecord::Message(_) => return Ok(()),
        LogRecord::NoRecord(error) | LogRecord::Corrupt(error) => error.text().to_string(),
        LogRecord::Blank { .. } | LogRecord::End | LogRecord::Missing => "it has no message".to_owned(),
    };
    let reason =
        format!("the log would begin here, and no record does ({found}): trim fewer or more messages, or repair the store");
    Err(log.corrupt(start, reason))
}
