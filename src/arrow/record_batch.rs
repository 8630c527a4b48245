//! Batches of messages.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

use arrow_array::builder::{
    Int32Builder, Int64Builder, ListBuilder, MapBuilder, MapFieldNames, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, BinaryArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::OffsetBuffer;
use arrow_schema::ArrowError;

use crate::arrow::buffers;
use crate::arrow::columns::{HostOf, Int32Of, Int64Of, Kind, MessageColumns, Row};
use crate::format::{Host, MessageView, pairs_of};

/// The largest size of a batch that may be requested: Arrow counts the bytes of a column in 31 bits.
pub(crate) const MAX_BATCH_BYTES: usize = 1 << 30;

/// A column under construction.
enum Column {
    Int32(Int32Of, Int32Builder),
    Int64(Int64Of, Int64Builder),
    Time(Int64Of, TimestampMicrosecondBuilder),
    Topic(StringBuilder),
    MessageId(StringBuilder),
    Host(HostOf, LastHost, StringBuilder),
    Property(&'static str, StringBuilder),
    Keys(ListBuilder<StringBuilder>),
    Body(Bodies),
    Properties(MapBuilder<StringBuilder, StringBuilder>),
}

impl Column {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Int32(value) => Self::Int32(value, Int32Builder::new()),
            Kind::Int64(value) => Self::Int64(value, Int64Builder::new()),
            Kind::Time(value) => Self::Time(value, TimestampMicrosecondBuilder::new().with_timezone("UTC")),
            Kind::Topic => Self::Topic(StringBuilder::new()),
            Kind::MessageId => Self::MessageId(StringBuilder::new()),
            Kind::Host(value) => Self::Host(value, LastHost::default(), StringBuilder::new()),
            Kind::Property(name) => Self::Property(name, StringBuilder::new()),
            Kind::Keys => Self::Keys(ListBuilder::new(StringBuilder::new())),
            Kind::Body => Self::Body(Bodies::default()),
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
            Self::Int32(value, builder) => builder.append_value(value(row)),
            Self::Int64(value, builder) => builder.append_value(value(row.message)),
            // A time that microseconds cannot hold (292,000 years away) becomes null.
            Self::Time(value, builder) => builder.append_option(value(row.message).checked_mul(1000)),
            Self::Topic(builder) => builder.append_value(row.message.topic()),
            Self::MessageId(builder) => append_written(builder, row.message.message_id())?,
            Self::Host(value, last, builder) => builder.append_value(last.text(value(row.message))),
            Self::Property(name, builder) => builder.append_option(row.property(name)),
            Self::Body(bodies) => bodies.append(row.body)?,
            Self::Keys(builder) => {
                for key in row.keys() {
                    builder.values().append_value(key);
                }
                builder.append(true);
            }
            Self::Properties(builder) => {
                for (name, value) in row.properties {
                    builder.keys().append_value(name);
                    builder.values().append_value(value);
                }
                builder.append(true)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Self::Int32(_, builder) => Arc::new(builder.finish()),
            Self::Int64(_, builder) => Arc::new(builder.finish()),
            Self::Time(_, builder) => Arc::new(builder.finish()),
            Self::Topic(builder) | Self::MessageId(builder) | Self::Host(_, _, builder) | Self::Property(_, builder) => {
                Arc::new(builder.finish())
            }
            Self::Body(bodies) => Arc::new(bodies.finish()?),
            Self::Keys(builder) => Arc::new(builder.finish()),
            Self::Properties(builder) => Arc::new(builder.finish()),
        })
    }
}

/// Concatenated bodies, and the end of each.
#[derive(Default)]
struct Bodies {
    bytes: Vec<u8>,
    ends: Vec<i32>,
}

impl Bodies {
    fn append(&mut self, body: &[u8]) -> Result<(), ArrowError> {
        if self.ends.is_empty() {
            self.bytes = buffers::take();
        }
        self.bytes.extend_from_slice(body);
        let end = i32::try_from(self.bytes.len());
        self.ends.push(end.map_err(|error| ArrowError::ExternalError(error.into()))?);
        Ok(())
    }

    fn finish(&mut self) -> Result<BinaryArray, ArrowError> {
        let offsets = std::iter::once(0).chain(self.ends.drain(..)).collect();
        let bytes = buffers::into_buffer(std::mem::take(&mut self.bytes));
        BinaryArray::try_new(OffsetBuffer::new(offsets), bytes, None)
    }
}

/// The last host as text: the next row often has the same one.
#[derive(Default)]
struct LastHost(Option<(Host, String)>);

impl LastHost {
    fn text(&mut self, host: Host) -> &str {
        if self.0.as_ref().is_none_or(|(last, _)| *last != host) {
            self.0 = Some((host, host.to_string()));
        }
        self.0.as_ref().map_or("", |(_, text)| text)
    }
}

fn append_written(builder: &mut StringBuilder, value: impl std::fmt::Display) -> Result<(), ArrowError> {
    write!(builder, "{value}").map_err(|error| ArrowError::ExternalError(error.into()))?;
    // Ends the value that was written.
    builder.append_value("");
    Ok(())
}

/// A builder of batches from messages.
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

    /// Appends a message with this body and sysFlag. Returns false if the batch would then exceed `max_bytes`. An empty batch
    /// accepts any message.
    pub(crate) fn append(
        &mut self,
        message: &MessageView<'_>,
        body: &[u8],
        sys_flag: i32,
        max_bytes: usize,
    ) -> Result<bool, ArrowError> {
        let text = if self.needs_properties {
            message.properties().text()
        } else {
            Cow::default()
        };
        let properties = &pairs_of(&text);
        let row = Row {
            message,
            body,
            sys_flag,
            properties,
        };
        let size: usize = self.wanted.kinds().iter().map(|kind| kind.size(&row)).sum();
        if self.rows > 0 && self.bytes.saturating_add(size) > max_bytes {
            return Ok(false);
        }
        self.rows += 1;
        self.bytes += size;
        self.columns.iter_mut().try_for_each(|column| column.append(&row))?;
        Ok(true)
    }

    /// Returns the batch of the appended messages, and starts the next one.
    pub(crate) fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        let arrays = self.columns.iter_mut().map(Column::finish).collect::<Result<_, _>>()?;
        // Without a column the number of rows must be stated.
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.rows = 0;
        self.bytes = 0;
        RecordBatch::try_new_with_options(self.wanted.schema().clone(), arrays, &options)
    }
}
