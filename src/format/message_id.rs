use std::fmt;
use std::str::FromStr;

use super::bytes::{i64_at, put_i64};
use super::host::{HOST_V4_SIZE, HOST_V6_SIZE, Host};
use super::malformed::Malformed;

// host (8 or 20 bytes) | physical offset i64        written as capital hexadecimal digits

const V4_SIZE: usize = HOST_V4_SIZE + 8;
const V6_SIZE: usize = HOST_V6_SIZE + 8;
const _: () = assert!(V4_SIZE * 2 == 32 && V6_SIZE * 2 == 56);

/// The id that a broker gives a stored message: its host and its physical offset (docs/FORMAT.md, section Message ids).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageId {
    /// The record's store host.
    pub store_host: Host,
    /// The record's byte offset in the commit log.
    pub physical_offset: i64,
}

/// Writes 32 capital hexadecimal digits, 56 with an IPv6 host.
impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = if self.store_host.is_v6() { V6_SIZE } else { V4_SIZE };
        let mut bytes = [0; V6_SIZE];
        self.store_host.put_at(&mut bytes, 0);
        put_i64(&mut bytes, size - 8, self.physical_offset);
        let mut digits = [0; 2 * V6_SIZE];
        for (pair, byte) in digits.as_chunks_mut().0.iter_mut().zip(bytes) {
            *pair = [hex_digit(byte >> 4), hex_digit(byte & 0xF)];
        }
        let digits = digits.get(..2 * size).and_then(|digits| str::from_utf8(digits).ok());
        f.write_str(digits.unwrap_or_default())
    }
}

fn hex_digit(value: u8) -> u8 {
    if value < 10 { b'0' + value } else { b'A' - 10 + value }
}

/// Parses an id, in capital or small letters.
impl FromStr for MessageId {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let wrong = || {
            Malformed::new(
                0,
                format!("{text:?} is not an offset message id: write 32 or 56 hexadecimal digits"),
            )
        };
        let v6 = match text.len() / 2 {
            V4_SIZE => false,
            V6_SIZE => true,
            _ => return Err(wrong()),
        };
        let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
        let (pairs, []) = digits.as_deref().ok_or_else(wrong)?.as_chunks::<2>() else {
            return Err(wrong());
        };
        let bytes: Vec<u8> = pairs.iter().map(|[high, low]| (high << 4 | low) as u8).collect();
        Ok(Self {
            store_host: Host::read_at(&bytes, 0, v6),
            physical_offset: i64_at(&bytes, bytes.len() - 8),
        })
    }
}
