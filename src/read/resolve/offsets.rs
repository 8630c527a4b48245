//! Locations of messages that are named by queue and queue offset.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::format::{CqUnit, MessageView};
use crate::interrupt;
use crate::log::{QueueHandle, QueueTable, ScatteredEntryCursor};
use crate::read::message_reader::{MessageReader, Position};

/// Files of queues that are kept mapped, about.
const MOST_FILES: usize = 256;

/// Entries that are brought into the cache of the processor at once.
const NEAR: usize = 64;

/// Finds one message after the other, and keeps what the next ones need: a queue is looked for once, and so is a segment. Shows
/// each queue as it was when it was first asked for.
#[derive(Debug)]
pub struct OffsetResolver<'a> {
    reader: &'a MessageReader,
    queues: QueueTable<Option<ScatteredEntryCursor>>,
    /// Files that the cursors keep.
    files: usize,
    /// Stretches of the log whose segments are there, ascending, with others between them.
    stretches: Vec<Range<i64>>,
}

impl<'a> OffsetResolver<'a> {
    /// Creates a resolver without any row.
    pub fn new(reader: &'a MessageReader) -> Self {
        Self {
            reader,
            queues: QueueTable::default(),
            files: 0,
            stretches: Vec::new(),
        }
    }

    /// Returns [`MessageReader::position`], and `None` where the entry is damaged or its segment is missing, too: one of many rows does
    /// not fail the others.
    ///
    /// # Errors
    /// As [`MessageReader::queue_ids`], and [`Error::Io`].
    pub fn position(&mut self, topic: &str, queue_id: i32, queue_offset: i64) -> Result<Option<Position>> {
        self.drop_cursors();
        let handle = self.handle(topic, queue_id)?;
        self.position_in(handle, (topic, queue_id, queue_offset))
    }

    /// Returns the [`position`](Self::position) of each that is wanted, by topic, queue id and queue offset.
    ///
    /// # Errors
    /// As [`position`](Self::position).
    pub fn positions(&mut self, wanted: &[Option<(&str, i32, i64)>], found: &mut Vec<Option<Position>>) -> Result<()> {
        let mut handles = Vec::with_capacity(NEAR);
        for near in wanted.chunks(NEAR) {
            handles.clear();
            for named in near {
                handles.push(match named {
                    Some((topic, queue_id, queue_offset)) => Some((self.handle(topic, *queue_id)?, *queue_offset)),
                    None => None,
                });
            }
            // The entries lie anywhere: so the processor waits for the memory once for several of them.
            for (handle, queue_offset) in handles.iter().flatten() {
                if let Some(Some(cursor)) = self.queues.get(*handle) {
                    cursor.touch(*queue_offset);
                }
            }
            for (handle, wanted) in handles.iter().zip(near) {
                found.push(match (handle, wanted) {
                    (Some((handle, _)), Some(wanted)) => self.position_in(*handle, *wanted)?,
                    _ => None,
                });
            }
            self.drop_cursors();
        }
        Ok(())
    }

    /// Returns true if the entry at the queue and offset that a record of this topic names leads to it, and if the queues of the topic
    /// are in a format that is not read.
    ///
    /// # Errors
    /// [`Error::Io`].
    #[inline]
    pub(super) fn leads_to(&mut self, topic: &str, view: &MessageView<'_>) -> Result<bool> {
        self.drop_cursors();
        let handle = match self.handle(topic, view.queue_id()) {
            Err(Error::Unsupported { .. }) => return Ok(true),
            handle => handle?,
        };
        let unit = self.unit(handle, view.queue_offset())?;
        Ok(unit.is_some_and(|unit| unit.physical_offset == view.physical_offset()))
    }

    /// Returns the entry at an offset of a queue; `None` for a damaged one.
    #[inline]
    fn unit(&mut self, handle: QueueHandle, queue_offset: i64) -> Result<Option<CqUnit>> {
        let Some(Some(cursor)) = self.queues.get_mut(handle) else {
            return Ok(None);
        };
        let files = cursor.files();
        let unit = match cursor.unit(queue_offset) {
            Err(Error::Corrupt { .. }) => None,
            unit => unit?,
        };
        self.files += cursor.files() - files;
        Ok(unit)
    }

    /// Returns the handle of the queue, until [`drop_cursors`](Self::drop_cursors) is called.
    #[inline]
    fn handle(&mut self, topic: &str, queue_id: i32) -> Result<QueueHandle> {
        interrupt::check()?;
        if let Some(known) = self.queues.find(topic.as_bytes(), queue_id) {
            return Ok(known);
        }
        let queue = self.reader.queue(topic, queue_id)?;
        Ok(self
            .queues
            .add(topic.as_bytes(), queue_id, queue.map(ScatteredEntryCursor::new)))
    }

    /// Keeps nothing of any queue, if that is much.
    fn drop_cursors(&mut self) {
        if self.files > MOST_FILES {
            (self.queues, self.files) = (QueueTable::default(), 0);
        }
    }

    #[inline]
    fn position_in(&mut self, handle: QueueHandle, wanted: (&str, i32, i64)) -> Result<Option<Position>> {
        let Some(unit) = self.unit(handle, wanted.2)? else {
            return Ok(None);
        };
        if self.reader.is_lost(unit, wanted)? || !self.holds(unit.physical_offset)? {
            return Ok(None);
        }
        Ok(Some(Position {
            physical_offset: unit.physical_offset,
            store_size: unit.size,
        }))
    }

    /// Returns true if the segment exists.
    #[inline]
    fn holds(&mut self, physical_offset: i64) -> Result<bool> {
        let after = self.stretches.partition_point(|stretch| stretch.start <= physical_offset);
        let before = after.checked_sub(1).and_then(|before| self.stretches.get(before));
        if before.is_some_and(|stretch| physical_offset < stretch.end) {
            return Ok(true);
        }
        let Some(segment) = self.reader.log().segment(physical_offset)? else {
            return Ok(false);
        };
        let mut stretch = segment.clone();
        let is_beside = |known: &mut Range<i64>| known.end == segment.start || known.start == segment.end;
        for known in self.stretches.extract_if(.., is_beside) {
            stretch = stretch.start.min(known.start)..stretch.end.max(known.end);
        }
        let at = self.stretches.partition_point(|known| known.start < stretch.start);
        self.stretches.insert(at, stretch);
        Ok(true)
    }
}
