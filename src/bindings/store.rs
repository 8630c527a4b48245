//! `Store`: its life, and reads.
#![expect(clippy::doc_markdown, reason = "docstrings in numpy's style")]

use std::ffi::OsStr;
use std::ops::Range;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::arguments;
use super::batches::{Batches, expect_batch_size};
use super::broker::BrokerState;
use super::capsule::import_table;
use super::handle::{Freshness, Handle, Mode};
use super::imports::call;
use super::inspect::Inspect;
use super::message::Message;
use super::pass::reading_threads;
use super::recipe::{Recipe, Reduced, part_of_pickle};
use super::record_batch::RecordBatch;
use super::reports;
use super::source::{Selection, Source};
use super::time::to_range;
use super::topic::Topics;
use crate::arrow;
use crate::check::{VerifyRequest, verify};
use crate::config::{Errors, StoreConfig};
use crate::read::{BodyFilter, HitBounds, Order, ScanRequest, TagFilter, TimeOf, Transactions};
use crate::storage::{Env, RealEnv};
use crate::store::{OpenMode, choose_sizes};

/// An open message store; `mqstore.open` makes one. A context manager.
///
/// It reads the store as it was when it was opened; `refresh` takes up what has come since. A store
/// that is open for writing is a `Writer`, which has the calls that append, too.
///
/// It pickles as path and options, and so do its topics, queues, slices and answers to queries: they
/// open it again where they are unpickled, once per pickle. After a fork it opens again by itself,
/// and an iteration that the parent began raises `ClosedError`.
///
/// Safe to use from several threads. Once it is closed every call but `path`, `mode`, `closed` and
/// `close` raises `ClosedError`; messages that were read stay readable. Where a call reads files it
/// raises `CorruptError` for damage and `StoreIOError` for what the system refuses. It has no call
/// that writes: open the store with mode "a" for a `Writer`, which also appends.
#[pyclass(frozen, subclass, module = "mqstore")]
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

    /// The mode of the open: "r", "r+", "a" or "x".
    #[getter]
    fn mode(&self) -> &'static str {
        self.handle.mode().name()
    }

    /// True if the store was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// Closes the store, after every appended message is in its queue and durable. Messages that
    /// were read stay readable; calling it again does nothing.
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

    /// The files of the store and their bytes: an `Inspect`.
    #[getter]
    fn inspect(&self) -> PyResult<Inspect> {
        self.handle.expect_open()?;
        Ok(Inspect::new(self.handle.clone()))
    }

    /// The settings and positions that the broker of the store keeps: a `BrokerState`.
    #[getter]
    fn broker(slf: &Bound<'_, Self>) -> PyResult<BrokerState> {
        let handle = &slf.get().handle;
        handle.expect_open()?;
        Ok(BrokerState::new(handle.clone(), slf.clone().into_any().unbind()))
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

    /// The findings of this open. Losses of an earlier open are not among them.
    #[getter]
    fn recovery<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        reports::recovery_report(py, self.handle.current_reader(py)?.recovery())
    }

    /// Returns the message with an id.
    ///
    /// Parameters
    /// ----------
    /// id : str
    ///     An offset id (32 or 56 hex digits), if a record starts where it points, whatever its host; else
    ///     a unique key: the first stored message of any topic with this key counts.
    /// walk : bool, default False
    ///     True reads the whole log for a unique key that the index does not have, which takes seconds for
    ///     each GiB.
    ///
    /// Returns
    /// -------
    /// Message
    ///     The message.
    ///
    /// Raises
    /// ------
    /// NotFoundError, CorruptError
    ///     There is no such message in the index (with `walk`: in the log), or it is damaged.
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

    /// Returns the message whose record starts at this physical offset.
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

    /// Resolves queue offsets to physical offsets and sizes. Reads no message.
    ///
    /// Parameters
    /// ----------
    /// batch : a table of Arrow
    ///     A table, frame or batch of pyarrow, polars, duckdb or pandas, or anything else that speaks
    ///     Arrow: columns `topic` (utf8), `queue_id` and `queue_offset` (integers).
    ///
    /// Returns
    /// -------
    /// RecordBatch
    ///     A row for a row: `physical_offset` (int64) and `store_size` (int32, bytes), null where there
    ///     is no such message, where it was lost, and where its queue entry is damaged.
    ///
    /// Raises
    /// ------
    /// TypeError, ValueError
    ///     `batch` does not speak Arrow, or a column is missing, of another type or malformed.
    /// UnsupportedFormatError
    ///     As `get`.
    fn resolve_offsets(&self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
        self.handle.expect_open()?;
        let (wanted, reader) = (import_table(batch)?, self.handle.reader(py, Freshness::Queues)?);
        let resolved = self.handle.detach(py, || arrow::resolve_offsets(&reader, &wanted))?;
        Ok(RecordBatch(resolved))
    }

    /// Resolves keys to messages.
    ///
    /// Parameters
    /// ----------
    /// batch : a table of Arrow
    ///     A table, frame or batch of pyarrow, polars, duckdb or pandas, or anything else that speaks
    ///     Arrow: columns `topic` and `key` (utf8).
    /// limit : int, optional
    ///     The most hits of a row, the newest ones. None: all; a key that many messages have takes
    ///     memory for each of them.
    /// physical : pair of int or None, optional
    ///     Physical offsets between which the records start, as in `scan`.
    /// errors : {"raise", "skip"}, optional
    ///     What to do at a damaged message that may have one of the keys. None: as in `open`. "skip"
    ///     leaves it out of the hits.
    ///
    /// Returns
    /// -------
    /// RecordBatch
    ///     A row for a row, in one column `hits`: a list of (`queue_id` int32, `queue_offset` int64,
    ///     `physical_offset` int64, `store_size` int32), by physical offset; null if empty.
    ///
    /// Raises
    /// ------
    /// TypeError, ValueError
    ///     `batch` does not speak Arrow, a column is missing, of another type or malformed, or another
    ///     argument is not one of those accepted.
    /// CorruptError
    ///     A message that may have one of the keys is damaged (`errors`).
    ///
    /// Notes
    /// -----
    /// The log is walked where no index serves, once for an open store: up to 256 MiB of its keys stay
    /// in memory.
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

    /// Resolves ids to physical offsets and sizes.
    ///
    /// Parameters
    /// ----------
    /// batch : a table of Arrow
    ///     A table, frame or batch of pyarrow, polars, duckdb or pandas, or anything else that speaks
    ///     Arrow: a column `id` (utf8). An id is what `message` takes: an offset id if a record starts
    ///     where it points, else the unique key of a message of a topic that has queues; the first
    ///     message with this key counts.
    /// errors : {"raise", "skip"}, optional
    ///     What to do at a damaged message that may have one of the keys. None: as in `open`. "skip"
    ///     passes over it.
    ///
    /// Returns
    /// -------
    /// RecordBatch
    ///     A row for a row: `physical_offset` (int64) and `store_size` (int32, bytes), null where there
    ///     is no such message.
    ///
    /// Raises
    /// ------
    /// TypeError, ValueError
    ///     `batch` does not speak Arrow, a column is missing, of another type or malformed, or another
    ///     argument is not one of those accepted.
    /// CorruptError
    ///     A message that may have one of the keys is damaged (`errors`).
    ///
    /// Notes
    /// -----
    /// A stretch of the log that no index covers is walked.
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

    /// Resolves times to queue offsets.
    ///
    /// Parameters
    /// ----------
    /// batch : a table of Arrow
    ///     A table, frame or batch of pyarrow, polars, duckdb or pandas, or anything else that speaks
    ///     Arrow: columns `topic` (utf8), `queue_id` (integers) and `time`: timestamps with a timezone,
    ///     or integers of ms since 1970.
    /// side : {"left", "right"}, default "left"
    ///     As in `Queue.offset_at`.
    /// errors : {"raise", "skip"}, optional
    ///     What to do at a damaged message on the way. None: as in `open`. "skip" passes over it.
    ///
    /// Returns
    /// -------
    /// RecordBatch
    ///     A row for a row: `queue_offset` (int64), which `Queue.offset_at` returns for the time, null
    ///     where there is no such queue.
    ///
    /// Raises
    /// ------
    /// TypeError, ValueError
    ///     `batch` does not speak Arrow, a column is missing, of another type or malformed, or another
    ///     argument is not one of those accepted.
    /// UnsupportedFormatError
    ///     As `get`.
    /// CorruptError
    ///     A message on the way is damaged (`errors`).
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

    /// Returns the messages at physical offsets, as Arrow record batches, a row for each offset that is
    /// not null, in order.
    ///
    /// Parameters
    /// ----------
    /// batch : a table of Arrow
    ///     A table, frame or batch of pyarrow, polars, duckdb or pandas, or anything else that speaks
    ///     Arrow: a column `physical_offset` (an integer).
    /// columns : iterable of str, optional
    ///     The columns, in order; None for all.
    /// max_bytes : int, default 4194304
    ///     About the most bytes in a batch.
    /// errors : {"raise", "skip"}, optional
    ///     What to do at an offset where no message starts, or a damaged one. None: as in `open`.
    ///
    /// Returns
    /// -------
    /// Batches
    ///     An iterable of `RecordBatch` that speaks Arrow; each iteration reads again.
    ///
    /// Raises
    /// ------
    /// TypeError, ValueError
    ///     `batch` does not speak Arrow, a column is missing, of another type or malformed, or another
    ///     argument is not one of those accepted.
    /// NotFoundError
    ///     Raised by the iteration at an offset where no message starts (`errors`).
    /// CorruptError
    ///     Raised by the iteration at a damaged message (`errors`).
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

    /// Returns the messages that meet some conditions, as Arrow record batches. Reads nothing before the
    /// first batch is asked for.
    ///
    /// Parameters
    /// ----------
    /// topics : str or iterable of str, optional
    ///     The topics, also deleted ones; None for all. `Batches.absent_topics` names those without a
    ///     message.
    /// queue_ids : int or iterable of int, optional
    ///     The queue ids; None for all.
    /// since, until : datetime with a timezone, or int of ms since 1970, optional
    ///     Bounds of the time that `by` names, as in `query`.
    /// by : {"store", "born"}, default "store"
    ///     The time that `since` and `until` bound.
    /// physical : pair of int or None, optional
    ///     Physical offsets between which records start, the first inclusive and the second exclusive.
    /// tags : str, optional
    ///     One of these tags: "paid || refund".
    /// keys : str or iterable of str, optional
    ///     One of these keys: a unique key, or one of the keys of a message. An empty list matches none.
    /// properties : mapping or iterable of pairs, of str to str, optional
    ///     All of these properties, with their values.
    /// body_contains : bytes or str, optional
    ///     A part of the body, decompressed.
    /// body_regex : str, optional
    ///     A pattern of Rust's regex crate, found in the body, decompressed.
    /// transactions : {"committed", "all"}, default "committed"
    ///     "committed": what consumers see, or would see if the queues of the topic were there; a message
    ///     in light queues once. "all": every whole record, also of half and rolled-back messages and of an
    ///     earlier topic of the same name.
    /// columns : iterable of str, optional
    ///     The columns, in order; None for all.
    /// order : {"log", "queue"}, default "log"
    ///     "log": by physical offset. "queue": by topic, queue id and queue offset; the offsets of messages
    ///     in no queue are found first and kept, 24 bytes each.
    /// limit : int, optional
    ///     The most messages, counted in this order.
    /// reverse : bool, default False
    ///     True turns the order around.
    /// decode_body : bool, default False
    ///     True decompresses the column `body` and clears the compression bits of `sys_flag`, so that the
    ///     row can be appended as it is. A body that does not decompress counts as damaged.
    /// batch_bytes : int, default 4194304
    ///     About the most bytes in a batch.
    /// errors : {"raise", "skip"}, optional
    ///     What to do at a message that was lost or is damaged. None: as in `open`.
    /// progress : callable, optional
    ///     Called with two ints: about how many bytes are read, and of how many. What it raises ends the
    ///     iteration. A thread that asks for a batch while it runs gets `ValueError`.
    /// max_mb_per_s : float, optional
    ///     A bound on the reading, in 10**6 bytes a second.
    ///
    /// Returns
    /// -------
    /// Batches
    ///     An iterable of `RecordBatch` that speaks Arrow; each iteration reads again.
    ///
    /// Raises
    /// ------
    /// TypeError, ValueError
    ///     An argument is not one of those accepted.
    /// CorruptError
    ///     Raised by the iteration at damage (`errors`).
    ///
    /// Notes
    /// -----
    /// With `since` or `until`, segments are left out that were written at another time; a clock that was
    /// set back by more than half an hour can hide messages from that.
    ///
    /// A scan of 16 MiB or more without `limit`, `reverse` and `max_mb_per_s` is read by several threads:
    /// as many as the environment variable `OMP_NUM_THREADS` says, or as the process may run at once, 16 at
    /// most. Memory holds the batches of about 4 MiB of the log, or of `batch_bytes` if that is more, for
    /// each thread and two more. With `order="log"` the pages of the log that the scan brings into the page
    /// cache are dropped after they were read; those that were there before stay.
    ///
    /// No checksum covers the topic, the queue id and the transaction of a message, unless its record ends
    /// with one (`__CRC32#`). A message that contradicts its queue entry in these, or in `tags` that are
    /// asked for, counts as damaged; one whose entry has a damaged tags code is skipped, as a broker
    /// does. Damage of times, keys and other properties shows in the message alone: `Store.verify` reports
    /// it where other files repeat them.
    #[pyo3(signature = (*, topics=None, queue_ids=None, since=None, until=None, by="store", physical=None, tags=None, keys=None, properties=None,
                        body_contains=None, body_regex=None, transactions="committed", columns=None, order="log", limit=None, reverse=false,
                        decode_body=false, batch_bytes=4_194_304, errors=None, progress=None, max_mb_per_s=None))]
    fn scan(
        &self,
        topics: Option<&Bound<'_, PyAny>>,
        queue_ids: Option<&Bound<'_, PyAny>>,
        since: Option<&Bound<'_, PyAny>>,
        until: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::by)] by: &str,
        physical: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::tag_expression)] tags: Option<&str>,
        keys: Option<&Bound<'_, PyAny>>,
        properties: Option<&Bound<'_, PyAny>>,
        body_contains: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::body_regex)] body_regex: Option<&str>,
        #[pyo3(from_py_with = arguments::transactions)] transactions: &str,
        #[pyo3(from_py_with = arguments::columns)] columns: Option<Vec<String>>,
        #[pyo3(from_py_with = arguments::order)] order: &str,
        #[pyo3(from_py_with = arguments::limit)] limit: Option<usize>,
        #[pyo3(from_py_with = arguments::reverse)] reverse: bool,
        #[pyo3(from_py_with = arguments::decode_body)] decode_body: bool,
        #[pyo3(from_py_with = arguments::batch_bytes)] batch_bytes: usize,
        #[pyo3(from_py_with = arguments::errors)] errors: Option<Errors>,
        progress: Option<&Bound<'_, PyAny>>,
        max_mb_per_s: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Batches> {
        self.handle.expect_open()?;
        expect_batch_size("batch_bytes", batch_bytes)?;
        let contained = body_contains.map(arguments::bytes_of).transpose()?;
        let request = ScanRequest {
            topics: topics.map(|topics| arguments::texts(topics, "topics")).transpose()?,
            queue_ids: queue_ids.map(arguments::queue_ids).transpose()?,
            physical: arguments::physical(physical)?,
            times: to_range(since, until)?,
            by: arguments::word("by", by, [("store", TimeOf::Store), ("born", TimeOf::Born)])?,
            tags: TagFilter::parse(tags.unwrap_or("*")),
            keys: keys.map(|keys| arguments::texts(keys, "keys")).transpose()?,
            properties: properties.map_or(Ok(Vec::new()), arguments::pairs)?,
            body: BodyFilter::new(contained.as_deref(), body_regex)?,
            transactions: arguments::word(
                "transactions",
                transactions,
                [("committed", Transactions::Committed), ("all", Transactions::All)],
            )?,
            decode_body,
            order: arguments::word("order", order, [("log", Order::Log), ("queue", Order::Queue)])?,
            reverse,
            limit: limit.map(|limit| limit as u64),
            max_bytes_per_s: max_mb_per_s.map(arguments::bytes_per_s).transpose()?,
        };
        let progress = progress.map(arguments::callable).transpose()?;
        let source = Source::Store(self.handle.clone(), Selection::Scan(Box::new(request)));
        Ok(Batches::new(source, columns.as_deref(), batch_bytes, errors)?.telling(progress))
    }

    /// Compares log, queues, index, checkpoint and settings with each other and with the format, in one
    /// pass over the log. Changes nothing and takes no lock.
    ///
    /// Parameters
    /// ----------
    /// deep : bool, default True
    ///     False leaves out the checksums of bodies and the links of the index.
    /// progress : callable, optional
    ///     Called with two ints: how many bytes of the log are done, and of how many. What it raises ends
    ///     the call.
    /// max_mb_per_s : float, optional
    ///     A bound on the reading, in 10**6 bytes a second, which one thread does then.
    ///
    /// Returns
    /// -------
    /// VerifyReport
    ///     The findings, damage included, and what was compared.
    ///
    /// Raises
    /// ------
    /// TypeError, ValueError
    ///     An argument is not one of those accepted.
    /// OSError, CorruptError
    ///     A file cannot be read, or is cut during the call.
    ///
    /// Notes
    /// -----
    /// It compares the store as it is now, also if a writer has changed it since this store was opened.
    /// Beside a live writer of another process it covers the log up to its end when the call began. The log
    /// is read by as many threads as a large `scan`. A bounded part of the store is kept in memory.
    #[pyo3(signature = (deep=true, progress=None, max_mb_per_s=None))]
    fn verify<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::deep)] deep: bool,
        progress: Option<&Bound<'_, PyAny>>,
        max_mb_per_s: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = VerifyRequest {
            deep,
            max_bytes_per_s: max_mb_per_s.map(arguments::bytes_per_s).transpose()?,
            threads: reading_threads(),
            ..VerifyRequest::default()
        };
        let progress = progress.map(arguments::callable).transpose()?;
        let reader = self.handle.reader(py, Freshness::Walk)?;
        let env: Arc<dyn Env> = Arc::new(RealEnv::new());
        let report = self.handle.detach(py, || {
            verify(&env, &reader, request, |done, all| {
                arguments::tell(progress.as_ref(), done, all)
            })
        })?;
        reports::verify_report(py, &report)
    }

    /// Writes messages to files: Parquet, Arrow IPC, JSON Lines or CSV.
    ///
    /// Parameters
    /// ----------
    /// target : str or os.PathLike
    ///     The file, or the directory with `partition_by`. It gets its name when all of it is written and
    ///     synced: until then it is in a directory `.mqstore-*.part` beside it, which a killed process
    ///     leaves there.
    /// format : {"parquet", "arrow", "jsonl", "csv"}, optional
    ///     None: as the name ends (.parquet, .arrow, .jsonl, .ndjson, .csv), and "parquet" for any other
    ///     name. "parquet" and "arrow" need pyarrow.
    /// columns : iterable of str, optional
    ///     The columns, in order; None for all.
    /// partition_by : {"topic", "hour"} or both, default ()
    ///     Writes files `topic=orders/hour=2026-11-23T05/part-00000.parquet` (the hour of the store time,
    ///     in UTC) without a column `topic`: pyarrow, polars, duckdb and Spark read it from the names.
    ///     Needs pyarrow for each format. With "topic", `order` is "queue" by default.
    /// rewrite : callable, optional
    ///     Called with each `RecordBatch`, also with an empty one if there is no other. Returns the table
    ///     to write instead: any object that speaks Arrow, always with the same columns.
    /// body_as : {"base64", "text", "json"}, default "base64"
    ///     The form of the body in JSON Lines and CSV. "text" must be UTF-8; "json" must be JSON, and
    ///     becomes a value of the object, its line ends spaces.
    /// decode_body : bool, default False
    ///     True decompresses bodies (zlib, LZ4, Zstandard) and clears the compression bits of `sys_flag`,
    ///     so that consumers can read the messages that `import_from` appends. False: as they are stored.
    /// spreadsheet : bool, default False
    ///     For CSV: puts a `'` before each cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage
    ///     return, because a spreadsheet may run such a cell as a formula.
    /// **conditions
    ///     The other arguments of `scan`, which selects the messages. `batch_bytes` is 32 MiB by default, a
    ///     row group of Parquet, and the memory that is taken.
    ///
    /// Returns
    /// -------
    /// mqstore.files.Exported
    ///     The files, and exact counts. After an exception, also of `rewrite`, there is no `target`.
    ///
    /// Raises
    /// ------
    /// TypeError, ValueError
    ///     An argument is not one of those accepted, or a body is not what `body_as` says.
    /// CorruptError
    ///     A message is damaged, or its body does not decompress (`errors`).
    /// FileExistsError, ImportError, OSError
    ///     `target` exists, pyarrow is not installed, or the system refuses.
    ///
    /// Notes
    /// -----
    /// In JSON Lines and CSV times are ISO 8601 in UTC ("2026-11-23T05:51:16.123Z"; a number of ms since
    /// 1970 outside the years 1 to 9999), and `keys` and `properties` JSON. A CSV file follows RFC 4180, in
    /// UTF-8, with a header; null is an empty cell. `import_from` reads these files, except CSV.
    #[pyo3(
        signature = (target, **options),
        text_signature = "(self, target, *, format=None, columns=None, partition_by=(), rewrite=None, body_as='base64', decode_body=False, spreadsheet=False, **conditions)"
    )]
    fn export<'py>(
        slf: &Bound<'py, Self>,
        target: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        in_python(slf, "mqstore._export", "export", target, options)
    }

    /// Copies messages into a new store, in the order of the log. A copy can drop topics and deleted
    /// messages, rename topics, rebuild the index, and change the sizes of files.
    ///
    /// Parameters
    /// ----------
    /// path : str or os.PathLike
    ///     The directory of the new store. The copy is closed and synced before it is there: until then
    ///     it is in a directory `.mqstore-*.part` beside it, which a killed process leaves there.
    /// rename : mapping of str to str, optional
    ///     New names of topics, the same one for topics to merge.
    /// keep_store_time : bool, default True
    ///     True keeps store times; a time that is before that of the message before it is raised to
    ///     that (`Copied.raised`). False: each message gets the time at which it is copied.
    /// geometry : "broker" or mapping of str to int, optional
    ///     The sizes of the files. None: those of this store. "broker": RocketMQ's defaults. A mapping
    ///     has the sizes that `mqstore.open` takes by name; the others are those of a small store.
    /// **conditions
    ///     The other arguments of `scan`, which selects the messages, but for those that would change
    ///     messages or their order.
    ///
    /// Returns
    /// -------
    /// mqstore.files.Copied
    ///     The new store, and exact counts.
    ///
    /// Raises
    /// ------
    /// TypeError, ValueError
    ///     An argument is not one of those accepted, or `rename` gives a topic the name of another
    ///     topic that keeps it.
    /// FileExistsError
    ///     `path` exists.
    /// IllegalMessageError
    ///     No store takes a message: a batch that is stored whole, a message larger than a segment of
    ///     the copy, and a message whose properties take 32,767 bytes without the separator at their
    ///     end, which brokers before 5.2 leave out.
    /// DiskFullError, OSError, CorruptError
    ///     The system refuses, or a message is damaged (`errors`). After any exception, also of
    ///     `progress`, no store is at `path`.
    ///
    /// Notes
    /// -----
    /// Bodies, properties (except `__CRC32#`, which is computed again), queue ids, hosts, flags, born
    /// times, unique keys and keys are as they were. Queue offsets begin at 0 in each queue, and
    /// physical offsets and offset ids are new. `prepared_transaction_offset` stays and is an offset in
    /// the old log. Messages that wait for their delay are copied, too, and still name their topic by
    /// its old name. No settings of a broker are copied: a broker on the copy delivers from the first
    /// offset of each delay level and to each group.
    ///
    /// Only what consumers see is copied. A half, rolled-back or deleted message would be in no queue
    /// of the copy or come back into one, so `transactions="all"` is refused: `export` writes such
    /// messages. A broker's own topics of half messages and of their ends (`RMQ_SYS_TRANS_HALF_TOPIC`,
    /// `RMQ_SYS_TRANS_OP_HALF_TOPIC`) are left out (`Copied.left_out`), because one names offsets of
    /// the other, which are new: the broker would take open transactions for ended ones. End them
    /// before you copy.
    #[pyo3(
        signature = (path, **options),
        text_signature = "(self, path, *, rename=None, keep_store_time=True, geometry=None, **conditions)"
    )]
    fn copy_to<'py>(
        slf: &Bound<'py, Self>,
        path: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        in_python(slf, "mqstore._copy", "copy_to", path, options)
    }

    /// The options that make a store of the same sizes, delays and index.
    fn _options_of_copy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let reader = self.handle.current_reader(py)?;
        let (env, path): (Arc<dyn Env>, _) = (Arc::new(RealEnv::new()), self.handle.path());
        let mut config: StoreConfig = reader.config().clone();
        let sizes = self
            .handle
            .detach(py, || choose_sizes(&env, path, &mut config, false, OpenMode::Existing))?;
        let options = PyDict::new(py);
        options.set_item("mapped_file_size_commit_log", sizes.commit_log)?;
        options.set_item("mapped_file_size_consume_queue", sizes.consume_queue)?;
        options.set_item("max_hash_slot_num", sizes.index.slots)?;
        options.set_item("max_index_num", sizes.index.items)?;
        options.set_item("message_delay_level", &config.message_delay_level)?;
        options.set_item("index_tags", config.index_tags)?;
        Ok(options)
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
        let (path, mode) = (self.handle.path().display(), self.handle.mode());
        let class = if mode == Mode::Read { "Store" } else { "Writer" };
        self.handle.current_reader(py).map_or_else(
            |_| format!("<mqstore.{class} \"{path}\" closed>"),
            |reader| {
                let Range { start, end } = reader.physical_bounds();
                let mode = mode.name();
                format!("<mqstore.{class} \"{path}\" mode=\"{mode}\", log {start}..{end}>")
            },
        )
    }
}

/// Calls a function of a module of this package with the store, one argument and the others by name.
pub(super) fn in_python<'py>(
    store: &Bound<'py, Store>,
    module: &str,
    function: &str,
    argument: &Bound<'py, PyAny>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    store.get().handle.expect_open()?;
    call(store.py(), module, function, (store, argument), options)
}
