//! Batches of messages.

use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, Int32Builder, Int64Builder, ListBuilder, MapBuilder, MapFieldNames, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::ArrowError;

use crate::arrow::columns::{Int32Of, Int64Of, Kind, LabelOf, MessageColumns, Row, TextOf};
use crate::format::MessageView;

/// Most bytes that a batch may be asked to hold: Arrow counts the bytes of a column in 31 bits.
pub(crate) const MAX_BATCH_BYTES: usize = 1 << 30;

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
            columns: wanted.kinds().iter().copied().map(Column::new).collect(),
            needs_properties: wanted.kinds().iter().any(|kind| kind.needs_properties()),
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
        let size: usize = self.wanted.kinds().iter().map(|kind| kind.size(&row)).sum();
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
        RecordBatch::try_new_with_options(self.wanted.schema().clone(), arrays, &options)
    }
}
