//! Whether a record that parses lost bytes in a power cut: no checksum covers topic and properties, so one whose last sectors never
//! reached the disk parses as long as its lengths did. Those bytes are zeros, which no text is.

use std::ops::Range;

use crate::format::{Checkpoint, MessageView};

/// What a disk writes whole, or tears.
const SECTOR: i64 = 512;
/// Zeros beside the edge of a sector that are not taken for text.
const ZEROS: usize = 8;

/// Whether the end of the log's last record reads as zeros.
pub(super) fn ends_in_zeros(view: &MessageView<'_>) -> bool {
    view.bytes().last() == Some(&0) && (!view.properties().bytes().is_empty() || view.topic_bytes().contains(&0))
}

/// Whether the text of a record that the checkpoint does not vouch for turns to zeros at the edge of a sector.
pub(super) fn lost_a_sector(view: &MessageView<'_>, checkpoint: &Checkpoint) -> bool {
    let bytes = view.bytes();
    let text = bytes.len() - view.topic_bytes().len() - view.properties().bytes().len() - 2..bytes.len();
    let first_edge = (SECTOR - (view.physical_offset() + text.start as i64) % SECTOR) as usize;
    if text.len() < first_edge + ZEROS || view.store_time() <= checkpoint.physic_msg_timestamp {
        return false;
    }
    let zeros = |range: Range<usize>| {
        let is_text = text.start <= range.start && range.end <= text.end;
        is_text && bytes.get(range).is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0))
    };
    let mut edges = (text.start + first_edge..text.end).step_by(SECTOR as usize);
    edges.any(|edge| zeros(edge.saturating_sub(ZEROS)..edge) || zeros(edge..edge + ZEROS))
}
