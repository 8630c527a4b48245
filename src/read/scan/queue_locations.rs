//! The messages to which a queue leads, from either end.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::format::{Check, CqUnit};
use crate::log::LogRecord;
use crate::read::damage::OnDamage;
use crate::read::message_reader::MessageReader;
use crate::read::queue_walk::{NamedQueue, QueueWalk};
use crate::read::scan::record_location::{LedBy, READ_ALONE, RecordLocation};
use crate::read::scan::request::ScanRequest;

/// A stretch of a queue.
#[derive(Debug)]
pub(super) struct QueueLocations {
    walk: QueueWalk,
    reverse: bool,
    /// The next message, if it is known.
    next: Option<(i64, CqUnit)>,
}

impl QueueLocations {
    pub(super) fn new(queue: NamedQueue, offsets: Range<i64>, reverse: bool) -> Self {
        Self {
            walk: QueueWalk::new(queue, offsets),
            reverse,
            next: None,
        }
    }

    /// Returns the next message; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::error::Error::Corrupt) for a damaged entry and for a missing file, unless that is skipped, after which it
    /// can continue; [`Error::Io`](crate::error::Error::Io).
    pub(super) fn next(
        &mut self,
        reader: &MessageReader,
        request: &ScanRequest,
        on_damage: &OnDamage,
    ) -> Result<Option<RecordLocation>> {
        let next = self.peek(reader, request, on_damage)?;
        self.next = None;
        Ok(next.map(|(offset, unit)| RecordLocation {
            physical_offset: unit.physical_offset,
            size: unit.size.cast_unsigned(),
            by: LedBy::Queue(Arc::clone(&self.walk.queue), offset, unit.tags_code),
        }))
    }

    /// Returns the queue offset and the entry of the next message, which stays the next one. A message that is unwanted by its entry is
    /// skipped. An entry that points past the log is damaged, and its message may be wanted.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub(super) fn peek(
        &mut self,
        reader: &MessageReader,
        request: &ScanRequest,
        on_damage: &OnDamage,
    ) -> Result<Option<(i64, CqUnit)>> {
        while self.next.is_none() {
            let Some((offset, unit)) = self.walk.next(reader, self.reverse, on_damage)? else {
                return Ok(None);
            };
            let is_in_range =
                request.physical.contains(&unit.physical_offset) || unit.physical_offset >= reader.physical_bounds().end;
            if is_in_range && request.tags.may_match(&self.walk.queue.topic, &unit) {
                self.next = Some((offset, unit));
            }
        }
        Ok(self.next)
    }

    /// Returns the rest as bytes that could be read in the same time if its messages were empty.
    pub(super) fn left(&self) -> i64 {
        let Range { start, end } = self.walk.offsets;
        (end - start + i64::from(self.next.is_some())) * READ_ALONE
    }

    /// Returns about the bytes of the messages, by the sizes in the first and the last entry.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io).
    pub(super) fn estimate_bytes(&self) -> Result<i64> {
        let Range { start, end } = self.walk.offsets;
        let mut sizes = 0;
        for offset in [start, end - 1] {
            sizes += self
                .walk
                .queue
                .queue
                .known_unit(offset)?
                .map_or(0, |unit| i64::from(unit.size));
        }
        Ok((end - start).saturating_mul(sizes / 2 + READ_ALONE))
    }

    /// Leaves out most entries whose messages lie before or after a stretch of the log. Entries ascend.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io).
    pub(super) fn narrow(&mut self, reader: &MessageReader, stretch: &Range<i64>) -> Result<()> {
        self.walk.offsets.start = self.around(reader, stretch.start)?.start;
        self.walk.offsets.end = self.around(reader, stretch.end)?.end;
        Ok(())
    }

    /// Returns the first queue offset whose message lies at or past a physical offset; a range with it, where a message on the way
    /// cannot be read: an entry alone may be damaged.
    fn around(&self, reader: &MessageReader, physical_offset: i64) -> Result<Range<i64>> {
        let Range { mut start, mut end } = self.walk.offsets;
        while start < end {
            let middle = start.midpoint(end);
            let Some(unit) = self.walk.queue.queue.known_unit(middle)? else {
                break;
            };
            let by = LedBy::Queue(Arc::clone(&self.walk.queue), middle, unit.tags_code);
            let expected = RecordLocation {
                physical_offset: unit.physical_offset,
                size: 0,
                by,
            };
            match reader.log().read(unit.physical_offset, Check::Structure)? {
                LogRecord::Message(message) if expected.is_of(&message.view()) => {}
                _ => break,
            }
            if unit.physical_offset < physical_offset {
                start = middle + 1;
            } else {
                end = middle;
            }
        }
        Ok(start..end)
    }
}
