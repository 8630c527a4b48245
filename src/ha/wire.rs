//! The messages of `RocketMQ`'s default HA service (`DefaultHAConnection`, `DefaultHAClient`). There is no magic, version or authentication.
//!
//! | from | message |
//! |-|-|
//! | slave | a report: the end of its log, `i64`. The first one asks for the log from there on, each later one acknowledges |
//! | master | a frame: physical offset `i64`, size `i32`, and so many bytes of the log from there on; of size 0 it is a heartbeat |
//!
//! All numbers are big-endian.

use std::time::Duration;

/// Bytes of a report.
pub(super) const REPORT_LEN: usize = 8;
/// Bytes of a frame before those of the log.
pub(super) const FRAME_HEAD_LEN: usize = 12;
/// The most bytes of the log in a frame. Slaves of `RocketMQ` have room for 4 MiB with the head.
pub(super) const MAX_FRAME: i64 = 256 * 1024;
/// The time without a frame, or a report, after which one is sent in any case.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(5);
/// The time without a report after which the master closes the connection.
pub(super) const SILENCE: Duration = Duration::from_secs(20);

/// Returns the head of a frame with `size` bytes of the log from a physical offset on.
pub(super) fn frame_head(physical_offset: i64, size: u32) -> [u8; FRAME_HEAD_LEN] {
    let mut head = [0; FRAME_HEAD_LEN];
    let (offset, len) = head.split_at_mut(8);
    offset.copy_from_slice(&physical_offset.to_be_bytes());
    len.copy_from_slice(&size.to_be_bytes());
    head
}

/// Returns the last whole report of what was read from the start of a report on, and the number of bytes up to its end.
pub(super) fn last_report(read: &[u8]) -> Option<(i64, usize)> {
    let last = read.as_chunks::<REPORT_LEN>().0.last()?;
    Some((i64::from_be_bytes(*last), read.len() / REPORT_LEN * REPORT_LEN))
}
