use std::ops::RangeInclusive;

use super::bytes::{i32_at, i64_at, put_i32, put_i64};
use super::java_hash::java_hash_after;

// File:   header (40) | slots x (i32 number of the newest item) | items x (20); item 0 is never used, 0 means "none"
// Header: 0 begin time i64 | 8 end time i64 | 16 begin physical offset i64 | 24 end physical offset i64 | 32 slot count i32
//         36 index count i32 (= number of the next item, from 1)
// Item:   0 key hash i32 | 4 physical offset i64 | 12 seconds since begin time i32 | 16 previous item in the slot i32

const BEGIN_TIME_AT: usize = 0;
const END_TIME_AT: usize = BEGIN_TIME_AT + 8;
const BEGIN_PHYSICAL_OFFSET_AT: usize = END_TIME_AT + 8;
const END_PHYSICAL_OFFSET_AT: usize = BEGIN_PHYSICAL_OFFSET_AT + 8;
const SLOT_COUNT_AT: usize = END_PHYSICAL_OFFSET_AT + 8;
const INDEX_COUNT_AT: usize = SLOT_COUNT_AT + 4;
/// Bytes of the header.
pub const INDEX_HEADER_SIZE: usize = INDEX_COUNT_AT + 4;

/// Bytes of a slot.
pub const SLOT_SIZE: usize = 4;

const KEY_HASH_AT: usize = 0;
const PHYSICAL_OFFSET_AT: usize = KEY_HASH_AT + 4;
const TIME_DIFF_AT: usize = PHYSICAL_OFFSET_AT + 8;
const PREVIOUS_AT: usize = TIME_DIFF_AT + 4;
/// Bytes of an item.
pub const ITEM_SIZE: usize = PREVIOUS_AT + 4;
const _: () = assert!(INDEX_HEADER_SIZE == 40 && ITEM_SIZE == 20);

/// The prefix of a tag in its key (5.4.0 and later).
pub(super) const TAG_KEY_PREFIX: &str = "T#";
/// The separator of topic and key in the hashed text.
const KEY_SEPARATOR: &[u8] = b"#";
/// The numbers of slots and items of an index file, which the file itself does not state (docs/FORMAT.md, section Index).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IndexGeometry {
    /// RocketMQ's `maxHashSlotNum`.
    pub slots: u32,
    /// RocketMQ's `maxIndexNum`; one key less fits.
    pub items: u32,
}

impl IndexGeometry {
    /// A broker's defaults: files of 420,000,040 bytes.
    pub const ROCKETMQ: Self = Self {
        slots: 5_000_000,
        items: 20_000_000,
    };

    /// The largest size of a file: a broker counts it in an i32, and maps the file in one piece.
    pub const MAX_FILE_LEN: u64 = i32::MAX as u64;

    /// Returns the size of the file.
    pub const fn file_len(self) -> u64 {
        self.item_position(self.items)
    }

    /// Returns the position of a slot in the file.
    pub const fn slot_position(self, slot: u32) -> u64 {
        INDEX_HEADER_SIZE as u64 + slot as u64 * SLOT_SIZE as u64
    }

    /// Returns the position of an item in the file.
    pub const fn item_position(self, number: u32) -> u64 {
        self.slot_position(self.slots) + number as u64 * ITEM_SIZE as u64
    }

    /// Returns the slot of a key; 0 in a geometry without slots.
    pub fn slot_of(self, key_hash: i32) -> u32 {
        key_hash.cast_unsigned().checked_rem(self.slots).unwrap_or(0)
    }
}

/// The first 40 bytes of an index file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexHeader {
    /// Store time of the first item's record, in ms; in an empty file the previous file's end time.
    pub begin_time: i64,
    /// Store time of the last item's record, in ms.
    pub end_time: i64,
    /// Physical offset of the first item's record.
    pub begin_physical_offset: i64,
    /// Physical offset of the last item's record.
    pub end_physical_offset: i64,
    /// Slots in use.
    pub slot_count: i32,
    /// Number of the next item; the first is 1.
    pub index_count: i32,
}

impl IndexHeader {
    /// Decodes any 40 bytes. A count of 0 or less means a file without items, and is read as 1.
    pub fn decode(bytes: &[u8; INDEX_HEADER_SIZE]) -> Self {
        Self {
            begin_time: i64_at(bytes, BEGIN_TIME_AT),
            end_time: i64_at(bytes, END_TIME_AT),
            begin_physical_offset: i64_at(bytes, BEGIN_PHYSICAL_OFFSET_AT),
            end_physical_offset: i64_at(bytes, END_PHYSICAL_OFFSET_AT),
            slot_count: i32_at(bytes, SLOT_COUNT_AT),
            index_count: i32_at(bytes, INDEX_COUNT_AT).max(1),
        }
    }

    /// Encodes the header.
    pub fn encode(self) -> [u8; INDEX_HEADER_SIZE] {
        let mut out = [0; INDEX_HEADER_SIZE];
        put_i64(&mut out, BEGIN_TIME_AT, self.begin_time);
        put_i64(&mut out, END_TIME_AT, self.end_time);
        put_i64(&mut out, BEGIN_PHYSICAL_OFFSET_AT, self.begin_physical_offset);
        put_i64(&mut out, END_PHYSICAL_OFFSET_AT, self.end_physical_offset);
        put_i32(&mut out, SLOT_COUNT_AT, self.slot_count);
        put_i32(&mut out, INDEX_COUNT_AT, self.index_count);
        out
    }

    /// Returns the header of a new file after `previous`, or of the first file. Its begin time is the previous end time, because
    /// the time of the first item counts from there; the first put then replaces it.
    pub fn rolled_from(previous: Option<&Self>) -> Self {
        let (time, physical_offset) = previous.map_or((0, 0), |file| (file.end_time, file.end_physical_offset));
        Self {
            begin_time: time,
            end_time: time,
            begin_physical_offset: physical_offset,
            end_physical_offset: physical_offset,
            slot_count: 0,
            index_count: 1,
        }
    }

    /// Returns the number of items in the file; item numbers start at 1.
    pub fn items(&self) -> i64 {
        i64::from(self.index_count) - 1
    }

    /// Returns the header of the file truncated to its first items: the next item gets the number `index_count`, and the message of
    /// the last item starts at `end_physical_offset` and was stored at `end_time`.
    #[must_use]
    pub fn truncated(self, index_count: i32, end_physical_offset: i64, end_time: i64) -> Self {
        Self {
            end_time,
            end_physical_offset,
            index_count,
            ..self
        }
    }

    /// Returns true if the file takes no further key.
    pub fn is_full(&self, geometry: IndexGeometry) -> bool {
        self.index_count >= i32::try_from(geometry.items).unwrap_or(i32::MAX)
    }

    /// Puts one key and returns its item; `None` if the file is full, and a new file is needed. The caller writes the item at the
    /// old `index_count`, and that number into the key's slot. `previous_in_slot` is the old content of the slot.
    pub fn admit(
        &mut self,
        geometry: IndexGeometry,
        previous_in_slot: i32,
        key_hash: i32,
        physical_offset: i64,
        store_time: i64,
    ) -> Option<IndexItem> {
        if self.is_full(geometry) {
            return None;
        }
        let known = 1..=self.index_count;
        let previous = if known.contains(&previous_in_slot) {
            previous_in_slot
        } else {
            0
        };
        let time_diff = self.time_diff(store_time);
        if self.index_count <= 1 {
            self.begin_physical_offset = physical_offset;
            self.begin_time = store_time;
        }
        if previous == 0 {
            self.slot_count = self.slot_count.wrapping_add(1);
        }
        self.index_count += 1;
        self.end_physical_offset = physical_offset;
        self.end_time = store_time;
        Some(IndexItem {
            key_hash,
            physical_offset,
            time_diff,
            previous,
        })
    }

    /// Returns the possible store times, in ms, of the record of item `number`. A broker's clock may have been set back between two
    /// items, so neighbouring items do not narrow the range. A clamped number of seconds leaves one end open.
    pub fn times(&self, number: i32, item: &IndexItem) -> RangeInclusive<i64> {
        if number == 1 {
            return self.begin_time..=self.begin_time;
        }
        let from = self.begin_time.saturating_add(i64::from(item.time_diff) * 1000);
        let to = from.saturating_add(999);
        match item.time_diff {
            _ if self.begin_time <= 0 => i64::MIN..=i64::MAX,
            i32::MAX => from..=i64::MAX,
            1.. => from..=to,
            _ => i64::MIN..=self.begin_time.saturating_add(999),
        }
    }

    /// Returns the whole seconds since the begin time; 0 if there is no begin time yet or the clock went back.
    fn time_diff(&self, store_time: i64) -> i32 {
        if self.begin_time <= 0 {
            return 0;
        }
        let seconds = store_time.wrapping_sub(self.begin_time) / 1000;
        i32::try_from(seconds.max(0)).unwrap_or(i32::MAX)
    }
}

/// An item of an index file: one key, linked to the previous item of its slot (hash chaining).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexItem {
    /// The hash of the key: see `index_key_hash`.
    pub key_hash: i32,
    /// The start of the record in the commit log.
    pub physical_offset: i64,
    /// Seconds since the file's begin time.
    pub time_diff: i32,
    /// The number of the next older item of the slot, 0 at the end of the chain.
    pub previous: i32,
}

impl IndexItem {
    /// Decodes any 20 bytes.
    pub fn decode(bytes: &[u8; ITEM_SIZE]) -> Self {
        Self {
            key_hash: i32_at(bytes, KEY_HASH_AT),
            physical_offset: i64_at(bytes, PHYSICAL_OFFSET_AT),
            time_diff: i32_at(bytes, TIME_DIFF_AT),
            previous: i32_at(bytes, PREVIOUS_AT),
        }
    }

    /// Encodes the item.
    pub fn encode(self) -> [u8; ITEM_SIZE] {
        let mut out = [0; ITEM_SIZE];
        put_i32(&mut out, KEY_HASH_AT, self.key_hash);
        put_i64(&mut out, PHYSICAL_OFFSET_AT, self.physical_offset);
        put_i32(&mut out, TIME_DIFF_AT, self.time_diff);
        put_i32(&mut out, PREVIOUS_AT, self.previous);
        out
    }
}

/// Returns the hash under which a key of a topic is indexed: the absolute value of the hash of `topic#key`, and 0 for `i32::MIN`,
/// which has none.
pub fn index_key_hash(topic: &str, key: &str) -> i32 {
    hash_of_key(hash_of_topic(topic.as_bytes()), [b"", key.as_bytes()])
}

/// Returns the hash of a topic and the separator, with which the hashes of all its keys begin.
pub(super) fn hash_of_topic(topic: &[u8]) -> i32 {
    java_hash_after(java_hash_after(0, topic), KEY_SEPARATOR)
}

/// Returns the [`index_key_hash`] of a key in two parts.
#[inline]
pub(super) fn hash_of_key(of_topic: i32, key: [&[u8]; 2]) -> i32 {
    let hash = key.into_iter().fold(of_topic, java_hash_after);
    hash.checked_abs().unwrap_or(0)
}

/// Returns the key under which a tag is indexed, where the tag is the whole `TAGS` of a message.
pub fn index_key_of_tag(tag: &str) -> String {
    [TAG_KEY_PREFIX, tag].concat()
}
