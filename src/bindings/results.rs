//! `GetResult`, `QueryResult`.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PyTuple};

use super::arguments;
use super::batches::Batches;
use super::handle::{Freshness, Handle};
use super::message::Message;
use super::recipe::Reduced;
use super::source::Source;
use super::tabular::{Tabular, tabular};
use crate::read::{self, GetRequest, StoredMessage};
use crate::storage::Generation;

/// The answer to `Store.get`: a sequence of Message, with what a consumer needs to go on.
#[pyclass(frozen, extends = Tabular, module = "mqstore", sequence)]
pub(super) struct GetResult {
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
    messages: Py<PyTuple>,
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
        let result = Self {
            status: result.status.name().to_owned(),
            next_begin_offset: result.next_begin_offset,
            min_offset: result.min_offset,
            max_offset: result.max_offset,
            suggest_pulling_from_slave: result.suggest_pulling_from_slave,
            skipped: result.skipped,
            messages: tuple(py, result.messages)?,
        };
        Ok(tabular(py, result)?.unbind())
    }
}

#[pymethods]
impl GetResult {
    /// The messages in queue order, as a new list of Message.
    #[getter]
    fn messages<'py>(&self, py: Python<'py>) -> Bound<'py, PyList> {
        self.messages.bind(py).to_list()
    }

    /// Its messages as Arrow record batches. They were read already, so a closed store does not
    /// matter.
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
        batches(self.messages.bind(py), columns.as_deref(), max_bytes)
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.messages.bind(py).len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.messages.bind(py).as_any().get_item(index)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.messages.bind(py).try_iter()
    }

    fn __reversed__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        reversed(self.messages.bind(py))
    }

    fn __contains__(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.messages.bind(py).contains(value)
    }

    /// The index of a message. Raises `ValueError` if it is not there.
    #[pyo3(signature = (value, start=0, stop=9_223_372_036_854_775_807, /))]
    fn index(&self, py: Python<'_>, value: &Bound<'_, PyAny>, start: i64, stop: i64) -> PyResult<usize> {
        index(self.messages.bind(py), value, start, stop)
    }

    /// How often a message is in it.
    #[pyo3(signature = (value, /))]
    fn count(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.messages.bind(py).call_method1("count", (value,))?.extract()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, GetParts> {
        let offsets = (self.next_begin_offset, self.min_offset, self.max_offset);
        let rest = (self.suggest_pulling_from_slave, self.skipped, self.messages.clone_ref(py));
        let get_result = py.import("mqstore._native")?.getattr("_get_result")?;
        Ok((get_result, (self.status.clone(), offsets, rest)))
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
/// of the log it covers.
#[pyclass(frozen, extends = Tabular, module = "mqstore", sequence)]
pub(super) struct QueryResult {
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
    messages: Py<PyTuple>,
}

impl QueryResult {
    pub(super) fn new(py: Python<'_>, result: read::QueryResult) -> PyResult<Py<Self>> {
        let result = Self {
            complete: result.complete,
            covers: (result.covers.start, result.covers.end),
            skipped: result.skipped,
            messages: tuple(py, result.messages)?,
        };
        Ok(tabular(py, result)?.unbind())
    }
}

#[pymethods]
impl QueryResult {
    /// Its messages as Arrow record batches. They were read already, so a closed store does not
    /// matter.
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
        batches(self.messages.bind(py), columns.as_deref(), max_bytes)
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.messages.bind(py).len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.messages.bind(py).as_any().get_item(index)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.messages.bind(py).try_iter()
    }

    fn __reversed__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        reversed(self.messages.bind(py))
    }

    fn __contains__(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.messages.bind(py).contains(value)
    }

    /// The index of a message. Raises `ValueError` if it is not there.
    #[pyo3(signature = (value, start=0, stop=9_223_372_036_854_775_807, /))]
    fn index(&self, py: Python<'_>, value: &Bound<'_, PyAny>, start: i64, stop: i64) -> PyResult<usize> {
        index(self.messages.bind(py), value, start, stop)
    }

    /// How often a message is in it.
    #[pyo3(signature = (value, /))]
    fn count(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.messages.bind(py).call_method1("count", (value,))?.extract()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, QueryParts> {
        let query_result = py.import("mqstore._native")?.getattr("_query_result")?;
        Ok((
            query_result,
            (self.complete, self.covers, self.skipped, self.messages.clone_ref(py)),
        ))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!(
            "<mqstore.QueryResult {} messages, complete={}, covers {}..{}>",
            self.__len__(py),
            if self.complete { "True" } else { "False" },
            self.covers.0,
            self.covers.1
        )
    }
}

/// What pickle keeps of a `GetResult`.
type GetParts = (String, (i64, i64, i64), (bool, u64, Py<PyTuple>));

/// What pickle keeps of a `QueryResult`.
type QueryParts = (bool, (i64, i64), u64, Py<PyTuple>);

/// A `GetResult` from its parts: what pickle calls.
#[pyfunction(name = "_get_result")]
pub(super) fn unpickle_get_result(
    py: Python<'_>,
    status: String,
    offsets: (i64, i64, i64),
    rest: (bool, u64, Py<PyTuple>),
) -> PyResult<Bound<'_, GetResult>> {
    let (next_begin_offset, min_offset, max_offset) = offsets;
    let (suggest_pulling_from_slave, skipped, messages) = rest;
    let result = GetResult {
        status,
        next_begin_offset,
        min_offset,
        max_offset,
        suggest_pulling_from_slave,
        skipped,
        messages,
    };
    tabular(py, result)
}

/// A `QueryResult` from its parts: what pickle calls.
#[pyfunction(name = "_query_result")]
pub(super) fn unpickle_query_result(
    py: Python<'_>,
    complete: bool,
    covers: (i64, i64),
    skipped: u64,
    messages: Py<PyTuple>,
) -> PyResult<Bound<'_, QueryResult>> {
    let result = QueryResult {
        complete,
        covers,
        skipped,
        messages,
    };
    tabular(py, result)
}

fn tuple(py: Python<'_>, messages: Vec<StoredMessage>) -> PyResult<Py<PyTuple>> {
    Ok(PyTuple::new(py, messages.into_iter().map(Message::new))?.unbind())
}

fn batches(messages: &Bound<'_, PyTuple>, columns: Option<&[String]>, max_bytes: usize) -> PyResult<Batches> {
    let held = messages
        .iter()
        .map(|message| Ok(message.cast::<Message>()?.get().held().clone()));
    Batches::new(Source::Memory(held.collect::<PyResult<_>>()?), columns, max_bytes, None)
}

fn reversed<'py>(messages: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyIterator>> {
    messages.to_list().call_method0("__reversed__")?.try_iter()
}

fn index(messages: &Bound<'_, PyTuple>, value: &Bound<'_, PyAny>, start: i64, stop: i64) -> PyResult<usize> {
    messages.call_method1("index", (value, start, stop))?.extract()
}
