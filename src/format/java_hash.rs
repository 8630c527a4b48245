use super::bytes::text;

/// `String.hashCode` of the text: over its UTF-16 code units, in wrapping 32-bit arithmetic.
pub fn java_hash(text: &str) -> i32 {
    java_hash_after(0, text.as_bytes())
}

/// The hash of a text that begins with another one, whose hash is `before`, and ends with these bytes. Malformed UTF-8 counts as U+FFFD.
#[inline]
pub(super) fn java_hash_after(before: i32, bytes: &[u8]) -> i32 {
    // Each step of the fold waits for the one before it. Four characters at once wait once.
    let (chunks, rest) = bytes.as_chunks();
    let (mut hash, mut bits) = (before, 0);
    for chunk in chunks {
        let four = u32::from_be_bytes(*chunk);
        bits |= four;
        // The first two in the upper half, the last two in the lower half, each as one step of the fold.
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

/// The same, of any text.
#[cold]
fn hash_of_units(before: i32, bytes: &[u8]) -> i32 {
    text(bytes).encode_utf16().fold(before, |hash, unit| step(hash, unit.into()))
}

/// The second and the fourth of four characters.
const EVERY_OTHER: u32 = 0x00FF_00FF;
/// Those that no ASCII character has.
const HIGH_BITS: u32 = u32::from_be_bytes([0x80; 4]);

fn step(hash: i32, unit: i32) -> i32 {
    hash.wrapping_mul(31).wrapping_add(unit)
}
