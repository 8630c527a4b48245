//! The columns of a message: name, type, source, and whether a caller or the store sets them.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::error::{Error, Result};
use crate::format::{Host, MessageView, property};

/// A message that is added to a batch. Its properties are parsed once for all columns.
pub(super) struct Row<'a> {
    pub(super) message: &'a MessageView<'a>,
    /// The body as it is stored in the batch.
    pub(super) body: &'a [u8],
    /// The sysFlag that describes this body.
    pub(super) sys_flag: i32,
    pub(super) properties: &'a [(&'a str, &'a str)],
}

impl<'a> Row<'a> {
    pub(super) fn property(&self, name: &str) -> Option<&'a str> {
        let (_, value) = self.properties.iter().find(|(own, _)| *own == name)?;
        Some(value)
    }

    /// Returns the keys in `KEYS`.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'a str> {
        let keys = self.property(property::KEYS).unwrap_or_default();
        keys.split(' ').filter(|key| !key.is_empty())
    }
}

pub(super) type Int32Of = fn(&Row<'_>) -> i32;
pub(super) type Int64Of = fn(&MessageView<'_>) -> i64;
pub(super) type HostOf = fn(&MessageView<'_>) -> Host;

/// The type of a column and the source of its values.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Int32(Int32Of),
    Int64(Int64Of),
    /// ms, converted to microseconds.
    Time(Int64Of),
    Topic,
    MessageId,
    Host(HostOf),
    /// The property of this name.
    Property(&'static str),
    Keys,
    Body,
    Properties,
}

/// The length of the message id of an IPv6 host.
const MAX_MESSAGE_ID: usize = 56;
/// The length of an IPv6 address with its port.
const MAX_HOST: usize = 53;

/// A column of a message.
#[derive(Clone, Copy)]
struct Column {
    name: &'static str,
    kind: Kind,
    given_by: GivenBy,
}

/// The party that sets a column when a message is appended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GivenBy {
    /// The caller, who may leave it out.
    Caller,
    /// The store. A value of the caller is ignored.
    Store,
}
use GivenBy::{Caller, Store};

const fn column(name: &'static str, kind: Kind, given_by: GivenBy) -> Column {
    Column { name, kind, given_by }
}

/// The columns of a message, in order. This is the only list of them, for Arrow, for appended rows, and for Spark.
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a method's path stands for one lifetime, a closure for any"
)]
const COLUMNS: [Column; 19] = [
    column("topic", Kind::Topic, Caller),
    column("queue_id", Kind::Int32(|row| row.message.queue_id()), Caller),
    column("queue_offset", Kind::Int64(|message| message.queue_offset()), Store),
    column("physical_offset", Kind::Int64(|message| message.physical_offset()), Store),
    column("store_size", Kind::Int32(|row| row.message.size() as i32), Store),
    column("store_time", Kind::Time(|message| message.store_time()), Store),
    column("born_time", Kind::Time(|message| message.born_time()), Caller),
    column("message_id", Kind::MessageId, Store),
    column("unique_key", Kind::Property(property::UNIQ_KEY), Caller),
    column("tags", Kind::Property(property::TAGS), Caller),
    column("keys", Kind::Keys, Caller),
    column("body", Kind::Body, Caller),
    column("properties", Kind::Properties, Caller),
    column("sys_flag", Kind::Int32(|row| row.sys_flag), Caller),
    column("flag", Kind::Int32(|row| row.message.flag()), Caller),
    column("reconsume_times", Kind::Int32(|row| row.message.reconsume_times()), Caller),
    column(
        "prepared_transaction_offset",
        Kind::Int64(|message| message.prepared_transaction_offset()),
        Caller,
    ),
    column("born_host", Kind::Host(|message| message.born_host()), Caller),
    column("store_host", Kind::Host(|message| message.store_host()), Caller),
];

impl Kind {
    fn data_type(self) -> DataType {
        match self {
            Self::Int32(_) => DataType::Int32,
            Self::Int64(_) => DataType::Int64,
            Self::Time(_) => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Topic | Self::MessageId | Self::Host(_) | Self::Property(_) => DataType::Utf8,
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

    pub(super) fn needs_properties(self) -> bool {
        matches!(self, Self::Property(_) | Self::Keys | Self::Properties)
    }

    /// Returns the most bytes that the row takes in the buffers of the column: values, offsets of 4 bytes, and validity (a bit,
    /// counted as a byte).
    pub(super) fn size(self, row: &Row<'_>) -> usize {
        1 + match self {
            Self::Int32(_) => 4,
            Self::Int64(_) | Self::Time(_) => 8,
            Self::Topic => 4 + row.message.topic().len(),
            Self::MessageId => 4 + MAX_MESSAGE_ID,
            Self::Host(_) => 4 + MAX_HOST,
            Self::Property(name) => 4 + row.property(name).map_or(0, str::len),
            Self::Keys => 4 + row.keys().map(|key| 4 + key.len()).sum::<usize>(),
            Self::Body => 4 + row.body.len(),
            Self::Properties => {
                let pairs = row.properties.iter();
                4 + pairs.map(|(name, value)| 8 + name.len() + value.len()).sum::<usize>()
            }
        }
    }
}

/// A selection of the columns of a message, in the given order.
#[derive(Clone)]
pub(crate) struct MessageColumns {
    schema: SchemaRef,
    kinds: Vec<Kind>,
}

impl MessageColumns {
    /// Selects columns by name; `None` selects all.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an unknown name, and for a repeated one.
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
            .map(|column| Field::new(column.name, column.kind.data_type(), true))
            .collect();
        Ok(Self {
            schema: Arc::new(Schema::new(fields)),
            kinds: chosen.into_iter().map(|column| column.kind).collect(),
        })
    }

    pub(super) fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

/// Returns the names of all columns, in order.
pub(crate) fn column_names() -> impl Iterator<Item = &'static str> {
    COLUMNS.into_iter().map(|column| column.name)
}

/// The fields that are not columns of a stored message, which has their values among its properties.
const OF_PROPERTIES: [&str; 3] = ["delay_level", "deliver_at", "sharding_key"];

/// Checks that an appended row may have a field, or a table a column, of this name. Columns that the store sets are accepted and
/// ignored.
///
/// # Errors
/// [`Error::Invalid`].
pub(crate) fn expect_field(name: &str) -> Result<()> {
    if OF_PROPERTIES.contains(&name) || column_names().any(|known| known == name) {
        return Ok(());
    }
    let of_caller = COLUMNS.iter().filter(|column| column.given_by == Caller);
    let accepted: Vec<_> = of_caller.map(|column| column.name).chain(OF_PROPERTIES).collect();
    Err(Error::Invalid {
        what: format!("{name:?} is not a field of a message: the fields are {}", accepted.join(", ")),
    })
}

fn select_one(name: &str, before: &[String]) -> Result<Column> {
    if before.iter().any(|other| other == name) {
        return Err(Error::Invalid {
            what: format!("columns names {name:?} twice"),
        });
    }
    let known = COLUMNS.iter().find(|known| known.name == name);
    known.copied().ok_or_else(|| Error::Invalid {
        what: format!(
            "columns names {name:?}, which a message does not have; its columns are {}",
            COLUMNS.map(|known| known.name).join(", ")
        ),
    })
}
