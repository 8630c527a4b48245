//! The two checksums of a record: one of its body, and one of the whole record as its last property (5.2 and later, if the broker
//! is configured so).
//!
//! ```text
//! "__CRC32#" 0x01 | 10 decimal digits, the LEAST significant first, padded with '0' | 0x02
//! ```

use std::borrow::Cow;
use std::sync::LazyLock;

use crc32fast::Hasher;

use super::properties::{NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR};

const PREFIX: &[u8; 9] = b"__CRC32#\x01";
const DIGITS: usize = 10;
/// Bytes of the property, separators included.
pub(super) const CRC_PROPERTY_SIZE: usize = PREFIX.len() + DIGITS + 1;
const _: () = assert!(CRC_PROPERTY_SIZE == 20 && PREFIX[8] == NAME_VALUE_SEPARATOR);

/// The state of a checksum of no bytes. It knows the instructions of this processor, which cost a third of a short checksum to detect.
static EMPTY: LazyLock<Hasher> = LazyLock::new(Hasher::new);

/// Returns the CRC-32 of any bytes.
#[inline]
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut hasher = EMPTY.clone();
    hasher.update(bytes);
    hasher.finalize()
}

/// Returns the CRC-32 as RocketMQ stores it: without the sign bit.
#[inline]
pub(super) fn crc31(bytes: &[u8]) -> u32 {
    crc32(bytes) & 0x7FFF_FFFF
}

/// Returns the state of the checksum after all parts, in their order.
pub(super) fn crc_of_parts<const N: usize>(parts: [&[u8]; N]) -> Hasher {
    let mut hasher = EMPTY.clone();
    for part in parts {
        hasher.update(part);
    }
    hasher
}

/// Returns the property for a record whose other bytes are hashed in `covered`.
pub(super) fn crc_property(covered: Hasher) -> [u8; CRC_PROPERTY_SIZE] {
    let mut out = [0; CRC_PROPERTY_SIZE];
    let (prefix, rest) = out.split_at_mut(PREFIX.len());
    prefix.copy_from_slice(PREFIX);
    let (digits, separator) = rest.split_at_mut(DIGITS);
    let mut crc = covered.finalize() & 0x7FFF_FFFF;
    for digit in digits {
        *digit = b'0' + (crc % 10) as u8;
        crc /= 10;
    }
    separator.fill(PROPERTY_SEPARATOR);
    out
}

/// Splits off the last 20 bytes if their name is that of a whole-record CRC.
#[inline]
pub(super) fn split_crc_property(bytes: &[u8]) -> Option<(&[u8], &[u8; CRC_PROPERTY_SIZE])> {
    let (rest, last) = bytes.split_last_chunk::<CRC_PROPERTY_SIZE>()?;
    last.starts_with(PREFIX).then_some((rest, last))
}

/// Returns the properties that come before an appended CRC: without an older CRC, and with a separator at the end.
pub(super) fn before_crc_property(properties: &[u8]) -> Cow<'_, [u8]> {
    let mut kept = Cow::Borrowed(properties);
    if properties.windows(PREFIX.len()).any(|window| window == PREFIX) {
        let segments = properties.split_inclusive(|byte| *byte == PROPERTY_SEPARATOR);
        kept = Cow::Owned(
            segments
                .filter(|segment| !segment.starts_with(PREFIX))
                .flatten()
                .copied()
                .collect(),
        );
    }
    if kept.last().is_some_and(|last| *last != PROPERTY_SEPARATOR) {
        kept.to_mut().push(PROPERTY_SEPARATOR);
    }
    kept
}
