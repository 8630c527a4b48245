//! The positions of the fields in every file of a store, taken from docs/FORMAT.md only.

use std::path::Path;

use mqstore::format::MIN_RECORD_SIZE;

/// A field: its name, its position and its length in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) at: usize,
    pub(crate) width: usize,
}

/// The kind of a store's file, by its path from the store's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    Log,
    Queue,
    BatchQueue,
    Index,
    Checkpoint,
    Sizes,
    Other,
}

impl Family {
    pub(crate) fn of(path: &Path) -> Self {
        match path.iter().next().and_then(|first| first.to_str()) {
            Some("commitlog") => Self::Log,
            Some("consumequeue") => Self::Queue,
            Some("batchconsumequeue") => Self::BatchQueue,
            Some("index") => Self::Index,
            Some("checkpoint") => Self::Checkpoint,
            Some("config") if path.ends_with("mqstore.json") => Self::Sizes,
            _ => Self::Other,
        }
    }
}

/// A big-endian number; bytes past the end read as zero.
pub(crate) fn number(bytes: &[u8], at: usize, width: usize) -> i64 {
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let start = i64::from(byte(at).cast_signed());
    (at + 1..at + width).fold(start, |number, at| number << 8 | i64::from(byte(at)))
}

/// Consecutive fields from `at` on.
fn row(at: usize, fields: &[(&'static str, usize)]) -> Vec<Field> {
    let mut at = at;
    let place = |(name, width): &(&'static str, usize)| {
        at += width;
        Field {
            name,
            at: at - width,
            width: *width,
        }
    };
    fields.iter().map(place).collect()
}

/// The record at `at`: its fields with their names, body, topic and properties among them; `None` after the last record. Of bytes
/// that were damaged before, whatever they say.
pub(crate) fn record(bytes: &[u8], at: usize) -> Option<Vec<Field>> {
    let magic = bytes.get(at + 4..at + 8)?;
    let topic_length = match magic {
        [0xDA, 0xA3, 0x20, 0xA7] => 1,
        [0xDA, 0xA3, 0x20, 0xAB] => 2,
        _ => return None,
    };
    let sys_flag = number(bytes, at + 36, 4);
    let host = |bit: i64| if sys_flag & bit == 0 { 4 } else { 16 };
    let mut fields = row(
        at,
        &[
            ("total size", 4),
            ("magic", 4),
            ("body CRC", 4),
            ("queue id", 4),
            ("flag", 4),
            ("queue offset", 8),
            ("physical offset", 8),
            ("sysFlag", 4),
            ("born time", 8),
            ("born host", host(1 << 4)),
            ("born port", 4),
            ("store time", 8),
            ("store host", host(1 << 5)),
            ("store port", 4),
            ("reconsume times", 4),
            ("prepared transaction offset", 8),
        ],
    );
    for (length, width, content) in [
        ("body length", 4, "body"),
        ("topic length", topic_length, "topic"),
        ("properties length", 2, "properties"),
    ] {
        let length_at = fields.last().map_or(at, |field| field.at + field.width);
        let len = number(bytes, length_at, width).clamp(0, bytes.len() as i64) as usize;
        fields.extend(row(length_at, &[(length, width), (content, len)]));
    }
    Some(fields)
}

/// Returns the starts of the records of a segment, and at last the end of the last one.
pub(crate) fn record_starts(bytes: &[u8]) -> Vec<usize> {
    let mut starts = vec![0];
    let mut at = 0;
    while record(bytes, at).is_some() {
        match usize::try_from(number(bytes, at, 4)) {
            Ok(size) if size >= MIN_RECORD_SIZE => at += size,
            _ => break,
        }
        starts.push(at);
    }
    starts
}

fn log_fields(bytes: &[u8]) -> Vec<Field> {
    let starts = record_starts(bytes);
    let mut fields: Vec<Field> = starts.iter().filter_map(|at| record(bytes, *at)).flatten().collect();
    fields.retain(|field| field.width > 0);
    let end = starts.last().copied().unwrap_or(0);
    if bytes.len() >= end + 8 {
        fields.extend(row(end, &[("BLANK size", 4), ("BLANK magic", 4)]));
    }
    fields
}

/// Rows of equal fields that fill `bytes` from `start` on.
fn rows(bytes: &[u8], start: usize, fields: &[(&'static str, usize)]) -> Vec<Field> {
    let step = fields.iter().map(|(_, width)| width).sum();
    let ends = (start + step..=bytes.len()).step_by(step);
    ends.flat_map(|end| row(end - step, fields)).collect()
}

/// Returns the numbers of slots and items that an index file of this length has, in the stores that are damaged here.
pub(crate) fn slots_of(len: usize) -> usize {
    match len {
        480 => 10,
        420_040 => 5000,
        _ => 100,
    }
}

fn index_fields(bytes: &[u8]) -> Vec<Field> {
    let mut fields = row(
        0,
        &[
            ("begin time", 8),
            ("end time", 8),
            ("begin physical offset", 8),
            ("end physical offset", 8),
            ("slot count", 4),
            ("index count", 4),
        ],
    );
    let items = 40 + 4 * slots_of(bytes.len());
    fields.extend(rows(&bytes[..items.min(bytes.len())], 40, &[("slot", 4)]));
    let item = [
        ("key hash", 4),
        ("physical offset", 8),
        ("time difference", 4),
        ("previous", 4),
    ];
    fields.extend(rows(bytes, items, &item));
    fields
}

/// Every field of a file; none of what holds no numbers.
pub(crate) fn fields(path: &Path, bytes: &[u8]) -> Vec<Field> {
    let mut found = match Family::of(path) {
        Family::Log => log_fields(bytes),
        Family::Queue => rows(bytes, 0, &[("physical offset", 8), ("size", 4), ("tags code", 8)]),
        Family::BatchQueue => rows(
            bytes,
            0,
            &[
                ("physical offset", 8),
                ("size", 4),
                ("tags code", 8),
                ("store time", 8),
                ("base offset", 8),
                ("count", 2),
                ("compacted offset", 4),
                ("reserved", 4),
            ],
        ),
        Family::Index => index_fields(bytes),
        Family::Checkpoint => row(
            0,
            &[
                ("physic time", 8),
                ("logics time", 8),
                ("index time", 8),
                ("master flushed offset", 8),
                ("confirm offset", 8),
                ("logics physical offset", 8),
            ],
        ),
        Family::Sizes | Family::Other => Vec::new(),
    };
    found.retain(|field| field.at + field.width <= bytes.len());
    found
}

/// Returns true if a field is a number, and not text.
pub(crate) fn is_number(field: &Field) -> bool {
    !matches!(field.name, "body" | "topic" | "properties") && field.width <= 8
}
