//! `Message`.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write;
use std::hash::{Hash, Hasher};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDateTime, PyDict, PyMemoryView};

use super::buffer::{PinnedBytes, memory_view};
use super::time::{to_datetime, to_text};
use crate::error::{Error, Result};
use crate::format::{self, Check, MessageView, Record, RecordLayout, decode_body, read_record};
use crate::read::StoredMessage;

/// Most bytes that a body may decode to.
const DECODED_LIMIT: usize = 1 << 30;

/// Where the record's bytes are.
#[derive(Clone)]
enum Held {
    /// In the store.
    Stored(StoredMessage),
    /// In a copy that was pickled.
    Copied { record: Box<[u8]>, layout: RecordLayout },
}

impl Held {
    fn view(&self) -> MessageView<'_> {
        match self {
            Self::Stored(message) => message.view(),
            Self::Copied { record, layout } => MessageView::from_layout(record, *layout),
        }
    }

    fn intact(&self) -> Result<()> {
        match self {
            Self::Stored(message) => message.intact(),
            Self::Copied { .. } => Ok(()),
        }
    }

    /// What `take` takes from the fields, if the device still gave the bytes while it did.
    fn read<T>(&self, take: impl FnOnce(MessageView<'_>) -> T) -> Result<T> {
        let taken = take(self.view());
        self.intact()?;
        Ok(taken)
    }
}

impl PinnedBytes for Held {
    fn bytes(&self) -> &[u8] {
        self.view().body()
    }
}

/// One message as it is stored: a frozen view of its record, which stays readable after the store is closed.
///
/// Two messages are equal if their records are, byte for byte. A message pickles by value. Text that is not UTF-8 reads with
/// U+FFFD in it. Every attribute raises `CorruptError` if the device fails to deliver the bytes, or the file was shortened meanwhile.
#[pyclass(frozen, module = "mqstore")]
pub(super) struct Message(Held);

impl Message {
    pub(super) fn new(message: StoredMessage) -> Self {
        Self(Held::Stored(message))
    }

    /// What it takes to store it again, its body copied: the file that it lies in may be another process's.
    pub(super) fn to_stored(&self) -> Result<format::Message<'static>> {
        self.0.read(|message| {
            let message = message.to_message();
            format::Message {
                body: message.body.into_owned().into(),
                ..message
            }
        })
    }

    /// Whether both are the same record. A record names its own offset and size, so equal bytes are the same message.
    pub(super) fn is_same(&self, other: &Self) -> Result<bool> {
        let same = self.0.view().bytes() == other.0.view().bytes();
        self.0.intact()?;
        other.0.intact()?;
        Ok(same)
    }
}

#[pymethods]
impl Message {
    /// The topic it was written to.
    #[getter]
    fn topic(&self) -> Result<String> {
        self.0.read(|message| message.topic().into_owned())
    }

    /// The queue of that topic.
    #[getter]
    fn queue_id(&self) -> Result<i32> {
        self.0.read(|message| message.queue_id())
    }

    /// Its number in the queue, from 0.
    #[getter]
    pub(super) fn queue_offset(&self) -> Result<i64> {
        self.0.read(|message| message.queue_offset())
    }

    /// Where its record starts in the commit log, in bytes.
    #[getter]
    fn physical_offset(&self) -> Result<i64> {
        self.0.read(|message| message.physical_offset())
    }

    /// Bytes of its record.
    #[getter]
    fn store_size(&self) -> Result<u32> {
        self.0.read(|message| message.size())
    }

    /// When the broker stored it, in UTC, to the ms.
    ///
    /// Raises `OverflowError` outside the years 1 to 9999.
    #[getter]
    fn store_time<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDateTime>> {
        to_datetime(py, self.0.read(|message| message.store_time())?)
    }

    /// When its producer made it, in UTC, to the ms.
    ///
    /// Raises `OverflowError` outside the years 1 to 9999.
    #[getter]
    fn born_time<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDateTime>> {
        to_datetime(py, self.0.read(|message| message.born_time())?)
    }

    /// The offset id: store host and physical offset as 32 (IPv4) or 56 (IPv6) hex digits in capitals.
    #[getter]
    fn message_id(&self) -> Result<String> {
        self.0.read(|message| message.message_id().to_string())
    }

    /// The id that its producer gave it (property `UNIQ_KEY`), or None.
    #[getter]
    fn unique_key(&self) -> Result<Option<String>> {
        self.0.read(|message| message.unique_key().map(String::from))
    }

    /// Its tag (property TAGS), or None.
    #[getter]
    fn tags(&self) -> Result<Option<String>> {
        self.0.read(|message| message.tags().map(String::from))
    }

    /// Its keys (property KEYS, cut at spaces), a list of str.
    #[getter]
    fn keys(&self) -> Result<Vec<String>> {
        self.0.read(|message| message.keys())
    }

    /// Every property, TAGS, KEYS and `UNIQ_KEY` among them, as a new dict of str to str.
    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let properties = PyDict::new(py);
        self.0.read(|message| {
            let mut pairs = message.properties().to_pairs().into_iter();
            pairs.try_for_each(|(name, value)| properties.set_item(name, value))
        })??;
        Ok(properties)
    }

    /// The body as stored (compressed, if its producer compressed it): bytes.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>> {
        self.0.read(|message| PyBytes::new(py, message.body()))
    }

    /// The body, decompressed as `sys_flag` says (zlib, LZ4 or Zstandard): bytes.
    ///
    /// Raises `CorruptError` if it does not decompress, or to more than 1 GiB.
    #[getter]
    fn decoded_body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let view = self.0.view();
        let decoded = py.detach(|| decode_body(view.sys_flag(), view.body(), DECODED_LIMIT));
        self.0.intact()?;
        let decoded = decoded.map_err(|malformed| Error::Corrupt {
            path: "commitlog".into(),
            offset: view.physical_offset() as u64,
            reason: format!(
                "the body of {}/{} at queue offset {} does not decompress: {malformed}; `body` gives it as it is stored",
                view.topic(),
                view.queue_id(),
                view.queue_offset()
            ),
        })?;
        Ok(PyBytes::new(py, &decoded))
    }

    /// The body as stored, as a read-only memoryview that copies nothing and keeps the file mapped while it lives.
    #[getter]
    fn body_view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        self.0.intact()?;
        memory_view(py, Box::new(self.0.clone()))
    }

    /// RocketMQ's bit field: 0x1 compressed, 0xC transaction type, 0x10 and 0x20 IPv6 hosts, 0x700 compression.
    #[getter]
    fn sys_flag(&self) -> Result<i32> {
        self.0.read(|message| message.sys_flag())
    }

    /// The producer's own number.
    #[getter]
    fn flag(&self) -> Result<i32> {
        self.0.read(|message| message.flag())
    }

    /// How often a consumer sent it back.
    #[getter]
    fn reconsume_times(&self) -> Result<i32> {
        self.0.read(|message| message.reconsume_times())
    }

    /// Physical offset of the half message that a transaction message commits, else 0.
    #[getter]
    fn prepared_transaction_offset(&self) -> Result<i64> {
        self.0.read(|message| message.prepared_transaction_offset())
    }

    /// The producer's address: "ip:port", an IPv6 one in brackets.
    #[getter]
    fn born_host(&self) -> Result<String> {
        self.0.read(|message| message.born_host().to_string())
    }

    /// The broker's address: "ip:port", an IPv6 one in brackets.
    #[getter]
    fn store_host(&self) -> Result<String> {
        self.0.read(|message| message.store_host().to_string())
    }

    fn __eq__(&self, other: &Bound<'_, Self>) -> Result<bool> {
        self.is_same(other.get())
    }

    fn __hash__(&self) -> Result<u64> {
        self.0.read(|message| {
            let mut hasher = DefaultHasher::new();
            (message.physical_offset(), message.size(), message.body_crc()).hash(&mut hasher);
            hasher.finish()
        })
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let unpickle = py.import("mqstore._native")?.getattr("_message")?;
        let record = self.0.read(|message| PyBytes::new(py, message.bytes()))?;
        Ok((unpickle, (record,)))
    }

    fn __repr__(&self) -> Result<String> {
        self.0.read(|message| {
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

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let rows = self.0.read(|message| {
            let mut rows = vec![
                ("topic", message.topic().into_owned()),
                ("queue_id", message.queue_id().to_string()),
                ("queue_offset", message.queue_offset().to_string()),
                ("physical_offset", message.physical_offset().to_string()),
                ("store_time", to_text(message.store_time())),
                ("message_id", message.message_id().to_string()),
                ("body", format!("{} bytes", message.body().len())),
            ];
            let properties = message.properties().to_pairs();
            rows.extend(
                properties
                    .into_iter()
                    .map(|(name, value)| ("property", format!("{name} = {value}"))),
            );
            rows
        })?;
        html_table(py, &rows)
    }
}

/// A message from its record's bytes: what pickle calls.
#[pyfunction(name = "_message")]
pub(super) fn unpickle_message(record: &[u8]) -> PyResult<Message> {
    let Record::Message(view) = read_record(record, Check::Body) else {
        return Err(PyValueError::new_err("these bytes are not the record of a message"));
    };
    let layout = view.layout();
    Ok(Message(Held::Copied {
        record: view.bytes().into(),
        layout,
    }))
}

/// Names and values as an HTML table of two columns.
pub(super) fn html_table(py: Python<'_>, rows: &[(&str, String)]) -> PyResult<String> {
    let escape = py.import("html")?.getattr("escape")?;
    let mut html = String::from("<table>");
    for (name, value) in rows {
        let value: String = escape.call1((value,))?.extract()?;
        // Writing into a String cannot fail.
        let _ = write!(
            html,
            "<tr><th style=\"text-align:left\">{name}</th><td style=\"text-align:left\">{value}</td></tr>"
        );
    }
    html.push_str("</table>");
    Ok(html)
}
