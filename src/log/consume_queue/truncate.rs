//! Truncates the files of a queue after recovery: no entry past its end remains, and no file without an entry.

use std::ops::Range;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::format::{CqUnit, segment_name};
use crate::log::consume_queue::consume_queue::ConsumeQueue;
use crate::log::consume_queue::entries::{UNIT, first_at};
use crate::log::consume_queue::write_out::StagedFile;
use crate::storage::{Access, Env, OpenFile, Step};

/// The number of zeros past a queue's end after which the rest of the file counts as zeros: reading the rest of 50,000 queue files
/// takes minutes.
const READ_AT_ONCE: usize = 256 * 1024;

/// The changes of a truncation that are not durable yet.
#[derive(Debug, Default)]
pub(super) struct UnsyncedTruncation {
    /// Files in which bytes were overwritten.
    files: Vec<PathBuf>,
    /// Directories from which files were removed.
    dirs: Vec<PathBuf>,
}

impl UnsyncedTruncation {
    pub(super) fn add(&mut self, other: Self) {
        self.files.extend(other.files);
        self.dirs.extend(other.dirs);
    }

    /// Adds the directories in which a staged file has replaced a file of this queue.
    pub(super) fn add_replaced(&mut self, queue: &ConsumeQueue) {
        let dir = queue.files.dir();
        self.dirs.extend([dir.to_owned(), dir.parent().unwrap_or(dir).to_owned()]);
    }

    pub(super) fn len(&self) -> usize {
        self.files.len() + self.dirs.len()
    }

    pub(super) fn sync(&self, env: &dyn Env) -> Result<()> {
        for path in &self.files {
            let synced = env.open(path, Access::ReadWrite).and_then(|file| file.sync(Step::QueuesCut));
            synced.map_err(|error| Error::io("sync", path, error))?;
        }
        for dir in &self.dirs {
            env.sync_dir(dir, Step::QueuesCut)
                .map_err(|error| Error::io("sync", dir, error))?;
        }
        Ok(())
    }
}

impl ConsumeQueue {
    /// Zeroes the bytes that a crash has left past the queue's end, and removes the files without an entry of a message, newest
    /// first: a broker takes a file full of zeros for an entry. With `is_redone` an earlier recovery was interrupted, so zeros that
    /// are read may not be on disk.
    pub(super) fn truncate_dirty(&self, clean: bool, is_redone: bool) -> Result<UnsyncedTruncation> {
        let mut unsynced = UnsyncedTruncation::default();
        let end = self.state().in_files.end;
        for start in self.files.starts().into_iter().rev() {
            let first = start as i64 / UNIT;
            if end <= first || self.is_pre_blank_entry(end.min(first + self.entries_per_file()) - 1)? {
                self.files.remove(start)?;
                unsynced.dirs = vec![self.files.dir().to_owned()];
                continue;
            }
            if !clean && self.zero_after_end(start, end, is_redone)? {
                unsynced.files.push(self.files.dir().join(segment_name(start)));
            }
            break;
        }
        if self.files.is_empty() {
            self.state_mut().in_files = end..end;
        }
        Ok(unsynced)
    }

    /// Stages a copy of the file in which the queue ends, with the entries before that end, if it has bytes past it. Returns `None` if
    /// [`truncate_dirty`](Self::truncate_dirty) changes no byte of a file.
    pub(super) fn stage_kept(&self) -> Result<Option<StagedFile>> {
        let range = self.state().in_files.clone();
        let starts = self.files.starts().into_iter().rev();
        let Some(start) = starts.map(|start| start as i64 / UNIT).find(|first| *first < range.end) else {
            return Ok(None);
        };
        let last = range.end.min(start + self.entries_per_file()) - 1;
        let Some(file) = self.files.open((start * UNIT) as u64)? else {
            return Ok(None);
        };
        let kept = ((range.end - start) * UNIT) as u64;
        if kept >= file.len() || self.is_pre_blank_entry(last)? || last_stale(&file, kept)? == kept {
            return Ok(None);
        }
        let mut bytes = vec![0; kept as usize];
        let read = file.read(0, &mut bytes)?;
        bytes.truncate(read);
        let entries = start.max(range.start)..range.end;
        self.stage_file((start * UNIT) as u64, entries, 0, &bytes).map(Some)
    }

    /// Returns true if the entry is a `PRE_BLANK`, before the first message.
    fn is_pre_blank_entry(&self, offset: i64) -> Result<bool> {
        Ok(self.entries().get(offset)?.is_some_and(CqUnit::is_pre_blank))
    }

    /// Zeroes the bytes past the end in the file that contains it; if `is_redone`, also those that read as zeros. Returns true if
    /// anything was written.
    fn zero_after_end(&self, start: u64, end: i64, is_redone: bool) -> Result<bool> {
        let Some(file) = self.files.open(start)? else {
            return Ok(false);
        };
        let from = ((end * UNIT) as u64 - start).min(file.len());
        let stale = if is_redone {
            let written = file.written().iter();
            written.map(|part| part.start.max(from)..part.end.max(from)).collect()
        } else {
            let shown = from..last_stale(&file, from)?;
            vec![shown]
        };
        if stale.iter().all(Range::is_empty) {
            return Ok(false);
        }
        let path = self.files.dir().join(segment_name(start));
        let zeroed = self
            .files
            .open_for_writing(start)
            .and_then(|file| stale.into_iter().try_for_each(|part| file.zero(part)));
        zeroed.map_err(|error| Error::full_or_io("clear the end of", &path, error))?;
        Ok(true)
    }

    /// Rewrites the entries of messages at or after `physical`: after a failed sync they may be in memory only.
    pub(super) fn rewrite(&self, physical: i64) -> Result<()> {
        let range = self.state().in_files.clone();
        if self.last_unit()?.is_none_or(|unit| unit.physical_offset < physical) {
            return Ok(());
        }
        let first = first_at(&mut self.entries(), range.clone(), physical)?;
        for start in self.files.starts() {
            let file_first = start as i64 / UNIT;
            let entries = first.max(file_first)..range.end.min(file_first + self.entries_per_file());
            if entries.is_empty() {
                continue;
            }
            let Some(file) = self.files.open(start)? else { continue };
            let at = ((entries.start - file_first) * UNIT) as u64;
            let mut bytes = vec![0; ((entries.end - entries.start) * UNIT) as usize];
            let read = file.read(at, &mut bytes)?;
            bytes.truncate(read);
            let path = self.files.dir().join(segment_name(start));
            let written = self
                .files
                .open_for_writing(start)
                .and_then(|file| file.write_all_at(&bytes, at));
            written.map_err(|error| Error::full_or_io("rewrite", &path, error))?;
        }
        Ok(())
    }
}

/// Returns the position after the last non-zero byte at or after `from`, up to a range of zeros of [`READ_AT_ONCE`] bytes; `from`
/// if all are zero.
fn last_stale(file: &OpenFile, from: u64) -> Result<u64> {
    let (mut at, mut stale) = (from, from);
    let mut bytes = Vec::new();
    while at < file.len() {
        let range = at..file.len().min(at + READ_AT_ONCE as u64);
        let written = file.written_in(&range);
        bytes.resize((written.end - written.start) as usize, 0);
        let read = file.read(written.start, &mut bytes)?;
        bytes.truncate(read);
        let Some(last) = bytes.iter().rposition(|byte| *byte != 0) else {
            break;
        };
        stale = written.start + last as u64 + 1;
        at = range.end;
    }
    Ok(stale)
}
