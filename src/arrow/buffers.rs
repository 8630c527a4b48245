//! The memory of bodies: what a consumer has given back is used again. The system clears each page of fresh memory at its first
//! use, which takes longer than what is then copied into it.

use std::sync::Mutex;

use arrow_buffer::Buffer;
use bytes::Bytes;

/// Smaller ones are the allocator's business: it does not give them back to the system.
const MIN_SIZE: usize = 128 << 10;
/// Bytes that are kept at most.
const MOST_KEPT: usize = 64 << 20;

/// Memory that was given back. A thread that would have to wait does without: in a child of fork whoever has the lock may be gone.
static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Memory to be filled, with or without room.
pub(super) fn take() -> Vec<u8> {
    let kept = KEPT.try_lock().ok().and_then(|mut kept| kept.pop());
    kept.unwrap_or_default()
}

/// The bytes as a buffer, whose memory comes back once nobody uses it.
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
            if total + bytes.capacity() <= MOST_KEPT {
                bytes.clear();
                kept.push(bytes);
            }
        }
    }
}
