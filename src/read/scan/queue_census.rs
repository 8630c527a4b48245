//! Lost queues: a pass along queues misses the messages of a queue whose files are gone, and only the log shows them.
//!
//! A topic with fewer queues than its settings or its queue ids imply may have lost some, or may never have had them. The sizes in the
//! entries of all queues decide: they fill the log without a gap unless messages are in no queue. Entries take 20 bytes each, and only
//! those of the segments of the scan count, so this reads a small part of what a pass over the log reads.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::config::Errors;
use crate::error::{Error, Result};
use crate::format::{Check, is_light_queue};
use crate::interrupt;
use crate::log::{EntryCursor, LogFiles, LogRecord, RecordCursor, SequentialRead};
use crate::read::damage::OnDamage;
use crate::read::message_reader::MessageReader;
use crate::read::scan::log_locations::LogLocations;
use crate::read::scan::predicate::Predicate;
use crate::read::scan::queue_leads::LostQueues;
use crate::read::scan::request::ScanRequest;
use crate::sync::lock;

/// Returns the queues of these topics, of all by default, that had messages and whose files are lost. If the queues show a sign of one,
/// reads the segments of the log that their entries do not fill.
///
/// # Errors
/// [`Error::Io`].
pub fn lost_queues(reader: &MessageReader, topics: Option<Vec<String>>) -> Result<LostQueues> {
    let lost = LostQueues::default();
    let request = ScanRequest {
        topics,
        physical: reader.physical_bounds(),
        ..ScanRequest::default()
    };
    if !may_have_had_more_queues(reader, &topics_with_queues(reader, &request)?)? {
        return Ok(lost);
    }
    let (mut predicate, mut cursor) = (Predicate::new(&request, lost.clone()), RecordCursor::default());
    let on_damage = OnDamage::new(Errors::Skip);
    for segment in unfilled_segments(reader, &request.physical)? {
        let mut locations = LogLocations::new(reader, &request, segment)?.beside_queues();
        while let Some(location) = locations.next(reader, &mut cursor, &on_damage)? {
            locations.drop_before(reader.log(), location.physical_offset);
            if let Some(view) = cursor.view()
                && predicate.given_with(&view).is_some()
            {
                predicate.note_lost_queue(&view, reader)?;
            }
        }
        locations.drop_before(reader.log(), i64::MAX);
    }
    Ok(lost)
}

/// Returns the topics that are read and have queues in files.
pub(super) fn topics_with_queues(reader: &MessageReader, request: &ScanRequest) -> Result<BTreeSet<String>> {
    let all = reader.queue_store().topics();
    let is_named = |topic: &String| request.topics.as_ref().is_none_or(|named| named.contains(topic));
    let mut found = BTreeSet::new();
    for topic in all.into_iter().filter(is_named) {
        // A light queue leads to messages of other topics: they are not given twice.
        let counts = request.topics.is_some() || !is_light_queue(&topic);
        match reader.queue_ids(&topic) {
            Ok(_) if counts => {
                found.insert(topic);
            }
            Ok(_) | Err(Error::Unsupported { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Returns true if a stretch of the log may have messages of these topics that were in a queue whose files are lost.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn may_have_lost_queues(reader: &MessageReader, topics: &BTreeSet<String>, stretch: &Range<i64>) -> Result<bool> {
    Ok(may_have_had_more_queues(reader, topics)? && !unfilled_segments(reader, stretch)?.is_empty())
}

/// Returns true if a queue id of one of the topics has no queue, although a higher one has or the settings of the topic include it. Without
/// settings that can be read, any topic may have had more queues.
fn may_have_had_more_queues(reader: &MessageReader, topics: &BTreeSet<String>) -> Result<bool> {
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
    /// The end of the last one in the log.
    end: i64,
}

/// Returns the segments of a stretch of the log that are not filled by the records to which the entries of the queues in files lead, by the
/// sizes in the entries. Reads the entries once for scans of the same segments.
fn unfilled_segments(reader: &MessageReader, stretch: &Range<i64>) -> Result<Vec<Range<i64>>> {
    let (log, bounds) = (reader.log(), reader.physical_bounds());
    let start = log.start_of_segment(stretch.start.max(bounds.start));
    let end = log.end_of_segment(stretch.end - 1);
    let segments = start..end.min(bounds.end).min(reader.queued_until());
    let mut counted = lock(&reader.counted);
    match &*counted {
        Some((known, unfilled)) if *known == segments => Ok(unfilled.clone()),
        _ => {
            let unfilled = count_unfilled(reader, &segments)?;
            *counted = Some((segments, unfilled.clone()));
            Ok(unfilled)
        }
    }
}

/// Returns the segments of a stretch that the entries of the queues do not fill. The stretch begins with a segment.
fn count_unfilled(reader: &MessageReader, stretch: &Range<i64>) -> Result<Vec<Range<i64>>> {
    let log = reader.log();
    let starts = log.starts().filter(|start| stretch.contains(start));
    let mut segments: BTreeMap<_, _> = starts.map(|start| (start, SegmentFill::default())).collect();
    for (topic, _, queue) in reader.queue_store().file_queues() {
        // It leads to messages that are in other queues, too.
        if is_light_queue(&topic) {
            continue;
        }
        let mut entries = EntryCursor::new(Arc::clone(&queue));
        let mut current = (0..0, None);
        // A wrong entry may end this early: the segment then does not count as full.
        for offset in queue.offset_from(stretch.start)?.max(queue.min_offset())..queue.max_offset() {
            interrupt::check()?;
            let unit = entries.known_unit(offset)?;
            let Some(unit) = unit.filter(|unit| unit.physical_offset >= stretch.start) else {
                continue;
            };
            if unit.physical_offset >= stretch.end {
                break;
            }
            if !current.0.contains(&unit.physical_offset) {
                let start = log.start_of_segment(unit.physical_offset);
                let filled = segments.get_mut(&start);
                current = (start..log.end_of_segment(start), filled);
            }
            if let Some(filled) = &mut current.1 {
                filled.bytes += i64::from(unit.size);
                filled.end = filled.end.max(unit.physical_offset + i64::from(unit.size));
            }
        }
    }
    let mut unfilled = Vec::new();
    for (start, filled) in segments {
        let (end, next) = (filled.end.max(start), stretch.end.min(log.end_of_segment(start)));
        let is_at_end = end >= next;
        if end - start != filled.bytes || !(is_at_end || is_blank(log, end)?) {
            unfilled.push(start..next);
        }
    }
    Ok(unfilled)
}

/// Returns true if the rest of a segment from `offset` on is blank. Leaves the page cache as it was.
fn is_blank(log: &LogFiles, offset: i64) -> Result<bool> {
    let mut read = SequentialRead::default();
    read.at(log, offset, offset + 1);
    let record = log.read(offset, Check::Structure)?;
    read.drop_before(log, i64::MAX);
    Ok(matches!(record, LogRecord::Blank { .. }))
}
