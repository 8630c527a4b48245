//! Mapped memory as bounds-checked reads and writes.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};

use super::guard::{Registration, page_size};

/// The size of a line of the processor's cache.
const LINE: usize = 64;

/// The first bytes of a file as memory, shared with every process that has the file mapped.
///
/// No function panics or exceeds the region. Other threads and processes may write concurrently: a racing [`read`] returns a mix of
/// old and new bytes, so the caller must order reads after appends. Once the guard is installed, a page that cannot be read (the
/// file was cut short, the device failed) reads as zeros from there to the end, and [`intact`] reports it.
///
/// [`read`]: Region::read
/// [`intact`]: Region::intact
pub struct Region {
    start: *mut u8,
    len: usize,
    writable: bool,
    bytes_read: Option<Arc<AtomicU64>>,
    // Declared before `memory`, so that the slot is released before the mapping: otherwise the handler could map over memory of
    // others.
    registration: Option<Registration>,
    memory: Memory,
}

enum Memory {
    Mapping(MmapRaw),
    Heap { _words: Arc<[AtomicU64]> },
}

// SAFETY: `start` points into `memory`, which the region owns and never moves. It is accessed only by copies and atomics on raw
// pointers; no reference to it is created except by `bytes`, whose contract excludes writers.
unsafe impl Send for Region {}
// SAFETY: as above; no method needs exclusive access.
unsafe impl Sync for Region {}

impl Region {
    /// Wraps a mapping of a file and puts it under the guard.
    ///
    /// # Errors
    /// `OutOfMemory` if the guard has no slot left.
    pub(super) fn mapped(mapping: MmapRaw, writable: bool) -> io::Result<Self> {
        let (start, len) = (mapping.as_mut_ptr(), mapping.len());
        // SAFETY: the region owns the mapping, and drops the registration first.
        let registration = unsafe { Registration::new(start, len, writable) }?;
        Ok(Self {
            start,
            len,
            writable,
            bytes_read: None,
            registration: Some(registration),
            memory: Memory::Mapping(mapping),
        })
    }

    /// Allocates `len` bytes of memory without a file. A child of fork does not inherit them.
    ///
    /// # Errors
    /// `OutOfMemory` and others of the system.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        let mapping = MmapRaw::from(MmapOptions::new().len(len).map_anon()?);
        mapping.advise(Advice::DontFork)?;
        Ok(Self {
            start: mapping.as_mut_ptr(),
            len,
            writable: true,
            bytes_read: None,
            registration: None,
            memory: Memory::Mapping(mapping),
        })
    }

    /// Locks the pages in memory (`mlock`), which also prefaults them for writing. Does nothing on the heap.
    ///
    /// # Errors
    /// `PermissionDenied` or `OutOfMemory` if the limit of locked memory is exceeded (`RLIMIT_MEMLOCK`): nothing is locked.
    pub fn lock(&self) -> io::Result<()> {
        match &self.memory {
            Memory::Mapping(mapping) => mapping.lock(),
            Memory::Heap { .. } => Ok(()),
        }
    }

    /// Wraps `len` bytes on the heap (`None` if `words` holds fewer): a file of an [`Env`](super::Env) without a disk.
    pub fn on_heap(words: Arc<[AtomicU64]>, len: usize) -> Option<Self> {
        (len <= size_of_val::<[AtomicU64]>(&words)).then(|| Self {
            start: words.as_ptr().cast::<u8>().cast_mut(),
            len,
            writable: true,
            bytes_read: None,
            registration: None,
            memory: Memory::Heap { _words: words },
        })
    }

    /// Adds the number of bytes read through the region to `bytes_read`.
    #[must_use]
    pub fn counted(self, bytes_read: Arc<AtomicU64>) -> Self {
        Self {
            bytes_read: Some(bytes_read),
            ..self
        }
    }

    /// Returns the size of the region.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Fills `into` from position `at` on. Returns false if the region ends before, or if a byte could not be read
    /// ([`intact`](Self::intact) returns which); the contents of `into` are then undefined.
    #[inline]
    pub fn read(&self, at: usize, into: &mut [u8]) -> bool {
        let Some(from) = self.pointer(at, into.len()) else {
            return false;
        };
        // SAFETY: `from` has `into.len()` readable bytes, and `into` does not overlap the region: regions return no `&mut`.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        // Some callers read only to learn whether the page is there: an unused copy must not be optimized away.
        std::hint::black_box(into.as_mut_ptr());
        self.count(into.len());
        self.intact(at..at + into.len())
    }

    /// Returns the bytes in place; `None` if the region ends before. Only for ranges that no process changes any more (sealed
    /// segments, closed files). Check [`intact`](Self::intact) after using them.
    pub fn bytes(&self, range: Range<usize>) -> Option<&[u8]> {
        let len = range.end.checked_sub(range.start)?;
        let from = self.pointer(range.start, len)?;
        self.count(len);
        // SAFETY: `from` has `len` readable bytes as long as the region lives; the contract above excludes writers. If the file is
        // cut short nevertheless, the guard puts zeros there, and the caller checks `intact`.
        Some(unsafe { std::slice::from_raw_parts(from, len) })
    }

    /// Copies `bytes` to position `at`. Returns false if the region ends before, was mapped for reading, or lost that page: the
    /// bytes are then not in the file.
    pub fn write(&self, at: usize, bytes: &[u8]) -> bool {
        self.write_parts(at, &[bytes])
    }

    /// Writes consecutive parts, as [`write`](Region::write) does. The first part is copied last: a concurrent reader that sees it
    /// sees the others, too.
    #[inline]
    pub fn write_parts(&self, at: usize, parts: &[&[u8]]) -> bool {
        let len = parts.iter().fold(0_usize, |len, part| len.saturating_add(part.len()));
        let (Some(to), Some((first, rest))) = (self.pointer(at, len).filter(|_| self.writable), parts.split_first()) else {
            return false;
        };
        let mut position = first.len();
        for part in rest {
            // SAFETY: `to` has `len` writable bytes, the sum of all parts, and no part overlaps them by `bytes`' contract.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), to.add(position), part.len()) };
            position += part.len();
        }
        fence(Ordering::Release);
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(first.as_ptr(), to, first.len()) };
        self.intact(at..at + len)
    }

    /// Stores a big-endian number at `at` in one access with release ordering. Returns false as `write` does, or if `at` is not a
    /// multiple of 4.
    pub fn store_be_u32(&self, at: usize, number: u32) -> bool {
        let Some(cell) = self.cell(at).filter(|_| self.writable) else {
            return false;
        };
        cell.store(number.to_be(), Ordering::Release);
        self.intact(at..at + size_of::<u32>())
    }

    /// Advises the system that the bytes are accessed in random order: no read-ahead.
    pub fn advise_random_access(&self) {
        if let Memory::Mapping(mapping) = &self.memory {
            // A refused hint only costs time.
            let _ = mapping.advise(Advice::Random);
        }
    }

    /// Starts reading a range from disk without waiting (prefetch). A hint: a range outside the region does nothing.
    pub fn prefetch(&self, range: Range<usize>) {
        let Some(len) = range.end.checked_sub(range.start) else {
            return;
        };
        if let (Some(_), Memory::Mapping(mapping)) = (self.pointer(range.start, len), &self.memory) {
            // A refused hint only costs time.
            let _ = mapping.advise_range(Advice::WillNeed, range.start, len);
        }
    }

    /// Brings the lines of a range into the processor's cache. A hint: nothing happens outside of the region. An x86-64 processor
    /// does not wait, and does nothing if the page is not mapped yet; other processors read a byte of each line.
    #[inline]
    pub fn touch(&self, range: Range<usize>) {
        for position in (range.start / LINE * LINE..range.end.min(self.len)).step_by(LINE) {
            // SAFETY: `position < self.len`, so the pointer stays inside the region's memory.
            let byte = unsafe { self.start.add(position) };
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a prefetch changes nothing, and does not fault.
            unsafe {
                std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(byte.cast());
            }
            #[cfg(not(target_arch = "x86_64"))]
            // SAFETY: `byte` is readable for as long as the region lives.
            std::hint::black_box(unsafe { byte.read_volatile() });
        }
    }

    /// Returns true if a page of the range is in the page cache. Also returns true outside of the region, on the heap, and if the
    /// system does not report it, as for a file that this user may not write.
    pub fn is_cached(&self, range: Range<usize>) -> bool {
        let len = range.end.saturating_sub(range.start);
        let (Some(start), Memory::Mapping(_)) = (self.pointer(range.start, len), &self.memory) else {
            return true;
        };
        let page = start.map_addr(|address| address & !(page_size() - 1));
        let len = start.addr() - page.addr() + len;
        let mut states = vec![0_u8; len.div_ceil(page_size())];
        // SAFETY: the pages lie in the mapping, which starts with a page, and each has one byte in `states`. No byte of the mapping
        // is accessed.
        let result = unsafe { libc::mincore(page.cast(), len, states.as_mut_ptr()) };
        result != 0 || states.iter().any(|state| state & 1 == 1)
    }

    /// Prefaults the pages of a range for writing (`MADV_POPULATE_WRITE`), so that writing them causes no page fault. Their bytes
    /// are unchanged, but count as dirty: a sync of the range writes them. Does nothing on the heap.
    ///
    /// # Errors
    /// `InvalidInput` before Linux 5.14, and for a range outside the region. Any error means that some pages are not ready, and has
    /// no other effect.
    pub fn supply(&self, range: Range<usize>) -> io::Result<()> {
        let len = range.end.saturating_sub(range.start);
        match &self.memory {
            Memory::Mapping(mapping) if self.writable => mapping.advise_range(Advice::PopulateWrite, range.start, len),
            _ => Ok(()),
        }
    }

    /// Unmaps the pages of a range of a mapped file (`MADV_DONTNEED`). The system drops no page from the page cache while it is
    /// mapped. An access maps the page again with the file's bytes. A hint: nothing happens outside the region, on other memory, or
    /// to locked pages.
    pub fn release_pages(&self, range: Range<usize>) {
        let Some(len) = range.end.checked_sub(range.start) else {
            return;
        };
        if let (Some(_), Some(_), Memory::Mapping(mapping)) = (self.pointer(range.start, len), &self.registration, &self.memory) {
            // SAFETY: only the mapping of a file has a registration. The mapping is shared, so its bytes are the file's, whether or
            // not its pages are mapped. The private pages that the guard puts into it are zeros, and are zeros again.
            let _ = unsafe { mapping.unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, len) };
        }
    }

    /// Returns the number of faults in the region since it was mapped.
    pub fn faults(&self) -> u32 {
        self.registration.as_ref().map_or(0, Registration::faults)
    }

    /// Returns true if every byte read from `range` before this call was the file's, and every byte written went there: no page up
    /// to its end was ever lost.
    pub fn intact(&self, range: Range<usize>) -> bool {
        range.end <= self.intact_len()
    }

    /// Returns the number of bytes from the start of the region up to the first page that was ever lost, or to the end.
    pub fn intact_len(&self) -> usize {
        self.registration.as_ref().map_or(self.len, Registration::intact_len)
    }

    /// Returns the address of position `at`, if `len` bytes follow it.
    fn pointer(&self, at: usize, len: usize) -> Option<*mut u8> {
        let end = at.checked_add(len)?;
        // SAFETY: `at <= end <= self.len`, so the pointer stays inside the region's memory.
        (end <= self.len).then(|| unsafe { self.start.add(at) })
    }

    #[expect(clippy::cast_ptr_alignment, reason = "checked right after the cast")]
    fn cell(&self, at: usize) -> Option<&AtomicU32> {
        let pointer = self.pointer(at, size_of::<u32>())?.cast::<u32>();
        // SAFETY: four bytes of the region, aligned; on x86-64 and aarch64 an atomic load may read read-only memory.
        pointer.is_aligned().then(|| unsafe { AtomicU32::from_ptr(pointer) })
    }

    fn count(&self, bytes: usize) {
        if let Some(bytes_read) = &self.bytes_read {
            bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("len", &self.len)
            .field("writable", &self.writable)
            .field("faults", &self.faults())
            .finish_non_exhaustive()
    }
}
