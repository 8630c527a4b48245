//! Whether a record that parses lost bytes in a power cut: no checksum covers topic and properties, so it parses without the sectors
//! that hold them as long as its lengths are there. What never reached the disk reads as zeros, which no text is.

use crate::format::{Checkpoint, MessageView};

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;
/// Of a record, in front of its properties.
const PROPERTIES_LENGTH: usize = 2;

/// Whether a record ends in zeros, as one does of which the last bytes were never written: a separator ends ours.
pub(super) fn ends_in_zeros(view: &MessageView<'_>) -> bool {
    view.bytes().last() == Some(&0) && (!view.properties().bytes().is_empty() || view.topic_bytes().contains(&0))
}

/// Whether a sector, or the record's part of one, reads as zeros where the topic and properties of a record stand that the checkpoint
/// does not vouch for. Fewer zeros inside may be somebody's text: a record that was acknowledged must not be taken for a torn one.
pub(super) fn lost_a_sector(view: &MessageView<'_>, checkpoint: &Checkpoint) -> bool {
    if view.store_time() <= checkpoint.physic_msg_timestamp {
        return false;
    }
    let bytes = view.bytes();
    let properties = view.properties().bytes().len();
    let text = bytes.len() - PROPERTIES_LENGTH - properties - view.topic_bytes().len();
    let start = view.physical_offset() as usize % SECTOR;
    // The first sector that holds some of the text: the body in front of it has its checksum.
    let mut end = ((start + text) / SECTOR * SECTOR).saturating_sub(start);
    let (_, sectors) = bytes.split_at(end);
    let (head, rest) = sectors.split_at((SECTOR - (start + end) % SECTOR).min(sectors.len()));
    let mut lost = [head].into_iter().chain(rest.chunks(SECTOR)).filter(|sector| {
        end += sector.len();
        // The length of no properties is zeros, and may be all of the record that stands in its last sector.
        let is_no_length = properties > 0 || end < bytes.len() || sector.len() > PROPERTIES_LENGTH;
        is_no_length && sector.iter().all(|byte| *byte == 0)
    });
    lost.next().is_some()
}
