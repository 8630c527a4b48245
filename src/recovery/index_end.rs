//! Index files that agree with the log, and the first message whose keys are put into the index again.

use crate::error::Result;
use crate::format::{Check, Checkpoint, IndexGeometry};
use crate::log::{IndexService, KeptIndex, LogFiles, LogRecord};

/// The start of indexing.
#[derive(Debug, Clone, Copy)]
pub(super) struct IndexStart {
    /// The part of the index that is kept.
    pub kept: KeptIndex,
    /// The first message of which a key may be missing.
    pub from: i64,
}

/// Returns the start of indexing if the log ends at the end of its last segment.
///
/// # Errors
/// As [`find_index_start`].
pub(super) fn estimate_index_start(
    log: &LogFiles,
    index: &IndexService,
    checkpoint: &Checkpoint,
    geometry: IndexGeometry,
) -> Result<i64> {
    Ok(find_index_start(log, index, checkpoint, geometry, log.files_end())?.from)
}

/// Returns the part of the index that is kept for a log that ends at `log_end`.
///
/// # Errors
/// [`crate::error::Error::Io`].
pub(super) fn find_index_start(
    log: &LogFiles,
    index: &IndexService,
    checkpoint: &Checkpoint,
    geometry: IndexGeometry,
    log_end: i64,
) -> Result<IndexStart> {
    let store_time_at = |offset: i64| {
        Ok(match log.read(offset, Check::Structure)? {
            LogRecord::Message(message) => Some(message.view().store_time()),
            _ => None,
        })
    };
    let files = index.count_kept(geometry, store_time_at)?;
    let kept = index.kept_part(geometry, files, log.first_offset()..log_end, store_time_at)?;
    let known = match checkpoint.keys_dispatched(kept.items).filter(|known| *known <= log_end) {
        Some(known) if can_be_dispatched(log, checkpoint, known)? => Some(known),
        _ => None,
    };
    let from = match (known, kept.end) {
        _ if kept.is_ahead => log_end,
        // Keys are put in the order of the log, so a stamp before the last of them is damaged.
        (known, end) => known.max(end).unwrap_or(0),
    };
    Ok(IndexStart {
        kept,
        from: from.clamp(log.first_offset(), log_end.max(log.first_offset())),
    })
}

/// Returns true if every message below `known` may have been dispatched when the stamp was made. No checksum covers the stamp, and a wrong
/// offset would leave keys out of the index or stop dispatching inside a record.
fn can_be_dispatched(log: &LogFiles, checkpoint: &Checkpoint, known: i64) -> Result<bool> {
    let LogRecord::Message(last) = log.read(checkpoint.logics_physical_offset, Check::Structure)? else {
        return Ok(false);
    };
    let end = match log.read(last.view().end(), Check::Structure)? {
        LogRecord::Blank { next } => next,
        _ => last.view().end(),
    };
    Ok(known <= end && !matches!(log.read(known, Check::Structure)?, LogRecord::NoRecord(_)))
}
