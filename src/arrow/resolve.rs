//! Columns to be resolved, and what goes back.

use std::sync::Arc;

use arrow_array::builder::{Int32Builder, Int64Builder};
use arrow_array::{Array, ArrayRef, Int32Array, Int64Array, ListArray, RecordBatch, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema};

use crate::arrow::table::Table;
use crate::config::Errors;
use crate::error::{Error, Result};
use crate::read::{KeyHit, MessageReader};

/// `topic`, `queue_id`, `queue_offset` -> `physical_offset` and `store_size`, a row for a row; null where there is no message.
///
/// # Errors
/// [`Error::Invalid`] for the columns, and those of [`MessageReader::resolve_offset`].
pub(crate) fn resolve_offsets(reader: &MessageReader, wanted: &Table) -> Result<RecordBatch> {
    let topics = wanted.texts("topic")?;
    let queue_ids = wanted.integers("queue_id")?;
    let queue_offsets = wanted.integers("queue_offset")?;
    let mut physical_offsets = Int64Builder::with_capacity(topics.len());
    let mut sizes = Int32Builder::with_capacity(topics.len());
    for ((topic, queue_id), queue_offset) in topics.into_iter().zip(queue_ids).zip(queue_offsets) {
        let queue_id = queue_id.and_then(|id| i32::try_from(id).ok());
        let position = match (topic, queue_id, queue_offset) {
            (Some(topic), Some(queue_id), Some(queue_offset)) => reader.resolve_offset(topic, queue_id, queue_offset)?,
            _ => None,
        };
        physical_offsets.append_option(position.map(|position| position.physical_offset));
        sizes.append_option(position.map(|position| position.store_size));
    }
    let schema = Schema::new(vec![
        Field::new("physical_offset", DataType::Int64, true),
        Field::new("store_size", DataType::Int32, true),
    ]);
    let columns: Vec<ArrayRef> = vec![Arc::new(physical_offsets.finish()), Arc::new(sizes.finish())];
    RecordBatch::try_new(Arc::new(schema), columns).map_err(from_arrow)
}

/// `topic`, `key` -> `hits`, a row for a row: every message with the key, ascending by physical offset; null if there is none.
///
/// # Errors
/// [`Error::Invalid`] for the columns, and those of [`MessageReader::resolve_keys`].
pub(crate) fn resolve_keys(reader: &MessageReader, wanted: &Table, errors: Errors) -> Result<RecordBatch> {
    let topics = wanted.texts("topic")?;
    let keys = wanted.texts("key")?;
    let pairs: Vec<_> = topics.into_iter().zip(keys).map(|(topic, key)| topic.zip(key)).collect();
    let asked: Vec<_> = pairs.iter().copied().flatten().collect();
    let mut found = reader.resolve_keys(&asked, errors)?.into_iter();
    let hits: Vec<Vec<KeyHit>> = pairs
        .iter()
        .map(|pair| pair.and_then(|_| found.next()).unwrap_or_default())
        .collect();
    let flat: Vec<_> = hits.iter().flatten().collect();
    let columns: [(&str, ArrayRef); 4] = [
        (
            "queue_id",
            Arc::new(flat.iter().map(|hit| Some(hit.queue_id)).collect::<Int32Array>()),
        ),
        (
            "queue_offset",
            Arc::new(flat.iter().map(|hit| Some(hit.queue_offset)).collect::<Int64Array>()),
        ),
        (
            "physical_offset",
            Arc::new(flat.iter().map(|hit| Some(hit.physical_offset)).collect::<Int64Array>()),
        ),
        (
            "store_size",
            Arc::new(flat.iter().map(|hit| Some(hit.store_size)).collect::<Int32Array>()),
        ),
    ];
    let (fields, arrays): (Vec<_>, Vec<_>) = columns
        .into_iter()
        .map(|(name, array)| (Field::new(name, array.data_type().clone(), true), array))
        .unzip();
    let structs = StructArray::try_new(Fields::from(fields), arrays, None).map_err(from_arrow)?;
    let item = Arc::new(Field::new_list_field(structs.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths(hits.iter().map(Vec::len));
    let found_any = hits.iter().map(|hits| !hits.is_empty()).collect::<NullBuffer>();
    let list = ListArray::try_new(item, offsets, Arc::new(structs), Some(found_any)).map_err(from_arrow)?;
    let schema = Schema::new(vec![Field::new("hits", list.data_type().clone(), true)]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(list)]).map_err(from_arrow)
}

/// What Arrow refuses to build or to take.
#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
pub(crate) fn from_arrow(error: ArrowError) -> Error {
    Error::Invalid { what: error.to_string() }
}
