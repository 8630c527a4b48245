//! Whether a record that parses lost bytes in a power cut.
//!
//! No checksum covers topic and properties. A record that lost a sector of them still parses, with zeros in that sector.
//!
//! Only our own records are judged. Their topics hold no NUL, and their properties end in a separator. An append refuses properties with
//! a run of NUL that fills a sector (`MAX_NUL_RUN`). The records of a broker may hold any bytes there.

use crate::format::MessageView;

/// Bytes that a disk writes whole or not at all.
const SECTOR: usize = 512;
/// The longest run of NUL that properties may hold. The byte before them is the low byte of their length, which may be 0: together with
/// it, a run that is one longer fills a sector.
pub const MAX_NUL_RUN: usize = SECTOR - 2;

/// Bytes of the length field before the properties.
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
