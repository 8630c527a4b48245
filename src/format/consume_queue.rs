use super::bytes::{i32_at, i64_at, put_i32, put_i64};

// Consume queue: 0 physical offset i64 | 8 record size i32 | 12 tags code i64

const PHYSICAL_OFFSET_AT: usize = 0;
const SIZE_AT: usize = PHYSICAL_OFFSET_AT + 8;
const TAGS_CODE_AT: usize = SIZE_AT + 4;
/// Bytes of one entry of a consume queue.
pub const CQ_UNIT_SIZE: usize = TAGS_CODE_AT + 8;
const _: () = assert!(CQ_UNIT_SIZE == 20);
/// No queue has this offset, nor a higher one: the names of queue files count bytes in an i64.
pub const MAX_QUEUE_OFFSET: i64 = 1 << 58;

/// An entry of a consume queue (RocketMQ: `CqUnit`). Entry `n` is at byte `20 * n` of the queue (docs/FORMAT.md, section Consume
/// queue).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqUnit {
    /// Start of the record in the commit log.
    pub physical_offset: i64,
    /// Bytes of the record.
    pub size: i32,
    /// Hash of the tag, due time in the delay topic, or the address of an extension unit.
    pub tags_code: i64,
}

impl CqUnit {
    /// The filler before the first entry of a queue that does not start at 0.
    pub const PRE_BLANK: Self = Self {
        physical_offset: 0,
        size: i32::MAX,
        tags_code: 0,
    };

    /// The tags code of an entry whose message was lost, and which points to the salvage record that replaced it. No hash of a tag
    /// is so large, and no address of an extension unit is positive. Its low 32 bits, which a broker compares with the hash of a
    /// tag, are 0.
    pub const LOST: i64 = 1 << 32;

    /// Decodes any 20 bytes; see `is_valid`.
    pub fn decode(bytes: &[u8; CQ_UNIT_SIZE]) -> Self {
        Self {
            physical_offset: i64_at(bytes, PHYSICAL_OFFSET_AT),
            size: i32_at(bytes, SIZE_AT),
            tags_code: i64_at(bytes, TAGS_CODE_AT),
        }
    }

    /// Encodes the entry.
    pub fn encode(self) -> [u8; CQ_UNIT_SIZE] {
        let mut out = [0; CQ_UNIT_SIZE];
        put_i64(&mut out, PHYSICAL_OFFSET_AT, self.physical_offset);
        put_i32(&mut out, SIZE_AT, self.size);
        put_i64(&mut out, TAGS_CODE_AT, self.tags_code);
        out
    }

    /// Returns true if RocketMQ would count this as a written entry. That includes `PRE_BLANK`, and never zeros.
    pub fn is_valid(self) -> bool {
        self.physical_offset >= 0 && self.size > 0
    }

    /// Returns true for the filler, which points to no message.
    pub fn is_pre_blank(self) -> bool {
        self == Self::PRE_BLANK
    }

    /// Returns true if recovery has replaced the message by a salvage record.
    pub fn is_lost(self) -> bool {
        self.tags_code == Self::LOST
    }

    /// Returns the entry of a lost message that points to the same record.
    #[must_use]
    pub fn of_lost(self) -> Self {
        Self {
            tags_code: Self::LOST,
            ..self
        }
    }

    /// Returns the end of the record in the commit log.
    pub fn end(self) -> i64 {
        self.physical_offset.saturating_add(self.size.into())
    }

    /// Returns the position in the queue's extension files, if the tags code is an address there.
    pub fn ext_address(self) -> Option<u64> {
        (self.tags_code < i64::from(i32::MIN)).then(|| self.tags_code.wrapping_sub(i64::MIN).cast_unsigned())
    }
}

/// Returns the tags code that means byte `real` of the queue's extension files. It lies below every hash while `real` is below 2^63
/// - 2^31.
pub fn ext_address(real: u64) -> i64 {
    real.cast_signed().wrapping_add(i64::MIN)
}
