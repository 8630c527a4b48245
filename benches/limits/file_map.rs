//! An allocated and mapped file, to which the limits write as mqstore does.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use memmap2::MmapMut;
use rustix::fs::{FallocateFlags, fallocate};

/// A mapped file of fixed size.
pub struct FileMap {
    map: MmapMut,
}

impl FileMap {
    /// Creates the file. No page of it is in memory.
    pub fn new(path: &Path, len: usize) -> Self {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, len as u64).unwrap();
        file.sync_all().unwrap();
        // SAFETY: no other process uses this file.
        let map = unsafe { MmapMut::map_mut(&file) }.unwrap();
        Self { map }
    }

    /// Creates the file with every page prefaulted for writing.
    pub fn populated(path: &Path, len: usize) -> Self {
        let made = Self::new(path, len);
        made.populate(0..len);
        made
    }

    /// Prefaults pages for writing. Before Linux 5.14 each page is written instead.
    pub fn populate(&self, range: Range<usize>) {
        let range = range.start..range.end.min(self.len());
        // SAFETY: the range is inside the mapping, and the call changes no byte.
        let done = unsafe { libc::madvise(self.start().add(range.start).cast(), range.len(), libc::MADV_POPULATE_WRITE) };
        if done != 0 {
            for at in range.step_by(4096) {
                // SAFETY: inside the mapping, and no record is there yet.
                unsafe { self.start().add(at).write_volatile(0) };
            }
        }
    }

    /// Copies bytes to a position.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len());
        // SAFETY: the bytes are inside the mapping, and no reference to it exists.
        unsafe { self.start().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Returns its address. The limits write through it from several threads, each to its own range.
    pub fn start(&self) -> *mut u8 {
        self.map.as_ptr().cast_mut()
    }
}
