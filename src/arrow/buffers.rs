//! A pool of buffers for bodies: the memory of a released batch is used again. The system clears each page of fresh memory at its
//! first use, which takes longer than copying data into it.

use std::sync::Mutex;

use arrow_buffer::Buffer;
use bytes::Bytes;

/// The smallest buffer that is pooled. The allocator does not return smaller ones to the system anyway.
const MIN_SIZE: usize = 128 << 10;
/// The most bytes that are pooled.
const MAX_POOLED: usize = 64 << 20;

/// The pooled buffers. A thread that would have to wait allocates instead: in a child of fork the owner of the lock may not exist.
static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Returns an empty buffer, from the pool if possible.
pub(super) fn take() -> Vec<u8> {
    let kept = KEPT.try_lock().ok().and_then(|mut kept| kept.pop());
    kept.unwrap_or_default()
}

/// Wraps the bytes as a buffer whose memory returns to the pool after its last use.
pub(super) fn into_buffer(bytes: Vec<u8>) -> Buffer {
    if bytes.capacity() < MIN_SIZE {
        return Buffer::from_vec(bytes);
    }
    Buffer::from(Bytes::from_owner(Lent(bytes)))
}

struct Lent(Vec<u8>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.0);
        if let Ok(mut kept) = KEPT.try_lock() {
            let total: usize = kept.iter().map(Vec::capacity).sum();
            if total + bytes.capacity() <= MAX_POOLED {
                bytes.clear();
                kept.push(bytes);
            }
        }
    }
}
