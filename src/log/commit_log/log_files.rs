//! The segments of the commit log, read: all messages of all topics, in the order of arrival, in files of equal size named by the
//! offset of their first byte. Also the immutable prefix, which is read in place, and the detection of changes by another process.

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
    LogRecord, StoredMessage, USUAL_RECORD, claimed_range, no_message_in, record_in, touch_record, unreadable_at,
};
use crate::log::trim_note::{load_trim_note, save_trim_note};
use crate::remedy::Remedy;
use crate::storage::{AppendFile, Env, Expired, File, MappedFile, MappedFileQueue, MappingPool, Step, remove_file};

/// The bytes that are copied at once.
const PIECE: usize = 256 * 1024;
/// The bytes that are compared with zero at once.
const CHUNK: usize = 4096;

/// The segments of a commit log as the files contain them. `recovery::plan` decides where the log ends in them.
#[derive(Debug)]
pub struct LogFiles {
    dir: PathBuf,
    pub(super) files: MappedFileQueue,
    /// The end of the immutable prefix in the last segment; see [`LogFiles::set_immutable_until`].
    pub(super) immutable_until: OnceLock<i64>,
}

impl LogFiles {
    /// Lists the segments in the directory `dir` of a store, without mapping any. Segments before a hole that a trim explains have
    /// expired.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a segment that is too long, or at the wrong offset, [`Error::Invalid`] for a `segment_size` that the
    /// segments contradict, [`Error::Io`].
    pub fn load(env: Arc<dyn Env>, dir: &Path, segment_size: Option<u64>) -> Result<Self> {
        let notes = env.clone();
        let files = MappedFileQueue::load_with_gaps(env, dir, segment_size, MappingPool::shared());
        let mut log = Self {
            dir: dir.to_owned(),
            files: files.map_err(|error| error.of_option("mapped_file_size_commit_log"))?,
            immutable_until: OnceLock::new(),
        };
        if log.first_hole().is_some()
            && let Some(begins_at) = load_trim_note(notes.as_ref(), log.root())
            && let Some(first) = log.holes().map(|hole| hole.end).filter(|end| *end <= begins_at).last()
        {
            log.files.begin_at(first as u64);
        }
        Ok(log)
    }

    /// Returns the directory of the store.
    fn root(&self) -> &Path {
        self.dir.parent().unwrap_or(&self.dir)
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
        self.remove_leftovers(env)?;
        for start in self.starts().rev().take_while(|start| *start > end) {
            self.remove(start)?;
            env.sync_dir(self.dir(), Step::LogCut)
                .map_err(|error| Error::io("sync", self.dir(), error))?;
        }
        Ok(())
    }

    /// Removes the segments that end at or before `until`, oldest first, and never the last one, durably.
    ///
    /// A note says before where the log will begin, so that one sync is enough: see [`load_trim_note`]. Where the note cannot be stored,
    /// as on a full disk, the oldest segment is removed durably first, which makes room, and so on.
    ///
    /// # Errors
    /// [`Error::Io`]: the last removals may not be durable.
    pub(crate) fn expire(&self, env: &dyn Env, until: i64) -> Result<Expired> {
        self.remove_leftovers(env)?;
        let mut expired = Expired::default();
        let mut is_noted = false;
        loop {
            let end = self.end_of_segment(self.first_offset());
            if end > until {
                // After the removal of the only segment there may be room for the note.
                if !is_noted && !expired.files.is_empty() {
                    let _ = save_trim_note(env, self.root(), until);
                }
                return Ok(expired);
            }
            is_noted = is_noted || save_trim_note(env, self.root(), until).is_ok();
            let removed = self.files.expire(if is_noted { until } else { end } as u64);
            let is_over = removed.files.is_empty() || removed.refused.is_some();
            env.sync_dir(self.dir(), Step::LogExpired)
                .map_err(|error| Error::io("sync", self.dir(), error))?;
            expired.files.extend(removed.files);
            expired.held_bytes += removed.held_bytes;
            expired.refused = removed.refused;
            if is_over {
                return Ok(expired);
            }
        }
    }

    /// Returns the physical offsets from `since` to the start of the log that no trim has removed, if there are any.
    pub(crate) fn untrimmed_before(&self, env: &dyn Env, since: i64) -> Option<Range<i64>> {
        let trimmed_until = load_trim_note(env, self.root()).unwrap_or(since);
        let missing = since.max(trimmed_until)..self.first_offset();
        (!missing.is_empty()).then_some(missing)
    }

    /// Removes the segments whose removal a power failure has interrupted. Their removal need not be durable: the note stays.
    fn remove_leftovers(&self, env: &dyn Env) -> Result<()> {
        self.files
            .leftovers()
            .iter()
            .try_for_each(|leftover| remove_file(env, leftover))
    }

    /// Rewrites the recovered range, durably. After a failed sync the bytes may be in memory only, and the system does not write
    /// them again by itself.
    pub(super) fn rewrite(&self, recovered: Range<i64>) -> Result<()> {
        for start in self.starts() {
            let segment = recovered.start.max(start)..recovered.end.min(start + self.segment_size() as i64);
            if segment.is_empty() {
                continue;
            }
            let path = self.dir().join(segment_name(start as u64));
            let refused = |error| Error::full_or_io("rewrite", &path, error);
            let file = self.files.open_for_writing(start as u64).map_err(refused)?;
            self.copy(segment, start, file.as_ref())?;
            file.sync(Step::LogRewritten).map_err(refused)?;
        }
        Ok(())
    }

    /// Copies a range of the segment at `start` to a file of that segment.
    fn copy(&self, range: Range<i64>, start: i64, file: &dyn File) -> Result<()> {
        self.for_each_piece(range, |at, bytes| {
            let written = file.write_all_at(bytes, (at - start) as u64);
            written.map_err(|error| Error::full_or_io("write", &self.path_of(start).0, error))
        })
    }

    /// Replaces a segment, durably, by a copy that has its bytes in this range, from its start on, and zeros after them.
    pub(super) fn replace_segment(&self, env: &dyn Env, kept: Range<i64>) -> Result<()> {
        let start = kept.start;
        AppendFile::replace(env, self.dir(), start as u64, self.segment_size(), |file| {
            self.copy(kept, start, file)
        })?;
        self.add(start as u64);
        Ok(())
    }

    /// Creates, durably, the first segment of a log that begins at `start`.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`].
    pub(crate) fn begin(&self, env: &dyn Env, start: u64, size: u64) -> Result<()> {
        AppendFile::create(env, self.dir(), start, size, None)?.sync_name(env)?;
        self.add(start);
        Ok(())
    }

    /// Adds the segment that a writer has just created at the log's end.
    pub(super) fn add(&self, start: u64) {
        self.files.add(start);
    }

    /// Drops pages from the page cache, as [`MappedFileQueue::drop_cached`] does.
    pub(super) fn drop_cached(&self, range: Range<u64>) -> io::Result<()> {
        self.files.drop_cached(range)
    }

    /// Unmaps pages, as [`MappedFileQueue::release_pages`] does.
    pub(super) fn release_pages(&self, range: Range<i64>) {
        self.files.release_pages(range.start as u64..range.end as u64);
    }

    /// Refuses a log if a page of the segment that contains `offset` is unreadable: the hidden records may be intact.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn expect_readable(&self, offset: i64) -> Result<()> {
        let Some((file, position)) = self.locate(offset)? else {
            return Ok(());
        };
        let mut byte = [0];
        if file.read(position, &mut byte) {
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

    /// Returns the number of times that another process was found to have removed segments.
    pub fn removals(&self) -> u64 {
        self.files.removals()
    }

    /// Returns true if another process has removed the segment that contained `offset`: its messages have expired.
    pub fn is_removed(&self, offset: i64) -> bool {
        u64::try_from(offset).is_ok_and(|offset| self.files.is_removed(offset))
    }

    /// Returns true if a segment contains `offset`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn holds(&self, offset: i64) -> Result<bool> {
        Ok(self.segment(offset)?.is_some())
    }

    /// Returns the range of the segment that contains `offset`; `None` if it is missing.
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

    /// Reads the store time that the first record of the segment at `start` claims, and no more of the record.
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

    /// Returns true if the segment that contains `offset` is cut short, and others follow it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn is_cut_short(&self, offset: i64) -> Result<bool> {
        let segment = self.segment(offset)?;
        Ok(segment.is_some_and(|segment| segment.end < self.end_of_segment(offset) && self.next_start(offset).is_some()))
    }

    /// Returns the start of the first missing segment that is followed by others.
    pub fn first_hole(&self) -> Option<i64> {
        self.holes().next().map(|hole| hole.start)
    }

    /// Returns the ranges of missing segments that are followed by others, ascending.
    fn holes(&self) -> impl Iterator<Item = Range<i64>> + use<> {
        let size = self.segment_size() as i64;
        let pairs = self.starts().zip(self.starts().skip(1));
        pairs
            .map(move |(start, next)| start + size..next)
            .filter(|hole| hole.start != hole.end)
    }

    /// Returns true if a segment before others is missing or cut short.
    pub fn has_gap(&self) -> bool {
        self.first_hole().is_some() || !self.cut_short().is_empty()
    }

    /// Returns the offset after the last non-zero byte at or after `from`; `from` if all are zero.
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

    /// Finds the end as `written_until` does, in the segment at `start`. Bytes that were never written are not read: a gigabyte of
    /// zeros would fill the memory.
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

    /// Returns the start of the segment that contains `offset`, whether it exists or not.
    pub fn start_of_segment(&self, offset: i64) -> i64 {
        self.segment_of(offset).0 as i64
    }

    /// Returns the end of the segment that contains `offset`, whether it exists or not.
    pub fn end_of_segment(&self, offset: i64) -> i64 {
        let (start, _) = self.segment_of(offset);
        start.saturating_add(self.segment_size()) as i64
    }

    /// Returns the end of the range that starts at `from` and ends at the next multiple of `step` bytes in its segment, or with the
    /// segment.
    pub fn end_of_step(&self, from: u64, step: u64) -> u64 {
        let end = self.end_of_segment(from as i64) as u64;
        let start = end.saturating_sub(self.segment_size());
        end.min(start + (from.saturating_sub(start) / step + 1) * step)
    }

    /// Returns the start of the segment that contains `offset`, whether it exists or not, and the position in it. Segments start at
    /// multiples of their size after the first one.
    pub(super) fn segment_of(&self, offset: i64) -> (u64, u64) {
        let (_, shift) = locate(self.first_offset() as u64, self.segment_size());
        let (start, position) = locate((offset.max(0) as u64).saturating_sub(shift), self.segment_size());
        (start + shift, position)
    }

    /// Returns an error about the bytes at `offset`, with the path of the segment and the position in it.
    pub fn corrupt(&self, offset: i64, reason: String) -> Error {
        let (path, offset) = self.path_of(offset);
        Error::corrupt(path, offset, reason)
    }

    /// Reads the record at `offset`, or the reason why there is no record.
    ///
    /// # Errors
    /// [`Error::Io`] if the segment cannot be mapped. Damaged bytes are [`LogRecord::Corrupt`].
    pub fn read(&self, offset: i64, check: Check) -> Result<LogRecord> {
        Ok(match self.locate(offset)? {
            Some((file, position)) => self.read_in(&file, position, check),
            None => LogRecord::Missing,
        })
    }

    /// Reads the record at a position of a segment.
    fn read_in(&self, file: &Arc<MappedFile>, position: usize, check: Check) -> LogRecord {
        touch_record(file, position, USUAL_RECORD);
        let immutable = self.immutable_len(file);
        let select = |range: Range<usize>| {
            if range.end <= immutable {
                file.select(range)
            } else {
                file.copy(range)
            }
        };
        let Some(buffer) = claimed_range(file, position).and_then(select) else {
            return unreadable_at(file, position);
        };
        match record_in(file, position, buffer.bytes(), check) {
            Ok(layout) => LogRecord::Message(StoredMessage::new(buffer, layout)),
            Err(found) => no_message_in(file, position, buffer.bytes(), found),
        }
    }

    /// Fills `into` with bytes of one segment, from `offset` on.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the log has no such bytes, or they cannot be read; [`Error::Io`].
    pub(crate) fn fill(&self, offset: i64, into: &mut [u8]) -> Result<()> {
        let (file, position) = self.segment_at(offset)?;
        if !file.read(position, into) {
            file.check_intact(position..position + into.len())?;
            return Err(self.corrupt(offset, format!("the segment has no {} bytes from here on", into.len())));
        }
        file.check_intact(position..position + into.len())
    }

    /// Returns the segment that contains `offset`, and the position in it, to send bytes that no process writes any more.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the segment is missing; [`Error::Io`].
    pub(crate) fn segment_at(&self, offset: i64) -> Result<(Arc<MappedFile>, usize)> {
        let located = self.locate(offset)?;
        located.ok_or_else(|| self.corrupt(offset, "the segment is missing".to_owned()))
    }

    pub(super) fn locate(&self, offset: i64) -> Result<Option<(Arc<MappedFile>, usize)>> {
        let Ok(offset) = u64::try_from(offset) else { return Ok(None) };
        let file = self.files.find(offset)?;
        Ok(file.map(|file| {
            let position = (offset - file.start()) as usize;
            (file, position)
        }))
    }

    /// Returns the path of the segment that contains `offset`, whether it exists or not, and the position in it.
    pub fn path_of(&self, offset: i64) -> (PathBuf, u64) {
        let (start, position) = self.segment_of(offset);
        (self.dir().join(segment_name(start)), position)
    }

    /// Returns the paths of the files that are not segments.
    pub fn foreign_files(&self) -> impl Iterator<Item = PathBuf> {
        self.files.ignored().iter().map(|name| self.dir().join(name))
    }

    /// Returns the empty segments after the others.
    pub fn empty_files(&self) -> &[PathBuf] {
        self.files.empty_files()
    }

    /// Returns the segments before others that are cut short, with their lengths.
    pub fn cut_short(&self) -> &[(PathBuf, u64)] {
        self.files.cut_short()
    }

    /// Refuses a log whose last segment is cut short, because it cannot be appended to. A single segment is recognized by its
    /// length.
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

    /// Sets, once, the immutable prefix up to `end` in the last segment: the writer of these bytes has closed the store.
    pub(crate) fn set_immutable_until(&self, end: i64) {
        // The first value stays.
        let _ = self.immutable_until.set(end);
    }

    /// Returns true if the segment is immutable and mapped, so that its bytes can be used in place. The last one may be written or
    /// cut by its owner, so its bytes are copied.
    pub(super) fn is_sealed(&self, file: &MappedFile) -> bool {
        file.is_in_memory() && file.end() as i64 != self.files_end()
    }

    /// Returns the number of bytes from the start of a segment that are immutable and mapped.
    pub(super) fn immutable_len(&self, file: &MappedFile) -> usize {
        if self.is_sealed(file) {
            return file.len() as usize;
        }
        let end = self.immutable_until.get().filter(|_| file.is_in_memory());
        end.map_or(0, |end| (end - file.start() as i64).clamp(0, file.len() as i64) as usize)
    }

    /// Lists the segments again. Drops the mapping of the segment that contains `end`, where the log ended, if it differs from the
    /// file: on overlayfs, a file in a lower layer that was opened for writing since.
    ///
    /// # Errors
    /// Those of [`LogFiles::load`].
    pub fn list_again(&self, end: i64) -> Result<()> {
        self.files.list_again()?;
        let mut head = [0; BLANK_SIZE];
        let is_read = self.files.read_reopened(end.cast_unsigned(), &mut head)?.is_some();
        if is_read && head != [0; BLANK_SIZE] && !self.may_continue(end)? {
            self.files.forget_mappings(end.cast_unsigned());
        }
        Ok(())
    }

    /// Prepares to read past `end`, where the log ended. If the log may continue after the last known segment, the segments are
    /// listed again. Segments after `end` may have been replaced, because a close removes them and the next open creates others.
    ///
    /// # Errors
    /// Those of [`LogFiles::load`].
    pub fn prepare_growth(&self, end: i64) -> Result<()> {
        let next = self.end_of_segment(end);
        if next >= self.files_end() {
            self.files.list_again()?;
        }
        self.files.forget_mappings(next.cast_unsigned());
        Ok(())
    }

    /// Returns true if a record may start at `end`, where the log ended; false if the mapping has zeros there. This is the cheapest
    /// check for growth.
    ///
    /// # Errors
    /// Those of [`LogFiles::read`].
    pub fn may_continue(&self, end: i64) -> Result<bool> {
        let mut head = [0; BLANK_SIZE];
        Ok(match self.locate(end)? {
            Some((file, position)) => file.read(position, &mut head) && head != [0; BLANK_SIZE],
            // The next segment may exist by now.
            None => true,
        })
    }

    /// Returns true if the record at `offset`, stored at this time, has been replaced, or removed without having expired: its
    /// writer was killed, and the next one has cut the log. Lists the files again if the record's segment is missing.
    ///
    /// # Errors
    /// Those of [`LogFiles::load`].
    pub fn is_replaced(&self, offset: i64, store_time: i64) -> Result<bool> {
        let mut head = [0; CLAIM_SIZE];
        if self.files.read_reopened(offset.cast_unsigned(), &mut head)?.is_some() {
            return Ok((claimed_offset(&head), claimed_store_time(&head)) != (Some(offset), Some(store_time)));
        }
        // The segment may have expired since the files were listed.
        self.files.list_again()?;
        Ok(!self.is_removed(offset) || self.next_start(offset).is_none())
    }

    /// Returns the range of the newest record at this moment, at `from` or after, by the lengths of records alone. Empty if there
    /// is not a record. A scan without this bound could follow a live writer for a whole segment, because checking a record takes
    /// longer than appending one. `from` is the start, or a possible start, of a record.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub fn newest_record(&self, from: i64) -> Result<Range<i64>> {
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

    /// Returns the start of the newest segment after `from` that has a record; `from` if no such segment exists.
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

/// Returns the position of the last non-zero byte.
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

/// Returns the size that the record with this head claims, if it states `at` as its physical offset.
fn size_of_record(head: &[u8], at: i64) -> Option<u64> {
    let claimed = head.first_chunk().map(|head| claimed_size(*head))?;
    (claimed >= MIN_RECORD_SIZE && claimed_offset(head) == Some(at)).then_some(claimed as u64)
}
