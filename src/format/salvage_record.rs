use super::malformed::Malformed;
use super::message::Message;
use super::message_view::MessageView;
use super::record::{BLANK_SIZE, encode_blank};
use super::record_layout::MIN_RECORD_SIZE;
use super::sys_flag::{ROLLBACK, Transaction};

/// The size of a salvage record, except the last one of a lost range.
const SALVAGE_RECORD_SIZE: usize = 1 << 20;

/// Encodes the salvage record at `physical_offset` in a lost range of the log with `left` remaining bytes, which reach the end of
/// the file if `at_file_end`. It is a record without a topic, marked as rolled back so that no broker dispatches it, or the file's
/// BLANK. Every version skips both.
///
/// # Errors
/// [`Malformed`] if the range is smaller than a record.
pub fn encode_salvage_record(
    physical_offset: i64,
    left: usize,
    at_file_end: bool,
    store_time: i64,
) -> Result<Vec<u8>, Malformed> {
    let size = salvage_record_size(left, at_file_end);
    if size == 0 {
        let mut blank = encode_blank(left as u32).to_vec();
        blank.resize(left, 0);
        return Ok(blank);
    }
    let body_len = size.checked_sub(MIN_RECORD_SIZE).ok_or_else(|| {
        let reason = format!("{size} bytes to fill, a record has {MIN_RECORD_SIZE}");
        Malformed::new(0, reason)
    })?;
    let record = Message {
        physical_offset,
        sys_flag: ROLLBACK,
        born_time: store_time,
        store_time,
        body: vec![0; body_len].into(),
        ..Message::default()
    };
    record.encode()
}

/// Returns the size of the salvage record at the start of a range of `left` bytes; 0 for a BLANK.
pub fn salvage_record_size(left: usize, at_file_end: bool) -> usize {
    let left = if at_file_end { left.saturating_sub(BLANK_SIZE) } else { left };
    match left {
        _ if at_file_end && left < MIN_RECORD_SIZE => 0,
        _ if left >= 2 * SALVAGE_RECORD_SIZE => SALVAGE_RECORD_SIZE,
        left => left,
    }
}

/// Returns true for a salvage record, which replaces lost records.
pub fn is_salvage_record(view: &MessageView<'_>) -> bool {
    view.transaction() == Transaction::Rollback && view.topic_bytes().is_empty()
}
