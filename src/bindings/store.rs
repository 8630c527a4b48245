//! `Store`.

use std::ffi::OsStr;
use std::ops::Range;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::arguments;
use super::batches::Batches;
use super::capsule::import_table;
use super::handle::{Freshness, Handle};
use super::message::Message;
use super::mode::Mode;
use super::recipe::{Recipe, Reduced, part_of_pickle};
use super::record_batch::RecordBatch;
use super::reports;
use super::results::{GetResult, QueryResult};
use super::source::Source;
use super::time::to_bounds;
use super::topic::Topics;
use crate::arrow;
use crate::config::Errors;
use crate::read::{GetRequest, HitBounds, QueryRequest, TagFilter};

/// An open message store; `mqstore.open` makes one. A context manager.
///
/// With mode "r" it reads the store as it was when it was opened; open again to see more. It
/// pickles as path and options, and so do its topics, queues and slices: they open it again where
/// they are unpickled, once per pickle; after a fork it opens again by itself, and an iteration
/// that the parent began raises `ClosedError`.
///
/// With the other modes it writes as well, and a read sees every append that returned before it: it
/// waits the moment until what was appended is in its queue, a sync included. With `SYNC_FLUSH` a
/// message is read once it is durable: one that was appended with `durable=False` is read a moment
/// later, or after `wait_durable`. A read waits no longer than 100 ms for queue files that cannot
/// be written, and then answers with what is there and warns (`RuntimeWarning`). The store neither
/// pickles nor survives a fork: the child opens the store for itself, with mode "r". Close it (or
/// use `with`): what it appended is then durable, and the next writer opens it.
///
/// Safe to use from several threads. Once it is closed every call but `path`, `mode`, `closed` and
/// `close` raises `ClosedError`; messages that were read stay readable. Where a call reads files it
/// raises `CorruptError` for damage and `StoreIOError` for what the system refuses; where it
/// writes, `ReadOnlyError` with mode "r", and `PoisonedError` once a write or sync has failed.
#[pyclass(frozen, module = "mqstore")]
pub(super) struct Store {
    pub(super) handle: Arc<Handle>,
    /// Gives the event loop that the futures of this object are for. `None` where they are for threads.
    pub(super) running_loop: Option<Py<PyAny>>,
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

    /// Let go of the store's files, after everything that was appended is in its queues and
    /// durable. Messages that were read stay readable; calling it again does nothing.
    ///
    /// Raises `PoisonedError` or `StoreIOError` for what could not be done; the next open then
    /// recovers the store. If there is no room for what waits in the transient store pool
    /// (`DiskFullError`), the store stays locked until another call, or the end of the last
    /// reference, has written it.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.handle.close(py)
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
        Ok(self.handle.current_reader(py)?.physical_bounds().start)
    }

    /// Physical offset at which the commit log ends, in bytes.
    #[getter]
    fn max_physical_offset(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.handle.reader(py, Freshness::Log)?.physical_bounds().end)
    }

    /// What this opening of the store found; what an earlier one lost is no part of it.
    #[getter]
    fn recovery<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let is_writer = self.handle.mode() != Mode::Read;
        reports::recovery_report(py, self.handle.current_reader(py)?.recovery(), is_writer)
    }

    /// Read messages of a queue from a queue offset on, as a broker answers a pull.
    ///
    /// `tags` wants messages with one of some tags ("paid || refund"), `where` those for which a
    /// callable of one Message returns a true value. `max_messages` is the most messages to return,
    /// 0 as much as 1, as a broker has it. A broker gives no more than 32
    /// (`max_transfer_count_on_message_in_memory`), whatever is asked for; `bounded=False` lifts
    /// its bounds on the entries examined, the bytes and the count (all but `max_messages`).
    /// `errors`, "raise" or "skip", says what to do at a message that was lost or is damaged; by
    /// default as in `open`.
    ///
    /// Raises `UnsupportedFormatError` where the queue is no file of this format (RocksDB, batch
    /// consume queue), `ValueError` for a negative `max_messages`, and what `where` raises.
    #[pyo3(signature = (topic, queue, offset, max_messages=32, *, tags=None, r#where=None, bounded=true, errors=None))]
    fn get(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::topic)] topic: &str,
        #[pyo3(from_py_with = arguments::queue)] queue: i32,
        #[pyo3(from_py_with = arguments::offset)] offset: i64,
        #[pyo3(from_py_with = arguments::max_messages)] max_messages: usize,
        #[pyo3(from_py_with = arguments::tag_expression)] tags: Option<&str>,
        r#where: Option<Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::bounded)] bounded: bool,
        #[pyo3(from_py_with = arguments::errors)] errors: Option<Errors>,
    ) -> PyResult<Py<GetResult>> {
        let request = GetRequest {
            topic: topic.to_owned(),
            queue_id: queue,
            offset,
            max_messages,
            tags: TagFilter::parse(tags.unwrap_or("*")),
            bounded,
            errors: errors.unwrap_or(self.handle.errors()),
        };
        GetResult::of(py, &self.handle, &request, r#where.map(Bound::unbind).as_ref())
    }

    /// Find the messages of a topic that carry a key (one of their keys, or their unique key), or
    /// else a tag, ascending by physical offset.
    ///
    /// `resolve_keys` finds where the messages of many keys lie, in a fraction of the time for
    /// each.
    ///
    /// `begin` and `end` bound the store time, both inclusive: a datetime with a timezone, an int
    /// of ms since 1970, or None for open. An int that is a time between 1980 and 2200 in another
    /// unit, such as seconds, is refused. `limit` is the most messages to return, the newest ones;
    /// None for all. `complete` of the answer says whether these are all that match. `errors`,
    /// "raise" or "skip", says what to do where a message that could match is damaged; by default
    /// as in `open`. Where recovery="salvage" has found messages lost, the answer is not complete.
    /// Where no index serves, the log is walked, and any damage in it counts; the index serves for
    /// tags only if the store is open with `index_tags=True`. An item of the index has no checksum:
    /// where its hash is damaged, its message is not found, and `complete` does not tell; `verify`
    /// does.
    ///
    /// Raises `TypeError` for a key and a tag or for neither, `ValueError` for a datetime without a
    /// timezone, a `begin` after `end` and a tag with `||`, `CorruptError` as `errors` says.
    #[pyo3(signature = (topic, key=None, begin=None, end=None, limit=64, *, tag=None, errors=None))]
    fn query(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::topic)] topic: &str,
        #[pyo3(from_py_with = arguments::key)] key: Option<&str>,
        begin: Option<Bound<'_, PyAny>>,
        end: Option<Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::limit)] limit: Option<usize>,
        #[pyo3(from_py_with = arguments::tag)] tag: Option<&str>,
        #[pyo3(from_py_with = arguments::errors)] errors: Option<Errors>,
    ) -> PyResult<Py<QueryResult>> {
        let (begin, end) = to_bounds(begin.as_ref(), end.as_ref())?;
        let request = QueryRequest {
            topic: topic.to_owned(),
            by: arguments::query_by(key, tag)?,
            begin,
            end,
            limit,
            errors: errors.unwrap_or(self.handle.errors()),
        };
        let reader = self.handle.reader(py, Freshness::Walk)?;
        QueryResult::new(py, self.handle.detach(py, || reader.query(&request))?)
    }

    /// The message with this id: an offset id (32 or 56 hex digits) if a record starts where it
    /// points, whatever its host; else the first stored message with this unique key, over every
    /// topic, to which the index leads. `walk=True` looks for a unique key that the index does not
    /// hold by reading the whole log, which takes seconds for each GiB. Raises `NotFoundError`.
    #[pyo3(signature = (id, *, walk=false))]
    fn message(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::id)] id: &str,
        #[pyo3(from_py_with = arguments::walk)] walk: bool,
    ) -> PyResult<Message> {
        let reader = self.handle.reader(py, Freshness::Walk)?;
        Ok(Message::new(self.handle.detach(py, || reader.message(id, walk))?))
    }

    /// The message whose record starts at this physical offset.
    ///
    /// Raises `NotFoundError` if no record starts there, `CorruptError` if it is damaged.
    fn message_at(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::physical_offset)] physical_offset: i64,
    ) -> PyResult<Message> {
        let reader = self.handle.reader(py, Freshness::Log)?;
        Ok(Message::new(py.detach(|| reader.message_at(physical_offset))?))
    }

    /// Where messages lie in the log: columns `topic` (utf8), `queue_id` and `queue_offset`
    /// (integers) in, a `RecordBatch` of `physical_offset` (int64) and `store_size` (int32, bytes)
    /// out, a row for a row, null where there is no such message, where it was lost, and where its
    /// queue entry is damaged; the message itself is not read.
    ///
    /// `batch` is anything that speaks Arrow: a table, frame or batch of pyarrow, polars, duckdb,
    /// pandas. Raises `TypeError` if it does not, `ValueError` if a column is missing, of another
    /// type or malformed, `UnsupportedFormatError` as `get`.
    fn resolve_offsets(&self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
        self.handle.expect_open()?;
        let (wanted, reader) = (import_table(batch)?, self.handle.reader(py, Freshness::Queues)?);
        let resolved = self.handle.detach(py, || arrow::resolve_offsets(&reader, &wanted))?;
        Ok(RecordBatch(resolved))
    }

    /// Which messages carry keys: columns `topic` and `key` (utf8) in, a `RecordBatch` of one
    /// column `hits` out, a row for a row: a list of (`queue_id` int32, `queue_offset` int64,
    /// `physical_offset` int64, `store_size` int32) by physical offset; null if empty.
    ///
    /// `batch` is anything that speaks Arrow. `limit` is the most hits of a row, the newest ones;
    /// None for all: a key that many messages have takes memory for each of them. `physical` is a
    /// pair of physical offsets between which the records start, as in `scan`.
    ///
    /// Where no index serves, the log is walked, once for an open store: up to 256 MiB of its keys
    /// stay in memory.
    ///
    /// Raises `TypeError` and `ValueError` for an argument, and if a column is missing or of
    /// another type; `CorruptError` at a damaged message that may have one of the keys; with
    /// `errors="skip"` it leaves such a message out of the hits.
    #[pyo3(signature = (batch, *, limit=None, physical=None, errors=None))]
    fn resolve_keys(
        &self,
        py: Python<'_>,
        batch: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::limit)] limit: Option<usize>,
        physical: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::errors)] errors: Option<Errors>,
    ) -> PyResult<RecordBatch> {
        self.handle.expect_open()?;
        let physical = arguments::physical(physical)?;
        let (wanted, reader) = (import_table(batch)?, self.handle.reader(py, Freshness::Walk)?);
        let (bounds, errors) = (HitBounds { physical, limit }, errors.unwrap_or(self.handle.errors()));
        let resolved = self
            .handle
            .detach(py, || arrow::resolve_keys(&reader, &wanted, &bounds, errors))?;
        Ok(RecordBatch(resolved))
    }

    /// Where messages lie in the log by their ids: column `id` (utf8) in, a `RecordBatch` of
    /// `physical_offset` (int64) and `store_size` (int32, bytes) out, a row for a row, null where
    /// there is no such message. An id is what `message` takes: an offset id if a record starts
    /// where it points, else the unique key of a message of a topic that has queues, of which the
    /// first stored one counts. A stretch of the log that no index covers is walked.
    ///
    /// `batch` and `errors` are those of `resolve_keys`, and so is what it raises.
    #[pyo3(signature = (batch, *, errors=None))]
    fn resolve_ids(
        &self,
        py: Python<'_>,
        batch: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::errors)] errors: Option<Errors>,
    ) -> PyResult<RecordBatch> {
        self.handle.expect_open()?;
        let (wanted, reader) = (import_table(batch)?, self.handle.reader(py, Freshness::Walk)?);
        let errors = errors.unwrap_or(self.handle.errors());
        let resolved = self.handle.detach(py, || arrow::resolve_ids(&reader, &wanted, errors))?;
        Ok(RecordBatch(resolved))
    }

    /// Where times begin in queues: columns `topic` (utf8), `queue_id` (integers) and `time` in, a
    /// `RecordBatch` of `queue_offset` (int64) out, a row for a row: what `Queue.offset_at` gives
    /// for the time and `side`, null where there is no such queue.
    ///
    /// `time` holds timestamps with a timezone, or integers of ms since 1970. `batch` is anything
    /// that speaks Arrow. Raises `TypeError` if it does not, `ValueError` for another `side` and if
    /// a column is missing, of another type or malformed, `UnsupportedFormatError` as `get`, and
    /// `CorruptError` at a damaged message on the way; with `errors="skip"` it passes over such a
    /// message.
    #[pyo3(signature = (batch, *, side="left", errors=None), text_signature = "(self, batch, *, side='left', errors=None)")]
    fn resolve_times(
        &self,
        py: Python<'_>,
        batch: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::side)] side: &str,
        #[pyo3(from_py_with = arguments::errors)] errors: Option<Errors>,
    ) -> PyResult<RecordBatch> {
        self.handle.expect_open()?;
        let side = arguments::word("side", side, arguments::SIDES)?;
        let (wanted, reader) = (import_table(batch)?, self.handle.reader(py, Freshness::Queues)?);
        let errors = errors.unwrap_or(self.handle.errors());
        let resolved = self
            .handle
            .detach(py, || arrow::resolve_times(&reader, &wanted, side, errors))?;
        Ok(RecordBatch(resolved))
    }

    /// The messages at physical offsets: column `physical_offset` (an integer) in, Batches out, a
    /// row for each offset that is not null, in order.
    ///
    /// `batch` is anything that speaks Arrow. `columns` names the columns wanted, in order, all by
    /// default; `max_bytes` is about the most that a batch holds. Raises `TypeError` and
    /// `ValueError` as `resolve_offsets`; reading raises `NotFoundError` at an offset where no
    /// message starts, `CorruptError` at a damaged one, or skips both (`errors="skip"`).
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
        let (path, mode) = (self.handle.path().display(), self.handle.mode().name());
        self.handle.current_reader(py).map_or_else(
            |_| format!("<mqstore.Store \"{path}\" closed>"),
            |reader| {
                let Range { start, end } = reader.physical_bounds();
                format!("<mqstore.Store \"{path}\" mode=\"{mode}\", log {start}..{end}>")
            },
        )
    }
}
