//! Bulk resolution: the rows of a table in, one row for each out.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int32Array, Int64Array, ListArray, RecordBatch, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, Field, Schema};

use crate::arrow::table::{Table, try_with_capacity};
use crate::config::Errors;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::read::{self, HitBounds, KeyHit, MessageReader, OffsetResolver, Position, Side};

/// Resolves `topic`, `queue_id`, `queue_offset` to `physical_offset` and `store_size`, row by row; null for an absent message.
///
/// # Errors
/// [`Error::Invalid`] for the columns, and those of [`OffsetResolver::position`].
pub(crate) fn resolve_offsets(reader: &MessageReader, wanted: &Table) -> Result<RecordBatch> {
    wanted.expect_columns(&["topic", "queue_id", "queue_offset"])?;
    let mut resolver = OffsetResolver::new(reader);
    let mut found = try_with_capacity(wanted.rows())?;
    for rows in wanted.chunks() {
        let (topic, queue_id, queue_offset) = (rows.text("topic")?, rows.integer("queue_id")?, rows.integer("queue_offset")?);
        let position_in_queue = |row| {
            if rows.is_null(row) {
                return Ok(None);
            }
            let (topic, queue_id, queue_offset) = (topic.at(row)?, queue_id.at(row)?, queue_offset.at(row)?);
            let queue_id = queue_id.and_then(|id| i32::try_from(id).ok());
            Ok((|| Some((topic?, queue_id?, queue_offset?)))())
        };
        let mut wanted = Vec::with_capacity(AT_ONCE);
        for start in (0..rows.len()).step_by(AT_ONCE) {
            wanted.clear();
            for row in start..rows.len().min(start + AT_ONCE) {
                wanted.push(position_in_queue(row)?);
            }
            resolver.positions(&wanted, &mut found)?;
        }
    }
    positions(&found)
}

/// The rows that are read before they are resolved.
const AT_ONCE: usize = 1024;

/// Resolves `id` to `physical_offset` and `store_size`, row by row; null for an absent message.
///
/// # Errors
/// [`Error::Invalid`] for the column, and those of [`read::resolve_ids`].
pub(crate) fn resolve_ids(reader: &MessageReader, wanted: &Table, errors: Errors) -> Result<RecordBatch> {
    let ids = wanted.texts("id")?;
    let given: Vec<&str> = ids.iter().copied().flatten().collect();
    let mut resolved = read::resolve_ids(reader, &given, errors)?.into_iter();
    let found: Vec<_> = ids.iter().map(|id| id.and_then(|_| resolved.next().flatten())).collect();
    positions(&found)
}

/// Resolves `topic`, `queue_id`, `time` to `queue_offset`, row by row; null for an absent queue.
///
/// # Errors
/// [`Error::Invalid`] for the columns, and those of [`MessageReader::resolve_time`].
pub(crate) fn resolve_times(reader: &MessageReader, wanted: &Table, side: Side, errors: Errors) -> Result<RecordBatch> {
    wanted.expect_columns(&["topic", "queue_id", "time"])?;
    let mut found = try_with_capacity(wanted.rows())?;
    for rows in wanted.chunks() {
        let (topic, queue_id, time) = (
            rows.text("topic")?,
            rows.integer("queue_id")?,
            rows.time("time", side.round())?,
        );
        for row in 0..rows.len() {
            interrupt::check()?;
            if rows.is_null(row) {
                found.push(None);
                continue;
            }
            let (topic, queue_id, time) = (topic.at(row)?, queue_id.at(row)?, time.at(row)?);
            let queue_id = queue_id.and_then(|id| i32::try_from(id).ok());
            found.push(match (topic, queue_id, time) {
                (Some(topic), Some(queue_id), Some(time)) => reader.resolve_time(topic, queue_id, time, side, errors)?,
                _ => None,
            });
        }
    }
    batch([("queue_offset", Arc::new(Int64Array::from(found)) as ArrayRef)])
}

/// Resolves `topic`, `key` to `hits`, row by row: every message with the key within the bounds, ascending by physical offset; null
/// without a message.
///
/// # Errors
/// [`Error::Invalid`] for the columns, and those of [`MessageReader::resolve_keys`].
pub(crate) fn resolve_keys(reader: &MessageReader, wanted: &Table, bounds: &HitBounds, errors: Errors) -> Result<RecordBatch> {
    let topics = wanted.texts("topic")?;
    let keys = wanted.texts("key")?;
    let pairs: Vec<_> = topics.into_iter().zip(keys).map(|(topic, key)| topic.zip(key)).collect();
    let asked: Vec<_> = pairs.iter().copied().flatten().collect();
    let found = reader.resolve_keys(&asked, bounds, errors)?;
    let mut counts = found.iter().map(<[KeyHit]>::len);
    let counts: Vec<usize> = pairs
        .iter()
        .map(|pair| pair.and_then(|_| counts.next()).unwrap_or_default())
        .collect();
    let hits = found.all().iter();
    let columns: [(&str, ArrayRef); 4] = [
        (
            "queue_id",
            Arc::new(Int32Array::from_iter_values(hits.clone().map(|hit| hit.queue_id))),
        ),
        (
            "queue_offset",
            Arc::new(Int64Array::from_iter_values(hits.clone().map(|hit| hit.queue_offset))),
        ),
        (
            "physical_offset",
            Arc::new(Int64Array::from_iter_values(hits.clone().map(|hit| hit.physical_offset))),
        ),
        (
            "store_size",
            Arc::new(Int32Array::from_iter_values(hits.map(|hit| hit.store_size))),
        ),
    ];
    let hits = StructArray::from(batch(columns)?);
    let item = Arc::new(Field::new_list_field(hits.data_type().clone(), true));
    let found_any = counts.iter().map(|count| *count > 0).collect::<NullBuffer>();
    let offsets = OffsetBuffer::from_lengths(counts);
    let list = ListArray::try_new(item, offsets, Arc::new(hits), Some(found_any)).map_err(from_arrow)?;
    batch([("hits", Arc::new(list) as ArrayRef)])
}

/// Returns a batch with the `physical_offset` and `store_size` of each row.
fn positions(found: &[Option<Position>]) -> Result<RecordBatch> {
    let nulls: NullBuffer = found.iter().map(Option::is_some).collect();
    let offsets = found.iter().map(|found| found.map_or(0, |position| position.physical_offset));
    let sizes = found.iter().map(|found| found.map_or(0, |position| position.store_size));
    let (offsets, sizes) = (offsets.collect::<Vec<_>>().into(), sizes.collect::<Vec<_>>().into());
    let offsets = Int64Array::try_new(offsets, Some(nulls.clone())).map_err(from_arrow)?;
    let sizes = Int32Array::try_new(sizes, Some(nulls)).map_err(from_arrow)?;
    batch([
        ("physical_offset", Arc::new(offsets) as ArrayRef),
        ("store_size", Arc::new(sizes)),
    ])
}

/// Returns a batch of nullable columns of equal length.
fn batch<const N: usize>(columns: [(&str, ArrayRef); N]) -> Result<RecordBatch> {
    let field = |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), true);
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    let columns = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(schema), columns).map_err(from_arrow)
}

/// Converts an error of Arrow.
#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
pub(crate) fn from_arrow(error: ArrowError) -> Error {
    Error::Invalid { what: error.to_string() }
}
