//! Torn records: the topic and the properties of our records have a form that reveals a sector that never reached the disk.
//!
//! No checksum covers topic and properties. A record that lost a sector of them still parses, with zeros in that sector.
//!
//! Our topics contain no NUL (`validate_topic`), our properties end with a separator (`end_properties`), and no run of NUL in them
//! fills a sector ([`MAX_NUL_RUN`]). The records of a broker may contain any bytes there, so only ours are checked.

use super::message_view::MessageView;

/// The unit that a disk writes completely or not at all.
const SECTOR: usize = 512;
/// The longest run of NUL that properties may contain. The byte before them is the low byte of their length, which may be 0:
/// together with it, a run longer by one fills a sector.
pub const MAX_NUL_RUN: usize = SECTOR - 2;

/// The size of the length field before the properties.
const PROPERTIES_LENGTH: usize = 2;

/// Returns the length of the longest run of NUL.
pub fn longest_nul_run(properties: &[u8]) -> usize {
    let runs = properties.split(|byte| *byte != 0).map(<[u8]>::len);
    runs.max().unwrap_or(0)
}

/// Returns true if a record of ours lost a sector, or the part of a sector that belongs to the record.
pub fn has_lost_bytes(own: &MessageView<'_>) -> bool {
    own.topic_bytes().contains(&0) || !own.properties().is_ended() || has_lost_a_sector(own)
}

/// Returns true if a sector of topic and properties only reads as zeros.
fn has_lost_a_sector(own: &MessageView<'_>) -> bool {
    let bytes = own.bytes();
    let text_at = bytes.len() - PROPERTIES_LENGTH - own.properties().bytes().len() - own.topic_bytes().len();
    let start = own.physical_offset() as usize % SECTOR;
    let first = (start + text_at).next_multiple_of(SECTOR) - start;
    let sectors = bytes.get(first..).unwrap_or_default().chunks_exact(SECTOR);
    sectors.into_iter().any(|sector| sector.iter().all(|byte| *byte == 0))
}
