//! Trimming: the removal of the oldest segments, and of the queue and index files that lead to nothing else.
//!
//! The order is RocketMQ's: segments oldest first, then queue files, then index files, and never the last file of a family, so that
//! no offset is given twice. The log is removed durably before the files that lead to it: a segment that a power failure brings back
//! has its entries and keys. Source: docs/FORMAT.md, "Start and recovery".

use std::ops::Range;
use std::sync::PoisonError;

use crate::error::{Error, Result};
use crate::format::Check;
use crate::read::MessageReader;
use crate::storage::Expired;
use crate::store::message_store::MessageStore;

/// The messages that a trim removes, by whole segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrimTo {
    /// Messages before this physical offset.
    Offset(i64),
    /// Messages that were stored before this time, in ms.
    StoreTime(i64),
    /// The oldest messages, until the log has at most this many bytes.
    Bytes(u64),
}

/// The result of a trim.
#[derive(Debug, Clone, Default)]
pub struct Trimmed {
    /// The physical offsets of each removed segment, ascending.
    pub segments: Vec<Range<i64>>,
    /// Bytes of the removed segments.
    pub bytes: u64,
    /// Bytes of them that this process still reads: the system frees them when the last view of them ends.
    pub held_bytes: u64,
    /// The number of removed queue files.
    pub queue_files: usize,
    /// The number of removed index files.
    pub index_files: usize,
    /// The reason why the next segment or queue file could not be removed.
    pub refused: Option<Error>,
}

impl Trimmed {
    /// Returns the result of a dry run that would remove these segments.
    pub(crate) fn planned(segments: Vec<Range<i64>>) -> Self {
        Self {
            bytes: segments.iter().map(|segment| segment.end.abs_diff(segment.start)).sum(),
            segments,
            ..Self::default()
        }
    }

    /// Adds the result of a removal that came after this one.
    pub(crate) fn append(&mut self, later: Self) {
        self.segments.extend(later.segments);
        self.bytes += later.bytes;
        self.held_bytes += later.held_bytes;
        self.queue_files += later.queue_files;
        self.index_files += later.index_files;
        self.refused = later.refused.or_else(|| self.refused.take());
    }

    /// Returns this result with the reason why nothing more is removed; the reason as an error if nothing was removed.
    ///
    /// # Errors
    /// `refused`.
    pub(crate) fn or_refused(mut self, refused: Option<Error>) -> Result<Self> {
        match refused {
            Some(refused) if self.segments.is_empty() => Err(refused),
            refused => {
                self.refused = self.refused.or(refused);
                Ok(self)
            }
        }
    }
}

impl MessageStore {
    /// Returns the segments that [`MessageStore::trim`] would remove, oldest first.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn segments_to_trim(&self, to: TrimTo, floor: i64) -> Result<Vec<Range<i64>>> {
        // A message that is in its queue stays after the removed ones: the next offsets follow from it.
        let floor = floor.min(self.dispatched_offset() - 1);
        oldest_segments(self.reader(), to, self.appended_offset(), floor)
    }

    /// Removes the oldest segments, and the queue and index files that lead to nothing else. The last segment stays, and so does
    /// everything that is not durable and in its queue, and every message at or after the physical offset `floor`. Reads find that the
    /// messages have expired, and each queue keeps its largest offset. After a failure it may be called again.
    ///
    /// It needs no free space to remove the messages whose queue entries are on disk. If there is no space for other entries after
    /// that, [`Trimmed::refused`] is the reason.
    ///
    /// # Errors
    /// [`Error::DiskFull`]: nothing was removed. [`Error::Poisoned`], [`Error::Closed`], [`Error::Io`].
    pub fn trim(&self, to: TrimTo, floor: i64) -> Result<Trimmed> {
        let _alone = self.trimming.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cause) = self.log.watermarks.appended.poisoned() {
            return Err(Error::poisoned(cause, self.flushed_offset()));
        }
        self.flush()?;
        let mut trimmed = Trimmed::default();
        let end_of = |segments: Vec<Range<i64>>| segments.last().map(|segment| segment.end);
        while let Some(wanted) = end_of(self.segments_to_trim(to, floor)?) {
            let (safe, shortage) = self.prepare_removal(wanted)?;
            let Some(until) = end_of(self.segments_to_trim(to, safe)?) else {
                return trimmed.or_refused(shortage);
            };
            trimmed.append(remove_segments(self.reader(), until)?);
            if shortage.is_none() || trimmed.refused.is_some() {
                break;
            }
        }
        Ok(trimmed)
    }

    /// Stamps the checkpoint: recovery then starts after the removed segments, no sync meets a removed queue file, and the mark of the
    /// flushed offset is past them: a log that starts after the mark counts as damaged. Returns the physical offset, `wanted` at most,
    /// before which messages may be removed. After a shortage, which is returned, the old stamp remains, and only messages whose queue
    /// entries are on disk may be removed: no other file has the largest offsets of their queues.
    fn prepare_removal(&self, wanted: i64) -> Result<(i64, Option<Error>)> {
        match self.stamp() {
            Err(shortage) if shortage.is_shortage() => Ok((wanted.min(self.sync_queues()?), Some(shortage))),
            stamped => stamped.map(|()| (wanted, None)),
        }
    }
}

/// Returns the segments, oldest first, that are old enough, of a log that ends at `end`. No segment with a byte at or after `floor` is
/// among them.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn oldest_segments(reader: &MessageReader, to: TrimTo, end: i64, floor: i64) -> Result<Vec<Range<i64>>> {
    let log = reader.log();
    let mut kept = u64::try_from(end - log.first_offset()).unwrap_or(0);
    let mut segments = Vec::new();
    for start in log.starts() {
        let segment = start..log.end_of_segment(start);
        let is_old = match to {
            TrimTo::Offset(offset) => segment.end <= offset,
            TrimTo::StoreTime(time) => is_before(reader, &segment, time)?,
            TrimTo::Bytes(most) => kept > most,
        };
        if !is_old || segment.end > floor {
            break;
        }
        kept = kept.saturating_sub(segment.end.abs_diff(segment.start));
        segments.push(segment);
    }
    Ok(segments)
}

/// Removes the segments that end at or before `until`, and then the queue and index files that lead to nothing else.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn remove_segments(reader: &MessageReader, until: i64) -> Result<Trimmed> {
    let expired = reader.log().expire(reader.env().as_ref(), until)?;
    let mut trimmed = Trimmed {
        held_bytes: expired.held_bytes,
        refused: expired.refused,
        ..Trimmed::default()
    };
    for segment in &expired.files {
        trimmed.bytes += segment.end - segment.start;
        trimmed.segments.push(segment.start as i64..segment.end as i64);
    }
    let first = reader.log().first_offset();
    for (_, _, queue) in reader.queue_store().file_queues() {
        let Expired { files, refused, .. } = queue.expire(first)?;
        trimmed.queue_files += files.len();
        trimmed.refused = trimmed.refused.take().or(refused);
    }
    trimmed.index_files = reader.index().expire(first)?;
    Ok(trimmed)
}

/// Returns true if all messages of a segment were stored before `time`. Store times do not fall in the log of a writer.
fn is_before(reader: &MessageReader, segment: &Range<i64>, time: i64) -> Result<bool> {
    let log = reader.log();
    match log.claimed_store_time(segment.end)? {
        Some(next) if next < time => return Ok(true),
        _ => {}
    }
    if log.claimed_store_time(segment.start)?.is_some_and(|first| first >= time) {
        return Ok(false);
    }
    Ok(last_stored(reader, segment)?.is_some_and(|last| last < time))
}

/// Returns the store time of the last message of a segment in ms, or a later one if the segment is damaged: that of the first message
/// after it. `None` if that is damaged, too. Reads the segment.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn last_stored(reader: &MessageReader, segment: &Range<i64>) -> Result<Option<i64>> {
    let log = reader.log();
    let mut scan = log.scan(segment.start, segment.end, Check::Structure);
    let mut last = None;
    while scan.advance()? {
        let Some(view) = scan.view() else { break };
        last = last.max(Some(view.store_time()));
    }
    if last.is_some() && scan.position() >= segment.end {
        return Ok(last);
    }
    // A scan that damage ends has not seen the last message.
    log.claimed_store_time(segment.end)
}
