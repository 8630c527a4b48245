//! The answers that are sequences of messages: `GetResult`, which holds them, and `QueryResult`, which reads them when they are asked for.

use std::ops::Range;
use std::sync::Arc;

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PyTuple};

use super::arguments;
use super::batches::Batches;
use super::handle::{Freshness, Handle};
use super::message::Message;
use super::message_iterator::MessageIterator;
use super::queue::{Indexed, indexed};
use super::recipe::{Recipe, Reduced, of_native};
use super::source::{Selection, Source};
use super::tabular::{Tabular, tabular};
use crate::config::Errors;
use crate::read::{self, GetRequest, OnDamage, StoredMessage};
use crate::storage::Generation;

/// The answer to `Store.get`: a sequence of Message, with what a consumer needs to go on.
#[pyclass(frozen, extends = Tabular, module = "mqstore", sequence)]
pub(super) struct GetResult {
    held: Py<PyTuple>,
    /// How it ended, in RocketMQ's words: FOUND, `NO_MATCHED_MESSAGE`, `MESSAGE_WAS_REMOVING`,
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
    /// Whether the messages lie so far from the log's end that memory is assumed not to hold them.
    #[pyo3(get)]
    suggest_pulling_from_slave: bool,
    /// How many messages were passed over because they were lost or are damaged: always 0 with
    /// `errors="raise"`.
    #[pyo3(get)]
    skipped: u64,
}

impl GetResult {
    /// What the reader answers; `accepts`, if given, sees every message that passed the tag filter. It may fork or close the store.
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
}

#[pymethods]
impl GetResult {
    /// The messages in queue order, as a new list of Message.
    #[getter]
    fn messages<'py>(&self, py: Python<'py>) -> Bound<'py, PyList> {
        self.held.bind(py).to_list()
    }

    /// Returns its messages as Arrow record batches. They were read already, so a closed store does
    /// not matter.
    ///
    /// `columns` and `max_bytes` as in `QueueSlice.batches`.
    #[pyo3(signature = (columns=None, max_bytes=4_194_304))]
    #[expect(clippy::needless_pass_by_value, reason = "an extracted argument")]
    fn batches(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::columns)] columns: Option<Vec<String>>,
        #[pyo3(from_py_with = arguments::max_bytes)] max_bytes: usize,
    ) -> PyResult<Batches> {
        let held = self.held.bind(py).iter();
        let held = held.map(|message| Ok(message.cast::<Message>()?.get().bytes().clone()));
        let source = Source::Memory(held.collect::<PyResult<_>>()?);
        Batches::new(source, columns.as_deref(), max_bytes, None)
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

    /// Returns the index of a message. Raises `ValueError` if it is not there.
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
/// of the log it covers. It holds the physical offset of each message, 8 bytes, and reads a message
/// when it is asked for: the store must be open then.
///
/// The query has checked each message. Reading one raises `NotFoundError` if it has expired since,
/// and `CorruptError` if it was damaged since, whatever `errors` says. An answer pickles as its
/// store does: where another store is at the path by then, it reads the messages of that one.
#[pyclass(frozen, extends = Tabular, module = "mqstore", sequence)]
pub(super) struct QueryResult {
    handle: Arc<Handle>,
    places: Arc<[i64]>,
    /// Whether these are all messages that match. False if the limit left messages out (`covers[0]`
    /// then says where it starts), if a message that could match was passed over (`skipped`) or its
    /// segment was removed meanwhile, and if `Store.recovery` is not complete.
    #[pyo3(get)]
    complete: bool,
    /// The physical offsets (begin, end) that were looked at, end exclusive: down from the log's
    /// end, until the limit was reached. Every message there that matches is in the answer, unless
    /// it was passed over.
    #[pyo3(get)]
    covers: (i64, i64),
    /// How many places of the log were passed over, because a message that could match was lost
    /// there, or, with `errors="skip"`, is damaged there.
    #[pyo3(get)]
    skipped: u64,
}

impl QueryResult {
    pub(super) fn new(handle: Arc<Handle>, places: Arc<[i64]>, complete: bool, covers: (i64, i64), skipped: u64) -> Self {
        Self {
            handle,
            places,
            complete,
            covers,
            skipped,
        }
    }

    /// Reads the message that starts at a physical offset.
    fn message(&self, py: Python<'_>, place: i64) -> PyResult<Message> {
        let reader = self.handle.current_reader(py)?;
        let read = self.handle.detach(py, || reader.message_at(place));
        Ok(Message::new(read?))
    }

    /// Iterates over the messages with these indexes.
    fn iterate(&self, py: Python<'_>, indexes: impl Iterator<Item = usize> + Send + 'static) -> PyResult<MessageIterator> {
        let (reader, places) = (self.handle.current_reader(py)?, self.places.clone());
        let read = indexes.map_while(move |index| places.get(index).map(|place| reader.message_at(*place)));
        Ok(MessageIterator::over(self.handle.clone(), read, OnDamage::new(Errors::Raise)))
    }

    /// Returns the index of a message, if it is in the answer between the indexes `wanted`.
    pub(super) fn find(&self, py: Python<'_>, message: &Bound<'_, PyAny>, wanted: &Range<i64>) -> PyResult<Option<i64>> {
        let Ok(message) = message.cast::<Message>() else {
            return Ok(None);
        };
        let place = message.get().physical_offset()?;
        let Ok(index) = self.places.binary_search(&place) else {
            return Ok(None);
        };
        let is_same = self.message(py, place)?.is_same(message.get())?;
        Ok(Some(index as i64).filter(|index| is_same && wanted.contains(index)))
    }
}

#[pymethods]
impl QueryResult {
    /// Returns its messages as Arrow record batches, read when they are asked for.
    ///
    /// `columns` and `max_bytes` as in `QueueSlice.batches`.
    #[pyo3(signature = (columns=None, max_bytes=4_194_304))]
    #[expect(clippy::needless_pass_by_value, reason = "an extracted argument")]
    fn batches(
        &self,
        #[pyo3(from_py_with = arguments::columns)] columns: Option<Vec<String>>,
        #[pyo3(from_py_with = arguments::max_bytes)] max_bytes: usize,
    ) -> PyResult<Batches> {
        let source = Source::Store(self.handle.clone(), Selection::Records(self.places.clone()));
        Batches::new(source, columns.as_deref(), max_bytes, Some(Errors::Raise))
    }

    fn __len__(&self) -> usize {
        self.places.len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let length = self.places.len();
        let read = |range: Range<i64>| {
            let places = self.places.get(range.start as usize..range.end as usize).unwrap_or_default();
            let messages = places.iter().map(|place| self.message(py, *place));
            PyTuple::new(py, messages.collect::<PyResult<Vec<_>>>()?)
        };
        match indexed(index, &(0..length as i64))? {
            Indexed::One(at) => read(at..at + 1)?.get_item(0),
            Indexed::Several(range) => Ok(read(range)?.into_any()),
            Indexed::Outside(given) => Err(PyIndexError::new_err(format!(
                "index {given} is outside an answer of {length} messages"
            ))),
        }
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<MessageIterator> {
        self.iterate(py, 0..self.places.len())
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<MessageIterator> {
        self.iterate(py, (0..self.places.len()).rev())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, QueryParts<'_>> {
        let parts = (
            self.handle.recipe()?,
            self.complete,
            self.covers,
            self.skipped,
            &self.places[..],
        );
        Ok((of_native(py, "_query_result")?, parts))
    }

    fn __repr__(&self) -> String {
        let (begin, end) = self.covers;
        format!(
            "<mqstore.QueryResult {} messages, complete={}, covers {begin}..{end}>",
            self.places.len(),
            if self.complete { "True" } else { "False" },
        )
    }
}

/// What pickle keeps of a `GetResult`.
type GetParts = (String, (i64, i64, i64), (bool, u64, Py<PyTuple>));

/// What pickle keeps of a `QueryResult`.
type QueryParts<'a> = (&'a Py<Recipe>, bool, (i64, i64), u64, &'a [i64]);

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
