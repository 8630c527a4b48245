//! `Message`.

use std::borrow::Cow;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDateTime, PyDict, PyMemoryView};

use super::arguments;
use super::buffer::{PinnedBytes, memory_view};
use super::fields::{self, MessageArguments, PropertyArguments};
use super::imports::call;
use super::recipe::{Reduced, of_native};
use super::time::{to_datetime, to_ms, to_text, to_time};
use crate::arrow::column_names;
use crate::error::{Error, Result};
use crate::format::{
    self, Check, Compression, MAX_DECODED_BODY, MessageView, Record, RecordLayout, Round, Transaction, Version, compression,
    decode_body, property, read_record, validate_topic,
};
use crate::read::StoredMessage;
use crate::storage::Part;

/// The record of a `Message`: in the store, or in a copy of its own.
#[derive(Clone)]
pub(super) enum MessageBytes {
    /// In the store.
    Stored(StoredMessage),
    /// In a copy that was pickled.
    Copied { record: Box<[u8]>, layout: RecordLayout },
}

impl MessageBytes {
    pub(super) fn view(&self) -> MessageView<'_> {
        match self {
            Self::Stored(message) => message.view(),
            Self::Copied { record, layout } => MessageView::from_layout(record, *layout),
        }
    }

    /// Returns the record as a part of a transfer.
    pub(super) fn part(&self) -> Part<'_> {
        match self {
            Self::Stored(message) => message.part(),
            Self::Copied { record, .. } => Part::Memory(record),
        }
    }

    pub(super) fn intact(&self) -> Result<()> {
        match self {
            Self::Stored(message) => message.intact(),
            Self::Copied { .. } => Ok(()),
        }
    }

    /// Returns the result of `take` if the device delivered every byte that it read.
    pub(super) fn read<T>(&self, take: impl FnOnce(MessageView<'_>) -> T) -> Result<T> {
        let taken = take(self.view());
        self.intact()?;
        Ok(taken)
    }
}

impl PinnedBytes for MessageBytes {
    fn bytes(&self) -> &[u8] {
        self.view().body()
    }
}

/// One message as it is stored: a frozen view of its record, which stays readable after the store
/// is closed.
///
/// A store gives it; `Message(topic, body, ...)` makes one for a test. Two messages are equal if
/// their records are, byte for byte. A message pickles by value. Text that is not UTF-8 reads with
/// U+FFFD in it. Every attribute raises `CorruptError` if the device fails to read the bytes, or
/// the file was shortened.
#[pyclass(frozen, module = "mqstore")]
pub(super) struct Message {
    bytes: MessageBytes,
    /// True if a consumer group got it: then the topic is that of its first record, also for a retry.
    is_consumed: bool,
}

impl Message {
    pub(super) fn new(message: StoredMessage) -> Self {
        Self::of(MessageBytes::Stored(message))
    }

    /// The message that a consumer group gets.
    pub(super) fn consumed(message: StoredMessage) -> Self {
        Self {
            bytes: MessageBytes::Stored(message),
            is_consumed: true,
        }
    }

    fn of(bytes: MessageBytes) -> Self {
        Self {
            bytes,
            is_consumed: false,
        }
    }

    pub(super) fn bytes(&self) -> &MessageBytes {
        &self.bytes
    }

    /// Returns the message for storing it again, with a copy of its body: the file that it lies in may be another process's.
    pub(super) fn to_stored(&self) -> Result<format::Message<'static>> {
        self.bytes.read(|message| message.to_message().into_owned())
    }

    /// Returns true if both are the same record. A record names its own offset and size, so equal bytes are the same message.
    pub(super) fn is_same(&self, other: &Self) -> Result<bool> {
        let same = self.bytes.view().bytes() == other.bytes.view().bytes();
        self.bytes.intact()?;
        other.bytes.intact()?;
        Ok(same)
    }
}

/// Returns a message as a list, or the messages of an iterable.
pub(super) fn listed<'py>(messages: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, Message>>> {
    if let Ok(message) = messages.cast::<Message>() {
        return Ok(vec![message.clone()]);
    }
    messages
        .try_iter()?
        .map(|message| Ok(message?.cast_into::<Message>()?))
        .collect()
}

/// Gives `Message` an attribute for each of these fields of its record.
macro_rules! fields_of_record {
    ($($(#[$text:meta])* $name:ident: $type:ty = $value:expr;)*) => {
        #[pymethods]
        impl Message {
            $($(#[$text])*
            #[getter]
            pub(super) fn $name(&self) -> Result<$type> {
                self.bytes.read($value)
            })*
        }
    };
}

#[pymethods]
impl Message {
    /// The topic it was written to. For a message that a `Consumer` returned after a retry, that of
    /// its first record.
    #[getter]
    pub(super) fn topic(&self) -> Result<String> {
        self.bytes.read(|message| {
            let first = message.properties().get(property::RETRY_TOPIC).filter(|_| self.is_consumed);
            first.unwrap_or_else(|| message.topic()).into_owned()
        })
    }
}

fields_of_record! {
    /// The queue of that topic.
    queue_id: i32 = |message| message.queue_id();
    /// Its number in the queue, from 0.
    queue_offset: i64 = |message| message.queue_offset();
    /// The physical offset of its record in the commit log, in bytes.
    physical_offset: i64 = |message| message.physical_offset();
    /// Bytes of its record.
    store_size: u32 = |message| message.size();
    /// The offset id: store host and physical offset as 32 (IPv4) or 56 (IPv6) hex digits in
    /// capitals.
    message_id: String = |message| message.message_id().to_string();
    /// The id that its producer gave it (property `UNIQ_KEY`), or None.
    unique_key: Option<String> = |message| message.unique_key().map(String::from);
    /// Its tag (property TAGS), or None.
    tags: Option<String> = |message| message.tags().map(String::from);
    /// Its keys (property KEYS, split at spaces), a list of str.
    keys: Vec<String> = |message| message.keys();
    /// The CRC-32 of the body as the record states it, an int of 31 bits; a read has compared it
    /// with the body.
    body_crc: u32 = |message| message.body_crc();
    /// RocketMQ's bit field: 0x1 compressed, 0xC transaction type, 0x10 and 0x20 IPv6 hosts, 0x700
    /// compression.
    sys_flag: i32 = |message| message.sys_flag();
    /// The producer's own number.
    flag: i32 = |message| message.flag();
    /// The number of times that a consumer sent it back.
    reconsume_times: i32 = |message| message.reconsume_times();
    /// Physical offset of the half message that a transaction message commits, else 0.
    prepared_transaction_offset: i64 = |message| message.prepared_transaction_offset();
    /// The producer's address: "ip:port", an IPv6 one in brackets.
    born_host: String = |message| message.born_host().to_string();
    /// The broker's address: "ip:port", an IPv6 one in brackets.
    store_host: String = |message| message.store_host().to_string();
}

#[pymethods]
impl Message {
    /// A message that is in no store, for tests and for `append_batch`: its record is encoded as a
    /// broker would.
    ///
    /// Arguments are those of `Writer.append`, and the offsets and the time that a store gives:
    /// `queue_id`, `queue_offset`, `physical_offset` and `store_time`. Times are a datetime with a
    /// timezone or an int of ms since 1970, 1970 itself by default.
    ///
    /// Raises `IllegalMessageError` (a `ValueError`) for what a record cannot hold.
    #[new]
    #[pyo3(signature = (topic, body=None, *, queue_id=0, queue_offset=0, physical_offset=0, store_time=None, born_time=None, tags=None,
        keys=None, properties=None, unique_key=None, delay_level=0, sys_flag=0, flag=0, reconsume_times=0,
        prepared_transaction_offset=0, born_host=None, store_host=None))]
    #[expect(clippy::too_many_arguments, reason = "every field of a record can be set")]
    fn new_from_fields(
        #[pyo3(from_py_with = arguments::topic)] topic: &str,
        body: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::queue_id)] queue_id: i32,
        #[pyo3(from_py_with = arguments::queue_offset)] queue_offset: i64,
        #[pyo3(from_py_with = arguments::physical_offset)] physical_offset: i64,
        store_time: Option<&Bound<'_, PyAny>>,
        born_time: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::tags)] tags: Option<&str>,
        keys: Option<&Bound<'_, PyAny>>,
        properties: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::unique_key)] unique_key: Option<&str>,
        #[pyo3(from_py_with = arguments::delay_level)] delay_level: i32,
        #[pyo3(from_py_with = arguments::sys_flag)] sys_flag: i32,
        #[pyo3(from_py_with = arguments::flag)] flag: i32,
        #[pyo3(from_py_with = arguments::reconsume_times)] reconsume_times: i32,
        #[pyo3(from_py_with = arguments::prepared_transaction_offset)] prepared_transaction_offset: i64,
        #[pyo3(from_py_with = arguments::born_host)] born_host: Option<&str>,
        #[pyo3(from_py_with = arguments::store_host)] store_host: Option<&str>,
    ) -> PyResult<Self> {
        let ms = |time: Option<&Bound<'_, PyAny>>, name| time.map_or(Ok(0), |time| to_ms(time, name, Round::Down));
        let properties = PropertyArguments {
            sharding_key: None,
            unique_key,
            tags,
            keys,
            properties,
            delay_level,
            deliver_at: None,
        };
        let version = Version::of_topic(topic);
        validate_topic(topic, version).map_err(|malformed| Error::illegal(malformed.reason.into_owned()))?;
        let arguments = MessageArguments {
            topic: topic.into(),
            body: body.map_or(Ok(Cow::default()), |body| fields::body(body.as_borrowed()))?,
            properties,
            queue_id,
            born_time: ms(born_time, "born_time")?,
            born_host,
            store_host,
            flag,
            sys_flag,
            reconsume_times,
            prepared_transaction_offset,
        };
        let message = format::Message {
            version,
            queue_offset,
            physical_offset,
            store_time: ms(store_time, "store_time")?,
            ..arguments.message()?
        };
        let record = message
            .encode()
            .map_err(|malformed| Error::illegal(malformed.reason.into_owned()))?;
        unpickle_message(&record)
    }

    /// When the broker stored it, in UTC, to the ms.
    ///
    /// Raises `StoreError` outside the years 1 to 9999.
    #[getter]
    fn store_time<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDateTime>> {
        to_datetime(py, self.bytes.read(|message| message.store_time())?)
    }

    /// When its producer made it, in UTC, to the ms.
    ///
    /// Raises `StoreError` outside the years 1 to 9999.
    #[getter]
    fn born_time<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDateTime>> {
        to_datetime(py, self.bytes.read(|message| message.born_time())?)
    }

    /// Every property, TAGS, KEYS and `UNIQ_KEY` among them, as a new dict of str to str.
    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let properties = PyDict::new(py);
        self.bytes.read(|message| {
            let mut pairs = message.properties().to_pairs().into_iter();
            pairs.try_for_each(|(name, value)| properties.set_item(name, value))
        })??;
        Ok(properties)
    }

    /// The body as stored (compressed, if its producer compressed it): bytes.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>> {
        self.bytes.read(|message| PyBytes::new(py, message.body()))
    }

    /// The body, decompressed as `sys_flag` says (zlib, LZ4 or Zstandard): bytes.
    ///
    /// Raises `CorruptError` if it does not decompress, or to more than 1 GiB.
    #[getter]
    fn decoded_body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let view = self.bytes.view();
        let decoded = py.detach(|| decode_body(view.sys_flag(), view.body(), MAX_DECODED_BODY));
        self.bytes.intact()?;
        let decoded = decoded.map_err(|malformed| {
            let reason = format!(
                "the body of {}/{} at queue offset {} does not decompress: {malformed}; `body` returns it as it is stored",
                view.topic(),
                view.queue_id(),
                view.queue_offset()
            );
            Error::corrupt("commitlog", view.physical_offset() as u64, reason)
        })?;
        Ok(PyBytes::new(py, &decoded))
    }

    /// The body as stored, as a read-only memoryview that copies nothing and keeps the file mapped
    /// while it lives.
    #[getter]
    fn body_view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        self.bytes.intact()?;
        memory_view(py, Box::new(self.bytes.clone()))
    }

    /// Returns the decoded body parsed as JSON, as `json.loads` does.
    ///
    /// Raises `ValueError` (a `json.JSONDecodeError`, a `UnicodeDecodeError`) for a body that is not
    /// JSON, and what `decoded_body` raises.
    fn json<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        call(py, "json", "loads", (self.decoded_body(py)?,), None)
    }

    /// The whole record as it is stored in the commit log: bytes.
    #[getter]
    fn raw<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>> {
        self.bytes.read(|message| PyBytes::new(py, message.bytes()))
    }

    /// The form of the record: 1, or 2 for a topic of more than 127 bytes.
    #[getter]
    fn version(&self) -> Result<u8> {
        self.bytes.read(|message| match message.version() {
            Version::V1 => 1,
            Version::V2 => 2,
        })
    }

    /// Its part in a transaction: "prepared", "commit", "rollback", or None.
    #[getter]
    fn transaction(&self) -> Result<Option<&'static str>> {
        self.bytes.read(|message| match message.transaction() {
            Transaction::None => None,
            Transaction::Prepared => Some("prepared"),
            Transaction::Commit => Some("commit"),
            Transaction::Rollback => Some("rollback"),
        })
    }

    /// The compression of the body, which `decoded_body` reverses: "zlib", "lz4", "zstd", or None.
    ///
    /// Raises `ValueError` for a kind of compression that RocketMQ does not have.
    #[getter]
    fn compression(&self) -> PyResult<Option<&'static str>> {
        match compression(self.bytes.read(|message| message.sys_flag())?) {
            Ok(Compression::None) => Ok(None),
            Ok(Compression::Zlib) => Ok(Some("zlib")),
            Ok(Compression::Lz4) => Ok(Some("lz4")),
            Ok(Compression::Zstd) => Ok(Some("zstd")),
            Err(unknown) => Err(PyValueError::new_err(unknown.reason.into_owned())),
        }
    }

    /// The level by which its producer delayed it (property DELAY): an int from 1; 0 for none.
    #[getter]
    fn delay_level(&self) -> Result<i32> {
        self.bytes.read(|message| {
            let level = message.properties().get(property::DELAY);
            level.and_then(|level| level.parse().ok()).unwrap_or(0)
        })
    }

    /// Returns a dict of every column, in the order of the schema: the attributes of this object. A time
    /// outside the years 1 to 9999 is an int of ms since 1970.
    fn to_dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let fields = PyDict::new(slf.py());
        for name in column_names() {
            let value = match name {
                "store_time" => to_time(slf.py(), slf.get().bytes.read(|message| message.store_time())?)?,
                "born_time" => to_time(slf.py(), slf.get().bytes.read(|message| message.born_time())?)?,
                _ => slf.getattr(name)?,
            };
            fields.set_item(name, value)?;
        }
        Ok(fields)
    }

    fn __eq__(&self, other: &Bound<'_, Self>) -> Result<bool> {
        self.is_same(other.get())
    }

    fn __hash__(&self) -> Result<u64> {
        self.bytes.read(|message| {
            let mut hasher = DefaultHasher::new();
            (message.physical_offset(), message.size(), message.body_crc()).hash(&mut hasher);
            hasher.finish()
        })
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, (Bound<'py, PyBytes>,)> {
        let record = self.bytes.read(|message| PyBytes::new(py, message.bytes()))?;
        Ok((of_native(py, "_message")?, (record,)))
    }

    fn __repr__(&self) -> Result<String> {
        self.bytes.read(|message| {
            let tags = message.tags().map(|tags| format!(", tags {tags:?}")).unwrap_or_default();
            format!(
                "<mqstore.Message {}/{} queue_offset={} physical_offset={} {}{tags}, body {} bytes>",
                message.topic(),
                message.queue_id(),
                message.queue_offset(),
                message.physical_offset(),
                to_text(message.store_time()),
                message.body().len()
            )
        })
    }
}

/// A message from its record's bytes: what pickle calls.
#[pyfunction(name = "_message")]
pub(super) fn unpickle_message(record: &[u8]) -> PyResult<Message> {
    let Record::Message(view) = read_record(record, Check::Body) else {
        return Err(PyValueError::new_err("these bytes are not the record of a message"));
    };
    let layout = view.layout();
    Ok(Message::of(MessageBytes::Copied {
        record: view.bytes().into(),
        layout,
    }))
}
