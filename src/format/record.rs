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

/// Bytes of a BLANK that are written; every append leaves room for them.
pub const BLANK_SIZE: usize = MAGIC_AT + 4;
const _: () = assert!(BLANK_SIZE == 8);
const BLANK_MAGIC: i32 = 0xCBD4_3194_u32.cast_signed();

/// How much of a record is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Nothing but lengths.
    Structure,
    /// And the CRC of a body that is not empty.
    Body,
    /// And the CRC of the whole record, if its last property is one.
    Whole,
}

/// What stands at one place of a commit log.
#[derive(Clone, Debug)]
pub enum Record<'a> {
    /// A whole record.
    Message(MessageView<'a>),
    /// The file ends here; the log goes on in the next one.
    Blank {
        /// What remains of the file, by the BLANK's own account: at least 8, not compared with the slice.
        size: u32,
    },
    /// Nothing was written here: zeros, or too few bytes for anything.
    End,
    /// Anything else, a record that is cut short included.
    Corrupt(Malformed),
}

/// Reads what starts at the first byte; `bytes` may run past it. The only parser of records (docs/FORMAT.md, section Record).
#[expect(
    clippy::inline_always,
    reason = "handing a record over in memory takes half as long as reading it"
)]
#[inline(always)]
pub fn read_record(bytes: &[u8], check: Check) -> Record<'_> {
    match read_message(bytes) {
        Some(view) if check == Check::Structure => Record::Message(view),
        Some(view) => check_sums(view, check).map_or_else(Record::Corrupt, Record::Message),
        None => no_message(bytes),
    }
}

/// The record, if its lengths fit. What else stands there, [`no_message`] says: a pass over a log does not pay for that.
/// Each length is read where the lengths before it put it. One that is too long makes the parts longer than the record.
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

/// What stands where no record does whose lengths fit.
#[cold]
fn no_message(bytes: &[u8]) -> Record<'_> {
    if bytes.len() < BLANK_SIZE {
        return Record::End;
    }
    let (total, magic) = (i32_at(bytes, TOTAL_SIZE_AT), i32_at(bytes, MAGIC_AT));
    match Version::of_magic(magic) {
        Some(version) => Record::Corrupt(misfit(bytes, total, version)),
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

/// Where the lengths put the parts, whether they fit or not.
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

/// What is wrong with the lengths of a record that claims `total` bytes.
fn misfit(bytes: &[u8], total: i32, version: Version) -> Malformed {
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
                format!("a record of {size} bytes, but its {name} length stands at byte {at}"),
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
    // Either of the two may be wrong, so no byte but the record's first is named.
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

/// How many bytes `read_record` needs of what starts so: as many as a record claims to have, and no more than these for anything else.
pub fn claimed_size(head: [u8; BLANK_SIZE]) -> usize {
    let total = usize::try_from(i32_at(&head, TOTAL_SIZE_AT)).unwrap_or(0);
    match Version::of_magic(i32_at(&head, MAGIC_AT)) {
        Some(_) => total.max(BLANK_SIZE),
        None => BLANK_SIZE,
    }
}

/// The physical offset that a record starting at the first byte names as its own, whole or not; `None` if no record starts so.
pub fn claimed_offset(bytes: &[u8]) -> Option<i64> {
    let magic = i32_at(bytes, MAGIC_AT);
    (bytes.len() >= PHYSICAL_OFFSET_AT + 8 && Version::of_magic(magic).is_some()).then(|| i64_at(bytes, PHYSICAL_OFFSET_AT))
}

/// The store time that a record starting at the first byte claims, whole or not; `None` if no record starts so.
pub fn claimed_store_time(bytes: &[u8]) -> Option<i64> {
    let version = Version::of_magic(i32_at(bytes, MAGIC_AT))?;
    let at = RecordLayout::of_header(version, i32_at(bytes, SYS_FLAG_AT)).store_time_at();
    (bytes.len() >= at + 8).then(|| i64_at(bytes, at))
}

/// Positions in `bytes` at which a magic stands and a physical offset that is right there, if the first byte has the physical offset
/// `offset`. Looks at [`CLAIM_SIZE`] bytes from each position on.
pub fn record_heads(bytes: &[u8], offset: i64) -> impl Iterator<Item = usize> {
    // Most of what is searched is zeros.
    let chunks = bytes.chunks(4096).enumerate().filter(|(_, chunk)| !is_zero(chunk));
    let positions = chunks.flat_map(|(n, chunk)| {
        let first = n * 4096;
        // A head whose magic stands in this chunk may start up to seven bytes before it.
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

/// Of both versions' magic.
const MAGIC_FIRST_BYTE: u8 = 0xDA;
/// Bytes that tell the physical offset and the store time that a record claims, whatever its hosts.
pub const CLAIM_SIZE: usize = RecordLayout::of_header(Version::V1, BORN_HOST_V6).store_time_at() + 8;

/// The eight bytes of a BLANK that takes the `remaining` bytes of a file.
pub fn encode_blank(remaining: u32) -> [u8; BLANK_SIZE] {
    let mut out = [0; BLANK_SIZE];
    put_i32(&mut out, TOTAL_SIZE_AT, remaining.cast_signed());
    put_i32(&mut out, MAGIC_AT, BLANK_MAGIC);
    out
}

/// Whether a record (or a whole batch) still goes into a file with `remaining` bytes: a BLANK must fit after it.
pub fn fits(record_len: u64, remaining: u64) -> bool {
    record_len.checked_add(BLANK_SIZE as u64).is_some_and(|end| end <= remaining)
}
