//! Reads of queue entries in files: one, a block, or several at once, and binary search.

use std::ops::Range;

use crate::error::Result;
use crate::format::{CQ_UNIT_SIZE, CqUnit};
use crate::storage::{MappedFileQueue, OpenFile};

/// The size of an entry.
pub(super) const UNIT: i64 = CQ_UNIT_SIZE as i64;
/// The size of a queue file if no file and no option determines it: RocketMQ's 300,000 entries.
const DEFAULT_FILE_SIZE: u64 = 6_000_000;
/// The entries that are copied at once: as many as a scan reads ahead.
const COPIED_AT_ONCE: usize = 32;
/// The bytes that are read at once: the entries of two pages.
const BLOCK: u64 = 8192 / CQ_UNIT_SIZE as u64 * CQ_UNIT_SIZE as u64;
/// The entries that are examined after the first invalid one before it counts as the end: two pages.
const LOOK_AHEAD: i64 = 2 * 4096 / UNIT;

pub(super) fn entries_per_file(files: &MappedFileQueue) -> i64 {
    match files.file_size() {
        0 => DEFAULT_FILE_SIZE as i64 / UNIT,
        size => (size as i64 / UNIT).max(1),
    }
}

pub(super) fn next_file_start(files: &MappedFileQueue, offset: i64) -> i64 {
    let per_file = entries_per_file(files);
    (offset / per_file + 1).saturating_mul(per_file)
}

/// Returns the entry of the file, valid or not; `None` if there is no file, or if it ends before. Maps the file, for consecutive
/// reads. For a few entries of many queues see [`EntryReader`].
pub(super) fn entry_in_file(files: &MappedFileQueue, offset: i64) -> Result<Option<CqUnit>> {
    let Some(at) = position_in_queue(offset) else {
        return Ok(None);
    };
    let Some(file) = files.find(at)? else { return Ok(None) };
    let mut bytes = [0; CQ_UNIT_SIZE];
    let position = (at - file.start()) as usize;
    if position + CQ_UNIT_SIZE > file.len() as usize {
        return Ok(None);
    }
    if file.read(position, &mut bytes) {
        return Ok(Some(CqUnit::decode(&bytes)));
    }
    file.check_intact(position..position + CQ_UNIT_SIZE)?;
    Ok(None)
}

/// Adds the first entries of these offsets that are in one file, up to the first that does not point to a message. Maps the file.
pub(super) fn add_from_file(files: &MappedFileQueue, offsets: Range<i64>, units: &mut Vec<CqUnit>) -> Result<()> {
    let Some(at) = position_in_queue(offsets.start) else {
        return Ok(());
    };
    let Some(file) = files.find(at)? else { return Ok(()) };
    let mut position = (at - file.start()) as usize;
    let in_file = (file.len() as usize - position) / CQ_UNIT_SIZE;
    let mut wanted = usize::try_from(offsets.end - offsets.start).unwrap_or(0).min(in_file);
    units.reserve(wanted);
    let mut copy = [0; COPIED_AT_ONCE * CQ_UNIT_SIZE];
    while wanted > 0 {
        let count = wanted.min(COPIED_AT_ONCE);
        let Some(bytes) = copy.get_mut(..count * CQ_UNIT_SIZE) else {
            break;
        };
        if !file.read(position, bytes) {
            break;
        }
        for bytes in bytes.as_chunks::<CQ_UNIT_SIZE>().0 {
            let unit = CqUnit::decode(bytes);
            if !unit.is_valid() || unit.is_pre_blank() {
                return Ok(());
            }
            units.push(unit);
        }
        position += count * CQ_UNIT_SIZE;
        wanted -= count;
    }
    Ok(())
}

/// Returns the position of an entry in its queue; `None` if it overflows.
pub(super) fn position_in_queue(offset: i64) -> Option<u64> {
    offset.checked_mul(UNIT).and_then(|at| u64::try_from(at).ok())
}

/// The entries of a queue that an open needs several times: the first one, and the last two. They are cached, so that the files of
/// ten thousand queues are opened once.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct QueueEnds([Option<(i64, CqUnit)>; 3]);

impl QueueEnds {
    /// Returns the entry at an offset, if it is one of them.
    pub(super) fn get(&self, offset: i64) -> Option<CqUnit> {
        let found = self.0.iter().flatten().find(|(at, _)| *at == offset);
        found.map(|(_, unit)| *unit)
    }
}

/// A reader of entries in random order, without a mapping. It keeps the last file open, and one block of it in memory.
pub(super) struct EntryReader<'a> {
    files: &'a MappedFileQueue,
    known: QueueEnds,
    file: Option<OpenFile>,
    /// The position of `block` in the file.
    block_at: u64,
    block: Vec<u8>,
}

impl<'a> EntryReader<'a> {
    /// Creates a reader that opens no file for the entries in `known`.
    pub(super) fn new(files: &'a MappedFileQueue, known: QueueEnds) -> Self {
        Self {
            files,
            known,
            file: None,
            block_at: 0,
            block: Vec::new(),
        }
    }

    /// Reads an entry, as [`entry_in_file`] does.
    pub(super) fn get(&mut self, offset: i64) -> Result<Option<CqUnit>> {
        if let Some(unit) = self.known.get(offset) {
            return Ok(Some(unit));
        }
        let Some(at) = position_in_queue(offset) else {
            return Ok(None);
        };
        self.open(at)?;
        let Some(file) = &self.file else { return Ok(None) };
        let position = at - file.start();
        let entry = position..position + CQ_UNIT_SIZE as u64;
        if entry.end > file.len() {
            return Ok(None);
        }
        if file.written_in(&entry).is_empty() {
            return Ok(Some(CqUnit::decode(&[0; CQ_UNIT_SIZE])));
        }
        let block_at = position - position % BLOCK;
        if self.block.is_empty() || block_at != self.block_at {
            self.block = block_of(file, block_at)?;
            self.block_at = block_at;
        }
        let in_block = (position - block_at) as usize;
        let bytes = self.block.get(in_block..).and_then(<[u8]>::first_chunk);
        Ok(bytes.map(CqUnit::decode))
    }

    /// Returns the first queue offset of the next file.
    fn next_start(&self, offset: i64) -> Option<i64> {
        let starts = self.files.starts();
        let next = starts.partition_point(|start| *start as i64 / UNIT <= offset);
        starts.get(next).map(|start| *start as i64 / UNIT)
    }

    /// Opens the file that contains the byte at `at`, if it is not the open one.
    fn open(&mut self, at: u64) -> Result<()> {
        let is_open = |file: &OpenFile| (file.start()..file.start().saturating_add(file.len())).contains(&at);
        if !self.file.as_ref().is_some_and(is_open) {
            self.block.clear();
            self.file = self.files.open(at)?;
        }
        Ok(())
    }

    /// Returns the offset after a valid entry near the end of the written part of the file that starts at `start`, where the valid
    /// entries usually end; `start` if no entry there is valid.
    fn guess_end(&mut self, start: i64) -> Result<i64> {
        self.open((start * UNIT) as u64)?;
        let parts = self.file.as_ref().map(OpenFile::written).unwrap_or_default();
        // A file of this crate ends with a written part of zeros.
        let last: Vec<Range<u64>> = parts.iter().rev().take(2).cloned().collect();
        for part in last {
            let last_page = part.end.saturating_sub(1) / 4096 * 4096;
            let offset = start + last_page.max(part.start).div_ceil(CQ_UNIT_SIZE as u64) as i64;
            if offset > start && self.get(offset)?.is_some_and(CqUnit::is_valid) {
                return Ok(offset + 1);
            }
        }
        Ok(start)
    }
}

/// Returns the block that begins at `at`; it is shorter at the end of the file. Only its written part is read.
fn block_of(file: &OpenFile, at: u64) -> Result<Vec<u8>> {
    let block = at..file.len().min(at + BLOCK);
    let written = file.written_in(&block);
    let mut bytes = vec![0; (block.end - at) as usize];
    let (first, end) = ((written.start - at) as usize, (written.end - at) as usize);
    let read = file.read(written.start, bytes.get_mut(first..end).unwrap_or_default())?;
    if first + read < end {
        // The file was cut short since it was opened.
        bytes.truncate(first + read);
    }
    Ok(bytes)
}

/// Returns the first offset in `range` whose entry points to a message at or after `physical`. An offset without an entry is
/// decided by the next entry, because a missing file would otherwise hide the entries before it.
pub(super) fn first_at(entries: &mut EntryReader<'_>, range: Range<i64>, physical: i64) -> Result<i64> {
    let end = range.end;
    search(range, |mut offset| {
        while offset < end {
            match entries.get(offset)? {
                Some(unit) if unit.is_valid() => return Ok(unit.is_pre_blank() || unit.physical_offset < physical),
                Some(_) => offset += 1,
                None => offset = entries.next_start(offset).unwrap_or(end),
            }
        }
        Ok(false)
    })
}

/// Returns the end of the valid entries, and the entries that were read. Valid entries fill a file from its start, and the rest of
/// the file is zero. Damage before valid entries does not end the queue.
pub(super) fn find_end(files: &MappedFileQueue) -> Result<(i64, QueueEnds)> {
    let mut entries = EntryReader::new(files, QueueEnds::default());
    let starts: Vec<i64> = files.starts().into_iter().map(|start| start as i64 / UNIT).collect();
    for start in starts.iter().rev() {
        let file_end = next_file_start(files, *start).min(files.end_offset().unwrap_or(0) as i64 / UNIT);
        let mut end = entries.guess_end(*start)?;
        loop {
            end = search(end..file_end, |offset| Ok(entries.get(offset)?.is_some_and(CqUnit::is_valid)))?;
            match find_valid(&mut entries, end..file_end.min(end + LOOK_AHEAD))? {
                Some(valid) => end = valid + 1,
                None => break,
            }
        }
        if end > *start {
            let mut ends = QueueEnds::default();
            // Other entries would need another file. They are used only after a crash, or if messages have expired.
            let wanted = [end - 1, end - 2, *start];
            for (end_entry, offset) in ends.0.iter_mut().zip(wanted) {
                if offset >= *start {
                    *end_entry = entries.get(offset)?.map(|unit| (offset, unit));
                }
            }
            return Ok((end, ends));
        }
    }
    Ok((starts.first().copied().unwrap_or(0), QueueEnds::default()))
}

fn find_valid(entries: &mut EntryReader<'_>, range: Range<i64>) -> Result<Option<i64>> {
    for offset in range {
        if entries.get(offset)?.is_some_and(CqUnit::is_valid) {
            return Ok(Some(offset));
        }
    }
    Ok(None)
}

/// Returns the first offset in `range` for which `before` is false (binary search). The offsets for which it is true must come
/// first.
pub(super) fn search(range: Range<i64>, mut before: impl FnMut(i64) -> Result<bool>) -> Result<i64> {
    let Range {
        start: mut low,
        end: mut high,
    } = range;
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle)? {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}
