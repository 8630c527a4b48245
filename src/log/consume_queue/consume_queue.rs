//! A consume queue: the log position of the message of each queue offset. An entry has 20 bytes, entry n starts at byte 20 n, and
//! there are no gaps.
//!
//! The files hold the entries that were written back. The in-memory tail holds the later ones. Readers see both.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::error::{Error, Result};
use crate::format::{CQ_UNIT_SIZE, CqUnit, MIN_RECORD_SIZE, segment_name};
use crate::log::consume_queue::entries::{
    EntryReader, QueueEnds, UNIT, add_from_file, entries_per_file, entry_in_file, find_end, first_at, next_file_start, search,
};
use crate::log::consume_queue::tail::QueueTail;
use crate::remedy::Remedy;
use crate::storage::{Env, Expired, MappedFileQueue, MappingPool};

/// The most queue offsets that the holes of one queue may have to be filled: a damaged file name can make an endless hole.
const MAX_FILLED: u64 = 1 << 20;
/// The entries that are read at once in the search for holes.
const FILLED_AT_ONCE: i64 = 1024;
/// The entries in the memory of one queue from which on the files are checked for them.
const RELEASE_THRESHOLD: usize = 4096;

/// A queue of a topic.
#[derive(Debug)]
pub struct ConsumeQueue {
    pub(super) env: Arc<dyn Env>,
    pub(super) files: MappedFileQueue,
    state: RwLock<State>,
    /// The number of removed files, of the queue and of the log, up to which the smallest offset is correct.
    pub(super) followed: AtomicU64,
}

#[derive(Debug)]
pub(super) struct State {
    /// The queue offsets in the files, durable or not, without the entries that were dropped at the end.
    pub(super) in_files: Range<i64>,
    /// The entries of the files that were read at the open, until the files are written to.
    pub(super) ends: QueueEnds,
    pub(super) tail: QueueTail,
    pub(super) min_offset: i64,
}

impl State {
    pub(super) fn max_offset(&self) -> i64 {
        self.in_files.end.max(self.tail.end().unwrap_or(0))
    }
}

impl ConsumeQueue {
    /// Lists the queue's files in `dir` and finds its last entry.
    ///
    /// # Errors
    /// As [`MappedFileQueue::load_derived`].
    pub fn load(env: Arc<dyn Env>, dir: &Path, file_size: Option<u64>, pool: Arc<MappingPool>) -> Result<Self> {
        let files = MappedFileQueue::load_derived(env.clone(), dir, file_size, pool, CQ_UNIT_SIZE as u64)
            .map_err(|error| error.of_option("mapped_file_size_consume_queue"))?;
        let start = files.first_offset().unwrap_or(0) as i64 / UNIT;
        let (end, ends) = find_end(&files)?;
        let state = State {
            in_files: start..end,
            ends,
            tail: QueueTail::default(),
            min_offset: start,
        };
        Ok(Self {
            env,
            files,
            state: RwLock::new(state),
            followed: AtomicU64::new(0),
        })
    }

    /// Creates a queue without files, whose files will be in `dir`. No directory is read.
    pub fn empty(env: Arc<dyn Env>, dir: &Path, file_size: Option<u64>, pool: Arc<MappingPool>) -> Self {
        let files = MappedFileQueue::empty(env.clone(), dir, file_size.unwrap_or(0), pool);
        let state = State {
            in_files: 0..0,
            ends: QueueEnds::default(),
            tail: QueueTail::default(),
            min_offset: 0,
        };
        Self {
            env,
            files,
            state: RwLock::new(state),
            followed: AtomicU64::new(0),
        }
    }

    /// Returns the queue offset of the first entry whose message is still in the log.
    pub fn min_offset(&self) -> i64 {
        self.state().min_offset
    }

    /// Returns the queue offset of the next message.
    pub fn max_offset(&self) -> i64 {
        self.state().max_offset()
    }

    /// Returns the queue offsets of its messages, and those of them whose entries are in the files before any entry in memory.
    pub(super) fn extent(&self) -> (Range<i64>, Range<i64>) {
        let state = self.state();
        let first_in_memory = state.tail.first().unwrap_or(i64::MAX);
        let in_files = state.in_files.start..state.in_files.end.min(first_in_memory);
        (state.min_offset..state.max_offset(), in_files)
    }

    /// Returns the first queue offset of the next file after the file of `offset`.
    pub fn next_file_start(&self, offset: i64) -> i64 {
        next_file_start(&self.files, offset)
    }

    /// Returns true if the entry at `offset` can be read: its file exists, or it is in memory.
    pub fn is_readable(&self, offset: i64) -> Result<bool> {
        Ok(self.state().tail.get(offset).is_some() || entry_in_file(&self.files, offset)?.is_some())
    }

    /// Returns the queue offset at which to continue after nothing was read at `offset`: past a gap of missing files, if there is
    /// one (a single wrong file name can make an endless gap), and past expired entries.
    ///
    /// # Errors
    /// Those of [`MappedFileQueue::find`].
    pub(crate) fn offset_after(&self, offset: i64) -> Result<i64> {
        let next = offset.saturating_add(1).max(self.min_offset());
        Ok(if self.is_readable(offset)? {
            next
        } else {
            next.max(self.end_of_gap(offset))
        })
    }

    /// Returns the first missing queue offset at `offset`: `offset` itself, or the start of the gap of missing files.
    ///
    /// # Errors
    /// Those of [`MappedFileQueue::find`].
    pub(crate) fn first_missing(&self, offset: i64) -> Result<i64> {
        Ok(if self.is_readable(offset)? {
            offset
        } else {
            self.start_of_gap(offset).min(offset)
        })
    }

    /// Returns the first queue offset after the missing file that contains `offset`: the start of the next file, or of the entries
    /// in memory.
    fn end_of_gap(&self, offset: i64) -> i64 {
        let state = self.state();
        self.next_readable(&state, offset).unwrap_or_else(|| state.max_offset())
    }

    /// Returns the start of the next file after `offset`, or of the entries in memory from `offset` on, whichever comes first.
    fn next_readable(&self, state: &State, offset: i64) -> Option<i64> {
        let mut starts = self.files.starts().into_iter().map(|start| start as i64 / UNIT);
        let next_file = starts.find(|start| *start > offset);
        next_file.into_iter().chain(state.tail.next(offset..)).min()
    }

    /// Returns the first queue offset of the missing files that contain `offset`: the end of the previous file, or of the entries
    /// in memory.
    fn start_of_gap(&self, offset: i64) -> i64 {
        let per_file = self.entries_per_file();
        let ends = self.files.starts().into_iter().map(|start| start as i64 / UNIT + per_file);
        let file_before = ends.take_while(|end| *end <= offset).last();
        let state = self.state();
        let in_memory = state.tail.end_before(offset);
        file_before.max(in_memory).unwrap_or(state.min_offset)
    }

    /// Returns the entry at a queue offset; `None` outside the queue, in a file that another process has removed, and for a
    /// `PRE_BLANK` of a queue that does not start at 0.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for an invalid entry inside the queue, and for an entry whose file is missing.
    pub fn unit(&self, offset: i64) -> Result<Option<CqUnit>> {
        {
            let state = self.state();
            if let Some(unit) = state.tail.get(offset) {
                return Ok(Some(unit));
            }
            if !state.in_files.contains(&offset) {
                return Ok(None);
            }
        }
        match entry_in_file(&self.files, offset)? {
            Some(unit) if unit.is_pre_blank() => Ok(None),
            Some(unit) if unit.is_valid() => Ok(Some(unit)),
            None if self.is_removed(offset) => Ok(None),
            found => Err(self.damaged(offset, found)),
        }
    }

    /// Returns the bytes at a queue offset, valid or not, and true if they are in memory only; `None` if no file contains the
    /// offset.
    ///
    /// # Errors
    /// Those of [`MappedFileQueue::find`].
    pub fn raw_unit(&self, offset: i64) -> Result<Option<(CqUnit, bool)>> {
        if let Some(unit) = self.state().tail.get(offset) {
            return Ok(Some((unit, true)));
        }
        Ok(entry_in_file(&self.files, offset)?.map(|unit| (unit, false)))
    }

    /// Adds the first contiguous entries of these offsets: those in one file, or in memory. They end before the first offset for
    /// which [`unit`](Self::unit) returns `None`, and may be empty.
    ///
    /// # Errors
    /// Those of [`MappedFileQueue::find`].
    pub(crate) fn add_units(&self, mut offsets: Range<i64>, units: &mut Vec<CqUnit>) -> Result<()> {
        {
            let state = self.state();
            let in_memory = state.tail.from(offsets.start);
            let wanted = usize::try_from(offsets.end - offsets.start).unwrap_or(0);
            if let Some(in_memory) = in_memory.get(..wanted.min(in_memory.len())).filter(|units| !units.is_empty()) {
                units.extend_from_slice(in_memory);
                return Ok(());
            }
            // An entry in memory replaces that of the file.
            let next_in_memory = state.tail.next(offsets.start..).unwrap_or(i64::MAX);
            offsets.end = offsets.end.min(state.in_files.end).min(next_in_memory);
            if !state.in_files.contains(&offsets.start) {
                return Ok(());
            }
        }
        add_from_file(&self.files, offsets, units)
    }

    /// Returns true if another process has removed the file that held this entry.
    pub(crate) fn is_removed(&self, offset: i64) -> bool {
        let at = offset.checked_mul(UNIT).and_then(|at| u64::try_from(at).ok());
        at.is_some_and(|at| self.files.is_removed(at))
    }

    fn damaged(&self, offset: i64, found: Option<CqUnit>) -> Error {
        let what = match found {
            None => "the file is missing or cut short".to_owned(),
            Some(unit) => format!("it points to {} bytes at physical offset {}", unit.size, unit.physical_offset),
        };
        self.corrupt(
            offset,
            format!("the entry of queue offset {offset} is damaged: {what}; the message may be whole: find it by key or id"),
        )
    }

    /// Returns the path of the file that contains the entry of a queue offset, whether it exists or not, and the position of the
    /// entry.
    pub fn path_of(&self, offset: i64) -> (PathBuf, u64) {
        let file_start = self.next_file_start(offset) - self.entries_per_file();
        let path = self.files.dir().join(segment_name((file_start * UNIT) as u64));
        (path, ((offset - file_start) * UNIT) as u64)
    }

    /// Returns an error about the entry of a queue offset, with its file and position.
    pub fn corrupt(&self, queue_offset: i64, reason: String) -> Error {
        let (path, offset) = self.path_of(queue_offset);
        Error::corrupt(path, offset, reason).with_remedy(Remedy::SkipOrSalvage)
    }

    /// Returns the entry at an offset; `None` also for a damaged one. For an entry near the queue's end no file is mapped.
    ///
    /// # Errors
    /// [`Error::Io`]: the entry could not be read.
    pub(crate) fn known_unit(&self, offset: i64) -> Result<Option<CqUnit>> {
        if let Some(unit) = self.unit_at_end(offset) {
            return Ok(Some(unit).filter(|unit| names_message(*unit)));
        }
        match self.unit(offset) {
            Err(Error::Corrupt { .. }) => Ok(None),
            found => found,
        }
    }

    /// Returns the entry of the files at this queue offset, valid or not, if the open has read it.
    pub(super) fn unit_at_end(&self, offset: i64) -> Option<CqUnit> {
        let state = self.state();
        let is_in_file = state.in_files.contains(&offset) && state.tail.get(offset).is_none();
        is_in_file.then(|| state.ends.get(offset)).flatten()
    }

    /// Returns the last entry in the files, if it points to a message.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn last_unit(&self) -> Result<Option<CqUnit>> {
        let in_files = self.written();
        let last = in_files.end - 1;
        if in_files.is_empty() {
            return Ok(None);
        }
        self.entry_of_message(&mut self.entries(), last)
    }

    /// Returns a reader of the entries in the files, without a mapping.
    pub(super) fn entries(&self) -> EntryReader<'_> {
        EntryReader::new(&self.files, self.state().ends)
    }

    /// Returns the number of entries in the files; with `until`, of messages up to the one at that physical offset.
    pub(super) fn count_entries(&self, until: Option<i64>) -> Result<i64> {
        let in_files = self.written();
        let last = self.last_unit()?.map_or(i64::MAX, |unit| unit.physical_offset);
        let end = match until.filter(|until| last > *until) {
            None => in_files.end,
            Some(until) => first_at(&mut self.entries(), in_files, until.saturating_add(1))?,
        };
        let in_file = |start: u64| {
            let first = start as i64 / UNIT;
            (end.min(first.saturating_add(self.entries_per_file())) - first).max(0)
        };
        Ok(self.files.starts().into_iter().map(in_file).sum())
    }

    /// Returns the number of entries in the files that point to a message at or after this physical offset, with a possible record
    /// size of at most `longest` bytes. Only the end of the queue is examined: entries before one of an earlier message count as
    /// damage.
    pub(super) fn count_entries_from(&self, physical: i64, longest: u64) -> Result<u64> {
        let names_one = |unit: CqUnit| {
            let is_possible = (MIN_RECORD_SIZE as u64..=longest).contains(&u64::from(unit.size.unsigned_abs()));
            names_message(unit) && unit.physical_offset >= physical && is_possible
        };
        if !self.last_unit()?.is_some_and(names_one) {
            return Ok(0);
        }
        let in_files = self.written();
        let first = first_at(&mut self.entries(), in_files.clone(), physical)?;
        Ok((in_files.end - first).unsigned_abs())
    }

    /// Leaves out, in memory, the entries at the end of the files that point at or past the end of the `log`, or to no message of
    /// the queue. `leads` decides the latter from the queue offset, the entry, and the entry before it. Returns the number of these
    /// entries. If no entry remains and the log starts at 0, the queue starts at 0 again, because a power failure took its first file.
    pub(crate) fn leave_out(&self, log: Range<i64>, leads: impl Fn(i64, CqUnit, Option<CqUnit>) -> Result<bool>) -> Result<u64> {
        let mut entries = self.entries();
        let mut state = self.state_mut();
        let end = state.in_files.end;
        // One by one from the end: an earlier entry that points past the log is damage, and the others remain.
        while !state.in_files.is_empty() {
            let last = state.in_files.end - 1;
            let mut valid = |offset: i64| Ok(entries.get(offset)?.filter(|unit| unit.is_valid()));
            if let Some(unit) = valid(last)?
                && (unit.is_pre_blank()
                    || (unit.physical_offset < log.end
                        && leads(last, unit, valid(last - 1)?.filter(|unit| !unit.is_pre_blank()))?))
            {
                break;
            }
            state.in_files.end -= 1;
        }
        let left_out = (end - state.in_files.end) as u64;
        if state.in_files.is_empty() && log.start == 0 {
            state.in_files = 0..0;
        }
        Ok(left_out)
    }

    /// Replaces the entries of messages in the range `lost` by `substitute`, which points to a salvage record. Returns their
    /// number.
    pub(crate) fn redirect(&self, substitute: CqUnit, lost: &Range<i64>) -> Result<u64> {
        let in_files = self.written();
        let first = first_at(&mut self.entries(), in_files.clone(), lost.start)?;
        let after = first_at(&mut self.entries(), in_files, lost.end)?;
        self.extend((first..after).map(|offset| (offset, substitute)).collect());
        Ok((after - first).cast_unsigned())
    }

    /// Fills holes in one pass: a queue offset between others whose entry is missing or rejected by `is_kept` gets the entry of a
    /// lost message, which points to the next message. A broker would truncate the queue at the hole. Physical offsets do not fall
    /// along the queue. Skips at most a million offsets without an entry.
    pub(crate) fn fill_holes(&self, is_kept: impl Fn(i64, CqUnit) -> Result<bool>) -> Result<()> {
        let (mut offset, end) = (self.state().in_files.start, self.max_offset());
        let (mut hole, mut left) = (None, MAX_FILLED);
        let mut last = 0;
        let mut units = Vec::new();
        while offset < end {
            units.clear();
            self.add_units(offset..end.min(offset.saturating_add(FILLED_AT_ONCE)), &mut units)?;
            if units.is_empty() {
                if left == 0 {
                    break;
                }
                left -= 1;
                offset += 1;
            }
            for unit in units.drain(..) {
                if is_kept(offset, unit)? {
                    if let Some(hole) = hole.filter(|hole| *hole < offset && unit.physical_offset >= last) {
                        let lost = unit.of_lost();
                        self.extend((hole..offset).map(|offset| (offset, lost)).collect());
                    }
                    (hole, last) = (Some(offset + 1), unit.physical_offset);
                }
                offset += 1;
            }
        }
        Ok(())
    }

    /// Adds the entries that are missing in the files.
    pub(crate) fn extend(&self, tail: QueueTail) {
        let mut state = self.state_mut();
        if let Some(first) = tail.first() {
            if state.max_offset() == 0 {
                state.min_offset = first;
            }
            if state.in_files.is_empty() && state.tail.is_empty() {
                state.in_files = first..first;
            }
            // A power failure may take any of the new files, also the first one.
            state.in_files.start = state.in_files.start.min(first);
        }
        state.tail.extend(tail);
    }

    /// Adds the entries of new messages of the log. Those that existed before, because their message is dispatched again, change
    /// nothing. Returns the number of added entries, and true if they are the first that wait to be written back.
    #[inline]
    pub(crate) fn append(&self, units: impl Iterator<Item = (i64, CqUnit)>) -> (usize, bool) {
        let mut state = self.state_mut();
        let waiting = state.tail.len();
        for (offset, unit) in units {
            if state.max_offset() == 0 {
                // The first message of a queue may have a queue offset other than 0: the queue starts there.
                state.in_files = offset..offset;
                state.min_offset = offset;
            }
            if offset >= state.in_files.end {
                state.tail.insert(offset, unit);
            }
        }
        let added = state.tail.len() - waiting;
        (added, waiting == 0 && added > 0)
    }

    /// Returns the physical offset of the first message whose entry is not written back.
    pub(super) fn first_unwritten(&self) -> Option<i64> {
        let state = self.state();
        let first = state.tail.get(state.tail.first()?)?;
        Some(first.physical_offset)
    }

    /// Returns true if it has entries that are not written back.
    pub(crate) fn waits(&self) -> bool {
        !self.state().tail.is_empty()
    }

    /// Returns the files that are too long, or are cut short before others, with their lengths, and the length of a whole file.
    pub fn wrong_lengths(&self) -> impl Iterator<Item = (&Path, u64, u64)> {
        let expected = self.files.file_size();
        self.files
            .fitted()
            .wrong_lengths()
            .map(move |(path, len)| (path.as_path(), *len, expected))
    }

    /// Refuses a queue with a file of a wrong length, or whose last file is cut short. A single file is compared with the `usual`
    /// length.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(super) fn expect_whole(&self, usual: u64) -> Result<()> {
        if let Some((path, len, expected)) = self.wrong_lengths().next() {
            let reason = format!("expected {expected} bytes, found {len}: copy it again");
            return Err(Error::corrupt(path, len.min(expected), reason).with_remedy(Remedy::Rebuild));
        }
        self.files.expect_whole(self.files.file_size().max(usual), Remedy::Rebuild)
    }

    pub(super) fn entries_per_file(&self) -> i64 {
        entries_per_file(&self.files)
    }

    pub(super) fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the entry of the file, valid or not; `None` if there is no file.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub(crate) fn written_unit(&self, offset: i64) -> Result<Option<CqUnit>> {
        entry_in_file(&self.files, offset)
    }

    /// Returns the queue offsets from the first file's start to the last valid entry.
    pub(crate) fn written(&self) -> Range<i64> {
        self.state().in_files.clone()
    }

    /// Returns the queue offset at which the last file starts; `None` without files.
    pub(crate) fn last_file_start(&self) -> Option<i64> {
        self.files.starts().last().map(|start| *start as i64 / UNIT)
    }

    /// Returns the size of the last file; `None` without files.
    pub(crate) fn last_file_len(&self) -> Option<u64> {
        let start = *self.files.starts().last()?;
        Some(self.files.end_offset()?.saturating_sub(start))
    }

    /// Returns the paths in the queue's directory that are not queue files.
    pub(crate) fn foreign_files(&self) -> impl Iterator<Item = PathBuf> {
        self.files.ignored().iter().map(|name| self.files.dir().join(name))
    }

    /// Passes the entries that point to an offset at or after `physical`, with their queue offsets, to `take`, until it returns
    /// false. Skips entries of lost messages.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`]; those of `take`.
    pub(crate) fn visit_from(&self, physical: i64, mut take: impl FnMut(i64, CqUnit) -> Result<bool>) -> Result<()> {
        let mut entries = self.entries();
        for offset in self.first_from(&mut entries, physical)?..self.max_offset() {
            let unit = self.entry_of_message(&mut entries, offset)?;
            if let Some(unit) = unit.filter(|unit| unit.physical_offset >= physical && !unit.is_lost())
                && !take(offset, unit)?
            {
                break;
            }
        }
        Ok(())
    }

    /// Returns the last entry before those that point to an offset at or after `physical`.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub(crate) fn last_before(&self, physical: i64) -> Result<Option<CqUnit>> {
        let mut entries = self.entries();
        let first = self.first_from(&mut entries, physical)?;
        let before = self.entry_of_message(&mut entries, first - 1)?;
        Ok(before.filter(|unit| !unit.is_lost()))
    }

    /// Returns the queue offset of the first entry that points to an offset at or after `physical`, or else that of the next message.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub(crate) fn offset_from(&self, physical: i64) -> Result<i64> {
        self.first_from(&mut self.entries(), physical)
    }

    /// Returns the queue offset of the first entry that points to an offset at or after `physical`.
    fn first_from(&self, entries: &mut EntryReader<'_>, physical: i64) -> Result<i64> {
        let in_files = self.written();
        let end = in_files.end;
        let first = first_at(entries, in_files, physical)?;
        if first < end {
            return Ok(first);
        }
        let is_before = |offset| {
            self.state()
                .tail
                .get(offset)
                .is_some_and(|unit| unit.physical_offset < physical)
        };
        search(end..self.max_offset().max(end), |offset| Ok(is_before(offset)))
    }

    /// Returns the entry at an offset, in memory or in a file, if it points to a message.
    fn entry_of_message(&self, entries: &mut EntryReader<'_>, offset: i64) -> Result<Option<CqUnit>> {
        let in_memory = self.state().tail.get(offset);
        let unit = match in_memory {
            Some(unit) => Some(unit),
            None => entries.get(offset)?,
        };
        Ok(unit.filter(|unit| names_message(*unit)))
    }

    /// Returns true if it has, or has had, files.
    pub(super) fn has_files(&self) -> bool {
        self.files.end_offset().is_some()
    }

    /// Returns the size of a file; 0 if it is unknown.
    pub(crate) fn file_size(&self) -> u64 {
        self.files.file_size()
    }

    /// Releases the entries in memory that are in the files by now, if there are many.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`], [`crate::error::Error::Corrupt`] for files that do not fit together.
    pub(crate) fn release_written(&self) -> Result<()> {
        let waiting: Vec<(i64, CqUnit)> = {
            let state = self.state();
            if state.tail.len() < RELEASE_THRESHOLD || state.tail.first() != Some(state.in_files.end) {
                return Ok(());
            }
            state.tail.iter().collect()
        };
        self.files.list_again()?;
        let mut written = self.entries();
        let mut end = None;
        for (next, unit) in waiting {
            // An entry with an extension has its address instead of a tags code.
            let is_same = |found: CqUnit| {
                let tags_code = found.ext_address().map_or(unit.tags_code, |_| found.tags_code);
                found == CqUnit { tags_code, ..unit }
            };
            if end.is_some_and(|end| end != next) || !written.get(next)?.is_some_and(is_same) {
                break;
            }
            end = Some(next + 1);
        }
        if let Some(end) = end {
            let mut state = self.state_mut();
            state.in_files.end = end;
            state.tail.forget_before(end);
        }
        Ok(())
    }

    /// Updates the smallest offset if files of the queue or of the log were removed since the last call. `in_log` is the number of
    /// removals in the log, which now starts at `first_physical`.
    pub(crate) fn follow_removals(&self, in_log: u64, first_physical: impl Fn() -> i64) -> Result<()> {
        loop {
            let removals = in_log + self.files.removals();
            if self.followed.load(Ordering::Acquire) == removals {
                return Ok(());
            }
            // This reads entries, and may detect more removed files.
            self.correct_min_offset(first_physical())?;
            self.followed.store(removals, Ordering::Release);
        }
    }

    /// Removes the files whose messages all start before `first_physical`, oldest first, and never the last one, which keeps the
    /// largest offset.
    ///
    /// # Errors
    /// Those of reading entries.
    pub(crate) fn expire(&self, first_physical: i64) -> Result<Expired> {
        let mut until = 0;
        for start in self.files.starts() {
            let end = start + self.files.file_size();
            let last = entry_in_file(&self.files, (end / CQ_UNIT_SIZE as u64) as i64 - 1)?;
            if !last.is_some_and(|unit| unit.is_pre_blank() || unit.is_valid() && unit.physical_offset < first_physical) {
                break;
            }
            until = end;
        }
        Ok(self.files.expire(until))
    }

    /// Sets the smallest offset to the first entry whose message starts at or after `first_physical`.
    pub(crate) fn correct_min_offset(&self, first_physical: i64) -> Result<()> {
        let mut entries = self.entries();
        let mut state = self.state_mut();
        let expired = |unit: CqUnit| unit.is_pre_blank() || unit.physical_offset < first_physical;
        let mut all = state.in_files.start..state.max_offset();
        loop {
            let mut unit_at = |offset: i64| match state.tail.get(offset) {
                Some(unit) => Ok(Some(unit)),
                None => entries.get(offset),
            };
            // Fast path: in most queues no message has expired, and the first entry is live.
            let is_live = |unit: CqUnit| unit.is_valid() && !expired(unit);
            let first = if !all.is_empty() && unit_at(all.start)?.is_some_and(is_live) {
                all.start
            } else {
                search(all.clone(), |offset| {
                    Ok(unit_at(offset)?.is_some_and(|unit| unit.is_valid() && expired(unit)))
                })?
            };
            all.start = self.after_removed(&state, first);
            if all.start == first {
                state.min_offset = first;
                return Ok(());
            }
        }
    }

    /// Returns the first queue offset, from `offset` on, whose entry is not in a file that another process has removed.
    fn after_removed(&self, state: &State, offset: i64) -> i64 {
        if !(state.in_files.contains(&offset) && self.is_removed(offset)) {
            return offset;
        }
        self.next_readable(state, offset).unwrap_or(state.in_files.end)
    }
}

pub(super) fn names_message(unit: CqUnit) -> bool {
    unit.is_valid() && !unit.is_pre_blank()
}
