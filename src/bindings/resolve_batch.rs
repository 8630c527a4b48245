//! Columns that come in to be resolved, and what goes back.

use std::fmt::Display;
use std::sync::Arc;

use arrow_array::builder::{Int32Builder, Int64Builder};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, Int32Array, Int64Array, ListArray, RecordBatch, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema};

use crate::error::{Error, Result};
use crate::read::{KeyHit, MessageReader};

/// A table that came in: its columns, in one or more chunks.
pub(super) struct Table {
    pub(super) fields: Fields,
    pub(super) chunks: Vec<StructArray>,
}

impl Table {
    fn rows(&self) -> usize {
        self.chunks.iter().map(Array::len).sum()
    }

    /// The chunks of the column called `name`, each with what is null in it: a row that is null as a whole counts.
    fn column(&self, name: &str) -> Result<Vec<(&ArrayRef, Option<NullBuffer>)>> {
        let mut same = self.fields.iter().enumerate().filter(|(_, field)| field.name() == name);
        let (Some((at, _)), None) = (same.next(), same.next()) else {
            let names: Vec<_> = self.fields.iter().map(|field| field.name().as_str()).collect();
            return invalid(format!(
                "expected one column called {name:?}, but the columns are {}",
                names.join(", ")
            ));
        };
        let chunks = self.chunks.iter().filter_map(|chunk| {
            let column = chunk.columns().get(at)?;
            let nulls = NullBuffer::union(chunk.nulls(), column.logical_nulls().as_ref());
            Some((column, nulls))
        });
        Ok(chunks.collect())
    }

    /// A column of whole numbers of any width.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is missing, of another type, or a number exceeds 64 bits.
    pub(super) fn integers(&self, name: &str) -> Result<Vec<Option<i64>>> {
        let mut values = Vec::with_capacity(self.rows());
        for (column, nulls) in self.column(name)? {
            let nulls = nulls.as_ref();
            match column.data_type() {
                DataType::Int8 => push_integers::<Int8Type>(column, nulls, name, &mut values)?,
                DataType::Int16 => push_integers::<Int16Type>(column, nulls, name, &mut values)?,
                DataType::Int32 => push_integers::<Int32Type>(column, nulls, name, &mut values)?,
                DataType::Int64 => push_integers::<Int64Type>(column, nulls, name, &mut values)?,
                DataType::UInt8 => push_integers::<UInt8Type>(column, nulls, name, &mut values)?,
                DataType::UInt16 => push_integers::<UInt16Type>(column, nulls, name, &mut values)?,
                DataType::UInt32 => push_integers::<UInt32Type>(column, nulls, name, &mut values)?,
                DataType::UInt64 => push_integers::<UInt64Type>(column, nulls, name, &mut values)?,
                DataType::Null => values.extend(std::iter::repeat_n(None, column.len())),
                other => return invalid(format!("column {name:?} is {other}: cast it to int64 first")),
            }
        }
        Ok(values)
    }

    /// A column of text: utf8, `large_utf8`, `utf8_view`, or a dictionary of one of them.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is missing or of another type.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<Option<&str>>> {
        let mut values = Vec::with_capacity(self.rows());
        for (column, nulls) in self.column(name)? {
            let is_valid = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
            match column.data_type() {
                DataType::Null => values.extend(std::iter::repeat_n(None, column.len())),
                DataType::Dictionary(_, _) => {
                    let dictionary = column.as_any_dictionary();
                    let words = texts_of(dictionary.values(), name)?;
                    // Where all is null a dictionary may be empty, and then no key can be looked up.
                    let keys = if words.is_empty() {
                        vec![0; column.len()]
                    } else {
                        dictionary.normalized_keys()
                    };
                    values.extend(keys.into_iter().enumerate().map(|(row, key)| {
                        let word = words.get(key).copied().flatten();
                        word.filter(|_| is_valid(row))
                    }));
                }
                _ => {
                    let texts = texts_of(column, name)?;
                    values.extend(
                        texts
                            .into_iter()
                            .enumerate()
                            .map(|(row, text)| text.filter(|_| is_valid(row))),
                    );
                }
            }
        }
        Ok(values)
    }
}

fn push_integers<T: ArrowPrimitiveType>(
    column: &ArrayRef,
    nulls: Option<&NullBuffer>,
    name: &str,
    values: &mut Vec<Option<i64>>,
) -> Result<()>
where
    T::Native: TryInto<i64> + Display + Copy,
{
    for (row, value) in column.as_primitive::<T>().values().iter().enumerate() {
        if nulls.is_some_and(|nulls| nulls.is_null(row)) {
            values.push(None);
            continue;
        }
        let Ok(value) = (*value).try_into() else {
            return invalid(format!("column {name:?} holds {value}, which does not fit int64"));
        };
        values.push(Some(value));
    }
    Ok(())
}

fn texts_of<'a>(column: &'a ArrayRef, name: &str) -> Result<Vec<Option<&'a str>>> {
    match column.data_type() {
        DataType::Utf8 => Ok(column.as_string::<i32>().iter().collect()),
        DataType::LargeUtf8 => Ok(column.as_string::<i64>().iter().collect()),
        DataType::Utf8View => Ok(column.as_string_view().iter().collect()),
        other => invalid(format!("column {name:?} is {other}: cast it to utf8 first")),
    }
}

/// `topic`, `queue_id`, `queue_offset` -> `physical_offset` and `store_size`, a row for a row; null where there is no message.
///
/// # Errors
/// [`Error::Invalid`] for the columns, and those of [`MessageReader::position`].
pub(super) fn resolve_offsets(reader: &MessageReader, wanted: &Table) -> Result<RecordBatch> {
    let topics = wanted.texts("topic")?;
    let queue_ids = wanted.integers("queue_id")?;
    let queue_offsets = wanted.integers("queue_offset")?;
    let mut physical_offsets = Int64Builder::with_capacity(topics.len());
    let mut sizes = Int32Builder::with_capacity(topics.len());
    for ((topic, queue_id), queue_offset) in topics.into_iter().zip(queue_ids).zip(queue_offsets) {
        let queue_id = queue_id.and_then(|id| i32::try_from(id).ok());
        let position = match (topic, queue_id, queue_offset) {
            (Some(topic), Some(queue_id), Some(queue_offset)) => reader.position(topic, queue_id, queue_offset)?,
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
pub(super) fn resolve_keys(reader: &MessageReader, wanted: &Table) -> Result<RecordBatch> {
    let topics = wanted.texts("topic")?;
    let keys = wanted.texts("key")?;
    let pairs: Vec<_> = topics.into_iter().zip(keys).map(|(topic, key)| topic.zip(key)).collect();
    let asked: Vec<_> = pairs.iter().copied().flatten().collect();
    let mut found = reader.resolve_keys(&asked)?.into_iter();
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
pub(super) fn from_arrow(error: ArrowError) -> Error {
    Error::Invalid { what: error.to_string() }
}

fn invalid<T>(what: String) -> Result<T> {
    Err(Error::Invalid { what })
}
