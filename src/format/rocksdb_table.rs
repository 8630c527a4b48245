//! The column family of a RocksDB table file, from the properties at its end. The rest of such a file is not read.

/// A column family of `rocksdbstore/`, with the option that makes a broker write to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RocksdbFamily {
    /// Keys of messages (`indexRocksDBEnable`).
    Index,
    /// Timers (`timerRocksDBEnable`).
    Timer,
    /// Transactions that have not ended (`transRocksDBEnable`).
    Transaction,
}

impl RocksdbFamily {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Index, Self::Timer, Self::Transaction];

    /// Returns its name in the database.
    const fn name(self) -> &'static str {
        match self {
            Self::Index => "default",
            Self::Timer => "timer",
            Self::Transaction => "trans",
        }
    }
}

/// The property that precedes the name of the column family.
const PROPERTY_BEFORE: &[u8] = b"column.family.id";
/// The most bytes from the end of that property to `name`, the part of the next key that differs: a value of at most 5 bytes, and
/// three lengths.
const MAX_GAP: usize = 12;

/// Returns the column family that the properties at the end of a table file state. Their keys ascend and are prefix-compressed:
/// `...column.family.id` and its value, then `name` and the family.
pub fn rocksdb_family(end_of_file: &[u8]) -> Option<RocksdbFamily> {
    let at = memchr::memmem::rfind(end_of_file, PROPERTY_BEFORE)? + PROPERTY_BEFORE.len();
    let after = end_of_file.get(at..)?;
    let name = memchr::memmem::find(after, b"name").filter(|gap| *gap <= MAX_GAP)? + b"name".len();
    let value = after.get(name..)?;
    RocksdbFamily::ALL
        .into_iter()
        .find(|family| value.starts_with(family.name().as_bytes()))
}
