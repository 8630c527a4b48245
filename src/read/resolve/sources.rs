//! The stretches of the log that a search for keys reads, each with or without an index file, and the proof that a file is of this log.

use std::ops::Range;

use crate::error::Result;
use crate::format::{Check, DispatchRequest, IndexGeometry, IndexItem, is_salvage_record};
use crate::log::{IndexFile, Indexed, LogRecord, Source};
use crate::read::message_reader::MessageReader;
use crate::sync::lock;

/// Items at each end of an index file that are looked at. A message has an item for each of its keys.
const END_ITEMS: i32 = 64;

/// Returns the log in stretches, ascending, as [`IndexService::sources`](crate::log::IndexService::sources) divides it. The last one
/// is left out if it is one message, which the index has, too.
///
/// # Errors
/// [`crate::error::Error::Io`].
pub(crate) fn sources(reader: &MessageReader, log: Range<i64>) -> Result<Vec<Source>> {
    let is_of_log = |file: &IndexFile, geometry| is_of_log(reader, file, geometry);
    let mut sources = reader.index().sources(log, &is_of_log)?;
    if let [.., Source::Index(indexed), Source::LogAfterIndex(rest)] = sources.as_slice() {
        let wanted = (*indexed.header(), rest.end);
        let is_known = *lock(&reader.indexed_to_end) == Some(wanted);
        if is_known || is_indexed(reader, indexed, rest)? {
            *lock(&reader.indexed_to_end) = Some(wanted);
            sources.pop();
        }
    }
    Ok(sources)
}

/// Returns true if the items of the file are those of this log. Somebody may have copied the file from another store, or have kept it
/// from before messages were cut from the log. So at both ends one of two messages must be there: the other one may be
/// damaged.
pub(crate) fn is_of_log(reader: &MessageReader, file: &IndexFile, geometry: IndexGeometry) -> Result<bool> {
    let (log, header) = (reader.physical_bounds(), file.header());
    if header.end_physical_offset < log.start {
        return Ok(true);
    }
    let number_at = |offset| file.first_at(geometry, header.index_count, offset);
    let (first, end) = (number_at(log.start)?, number_at(log.end)?);
    let mut items = Vec::new();
    file.items(geometry, first..end.min(first.saturating_add(END_ITEMS)), &mut items)?;
    if !is_one_of_two_here(reader, &items)? {
        return Ok(false);
    }
    items.clear();
    file.items(geometry, first.max(end - END_ITEMS)..end, &mut items)?;
    items.reverse();
    is_one_of_two_here(reader, &items)
}

/// Returns true if one of the first two messages of the items is in this log.
fn is_one_of_two_here(reader: &MessageReader, items: &[IndexItem]) -> Result<bool> {
    let messages = items.chunk_by(|one, next| one.physical_offset == next.physical_offset);
    for items in messages.take(2) {
        if may_lead_to_their_message(reader, items)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns true if the message to which the items of one message lead has the keys of all of them. Messages of many logs may have one
/// key in common.
fn may_lead_to_their_message(reader: &MessageReader, items: &[IndexItem]) -> Result<bool> {
    let Some(first) = items.first() else {
        return Ok(false);
    };
    Ok(match reader.log().read(first.physical_offset, Check::Structure)? {
        LogRecord::Message(message) => {
            let view = message.view();
            let request = DispatchRequest::of(&view);
            is_salvage_record(&view) || items.iter().all(|item| request.has_index_key_hash(item.key_hash))
        }
        // A damaged record starts here by its own account.
        LogRecord::Corrupt(_) | LogRecord::Missing => true,
        LogRecord::NoRecord(_) | LogRecord::Blank { .. } | LogRecord::End => false,
    })
}

/// Returns true if one message fills this stretch, and all its keys are in the file.
fn is_indexed(reader: &MessageReader, indexed: &Indexed, stretch: &Range<i64>) -> Result<bool> {
    let LogRecord::Message(message) = reader.log().read(stretch.start, Check::Structure)? else {
        return Ok(false);
    };
    let view = message.view();
    for key_hash in DispatchRequest::of(&view).index_key_hashes(reader.config().index_tags) {
        let (offsets, is_whole) = indexed.offsets(key_hash)?;
        if !is_whole || !offsets.contains(&stretch.start) {
            return Ok(false);
        }
    }
    Ok(view.end() == stretch.end && message.intact().is_ok())
}
