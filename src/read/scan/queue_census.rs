//! Lost queues: a scan along queues misses the messages of a queue whose files are gone, and only the log shows them.
//!
//! A topic with fewer queues than its settings or its queue ids imply may have lost some, or may never have had them. The sizes in the
//! entries of all queues decide: they fill the log without a gap unless messages are in no queue. Entries take 20 bytes each, so this
//! reads a small part of what a pass over the log reads.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::format::{Check, is_light_queue};
use crate::interrupt;
use crate::log::{EntryCursor, LogRecord};
use crate::read::message_reader::MessageReader;
use crate::sync::lock;

/// Returns true if messages of these topics may be in a queue whose files are lost.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn may_have_lost_queues(reader: &MessageReader, topics: &BTreeSet<String>) -> Result<bool> {
    Ok(has_missing_ids(reader, topics)? && !fill_log(reader)?)
}

/// Returns true if a queue id of one of the topics has no queue, although a higher one has or the settings of the topic include it.
fn has_missing_ids(reader: &MessageReader, topics: &BTreeSet<String>) -> Result<bool> {
    let mut counts = Vec::new();
    for topic in topics.iter().filter(|topic| !is_light_queue(topic)) {
        let ids = reader.queue_ids(topic)?;
        let count = i32::try_from(ids.len()).unwrap_or(i32::MAX);
        if ids.last().is_some_and(|highest| *highest >= count) {
            return Ok(true);
        }
        counts.push((topic, count));
    }
    let settings = match reader.topic_configs() {
        Err(Error::NotFound { .. } | Error::Corrupt { .. } | Error::Unsupported { .. }) => return Ok(false),
        settings => settings?.content,
    };
    Ok(settings.iter().any(|config| {
        let most = config.read_queue_nums.max(config.write_queue_nums);
        counts
            .iter()
            .any(|(topic, count)| **topic == config.topic && most > Some(*count))
    }))
}

/// The records of a segment to which entries lead.
#[derive(Debug, Clone, Copy, Default)]
struct SegmentFill {
    bytes: i64,
    /// The end of the last one, from the start of the log.
    end: i64,
}

/// Returns true if the entries of the queues in files lead to records that fill every segment of the log, by the sizes in the entries.
/// Reads them once for each end of the log.
fn fill_log(reader: &MessageReader) -> Result<bool> {
    let bounds = reader.physical_bounds();
    let stretch = bounds.start..bounds.end.min(reader.queued_until());
    let mut counted = lock(&reader.counted);
    match &*counted {
        Some((known, is_filled)) if *known == stretch => Ok(*is_filled),
        _ => {
            let is_filled = entries_fill(reader, &stretch)?;
            *counted = Some((stretch, is_filled));
            Ok(is_filled)
        }
    }
}

fn entries_fill(reader: &MessageReader, stretch: &Range<i64>) -> Result<bool> {
    let log = reader.log();
    let segment = i64::try_from(log.segment_size()).unwrap_or(i64::MAX).max(1);
    let mut filled = Vec::new();
    for (topic, _, queue) in reader.queue_store().file_queues() {
        // It leads to messages that are in other queues, too.
        if is_light_queue(&topic) {
            continue;
        }
        let offsets = queue.min_offset()..queue.max_offset();
        let mut entries = EntryCursor::new(queue);
        for offset in offsets {
            interrupt::check()?;
            let Some(unit) = entries
                .known_unit(offset)?
                .filter(|unit| stretch.contains(&unit.physical_offset))
            else {
                continue;
            };
            let at = unit.physical_offset - stretch.start;
            let number = usize::try_from(at / segment).unwrap_or_default();
            if filled.len() <= number {
                filled.resize(number + 1, SegmentFill::default());
            }
            if let Some(filled) = filled.get_mut(number) {
                filled.bytes += i64::from(unit.size);
                filled.end = filled.end.max(at + i64::from(unit.size));
            }
        }
    }
    for (start, filled) in (stretch.start..).step_by(segment as usize).zip(&filled) {
        let end = stretch.start + filled.end;
        let is_at_end = end >= stretch.end.min(start + segment);
        if end - start != filled.bytes || !(is_at_end || matches!(log.read(end, Check::Structure)?, LogRecord::Blank { .. })) {
            return Ok(false);
        }
    }
    Ok(stretch.start + filled.len() as i64 * segment >= stretch.end)
}
