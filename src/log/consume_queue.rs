//! A consume queue: for each queue offset, where in the log its message lies. 20 bytes an entry, no gaps, entry n at byte 20 n.
//!
//! The files hold what was dispatched before the last stop; the in-memory tail holds what the log has beyond them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::error::Result;
use crate::format::{CQ_UNIT_SIZE, CqUnit};
use crate::storage::{Env, MappedFileQueue, MappingPool};

const UNIT: i64 = CQ_UNIT_SIZE as i64;
/// Bytes of a queue file where no file and no option tells: RocketMQ's 300,000 entries.
const DEFAULT_FILE_SIZE: u64 = 6_000_000;

/// One queue of one topic.
#[derive(Debug)]
pub struct ConsumeQueue {
    files: MappedFileQueue,
    /// Queue offsets that the files hold, after the entries ahead of the log were left out.
    on_disk: Range<i64>,
    tail: BTreeMap<i64, CqUnit>,
    min_offset: i64,
}

impl ConsumeQueue {
    /// Lists the queue's files in `dir` and finds its last entry.
    ///
    /// # Errors
    /// As [`MappedFileQueue::load`].
    pub fn load(env: Arc<dyn Env>, dir: &Path, file_size: Option<u64>, pool: Arc<MappingPool>) -> Result<Self> {
        let files = MappedFileQueue::load(env, dir, file_size, pool)?;
        let start = files.first_offset().unwrap_or(0) as i64 / UNIT;
        let mut queue = Self {
            files,
            on_disk: start..start,
            tail: BTreeMap::new(),
            min_offset: start,
        };
        queue.on_disk.end = queue.find_end()?;
        Ok(queue)
    }

    /// Queue offset of the first entry whose message the log still holds.
    pub fn min_offset(&self) -> i64 {
        self.min_offset
    }

    /// Queue offset that the next message gets.
    pub fn max_offset(&self) -> i64 {
        let tail_end = self.tail.last_key_value().map_or(0, |(offset, _)| offset + 1);
        self.on_disk.end.max(tail_end)
    }

    /// First queue offset of the file after the one that holds `offset`.
    pub fn next_file_start(&self, offset: i64) -> i64 {
        let per_file = match self.files.file_size() {
            0 => DEFAULT_FILE_SIZE as i64 / UNIT,
            size => (size as i64 / UNIT).max(1),
        };
        (offset / per_file + 1) * per_file
    }

    /// Whether the entries at `offset` can be read at all: its file is there, or it is in memory.
    pub fn is_readable(&self, offset: i64) -> Result<bool> {
        Ok(self.tail.contains_key(&offset) || self.on_file(offset)?.is_some())
    }

    /// The entry at a queue offset: `None` outside the queue, in a missing file, and for the filler in front of a queue that
    /// does not start at 0.
    pub fn unit(&self, offset: i64) -> Result<Option<CqUnit>> {
        if let Some(unit) = self.tail.get(&offset) {
            return Ok(Some(*unit));
        }
        if !self.on_disk.contains(&offset) {
            return Ok(None);
        }
        Ok(self.on_file(offset)?.filter(|unit| unit.is_valid() && !unit.is_pre_blank()))
    }

    /// The last entry on disk that names a message.
    pub fn last_unit(&self) -> Result<Option<CqUnit>> {
        self.on_disk.end.checked_sub(1).map_or(Ok(None), |last| self.unit(last))
    }

    /// Leaves out the entries on disk that point at or past `log_end`; returns how many.
    pub(crate) fn cut(&mut self, log_end: i64) -> Result<u64> {
        let end = self.search(self.on_disk.clone(), |unit| {
            unit.is_none_or(|unit| unit.physical_offset < log_end)
        })?;
        let cut = self.on_disk.end - end;
        self.on_disk.end = end;
        Ok(cut as u64)
    }

    /// Adds what the log has and the files lack.
    pub(crate) fn extend(&mut self, tail: BTreeMap<i64, CqUnit>) {
        if self.on_disk.is_empty()
            && let Some((first, _)) = tail.first_key_value()
        {
            self.on_disk = *first..*first;
        }
        self.tail.extend(tail);
    }

    /// Moves the smallest offset to the first entry whose message starts at or after `first_physical`.
    pub(crate) fn correct_min_offset(&mut self, first_physical: i64) -> Result<()> {
        let all = self.on_disk.start..self.max_offset();
        let expired = |unit: CqUnit| unit.is_pre_blank() || unit.physical_offset < first_physical;
        self.min_offset = self.search(all, |unit| unit.is_some_and(expired))?;
        Ok(())
    }

    /// The entry as the file has it, whatever it says.
    fn on_file(&self, offset: i64) -> Result<Option<CqUnit>> {
        let Ok(at) = u64::try_from(offset.saturating_mul(UNIT)) else {
            return Ok(None);
        };
        let Some(file) = self.files.find(at)? else { return Ok(None) };
        let mut bytes = [0; CQ_UNIT_SIZE];
        let position = (at - file.start()) as usize;
        if file.read(position, &mut bytes) {
            return Ok(Some(CqUnit::decode(&bytes)));
        }
        file.check_intact(position..position + CQ_UNIT_SIZE)?;
        Ok(None)
    }

    /// The end of the valid entries: they fill files from the front, the rest of a file is zero.
    fn find_end(&self) -> Result<i64> {
        let starts: Vec<i64> = self.files.starts().into_iter().map(|start| start as i64 / UNIT).collect();
        for start in starts.iter().rev() {
            if self.on_file(*start)?.is_some_and(CqUnit::is_valid) {
                let end = self
                    .next_file_start(*start)
                    .min(self.files.end_offset().unwrap_or(0) as i64 / UNIT);
                return self.search(*start..end, |unit| unit.is_some_and(CqUnit::is_valid));
            }
        }
        Ok(starts.first().copied().unwrap_or(0))
    }

    /// First offset of `range` whose entry (`None` in a missing file) does not satisfy `before`; those that do stand in front.
    fn search(&self, range: Range<i64>, before: impl Fn(Option<CqUnit>) -> bool) -> Result<i64> {
        let Range {
            start: mut low,
            end: mut high,
        } = range;
        while low < high {
            let middle = low + (high - low) / 2;
            let unit = match self.tail.get(&middle) {
                Some(unit) => Some(*unit),
                None => self.on_file(middle)?,
            };
            if before(unit) { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }
}
