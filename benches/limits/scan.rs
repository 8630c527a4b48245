//! The recovery kernel: for each record of a log the CRC of its body, its topic and tag, and the comparison with its queue entry.
//! And the scan kernel: for each record the CRC of its body, optionally with the comparison with its queue entry.

use super::dispatch::hash;

const HEADER: usize = 88;
const MAGIC: u32 = 0xdaa3_20a7;

/// Reads the records of one segment, whose first byte has the physical offset `start`. `queues` are the files of the queues of one
/// topic, by queue id. Returns the number of records.
pub fn scan_segment(segment: &[u8], start: i64, topic: &[u8], queues: &[impl AsRef<[u8]>]) -> usize {
    let (mut at, mut count) = (0, 0);
    while let Some(record) = segment.get(at..).and_then(record_at) {
        check(record, start + at as i64, topic, queues);
        at += record.len();
        count += 1;
    }
    count
}

/// Reads the records of a piece of a segment, whose first byte has the physical offset `start`; without `queues` it only checks the
/// CRC of each body. Returns the number of records.
pub fn check_messages(piece: &[u8], start: i64, queues: Option<&[impl AsRef<[u8]>]>) -> usize {
    let (mut at, mut count) = (0, 0);
    while let Some(record) = piece.get(at..).and_then(record_at) {
        assert_eq!(crc32fast::hash(body_of(record).0) & 0x7fff_ffff, number(record, 8));
        if let Some(queues) = queues {
            assert_eq!(long(record, 28), start + at as i64);
            assert_eq!(entry_of(record, queues)[..8], record[28..36]);
        }
        at += record.len();
        count += 1;
    }
    count
}

/// Returns the end of the records from `at` on that take `bytes` bytes, or of all if they take less. It walks the records, because
/// a log has no other landmarks than their sizes.
pub fn end_of_piece(segment: &[u8], mut at: usize, bytes: usize) -> usize {
    let until = at + bytes;
    while at < until
        && let Some(record) = segment.get(at..).and_then(record_at)
    {
        at += record.len();
    }
    at
}

/// Returns the queue entry of a record.
#[inline(always)]
fn entry_of<'a>(record: &[u8], queues: &'a [impl AsRef<[u8]>]) -> &'a [u8] {
    &queues[number(record, 12) as usize].as_ref()[long(record, 20) as usize * 20..][..20]
}

/// Returns the body of a record, and the bytes after it.
#[inline(always)]
fn body_of(record: &[u8]) -> (&[u8], &[u8]) {
    record[HEADER..].split_at(number(record, 84) as usize)
}

#[inline(always)]
fn record_at(rest: &[u8]) -> Option<&[u8]> {
    (rest.len() > HEADER && number(rest, 4) == MAGIC).then(|| &rest[..number(rest, 0) as usize])
}

#[inline(always)]
fn check(record: &[u8], offset: i64, topic: &[u8], queues: &[impl AsRef<[u8]>]) {
    let (body, rest) = body_of(record);
    assert_eq!(crc32fast::hash(body) & 0x7fff_ffff, number(record, 8));
    assert_eq!(long(record, 28), offset);
    let (found, properties) = rest[1..].split_at(usize::from(rest[0]));
    assert_eq!(found, topic);
    let mut tags = &[][..];
    for property in properties[2..].split(|byte| *byte == 2) {
        let mut parts = property.split(|byte| *byte == 1);
        if let (Some(b"TAGS"), Some(value)) = (parts.next(), parts.next()) {
            tags = value;
        }
    }
    let entry = entry_of(record, queues);
    assert_eq!(entry[..8], offset.to_be_bytes());
    assert_eq!(entry[8..12], record[..4]);
    assert_eq!(entry[12..], i64::from(hash(0, tags)).to_be_bytes());
}

#[inline(always)]
fn long(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[inline(always)]
fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}
