//! The index files of a store, oldest first, and which part of the log each of them speaks for.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::format::{GeometryGuess, IndexGeometry, parse_index_name};
use crate::log::index_file::IndexFile;
use crate::storage::{EntryKind, Env};

/// Where the keys of one stretch of the log are found.
#[derive(Debug)]
pub enum Source<'a> {
    /// In this file, of this geometry, which speaks for these physical offsets.
    Index(&'a IndexFile, IndexGeometry, Range<i64>),
    /// Nowhere: these physical offsets must be walked.
    Log(Range<i64>),
}

impl Source<'_> {
    /// The physical offsets it speaks for.
    pub fn range(&self) -> Range<i64> {
        match self {
            Self::Index(_, _, range) | Self::Log(range) => range.clone(),
        }
    }
}

/// All index files of a store.
#[derive(Debug)]
pub struct IndexService {
    files: Vec<IndexFile>,
    given: Option<IndexGeometry>,
    /// Files whose last item was stored after this are believed only when they are whole.
    safe_until: i64,
    trusted: OnceLock<Vec<(usize, IndexGeometry)>>,
}

impl IndexService {
    /// Lists the files in `dir`. `safe_until` is the store time up to which index files are known to be on disk: everything
    /// after a clean exit, the checkpoint's `index_msg_timestamp` otherwise.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn load(env: &Arc<dyn Env>, dir: &Path, given: Option<IndexGeometry>, safe_until: i64) -> Result<Self> {
        let mut names = match env.list(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            listed => listed.map_err(|error| Error::io("list", dir, error))?,
        };
        names.retain(|entry| entry.kind == EntryKind::File && entry.name.to_str().and_then(parse_index_name).is_some());
        names.sort_by(|a, b| a.name.cmp(&b.name));
        let files: Result<Vec<_>> = names
            .iter()
            .map(|entry| IndexFile::open(env.clone(), dir.join(&entry.name), entry.len))
            .collect();
        Ok(Self {
            files: files?,
            given,
            safe_until,
            trusted: OnceLock::new(),
        })
    }

    /// The files, oldest first.
    pub fn files(&self) -> &[IndexFile] {
        &self.files
    }

    /// Cuts `log` into stretches, ascending, each with where its keys are found. Neighbours may share one record, and what lies
    /// between two files is walked: no key stands there unless it was lost. Reads whole index files at the first call, to
    /// find their geometry where none was given.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sources(&self, log: Range<i64>) -> Result<Vec<Source<'_>>> {
        let mut sources = Vec::new();
        let mut at = log.start;
        for (number, geometry) in self.trusted()? {
            let Some(file) = self.files.get(*number) else { continue };
            let header = file.header();
            let range = header.begin_physical_offset.max(at)..header.end_physical_offset.saturating_add(1).min(log.end);
            if range.is_empty() {
                continue;
            }
            if at < range.start {
                sources.push(Source::Log(at..range.start));
            }
            // A walk starts where a record starts, so the one after this file begins at its last record again.
            at = range.end - 1;
            sources.push(Source::Index(file, *geometry, range));
        }
        if at < log.end {
            sources.push(Source::Log(at..log.end));
        }
        Ok(sources)
    }

    fn trusted(&self) -> Result<&[(usize, IndexGeometry)]> {
        if let Some(trusted) = self.trusted.get() {
            return Ok(trusted);
        }
        let mut trusted = Vec::new();
        let shared = self.shared_geometry()?;
        for (number, file) in self.files.iter().enumerate().filter(|(_, file)| !file.is_empty()) {
            let geometry = match shared {
                Some(geometry) => geometry,
                None => match file.guess_geometry()? {
                    GeometryGuess::One(geometry) => geometry,
                    _ => continue,
                },
            };
            if file.header().end_time <= self.safe_until || file.is_whole(geometry)? {
                trusted.push((number, geometry));
            }
        }
        Ok(self.trusted.get_or_init(|| trusted))
    }

    /// The geometry of every file: the option, or what the first file that admits just one shape says, if all have its length.
    fn shared_geometry(&self) -> Result<Option<IndexGeometry>> {
        if self.given.is_some() {
            return Ok(self.given);
        }
        for file in &self.files {
            if let GeometryGuess::One(geometry) = file.guess_geometry()? {
                let shared = self.files.iter().all(|other| other.len() == geometry.file_len());
                return Ok(shared.then_some(geometry));
            }
        }
        Ok(None)
    }
}
