//! The messages to which a queue leads, from either end. Its entries are read in blocks.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{Check, CqUnit};
use crate::interrupt;
use crate::log::{EntriesAhead, LogRecord};
use crate::read::message_reader::MessageReader;
use crate::read::on_damage::OnDamage;
use crate::read::scan::place::{LedBy, Place, READ_ALONE, ScannedQueue};
use crate::read::scan::request::ScanRequest;

/// Entries that are read at once. A scan in the order of the log has a block of each queue in memory.
const BLOCK: i64 = 64;

/// A stretch of a queue.
#[derive(Debug)]
pub(super) struct QueuePlaces {
    queue: Arc<ScannedQueue>,
    /// Queue offsets whose entries were not read yet.
    offsets: Range<i64>,
    reverse: bool,
    /// Entries that were read: one after the other, from the queue offset `block_start` on.
    block: Vec<CqUnit>,
    block_start: i64,
    /// How many of them were given or passed over.
    taken: usize,
}

impl QueuePlaces {
    pub(super) fn new(queue: ScannedQueue, offsets: Range<i64>, reverse: bool) -> Self {
        Self {
            queue: Arc::new(queue),
            offsets,
            reverse,
            block: Vec::new(),
            block_start: 0,
            taken: 0,
        }
    }

    /// The next message, and whether there is one.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged entry and for a missing file, unless that is skipped, after which it can go on; [`Error::Io`].
    pub(super) fn next(&mut self, reader: &MessageReader, request: &ScanRequest, on_damage: &OnDamage) -> Result<Option<Place>> {
        let next = self.peek(reader, request, on_damage)?;
        self.taken += 1;
        Ok(next.map(|(offset, unit)| Place {
            physical_offset: unit.physical_offset,
            size: unit.size.cast_unsigned(),
            by: LedBy::Queue(Arc::clone(&self.queue), offset, unit.tags_code),
        }))
    }

    /// The queue offset and the entry of the next message, which stays the next one. A message that is unwanted by its entry is
    /// passed over. An entry that points past the log is damaged, and its message may be wanted.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub(super) fn peek(
        &mut self,
        reader: &MessageReader,
        request: &ScanRequest,
        on_damage: &OnDamage,
    ) -> Result<Option<(i64, CqUnit)>> {
        loop {
            while self.taken < self.block.len() {
                let at = if self.reverse {
                    self.block.len() - 1 - self.taken
                } else {
                    self.taken
                };
                let Some(unit) = self.block.get(at) else { break };
                let is_in_place =
                    request.physical.contains(&unit.physical_offset) || unit.physical_offset >= reader.physical_bounds().end;
                if is_in_place && request.tags.may_match(&self.queue.topic, unit) {
                    return Ok(Some((self.block_start + at as i64, *unit)));
                }
                self.taken += 1;
            }
            // Before an offset is taken: who goes on after an interruption misses no message.
            interrupt::check()?;
            if self.offsets.is_empty() {
                return Ok(None);
            }
            self.block.clear();
            self.taken = 0;
            if self.reverse {
                self.read_backward(reader, on_damage)?;
            } else {
                self.read_forward(reader, on_damage)?;
            }
        }
    }

    /// What is left, as bytes that could be read meanwhile if its messages were empty.
    pub(super) fn left(&self) -> i64 {
        (self.offsets.end - self.offsets.start + (self.block.len() - self.taken.min(self.block.len())) as i64) * READ_ALONE
    }

    /// About the bytes of the messages: the first and the last one tell their size.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn estimate_bytes(&self) -> Result<i64> {
        let Range { start, end } = self.offsets;
        let mut sizes = 0;
        for offset in [start, end - 1] {
            sizes += self
                .queue
                .queue
                .known_unit(offset, &mut EntriesAhead::default())?
                .map_or(0, |unit| i64::from(unit.size));
        }
        Ok((end - start).saturating_mul(sizes / 2 + READ_ALONE))
    }

    /// Leaves out most entries whose messages lie before or after a stretch of the log. Entries ascend.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn narrow(&mut self, reader: &MessageReader, stretch: &Range<i64>) -> Result<()> {
        self.offsets.start = self.around(reader, stretch.start)?.start;
        self.offsets.end = self.around(reader, stretch.end)?.end;
        Ok(())
    }

    /// The first queue offset whose message lies at or past a place of the log; a range with it, where a message on the way
    /// cannot be read: an entry alone may be damaged.
    fn around(&self, reader: &MessageReader, place: i64) -> Result<Range<i64>> {
        let Range { mut start, mut end } = self.offsets;
        while start < end {
            let middle = start.midpoint(end);
            let Some(unit) = self.queue.queue.known_unit(middle, &mut EntriesAhead::default())? else {
                break;
            };
            let by = LedBy::Queue(Arc::clone(&self.queue), middle, unit.tags_code);
            let expected = Place {
                physical_offset: unit.physical_offset,
                size: 0,
                by,
            };
            match reader.log().read(unit.physical_offset, Check::Structure)? {
                LogRecord::Message(message) if expected.is_of(&message.view()) => {}
                _ => break,
            }
            if unit.physical_offset < place {
                start = middle + 1;
            } else {
                end = middle;
            }
        }
        Ok(start..end)
    }

    fn read_forward(&mut self, reader: &MessageReader, on_damage: &OnDamage) -> Result<()> {
        let Range { start, end } = self.offsets;
        self.block_start = start;
        self.queue.queue.add_units(start..end.min(start + BLOCK), &mut self.block)?;
        if !self.block.is_empty() {
            self.offsets.start += self.block.len() as i64;
            return Ok(());
        }
        let found = self.queue.queue.unit(start);
        let next = match &found {
            Ok(Some(_)) => start + 1,
            _ => reader.offset_after(&self.queue.topic, self.queue.id, start)?,
        };
        self.offsets.start = next.clamp(start, end);
        self.take_one(found, self.offsets.start - start, on_damage)
    }

    fn read_backward(&mut self, reader: &MessageReader, on_damage: &OnDamage) -> Result<()> {
        let Range { start, end } = self.offsets;
        self.block_start = start.max(end - BLOCK);
        self.queue.queue.add_units(self.block_start..end, &mut self.block)?;
        if self.block.len() as i64 == end - self.block_start {
            self.offsets.end = self.block_start;
            return Ok(());
        }
        self.block.clear();
        self.block_start = end - 1;
        let found = self.queue.queue.unit(end - 1);
        let before = match &found {
            Ok(Some(_)) => end - 1,
            _ => reader.start_of_gap(&self.queue.topic, self.queue.id, end - 1)?,
        };
        self.offsets.end = before.clamp(start, end);
        self.take_one(found, end - self.offsets.end, on_damage)
    }

    /// Takes what was found at one offset. Damage may stand for `count` offsets: those of missing files.
    fn take_one(&mut self, found: Result<Option<CqUnit>>, count: i64, on_damage: &OnDamage) -> Result<()> {
        match found {
            Ok(unit) => self.block.extend(unit),
            Err(Error::NotFound { .. }) => {}
            Err(damage) => on_damage.pass_over(damage, count)?,
        }
        Ok(())
    }
}
