//! The page cache during reads: read-ahead for scans of the log and for scattered records, and the release of pages after a scan.
//! Pages that were cached before a scan stay cached, because a running broker may need them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::log::commit_log::log_files::LogFiles;
use crate::storage::MappedFile;

/// The bytes of one block, for which the page cache is queried and a prefetch is requested. The system may cut off a longer request
/// at the disk's limit.
const BLOCK: usize = 128 * 1024;
/// The largest read-ahead window.
const MAX_WINDOW: i64 = 4 << 20;
/// The approximate number of bytes that are dropped at once.
const PIECE: i64 = 1 << 20;
/// The most bytes before a scan's position that stay mapped: mapped pages count as the memory of the process.
const MAPPED: i64 = 32 << 20;
/// The bytes of a record that are prefetched. The rest of a longer one is read on access.
const RECORD: usize = 4096;
/// Two records with a smaller distance are read in one piece.
const GAP: usize = 16 * 1024;
/// The number of records that are sampled to estimate whether the others are cached.
const SAMPLES: usize = 8;

/// The read-ahead of a scan that reads records in ascending order.
#[derive(Debug, Default)]
pub struct SequentialRead {
    /// The offset of the scan at the last update.
    from: i64,
    /// The offset at which the next update is due.
    due: i64,
    /// The end of the range whose pages were looked up in the page cache.
    ahead: i64,
    /// The read-ahead window in bytes; 0 before the first read. It doubles while the scan is sequential.
    window: i64,
    /// The start of the range that the scan has read and that may be mapped.
    mapped: i64,
    /// The pieces that the scan has brought into the page cache, ascending.
    loaded: VecDeque<Range<i64>>,
}

impl SequentialRead {
    /// Announces a read at `offset` by a scan that ends at `end`. Usually costs one comparison. A read far from the last one causes
    /// no read-ahead.
    #[inline]
    pub fn at(&mut self, log: &LogFiles, offset: i64, end: i64) {
        if !(self.from..self.due).contains(&offset) {
            self.update(log, offset, end);
        }
    }

    /// Announces the read of a whole range, which follows the last one, by a scan that ends at `end`. Announcing it in advance
    /// keeps more requests in the queue of the disk.
    pub fn at_range(&mut self, log: &LogFiles, range: Range<i64>, end: i64) {
        for offset in range.step_by(BLOCK) {
            self.at(log, offset, end);
        }
    }

    /// Announces a read, as [`at`](Self::at) does, and drops the pages before `offset`, which the scan does not need any more.
    #[inline]
    pub fn advance_to(&mut self, log: &LogFiles, offset: i64, end: i64) {
        self.drop_before(log, offset);
        self.at(log, offset, end);
    }

    fn update(&mut self, log: &LogFiles, offset: i64, end: i64) {
        let is_first = self.window == 0;
        let is_sequential = (self.from..=self.ahead.max(self.due)).contains(&offset);
        self.from = offset;
        if is_first || offset < self.mapped {
            self.mapped = offset;
        }
        if !is_first && !is_sequential {
            self.window = BLOCK as i64;
            self.ahead = offset;
            self.due = offset.saturating_add(GAP as i64);
            return;
        }
        self.window = (self.window * 2).clamp(BLOCK as i64, MAX_WINDOW);
        self.ahead = self.ahead.max(offset);
        let until = end.min(offset.saturating_add(self.window));
        while self.ahead < until {
            self.ahead = self.prefetch_block(log, self.ahead);
        }
        self.due = if self.ahead < end {
            self.ahead - self.window / 2
        } else {
            self.ahead
        };
    }

    /// Prefetches the block that contains `offset`, if its first page is not in the page cache, and returns the end of the block. A
    /// failure is left to the scan, which reports it.
    fn prefetch_block(&mut self, log: &LogFiles, offset: i64) -> i64 {
        let Ok(Some((file, position))) = log.locate(offset) else {
            return log.end_of_segment(offset);
        };
        let start = position - position % BLOCK;
        let end = (start + BLOCK).min(file.len() as usize);
        let block = file.start() as i64 + start as i64..file.start() as i64 + end as i64;
        if !file.is_cached(start..start + 1) {
            let is_new = !file.is_cached(start..end);
            file.prefetch(start..end);
            match self.loaded.back_mut() {
                _ if !is_new => {}
                Some(last) if last.end == block.start && start > 0 && last.end - last.start < PIECE => last.end = block.end,
                _ => self.loaded.push_back(block.clone()),
            }
        }
        block.end
    }

    /// Drops the pages before `offset` that the scan has brought into the page cache.
    pub fn drop_before(&mut self, log: &LogFiles, offset: i64) {
        let passed = offset.min(self.ahead);
        if passed.saturating_sub(self.mapped) >= MAPPED {
            log.release_pages(self.mapped..passed);
            self.mapped = passed;
        }
        while self.loaded.front().is_some_and(|piece| piece.end <= offset)
            && let Some(piece) = self.loaded.pop_front()
        {
            // Pages that cannot be dropped only cost memory.
            let _ = log.drop_cached(piece.start as u64..piece.end as u64);
        }
    }

    /// Leaves the pages of the scan in the page cache.
    pub fn keep(&mut self) {
        self.loaded.clear();
    }
}

impl LogFiles {
    /// Prefetches the records at these ascending offsets, without waiting, unless they seem to be cached: a request costs more than
    /// a read from memory.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io).
    pub fn read_ahead(&self, offsets: &[i64]) -> Result<()> {
        if self.seem_cached(offsets)? {
            return Ok(());
        }
        let mut piece: Option<(Arc<MappedFile>, Range<usize>)> = None;
        for offset in offsets {
            if let Some((file, range)) = &mut piece
                && let Some(at) = position_in(file, *offset)
                && at <= range.end + GAP
            {
                range.end = range.end.max((at + RECORD).min(file.len() as usize));
                continue;
            }
            let next = self.locate(*offset)?.map(|(file, at)| {
                let end = (at + RECORD).min(file.len() as usize);
                (file, at..end)
            });
            if let Some((file, range)) = std::mem::replace(&mut piece, next) {
                file.prefetch(range);
            }
        }
        if let Some((file, range)) = piece {
            file.prefetch(range);
        }
        Ok(())
    }

    fn seem_cached(&self, offsets: &[i64]) -> Result<bool> {
        for offset in offsets.iter().step_by((offsets.len() / SAMPLES).max(1)) {
            if self.locate(*offset)?.is_some_and(|(file, at)| !file.is_cached(at..at + 1)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn position_in(file: &MappedFile, offset: i64) -> Option<usize> {
    let offset = u64::try_from(offset).ok()?;
    (file.start()..file.end())
        .contains(&offset)
        .then(|| (offset - file.start()) as usize)
}
