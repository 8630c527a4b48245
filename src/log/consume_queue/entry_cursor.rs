//! Cursors over the entries of a queue: sequential, and in random order.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{CQ_UNIT_SIZE, CqUnit};
use crate::log::consume_queue::consume_queue::{ConsumeQueue, names_message};
use crate::log::consume_queue::entries::position_in_queue;
use crate::storage::MappedFile;

/// A sequential cursor along a queue. It reads several entries at once, because finding the file of an entry takes ten times as
/// long as reading it. For a queue that only grows at its end.
#[derive(Debug)]
pub struct EntryCursor {
    queue: Arc<ConsumeQueue>,
    /// The number of entries that are read at once.
    at_once: i64,
    /// The queue offset of the first entry that was read.
    start: i64,
    /// Entries of messages, without a gap.
    units: Vec<CqUnit>,
}

impl EntryCursor {
    /// Larger reads are not faster.
    pub const MAX_AT_ONCE: i64 = 32;

    /// Creates a cursor that has read nothing.
    pub fn new(queue: Arc<ConsumeQueue>) -> Self {
        Self::reading_at_once(queue, Self::MAX_AT_ONCE)
    }

    /// Creates a cursor that reads this many entries at once. With very many queues, a small number saves memory.
    pub fn reading_at_once(queue: Arc<ConsumeQueue>, at_once: i64) -> Self {
        Self {
            queue,
            at_once,
            start: 0,
            units: Vec::new(),
        }
    }

    /// Returns the queue offset of the first entry whose message is still in the log.
    pub(crate) fn min_offset(&self) -> i64 {
        self.queue.min_offset()
    }

    /// Returns the entry at an offset, if it was read.
    #[inline]
    pub(crate) fn get(&self, offset: i64) -> Option<CqUnit> {
        let at = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        self.units.get(at).copied()
    }

    /// Returns the entry at an offset, and reads ahead of it.
    ///
    /// # Errors
    /// Those of [`ConsumeQueue::unit`].
    #[inline]
    pub(crate) fn unit(&mut self, offset: i64) -> Result<Option<CqUnit>> {
        self.unit_of(offset, &(offset..i64::MAX), false)
    }

    /// Returns the entry at an offset, in a scan of a range from either end: reads no entry outside of the range.
    ///
    /// # Errors
    /// Those of [`ConsumeQueue::unit`].
    #[inline]
    pub(crate) fn unit_of(&mut self, offset: i64, range: &Range<i64>, reverse: bool) -> Result<Option<CqUnit>> {
        match self.get(offset) {
            Some(unit) => Ok(Some(unit)),
            None => self.read(offset, range, reverse),
        }
    }

    fn read(&mut self, offset: i64, range: &Range<i64>, reverse: bool) -> Result<Option<CqUnit>> {
        let after = offset.saturating_add(1);
        let block = if reverse {
            range.start.max(after.saturating_sub(self.at_once))..after
        } else {
            offset..range.end.min(offset.saturating_add(self.at_once))
        };
        self.start = block.start;
        self.units.clear();
        self.queue.add_units(block, &mut self.units)?;
        match self.get(offset) {
            Some(unit) => Ok(Some(unit)),
            None => self.queue.unit(offset),
        }
    }

    /// Returns the entry at an offset; `None` also for a damaged one. For an entry near the queue's end no file is mapped.
    ///
    /// # Errors
    /// [`Error::Io`]: the entry could not be read.
    #[inline]
    pub(crate) fn known_unit(&mut self, offset: i64) -> Result<Option<CqUnit>> {
        if let Some(unit) = self.get(offset) {
            return Ok(Some(unit));
        }
        if let Some(unit) = self.queue.unit_at_end(offset) {
            return Ok(Some(unit).filter(|unit| names_message(*unit)));
        }
        match self.unit(offset) {
            Err(Error::Corrupt { .. }) => Ok(None),
            found => found,
        }
    }

    /// Drops the entries that were read.
    pub(crate) fn forget(&mut self) {
        self.units.clear();
    }
}

/// A cursor for entries in random order. It keeps the files of the entries that it has read, because finding a file again costs as
/// much as reading several entries. It shows the queue as it was at the creation of the cursor.
#[derive(Debug)]
pub struct ScatteredEntryCursor {
    queue: Arc<ConsumeQueue>,
    /// The queue offsets of its messages.
    offsets: Range<i64>,
    /// The offsets among them whose entries are read from the files.
    in_files: Range<i64>,
    /// The files, by the offset of their first byte.
    files: Vec<Arc<MappedFile>>,
    /// The index of the last file.
    last: usize,
}

impl ScatteredEntryCursor {
    /// Creates a cursor over the current entries of the queue.
    pub fn new(queue: Arc<ConsumeQueue>) -> Self {
        let (offsets, in_files) = queue.extent();
        Self {
            queue,
            offsets,
            in_files,
            files: Vec::new(),
            last: 0,
        }
    }

    /// Returns the number of files that it keeps mapped.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Returns the entry at an offset; `None` for a message that is absent or has expired.
    ///
    /// # Errors
    /// Those of [`ConsumeQueue::unit`].
    #[inline]
    pub fn unit(&mut self, offset: i64) -> Result<Option<CqUnit>> {
        if !self.offsets.contains(&offset) {
            return Ok(None);
        }
        if self.in_files.contains(&offset)
            && let Some(unit) = self.in_file(offset)?
            && unit.is_valid()
            && !unit.is_pre_blank()
        {
            return Ok(Some(unit));
        }
        self.queue.unit(offset)
    }

    /// Prefetches the entry into the processor's cache, if its file is known, so that [`unit`](Self::unit) does not wait for
    /// memory.
    #[inline]
    pub fn touch(&self, offset: i64) {
        if let Some(at) = position_in_queue(offset).filter(|_| self.in_files.contains(&offset))
            && let Some(file) = self.files.get(self.last)
            && (file.start()..file.end()).contains(&at)
        {
            let at = (at - file.start()) as usize;
            file.touch(at..at + CQ_UNIT_SIZE);
        }
    }

    /// Returns the entry of the file; `None` if there is no file, or if it could not be read.
    #[inline]
    fn in_file(&mut self, offset: i64) -> Result<Option<CqUnit>> {
        let Some(at) = position_in_queue(offset) else {
            return Ok(None);
        };
        let holds = |file: &Arc<MappedFile>| (file.start()..file.end()).contains(&at);
        if !self.files.get(self.last).is_some_and(holds) {
            let after = self.files.partition_point(|file| file.start() <= at);
            self.last = after.saturating_sub(1);
            if !self.files.get(self.last).is_some_and(holds) {
                let Some(file) = self.queue.files.find(at)? else {
                    return Ok(None);
                };
                self.files.insert(after, file);
                self.last = after;
            }
        }
        let Some(file) = self.files.get(self.last) else {
            return Ok(None);
        };
        let mut bytes = [0; CQ_UNIT_SIZE];
        let is_read = file.read((at - file.start()) as usize, &mut bytes);
        Ok(is_read.then(|| CqUnit::decode(&bytes)))
    }
}
