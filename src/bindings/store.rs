//! `Store`.

use std::ffi::OsStr;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::append::{self, wait};
use super::append_result::AppendResult;
use super::arguments;
use super::batches::{Batches, RecordBatch};
use super::buffer::Offsets;
use super::capsule::import_table;
use super::fields::{self, PropertyArguments};
use super::handle::{Handle, Mode, Recipe, Reduced, part_of_pickle};
use super::html::{store_line, store_table};
use super::message::Message;
use super::recovery::RecoveryReport;
use super::results::{GetResult, QueryResult};
use super::source::Source;
use super::time::{Round, now_ms, to_ms};
use super::topic::Topics;
use crate::arrow::{self, Defaults, host};
use crate::config::Errors;
use crate::format;
use crate::read::{GetRequest, QueryRequest, TagFilter};
use crate::store::MessageStore;

/// An open message store; `mqstore.open` makes one. A context manager.
///
/// With mode "r" it reads the store as it was when it was opened; open again to see more. It pickles as path and options, and so do its
/// topics, queues and slices: they open it again where they are unpickled, once a pickle; after a fork it opens again by itself, and an iteration that the parent began raises `ClosedError`.
///
/// With the other modes it writes as well, and a read sees every append that returned before it: it waits the moment until what was
/// appended is in its queue, a sync included. It waits no longer than 100 ms for queue files that cannot be written, and then answers
/// with what is there. It neither pickles nor survives a fork: the child opens the store for itself, with mode "r". Close it (or use
/// `with`): what it appended is then durable, and the next writer opens it.
///
/// Safe to use from several threads. Once it is closed every call but `path`, `mode`, `closed` and `close` raises `ClosedError`; messages
/// that were read stay readable. Where a call reads files it raises `CorruptError` for damage and `StoreIOError` for what the system
/// refuses; where it writes, `ReadOnlyError` with mode "r", and `PoisonedError` once a write or sync has failed.
#[pyclass(frozen, module = "mqstore")]
pub(super) struct Store {
    pub(super) handle: Arc<Handle>,
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (*_arguments, **_options))]
    fn new_by_hand(_arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        Err(PyTypeError::new_err(
            "a Store is not made by its class: mqstore.open(path) opens one",
        ))
    }

    /// The store's directory, absolute: str.
    #[getter]
    fn path(&self) -> &OsStr {
        self.handle.path().as_os_str()
    }

    /// What it was opened with: "r", "r+", "a" or "x".
    #[getter]
    fn mode(&self) -> &'static str {
        self.handle.mode().name()
    }

    /// Whether the store was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// Let go of the store's files, after everything that was appended is in its queues and durable. Messages that were read stay
    /// readable; calling it again does nothing.
    ///
    /// Raises `PoisonedError` or `StoreIOError` for what could not be done; the next open then recovers the store.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.handle.close(py)
    }

    /// Append a message; gives where it went. It survives the process from now on, and a power cut once it is flushed: within
    /// `flush_interval_commit_log`, or when `flush` or `wait_durable` returns.
    ///
    /// `topic` is 1 to 255 bytes of UTF-8, without a slash or control character; more than 127 make a record at which brokers before 5.1 end their
    /// log. `body` is bytes, or a buffer of bytes (which is copied first). `keys` is a key or an iterable of them; a key holds no space. `properties`
    /// maps str to str (or is an iterable of pairs) and holds every property, TAGS, KEYS and DELAY included; an argument wins over the property of
    /// the same name, and a `unique_key` (`UNIQ_KEY`) is stored only if it is given; `mqstore.new_unique_key` makes one. `queue` is the queue's id, 0
    /// to 65,535. `delay_level` of 1 or more sends the message to that level's queue, for a broker to deliver; `AppendResult` tells its place there.
    /// `born_time` is a datetime with a timezone or an int of ms since 1970, now by default; hosts are "ip:port", an IPv6 address in brackets,
    /// 127.0.0.1:0 by default. `sys_flag` is RocketMQ's bit field (a compressed body, a transaction's type); its two address bits follow the hosts.
    ///
    /// Raises `IllegalMessageError` (a `ValueError`), `ReadOnlyError`, `ClosedError`, `PoisonedError`, `DiskFullError`: nothing was stored;
    /// `status` has RocketMQ's word for it.
    #[pyo3(signature = (topic, body, *, tags=None, keys=None, properties=None, queue=0, delay_level=0, unique_key=None,
        born_time=None, born_host=None, store_host=None, flag=0, sys_flag=0, reconsume_times=0, prepared_transaction_offset=0))]
    fn append(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::topic)] topic: String,
        body: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::tags)] tags: Option<String>,
        keys: Option<&Bound<'_, PyAny>>,
        properties: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::queue)] queue: i32,
        #[pyo3(from_py_with = arguments::delay_level)] delay_level: i32,
        #[pyo3(from_py_with = arguments::unique_key)] unique_key: Option<String>,
        #[pyo3(from_py_with = fields::born_time)] born_time: Option<i64>,
        #[pyo3(from_py_with = arguments::born_host)] born_host: Option<String>,
        #[pyo3(from_py_with = arguments::store_host)] store_host: Option<String>,
        #[pyo3(from_py_with = arguments::flag)] flag: i32,
        #[pyo3(from_py_with = arguments::sys_flag)] sys_flag: i32,
        #[pyo3(from_py_with = arguments::reconsume_times)] reconsume_times: i32,
        #[pyo3(from_py_with = arguments::prepared_transaction_offset)] prepared_transaction_offset: i64,
    ) -> PyResult<AppendResult> {
        self.handle.expect_writable()?;
        let properties = PropertyArguments {
            unique_key,
            tags,
            keys,
            properties,
            delay_level,
        };
        let message = format::Message {
            topic,
            body: fields::body(body.as_borrowed())?,
            properties: properties.encode()?,
            queue_id: queue,
            born_time: born_time.unwrap_or_else(now_ms),
            born_host: host(born_host.as_deref())?,
            store_host: host(store_host.as_deref())?,
            flag,
            sys_flag,
            reconsume_times,
            prepared_transaction_offset,
            ..format::Message::default()
        };
        append::one(py, &self.handle, message)
    }

    /// Append messages in order, faster than one by one; gives their physical offsets, a row each, as `Offsets`.
    ///
    /// `rows` is an iterable or speaks Arrow (a table, frame or batch of pyarrow, polars, duckdb, pandas; a slice of a queue). Items are
    /// bodies for `topic` (bytes or buffers of bytes), tuples (topic, body, tags, keys, properties, queue; the last four may be left out),
    /// dicts of a message's fields (`Message.to_dict` gives one), or `Message`s. Columns and fields: `body` (binary or utf8; required),
    /// `topic`, `tags`, `unique_key` (utf8), `keys` (list of utf8), `properties` (map of utf8, list of pairs, or struct),
    /// `queue_id`, `delay_level`, `flag`, `sys_flag`, `reconsume_times`, `prepared_transaction_offset` (integers), `born_time` (timestamp
    /// with a timezone, or ms), `born_host`, `store_host` (utf8). A store gives `queue_offset`, `physical_offset`, `store_size`,
    /// `store_time` and `message_id` anew. A column that is null in every row may have any type, and pandas' own labels are passed over. `topic` and `queue` stand for rows that name none. A `Message`, a dict and a row of a table
    /// stay in their topic, whatever DELAY is among the properties, unless `delay_level` is 1 or more.
    ///
    /// Every row is checked before the first byte is written. Raises as `append`; what a row is refused for names its position, and
    /// nothing was stored. Raises `ValueError` for columns of other names or types, text that is no UTF-8, and a row that contradicts
    /// `topic` or `queue`. Where it fails midway, `stored` of the exception says how many rows were stored, the first ones; also of what the
    /// handler of a signal raises, such as `KeyboardInterrupt`.
    ///
    /// With `one_segment` the rows are stored together, as a broker stores a producer's batch: all of them or none, one after the other in one
    /// segment of the log, in one hold of the lock, while other appends wait. Rows that need more than a segment raise `ValueError`. A
    /// crash before the call returns, and a power cut before they are durable, may keep a first part of them all the same.
    #[pyo3(signature = (rows, topic=None, queue=None, *, one_segment=false))]
    fn append_batch(
        &self,
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::default_topic)] topic: Option<String>,
        #[pyo3(from_py_with = arguments::default_queue)] queue: Option<i32>,
        one_segment: bool,
    ) -> PyResult<Offsets> {
        self.handle.expect_writable()?;
        let defaults = Defaults {
            topic: topic.as_deref(),
            queue_id: queue,
            born_time: now_ms(),
        };
        append::batch(py, &self.handle, rows, &defaults, one_segment)
    }

    /// Append a batch as a producer sends it, each of its messages as a record of its own; gives their physical offsets as `Offsets`.
    ///
    /// `body` is the body of the producer's request (RocketMQ's `MessageDecoder.encodeMessages` makes it): body, flag and properties of each
    /// message. What they share is given as in `append`. `properties` are those of the batch itself, which brokers up to 5.3.3 store after
    /// a message's own, and later ones not at all. The messages are stored as `append_batch` stores rows with `one_segment`. A broker's limits
    /// hold: no transaction, no delay, and `max_message_size` for the whole `body`. Raises as `append`; nothing was stored.
    #[pyo3(signature = (topic, body, *, properties=None, queue=0, born_time=None, born_host=None, store_host=None, sys_flag=0))]
    fn append_producer_batch(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::topic)] topic: String,
        body: &Bound<'_, PyAny>,
        properties: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::queue)] queue: i32,
        #[pyo3(from_py_with = fields::born_time)] born_time: Option<i64>,
        #[pyo3(from_py_with = arguments::born_host)] born_host: Option<String>,
        #[pyo3(from_py_with = arguments::store_host)] store_host: Option<String>,
        #[pyo3(from_py_with = arguments::sys_flag)] sys_flag: i32,
    ) -> PyResult<Offsets> {
        self.handle.expect_writable()?;
        let common = format::Message {
            topic,
            body: fields::body(body.as_borrowed())?,
            queue_id: queue,
            born_time: born_time.unwrap_or_else(now_ms),
            born_host: host(born_host.as_deref())?,
            store_host: host(store_host.as_deref())?,
            sys_flag,
            ..format::Message::default()
        };
        append::producer_batch(py, &self.handle, &common, properties)
    }

    /// Make everything appended so far durable; gives the physical offset up to which the log then is.
    ///
    /// Raises `PoisonedError` if the device refuses: what is not durable by then is lost.
    fn flush(&self, py: Python<'_>) -> PyResult<i64> {
        let writer = self.handle.writer()?;
        Ok(py.detach(|| writer.flush())?)
    }

    /// Physical offset below which the log survives a power cut. Only a store that is open for writing has it.
    #[getter]
    fn flushed_offset(&self) -> PyResult<i64> {
        self.handle.expect_attribute("flushed_offset")?;
        Ok(self.handle.writer()?.flushed_offset())
    }

    /// Physical offset below which messages are in their queues and in the index. Only a store that is open for writing has it.
    #[getter]
    fn dispatched_offset(&self) -> PyResult<i64> {
        self.handle.expect_attribute("dispatched_offset")?;
        Ok(self.handle.writer()?.dispatched_offset())
    }

    /// Wait until the message at this physical offset is durable, by default until everything appended so far is; it is synced at once.
    ///
    /// `timeout` is in seconds, or a timedelta. Raises `ValueError` for an offset at which nothing was appended, `WaitTimeoutError` (a
    /// `TimeoutError`) when the time is up, `PoisonedError` or `ClosedError` if the message can no longer become durable.
    #[pyo3(signature = (offset=None, timeout=None))]
    fn wait_durable(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::offset_or_none)] offset: Option<i64>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        wait(py, &self.handle, offset, timeout, MessageStore::wait_durable)
    }

    /// Wait until the message at this physical offset is in its queue and in the index, by default until everything appended so far is.
    /// Reads of this store do so by themselves. `timeout` and what is raised are as in `wait_durable`.
    #[pyo3(signature = (offset=None, timeout=None))]
    fn wait_dispatched(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::offset_or_none)] offset: Option<i64>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        wait(py, &self.handle, offset, timeout, MessageStore::wait_dispatched)
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
        Ok(self.handle.log_reader(py)?.physical_bounds().start)
    }

    /// Physical offset at which the commit log ends, in bytes.
    #[getter]
    fn max_physical_offset(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.handle.log_reader(py)?.physical_bounds().end)
    }

    /// What opening the store found.
    #[getter]
    fn recovery(&self, py: Python<'_>) -> PyResult<RecoveryReport> {
        let is_writer = self.handle.mode() != Mode::Read;
        Ok(RecoveryReport::new(self.handle.log_reader(py)?.recovery().clone(), is_writer))
    }

    /// Read messages of a queue from a queue offset on, as a broker answers a pull.
    ///
    /// `tags` wants messages with one of some tags ("paid || refund"), `where` those for which a callable of one Message returns a
    /// true value. `max_messages` is the most messages to return, 0 as much as 1, as a broker has it. A broker gives no more than 32
    /// (`max_transfer_count_on_message_in_memory`), whatever is asked for; `bounded=False` lifts its bounds on the entries examined,
    /// the bytes and the count (all but `max_messages`). `errors`, "raise" or "skip", says what to do at a message that was lost or is damaged; by default as in `open`.
    ///
    /// Raises `UnsupportedFormatError` where the queue is no file of this format (RocksDB, batch consume queue), `ValueError` for a negative
    /// `max_messages`, and what `where` raises.
    #[pyo3(signature = (topic, queue, offset, max_messages=32, *, tags=None, r#where=None, bounded=true, errors=None))]
    fn get(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::topic)] topic: String,
        #[pyo3(from_py_with = arguments::queue)] queue: i32,
        #[pyo3(from_py_with = arguments::offset)] offset: i64,
        #[pyo3(from_py_with = arguments::max_messages)] max_messages: usize,
        #[pyo3(from_py_with = arguments::tags)] tags: Option<String>,
        r#where: Option<Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::bounded)] bounded: bool,
        #[pyo3(from_py_with = arguments::errors)] errors: Option<Errors>,
    ) -> PyResult<Py<GetResult>> {
        let request = GetRequest {
            topic,
            queue_id: queue,
            offset,
            max_messages,
            tags: TagFilter::parse(tags.as_deref().unwrap_or("*")),
            bounded,
            errors: errors.unwrap_or(self.handle.errors()),
        };
        GetResult::of(py, &self.handle, &request, r#where.map(Bound::unbind).as_ref())
    }

    /// Find the messages of a topic that carry a key (one of their keys, or their unique key), or else a tag, ascending by physical offset.
    ///
    /// `begin` and `end` bound the store time, both inclusive: a datetime with a timezone, an int of ms since 1970, or None for open. An int
    /// that is a time between 1980 and 2200 in another unit, such as seconds, is refused.
    /// `limit` is the most messages to return, the newest ones; None for all. A hash only finds candidates: topic, key, tag and time are
    /// compared. Where no index serves, the log is walked; the index serves for tags only if the store is open with `index_tags=True`.
    /// Raises `TypeError` for a key and a tag or for neither, `ValueError` for a datetime without a timezone.
    #[pyo3(signature = (topic, key=None, begin=None, end=None, limit=64, *, tag=None))]
    fn query(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::topic)] topic: String,
        #[pyo3(from_py_with = arguments::key)] key: Option<String>,
        begin: Option<Bound<'_, PyAny>>,
        end: Option<Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::limit)] limit: Option<usize>,
        #[pyo3(from_py_with = arguments::tag)] tag: Option<String>,
    ) -> PyResult<Py<QueryResult>> {
        let bound = |name, time: Option<_>, open, round| time.map_or(Ok(open), |time| to_ms(&time, name, round));
        let request = QueryRequest {
            topic,
            by: arguments::query_by(key, tag)?,
            begin: bound("begin", begin, i64::MIN, Round::Up)?,
            end: bound("end", end, i64::MAX, Round::Down)?,
            limit,
        };
        let reader = self.handle.reader(py)?;
        QueryResult::new(py, self.handle.detach(py, || reader.query(&request))?)
    }

    /// The message with this id: an offset id (32 or 56 hex digits) if a record starts where it points, whatever its host; else the
    /// first stored message with this unique key, over every topic, to which the index leads. `walk=True` looks for a unique key that
    /// the index does not hold by reading the whole log, which takes seconds for each GiB. Raises `NotFoundError`.
    #[pyo3(signature = (id, *, walk=false))]
    fn message(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::id)] id: String,
        #[pyo3(from_py_with = arguments::walk)] walk: bool,
    ) -> PyResult<Message> {
        let reader = self.handle.reader(py)?;
        Ok(Message::new(self.handle.detach(py, || reader.message(&id, walk))?))
    }

    /// The message whose record starts at this physical offset.
    ///
    /// Raises `NotFoundError` if no record starts there, `CorruptError` if it is damaged.
    fn message_at(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::physical_offset)] physical_offset: i64,
    ) -> PyResult<Message> {
        let reader = self.handle.log_reader(py)?;
        Ok(Message::new(py.detach(|| reader.message_at(physical_offset))?))
    }

    /// Where messages lie in the log: columns `topic` (utf8), `queue_id` and `queue_offset` (integers) in, a `RecordBatch` of
    /// `physical_offset` (int64) and `store_size` (int32, bytes) out, a row for a row, null where there is no such message, where it was
    /// lost, and where its queue entry is damaged; the message itself is not read.
    ///
    /// `batch` is anything that speaks Arrow: a table, frame or batch of pyarrow, polars, duckdb, pandas. Raises `TypeError` if it
    /// does not, `ValueError` if a column is missing, of another type or malformed, `UnsupportedFormatError` as `get`.
    fn resolve_offsets(&self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
        self.handle.expect_open()?;
        let (wanted, reader) = (import_table(batch)?, self.handle.reader(py)?);
        let resolved = self.handle.detach(py, || arrow::resolve_offsets(&reader, &wanted))?;
        Ok(RecordBatch(resolved))
    }

    /// Which messages carry keys: columns `topic` and `key` (utf8) in, a `RecordBatch` of one column `hits` out, a row for a row:
    /// a list of (`queue_id` int32, `queue_offset` int64, `physical_offset` int64, `store_size` int32) by physical offset; null if empty.
    ///
    /// `batch` is anything that speaks Arrow. Raises `TypeError` if it does not, `ValueError` if a column is missing or of another type,
    /// `CorruptError` at a damaged message that may have one of the keys; with `errors="skip"` it leaves such a message out of the hits.
    #[pyo3(signature = (batch, *, errors=None))]
    fn resolve_keys(
        &self,
        py: Python<'_>,
        batch: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::errors)] errors: Option<Errors>,
    ) -> PyResult<RecordBatch> {
        self.handle.expect_open()?;
        let (wanted, reader) = (import_table(batch)?, self.handle.reader(py)?);
        let errors = errors.unwrap_or(self.handle.errors());
        let resolved = self.handle.detach(py, || arrow::resolve_keys(&reader, &wanted, errors))?;
        Ok(RecordBatch(resolved))
    }

    /// The messages at physical offsets: column `physical_offset` (an integer) in, Batches out, a row for each offset that is not
    /// null, in order.
    ///
    /// `batch` is anything that speaks Arrow. `columns` names the columns wanted, in order, all by default; `max_bytes` is about
    /// the most that a batch holds. Raises `TypeError` and `ValueError` as `resolve_offsets`; reading raises `NotFoundError` at an offset
    /// where no message starts, `CorruptError` at a damaged one, or skips both (`errors="skip"`).
    #[pyo3(signature = (batch, *, columns=None, max_bytes=4_194_304, errors=None))]
    fn fetch(
        &self,
        batch: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::columns)] columns: Option<Vec<String>>,
        #[pyo3(from_py_with = arguments::max_bytes)] max_bytes: usize,
        #[pyo3(from_py_with = arguments::errors)] errors: Option<Errors>,
    ) -> PyResult<Batches> {
        self.handle.expect_open()?;
        let source = Source::records(&self.handle, &import_table(batch)?)?;
        Batches::new(source, columns.as_deref(), max_bytes, errors)
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().handle.expect_open()?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: Bound<'_, PyTuple>) -> PyResult<()> {
        self.handle.close(py)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, (&Py<Recipe>,)> {
        Ok((part_of_pickle(py)?, (self.handle.recipe()?,)))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        store_line(py, &self.handle)
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        store_table(py, &self.handle)
    }
}
