//! The page cache during reads: read-ahead for a pass over the log and for scattered records, and the release of pages after a pass.
//! Pages that were cached before a pass stay cached: a broker that runs beside may need them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::log::commit_log::log_files::LogFiles;
use crate::storage::MappedFile;

/// Bytes that are looked at together, and that one request to read ahead names. A longer request may be cut off at what the disk takes at
/// once.
const BLOCK: usize = 128 * 1024;
/// Bytes that are read ahead at most.
const MAX_WINDOW: i64 = 4 << 20;
/// Bytes that are dropped at once, about.
const PIECE: i64 = 1 << 20;
/// Bytes before a pass that stay mapped at most: what a process has mapped counts as its memory.
const MAPPED: i64 = 32 << 20;
/// Bytes that are read of a record. Those of a longer one follow when they are asked for.
const RECORD: usize = 4096;
/// Records or places with less between them are read in one piece.
const GAP: usize = 16 * 1024;
/// The number of records that are examined, to learn whether the others are in memory.
const SAMPLES: usize = 8;

/// The read-ahead of a pass that reads records one after the other.
#[derive(Debug, Default)]
pub struct SequentialRead {
    /// The offset of the pass at the last look.
    from: i64,
    /// The offset at which the next look is due.
    due: i64,
    /// The end of the stretch whose pages were looked up in the page cache.
    ahead: i64,
    /// Bytes to look ahead; 0 before the first look. It grows as long as the pass continues without a leap.
    window: i64,
    /// The start of the stretch that the pass has read and that may be mapped.
    mapped: i64,
    /// The pieces that the pass has brought into the page cache, ascending.
    brought: VecDeque<Range<i64>>,
}

impl SequentialRead {
    /// The pass is about to read at `offset`, and goes up to `end`. Costs a comparison most times. A place far from the one before is left
    /// to be read by itself.
    #[inline]
    pub fn at(&mut self, log: &LogFiles, offset: i64, end: i64) {
        if !(self.from..self.due).contains(&offset) {
            self.look(log, offset, end);
        }
    }

    /// The pass is about to read all of a stretch, which comes after the last one, and goes up to `end`. A pass that looks ahead only as it
    /// goes waits for the disk with less asked for.
    pub fn through(&mut self, log: &LogFiles, stretch: Range<i64>, end: i64) {
        for offset in stretch.step_by(BLOCK) {
            self.at(log, offset, end);
        }
    }

    /// Does the same as [`at`](Self::at), and drops the pages before `offset`, which the pass needs no more.
    #[inline]
    pub fn leave_for(&mut self, log: &LogFiles, offset: i64, end: i64) {
        self.drop_before(log, offset);
        self.at(log, offset, end);
    }

    fn look(&mut self, log: &LogFiles, offset: i64, end: i64) {
        let is_first = self.window == 0;
        let goes_on = (self.from..=self.ahead.max(self.due)).contains(&offset);
        self.from = offset;
        if is_first || offset < self.mapped {
            self.mapped = offset;
        }
        if !is_first && !goes_on {
            self.window = BLOCK as i64;
            self.ahead = offset;
            self.due = offset.saturating_add(GAP as i64);
            return;
        }
        self.window = (self.window * 2).clamp(BLOCK as i64, MAX_WINDOW);
        self.ahead = self.ahead.max(offset);
        let until = end.min(offset.saturating_add(self.window));
        while self.ahead < until {
            self.ahead = self.look_at_block(log, self.ahead);
        }
        self.due = if self.ahead < end {
            self.ahead - self.window / 2
        } else {
            self.ahead
        };
    }

    /// Reads the block that holds `offset`, if its first page is not in the page cache, and gives its end. What cannot be read is
    /// left to the pass, which says why.
    fn look_at_block(&mut self, log: &LogFiles, offset: i64) -> i64 {
        let Ok(Some((file, position))) = log.locate(offset) else {
            return log.end_of_segment(offset);
        };
        let start = position - position % BLOCK;
        let end = (start + BLOCK).min(file.len() as usize);
        let block = file.start() as i64 + start as i64..file.start() as i64 + end as i64;
        if !file.is_cached(start..start + 1) {
            let is_new = !file.is_cached(start..end);
            file.prefetch(start..end);
            match self.brought.back_mut() {
                _ if !is_new => {}
                Some(last) if last.end == block.start && start > 0 && last.end - last.start < PIECE => last.end = block.end,
                _ => self.brought.push_back(block.clone()),
            }
        }
        block.end
    }

    /// The pass needs nothing before `offset` any more: what it has brought into the page cache there is dropped.
    pub fn drop_before(&mut self, log: &LogFiles, offset: i64) {
        let passed = offset.min(self.ahead);
        if passed.saturating_sub(self.mapped) >= MAPPED {
            log.release_pages(self.mapped..passed);
            self.mapped = passed;
        }
        while self.brought.front().is_some_and(|piece| piece.end <= offset)
            && let Some(piece) = self.brought.pop_front()
        {
            // What cannot be dropped costs memory and nothing else.
            let _ = log.drop_cached(piece.start as u64..piece.end as u64);
        }
    }

    /// Leaves the pages of the pass in the page cache.
    pub fn keep(&mut self) {
        self.brought.clear();
    }
}

impl LogFiles {
    /// Starts reading the records at these offsets, ascending, from disk, without waiting, unless they seem to be in memory: to ask for one
    /// takes longer than reading it there.
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
