//! Finding many messages by id: by the offset in it, or as a unique key.

use crate::config::Errors;
use crate::error::{Error, Result};
use crate::format::{Check, MessageId, is_salvage_record};
use crate::interrupt;
use crate::log::{LogRecord, RecordCursor};
use crate::read::message_reader::{MessageReader, Position};
use crate::read::resolve::hits::HitBounds;
use crate::read::resolve::keys::{AHEAD, find_keys};
use crate::read::resolve::query_request::Wanted;

/// Unique keys that are looked for at once, each in every topic.
const KEYS_AT_ONCE: usize = 1 << 22;

/// Finds for each id the message that [`MessageReader::message`] returns: an offset id if a record starts where it points, else the
/// first stored message with this unique key, over every topic that has queues. Where no index serves, the log is walked.
/// With [`Errors::Skip`] a damaged message counts as absent.
///
/// # Errors
/// [`Error::Corrupt`] where a part of the log that had to be looked at cannot be read, unless that is skipped; [`Error::Io`].
pub fn resolve_ids(reader: &MessageReader, ids: &[&str], errors: Errors) -> Result<Vec<Option<Position>>> {
    let mut found = vec![None; ids.len()];
    find_offset_ids(reader, ids, errors, &mut found)?;
    let rest: Vec<usize> = (0..ids.len()).filter(|at| matches!(found.get(*at), Some(None))).collect();
    if rest.is_empty() {
        return Ok(found);
    }
    let topics = reader.topics()?;
    for rows in rest.chunks((KEYS_AT_ONCE / topics.len().max(1)).max(1)) {
        let keys: Vec<&str> = rows.iter().filter_map(|row| ids.get(*row).copied()).collect();
        let hits = find_keys(reader, Wanted::UniqueKeys(&topics, &keys), &HitBounds::default(), errors)?;
        for (number, hits) in hits.iter().enumerate() {
            let row = number.checked_div(topics.len()).and_then(|at| rows.get(at));
            if let (Some(slot), Some(hit)) = (row.and_then(|row| found.get_mut(*row)), hits.first())
                && slot.is_none_or(|known: Position| hit.physical_offset < known.physical_offset)
            {
                *slot = Some(Position {
                    physical_offset: hit.physical_offset,
                    store_size: hit.store_size,
                });
            }
        }
    }
    Ok(found)
}

/// Finds those that are offset ids, in the order of the log.
fn find_offset_ids(reader: &MessageReader, ids: &[&str], errors: Errors, found: &mut [Option<Position>]) -> Result<()> {
    let parsed = ids.iter().enumerate();
    let parsed = parsed.filter_map(|(at, id)| Some((id.parse::<MessageId>().ok()?.physical_offset, at)));
    let mut by_offset: Vec<(i64, usize)> = parsed.collect();
    by_offset.sort_unstable();
    let mut cursor = RecordCursor::default();
    for window in by_offset.chunks(AHEAD) {
        let offsets: Vec<i64> = window.iter().map(|(physical_offset, _)| *physical_offset).collect();
        reader.log().read_ahead(&offsets)?;
        for (physical_offset, at) in window {
            interrupt::check()?;
            let position = match record_at(reader, &mut cursor, *physical_offset) {
                Err(Error::NotFound { .. }) => None,
                Err(damage) => {
                    reader.skip(damage, errors)?;
                    None
                }
                Ok(position) => Some(position),
            };
            if let Some(slot) = found.get_mut(*at) {
                *slot = position;
            }
        }
    }
    Ok(())
}

/// Returns the position of the message that [`MessageReader::message_at`] returns.
fn record_at(reader: &MessageReader, cursor: &mut RecordCursor, physical_offset: i64) -> Result<Position> {
    let log = reader.physical_bounds();
    let size = if log.contains(&physical_offset)
        && let LogRecord::Message(()) = cursor.read(reader.log(), physical_offset, Check::Whole)?
        && let Some(view) = cursor.view()
        && !is_salvage_record(&view)
    {
        view.size()
    } else {
        reader.message_at(physical_offset)?.view().size()
    };
    Ok(Position {
        physical_offset,
        store_size: size as i32,
    })
}
