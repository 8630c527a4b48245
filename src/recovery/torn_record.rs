//! Whether a record that parses lost bytes in a power cut: no checksum covers topic and properties, so it parses without the sectors
//! that hold them as long as its lengths are there. What never reached the disk reads as zeros.
//!
//! Only a record of ours is judged. Its text never looks so: its topic holds no NUL, its properties end in a separator, and have no run
//! of NUL that fills a sector, because an append refuses one (`MAX_NUL_RUN`). A broker's text may hold anything.

use crate::format::MessageView;

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;
/// The longest run of NUL in properties. A run that is one longer fills a sector with the byte before it: the low byte of the
/// properties' length, which may be 0.
pub const MAX_NUL_RUN: usize = SECTOR - 2;

/// Of a record, before its properties.
const PROPERTIES_LENGTH: usize = 2;

/// Whether a record of ours lost a sector, or the record's part of one.
pub(super) fn lost_bytes(own: &MessageView<'_>) -> bool {
    own.topic_bytes().contains(&0) || !own.properties().is_ended() || lost_a_sector(own)
}

/// Whether a sector that holds nothing but topic and properties reads as zeros.
fn lost_a_sector(own: &MessageView<'_>) -> bool {
    let bytes = own.bytes();
    let text_at = bytes.len() - PROPERTIES_LENGTH - own.properties().bytes().len() - own.topic_bytes().len();
    let start = own.physical_offset() as usize % SECTOR;
    let first = (start + text_at).next_multiple_of(SECTOR) - start;
    let sectors = bytes.get(first..).unwrap_or_default().chunks_exact(SECTOR);
    sectors.into_iter().any(|sector| sector.iter().all(|byte| *byte == 0))
}
