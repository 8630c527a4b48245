//! The entries in the files of a queue, as they stand there.

use std::ops::Range;

use crate::error::Result;
use crate::format::{CQ_UNIT_SIZE, CqUnit};
use crate::log::queue_tail::QueueTail;
use crate::storage::MappedFileQueue;

const UNIT: i64 = CQ_UNIT_SIZE as i64;
/// Bytes of a queue file where no file and no option tells: RocketMQ's 300,000 entries.
const DEFAULT_FILE_SIZE: u64 = 6_000_000;

pub(super) fn entries_per_file(files: &MappedFileQueue) -> i64 {
    match files.file_size() {
        0 => DEFAULT_FILE_SIZE as i64 / UNIT,
        size => (size as i64 / UNIT).max(1),
    }
}

pub(super) fn next_file_start(files: &MappedFileQueue, offset: i64) -> i64 {
    let per_file = entries_per_file(files);
    (offset / per_file + 1).saturating_mul(per_file)
}

/// First offset of `range` on file whose entry names a message at or behind `physical`.
pub(super) fn first_at(files: &MappedFileQueue, range: Range<i64>, physical: i64) -> Result<i64> {
    search(files, &QueueTail::default(), range, |unit| {
        unit.is_some_and(|unit| unit.is_valid() && (unit.is_pre_blank() || unit.physical_offset < physical))
    })
}

/// The entry as the file has it, whatever it says; `None` where there is no file, or where it ends before.
pub(super) fn on_file(files: &MappedFileQueue, offset: i64) -> Result<Option<CqUnit>> {
    let Some(at) = offset.checked_mul(UNIT).and_then(|at| u64::try_from(at).ok()) else {
        return Ok(None);
    };
    let Some(file) = files.find(at)? else { return Ok(None) };
    let mut bytes = [0; CQ_UNIT_SIZE];
    let position = (at - file.start()) as usize;
    if position + CQ_UNIT_SIZE > file.len() as usize {
        return Ok(None);
    }
    if file.read(position, &mut bytes) {
        return Ok(Some(CqUnit::decode(&bytes)));
    }
    file.check_intact(position..position + CQ_UNIT_SIZE)?;
    Ok(None)
}

/// Entries behind the first invalid one that are looked at before that counts as the end: two pages of them.
const LOOK_AHEAD: i64 = 2 * 4096 / UNIT;

/// The end of the valid entries: they fill files from the front, the rest of a file is zero. Damage in front of valid entries does
/// not end the queue.
pub(super) fn find_end(files: &MappedFileQueue) -> Result<i64> {
    let valid = |unit: Option<CqUnit>| unit.is_some_and(CqUnit::is_valid);
    let starts: Vec<i64> = files.starts().into_iter().map(|start| start as i64 / UNIT).collect();
    for start in starts.iter().rev() {
        let file_end = next_file_start(files, *start).min(files.end_offset().unwrap_or(0) as i64 / UNIT);
        let mut end = *start;
        loop {
            end = search(files, &QueueTail::default(), end..file_end, valid)?;
            let mut ahead = end..file_end.min(end + LOOK_AHEAD);
            match ahead.find_map(|offset| on_file(files, offset).map(|unit| valid(unit).then_some(offset)).transpose()) {
                Some(behind) => end = behind? + 1,
                None => break,
            }
        }
        if end > *start {
            return Ok(end);
        }
    }
    Ok(starts.first().copied().unwrap_or(0))
}

/// First offset of `range` whose entry (`None` in a missing file) does not satisfy `before`; those that do stand in front.
pub(super) fn search(
    files: &MappedFileQueue,
    tail: &QueueTail,
    range: Range<i64>,
    before: impl Fn(Option<CqUnit>) -> bool,
) -> Result<i64> {
    let Range {
        start: mut low,
        end: mut high,
    } = range;
    while low < high {
        let middle = low + (high - low) / 2;
        let unit = match tail.get(middle) {
            Some(unit) => Some(unit),
            None => on_file(files, middle)?,
        };
        if before(unit) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}
