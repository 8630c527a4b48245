use super::bytes::text;

/// Returns the `String.hashCode` of the text: over its UTF-16 code units, in wrapping 32-bit arithmetic.
pub fn java_hash(text: &str) -> i32 {
    java_hash_after(0, text.as_bytes())
}

/// Continues the hash `before` with the text in these bytes. Malformed UTF-8 counts as U+FFFD.
#[inline]
pub(super) fn java_hash_after(before: i32, bytes: &[u8]) -> i32 {
    // Each step depends on the result of the previous one. Hashing four characters in one step shortens that chain to a quarter.
    let (chunks, rest) = bytes.as_chunks();
    let (mut hash, mut bits) = (before, 0);
    for chunk in chunks {
        let four = u32::from_be_bytes(*chunk);
        bits |= four;
        // The first two characters in the upper half, the last two in the lower half, each pair hashed as one step.
        let two = ((four >> 8) & EVERY_OTHER) * 31 + (four & EVERY_OTHER);
        let all = (two >> 16) * (31 * 31) + (two & 0xFFFF);
        hash = hash.wrapping_mul(31 * 31 * 31 * 31).wrapping_add(all.cast_signed());
    }
    for byte in rest {
        bits |= u32::from(*byte);
        hash = step(hash, (*byte).into());
    }
    if bits & HIGH_BITS == 0 {
        return hash;
    }
    hash_of_units(before, bytes)
}

/// Continues the hash with any text, character by character.
#[cold]
fn hash_of_units(before: i32, bytes: &[u8]) -> i32 {
    text(bytes).encode_utf16().fold(before, |hash, unit| step(hash, unit.into()))
}

/// Mask of the second and the fourth of four characters.
const EVERY_OTHER: u32 = 0x00FF_00FF;
/// Mask of the bits that no ASCII character has.
const HIGH_BITS: u32 = u32::from_be_bytes([0x80; 4]);

fn step(hash: i32, unit: i32) -> i32 {
    hash.wrapping_mul(31).wrapping_add(unit)
}
