//! The one schema of a message, and batches of messages in it.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, Int32Builder, Int64Builder, ListBuilder, MapBuilder, MapFieldNames, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::error::{Error, Result};
use crate::format::{MessageView, property};

/// Most bytes that a batch may be asked to hold: Arrow counts the bytes of a column in 31 bits.
pub(crate) const MAX_BATCH_BYTES: usize = 1 << 30;

/// A message on its way into a batch, its properties parsed once for all columns.
struct Row<'a> {
    message: &'a MessageView<'a>,
    properties: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl Row<'_> {
    fn property(&self, name: &str) -> Option<Cow<'_, str>> {
        let (_, value) = self.properties.iter().find(|(own, _)| own == name)?;
        Some(Cow::Borrowed(value))
    }
}

type Int32Of = fn(&MessageView<'_>) -> i32;
type Int64Of = fn(&MessageView<'_>) -> i64;
type LabelOf = fn(&MessageView<'_>) -> String;
type TextOf = for<'a> fn(&'a Row<'_>) -> Option<Cow<'a, str>>;

/// What a column holds and where it comes from.
#[derive(Clone, Copy)]
enum Kind {
    Int32(Int32Of),
    Int64(Int64Of),
    /// ms, written as microseconds.
    Time(Int64Of),
    /// An id or address, written out when it is asked for.
    Label(LabelOf),
    Text(TextOf),
    Keys,
    Body,
    Properties,
}

/// Longest label: the message id of an IPv6 host. An IPv6 address with its port has at most 53.
const MAX_LABEL: usize = 56;

/// The columns of a message, in order. docs/ARCHITECTURE.md, "One schema for a message".
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a method's path stands for one lifetime, a closure for any"
)]
const COLUMNS: [(&str, Kind); 19] = [
    ("topic", Kind::Text(|row| Some(row.message.topic()))),
    ("queue_id", Kind::Int32(|message| message.queue_id())),
    ("queue_offset", Kind::Int64(|message| message.queue_offset())),
    ("physical_offset", Kind::Int64(|message| message.physical_offset())),
    ("store_size", Kind::Int32(|message| message.size() as i32)),
    ("store_time", Kind::Time(|message| message.store_time())),
    ("born_time", Kind::Time(|message| message.born_time())),
    ("message_id", Kind::Label(|message| message.message_id().to_string())),
    ("unique_key", Kind::Text(|row| row.property(property::UNIQ_KEY))),
    ("tags", Kind::Text(|row| row.property(property::TAGS))),
    ("keys", Kind::Keys),
    ("body", Kind::Body),
    ("properties", Kind::Properties),
    ("sys_flag", Kind::Int32(|message| message.sys_flag())),
    ("flag", Kind::Int32(|message| message.flag())),
    ("reconsume_times", Kind::Int32(|message| message.reconsume_times())),
    (
        "prepared_transaction_offset",
        Kind::Int64(|message| message.prepared_transaction_offset()),
    ),
    ("born_host", Kind::Label(|message| message.born_host().to_string())),
    ("store_host", Kind::Label(|message| message.store_host().to_string())),
];

impl Kind {
    fn data_type(self) -> DataType {
        match self {
            Self::Int32(_) => DataType::Int32,
            Self::Int64(_) => DataType::Int64,
            Self::Time(_) => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Label(_) | Self::Text(_) => DataType::Utf8,
            Self::Keys => DataType::new_list(DataType::Utf8, true),
            Self::Body => DataType::Binary,
            Self::Properties => {
                let key = Field::new("key", DataType::Utf8, false);
                let value = Field::new("value", DataType::Utf8, true);
                let entries = Field::new_struct("entries", vec![key, value], false);
                DataType::Map(Arc::new(entries), false)
            }
        }
    }

    fn needs_properties(self) -> bool {
        matches!(self, Self::Text(_) | Self::Keys | Self::Properties)
    }

    /// Most bytes that the row takes in the buffers of the column: values, offsets of 4 bytes, and validity (a bit, counted as a
    /// byte).
    fn size(self, row: &Row<'_>) -> usize {
        1 + match self {
            Self::Int32(_) => 4,
            Self::Int64(_) | Self::Time(_) => 8,
            Self::Label(_) => 4 + MAX_LABEL,
            Self::Text(value) => 4 + value(row).map_or(0, |text| text.len()),
            Self::Keys => {
                4 + row
                    .property(property::KEYS)
                    .map_or(0, |keys| keys.len() + 4 * keys.split(' ').count())
            }
            Self::Body => 4 + row.message.body().len(),
            Self::Properties => {
                let pairs = row.properties.iter();
                4 + pairs.map(|(name, value)| 8 + name.len() + value.len()).sum::<usize>()
            }
        }
    }
}

/// Which columns of a message are wanted, in the order in which they were named.
#[derive(Clone)]
pub(crate) struct MessageColumns {
    schema: SchemaRef,
    kinds: Vec<Kind>,
}

impl MessageColumns {
    /// `None` wants all.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that is no column or that comes twice.
    pub(crate) fn select(names: Option<&[String]>) -> Result<Self> {
        let chosen = match names {
            None => COLUMNS.to_vec(),
            Some(names) => names
                .iter()
                .enumerate()
                .map(|(at, name)| select_one(name, names.get(..at).unwrap_or_default()))
                .collect::<Result<_>>()?,
        };
        let fields: Vec<_> = chosen
            .iter()
            .map(|(name, kind)| Field::new(*name, kind.data_type(), true))
            .collect();
        Ok(Self {
            schema: Arc::new(Schema::new(fields)),
            kinds: chosen.into_iter().map(|(_, kind)| kind).collect(),
        })
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

/// The names of all columns, in order.
pub(crate) fn column_names() -> impl Iterator<Item = &'static str> {
    COLUMNS.into_iter().map(|(name, _)| name)
}

fn select_one(name: &str, before: &[String]) -> Result<(&'static str, Kind)> {
    if before.iter().any(|other| other == name) {
        return Err(Error::Invalid {
            what: format!("columns names {name:?} twice"),
        });
    }
    let known = COLUMNS.iter().find(|(known, _)| *known == name);
    known.copied().ok_or_else(|| Error::Invalid {
        what: format!(
            "columns names {name:?}, which a message does not have; its columns are {}",
            COLUMNS.map(|(known, _)| known).join(", ")
        ),
    })
}

/// A column as it is filled.
enum Column {
    Int32(Int32Of, Int32Builder),
    Int64(Int64Of, Int64Builder),
    Time(Int64Of, TimestampMicrosecondBuilder),
    Label(LabelOf, StringBuilder),
    Text(TextOf, StringBuilder),
    Keys(ListBuilder<StringBuilder>),
    Body(BinaryBuilder),
    Properties(MapBuilder<StringBuilder, StringBuilder>),
}

impl Column {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Int32(value) => Self::Int32(value, Int32Builder::new()),
            Kind::Int64(value) => Self::Int64(value, Int64Builder::new()),
            Kind::Time(value) => Self::Time(value, TimestampMicrosecondBuilder::new().with_timezone("UTC")),
            Kind::Label(value) => Self::Label(value, StringBuilder::new()),
            Kind::Text(value) => Self::Text(value, StringBuilder::new()),
            Kind::Keys => Self::Keys(ListBuilder::new(StringBuilder::new())),
            Kind::Body => Self::Body(BinaryBuilder::new()),
            Kind::Properties => {
                let names = MapFieldNames {
                    entry: "entries".to_owned(),
                    key: "key".to_owned(),
                    value: "value".to_owned(),
                };
                Self::Properties(MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new()))
            }
        }
    }

    fn append(&mut self, row: &Row<'_>) -> Result<(), ArrowError> {
        match self {
            Self::Int32(value, builder) => builder.append_value(value(row.message)),
            Self::Int64(value, builder) => builder.append_value(value(row.message)),
            // A time that microseconds cannot hold (292,000 years away) is nobody's time.
            Self::Time(value, builder) => builder.append_option(value(row.message).checked_mul(1000)),
            Self::Label(value, builder) => builder.append_value(value(row.message)),
            Self::Text(value, builder) => builder.append_option(value(row)),
            Self::Body(builder) => builder.append_value(row.message.body()),
            Self::Keys(builder) => {
                for key in row.message.keys() {
                    builder.values().append_value(key);
                }
                builder.append(true);
            }
            Self::Properties(builder) => {
                for (name, value) in &row.properties {
                    builder.keys().append_value(name);
                    builder.values().append_value(value);
                }
                builder.append(true)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Int32(_, builder) => Arc::new(builder.finish()),
            Self::Int64(_, builder) => Arc::new(builder.finish()),
            Self::Time(_, builder) => Arc::new(builder.finish()),
            Self::Label(_, builder) | Self::Text(_, builder) => Arc::new(builder.finish()),
            Self::Body(builder) => Arc::new(builder.finish()),
            Self::Keys(builder) => Arc::new(builder.finish()),
            Self::Properties(builder) => Arc::new(builder.finish()),
        }
    }
}

/// Gathers messages into batches.
pub(crate) struct BatchBuilder {
    wanted: MessageColumns,
    columns: Vec<Column>,
    needs_properties: bool,
    rows: usize,
    bytes: usize,
}

impl BatchBuilder {
    pub(crate) fn new(wanted: &MessageColumns) -> Self {
        Self {
            wanted: wanted.clone(),
            columns: wanted.kinds.iter().copied().map(Column::new).collect(),
            needs_properties: wanted.kinds.iter().any(|kind| kind.needs_properties()),
            rows: 0,
            bytes: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Appends a message, or returns `false` if the batch would exceed `max_bytes` with it. An empty batch takes any message.
    pub(crate) fn append(&mut self, message: &MessageView<'_>, max_bytes: usize) -> Result<bool, ArrowError> {
        let properties = if self.needs_properties {
            message.properties().to_pairs()
        } else {
            Vec::new()
        };
        let row = Row { message, properties };
        let size: usize = self.wanted.kinds.iter().map(|kind| kind.size(&row)).sum();
        if self.rows > 0 && self.bytes.saturating_add(size) > max_bytes {
            return Ok(false);
        }
        self.rows += 1;
        self.bytes += size;
        self.columns.iter_mut().try_for_each(|column| column.append(&row))?;
        Ok(true)
    }

    /// The batch of what was appended; the next one begins.
    pub(crate) fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        let arrays = self.columns.iter_mut().map(Column::finish).collect();
        // Without a column nothing else would say how many rows there are.
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.rows = 0;
        self.bytes = 0;
        RecordBatch::try_new_with_options(self.wanted.schema.clone(), arrays, &options)
    }
}
