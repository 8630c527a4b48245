//! A file of a queue, mapped for reading, and ranges of it that keep the mapping alive.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::fstat;

use super::env::{Access, Env, File};
use super::region::Region;
use crate::error::{Error, Result};

/// A file mapped for reading, whose first byte has the offset `start` in its queue. Its descriptor is closed; its bytes stay
/// readable while an `Arc` of it exists, even if the file is renamed or unlinked. If the process has no address space for it, the
/// file stays open instead, and its bytes are only ever copied.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    start: u64,
    bytes: Bytes,
    /// Device and inode. The mapping keeps the inode in use, so no other file gets its number.
    identity: Option<(u64, u64)>,
}

#[derive(Debug)]
enum Bytes {
    Mapped(Region),
    Open(OpenBytes),
}

/// The first bytes of a file that is not mapped.
#[derive(Debug)]
struct OpenBytes {
    file: Arc<dyn File>,
    len: u64,
    /// The position of the first byte that could not be read.
    intact: AtomicU64,
}

impl OpenBytes {
    fn read(&self, at: usize, into: &mut [u8]) -> bool {
        let at = at as u64;
        if at.checked_add(into.len() as u64).is_none_or(|end| end > self.len) {
            return false;
        }
        let read = self.file.read_full_at(into, at).unwrap_or(0);
        if read < into.len() {
            self.intact.fetch_min(at + read as u64, Ordering::AcqRel);
        }
        read == into.len()
    }
}

/// Returns device and inode of a file of the system.
fn identity_of(file: &dyn File) -> Option<(u64, u64)> {
    let found = fstat(file.descriptor()?).ok()?;
    Some((found.st_dev, found.st_ino))
}

/// Returns the error of a file that ends at `found` and had `len` bytes.
fn cut_short(path: &Path, found: u64, len: u64) -> Error {
    let reason = format!(
        "the file ends here, {len} bytes were expected: it was cut short while the store was open; reopen the store, or copy the file \
         again"
    );
    Error::corrupt(path, found, reason)
}

impl MappedFile {
    /// Maps the first `len` bytes of a file.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be opened or mapped, [`Error::Corrupt`] if it is shorter than `len`.
    pub fn open(env: &dyn Env, path: PathBuf, start: u64, len: u64) -> Result<Arc<Self>> {
        let file = env.open(&path, Access::Read).map_err(|e| Error::io("open", &path, e))?;
        let found = file.len().map_err(|e| Error::io("measure", &path, e))?;
        if found < len {
            return Err(cut_short(&path, found, len));
        }
        let identity = identity_of(file.as_ref());
        let bytes = match file.map(len as usize, Access::Read) {
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => Bytes::Open(OpenBytes {
                file,
                len,
                intact: AtomicU64::new(len),
            }),
            mapped => Bytes::Mapped(mapped.map_err(|e| Error::io("map", &path, e))?),
        };
        Ok(Arc::new(Self {
            path,
            start,
            bytes,
            identity,
        }))
    }

    /// Opens the file again, for calls that need a descriptor; `None` if its name leads to another file by now or to no file, or if it
    /// cannot be opened. A mapping holds no descriptor: a process has fewer of them than mappings.
    pub(super) fn reopen(&self, env: &dyn Env) -> Option<Arc<dyn File>> {
        if let Bytes::Open(open) = &self.bytes {
            return Some(Arc::clone(&open.file));
        }
        self.identity?;
        let file = env.open(&self.path, Access::Read).ok()?;
        (identity_of(file.as_ref()) == self.identity).then_some(file)
    }

    /// Checks that the file, [opened again](Self::reopen), and the mapping still have the bytes before `end`. A mapping alone does not show
    /// the loss of a part of a page: the rest of the page of the new end reads as zeros.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub(super) fn expect_whole(&self, file: Option<&dyn File>, end: usize) -> Result<()> {
        if let Some(file) = file {
            let found = file.len().map_err(|error| Error::io("measure", &self.path, error))?;
            if found < end as u64 {
                return Err(cut_short(&self.path, found, end as u64));
            }
        }
        self.check_intact(0..end)
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the queue offset of the first byte.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns the size that the file had when it was opened.
    pub fn len(&self) -> u64 {
        match &self.bytes {
            Bytes::Mapped(region) => region.len() as u64,
            Bytes::Open(open) => open.len,
        }
    }

    /// Returns true if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if its bytes are in memory, so that they can be used in place.
    pub fn is_in_memory(&self) -> bool {
        matches!(self.bytes, Bytes::Mapped(_))
    }

    /// Returns the queue offset after the last byte.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.len())
    }

    /// Returns a range of bytes in place; `None` outside the file, and if they are not [in memory](Self::is_in_memory). Only for
    /// ranges that no process writes any more. Call [`check_intact`](Self::check_intact) after using them.
    pub fn bytes(&self, range: Range<usize>) -> Option<&[u8]> {
        match &self.bytes {
            Bytes::Mapped(region) => region.bytes(range),
            Bytes::Open(_) => None,
        }
    }

    /// Fills `into` from position `at` on; returns false outside the file, or if the bytes could not be read
    /// ([`check_intact`](Self::check_intact) returns which).
    #[inline]
    pub fn read(&self, at: usize, into: &mut [u8]) -> bool {
        match &self.bytes {
            Bytes::Mapped(region) => region.read(at, into),
            Bytes::Open(open) => open.read(at, into),
        }
    }

    /// Starts reading a range from disk without waiting (prefetch).
    pub fn prefetch(&self, range: Range<usize>) {
        if let Bytes::Mapped(region) = &self.bytes {
            region.prefetch(range);
        }
    }

    /// Brings a range into the processor's cache, as [`Region::touch`] does.
    #[inline]
    pub fn touch(&self, range: Range<usize>) {
        if let Bytes::Mapped(region) = &self.bytes {
            region.touch(range);
        }
    }

    /// Returns true if a page of the range is in memory, as [`Region::is_cached`] does; a file that is not mapped counts as cached.
    pub fn is_cached(&self, range: Range<usize>) -> bool {
        match &self.bytes {
            Bytes::Mapped(region) => region.is_cached(range),
            Bytes::Open(_) => true,
        }
    }

    /// Unmaps pages, as [`Region::release_pages`] does.
    pub(super) fn release_pages(&self, range: Range<usize>) {
        if let Bytes::Mapped(region) = &self.bytes {
            region.release_pages(range);
        }
    }

    /// Returns the number of faults since the file was mapped.
    pub fn faults(&self) -> u32 {
        match &self.bytes {
            Bytes::Mapped(region) => region.faults(),
            Bytes::Open(_) => u32::from(self.intact_len() < self.len()),
        }
    }

    fn intact_len(&self) -> u64 {
        match &self.bytes {
            Bytes::Mapped(region) => region.intact_len() as u64,
            Bytes::Open(open) => open.intact.load(Ordering::Acquire),
        }
    }

    /// Checks that every byte read from `range` so far was the file's, and not a zero of the guard. A lost page stays lost until
    /// the file is mapped again.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with the first byte that was lost.
    #[inline]
    pub fn check_intact(&self, range: Range<usize>) -> Result<()> {
        if range.end as u64 <= self.intact_len() {
            return Ok(());
        }
        Err(self.lost())
    }

    #[cold]
    fn lost(&self) -> Error {
        let reason = "the file could not be read from here on: it was cut short while the store was open, or the device failed; check \
                      both, then reopen the store";
        Error::corrupt(&self.path, self.intact_len(), reason)
    }

    /// Returns a range in place that keeps the mapping alive; `None` if [`bytes`](Self::bytes) returns `None`. Only for ranges that
    /// no process writes any more.
    pub fn select(self: &Arc<Self>, range: Range<usize>) -> Option<SelectedBuffer> {
        let is_inside = range.start <= range.end && range.end as u64 <= self.len();
        (is_inside && self.is_in_memory()).then(|| SelectedBuffer::Mapped {
            file: Arc::clone(self),
            range,
        })
    }

    /// Returns a copy of a range, for bytes that a writer may still change; `None` outside the file or if they could not be read.
    pub fn copy(&self, range: Range<usize>) -> Option<SelectedBuffer> {
        let len = range.end.checked_sub(range.start)?;
        // The check comes before the allocation: a range taken from a corrupt record may have any length.
        if range.end as u64 > self.len() {
            return None;
        }
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
        self.read(range.start, Arc::get_mut(&mut bytes)?)
            .then_some(SelectedBuffer::Owned(bytes))
    }
}

/// Bytes of a file that are independent of a borrow of it: in place if the file is sealed, otherwise a copy.
#[derive(Debug, Clone)]
pub enum SelectedBuffer {
    /// A range in place, which keeps the mapping alive.
    Mapped {
        /// The mapping.
        file: Arc<MappedFile>,
        /// The positions in the file.
        range: Range<usize>,
    },
    /// A copy.
    Owned(Arc<[u8]>),
}

impl SelectedBuffer {
    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped { file, range } => file.bytes(range.clone()).unwrap_or_default(),
            Self::Owned(bytes) => bytes,
        }
    }

    /// Returns true if the bytes are the file's own pages.
    pub fn is_mapped(&self) -> bool {
        matches!(self, Self::Mapped { .. })
    }

    /// Checks that the bytes read through this buffer so far were the file's: no page of them, or before them in the file, was
    /// lost.
    ///
    /// # Errors
    /// [`Error::Corrupt`]: zeros were read instead.
    pub fn check_intact(&self) -> Result<()> {
        match self {
            Self::Mapped { file, range } => file.check_intact(range.clone()),
            Self::Owned(_) => Ok(()),
        }
    }
}
