//! The mark of the flushed offset: `config/mqstore.flushed`.
//!
//! ```text
//! 0 checksum u32 of the rest | 4 "mqf1" | 8 flushed i64 | 16 own from i64 | 24 is sync u32: 0 or 1 | zeros to 512
//! ```
//!
//! It fills one sector, so that it can be overwritten in place: after a power failure the sector holds the old mark, the new one, or a
//! checksum mismatch.

use super::bytes::{i32_at, i64_at, put_i32, put_i64};
use super::crc::crc32;

const CHECKSUM_AT: usize = 0;
const MAGIC_AT: usize = CHECKSUM_AT + 4;
const FLUSHED_AT: usize = MAGIC_AT + 4;
const OWN_FROM_AT: usize = FLUSHED_AT + 8;
const IS_SYNC_AT: usize = OWN_FROM_AT + 8;
/// Bytes of the file.
pub const FLUSHED_MARK_SIZE: usize = 512;
const _: () = assert!(IS_SYNC_AT + 4 <= FLUSHED_MARK_SIZE);
/// Its last character is the version.
const MAGIC: i32 = i32::from_be_bytes(*b"mqf1");

/// The offset up to which the writer of a log has synced it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushedMark {
    /// Every byte of the log below this physical offset is on disk.
    pub flushed: i64,
    /// The claim of the writer in the `lock` file: see [`own_from`](super::own_from). The mark applies only to a log with this
    /// claim. A broker that starts overwrites the claim.
    pub own_from: i64,
    /// Set if the writer shows only flushed messages.
    pub is_sync: bool,
}

impl FlushedMark {
    /// Encodes the whole file.
    pub fn encode(self) -> [u8; FLUSHED_MARK_SIZE] {
        let mut out = [0; FLUSHED_MARK_SIZE];
        put_i32(&mut out, MAGIC_AT, MAGIC);
        put_i64(&mut out, FLUSHED_AT, self.flushed);
        put_i64(&mut out, OWN_FROM_AT, self.own_from);
        put_i32(&mut out, IS_SYNC_AT, self.is_sync.into());
        let checksum = checksum(&out);
        put_i32(&mut out, CHECKSUM_AT, checksum);
        out
    }

    /// Decodes the file; `None` if it is not an intact mark.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let is_whole =
            bytes.len() == FLUSHED_MARK_SIZE && i32_at(bytes, CHECKSUM_AT) == checksum(bytes) && i32_at(bytes, MAGIC_AT) == MAGIC;
        is_whole.then(|| Self {
            flushed: i64_at(bytes, FLUSHED_AT),
            own_from: i64_at(bytes, OWN_FROM_AT),
            is_sync: i32_at(bytes, IS_SYNC_AT) == 1,
        })
    }
}

fn checksum(bytes: &[u8]) -> i32 {
    crc32(bytes.get(MAGIC_AT..).unwrap_or_default()).cast_signed()
}
