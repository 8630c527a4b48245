//! The `lock` file: a claim on the records of the log from an offset on.
//!
//! ```text
//! a broker:  0 "lock"
//! mqstore:   0 checksum u32, its highest bit set | 4 own from i64
//! ```
//!
//! A broker overwrites the first four bytes at every start, before it appends. The checksum then does not match any more. A slave claims
//! nothing: [`NO_OWN_RECORDS`].

use super::bytes::{i32_at, i64_at, put_i32, put_i64};
use super::crc::crc32;

const CHECKSUM_AT: usize = 0;
const OWN_FROM_AT: usize = CHECKSUM_AT + 4;
/// The size of our lock file.
pub const LOCK_FILE_SIZE: usize = OWN_FROM_AT + 8;
const _: () = assert!(LOCK_FILE_SIZE == 12);
/// The claim of a slave: no record is known to be ours, because it has received its log.
pub const NO_OWN_RECORDS: i64 = i64::MAX;
/// Set in every checksum of ours, so that none equals the bytes of a broker.
const NEVER_A_BROKER: u32 = 0x8000_0000;

/// Encodes the claim that every record from the physical offset `own_from` on is ours.
pub fn encode_lock_file(own_from: i64) -> [u8; LOCK_FILE_SIZE] {
    let mut out = [0; LOCK_FILE_SIZE];
    put_i32(&mut out, CHECKSUM_AT, checksum(own_from));
    put_i64(&mut out, OWN_FROM_AT, own_from);
    out
}

/// Returns the physical offset from which on every record is ours; `None` if a broker has started since, if the bytes are torn, or
/// if the offset is negative.
pub fn own_from(lock_file: &[u8]) -> Option<i64> {
    let from = i64_at(lock_file, OWN_FROM_AT);
    let is_claim = lock_file.len() == LOCK_FILE_SIZE && i32_at(lock_file, CHECKSUM_AT) == checksum(from);
    // A negative offset would claim the records of a broker as well.
    (is_claim && from >= 0).then_some(from)
}

fn checksum(own_from: i64) -> i32 {
    (crc32(&own_from.to_be_bytes()) | NEVER_A_BROKER).cast_signed()
}
