//! The messages of `RocketMQ`'s default HA service (`DefaultHAConnection`, `DefaultHAClient`), over TCP: docs/FORMAT.md, section
//! Replication frames. There is no magic, version or authentication, and all numbers are big-endian.

use std::time::Duration;

/// The most bytes of the log in a frame. Slaves of `RocketMQ` have room for 4 MiB with the header.
pub(super) const MAX_FRAME: i64 = 256 * 1024;
/// The time after a frame of the log after which a heartbeat says that it was the last one.
pub(super) const FIRST_HEARTBEAT: Duration = Duration::from_millis(50);
/// The time without a frame after which a heartbeat is sent.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(5);
/// The time without a report after which the master closes the connection.
pub(super) const SILENCE: Duration = Duration::from_secs(20);

/// The message of a slave: request and acknowledgement in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlaveReport {
    /// The end of its log. A first report of 0 asks for the master's last segment from its start.
    pub max_physical_offset: i64,
}

impl SlaveReport {
    /// Bytes of a report.
    pub const LEN: usize = 8;

    /// Reads a report.
    pub fn decode(bytes: [u8; Self::LEN]) -> Self {
        Self {
            max_physical_offset: i64::from_be_bytes(bytes),
        }
    }

    /// Returns the bytes of the report.
    pub fn encode(self) -> [u8; Self::LEN] {
        self.max_physical_offset.to_be_bytes()
    }

    /// Returns the last whole report of bytes that begin with one, and where it ends. A master needs no earlier one.
    pub(super) fn last_of(bytes: &[u8]) -> Option<(Self, usize)> {
        let (reports, rest) = bytes.as_chunks();
        reports.last().map(|last| (Self::decode(*last), bytes.len() - rest.len()))
    }
}

/// The header that a master sends before each piece of its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferHeader {
    /// The physical offset of the piece: the end of the slave's log.
    pub physical_offset: i64,
    /// Bytes of the log that follow.
    pub size: i32,
}

impl TransferHeader {
    /// Bytes of a header.
    pub const LEN: usize = 12;

    /// Reads a header.
    pub fn decode(bytes: [u8; Self::LEN]) -> Self {
        let mut bytes = bytes.as_slice();
        Self {
            physical_offset: i64::from_be_bytes(taken(&mut bytes)),
            size: i32::from_be_bytes(taken(&mut bytes)),
        }
    }

    /// Returns the bytes of the header.
    pub fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let (offset, size) = bytes.split_at_mut(8);
        offset.copy_from_slice(&self.physical_offset.to_be_bytes());
        size.copy_from_slice(&self.size.to_be_bytes());
        bytes
    }

    /// Returns true if nothing follows: the master is alive.
    pub fn is_heartbeat(self) -> bool {
        self.size == 0
    }
}

/// Takes the first bytes of a field.
fn taken<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let Some((first, rest)) = bytes.split_first_chunk() else {
        return [0; N];
    };
    *bytes = rest;
    *first
}
