/// `String.hashCode` of the text: over its UTF-16 code units, in wrapping 32-bit arithmetic.
pub fn java_hash(text: &str) -> i32 {
    text.encode_utf16()
        .fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// The order in which a `java.util.HashMap` made for `capacity` entries iterates over these keys, put in this order.
///
/// A broker writes the properties of a record in this order (docs/FORMAT.md, section Properties). Bins never turn into trees
/// here: Java does that from eight colliding keys in one bin on, and the order has no meaning anyway.
pub fn java_hash_map_order<'a>(keys: &[&'a str], capacity: usize) -> Vec<&'a str> {
    let mut distinct: Vec<&'a str> = Vec::with_capacity(keys.len());
    for key in keys {
        if !distinct.contains(key) {
            distinct.push(key);
        }
    }
    let mut bins = capacity.clamp(1, 1 << 30).next_power_of_two();
    while distinct.len() > bins * 3 / 4 {
        bins *= 2;
    }
    // A resize splits each bin in two and keeps the order inside, so the last size alone decides: a stable sort by bin.
    distinct.sort_by_key(|key| bin(key, bins));
    distinct
}

fn bin(key: &str, bins: usize) -> usize {
    let hash = java_hash(key).cast_unsigned();
    (hash ^ (hash >> 16)) as usize & (bins - 1)
}
