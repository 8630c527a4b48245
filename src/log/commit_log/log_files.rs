//! The segments of the commit log, read: all messages of all topics, in arrival order, in files of equal size named by their
//! first byte's offset.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::format::{CLAIM_SIZE, Check, claimed_store_time, is_zero, locate, segment_name};
use crate::log::commit_log::log_record::{
    LogRecord, StoredMessage, claimed_range, no_message_in, nothing_at, record_in, touch_record,
};
use crate::storage::{Env, MappedFile, MappedFileQueue, MappingPool};

/// Bytes that are copied at once.
const PIECE: usize = 256 * 1024;
/// Bytes that are held against zero at once.
const CHUNK: usize = 4096;

/// The segments of a commit log as the files have them. Where the log ends in them is decided by `recovery::plan`.
#[derive(Debug)]
pub struct LogFiles {
    dir: PathBuf,
    pub(super) files: MappedFileQueue,
    /// See [`LogFiles::settle`].
    pub(super) settled_until: OnceLock<i64>,
}

impl LogFiles {
    /// Lists the segments in `dir`; nothing is mapped yet.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a segment that is too long, or at the wrong offset, [`Error::Invalid`] for a `segment_size` that the
    /// segments contradict, [`Error::Io`].
    pub fn load(env: Arc<dyn Env>, dir: &Path, segment_size: Option<u64>) -> Result<Self> {
        let files = MappedFileQueue::load_with_gaps(env, dir, segment_size, MappingPool::shared());
        Ok(Self {
            dir: dir.to_owned(),
            files: files.map_err(|error| error.of_option("mapped_file_size_commit_log"))?,
            settled_until: OnceLock::new(),
        })
    }

    /// Bytes of a segment; 0 while there is none.
    pub fn segment_size(&self) -> u64 {
        self.files.file_size()
    }

    /// The directory of the segments.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Removes a segment.
    pub(super) fn remove(&self, start: i64) -> Result<()> {
        self.files.remove(start as u64)
    }

    /// The bytes of one segment from `from` on, up to `until`, in pieces with the physical offset of each.
    pub(super) fn for_each_piece(&self, range: Range<i64>, mut take: impl FnMut(i64, &[u8]) -> Result<()>) -> Result<()> {
        let mut at = range.start;
        let mut bytes = vec![0; PIECE];
        while at < range.end {
            let Some((file, position)) = self.locate(at)? else {
                return Ok(());
            };
            let end = range.end.min(file.end() as i64).min(at + PIECE as i64);
            let piece = bytes.get_mut(..(end - at) as usize).unwrap_or_default();
            if !file.read(position, piece) {
                file.check_intact(position..position + piece.len())?;
            }
            take(at, piece)?;
            at = end;
        }
        Ok(())
    }

    /// Adds the segment that a writer has just made at the log's end.
    pub(super) fn add(&self, start: u64) {
        self.files.add(start);
    }

    /// As [`MappedFileQueue::drop_cached`].
    pub(super) fn drop_cached(&self, stretch: Range<u64>) -> io::Result<()> {
        self.files.drop_cached(stretch)
    }

    /// As [`MappedFileQueue::let_go`].
    pub(super) fn let_go(&self, stretch: Range<i64>) {
        self.files.let_go(stretch.start as u64..stretch.end as u64);
    }

    /// Refuses a log of which the device could not read a page in the segment that holds `offset`: what it hides may be whole.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn expect_readable(&self, offset: i64) -> Result<()> {
        let Some((file, position)) = self.locate(offset)? else {
            return Ok(());
        };
        let mut looked_at = [0];
        if file.read(position, &mut looked_at) {
            return file.check_intact(0..file.len() as usize);
        }
        file.check_intact(position..position + 1)
    }

    /// Refuses a closed log with segments after its `end`.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn expect_last_segment_at(&self, end: i64) -> Result<()> {
        match self.next_start(end) {
            None => Ok(()),
            Some(later) => Err(Error::Corrupt {
                path: self.dir.join(segment_name(later as u64)),
                offset: 0,
                reason: format!(
                    "the log ends at {end}, before this segment, so no read reaches its messages; open the store with \
                     recovery=\"salvage\" to keep every whole message (with mode \"r\" too, to read them without a change)"
                ),
            }),
        }
    }

    /// How often segments were found to be removed by another process.
    pub fn removals(&self) -> u64 {
        self.files.removals()
    }

    /// Whether the segment that held `offset` was removed by another process: what it held expired.
    pub fn is_removed(&self, offset: i64) -> bool {
        u64::try_from(offset).is_ok_and(|offset| self.files.is_removed(offset))
    }

    /// Whether the segment that holds `offset` is there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn holds(&self, offset: i64) -> Result<bool> {
        Ok(self.segment(offset)?.is_some())
    }

    /// The segment that holds `offset`, from its start to its end; `None` if it is not there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn segment(&self, offset: i64) -> Result<Option<Range<i64>>> {
        let located = self.locate(offset)?;
        Ok(located.map(|(file, _)| file.start() as i64..file.end() as i64))
    }

    /// Start of the first segment: the smallest physical offset. 0 for an empty log.
    pub fn first_offset(&self) -> i64 {
        self.files.first_offset().unwrap_or(0) as i64
    }

    /// The store time that the first record of the segment at `start` claims. Reads no more of it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn claimed_store_time(&self, start: i64) -> Result<Option<i64>> {
        let Some((file, position)) = self.locate(start)? else {
            return Ok(None);
        };
        let mut head = [0; CLAIM_SIZE];
        Ok(file.read(position, &mut head).then(|| claimed_store_time(&head)).flatten())
    }

    /// Whether the segment that holds `offset` is cut short, and others follow it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn is_cut_short(&self, offset: i64) -> Result<bool> {
        let segment = self.segment(offset)?;
        Ok(segment.is_some_and(|segment| segment.end < self.end_of_segment(offset) && self.next_start(offset).is_some()))
    }

    /// Where the first missing segment is that is followed by others.
    pub fn first_hole(&self) -> Option<i64> {
        let starts: Vec<i64> = self.starts().collect();
        let ends = starts.iter().map(|start| start + self.segment_size() as i64);
        let mut pairs = ends.zip(starts.iter().skip(1));
        pairs.find(|(end, next)| end != *next).map(|(end, _)| end)
    }

    /// Whether a segment before others is missing or cut short.
    pub fn has_gap(&self) -> bool {
        self.first_hole().is_some() || !self.cut_short().is_empty()
    }

    /// The offset after the last byte at or after `from` that is not zero; `from` if there is none.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn written_until(&self, from: i64) -> Result<i64> {
        for start in self.starts().rev() {
            let segment = from.max(start)..start + self.segment_size() as i64;
            if segment.is_empty() {
                break;
            }
            let end = self.written_end(start, segment.start)?;
            // Cached pages of zeros count as written: the next open would read them again, and more of them each time.
            let _ = self.drop_cached(end.unwrap_or(segment.start) as u64..segment.end as u64);
            if let Some(end) = end {
                return Ok(end);
            }
        }
        Ok(from)
    }

    /// As `written_until`, in the segment at `start`. No byte is read that was never written: a gigabyte of zeros would fill the memory.
    fn written_end(&self, start: i64, from: i64) -> Result<Option<i64>> {
        let Some(file) = self.files.open(start as u64)? else {
            return Ok(None);
        };
        let from = (from - start) as u64;
        let mut piece = vec![0; PIECE];
        for part in file.written().iter().rev() {
            let first = part.start.max(from);
            let mut until = part.end;
            while until > first {
                let at = until.saturating_sub(PIECE as u64).max(first);
                let bytes = piece.get_mut(..(until - at) as usize).unwrap_or_default();
                let read = file.read(at, bytes)?;
                if let Some(last) = last_not_zero(bytes.get(..read).unwrap_or_default()) {
                    return Ok(Some(start + at as i64 + last as i64 + 1));
                }
                until = at;
            }
        }
        Ok(None)
    }

    /// End of the last segment; the log itself ends at or before it.
    pub fn files_end(&self) -> i64 {
        self.files.end_offset().unwrap_or(0) as i64
    }

    /// Starts of the segments, ascending.
    pub fn starts(&self) -> impl DoubleEndedIterator<Item = i64> + use<> {
        self.files.starts().into_iter().map(|start| start as i64)
    }

    /// Start of the first segment after `offset`.
    pub fn next_start(&self, offset: i64) -> Option<i64> {
        let starts = self.files.starts();
        let next = starts.partition_point(|start| (*start as i64) <= offset);
        starts.get(next).map(|start| *start as i64)
    }

    /// End of the segment that holds `offset`, there or missing.
    pub fn end_of_segment(&self, offset: i64) -> i64 {
        let (start, _) = self.place(offset);
        start.saturating_add(self.segment_size()) as i64
    }

    /// The start of the segment that holds `offset`, there or missing, and the position in it. Segments start at multiples of their size
    /// after the first one.
    pub(super) fn place(&self, offset: i64) -> (u64, u64) {
        let (_, shift) = locate(self.first_offset() as u64, self.segment_size());
        let (start, position) = locate((offset.max(0) as u64).saturating_sub(shift), self.segment_size());
        (start + shift, position)
    }

    /// An error about what stands at `offset`, or should: with the segment, there or missing, and the position in it.
    pub fn corrupt(&self, offset: i64, reason: String) -> Error {
        let (path, offset) = self.path_of(offset);
        Error::Corrupt { path, offset, reason }
    }

    /// Reads what stands at `offset`.
    ///
    /// # Errors
    /// [`Error::Io`] when the segment cannot be mapped. What is wrong with the bytes is [`LogRecord::Corrupt`].
    pub fn read(&self, offset: i64, check: Check) -> Result<LogRecord> {
        Ok(match self.locate(offset)? {
            Some((file, position)) => self.read_in(&file, position, check),
            None => LogRecord::Missing,
        })
    }

    /// Reads what stands at a position of a segment.
    fn read_in(&self, file: &Arc<MappedFile>, position: usize, check: Check) -> LogRecord {
        touch_record(file, position);
        let is_sealed = self.is_sealed(file);
        let select = |range| if is_sealed { file.select(range) } else { file.copy(range) };
        let Some(buffer) = claimed_range(file, position).and_then(select) else {
            return nothing_at(file, position);
        };
        match record_in(file, position, buffer.bytes(), check) {
            Ok(layout) => LogRecord::Message(StoredMessage::new(buffer, layout)),
            Err(found) => no_message_in(file, position, buffer.bytes(), found),
        }
    }

    pub(super) fn locate(&self, offset: i64) -> Result<Option<(Arc<MappedFile>, usize)>> {
        let Ok(offset) = u64::try_from(offset) else { return Ok(None) };
        let file = self.files.find(offset)?;
        Ok(file.map(|file| {
            let position = (offset - file.start()) as usize;
            (file, position)
        }))
    }
}

/// The position of the last byte that is not zero.
fn last_not_zero(bytes: &[u8]) -> Option<usize> {
    let (number, chunk) = bytes.chunks(CHUNK).enumerate().rev().find(|(_, chunk)| !is_zero(chunk))?;
    let last = chunk.iter().rposition(|byte| *byte != 0)?;
    Some(number * CHUNK + last)
}
