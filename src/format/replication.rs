use super::bytes::{i32_at, i64_at, put_i32, put_i64};

// Slave to master:  0 max physical offset i64
// Master to slave:  0 physical offset i64 | 8 size i32 | size bytes of commit log

/// Bytes of a slave's report.
pub const SLAVE_REPORT_SIZE: usize = 8;
/// Bytes before the data of a transfer.
pub const TRANSFER_HEADER_SIZE: usize = SIZE_AT + 4;
const SIZE_AT: usize = 8;
const _: () = assert!(TRANSFER_HEADER_SIZE == 12);

/// What a slave sends: handshake and acknowledgement in one (docs/FORMAT.md, section Replication frames).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlaveReport {
    /// Where its commit log ends. A first report of 0 asks for the master's newest file from its start.
    pub max_physical_offset: i64,
}

impl SlaveReport {
    /// Any 8 bytes.
    pub fn decode(bytes: &[u8; SLAVE_REPORT_SIZE]) -> Self {
        let max_physical_offset = i64::from_be_bytes(*bytes);
        Self { max_physical_offset }
    }

    /// As sent.
    pub fn encode(self) -> [u8; SLAVE_REPORT_SIZE] {
        self.max_physical_offset.to_be_bytes()
    }
}

/// What a master sends before each piece of its commit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferHeader {
    /// Where the piece belongs; must be the end of the slave's log.
    pub physical_offset: i64,
    /// Bytes that follow.
    pub size: i32,
}

impl TransferHeader {
    /// Any 12 bytes.
    pub fn decode(bytes: &[u8; TRANSFER_HEADER_SIZE]) -> Self {
        Self {
            physical_offset: i64_at(bytes, 0),
            size: i32_at(bytes, SIZE_AT),
        }
    }

    /// As sent.
    pub fn encode(self) -> [u8; TRANSFER_HEADER_SIZE] {
        let mut out = [0; TRANSFER_HEADER_SIZE];
        put_i64(&mut out, 0, self.physical_offset);
        put_i32(&mut out, SIZE_AT, self.size);
        out
    }

    /// No data follows: the master is alive.
    pub fn is_heartbeat(self) -> bool {
        self.size == 0
    }
}
