//! Lost queues: a scan along queues misses the messages of a queue whose files are gone, and only the log shows them.
//!
//! A topic with fewer queues than its settings or its queue ids imply may have lost some, or may never have had them. The sizes in the
//! entries of all queues decide: they fill the log without a gap unless messages are in no queue. Entries take 20 bytes each, and only
//! those of the segments of the scan count, so this reads a small part of what a pass over the log reads.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{Check, is_light_queue};
use crate::interrupt;
use crate::log::{ConsumeQueue, EntryCursor, LogFiles, LogRecord, SequentialRead};
use crate::read::message_reader::MessageReader;
use crate::read::scan::segment_times::partition_point;
use crate::sync::lock;

/// Returns true if a stretch of the log may have messages of these topics that were in a queue whose files are lost.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn may_have_lost_queues(reader: &MessageReader, topics: &BTreeSet<String>, stretch: &Range<i64>) -> Result<bool> {
    Ok(may_lack_queues(reader, topics)? && !fill_log(reader, stretch)?)
}

/// Returns true if a queue id of one of the topics has no queue, although a higher one has or the settings of the topic include it. Without
/// settings that can be read, any topic may have had more queues.
fn may_lack_queues(reader: &MessageReader, topics: &BTreeSet<String>) -> Result<bool> {
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
        Err(Error::NotFound { .. } | Error::Corrupt { .. } | Error::Unsupported { .. }) => Vec::new(),
        settings => settings?.content,
    };
    Ok(counts.iter().any(|(topic, count)| {
        let config = settings.iter().find(|config| config.topic == **topic);
        config.is_none_or(|config| config.read_queue_nums.max(config.write_queue_nums) > Some(*count))
    }))
}

/// The records of a segment to which entries lead.
#[derive(Debug, Clone, Copy, Default)]
struct SegmentFill {
    bytes: i64,
    /// The end of the last one, from the start of the log.
    end: i64,
}

/// Returns true if the entries of the queues in files lead to records that fill every segment of a stretch of the log, by the sizes in the
/// entries. Reads them once for scans of the same segments.
fn fill_log(reader: &MessageReader, stretch: &Range<i64>) -> Result<bool> {
    let segment = segment_size(reader);
    let bounds = reader.physical_bounds();
    let start = stretch.start.max(bounds.start) / segment * segment;
    let end = stretch.end.saturating_add(segment - 1) / segment * segment;
    let segments = start..end.min(bounds.end).min(reader.queued_until());
    let mut counted = lock(&reader.counted);
    match &*counted {
        Some((known, is_filled)) if *known == segments => Ok(*is_filled),
        _ => {
            let is_filled = entries_fill(reader, &segments)?;
            *counted = Some((segments, is_filled));
            Ok(is_filled)
        }
    }
}

fn segment_size(reader: &MessageReader) -> i64 {
    i64::try_from(reader.log().segment_size()).unwrap_or(i64::MAX).max(1)
}

/// The stretch begins with a segment.
fn entries_fill(reader: &MessageReader, stretch: &Range<i64>) -> Result<bool> {
    let (log, segment) = (reader.log(), segment_size(reader));
    let mut filled = Vec::new();
    for (topic, _, queue) in reader.queue_store().file_queues() {
        // It leads to messages that are in other queues, too.
        if is_light_queue(&topic) {
            continue;
        }
        let mut entries = EntryCursor::new(Arc::clone(&queue));
        // A wrong entry may end this early: the segment then does not count as full.
        for offset in first_within(&queue, stretch)?..queue.max_offset() {
            interrupt::check()?;
            let unit = entries.known_unit(offset)?;
            let Some(unit) = unit.filter(|unit| unit.physical_offset >= stretch.start) else {
                continue;
            };
            if unit.physical_offset >= stretch.end {
                break;
            }
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
        if end - start != filled.bytes || !(is_at_end || is_blank(log, end)?) {
            return Ok(false);
        }
    }
    Ok(stretch.start + filled.len() as i64 * segment >= stretch.end)
}

/// Returns true if the rest of a segment from `offset` on is blank. Leaves the page cache as it was.
fn is_blank(log: &LogFiles, offset: i64) -> Result<bool> {
    let mut read = SequentialRead::default();
    read.at(log, offset, offset + 1);
    let record = log.read(offset, Check::Structure)?;
    read.drop_before(log, i64::MAX);
    Ok(matches!(record, LogRecord::Blank { .. }))
}

/// Returns the queue offset of the first entry that leads to a stretch of the log, or past it, by binary search: entries ascend.
fn first_within(queue: &ConsumeQueue, stretch: &Range<i64>) -> Result<i64> {
    let Range { start, end } = queue.min_offset()..queue.max_offset();
    let count = usize::try_from(end - start).unwrap_or_default();
    let is_before = |at: usize| {
        let unit = queue.known_unit(start + at as i64)?;
        Ok(unit.is_some_and(|unit| unit.physical_offset < stretch.start))
    };
    Ok(start + partition_point(0..count, is_before)? as i64)
}
