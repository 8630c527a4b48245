//! Memory that appended bytes wait in until they are written to their segments: `RocketMQ`'s `TransientStorePool`.
//!
//! The buffers form a ring: the byte at offset `x` of the log has its place at `x` modulo the size of the ring. So every buffer is used
//! again and again, and no byte needs to know its buffer. Whoever writes makes sure that the ring has no other byte at that place any more.

use std::io;
use std::ops::Range;

use super::fork::Generation;
use super::region::Region;

/// Buffers that are made once.
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
            // A child of fork has none of this memory, and may have something else at the same addresses.
            std::mem::forget(std::mem::take(&mut self.buffers));
        }
    }
}

impl TransientStorePool {
    /// Makes `count` buffers of `buffer_size` bytes, neither of them 0.
    ///
    /// # Errors
    /// `OutOfMemory` and others, as the system gives them: there is no pool.
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

    /// Locks the buffers in memory. A pool that may not be locked works.
    pub fn lock(&mut self) {
        self.locked = Some(self.buffers.iter().try_for_each(Region::lock));
    }

    /// Returns true if all buffers are locked in memory. Others may be swapped out.
    pub fn is_locked(&self) -> bool {
        matches!(self.locked, Some(Ok(())))
    }

    /// Returns the reason why the buffers, or some of them, could not be locked.
    pub fn lock_refusal(&self) -> Option<&io::Error> {
        self.locked.as_ref()?.as_ref().err()
    }

    /// Returns the number of buffers.
    pub fn count(&self) -> usize {
        self.buffers.len()
    }

    /// Bytes of each buffer.
    pub fn buffer_size(&self) -> u64 {
        self.buffer_size as u64
    }

    /// Bytes of all buffers together.
    pub fn capacity(&self) -> u64 {
        self.buffer_size() * self.count() as u64
    }

    /// Puts parts at an offset of the log, one after the other; `false` if they are more than the ring has.
    pub fn write(&self, offset: u64, parts: &[&[u8]]) -> bool {
        let place = (offset % self.capacity()) as usize;
        let Some(buffer) = self.buffers.get(place / self.buffer_size) else {
            return false;
        };
        if buffer.write_parts(place % self.buffer_size, parts) {
            return true;
        }
        let mut at = offset;
        parts.iter().all(|part| {
            let is_written = self.write_around(at, part);
            at += part.len() as u64;
            is_written
        })
    }

    /// Does the same as [`TransientStorePool::write`], for bytes that may lie in several buffers.
    fn write_around(&self, offset: u64, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        for (buffer, place) in self.places(offset, bytes.len()) {
            let (here, later) = rest.split_at(place.len().min(rest.len()));
            if !buffer.write(place.start, here) {
                return false;
            }
            rest = later;
        }
        rest.is_empty()
    }

    /// The bytes of a range of the log, in pieces; `None` if they are more than the ring has. Nobody writes there until the
    /// caller is done with them.
    pub fn read(&self, range: Range<u64>) -> Option<Vec<&[u8]>> {
        let len = range.end.saturating_sub(range.start);
        let places = (len <= self.capacity()).then(|| self.places(range.start, len as usize))?;
        places.map(|(buffer, place)| buffer.bytes(place)).collect()
    }

    /// Returns the places of `len` bytes from `offset` on: a buffer after the other, once around the ring at most.
    fn places(&self, offset: u64, len: usize) -> impl Iterator<Item = (&Region, Range<usize>)> {
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
