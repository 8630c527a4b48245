//! Reading entries of a queue one by one, wherever they lie.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::format::{CQ_UNIT_SIZE, CqUnit};
use crate::log::consume_queue::consume_queue::ConsumeQueue;
use crate::log::consume_queue::entries::position_in_queue;
use crate::storage::MappedFile;

/// Reads one entry at a time, and keeps the files of those that it has read: looking for a file anew costs as much as reading
/// several entries. Shows the queue as it was when the cursor was made.
#[derive(Debug)]
pub struct UnitCursor {
    queue: Arc<ConsumeQueue>,
    /// The queue offsets of its messages.
    offsets: Range<i64>,
    /// Those of them whose entries are read in the files.
    in_files: Range<i64>,
    /// By the offset of the first byte.
    files: Vec<Arc<MappedFile>>,
    /// The place of the file that was read last.
    last: usize,
}

impl UnitCursor {
    /// A cursor over the entries that the queue has now.
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

    /// Files that it keeps mapped.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// As [`ConsumeQueue::unit`], and `None` for a message that has expired.
    ///
    /// # Errors
    /// As [`ConsumeQueue::unit`].
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

    /// Brings the entry into the cache of the processor, if its file was met before, so that [`unit`](Self::unit) does not wait for it.
    #[inline]
    pub fn touch(&self, offset: i64) {
        if let Some(at) = position_in_queue(offset).filter(|_| self.in_files.contains(&offset))
            && let Some(file) = self.files.get(self.last)
            && (file.start()..file.end()).contains(&at)
        {
            let at = (at - file.start()) as usize;
            file.touch(at);
            file.touch(at + CQ_UNIT_SIZE - 1);
        }
    }

    /// The entry as the file has it; `None` if there is no file, or if it could not be read.
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
