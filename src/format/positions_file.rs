//! The positions file of a consumer that reads the store of another process: JSON, a line each.
//!
//! | line | object |
//! |-|-|
//! | first | `mqstorePositions`: 1, the version |
//! | one a queue, ascending | `topic`, `queueId`, `next`: the queue offset that is consumed next; `record`: a record of the queue next to it |
//! | last | `crc32`: the checksum of all bytes before this line, 8 hex digits |
//!
//! `record` has the `queueOffset`, `physicalOffset`, `size` and `crc32` (8 hex digits, of all its bytes) of a record. It is absent where
//! the queue had none.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::crc::crc32;
use super::malformed::Malformed;

const VERSION_FIELD: &str = "mqstorePositions";
const VERSION: i64 = 1;

/// The position of a consumer in a queue, and the record that identifies the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPosition {
    /// The queue offset that is consumed next.
    pub next: i64,
    /// The last readable record before `next`, or the one at `next`; `None` where the queue had neither.
    pub record: Option<RecordIdentity>,
}

/// The identity of a record: its offsets, and the checksum of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordIdentity {
    /// The offset in its queue.
    pub queue_offset: i64,
    /// The offset of its first byte in the log.
    pub physical_offset: i64,
    /// The number of its bytes.
    pub size: i32,
    /// CRC-32 of its bytes.
    pub crc32: u32,
}

/// The positions of a consumer, by topic and queue id.
pub type StoredPositions = BTreeMap<(String, i32), StoredPosition>;

/// Encodes a positions file.
pub fn encode_positions(positions: &StoredPositions) -> Vec<u8> {
    let mut lines = format!("{}\n", json!({ VERSION_FIELD: VERSION }));
    for ((topic, queue_id), position) in positions {
        let mut fields = Map::new();
        fields.insert("topic".to_owned(), json!(topic));
        fields.insert("queueId".to_owned(), json!(queue_id));
        fields.insert("next".to_owned(), json!(position.next));
        if let Some(record) = &position.record {
            let record = json!({
                "queueOffset": record.queue_offset,
                "physicalOffset": record.physical_offset,
                "size": record.size,
                "crc32": hex(record.crc32),
            });
            fields.insert("record".to_owned(), record);
        }
        lines.push_str(&Value::Object(fields).to_string());
        lines.push('\n');
    }
    let checksum = json!({ "crc32": hex(crc32(lines.as_bytes())) });
    lines.push_str(&checksum.to_string());
    lines.push('\n');
    lines.into_bytes()
}

/// Decodes a positions file.
///
/// # Errors
/// [`Malformed`] for a file that is not whole, or that a later version has written.
pub fn decode_positions(bytes: &[u8]) -> Result<StoredPositions, Malformed> {
    let text = std::str::from_utf8(bytes).map_err(|error| Malformed::new(error.valid_up_to(), "not UTF-8"))?;
    let ended = text.strip_suffix('\n').unwrap_or_default();
    let lines = ended.rfind('\n').and_then(|at| text.split_at_checked(at + 1));
    let Some((covered, last)) = lines else {
        return Err(Malformed::new(0, "not a positions file: it has fewer than two whole lines"));
    };
    let stated = parsed(last).as_ref().and_then(checksum);
    let found = crc32(covered.as_bytes());
    if stated != Some(found) {
        return Err(Malformed::new(
            covered.len(),
            format!(
                "the checksum of the positions is {}, and the last line is {:?}",
                hex(found),
                last.trim_end()
            ),
        ));
    }
    let mut at = 0;
    let mut positions = StoredPositions::new();
    for (number, line) in covered.split_inclusive('\n').enumerate() {
        let fields = parsed(line).unwrap_or_default();
        if number == 0 {
            let version = fields.get(VERSION_FIELD).and_then(Value::as_i64);
            if version != Some(VERSION) {
                return Err(Malformed::new(
                    0,
                    format!("this is not a positions file of version {VERSION}: {:?}", line.trim_end()),
                ));
            }
        } else {
            let entry = position(&fields).ok_or_else(|| Malformed::new(at, format!("no position: {:?}", line.trim_end())))?;
            positions.extend([entry]);
        }
        at += line.len();
    }
    Ok(positions)
}

fn position(fields: &Map<String, Value>) -> Option<((String, i32), StoredPosition)> {
    let queue = (fields.get("topic")?.as_str()?.to_owned(), int(fields, "queueId")?);
    let record = match fields.get("record") {
        None => None,
        Some(record) => Some(record_identity(record.as_object()?)?),
    };
    let next = int(fields, "next")?;
    Some((queue, StoredPosition { next, record }))
}

fn record_identity(fields: &Map<String, Value>) -> Option<RecordIdentity> {
    Some(RecordIdentity {
        queue_offset: int(fields, "queueOffset")?,
        physical_offset: int(fields, "physicalOffset")?,
        size: int(fields, "size")?,
        crc32: checksum(fields)?,
    })
}

fn parsed(line: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str(line) {
        Ok(Value::Object(fields)) => Some(fields),
        _ => None,
    }
}

fn int<T: TryFrom<i64>>(fields: &Map<String, Value>, name: &str) -> Option<T> {
    fields.get(name)?.as_i64()?.try_into().ok()
}

fn checksum(fields: &Map<String, Value>) -> Option<u32> {
    u32::from_str_radix(fields.get("crc32")?.as_str()?, 16).ok()
}

fn hex(checksum: u32) -> String {
    format!("{checksum:08x}")
}
