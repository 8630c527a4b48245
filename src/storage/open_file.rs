//! A file of a queue, open for a few reads that need no mapping. A mapping costs more than a read, and a fault in it reads 128 KiB
//! around the accessed byte: for the ends of ten thousand files, that is a gigabyte.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::env::{Access, Advice, Env, File};
use crate::error::{Error, Result};

/// A file whose first byte has the offset `start` in its queue. Holds a descriptor until it is dropped.
#[derive(Debug)]
pub struct OpenFile {
    path: PathBuf,
    start: u64,
    len: u64,
    file: Arc<dyn File>,
    written: Vec<Range<u64>>,
}

impl OpenFile {
    /// Opens the first `len` bytes of a file, and determines which of them were ever written.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open(env: &dyn Env, path: PathBuf, start: u64, len: u64) -> Result<Self> {
        let file = env
            .open(&path, Access::Read)
            .map_err(|error| Error::io("open", &path, error))?;
        // A refused hint only costs time.
        let _ = file.advise(0..len, Advice::Random);
        let written = file.written(0..len).map_err(|error| Error::io("examine", &path, error))?;
        Ok(Self {
            path,
            start,
            len,
            file,
            written,
        })
    }

    /// Returns the queue offset of the first byte.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns the size of the file when the queue was listed.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the parts that were ever written, ascending: every byte outside them is zero, and needs no read.
    pub fn written(&self) -> &[Range<u64>] {
        &self.written
    }

    /// Returns the smallest range that contains every byte of `range` that was ever written.
    pub fn written_in(&self, range: &Range<u64>) -> Range<u64> {
        let first = self.written.partition_point(|part| part.end <= range.start);
        let after = self.written.partition_point(|part| part.start < range.end);
        let parts = self.written.get(first..after).unwrap_or_default();
        match (parts.first(), parts.last()) {
            (Some(first), Some(last)) => first.start.max(range.start)..last.end.min(range.end),
            _ => range.start..range.start,
        }
    }

    /// Fills `into` from position `at` on, and returns the number of bytes: less than requested only at the end of the file.
    ///
    /// # Errors
    /// [`Error::Io`] for a block that cannot be read.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<usize> {
        self.file
            .read_full_at(into, at)
            .map_err(|error| Error::io("read", &self.path, error))
    }
}
