//! The segments of the commit log, read: all messages of all topics, in arrival order, in files of equal size named by their
//! first byte's offset. Also the immutable prefix, which is read in place, and the changes that another process makes.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::config::PAGE_SIZE;
use crate::error::{Error, Result};
use crate::format::{
    BLANK_SIZE, CLAIM_SIZE, Check, MIN_RECORD_SIZE, Record, claimed_offset, claimed_size, claimed_store_time, is_zero, locate,
    read_record, segment_name,
};
use crate::log::commit_log::log_record::{
    LogRecord, StoredMessage, claimed_range, no_message_in, nothing_at, record_in, touch_record,
};
use crate::remedy::Remedy;
use crate::storage::{Env, MappedFile, MappedFileQueue, MappingPool, Step};

/// Bytes that are copied at once.
const PIECE: usize = 256 * 1024;
/// Bytes that are compared with zero at once.
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

    /// Returns the size of a segment; 0 while the log has no segment.
    pub fn segment_size(&self) -> u64 {
        self.files.file_size()
    }

    /// Returns the directory of the segments.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Removes a segment.
    pub(super) fn remove(&self, start: i64) -> Result<()> {
        self.files.remove(start as u64)
    }

    /// Reads a range of one segment in pieces, and passes each with its physical offset to `take`.
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

    /// Removes the segments that start after `end`, the newest first.
    pub(super) fn remove_after(&self, env: &dyn Env, end: i64) -> Result<()> {
        for empty in self.files.empty_files() {
            match env.unlink(empty) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Error::io("remove", empty, error)),
                _ => {}
            }
        }
        for start in self.starts().rev().take_while(|start| *start > end) {
            self.remove(start)?;
            env.sync_dir(self.dir(), Step::LogCut)
                .map_err(|error| Error::io("sync", self.dir(), error))?;
        }
        Ok(())
    }

    /// Writes again what recovery has read, durably. Where a sync has failed, the bytes may be in memory alone, and the system
    /// does not write them a second time by itself.
    pub(super) fn rewrite(&self, recovered: Range<i64>) -> Result<()> {
        for start in self.starts() {
            let segment = recovered.start.max(start)..recovered.end.min(start + self.segment_size() as i64);
            if segment.is_empty() {
                continue;
            }
            let path = self.dir().join(segment_name(start as u64));
            let refused = |error| Error::full_or_io("write again", &path, error);
            let file = self.files.open_for_writing(start as u64).map_err(refused)?;
            self.for_each_piece(segment, |at, bytes| {
                file.write_all_at(bytes, (at - start) as u64).map_err(refused)
            })?;
            file.sync(Step::LogRewritten).map_err(refused)?;
        }
        Ok(())
    }

    /// Adds the segment that a writer has just made at the log's end.
    pub(super) fn add(&self, start: u64) {
        self.files.add(start);
    }

    /// Drops cached pages, as [`MappedFileQueue::drop_cached`] does.
    pub(super) fn drop_cached(&self, stretch: Range<u64>) -> io::Result<()> {
        self.files.drop_cached(stretch)
    }

    /// Unmaps pages, as [`MappedFileQueue::release_pages`] does.
    pub(super) fn release_pages(&self, stretch: Range<i64>) {
        self.files.release_pages(stretch.start as u64..stretch.end as u64);
    }

    /// Refuses a log if the device could not read a page of the segment that holds `offset`: the hidden records may be whole.
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
            Some(later) => {
                let path = self.dir.join(segment_name(later as u64));
                let reason = format!("the log ends at {end}, before this segment, so no read reaches its messages");
                Err(Error::corrupt(path, 0, reason).with_remedy(Remedy::SalvagePastEnd))
            }
        }
    }

    /// Returns how often segments were found to be removed by another process.
    pub fn removals(&self) -> u64 {
        self.files.removals()
    }

    /// Returns true if the segment that held `offset` was removed by another process: its messages have expired.
    pub fn is_removed(&self, offset: i64) -> bool {
        u64::try_from(offset).is_ok_and(|offset| self.files.is_removed(offset))
    }

    /// Returns true if the segment that holds `offset` exists.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn holds(&self, offset: i64) -> Result<bool> {
        Ok(self.segment(offset)?.is_some())
    }

    /// Returns the segment that holds `offset`, from its start to its end; `None` if it is missing.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn segment(&self, offset: i64) -> Result<Option<Range<i64>>> {
        let located = self.locate(offset)?;
        Ok(located.map(|(file, _)| file.start() as i64..file.end() as i64))
    }

    /// Returns the start of the first segment: the smallest physical offset. 0 for an empty log.
    pub fn first_offset(&self) -> i64 {
        self.files.first_offset().unwrap_or(0) as i64
    }

    /// Reads the store time that the first record of the segment at `start` claims, and no more of it.
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

    /// Returns true if the segment that holds `offset` is cut short, and others follow it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn is_cut_short(&self, offset: i64) -> Result<bool> {
        let segment = self.segment(offset)?;
        Ok(segment.is_some_and(|segment| segment.end < self.end_of_segment(offset) && self.next_start(offset).is_some()))
    }

    /// Returns the start of the first missing segment that is followed by others.
    pub fn first_hole(&self) -> Option<i64> {
        let starts: Vec<i64> = self.starts().collect();
        let ends = starts.iter().map(|start| start + self.segment_size() as i64);
        let mut pairs = ends.zip(starts.iter().skip(1));
        pairs.find(|(end, next)| end != *next).map(|(end, _)| end)
    }

    /// Returns true if a segment before others is missing or cut short.
    pub fn has_gap(&self) -> bool {
        self.first_hole().is_some() || !self.cut_short().is_empty()
    }

    /// Returns the offset after the last byte at or after `from` that is not zero; `from` if all are zero.
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

    /// Does the same as `written_until`, in the segment at `start`. No byte is read that was never written: a gigabyte of zeros would fill
    /// the memory.
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

    /// Returns the end of the last segment; the log itself ends at or before it.
    pub fn files_end(&self) -> i64 {
        self.files.end_offset().unwrap_or(0) as i64
    }

    /// Returns the starts of the segments, ascending.
    pub fn starts(&self) -> impl DoubleEndedIterator<Item = i64> + use<> {
        self.files.starts().into_iter().map(|start| start as i64)
    }

    /// Returns the start of the first segment after `offset`.
    pub fn next_start(&self, offset: i64) -> Option<i64> {
        let starts = self.files.starts();
        let next = starts.partition_point(|start| (*start as i64) <= offset);
        starts.get(next).map(|start| *start as i64)
    }

    /// Returns the end of the segment that holds `offset`, there or missing.
    pub fn end_of_segment(&self, offset: i64) -> i64 {
        let (start, _) = self.place(offset);
        start.saturating_add(self.segment_size()) as i64
    }

    /// Returns the end of the stretch that starts at `from`, if it ends at the next multiple of `step` bytes in its segment, or with the
    /// segment.
    pub fn end_of_step(&self, from: u64, step: u64) -> u64 {
        let end = self.end_of_segment(from as i64) as u64;
        let start = end.saturating_sub(self.segment_size());
        end.min(start + (from.saturating_sub(start) / step + 1) * step)
    }

    /// Returns the start of the segment that holds `offset`, there or missing, and the position in it. Segments start at multiples of their
    /// size after the first one.
    pub(super) fn place(&self, offset: i64) -> (u64, u64) {
        let (_, shift) = locate(self.first_offset() as u64, self.segment_size());
        let (start, position) = locate((offset.max(0) as u64).saturating_sub(shift), self.segment_size());
        (start + shift, position)
    }

    /// Returns an error about the bytes at `offset`, with the segment, there or missing, and the position in it.
    pub fn corrupt(&self, offset: i64, reason: String) -> Error {
        let (path, offset) = self.path_of(offset);
        Error::corrupt(path, offset, reason)
    }

    /// Reads the record at `offset`, or the reason why there is no record.
    ///
    /// # Errors
    /// [`Error::Io`] when the segment cannot be mapped. Damaged bytes are [`LogRecord::Corrupt`].
    pub fn read(&self, offset: i64, check: Check) -> Result<LogRecord> {
        Ok(match self.locate(offset)? {
            Some((file, position)) => self.read_in(&file, position, check),
            None => LogRecord::Missing,
        })
    }

    /// Reads the record at a position of a segment.
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

    /// Returns the path of the segment that holds `offset`, there or missing, and the position in it.
    pub fn path_of(&self, offset: i64) -> (PathBuf, u64) {
        let (start, position) = self.place(offset);
        (self.dir().join(segment_name(start)), position)
    }

    /// Returns the paths of the files that are not segments.
    pub fn foreign_files(&self) -> impl Iterator<Item = PathBuf> {
        self.files.ignored().iter().map(|name| self.dir().join(name))
    }

    /// Returns the segments without a byte, after the others.
    pub fn empty_files(&self) -> &[PathBuf] {
        self.files.empty_files()
    }

    /// Returns the segments before others that are cut short, and the bytes that they have.
    pub fn cut_short(&self) -> &[(PathBuf, u64)] {
        self.files.cut_short()
    }

    /// Refuses a log whose last segment is cut short: nothing can be written after it. A single segment is recognized by its length.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn expect_whole(&self) -> Result<()> {
        let size = self.segment_size();
        self.files.expect_whole(size, Remedy::ExtendCopy)?;
        let mut starts = self.starts();
        match (starts.next(), starts.next()) {
            (Some(only), None) if !size.is_multiple_of(PAGE_SIZE) => {
                let reason = format!(
                    "the only segment has {size} bytes, and no writer makes segments of such a size: it was cut short or extended; \
                     copy it again"
                );
                Err(Error::corrupt(self.dir().join(segment_name(only as u64)), size, reason))
            }
            _ => Ok(()),
        }
    }

    /// Notes that no byte before `end` changes any more, in the last segment, too: the writer that has appended them has closed the store.
    pub(crate) fn settle(&self, end: i64) {
        // What was settled first stays so.
        let _ = self.settled_until.set(end);
    }

    /// Returns true if the segment never changes and is in memory, so that its bytes are used in place. The last one may be written or
    /// cut by its owner, so its bytes are copied.
    pub(super) fn is_sealed(&self, file: &MappedFile) -> bool {
        file.is_in_memory() && file.end() as i64 != self.files_end()
    }

    /// Returns the position in a segment up to which its bytes never change and are in memory.
    pub(super) fn settled_in(&self, file: &MappedFile) -> usize {
        if self.is_sealed(file) {
            return file.len() as usize;
        }
        let end = self.settled_until.get().filter(|_| file.is_in_memory());
        end.map_or(0, |end| (end - file.start() as i64).clamp(0, file.len() as i64) as usize)
    }

    /// Lists the segments again, and drops the mapping of the segment that holds `end`, where the log ended, if it does not show the bytes
    /// of the file: a file in a lower layer of overlayfs that was opened for writing since.
    ///
    /// # Errors
    /// As [`LogFiles::load`].
    pub fn list_again(&self, end: i64) -> Result<()> {
        self.files.list_again()?;
        let mut head = [0; BLANK_SIZE];
        let is_read = self.files.read_reopened(end.cast_unsigned(), &mut head)?.is_some();
        if is_read && head != [0; BLANK_SIZE] && !self.may_go_on(end)? {
            self.files.forget_mappings(end.cast_unsigned());
        }
        Ok(())
    }

    /// Gets ready to read past `end`, where the log ended. If the log may continue after the last segment that is known, the
    /// segments are listed again. Those after `end` may not be the same files any more, because a close removes them and the next
    /// open makes others.
    ///
    /// # Errors
    /// As [`LogFiles::load`].
    pub fn prepare_growth(&self, end: i64) -> Result<()> {
        let next = self.end_of_segment(end);
        if next >= self.files_end() {
            self.files.list_again()?;
        }
        self.files.forget_mappings(next.cast_unsigned());
        Ok(())
    }

    /// Returns true if a record may start at `end`, where the log ended. Returns false if mappings show zeros there. It is the cheapest
    /// check.
    ///
    /// # Errors
    /// As [`LogFiles::read`].
    pub fn may_go_on(&self, end: i64) -> Result<bool> {
        let mut head = [0; BLANK_SIZE];
        Ok(match self.locate(end)? {
            Some((file, position)) => file.read(position, &mut head) && head != [0; BLANK_SIZE],
            // The next segment may be there by now.
            None => true,
        })
    }

    /// Returns true if the record that started at `offset`, and was stored at this time, has been replaced or removed, and not because it
    /// expired: then its writer was killed, and the next one has cut the log. Lists the files again if the record's segment is gone.
    ///
    /// # Errors
    /// As [`LogFiles::load`].
    pub fn has_lost(&self, offset: i64, store_time: i64) -> Result<bool> {
        let mut head = [0; CLAIM_SIZE];
        if self.files.read_reopened(offset.cast_unsigned(), &mut head)?.is_some() {
            return Ok((claimed_offset(&head), claimed_store_time(&head)) != (Some(offset), Some(store_time)));
        }
        // The segment may have expired since the files were listed.
        self.files.list_again()?;
        Ok(!self.is_removed(offset) || self.next_start(offset).is_none())
    }

    /// Returns the last record of the log at this moment, at `from` or after, by the lengths of records alone: from its start to the end of
    /// the log. Empty if there is no record. A record is checked more slowly than a writer appends the next one, so a scan without this
    /// bound would follow the writer for as long as its segment has room. `from` is where a record starts, or may start.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub fn last_seen(&self, from: i64) -> Result<Range<i64>> {
        let mut at = self.newest_written_start(from)?;
        let mut last = None;
        while let Some((file, position)) = self.locate(at)? {
            let mut position = position as u64;
            let next = loop {
                let mut head = [0; CLAIM_SIZE];
                let len = head.len().min((file.len() - position) as usize);
                let head = head.get_mut(..len).unwrap_or_default();
                if !file.read(position as usize, head) {
                    break None;
                }
                match size_of_record(head, (file.start() + position) as i64) {
                    Some(size) if position + size <= file.len() => {
                        last = Some((file.start() + position) as i64);
                        position += size;
                    }
                    _ => break next_segment(head, &file, position),
                }
            };
            at = (file.start() + position) as i64;
            match next.filter(|next| *next < self.files_end()) {
                Some(next) => at = next,
                None => break,
            }
        }
        Ok(last.unwrap_or(at)..at)
    }

    /// Returns the start of the newest segment after `from` in which something was written; `from` if no such segment exists.
    fn newest_written_start(&self, from: i64) -> Result<i64> {
        for start in self.starts().rev().take_while(|start| *start > from) {
            let mut head = [0; BLANK_SIZE];
            if let Some((file, position)) = self.locate(start)?
                && file.read(position, &mut head)
                && !matches!(read_record(&head, Check::Structure), Record::End)
            {
                return Ok(start);
            }
        }
        Ok(from)
    }
}

/// Returns the position of the last byte that is not zero.
fn last_not_zero(bytes: &[u8]) -> Option<usize> {
    let (number, chunk) = bytes.chunks(CHUNK).enumerate().rev().find(|(_, chunk)| !is_zero(chunk))?;
    let last = chunk.iter().rposition(|byte| *byte != 0)?;
    Some(number * CHUNK + last)
}

/// Returns the start of the next segment if a BLANK with this head, at a position of a segment, ends with the segment.
fn next_segment(head: &[u8], file: &MappedFile, position: u64) -> Option<i64> {
    match read_record(head, Check::Structure) {
        Record::Blank { size } => (position + u64::from(size) == file.len()).then_some(file.end() as i64),
        _ => None,
    }
}

/// Returns the size that the record with this head claims, if it names `at` as its physical offset.
fn size_of_record(head: &[u8], at: i64) -> Option<u64> {
    let claimed = head.first_chunk().map(|head| claimed_size(*head))?;
    (claimed >= MIN_RECORD_SIZE && claimed_offset(head) == Some(at)).then_some(claimed as u64)
}
