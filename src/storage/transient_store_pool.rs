//! The buffers in which appended bytes wait until they are written to their segments: `RocketMQ`'s `TransientStorePool`.
//!
//! The buffers form a ring buffer: the byte at offset `x` of the log is stored at `x` modulo the size of the ring, so buffers are
//! reused without bookkeeping. The writer must make sure that the byte that it overwrites has been committed.

use std::io;
use std::ops::Range;

use super::fork::Generation;
use super::region::Region;

/// A ring of buffers that are allocated once.
#[derive(Debug)]
pub struct TransientStorePool {
    buffers: Box<[Region]>,
    buffer_size: usize,
    /// The outcome of locking the buffers in memory; `None` if that was not requested.
    locked: Option<io::Result<()>>,
    made_in: Generation,
}

impl Drop for TransientStorePool {
    fn drop(&mut self) {
        if self.made_in != Generation::current() {
            // A child of fork does not inherit this memory, and may use the same addresses for something else.
            std::mem::forget(std::mem::take(&mut self.buffers));
        }
    }
}

impl TransientStorePool {
    /// Allocates `count` buffers of `buffer_size` bytes, neither of them 0.
    ///
    /// # Errors
    /// `OutOfMemory` and others of the system: there is no pool.
    pub fn new(count: usize, buffer_size: usize) -> io::Result<Self> {
        let buffers = (0..count)
            .map(|_| Region::anonymous(buffer_size))
            .collect::<io::Result<Box<[_]>>>()?;
        Ok(Self {
            buffers,
            buffer_size,
            locked: None,
            made_in: Generation::current(),
        })
    }

    /// Locks the buffers in memory. The pool also works if that is refused.
    pub fn lock(&mut self) {
        self.locked = Some(self.buffers.iter().try_for_each(Region::lock));
    }

    /// Returns true if all buffers are locked in memory. Unlocked buffers may be swapped out.
    pub fn is_locked(&self) -> bool {
        matches!(self.locked, Some(Ok(())))
    }

    /// Returns the reason why buffers could not be locked.
    pub fn lock_refusal(&self) -> Option<&io::Error> {
        self.locked.as_ref()?.as_ref().err()
    }

    /// Returns the number of buffers.
    pub fn count(&self) -> usize {
        self.buffers.len()
    }

    /// Returns the size of each buffer.
    pub fn buffer_size(&self) -> u64 {
        self.buffer_size as u64
    }

    /// Returns the size of all buffers together.
    pub fn capacity(&self) -> u64 {
        self.buffer_size() * self.count() as u64
    }

    /// Copies consecutive parts to an offset of the log; returns false if they exceed the ring.
    pub fn write(&self, offset: u64, parts: &[&[u8]]) -> bool {
        let at = (offset % self.capacity()) as usize;
        let Some(buffer) = self.buffers.get(at / self.buffer_size) else {
            return false;
        };
        if buffer.write_parts(at % self.buffer_size, parts) {
            return true;
        }
        let mut at = offset;
        parts.iter().all(|part| {
            let is_written = self.write_wrapping(at, part);
            at += part.len() as u64;
            is_written
        })
    }

    /// Copies bytes that may span several buffers.
    fn write_wrapping(&self, offset: u64, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        for (buffer, slice) in self.slices(offset, bytes.len()) {
            let (here, later) = rest.split_at(slice.len().min(rest.len()));
            if !buffer.write(slice.start, here) {
                return false;
            }
            rest = later;
        }
        rest.is_empty()
    }

    /// Returns the bytes of a range of the log, in pieces; `None` if they exceed the ring. No thread may write there while the
    /// caller uses them.
    pub fn read(&self, range: Range<u64>) -> Option<Vec<&[u8]>> {
        let len = range.end.saturating_sub(range.start);
        let slices = (len <= self.capacity()).then(|| self.slices(range.start, len as usize))?;
        slices.map(|(buffer, slice)| buffer.bytes(slice)).collect()
    }

    /// Returns the slices of the buffers that hold `len` bytes from `offset` on, at most once around the ring.
    fn slices(&self, offset: u64, len: usize) -> impl Iterator<Item = (&Region, Range<usize>)> {
        let mut at = (offset % self.capacity()) as usize;
        let mut left = len.min(self.capacity() as usize);
        std::iter::from_fn(move || {
            let buffer = self.buffers.get(at / self.buffer_size).filter(|_| left > 0)?;
            let start = at % self.buffer_size;
            let end = self.buffer_size.min(start + left);
            left -= end - start;
            at = (at + end - start) % (self.buffer_size * self.buffers.len());
            Some((buffer, start..end))
        })
    }
}
