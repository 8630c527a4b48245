//! `Store`, and `open`.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::batches::{Batches, RecordBatch, Source};
use super::capsule::import_table;
use super::handle::Handle;
use super::message::{Message, html_table};
use super::recovery::RecoveryReport;
use super::resolve_batch;
use super::results::{GetResult, QueryResult};
use super::time::{Round, to_ms};
use super::topic::Topics;
use crate::config::StoreConfig;
use crate::error::Error;
use crate::read::{GetRequest, QueryRequest, TagFilter};

/// Open the message store in the directory `path`, read-only: no file is changed and no lock is taken, so a running broker may own
/// it. What is read is the store as it was when it was opened.
///
/// `mode` is "r", the only one of this version. Options are RocketMQ's by name: `mapped_file_size_commit_log`,
/// `mapped_file_size_consume_queue` (bytes), `max_hash_slot_num`, `max_index_num` (default: as the files say),
/// `access_message_in_memory_max_ratio` (40 percent), `max_transfer_bytes_on_message_in_memory` (262,144),
/// `max_transfer_count_on_message_in_memory` (32), `max_transfer_bytes_on_message_in_disk` (65,536),
/// `max_transfer_count_on_message_in_disk` (8), `max_filter_message_size` (16,000 bytes), `check_crc_on_recover` (True),
/// `message_delay_level` ("1s 5s 10s ..."), and `sigbus_guard` (True): whether a failing device raises `CorruptError` instead of killing
/// the process.
///
/// Raises `NotAStoreError` (a `FileNotFoundError`) if the directory holds no store, `CorruptError` if its files cannot belong together,
/// `ValueError` for a mode or value that cannot be, `TypeError` for an unknown option, `StoreIOError` (an `OSError`).
#[pyfunction]
#[pyo3(signature = (path, mode="r", **options))]
pub(super) fn open(py: Python<'_>, path: PathBuf, mode: &str, options: Option<Bound<'_, PyDict>>) -> PyResult<Store> {
    if mode != "r" {
        return Err(PyValueError::new_err(format!(
            "mode is {mode:?}: this version reads only, open with mode=\"r\""
        )));
    }
    let options = options.unwrap_or_else(|| PyDict::new(py));
    let mut config = StoreConfig::default();
    for (name, value) in &options {
        set_option(&mut config, name.extract()?, &value)?;
    }
    // Absolute, because a reader that is pickled or reopened may find itself in another working directory.
    let path = std::path::absolute(&path).map_err(|error| Error::io("find", path, error))?;
    let handle = py.detach(|| Handle::open(path, config))?;
    Ok(Store {
        handle: Arc::new(handle),
        options: options.unbind(),
    })
}

/// A store from its path and options: what pickle calls.
#[pyfunction(name = "_reopen")]
pub(super) fn reopen(py: Python<'_>, path: PathBuf, options: Bound<'_, PyDict>) -> PyResult<Store> {
    open(py, path, "r", Some(options))
}

fn set_option(config: &mut StoreConfig, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let set = match name {
        "mapped_file_size_commit_log" => assign(&mut config.mapped_file_size_commit_log, value),
        "mapped_file_size_consume_queue" => assign(&mut config.mapped_file_size_consume_queue, value),
        "max_hash_slot_num" => assign(&mut config.max_hash_slot_num, value),
        "max_index_num" => assign(&mut config.max_index_num, value),
        "access_message_in_memory_max_ratio" => assign(&mut config.access_message_in_memory_max_ratio, value),
        "max_transfer_bytes_on_message_in_memory" => assign(&mut config.max_transfer_bytes_on_message_in_memory, value),
        "max_transfer_count_on_message_in_memory" => assign(&mut config.max_transfer_count_on_message_in_memory, value),
        "max_transfer_bytes_on_message_in_disk" => assign(&mut config.max_transfer_bytes_on_message_in_disk, value),
        "max_transfer_count_on_message_in_disk" => assign(&mut config.max_transfer_count_on_message_in_disk, value),
        "max_filter_message_size" => assign(&mut config.max_filter_message_size, value),
        "check_crc_on_recover" => assign(&mut config.check_crc_on_recover, value),
        "message_delay_level" => assign(&mut config.message_delay_level, value),
        "sigbus_guard" => assign(&mut config.sigbus_guard, value),
        _ => {
            return Err(PyTypeError::new_err(format!(
                "open() has no option {name:?}: help(mqstore.open) lists them"
            )));
        }
    };
    set.map_err(|error| {
        let text = format!("option {name}: {}", error.value(value.py()));
        PyErr::from_type(error.get_type(value.py()), (text,))
    })
}

fn assign<'py, T>(field: &mut T, value: &Bound<'py, PyAny>) -> PyResult<()>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    *field = value.extract().map_err(Into::into)?;
    Ok(())
}

/// An open message store; `mqstore.open` makes one. A context manager.
///
/// Reads the store as it was when it was opened; open again to see more. Safe to use from several threads. Pickles as path and
/// options, and opens again where it is unpickled; after a fork it opens again by itself. Once it is closed every call but `path`,
/// `mode`, `closed` and `close` raises `ClosedError`; messages that were read stay readable. Where a call reads files it raises
/// `CorruptError` for damage and `StoreIOError` for what the system refuses.
#[pyclass(frozen, module = "mqstore")]
pub(super) struct Store {
    handle: Arc<Handle>,
    options: Py<PyDict>,
}

#[pymethods]
impl Store {
    /// The store's directory, absolute: str.
    #[getter]
    fn path(&self) -> &OsStr {
        self.handle.path().as_os_str()
    }

    /// "r".
    #[getter]
    #[expect(clippy::unused_self, reason = "an attribute of each store; writing will bring other modes")]
    fn mode(&self) -> &'static str {
        "r"
    }

    /// Whether the store was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// Let go of the store's files. Messages that were read stay readable; calling it again does nothing.
    fn close(&self, py: Python<'_>) {
        self.handle.close(py);
    }

    /// The topics by name: a mapping of str to Topic.
    #[getter]
    fn topics(&self) -> PyResult<Topics> {
        self.handle.expect_open()?;
        Ok(Topics::new(self.handle.clone()))
    }

    /// Physical offset at which the commit log starts, in bytes.
    #[getter]
    fn min_physical_offset(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.handle.reader(py)?.physical_bounds().start)
    }

    /// Physical offset at which the commit log ends, in bytes.
    #[getter]
    fn max_physical_offset(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.handle.reader(py)?.physical_bounds().end)
    }

    /// What opening the store found.
    #[getter]
    fn recovery(&self, py: Python<'_>) -> PyResult<RecoveryReport> {
        Ok(RecoveryReport::new(self.handle.reader(py)?.recovery().clone()))
    }

    /// Read messages of a queue from a queue offset on, as a broker answers a pull.
    ///
    /// `tags` wants messages with one of some tags ("paid || refund"), `where` those for which a callable of one Message returns a
    /// true value. `bounded=False` lifts the broker's bounds on the entries examined, the bytes and the count (all but
    /// `max_messages`).
    ///
    /// Raises `UnsupportedFormatError` where the queue is not a file of this format (RocksDB, batch consume queue), and what `where`
    /// raises.
    #[pyo3(signature = (topic, queue, offset, max_messages=32, *, tags=None, r#where=None, bounded=true))]
    #[expect(clippy::too_many_arguments, reason = "the keywords of a Python call")]
    fn get(
        &self,
        py: Python<'_>,
        topic: String,
        queue: i32,
        offset: i64,
        max_messages: usize,
        tags: Option<&str>,
        r#where: Option<Bound<'_, PyAny>>,
        bounded: bool,
    ) -> PyResult<GetResult> {
        let request = GetRequest {
            topic,
            queue_id: queue,
            offset,
            max_messages,
            tags: TagFilter::parse(tags.unwrap_or("*")),
            bounded,
        };
        let reader = self.handle.reader(py)?;
        let accepts = r#where.map(Bound::unbind);
        let result = py.detach(|| {
            reader.get(&request, |message| {
                let Some(accepts) = &accepts else { return Ok(true) };
                Python::attach(|py| accepts.bind(py).call1((Message::new(message.clone()),))?.is_truthy())
            })
        });
        GetResult::new(py, result?)
    }

    /// Find the messages of a topic that carry a key (one of their keys, or their unique key), ascending by physical offset.
    ///
    /// `begin` and `end` bound the store time, both inclusive: a datetime with a timezone, an int of ms since 1970, or None for
    /// open. `limit` is the most messages to return, the newest ones; None for all. Topic and key are compared themselves, not
    /// only by hash. Where no index serves, the log is walked.
    ///
    /// Raises `ValueError` for a datetime without a timezone.
    #[pyo3(signature = (topic, key, begin=None, end=None, limit=64))]
    fn query(
        &self,
        py: Python<'_>,
        topic: String,
        key: String,
        begin: Option<Bound<'_, PyAny>>,
        end: Option<Bound<'_, PyAny>>,
        limit: Option<usize>,
    ) -> PyResult<QueryResult> {
        let bound = |time: Option<Bound<'_, PyAny>>, open: i64, round| time.map_or(Ok(open), |time| to_ms(&time, round));
        let request = QueryRequest {
            topic,
            key,
            begin: bound(begin, i64::MIN, Round::Up)?,
            end: bound(end, i64::MAX, Round::Down)?,
            limit,
        };
        let reader = self.handle.reader(py)?;
        QueryResult::new(py, py.detach(|| reader.query(&request))?)
    }

    /// The message with this id: an offset id (32 or 56 hex digits) if a record starts where it points, whatever its host; else the
    /// first stored message with this unique key, over every topic.
    ///
    /// Raises `NotFoundError`.
    fn message(&self, py: Python<'_>, id: &str) -> PyResult<Message> {
        let reader = self.handle.reader(py)?;
        Ok(Message::new(py.detach(|| reader.message(id))?))
    }

    /// The message whose record starts at this physical offset.
    ///
    /// Raises `NotFoundError` if no record starts there, `CorruptError` if it is damaged.
    fn message_at(&self, py: Python<'_>, physical_offset: i64) -> PyResult<Message> {
        let reader = self.handle.reader(py)?;
        Ok(Message::new(py.detach(|| reader.message_at(physical_offset))?))
    }

    /// Where messages lie in the log: columns `topic` (utf8), `queue_id` and `queue_offset` (integers) in, a `RecordBatch` of
    /// `physical_offset` (int64) and `store_size` (int32, bytes) out, a row for a row, null where there is no such message.
    ///
    /// `batch` is anything that speaks Arrow: a table, frame or batch of pyarrow, polars, duckdb, pandas. Raises `TypeError` if it
    /// does not, `ValueError` if a column is missing or of another type, `UnsupportedFormatError` as `get`.
    fn resolve_offsets(&self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
        let reader = self.handle.reader(py)?;
        let wanted = import_table(batch)?;
        Ok(RecordBatch(py.detach(|| resolve_batch::resolve_offsets(&reader, &wanted))?))
    }

    /// Which messages carry keys: columns `topic` and `key` (utf8) in, a `RecordBatch` of one column `hits` out, a row for a row:
    /// a list of (`queue_id` int32, `queue_offset` int64, `physical_offset` int64, `store_size` int32), ascending by physical offset, null
    /// if there is none.
    ///
    /// `batch` is anything that speaks Arrow. Raises `TypeError` if it does not, `ValueError` if a column is missing or of another type.
    fn resolve_keys(&self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
        let reader = self.handle.reader(py)?;
        let wanted = import_table(batch)?;
        Ok(RecordBatch(py.detach(|| resolve_batch::resolve_keys(&reader, &wanted))?))
    }

    /// The messages at physical offsets: column `physical_offset` (an integer) in, Batches out, a row for each offset that is not
    /// null, in order.
    ///
    /// `batch` is anything that speaks Arrow. `columns` names the columns wanted, in order, all by default; `max_bytes` is about
    /// the most that a batch holds. Raises `TypeError` and `ValueError` as `resolve_offsets`; reading raises `NotFoundError` at an offset
    /// where no record starts.
    #[pyo3(signature = (batch, *, columns=None, max_bytes=4_194_304))]
    #[expect(clippy::needless_pass_by_value, reason = "an extracted argument")]
    fn fetch(&self, batch: &Bound<'_, PyAny>, columns: Option<Vec<String>>, max_bytes: usize) -> PyResult<Batches> {
        self.handle.expect_open()?;
        let offsets = import_table(batch)?.integers("physical_offset")?;
        let source = Source::Records(offsets.into_iter().flatten().collect());
        Batches::new(self.handle.clone(), source, columns.as_deref(), max_bytes)
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().handle.expect_open()?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: Bound<'_, PyTuple>) {
        self.handle.close(py);
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        self.handle.expect_open()?;
        let reopen = py.import("mqstore._native")?.getattr("_reopen")?;
        Ok((reopen, (self.path(), &self.options).into_pyobject(py)?))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let path = self.handle.path().display();
        match self.handle.reader(py) {
            Ok(reader) => {
                let bounds = reader.physical_bounds();
                format!("<mqstore.Store \"{path}\" mode=\"r\", log {}..{}>", bounds.start, bounds.end)
            }
            Err(_) => format!("<mqstore.Store \"{path}\" closed>"),
        }
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let reader = self.handle.reader(py)?;
        let bounds = reader.physical_bounds();
        let recovery = reader.recovery();
        let rows = [
            ("path", self.handle.path().display().to_string()),
            ("log", format!("{} to {}", bounds.start, bounds.end)),
            ("closed cleanly", if recovery.clean_exit { "yes" } else { "no" }.to_owned()),
            ("log ends", recovery.stop_reason.clone()),
        ];
        html_table(py, &rows)
    }
}
