use super::bytes::{i16_at, i32_at, i64_at, is_zero, put_i32, u8_at};
use super::crc::{CRC_PROPERTY_SIZE, crc31};
use super::malformed::Malformed;
use super::message_view::MessageView;
use super::record_layout::{
    BODY_LENGTH_SIZE, MAGIC_AT, MIN_RECORD_SIZE, PHYSICAL_OFFSET_AT, PROPERTIES_LENGTH_SIZE, RecordLayout, SYS_FLAG_AT,
    TOTAL_SIZE_AT, Version,
};
use super::sys_flag::BORN_HOST_V6;

// A BLANK ends a commit-log file that is not the last one:
// 0 total size i32 (= what remains of the file, itself included) | 4 magic i32 | whatever the file held

/// The written bytes of a BLANK; every append leaves space for them.
pub const BLANK_SIZE: usize = MAGIC_AT + 4;
const _: () = assert!(BLANK_SIZE == 8);
const BLANK_MAGIC: i32 = 0xCBD4_3194_u32.cast_signed();

/// The checks of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Only the lengths.
    Structure,
    /// The lengths, and the CRC of the body unless it is empty.
    Body,
    /// The lengths, the CRC of the body, and the CRC of the whole record if its last property is one.
    Whole,
}

/// The content of the commit log at an offset.
#[derive(Clone, Debug)]
pub enum Record<'a> {
    /// An intact record.
    Message(MessageView<'a>),
    /// The end of the file: the log continues in the next one.
    Blank {
        /// The length of the rest of the file, as the BLANK states it: at least 8, not compared with the slice.
        size: u32,
    },
    /// Free space: zeros, or too few bytes for anything.
    End,
    /// Other bytes, including a record that is cut short.
    Corrupt(Malformed),
}

/// Parses the record, BLANK or free space at the first byte; `bytes` may be longer. This is the only parser of records
/// (docs/FORMAT.md, section Record).
#[expect(
    clippy::inline_always,
    reason = "handing a record over in memory takes half as long as reading it"
)]
#[inline(always)]
pub fn read_record(bytes: &[u8], check: Check) -> Record<'_> {
    match read_message(bytes) {
        Some(view) if check == Check::Structure => Record::Message(view),
        Some(view) => check_sums(view, check).map_or_else(Record::Corrupt, Record::Message),
        None => read_other(bytes),
    }
}

/// Returns the record, if its lengths are consistent. Anything else is left to [`read_other`], which a scan of the log rarely
/// calls. The position of each length depends on the lengths before it. A length that is too large makes the parts longer than the
/// record.
#[inline]
fn read_message(bytes: &[u8]) -> Option<MessageView<'_>> {
    let version = Version::of_magic(i32_at(bytes, MAGIC_AT))?;
    let record = bytes.get(..usize::try_from(i32_at(bytes, TOTAL_SIZE_AT)).ok()?)?;
    if record.len() < MIN_RECORD_SIZE {
        return None;
    }
    let layout = layout_of(record, version);
    let is_negative =
        layout.body_len.cast_signed() < 0 || layout.topic_len.cast_signed() < 0 || layout.properties_len.cast_signed() < 0;
    (!is_negative && layout.size() == record.len()).then(|| MessageView::from_layout(record, layout))
}

fn check_sums(view: MessageView<'_>, check: Check) -> Result<MessageView<'_>, Malformed> {
    check_body(&view)?;
    if check == Check::Whole {
        check_whole(&view)?;
    }
    Ok(view)
}

/// Parses bytes that are not a record with consistent lengths.
#[cold]
fn read_other(bytes: &[u8]) -> Record<'_> {
    if bytes.len() < BLANK_SIZE {
        return Record::End;
    }
    let (total, magic) = (i32_at(bytes, TOTAL_SIZE_AT), i32_at(bytes, MAGIC_AT));
    match Version::of_magic(magic) {
        Some(version) => Record::Corrupt(invalid_lengths(bytes, total, version)),
        None if total == 0 && magic == 0 => Record::End,
        None if magic == BLANK_MAGIC => match u32::try_from(total) {
            Ok(size) if size as usize >= BLANK_SIZE => Record::Blank { size },
            _ => Record::Corrupt(Malformed::new(
                TOTAL_SIZE_AT,
                format!("a BLANK of {total} bytes, at least {BLANK_SIZE} are needed"),
            )),
        },
        None => Record::Corrupt(Malformed::new(
            MAGIC_AT,
            format!("magic {magic:#010x} is not that of a record"),
        )),
    }
}

/// Returns the layout by the stored lengths, consistent or not.
#[inline]
pub(super) fn layout_of(record: &[u8], version: Version) -> RecordLayout {
    let mut layout = RecordLayout::of_header(version, i32_at(record, SYS_FLAG_AT));
    layout.body_len = i32_at(record, layout.body_length_at()).cast_unsigned();
    let topic = match version {
        Version::V1 => u8_at(record, layout.topic_length_at()).cast_signed().into(),
        Version::V2 => i16_at(record, layout.topic_length_at()),
    };
    layout.topic_len = topic.cast_unsigned();
    layout.properties_len = i16_at(record, layout.properties_length_at()).cast_unsigned();
    layout
}

/// Describes the inconsistency in the lengths of a record that claims `total` bytes.
fn invalid_lengths(bytes: &[u8], total: i32, version: Version) -> Malformed {
    let size = usize::try_from(total).unwrap_or(0);
    if size < MIN_RECORD_SIZE {
        let reason = format!("a record of {total} bytes, at least {MIN_RECORD_SIZE} are needed");
        return Malformed::new(TOTAL_SIZE_AT, reason);
    }
    let Some(record) = bytes.get(..size) else {
        let reason = format!("a record of {total} bytes, but only {} follow", bytes.len());
        return Malformed::new(TOTAL_SIZE_AT, reason);
    };
    let layout = layout_of(record, version);
    let topic_field = layout.version.topic_length_size();
    let parts = [
        (
            "body",
            layout.body_length_at(),
            BODY_LENGTH_SIZE,
            layout.body_len.cast_signed(),
        ),
        (
            "topic",
            layout.topic_length_at(),
            topic_field,
            layout.topic_len.cast_signed().into(),
        ),
        (
            "properties",
            layout.properties_length_at(),
            PROPERTIES_LENGTH_SIZE,
            layout.properties_len.cast_signed().into(),
        ),
    ];
    for (name, at, field, len) in parts {
        let Some(left) = size.checked_sub(at + field) else {
            return Malformed::new(
                size,
                format!("a record of {size} bytes, but its {name} length is at byte {at}"),
            );
        };
        if usize::try_from(len).ok().is_none_or(|len| len > left) {
            return Malformed::new(at, format!("{name} of {len} bytes, but {left} of the record are left"));
        }
    }
    let reason = format!("a record of {size} bytes, but its parts add up to {}", layout.size());
    Malformed::new(TOTAL_SIZE_AT, reason)
}

#[inline]
pub(super) fn check_body(view: &MessageView<'_>) -> Result<(), Malformed> {
    if view.has_whole_body() {
        return Ok(());
    }
    Err(wrong_body(view))
}

#[cold]
fn wrong_body(view: &MessageView<'_>) -> Malformed {
    let (stored, found) = (view.body_crc(), crc31(view.body()));
    // Either the body or the CRC may be wrong, so the error points to the first byte of the record.
    let reason = format!("the CRC-32 of its body is {found:#010x}, but the record states {stored:#010x}");
    Malformed::new(0, reason)
}

#[inline]
pub(super) fn check_whole(view: &MessageView<'_>) -> Result<(), Malformed> {
    let Some((stored, found)) = view.wrong_crc_property() else {
        return Ok(());
    };
    let at = view.bytes().len() - CRC_PROPERTY_SIZE;
    let (stored, found) = (stored.escape_ascii(), found.escape_ascii());
    Err(Malformed::new(
        at,
        format!("the record's CRC property is {found}, stored {stored}"),
    ))
}

/// Returns the number of bytes that `read_record` needs of a record with this head: as many as it claims, or those of the head for
/// anything else.
pub fn claimed_size(head: [u8; BLANK_SIZE]) -> usize {
    let total = usize::try_from(i32_at(&head, TOTAL_SIZE_AT)).unwrap_or(0);
    match Version::of_magic(i32_at(&head, MAGIC_AT)) {
        Some(_) => total.max(BLANK_SIZE),
        None => BLANK_SIZE,
    }
}

/// Returns the physical offset that the record at the first byte states, intact or not; `None` if no record starts there.
pub fn claimed_offset(bytes: &[u8]) -> Option<i64> {
    let magic = i32_at(bytes, MAGIC_AT);
    (bytes.len() >= PHYSICAL_OFFSET_AT + 8 && Version::of_magic(magic).is_some()).then(|| i64_at(bytes, PHYSICAL_OFFSET_AT))
}

/// Returns the store time that the record at the first byte states, intact or not; `None` if no record starts there.
pub fn claimed_store_time(bytes: &[u8]) -> Option<i64> {
    let version = Version::of_magic(i32_at(bytes, MAGIC_AT))?;
    let at = RecordLayout::of_header(version, i32_at(bytes, SYS_FLAG_AT)).store_time_at();
    (bytes.len() >= at + 8).then(|| i64_at(bytes, at))
}

/// Returns the positions in `bytes`, whose first byte has the physical offset `offset`, of record heads: a magic and a physical
/// offset that matches the position. It examines [`CLAIM_SIZE`] bytes from each position on.
pub fn record_heads(bytes: &[u8], offset: i64) -> impl Iterator<Item = usize> {
    // Most of the searched bytes are zeros.
    let chunks = bytes.chunks(4096).enumerate().filter(|(_, chunk)| !is_zero(chunk));
    let positions = chunks.flat_map(|(n, chunk)| {
        let first = n * 4096;
        // A head whose magic is in this chunk may start up to seven bytes before it.
        first.saturating_sub(MAGIC_AT + 3)..first + chunk.len()
    });
    let mut searched = 0;
    positions.filter(move |at| {
        let is_new = *at >= searched;
        searched = searched.max(*at + 1);
        let head = bytes.get(*at..).unwrap_or_default();
        is_new && head.get(MAGIC_AT) == Some(&MAGIC_FIRST_BYTE) && claimed_offset(head) == Some(offset.saturating_add(*at as i64))
    })
}

/// The first byte of both magic numbers.
const MAGIC_FIRST_BYTE: u8 = 0xDA;
/// The bytes of a record up to its physical offset and store time, with the largest hosts.
pub const CLAIM_SIZE: usize = RecordLayout::of_header(Version::V1, BORN_HOST_V6).store_time_at() + 8;

/// Encodes the eight bytes of a BLANK that fills the `remaining` bytes of a file.
pub fn encode_blank(remaining: u32) -> [u8; BLANK_SIZE] {
    let mut out = [0; BLANK_SIZE];
    put_i32(&mut out, TOTAL_SIZE_AT, remaining.cast_signed());
    put_i32(&mut out, MAGIC_AT, BLANK_MAGIC);
    out
}

/// Returns true if a record, or a whole batch, fits into a file with `remaining` bytes: a BLANK must fit after it.
pub fn fits(record_len: u64, remaining: u64) -> bool {
    record_len.checked_add(BLANK_SIZE as u64).is_some_and(|end| end <= remaining)
}
