//! The layout of the fields of a record. `bh` and `sh` are 8 or 20 bytes by two sysFlag bits, `tl` is 1 byte in V1 and 2 in V2.
//!
//! ```text
//!  0 total size i32 |  4 magic i32    |  8 body CRC i32  | 12 queue id i32 | 16 flag i32
//! 20 queue offset i64                 | 28 physical offset i64             | 36 sysFlag i32
//! 40 born time i64                    | 48 born host bh                    | store time i64 | store host sh
//! reconsume times i32                 | prepared transaction offset i64    | body length i32 | body
//! topic length tl | topic             | properties length i16 | properties
//! ```

use super::host::{HOST_V4_SIZE, HOST_V6_SIZE};
use super::sys_flag::{BORN_HOST_V6, STORE_HOST_V6};

pub(super) const TOTAL_SIZE_AT: usize = 0;
pub(super) const MAGIC_AT: usize = TOTAL_SIZE_AT + 4;
pub(super) const BODY_CRC_AT: usize = MAGIC_AT + 4;
pub(super) const QUEUE_ID_AT: usize = BODY_CRC_AT + 4;
pub(super) const FLAG_AT: usize = QUEUE_ID_AT + 4;
pub(super) const QUEUE_OFFSET_AT: usize = FLAG_AT + 4;
pub(super) const PHYSICAL_OFFSET_AT: usize = QUEUE_OFFSET_AT + 8;
pub(super) const SYS_FLAG_AT: usize = PHYSICAL_OFFSET_AT + 8;
pub(super) const BORN_TIME_AT: usize = SYS_FLAG_AT + 4;
pub(super) const BORN_HOST_AT: usize = BORN_TIME_AT + 8;
const _: () = assert!(QUEUE_OFFSET_AT == 20 && PHYSICAL_OFFSET_AT == 28 && SYS_FLAG_AT == 36 && BORN_HOST_AT == 48);

const STORE_TIME_SIZE: usize = 8;
const RECONSUME_TIMES_SIZE: usize = 4;
const PREPARED_OFFSET_SIZE: usize = 8;
pub(super) const BODY_LENGTH_SIZE: usize = 4;
pub(super) const PROPERTIES_LENGTH_SIZE: usize = 2;
/// The size of the fields between the hosts and the body.
const AFTER_HOSTS_SIZE: usize = RECONSUME_TIMES_SIZE + PREPARED_OFFSET_SIZE + BODY_LENGTH_SIZE;

const MAGIC_V1: i32 = 0xDAA3_20A7_u32.cast_signed();
const MAGIC_V2: i32 = 0xDAA3_20AB_u32.cast_signed();

/// The size of the smallest record: V1, two IPv4 hosts, no body, topic or property.
pub const MIN_RECORD_SIZE: usize = 91;
const _: () = assert!(RecordLayout::EMPTY.size() == MIN_RECORD_SIZE);
const _: () = assert!(size_of::<RecordLayout>() <= 16);

/// The size of everything before the body, with two IPv6 hosts.
pub(super) const MAX_HEAD_SIZE: usize = RecordLayout::of_header(Version::V1, BORN_HOST_V6 | STORE_HOST_V6).body_at();
const _: () = assert!(MAX_HEAD_SIZE <= u8::MAX as usize);

/// The two record formats. V2 (5.1.0 and later) differs only in its magic and in a two-byte topic length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// Topics of at most 127 bytes; read by every version.
    V1,
    /// Topics of more than 127 bytes.
    V2,
}

impl Version {
    /// Returns the version for a message of this topic: V1 if the topic fits.
    #[inline]
    pub fn of_topic(topic: &str) -> Self {
        if topic.len() > Self::V1.max_topic_size() {
            Self::V2
        } else {
            Self::V1
        }
    }

    #[inline]
    pub(super) fn magic(self) -> i32 {
        match self {
            Self::V1 => MAGIC_V1,
            Self::V2 => MAGIC_V2,
        }
    }

    pub(super) fn of_magic(magic: i32) -> Option<Self> {
        match magic {
            MAGIC_V1 => Some(Self::V1),
            MAGIC_V2 => Some(Self::V2),
            _ => None,
        }
    }

    #[inline]
    pub(super) const fn topic_length_size(self) -> usize {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }

    /// Returns the largest topic, whose length is a signed number.
    #[inline]
    pub const fn max_topic_size(self) -> usize {
        match self {
            Self::V1 => i8::MAX as usize,
            Self::V2 => i16::MAX as usize,
        }
    }
}

/// The positions of the variable parts of a record. Stored beside a buffer, it makes a `MessageView` without parsing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLayout {
    pub(super) body_len: u32,
    pub(super) topic_len: u16,
    pub(super) properties_len: u16,
    pub(super) version: Version,
    /// The two positions that depend on the sizes of the hosts.
    store_time_at: u8,
    body_at: u8,
}

#[inline]
const fn host_size(v6: bool) -> usize {
    if v6 { HOST_V6_SIZE } else { HOST_V4_SIZE }
}

impl RecordLayout {
    const EMPTY: Self = Self::of_header(Version::V1, 0);

    /// Returns the layout of a record whose variable parts are empty.
    #[inline]
    pub(super) const fn of_header(version: Version, sys_flag: i32) -> Self {
        let store_time_at = BORN_HOST_AT + host_size(sys_flag & BORN_HOST_V6 != 0);
        let body_at = store_time_at + STORE_TIME_SIZE + host_size(sys_flag & STORE_HOST_V6 != 0) + AFTER_HOSTS_SIZE;
        Self {
            body_len: 0,
            topic_len: 0,
            properties_len: 0,
            version,
            store_time_at: store_time_at as u8,
            body_at: body_at as u8,
        }
    }

    #[inline]
    pub(super) const fn is_born_v6(self) -> bool {
        self.store_time_at() - BORN_HOST_AT == HOST_V6_SIZE
    }

    #[inline]
    pub(super) const fn is_store_v6(self) -> bool {
        self.reconsume_times_at() - self.store_host_at() == HOST_V6_SIZE
    }

    #[inline]
    pub(super) const fn store_time_at(self) -> usize {
        self.store_time_at as usize
    }

    #[inline]
    pub(super) const fn store_host_at(self) -> usize {
        self.store_time_at() + STORE_TIME_SIZE
    }

    #[inline]
    pub(super) const fn reconsume_times_at(self) -> usize {
        self.body_at() - AFTER_HOSTS_SIZE
    }

    #[inline]
    pub(super) const fn prepared_offset_at(self) -> usize {
        self.reconsume_times_at() + RECONSUME_TIMES_SIZE
    }

    #[inline]
    pub(super) const fn body_length_at(self) -> usize {
        self.body_at() - BODY_LENGTH_SIZE
    }

    #[inline]
    pub(super) const fn body_at(self) -> usize {
        self.body_at as usize
    }

    #[inline]
    pub(super) const fn topic_length_at(self) -> usize {
        self.body_at() + self.body_len as usize
    }

    #[inline]
    pub(super) const fn topic_at(self) -> usize {
        self.topic_length_at() + self.version.topic_length_size()
    }

    #[inline]
    pub(super) const fn properties_length_at(self) -> usize {
        self.topic_at() + self.topic_len as usize
    }

    #[inline]
    pub(super) const fn properties_at(self) -> usize {
        self.properties_length_at() + PROPERTIES_LENGTH_SIZE
    }

    /// Returns the size of the whole record.
    #[inline]
    pub const fn size(self) -> usize {
        self.properties_at() + self.properties_len as usize
    }
}
