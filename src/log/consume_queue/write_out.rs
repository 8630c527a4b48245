//! Write-back: writes the in-memory tail of a queue to its files, and tracks the files that no sync has covered.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{CQ_UNIT_SIZE, CqUnit, UNFINISHED_PREFIX, segment_name};
use crate::log::consume_queue::consume_queue::ConsumeQueue;
use crate::log::consume_queue::entries::{QueueEnds, UNIT};
use crate::storage::{Env, File, Step, create_dir};

/// The most queue files that are synced one by one; more are synced with the whole file system in one call.
pub(super) const SYNCED_ONE_BY_ONE: usize = 16;

/// The queue files with unsynced writes.
#[derive(Debug)]
pub(super) enum Unsynced {
    /// All of them, each held open since the first such write: the system reports a write error to the descriptors that were open
    /// at that time.
    Files(BTreeMap<PathBuf, Arc<dyn File>>),
    /// Too many to hold open, or some with new names: only a sync of the file system covers them.
    Everything,
}

impl Unsynced {
    /// Opens a file to be written, unless it is held open.
    pub(super) fn open(&mut self, path: &Path, open: impl FnOnce() -> io::Result<Arc<dyn File>>) -> io::Result<Arc<dyn File>> {
        let Self::Files(files) = self else { return open() };
        if let Some(file) = files.get(path) {
            return Ok(file.clone());
        }
        let file = open()?;
        if files.len() < SYNCED_ONE_BY_ONE {
            files.insert(path.to_owned(), file.clone());
        } else {
            *self = Self::Everything;
        }
        Ok(file)
    }

    /// Syncs the writes: the files one by one, or `everything`.
    pub(super) fn sync(&mut self, everything: impl FnOnce() -> Result<()>) -> Result<()> {
        match self {
            Self::Files(files) => files.iter().try_for_each(|(path, file)| {
                let synced = file.sync(Step::QueueFiles);
                synced.map_err(|error| Error::io("sync", path, error))
            }),
            Self::Everything => everything(),
        }?;
        *self = Self::Files(BTreeMap::new());
        Ok(())
    }
}

/// A queue file under a temporary name, with its first entries in it.
#[derive(Debug)]
pub(super) struct StagedFile {
    new: PathBuf,
    /// The file, open since its first write; `None` once it is closed.
    file: Option<Arc<dyn File>>,
    start: u64,
    entries: Range<i64>,
}

impl StagedFile {
    /// Syncs the file, so that no power failure leaves a file of zeros under its final name. A closed one needs a sync of the file
    /// system.
    pub(super) fn sync(&self) -> Result<()> {
        let synced = self.file.as_ref().map_or(Ok(()), |file| file.sync(Step::QueueFiles));
        synced.map_err(|error| Error::io("sync", &self.new, error))
    }

    /// Closes its descriptor.
    pub(super) fn close(&mut self) {
        self.file = None;
    }

    /// Removes it, unless it has got its final name.
    pub(super) fn discard(&self, env: &dyn Env) {
        let _ = env.unlink(&self.new);
    }
}

impl ConsumeQueue {
    /// Writes the tail back into the existing files; visible, not durable. Returns true if the next entries need a new file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn write_back(&self, unsynced: &mut Unsynced) -> Result<bool> {
        while let Some((first, bytes)) = self.next_run() {
            let (start, at) = self.file_position(first);
            if !self.files.has(start) {
                return Ok(true);
            }
            let path = self.files.dir().join(segment_name(start));
            let written = unsynced
                .open(&path, || self.files.open_for_writing(start))
                .and_then(|file| file.write_all_at(&bytes, at));
            written.map_err(|error| Error::full_or_io("write", &path, error))?;
            self.mark_written(entries_of(first, &bytes));
        }
        Ok(false)
    }

    /// Returns the start of the file of this entry, and the position of the entry in the file, both in bytes.
    fn file_position(&self, offset: i64) -> (u64, u64) {
        let file_start = self.next_file_start(offset) - self.entries_per_file();
        ((file_start * UNIT) as u64, ((offset - file_start) * UNIT) as u64)
    }

    /// Returns the first entries of the tail that are consecutive and belong to one file: the queue offset of the first, and the
    /// encoded bytes of all.
    fn next_run(&self) -> Option<(i64, Vec<u8>)> {
        let state = self.state();
        let first = state.tail.first()?;
        let mut bytes = Vec::new();
        for (next, (offset, unit)) in (first..self.next_file_start(first)).zip(state.tail.iter()) {
            if offset != next {
                break;
            }
            bytes.extend(unit.encode());
        }
        Some((first, bytes))
    }

    /// Stages the file of the first entries of the tail; `None` if no entry waits.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`].
    pub(super) fn stage(&self) -> Result<Option<StagedFile>> {
        let Some((first, bytes)) = self.next_run() else {
            return Ok(None);
        };
        let (start, at) = self.file_position(first);
        self.stage_file(start, entries_of(first, &bytes), at, &bytes).map(Some)
    }

    /// Creates a queue file next to the queue's directory, where a broker ignores names that are not numbers, and writes its
    /// entries there: a broker takes a file full of zeros for an entry.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`].
    pub(super) fn stage_file(&self, start: u64, entries: Range<i64>, at: u64, bytes: &[u8]) -> Result<StagedFile> {
        let size = (self.entries_per_file() * UNIT) as u64;
        let queue = self.files.dir().file_name().unwrap_or_default();
        let topic = self.files.dir().parent().unwrap_or(self.files.dir());
        let new = topic.join(format!("{UNFINISHED_PREFIX}{}-{}", queue.display(), segment_name(start)));
        for dir in [topic, self.files.dir()] {
            create_dir(self.env.as_ref(), dir)?;
        }
        // An earlier process may have died while it created this file.
        let _ = self.env.unlink(&new);
        let filled = || {
            let file = self.env.create(&new)?;
            file.write_all_at(&CqUnit::PRE_BLANK.encode().repeat(at as usize / CQ_UNIT_SIZE), 0)?;
            file.write_all_at(bytes, at)?;
            if at + (bytes.len() as u64) < size {
                file.write_all_at(&[0], size - 1)?;
            }
            Ok(file)
        };
        match filled() {
            Ok(file) => Ok(StagedFile {
                new,
                file: Some(file),
                start,
                entries,
            }),
            Err(error) => {
                // The unfinished file must not keep its space.
                let _ = self.env.unlink(&new);
                Err(Error::full_or_io("create", &new, error))
            }
        }
    }

    /// Renames a staged and synced file to its final name. Returns true if other entries wait in memory.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`].
    pub(super) fn publish(&self, staged: &StagedFile) -> Result<bool> {
        let path = self.files.dir().join(segment_name(staged.start));
        self.env
            .rename(&staged.new, &path)
            .map_err(|error| Error::full_or_io("rename", &path, error))?;
        self.files.add(staged.start);
        Ok(self.mark_written(staged.entries.clone()))
    }

    /// Moves the first entries of the tail, up to the end of `entries`, to the entries in files. Returns true if the tail has others:
    /// the next entry is then not the first that waits.
    fn mark_written(&self, entries: Range<i64>) -> bool {
        let mut state = self.state_mut();
        state.ends = QueueEnds::default();
        state.tail.forget_before(entries.end);
        state.in_files = if state.in_files.is_empty() {
            entries
        } else {
            state.in_files.start.min(entries.start)..state.in_files.end.max(entries.end)
        };
        !state.tail.is_empty()
    }
}

/// Returns the queue offsets of encoded entries.
fn entries_of(first: i64, bytes: &[u8]) -> Range<i64> {
    first..first + bytes.len() as i64 / UNIT
}
