//! Codecs of formats that the sources neither read nor write yet. They move to `format` with the code that needs them.

use mqstore::format::java_hash;

/// Returns the bytes at a place; zeros past the end.
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

// Batch queue: 0 physical offset i64 | 8 size i32 | 12 tags code i64 | 20 store time i64 | 28 base offset i64 | 36 count i16
//              38 compacted offset i32 | 42 reserved i32

/// Bytes of one entry of a batch queue.
pub const BATCH_CQ_UNIT_SIZE: usize = 46;

/// One entry of a batch queue (5.x): one record that counts as several messages (docs/FORMAT.md, section Batch queue).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchCqUnit {
    pub physical_offset: i64,
    pub size: i32,
    /// The tags code of a consume queue.
    pub tags_code: i64,
    /// The record's store time, in ms.
    pub store_time: i64,
    /// Queue offset of the first message in it.
    pub base_offset: i64,
    /// Messages in it.
    pub count: i16,
    /// -1 unless the topic is compacted.
    pub compacted_offset: i32,
    /// 0.
    pub reserved: i32,
}

impl BatchCqUnit {
    pub fn decode(bytes: &[u8; BATCH_CQ_UNIT_SIZE]) -> Self {
        Self {
            physical_offset: i64::from_be_bytes(array_at(bytes, 0)),
            size: i32::from_be_bytes(array_at(bytes, 8)),
            tags_code: i64::from_be_bytes(array_at(bytes, 12)),
            store_time: i64::from_be_bytes(array_at(bytes, 20)),
            base_offset: i64::from_be_bytes(array_at(bytes, 28)),
            count: i16::from_be_bytes(array_at(bytes, 36)),
            compacted_offset: i32::from_be_bytes(array_at(bytes, 38)),
            reserved: i32::from_be_bytes(array_at(bytes, 42)),
        }
    }

    pub fn encode(self) -> [u8; BATCH_CQ_UNIT_SIZE] {
        let mut out = Vec::with_capacity(BATCH_CQ_UNIT_SIZE);
        out.extend(self.physical_offset.to_be_bytes());
        out.extend(self.size.to_be_bytes());
        out.extend(self.tags_code.to_be_bytes());
        out.extend(self.store_time.to_be_bytes());
        out.extend(self.base_offset.to_be_bytes());
        out.extend(self.count.to_be_bytes());
        out.extend(self.compacted_offset.to_be_bytes());
        out.extend(self.reserved.to_be_bytes());
        out.try_into().unwrap()
    }

    /// RocketMQ's own test for "an entry was written here".
    pub fn is_valid(self) -> bool {
        self.physical_offset >= 0 && self.size > 0 && self.base_offset >= 0 && self.count > 0
    }
}

// Extension: 0 unit size i16 (= 20 + n) | 2 tags code i64 | 10 store time i64 | 18 bitmap length i16 (= n) | bitmap

const EXT_BITMAP_AT: usize = 20;

/// One unit of a queue's extension: what a tags code alone cannot say (docs/FORMAT.md, section Queue extension).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CqExtUnit {
    /// The tags code of a consume queue without extension.
    pub tags_code: i64,
    /// The record's store time, in ms.
    pub store_time: i64,
    /// Bloom filter bits of the consumers that match; may be empty.
    pub bitmap: Vec<u8>,
}

impl CqExtUnit {
    /// The mark of a writer where no unit fits into the rest of a file.
    pub const END_OF_FILE: [u8; 2] = (-1_i16).to_be_bytes();

    /// The unit at the first byte; `None` where the file has no further one (a size of 0 or less).
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, String> {
        let size = i16::from_be_bytes(array_at(bytes, 0));
        if size <= 0 {
            return Ok(None);
        }
        let bitmap_len = i16::from_be_bytes(array_at(bytes, 18));
        let bitmap = usize::try_from(bitmap_len)
            .ok()
            .and_then(|len| bytes.get(EXT_BITMAP_AT..EXT_BITMAP_AT + len));
        let Some(bitmap) = bitmap.filter(|bitmap| EXT_BITMAP_AT + bitmap.len() == size as usize) else {
            return Err(format!(
                "an extension unit of {size} bytes with {bitmap_len} of bitmap, {} follow",
                bytes.len()
            ));
        };
        Ok(Some(Self {
            tags_code: i64::from_be_bytes(array_at(bytes, 2)),
            store_time: i64::from_be_bytes(array_at(bytes, 10)),
            bitmap: bitmap.to_vec(),
        }))
    }

    /// Bytes of the encoded unit.
    pub fn encoded_len(&self) -> usize {
        EXT_BITMAP_AT + self.bitmap.len()
    }

    /// The encoded unit; an error for a bitmap of more than 32,747 bytes.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        let size = i16::try_from(self.encoded_len()).map_err(|_| format!("a bitmap of {} bytes", self.bitmap.len()))?;
        let mut out = size.to_be_bytes().to_vec();
        out.extend(self.tags_code.to_be_bytes());
        out.extend(self.store_time.to_be_bytes());
        out.extend((self.bitmap.len() as i16).to_be_bytes());
        out.extend(&self.bitmap);
        Ok(out)
    }
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
