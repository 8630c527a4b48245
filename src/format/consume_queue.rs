use super::bytes::{i16_at, i32_at, i64_at, put, put_i16, put_i32, put_i64, slice_at};
use super::malformed::Malformed;

// Consume queue: 0 physical offset i64 | 8 record size i32 | 12 tags code i64

const PHYSICAL_OFFSET_AT: usize = 0;
const SIZE_AT: usize = PHYSICAL_OFFSET_AT + 8;
const TAGS_CODE_AT: usize = SIZE_AT + 4;
/// Bytes of one entry of a consume queue.
pub const CQ_UNIT_SIZE: usize = TAGS_CODE_AT + 8;
const _: () = assert!(CQ_UNIT_SIZE == 20);

/// One entry of a consume queue. Entry `n` stands at byte `20 * n` of the queue (docs/FORMAT.md, section Consume queue).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqUnit {
    /// Where the record starts in the commit log.
    pub physical_offset: i64,
    /// Bytes of the record.
    pub size: i32,
    /// Hash of the tag, due time in the delay topic, or the address of an extension unit.
    pub tags_code: i64,
}

impl CqUnit {
    /// What fills the places before the first entry of a queue that does not start at 0.
    pub const PRE_BLANK: Self = Self {
        physical_offset: 0,
        size: i32::MAX,
        tags_code: 0,
    };

    /// The tags code of an entry whose message was lost, and which leads to the salvage record in its place. No hash of a tag is
    /// so large, and no address of an extension unit is positive. Its low 32 bits, which a broker compares with the hash of a
    /// tag, are 0.
    pub const LOST: i64 = 1 << 32;

    /// Any 20 bytes; see `is_valid`.
    pub fn decode(bytes: &[u8; CQ_UNIT_SIZE]) -> Self {
        Self {
            physical_offset: i64_at(bytes, PHYSICAL_OFFSET_AT),
            size: i32_at(bytes, SIZE_AT),
            tags_code: i64_at(bytes, TAGS_CODE_AT),
        }
    }

    /// As stored.
    pub fn encode(self) -> [u8; CQ_UNIT_SIZE] {
        let mut out = [0; CQ_UNIT_SIZE];
        put_i64(&mut out, PHYSICAL_OFFSET_AT, self.physical_offset);
        put_i32(&mut out, SIZE_AT, self.size);
        put_i64(&mut out, TAGS_CODE_AT, self.tags_code);
        out
    }

    /// RocketMQ's own test for "an entry was written here"; also true of `PRE_BLANK`, never of zeros.
    pub fn is_valid(self) -> bool {
        self.physical_offset >= 0 && self.size > 0
    }

    /// Stands for no message.
    pub fn is_pre_blank(self) -> bool {
        self == Self::PRE_BLANK
    }

    /// Whether recovery has put a salvage record in the place of the message.
    pub fn is_lost(self) -> bool {
        self.tags_code == Self::LOST
    }

    /// Returns the entry of a lost message that leads to the same record.
    #[must_use]
    pub fn of_lost(self) -> Self {
        Self {
            tags_code: Self::LOST,
            ..self
        }
    }

    /// Where the record ends in the commit log.
    pub fn end(self) -> i64 {
        self.physical_offset.saturating_add(self.size.into())
    }

    /// Byte in the queue's extension files, if the tags code is an address there.
    pub fn ext_address(self) -> Option<u64> {
        (self.tags_code < i64::from(i32::MIN)).then(|| self.tags_code.wrapping_sub(i64::MIN).cast_unsigned())
    }
}

/// The tags code that stands for byte `real` of the queue's extension files. It lies below every hash as long as `real` stays
/// below 2^63 - 2^31.
pub fn ext_address(real: u64) -> i64 {
    real.cast_signed().wrapping_add(i64::MIN)
}

// Batch queue: 0 physical offset i64 | 8 size i32 | 12 tags code i64 | 20 store time i64 | 28 base offset i64 | 36 count i16
//              38 compacted offset i32 | 42 reserved i32

const STORE_TIME_AT: usize = TAGS_CODE_AT + 8;
const BASE_OFFSET_AT: usize = STORE_TIME_AT + 8;
const COUNT_AT: usize = BASE_OFFSET_AT + 8;
const COMPACTED_OFFSET_AT: usize = COUNT_AT + 2;
const RESERVED_AT: usize = COMPACTED_OFFSET_AT + 4;
/// Bytes of one entry of a batch queue.
pub const BATCH_CQ_UNIT_SIZE: usize = RESERVED_AT + 4;
const _: () = assert!(BATCH_CQ_UNIT_SIZE == 46);

/// One entry of a batch queue (5.x): one record that counts as several messages (docs/FORMAT.md, section Batch queue).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchCqUnit {
    /// Where the record starts in the commit log.
    pub physical_offset: i64,
    /// Bytes of the record.
    pub size: i32,
    /// As in a consume queue.
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
    /// Any 46 bytes; see `is_valid`.
    pub fn decode(bytes: &[u8; BATCH_CQ_UNIT_SIZE]) -> Self {
        Self {
            physical_offset: i64_at(bytes, PHYSICAL_OFFSET_AT),
            size: i32_at(bytes, SIZE_AT),
            tags_code: i64_at(bytes, TAGS_CODE_AT),
            store_time: i64_at(bytes, STORE_TIME_AT),
            base_offset: i64_at(bytes, BASE_OFFSET_AT),
            count: i16_at(bytes, COUNT_AT),
            compacted_offset: i32_at(bytes, COMPACTED_OFFSET_AT),
            reserved: i32_at(bytes, RESERVED_AT),
        }
    }

    /// As stored.
    pub fn encode(self) -> [u8; BATCH_CQ_UNIT_SIZE] {
        let mut out = [0; BATCH_CQ_UNIT_SIZE];
        put_i64(&mut out, PHYSICAL_OFFSET_AT, self.physical_offset);
        put_i32(&mut out, SIZE_AT, self.size);
        put_i64(&mut out, TAGS_CODE_AT, self.tags_code);
        put_i64(&mut out, STORE_TIME_AT, self.store_time);
        put_i64(&mut out, BASE_OFFSET_AT, self.base_offset);
        put_i16(&mut out, COUNT_AT, self.count);
        put_i32(&mut out, COMPACTED_OFFSET_AT, self.compacted_offset);
        put_i32(&mut out, RESERVED_AT, self.reserved);
        out
    }

    /// RocketMQ's own test for "an entry was written here".
    pub fn is_valid(self) -> bool {
        self.physical_offset >= 0 && self.size > 0 && self.base_offset >= 0 && self.count > 0
    }
}

// Extension: 0 unit size i16 (= 20 + n) | 2 tags code i64 | 10 store time i64 | 18 bitmap length i16 (= n) | bitmap

const EXT_TAGS_CODE_AT: usize = 2;
const EXT_STORE_TIME_AT: usize = EXT_TAGS_CODE_AT + 8;
const EXT_BITMAP_LENGTH_AT: usize = EXT_STORE_TIME_AT + 8;
const EXT_BITMAP_AT: usize = EXT_BITMAP_LENGTH_AT + 2;
const _: () = assert!(EXT_BITMAP_AT == 20);
const MAX_BITMAP_SIZE: usize = i16::MAX as usize - EXT_BITMAP_AT;
/// Stands where a unit does not fit any more; the next file goes on.
const EXT_END_OF_FILE: i16 = -1;

/// One unit of a queue's extension: what a tags code alone cannot say (docs/FORMAT.md, section Queue extension).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CqExtUnit {
    /// As in a consume queue without extension.
    pub tags_code: i64,
    /// The record's store time, in ms.
    pub store_time: i64,
    /// Bloom filter bits of the consumers that match; may be empty.
    pub bitmap: Vec<u8>,
}

impl CqExtUnit {
    /// What a writer puts where no unit fits into the rest of a file.
    pub const END_OF_FILE: [u8; 2] = EXT_END_OF_FILE.to_be_bytes();

    /// The unit at the first byte; `None` where the file has no further one (a size of 0 or less).
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        let size = i16_at(bytes, 0);
        if size <= 0 {
            return Ok(None);
        }
        let bitmap_len = i16_at(bytes, EXT_BITMAP_LENGTH_AT);
        if size as usize > bytes.len() || i32::from(size) != EXT_BITMAP_AT as i32 + i32::from(bitmap_len) || bitmap_len < 0 {
            let reason = format!(
                "an extension unit of {size} bytes with {bitmap_len} of bitmap, {} follow",
                bytes.len()
            );
            return Err(Malformed::new(0, reason));
        }
        Ok(Some(Self {
            tags_code: i64_at(bytes, EXT_TAGS_CODE_AT),
            store_time: i64_at(bytes, EXT_STORE_TIME_AT),
            bitmap: slice_at(bytes, EXT_BITMAP_AT, bitmap_len as usize).to_vec(),
        }))
    }

    /// Bytes of the encoded unit.
    pub fn encoded_len(&self) -> usize {
        EXT_BITMAP_AT + self.bitmap.len()
    }

    /// As stored; refuses a bitmap of more than 32,747 bytes.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        if self.bitmap.len() > MAX_BITMAP_SIZE {
            let reason = format!("a bitmap of {} bytes, at most {MAX_BITMAP_SIZE} fit", self.bitmap.len());
            return Err(Malformed::new(EXT_BITMAP_AT, reason));
        }
        let mut out = vec![0; self.encoded_len()];
        put_i16(&mut out, 0, self.encoded_len() as i16);
        put_i64(&mut out, EXT_TAGS_CODE_AT, self.tags_code);
        put_i64(&mut out, EXT_STORE_TIME_AT, self.store_time);
        put_i16(&mut out, EXT_BITMAP_LENGTH_AT, self.bitmap.len() as i16);
        put(&mut out, EXT_BITMAP_AT, &self.bitmap);
        Ok(out)
    }
}
