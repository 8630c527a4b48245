//! `Store.get` and `Store.query`, and their answers: `GetResult` holds messages, `QueryResult` reads them when they are asked for.
#![expect(clippy::doc_markdown, reason = "docstrings in numpy's style")]

use std::iter;
use std::ops::Range;
use std::sync::Arc;

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PyTuple};

use super::arguments;
use super::batches::Batches;
use super::handle::{Freshness, Handle};
use super::imports;
use super::message::{Message, MessageBytes};
use super::message_iterator::MessageIterator;
use super::queue::{Indexed, indexed};
use super::recipe::{Recipe, Reduced, of_native};
use super::send_to;
use super::source::{Selection, Source};
use super::store::Store;
use super::tabular::{Tabular, tabular};
use super::time::to_range;
use crate::config::Errors;
use crate::read::{self, GetRequest, KeyHit, OnDamage, QueryBy, QueryHits, QueryRequest, StoredMessage, TagFilter};
use crate::storage::{Generation, Part};

/// The answer to `Store.get`: a sequence of Message, with the status and offsets that a consumer
/// needs for its next call.
#[pyclass(frozen, extends = Tabular, module = "mqstore", sequence)]
pub(super) struct GetResult {
    held: Py<PyTuple>,
    /// The status, by RocketMQ's name: FOUND, `NO_MATCHED_MESSAGE`, `MESSAGE_WAS_REMOVING`,
    /// `OFFSET_FOUND_NULL`, `OFFSET_OVERFLOW_BADLY`, `OFFSET_OVERFLOW_ONE`, `OFFSET_TOO_SMALL` or
    /// `NO_MESSAGE_IN_QUEUE`.
    #[pyo3(get)]
    status: String,
    /// The queue offset to ask for next.
    #[pyo3(get)]
    next_begin_offset: i64,
    /// The queue's first offset.
    #[pyo3(get)]
    min_offset: i64,
    /// The queue's next offset: one more than its last.
    #[pyo3(get)]
    max_offset: i64,
    /// True if the messages are so far from the end of the log that they count as not cached.
    #[pyo3(get)]
    suggest_pulling_from_slave: bool,
    /// The number of messages that were skipped because they were lost or are damaged: always 0
    /// with `errors="raise"`.
    #[pyo3(get)]
    skipped: u64,
}

impl GetResult {
    /// Returns the reader's answer; `accepts`, if given, sees every message that passed the tag filter. It may fork or close the store.
    pub(super) fn of(
        py: Python<'_>,
        handle: &Arc<Handle>,
        request: &GetRequest,
        accepts: Option<&Py<PyAny>>,
    ) -> PyResult<Py<Self>> {
        let (reader, begun_in) = (handle.reader(py, Freshness::Queues)?, Generation::current());
        let wanted = |message: &StoredMessage| {
            let Some(accepts) = accepts else { return Ok::<_, PyErr>(true) };
            let is_wanted = Python::attach(|py| accepts.bind(py).call1((Message::new(message.clone()),))?.is_truthy())?;
            handle.expect_own_pass(begun_in)?;
            Ok(is_wanted)
        };
        let result = handle.detach(py, || reader.get(request, wanted));
        Self::new(py, result?)
    }

    fn new(py: Python<'_>, result: read::GetResult) -> PyResult<Py<Self>> {
        let held = PyTuple::new(py, result.messages.into_iter().map(Message::new))?.unbind();
        let result = Self {
            held,
            status: result.status.name().to_owned(),
            next_begin_offset: result.next_begin_offset,
            min_offset: result.min_offset,
            max_offset: result.max_offset,
            suggest_pulling_from_slave: result.suggest_pulling_from_slave,
            skipped: result.skipped,
        };
        Ok(tabular(py, result)?.unbind())
    }

    /// Returns the records of the messages.
    pub(super) fn bytes(&self, py: Python<'_>) -> PyResult<Vec<MessageBytes>> {
        let held = self.held.bind(py).iter();
        held.map(|message| Ok(message.cast::<Message>()?.get().bytes().clone()))
            .collect()
    }
}

#[pymethods]
impl Store {
    /// Reads messages of a queue from a queue offset on, as a broker answers a pull.
    ///
    /// Parameters
    /// ----------
    /// topic, queue_id, offset : str, int, int
    ///     The queue, and the queue offset of the first message.
    /// max_messages : int, default 32
    ///     The most messages to return; 0 counts as 1, as in a broker.
    /// tags : str, optional
    ///     Returns messages with one of these tags: "paid || refund". None: all.
    /// where : callable, optional
    ///     Returns messages for which it returns a true value; it is called with each `Message`. What it
    ///     raises ends the call.
    /// bounded : bool, default True
    ///     True: the bounds of a broker hold, at most 32 messages
    ///     (`max_transfer_count_on_message_in_memory`), and bounds on the bytes and the entries examined.
    ///     False: only `max_messages` holds.
    /// errors : {"raise", "skip"}, optional
    ///     What to do at a message that was lost or is damaged. None: as in `open`.
    ///
    /// Returns
    /// -------
    /// GetResult
    ///     The messages, with the `status`, bounds and `next_begin_offset` of a broker's answer.
    ///
    /// Raises
    /// ------
    /// UnsupportedFormatError
    ///     The queue is not a file of this format (RocksDB, batch consume queue).
    /// CorruptError
    ///     A message was lost or is damaged (`errors`).
    /// ValueError
    ///     `max_messages` is negative.
    #[pyo3(signature = (topic, queue_id, offset, max_messages=32, *, tags=None, r#where=None, bounded=true, errors=None))]
    fn get(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::topic)] topic: &str,
        #[pyo3(from_py_with = arguments::queue_id)] queue_id: i32,
        #[pyo3(from_py_with = arguments::offset)] offset: i64,
        #[pyo3(from_py_with = arguments::max_messages)] max_messages: usize,
        #[pyo3(from_py_with = arguments::tag_expression)] tags: Option<&str>,
        r#where: Option<Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::bounded)] bounded: bool,
        #[pyo3(from_py_with = arguments::errors)] errors: Option<Errors>,
    ) -> PyResult<Py<GetResult>> {
        let request = GetRequest {
            topic: topic.to_owned(),
            queue_id,
            offset,
            max_messages,
            tags: TagFilter::parse(tags.unwrap_or("*")),
            bounded,
            errors: errors.unwrap_or(self.handle.errors()),
        };
        GetResult::of(py, &self.handle, &request, r#where.map(Bound::unbind).as_ref())
    }

    /// Finds the messages of a topic that have a key, or else a tag.
    ///
    /// Parameters
    /// ----------
    /// topic : str
    ///     The topic.
    /// key, tag : str, optional
    ///     A key of the messages, or their unique key; or, in place of it, their tag.
    /// since, until : datetime with a timezone, or int of ms since 1970, optional
    ///     Bounds of the store time, the first inclusive and the second exclusive. A bound between two ms
    ///     is rounded up. An int that is a time between 1980 and 2200 in another unit, such as seconds, is
    ///     refused.
    /// limit : int, optional
    ///     The most messages in the answer, the newest ones. None: all.
    /// errors : {"raise", "skip"}, optional
    ///     What to do where a message that could match is damaged. None: as in `open`.
    ///
    /// Returns
    /// -------
    /// QueryResult
    ///     The messages, ascending by physical offset. It holds offsets, and reads each message when it is
    ///     asked for. `complete` says whether these are all that match.
    ///
    /// Raises
    /// ------
    /// TypeError
    ///     The call has a key and a tag, or neither.
    /// ValueError
    ///     A datetime has no timezone, `since` is after `until`, or the tag has `||`.
    /// CorruptError
    ///     A message that could match is damaged (`errors`).
    ///
    /// Notes
    /// -----
    /// Where no index serves, the log is walked, and any damage in it counts; the index serves for tags
    /// only if the store is open with `index_tags=True`. Where recovery="salvage" has found messages lost,
    /// the answer is not complete. An item of the index has no checksum: where its hash is damaged, its
    /// message is not found, and `complete` does not show it; `verify` does. `resolve_keys` finds the
    /// offsets of the messages of many keys, in a fraction of the time for each.
    #[pyo3(signature = (topic, key=None, *, since=None, until=None, limit=None, tag=None, errors=None))]
    fn query(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::topic)] topic: &str,
        #[pyo3(from_py_with = arguments::key)] key: Option<&str>,
        since: Option<Bound<'_, PyAny>>,
        until: Option<Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::limit)] limit: Option<usize>,
        #[pyo3(from_py_with = arguments::tag)] tag: Option<&str>,
        #[pyo3(from_py_with = arguments::errors)] errors: Option<Errors>,
    ) -> PyResult<Py<QueryResult>> {
        let request = QueryRequest {
            topic: topic.to_owned(),
            by: arguments::query_by(key, tag)?,
            times: to_range(since.as_ref(), until.as_ref())?,
            limit,
            errors: errors.unwrap_or(self.handle.errors()),
        };
        let reader = self.handle.reader(py, Freshness::Walk)?;
        let result = self.handle.detach(py, || reader.query(&request))?;
        let answer = QueryResult::new(self.handle.clone(), request, result);
        Ok(tabular(py, answer)?.unbind())
    }
}

#[pymethods]
impl GetResult {
    /// The messages in queue order, as a new list of Message.
    #[getter]
    fn messages<'py>(&self, py: Python<'py>) -> Bound<'py, PyList> {
        self.held.bind(py).to_list()
    }

    /// Returns the messages of the answer as Arrow record batches. They were read already, so a closed
    /// store does not matter.
    ///
    /// Parameters
    /// ----------
    /// columns : iterable of str, optional
    ///     The columns, in order; None for all.
    /// max_bytes : int, default 4194304
    ///     About the most bytes in a batch.
    ///
    /// Returns
    /// -------
    /// Batches
    ///     An iterable of `RecordBatch` that speaks Arrow.
    ///
    /// Raises
    /// ------
    /// TypeError, ValueError
    ///     An argument is not one of those accepted.
    #[pyo3(signature = (columns=None, max_bytes=4_194_304))]
    fn batches(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::columns)] columns: Option<Vec<String>>,
        #[pyo3(from_py_with = arguments::max_bytes)] max_bytes: usize,
    ) -> PyResult<Batches> {
        let source = Source::Memory(self.bytes(py)?.into());
        Batches::new(source, columns.as_deref(), max_bytes, None)
    }

    /// Sends the records of the messages to a socket, as the log has them: those of sealed segments from
    /// the page cache, without a copy in this process.
    ///
    /// Parameters
    /// ----------
    /// socket : socket.socket
    ///     A connected stream socket. Its timeout bounds the call.
    /// header : bytes-like, default b""
    ///     Bytes that are sent before the records.
    /// start : int, default 0
    ///     Bytes of header and records that are left out: those that earlier calls have sent.
    ///
    /// Returns
    /// -------
    /// int
    ///     The bytes that were sent: all of header and records but the first `start`.
    ///
    /// Raises
    /// ------
    /// TypeError
    ///     `socket` is no `socket.socket`, or an `ssl.SSLSocket`: the records would bypass TLS. Send
    ///     `message.raw` of each message with its own methods.
    /// ValueError
    ///     It is no stream socket, or header and records have fewer than `start` bytes.
    /// TimeoutError
    ///     The timeout of the socket has passed.
    /// BlockingIOError
    ///     The socket does not block, and its buffer is full: call again with a higher `start` once it is
    ///     writable.
    /// CorruptError
    ///     Another process has cut the file of a record short, or the device fails to read it. The last
    ///     bytes that were sent may be zeros.
    /// OSError
    ///     Any other error of the socket, such as BrokenPipeError; of a closed one, EBADF.
    ///
    /// Notes
    /// -----
    /// An error that ends the call has an attribute `characters_written`: the bytes that this call has
    /// sent. The call releases the interpreter, and signal handlers run during it. Bytes may leave the
    /// page cache after it returns: a process that overwrites the file then changes them.
    #[pyo3(signature = (socket, header=None, *, start=0), text_signature = "($self, socket, header=b'', *, start=0)")]
    fn send_to(
        &self,
        py: Python<'_>,
        socket: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = send_to::header_bytes)] header: Option<Vec<u8>>,
        #[pyo3(from_py_with = send_to::start_bytes)] start: usize,
    ) -> PyResult<u64> {
        let (header, messages) = (header.unwrap_or_default(), self.bytes(py)?);
        let records = messages.iter().map(MessageBytes::part);
        let parts: Vec<_> = iter::once(Part::Memory(&header)).chain(records).collect();
        send_to::send(py, socket, &parts, start)
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.held.bind(py).len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.held.bind(py).as_any().get_item(index)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.held.bind(py).try_iter()
    }

    fn __reversed__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.held.bind(py).to_list().call_method0("__reversed__")?.try_iter()
    }

    fn __contains__(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.held.bind(py).contains(value)
    }

    /// Returns the index of a message in the answer.
    ///
    /// Parameters
    /// ----------
    /// value : Message
    ///     The message.
    /// start, stop : int, default 0 and 2**63 - 1
    ///     The indexes between which it is looked for, the second exclusive. A negative one counts from
    ///     the end.
    ///
    /// Returns
    /// -------
    /// int
    ///     The index.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     The message is not there.
    #[pyo3(signature = (value, start=0, stop=9_223_372_036_854_775_807, /))]
    fn index(&self, py: Python<'_>, value: &Bound<'_, PyAny>, start: i64, stop: i64) -> PyResult<usize> {
        self.held.bind(py).call_method1("index", (value, start, stop))?.extract()
    }

    /// Returns how often a message is in it.
    #[pyo3(signature = (value, /))]
    fn count(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.held.bind(py).call_method1("count", (value,))?.extract()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, GetParts> {
        let offsets = (self.next_begin_offset, self.min_offset, self.max_offset);
        let rest = (self.suggest_pulling_from_slave, self.skipped, self.held.clone_ref(py));
        Ok((of_native(py, "_get_result")?, (self.status.clone(), offsets, rest)))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!(
            "<mqstore.GetResult {}, {} messages, next_begin_offset={}, queue {}..{}>",
            self.status,
            self.__len__(py),
            self.next_begin_offset,
            self.min_offset,
            self.max_offset
        )
    }
}

/// The answer to `Store.query`: a sequence of Message, ascending by physical offset, and how much
/// of the log it covers. It holds where each message is stored, 24 bytes, and reads a message when
/// it is asked for: the store must be open then.
///
/// The query has checked each message. A message that has expired, was damaged or replaced since
/// raises `NotFoundError` or `CorruptError` when it is read; with `errors="skip"` a read of several
/// passes over it, and `skipped` and `complete` then take account of it. An answer pickles as its
/// store does; the messages of another store at that path count as gone.
#[pyclass(frozen, extends = Tabular, module = "mqstore", sequence)]
pub(super) struct QueryResult {
    handle: Arc<Handle>,
    hits: Arc<QueryHits>,
    complete: bool,
    /// The physical offsets (begin, end) that were looked at, end exclusive: down from the log's
    /// end, until the limit was reached. Every message there that matches is in the answer, unless
    /// it was skipped.
    #[pyo3(get)]
    covers: (i64, i64),
    skipped: u64,
}

impl QueryResult {
    pub(super) fn new(handle: Arc<Handle>, request: QueryRequest, result: read::QueryResult) -> Self {
        Self {
            handle,
            hits: Arc::new(QueryHits::new(request, result.hits)),
            complete: result.complete,
            covers: (result.covers.start, result.covers.end),
            skipped: result.skipped,
        }
    }

    /// Returns the answer that pickle has kept.
    pub(super) fn from_parts(
        handle: Arc<Handle>,
        (complete, covers, skipped): CoverageParts,
        (topic, key, tag): AskedParts,
        ((since, until), limit, is_skipping): OptionParts,
        (hits, skipped_hits): FoundParts,
    ) -> PyResult<Self> {
        let hit = |(queue_id, queue_offset, physical_offset, store_size)| KeyHit {
            queue_id,
            queue_offset,
            physical_offset,
            store_size,
        };
        let request = QueryRequest {
            topic,
            by: arguments::query_by(key.as_deref(), tag.as_deref())?,
            times: since..until,
            limit,
            errors: if is_skipping { Errors::Skip } else { Errors::Raise },
        };
        let hits = QueryHits::new(request, hits.into_iter().map(hit).collect());
        Ok(Self {
            handle,
            hits: Arc::new(hits.with_skipped(skipped_hits)),
            complete,
            covers,
            skipped,
        })
    }

    fn errors(&self) -> Errors {
        self.hits.request().errors
    }

    /// Reads the message of a hit.
    fn message(&self, py: Python<'_>, hit: &KeyHit) -> PyResult<Message> {
        let reader = self.handle.current_reader(py)?;
        let read = self.handle.detach(py, || self.hits.message(&reader, hit.physical_offset));
        Ok(Message::new(read?))
    }

    /// Reads the message of a hit. Returns None for damage that `errors` skips.
    fn message_or_skip(&self, py: Python<'_>, physical_offset: i64) -> PyResult<Option<Message>> {
        let reader = self.handle.current_reader(py)?;
        let on_damage = OnDamage::new(self.errors());
        let read = self
            .handle
            .detach(py, || self.hits.message_or_skip(&reader, physical_offset, &on_damage));
        Ok(read?.map(Message::new))
    }

    /// Returns the closest names if an open store does not have the topic of the query, or an empty string.
    fn closest_topics(&self, py: Python<'_>) -> PyResult<String> {
        let topic = &self.hits.request().topic;
        let Some(reader) = self.handle.current_reader(py).ok().filter(|_| self.hits.list().is_empty()) else {
            return Ok(String::new());
        };
        if reader.absent_topics([topic.clone()]).is_empty() {
            return Ok(String::new());
        }
        let topics = reader.topics()?;
        let closest = imports::there_is(py, topic, topics.iter().map(String::as_str))?;
        Ok(format!(", no topic {topic:?}{closest}"))
    }

    /// Iterates over the messages with these indexes.
    fn iterate(&self, py: Python<'_>, indexes: impl Iterator<Item = usize> + Send + 'static) -> PyResult<MessageIterator> {
        let (reader, hits) = (self.handle.current_reader(py)?, self.hits.clone());
        let on_damage = OnDamage::new(self.errors());
        let skips = on_damage.clone();
        let read = indexes.filter_map(move |index| {
            let hit = hits.list().get(index)?;
            hits.message_or_skip(&reader, hit.physical_offset, &skips).transpose()
        });
        Ok(MessageIterator::over(self.handle.clone(), read, on_damage))
    }

    /// Returns the index of a message, if it is in the answer between the indexes `wanted`.
    pub(super) fn find(&self, py: Python<'_>, message: &Bound<'_, PyAny>, wanted: &Range<i64>) -> PyResult<Option<i64>> {
        let Ok(message) = message.cast::<Message>() else {
            return Ok(None);
        };
        let offset = message.get().physical_offset()?;
        let Some(index) = self.hits.find(offset) else {
            return Ok(None);
        };
        let is_same = match self.message_or_skip(py, offset)? {
            Some(stored) => stored.is_same(message.get())?,
            None => false,
        };
        Ok(Some(index as i64).filter(|index| is_same && wanted.contains(index)))
    }
}

#[pymethods]
impl QueryResult {
    /// True if these are all messages that match. False if the limit left messages out (`covers[0]`
    /// then says where it starts), if a message that could match was skipped (`skipped`) or its
    /// segment was removed during the query, and if `Store.recovery` is not complete.
    #[getter]
    fn complete(&self) -> bool {
        self.complete && self.hits.skipped() == 0
    }

    /// The number of offsets in the log that were skipped, because a message that could match was
    /// lost there, or, with `errors="skip"`, is damaged there; with those of the messages that
    /// reads of the answer have skipped so far.
    #[getter]
    fn skipped(&self) -> u64 {
        self.skipped + self.hits.skipped()
    }

    /// Returns the messages of the answer as Arrow record batches, read when they are asked for.
    ///
    /// Parameters
    /// ----------
    /// columns : iterable of str, optional
    ///     The columns, in order; None for all.
    /// max_bytes : int, default 4194304
    ///     About the most bytes in a batch.
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
    /// NotFoundError, CorruptError
    ///     Raised by the iteration at a message that has expired, or is damaged, since the query,
    ///     unless that had `errors="skip"`.
    #[pyo3(signature = (columns=None, max_bytes=4_194_304))]
    fn batches(
        &self,
        #[pyo3(from_py_with = arguments::columns)] columns: Option<Vec<String>>,
        #[pyo3(from_py_with = arguments::max_bytes)] max_bytes: usize,
    ) -> PyResult<Batches> {
        let source = Source::Store(self.handle.clone(), Selection::Hits(self.hits.clone()));
        Batches::new(source, columns.as_deref(), max_bytes, Some(self.errors()))
    }

    fn __len__(&self) -> usize {
        self.hits.list().len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (hits, length) = (self.hits.list(), self.hits.list().len());
        let hits_in = |range: Range<i64>| hits.get(range.start as usize..range.end as usize).unwrap_or_default();
        match indexed(index, &(0..length as i64))? {
            Indexed::One(at) => {
                let messages = hits_in(at..at + 1).iter().map(|hit| self.message(py, hit));
                PyTuple::new(py, messages.collect::<PyResult<Vec<_>>>()?)?.get_item(0)
            }
            Indexed::Several(range) => {
                let messages = hits_in(range).iter();
                let messages = messages.filter_map(|hit| self.message_or_skip(py, hit.physical_offset).transpose());
                Ok(PyTuple::new(py, messages.collect::<PyResult<Vec<_>>>()?)?.into_any())
            }
            Indexed::Outside(given) => Err(PyIndexError::new_err(format!(
                "index {given} is outside an answer of {length} messages"
            ))),
        }
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<MessageIterator> {
        self.iterate(py, 0..self.hits.list().len())
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<MessageIterator> {
        self.iterate(py, (0..self.hits.list().len()).rev())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, QueryParts<'_>> {
        let hit = |hit: &KeyHit| (hit.queue_id, hit.queue_offset, hit.physical_offset, hit.store_size);
        let found = (self.hits.list().iter().map(hit).collect(), self.hits.skipped_hits().collect());
        let request = self.hits.request().clone();
        let (key, tag) = match request.by {
            QueryBy::Key(key) => (Some(key), None),
            QueryBy::Tag(tag) => (None, Some(tag)),
        };
        let times = (request.times.start, request.times.end);
        let options = (times, request.limit, request.errors == Errors::Skip);
        let coverage = (self.complete, self.covers, self.skipped);
        let parts = (self.handle.recipe()?, coverage, (request.topic, key, tag), options, found);
        Ok((of_native(py, "_query_result")?, parts))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (begin, end) = self.covers;
        Ok(format!(
            "<mqstore.QueryResult {} messages, complete={}, covers {begin}..{end}{}>",
            self.hits.list().len(),
            if self.complete() { "True" } else { "False" },
            self.closest_topics(py)?,
        ))
    }
}

/// The parts of a pickled `GetResult`.
type GetParts = (String, (i64, i64, i64), (bool, u64, Py<PyTuple>));

/// The parts of a pickled `QueryResult`.
type QueryParts<'a> = (&'a Py<Recipe>, CoverageParts, AskedParts, OptionParts, FoundParts);

/// Completeness, the physical offsets that were looked at, and the number of offsets that the query has skipped.
pub(super) type CoverageParts = (bool, (i64, i64), u64);

/// The topic, and the key or the tag of a query.
pub(super) type AskedParts = (String, Option<String>, Option<String>);

/// The store times of a query, its limit, and true if it skips damage.
pub(super) type OptionParts = ((i64, i64), Option<usize>, bool);

/// Of each hit queue id, queue offset, physical offset and size; and a bit for each, 64 in a word: 1 if a read has skipped its message.
pub(super) type FoundParts = (Vec<(i32, i64, i64, i32)>, Vec<u64>);

/// A `GetResult` from its parts: what pickle calls.
#[pyfunction(name = "_get_result")]
pub(super) fn unpickle_get_result(
    py: Python<'_>,
    status: String,
    offsets: (i64, i64, i64),
    rest: (bool, u64, Py<PyTuple>),
) -> PyResult<Bound<'_, GetResult>> {
    let (next_begin_offset, min_offset, max_offset) = offsets;
    let (suggest_pulling_from_slave, skipped, held) = rest;
    let result = GetResult {
        held,
        status,
        next_begin_offset,
        min_offset,
        max_offset,
        suggest_pulling_from_slave,
        skipped,
    };
    tabular(py, result)
}
