//! The one schema of a message, and batches of messages in it.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, Int32Builder, Int64Builder, ListBuilder, MapBuilder, MapFieldNames, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::error::{Error, Result};
use crate::format::MessageView;

/// Most bytes that a batch may be asked to hold. Arrow counts the bytes of a column in 31 bits, and text that is not UTF-8 grows
/// threefold when it is replaced.
pub(super) const MAX_BATCH_BYTES: usize = 512 << 20;

/// What a column holds and where it comes from.
#[derive(Clone, Copy)]
enum Kind {
    Int32(fn(&MessageView<'_>) -> i32),
    Int64(fn(&MessageView<'_>) -> i64),
    /// ms, written as microseconds.
    Time(fn(&MessageView<'_>) -> i64),
    Text(for<'a> fn(&MessageView<'a>) -> Option<Cow<'a, str>>),
    Keys,
    Body,
    Properties,
}

/// The columns of a message, in order. docs/ARCHITECTURE.md, "One schema for a message".
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a method's path stands for one lifetime, a closure for any"
)]
const COLUMNS: [(&str, Kind); 19] = [
    ("topic", Kind::Text(|message| Some(message.topic()))),
    ("queue_id", Kind::Int32(|message| message.queue_id())),
    ("queue_offset", Kind::Int64(|message| message.queue_offset())),
    ("physical_offset", Kind::Int64(|message| message.physical_offset())),
    ("store_size", Kind::Int32(|message| message.size() as i32)),
    ("store_time", Kind::Time(|message| message.store_time())),
    ("born_time", Kind::Time(|message| message.born_time())),
    (
        "message_id",
        Kind::Text(|message| Some(message.message_id().to_string().into())),
    ),
    ("unique_key", Kind::Text(|message| message.unique_key())),
    ("tags", Kind::Text(|message| message.tags())),
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
    (
        "born_host",
        Kind::Text(|message| Some(message.born_host().to_string().into())),
    ),
    (
        "store_host",
        Kind::Text(|message| Some(message.store_host().to_string().into())),
    ),
];

impl Kind {
    fn data_type(self) -> DataType {
        match self {
            Self::Int32(_) => DataType::Int32,
            Self::Int64(_) => DataType::Int64,
            Self::Time(_) => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Text(_) => DataType::Utf8,
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

    /// Bytes that a row takes in the buffers of the column, apart from text and bodies.
    fn width(self) -> usize {
        // Each value costs a bit of validity besides: counted as a byte.
        1 + match self {
            Self::Int32(_) | Self::Text(_) | Self::Keys | Self::Body | Self::Properties => 4,
            Self::Int64(_) | Self::Time(_) => 8,
        }
    }
}

/// Which columns of a message are wanted, in the order in which they were named.
#[derive(Clone)]
pub(super) struct MessageColumns {
    schema: SchemaRef,
    kinds: Vec<Kind>,
}

impl MessageColumns {
    /// `None` wants all.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that is no column or that comes twice.
    pub(super) fn select(names: Option<&[String]>) -> Result<Self> {
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

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }
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
    Int32(fn(&MessageView<'_>) -> i32, Int32Builder),
    Int64(fn(&MessageView<'_>) -> i64, Int64Builder),
    Time(fn(&MessageView<'_>) -> i64, TimestampMicrosecondBuilder),
    Text(for<'a> fn(&MessageView<'a>) -> Option<Cow<'a, str>>, StringBuilder),
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

    fn append(&mut self, message: &MessageView<'_>) -> Result<(), ArrowError> {
        match self {
            Self::Int32(value, builder) => builder.append_value(value(message)),
            Self::Int64(value, builder) => builder.append_value(value(message)),
            // A time that microseconds cannot hold (292,000 years away) is nobody's time.
            Self::Time(value, builder) => builder.append_option(value(message).checked_mul(1000)),
            Self::Text(value, builder) => builder.append_option(value(message)),
            Self::Body(builder) => builder.append_value(message.body()),
            Self::Keys(builder) => {
                for key in message.keys() {
                    builder.values().append_value(key);
                }
                builder.append(true);
            }
            Self::Properties(builder) => {
                for (name, value) in message.properties().to_pairs() {
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
            Self::Text(_, builder) => Arc::new(builder.finish()),
            Self::Body(builder) => Arc::new(builder.finish()),
            Self::Keys(builder) => Arc::new(builder.finish()),
            Self::Properties(builder) => Arc::new(builder.finish()),
        }
    }
}

/// Gathers messages into batches.
pub(super) struct BatchBuilder {
    schema: SchemaRef,
    columns: Vec<Column>,
    width: usize,
    has_text: bool,
    has_body: bool,
    rows: usize,
    bytes: usize,
}

impl BatchBuilder {
    pub(super) fn new(columns: &MessageColumns) -> Self {
        let kinds = &columns.kinds;
        Self {
            schema: columns.schema.clone(),
            columns: kinds.iter().copied().map(Column::new).collect(),
            width: kinds.iter().map(|kind| kind.width()).sum(),
            has_text: kinds
                .iter()
                .any(|kind| matches!(kind, Kind::Text(_) | Kind::Keys | Kind::Properties)),
            has_body: kinds.iter().any(|kind| matches!(kind, Kind::Body)),
            rows: 0,
            bytes: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Whether the batch stays within `max_bytes` with this message in it. An empty batch takes any message.
    pub(super) fn has_room(&self, message: &MessageView<'_>, max_bytes: usize) -> bool {
        self.rows == 0 || self.bytes.saturating_add(self.size_of(message)) <= max_bytes
    }

    pub(super) fn append(&mut self, message: &MessageView<'_>) -> Result<(), ArrowError> {
        self.bytes += self.size_of(message);
        self.rows += 1;
        self.columns.iter_mut().try_for_each(|column| column.append(message))
    }

    /// The batch of what was appended; the next one begins.
    pub(super) fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        let arrays = self.columns.iter_mut().map(Column::finish).collect();
        // Without a column nothing else would say how many rows there are.
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.rows = 0;
        self.bytes = 0;
        RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)
    }

    /// Bytes of the row, reckoned from the record's size alone: everything but the body counts twice, because tags and keys stand
    /// in a column of their own and among the properties.
    fn size_of(&self, message: &MessageView<'_>) -> usize {
        let body = message.body().len();
        let rest = (message.size() as usize).saturating_sub(body);
        self.width + if self.has_text { 2 * rest } else { 0 } + if self.has_body { body } else { 0 }
    }
}
