use super::malformed::Malformed;

// bit  10 9 8 | 7           | 6           | 5             | 4            | 3 2         | 1          | 0
//      kind   | inner batch | need unwrap | store host v6 | born host v6 | transaction | multi tags | compressed

/// The body is compressed.
pub const COMPRESSED: i32 = 0x1;
/// The topic's filter type was "several tags"; no effect on the tags code.
pub const MULTI_TAGS: i32 = 0x2;
/// Both transaction bits.
pub const TRANSACTION_MASK: i32 = 0xC;
/// Half message of a transaction, as a client sends it.
pub const PREPARED: i32 = 0x4;
/// Committed message of a transaction.
pub const COMMIT: i32 = 0x8;
/// Rolled-back message of a transaction.
pub const ROLLBACK: i32 = 0xC;
/// The born host has 16 address bytes.
pub const BORN_HOST_V6: i32 = 0x10;
/// The store host has 16 address bytes.
pub const STORE_HOST_V6: i32 = 0x20;
/// The body of an inner batch has to be unwrapped by the consumer.
pub const NEED_UNWRAP: i32 = 0x40;
/// The record is an inner batch: its body holds several messages.
pub const INNER_BATCH: i32 = 0x80;
/// The three bits of the compression kind.
pub const COMPRESSION_MASK: i32 = 0x700;

/// The transaction type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transaction {
    /// An ordinary message.
    None,
    /// A half message: in the index, in no queue.
    Prepared,
    /// A committed message: in the index and in its queue.
    Commit,
    /// A rolled-back message: in neither the index nor a queue.
    Rollback,
}

/// Returns the transaction type in a sysFlag.
pub fn transaction(sys_flag: i32) -> Transaction {
    match sys_flag & TRANSACTION_MASK {
        PREPARED => Transaction::Prepared,
        COMMIT => Transaction::Commit,
        ROLLBACK => Transaction::Rollback,
        _ => Transaction::None,
    }
}

/// The compression of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not compressed.
    None,
    /// A zlib stream; also what 4.9.3 and older write, with a kind of 0.
    Zlib,
    /// An LZ4 frame.
    Lz4,
    /// A Zstandard frame.
    Zstd,
}

/// Returns the compression in a sysFlag; kinds 4 to 7 are not in use.
pub fn compression(sys_flag: i32) -> Result<Compression, Malformed> {
    if sys_flag & COMPRESSED == 0 {
        return Ok(Compression::None);
    }
    match sys_flag & COMPRESSION_MASK {
        0 | 0x300 => Ok(Compression::Zlib),
        0x100 => Ok(Compression::Lz4),
        0x200 => Ok(Compression::Zstd),
        kind => {
            let reason = format!("compression kind {} in sysFlag {sys_flag:#x} is not known", kind >> 8);
            Err(Malformed::new(0, reason))
        }
    }
}
