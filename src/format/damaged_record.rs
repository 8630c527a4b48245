//! The size of a record with a damaged header field.

use super::record_layout::{MAGIC_AT, MIN_RECORD_SIZE, PHYSICAL_OFFSET_AT, RecordLayout, SYS_FLAG_AT, TOTAL_SIZE_AT, Version};

/// The size of a damaged record, from its length fields.
#[derive(Debug, PartialEq, Eq)]
pub enum ClaimedSize {
    /// The length fields agree.
    Known(usize),
    /// The length fields do not agree: the total size and the sum of the parts, ascending, without those below the smallest record.
    OneOf(Vec<usize>),
}

/// Returns the size of the record at the physical offset `offset`. Two of three facts must hold: the magic is that of a record, the record
/// names `offset`, and its total size is the sum of its parts. Damage in one field of the header leaves two of them. `read` returns the
/// four bytes at a position of the record, zeros past the end of its file.
pub fn size_of_damaged(offset: i64, read: impl Fn(usize) -> [u8; 4]) -> ClaimedSize {
    let number = |at| i32::from_be_bytes(read(at));
    let low_half = i64::from(number(PHYSICAL_OFFSET_AT + 4).cast_unsigned());
    let is_here = i64::from(number(PHYSICAL_OFFSET_AT)) << 32 | low_half == offset;
    let version = Version::of_magic(number(MAGIC_AT));
    let versions = version.map_or_else(|| vec![Version::V1, Version::V2], |version| vec![version]);
    let mut sizes: Vec<usize> = versions
        .into_iter()
        .filter_map(|version| sum_of_parts(version, &read))
        .collect();
    let total = usize::try_from(number(TOTAL_SIZE_AT)).unwrap_or(0);
    if sizes.contains(&total) && total >= MIN_RECORD_SIZE && (version.is_some() || is_here) {
        return ClaimedSize::Known(total);
    }
    if version.is_none() || !is_here {
        return ClaimedSize::OneOf(Vec::new());
    }
    sizes.push(total);
    sizes.retain(|size| *size >= MIN_RECORD_SIZE);
    sizes.sort_unstable();
    ClaimedSize::OneOf(sizes)
}

/// Returns the size of a record of this version from its three length fields; `None` if one of them is negative.
fn sum_of_parts(version: Version, read: &impl Fn(usize) -> [u8; 4]) -> Option<usize> {
    let short = |at| {
        let [high, low, ..] = read(at);
        i16::from_be_bytes([high, low])
    };
    let mut layout = RecordLayout::of_header(version, i32::from_be_bytes(read(SYS_FLAG_AT)));
    layout.body_len = i32::from_be_bytes(read(layout.body_length_at())).try_into().ok()?;
    let topic_len = match version {
        Version::V1 => i16::from(read(layout.topic_length_at())[0].cast_signed()),
        Version::V2 => short(layout.topic_length_at()),
    };
    layout.topic_len = topic_len.try_into().ok()?;
    layout.properties_len = short(layout.properties_length_at()).try_into().ok()?;
    Some(layout.size())
}
