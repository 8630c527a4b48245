//! `Messages`, and the two answers that are one: `GetResult`, `QueryResult`.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PyTuple};
use pyo3::{PyClass, PyTypeInfo};

use super::arguments;
use super::batches::Batches;
use super::handle::{Freshness, Handle};
use super::message::Message;
use super::recipe::{Reduced, of_native};
use super::source::Source;
use super::tabular::Tabular;
use crate::read::{self, GetRequest, StoredMessage};
use crate::storage::Generation;

/// Messages that a call has read: a sequence of Message.
#[pyclass(frozen, subclass, extends = Tabular, module = "mqstore._native", sequence)]
pub(super) struct Messages(Py<PyTuple>);

impl Messages {
    fn of(py: Python<'_>, messages: Vec<StoredMessage>) -> PyResult<Self> {
        Ok(Self(PyTuple::new(py, messages.into_iter().map(Message::new))?.unbind()))
    }
}

#[pymethods]
impl Messages {
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
        let held = self.0.bind(py).iter();
        let held = held.map(|message| Ok(message.cast::<Message>()?.get().held().clone()));
        Batches::new(
            Source::Memory(held.collect::<PyResult<_>>()?),
            columns.as_deref(),
            max_bytes,
            None,
        )
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.0.bind(py).len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.0.bind(py).as_any().get_item(index)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.0.bind(py).try_iter()
    }

    fn __reversed__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.0.bind(py).to_list().call_method0("__reversed__")?.try_iter()
    }

    fn __contains__(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.0.bind(py).contains(value)
    }

    /// Returns the index of a message. Raises `ValueError` if it is not there.
    #[pyo3(signature = (value, start=0, stop=9_223_372_036_854_775_807, /))]
    fn index(&self, py: Python<'_>, value: &Bound<'_, PyAny>, start: i64, stop: i64) -> PyResult<usize> {
        self.0.bind(py).call_method1("index", (value, start, stop))?.extract()
    }

    /// Returns how often a message is in it.
    #[pyo3(signature = (value, /))]
    fn count(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.0.bind(py).call_method1("count", (value,))?.extract()
    }
}

/// Makes an answer that is a sequence of these messages.
fn answer<T>(py: Python<'_>, messages: Messages, answer: T) -> PyResult<Bound<'_, T>>
where
    T: PyClass<BaseType = Messages> + PyTypeInfo,
{
    let messages = PyClassInitializer::from(Tabular).add_subclass(messages);
    Bound::new(py, messages.add_subclass(answer))
}

/// The answer to `Store.get`: a sequence of Message, with what a consumer needs to go on.
#[pyclass(frozen, extends = Messages, module = "mqstore")]
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
        let messages = Messages::of(py, result.messages)?;
        let result = Self {
            status: result.status.name().to_owned(),
            next_begin_offset: result.next_begin_offset,
            min_offset: result.min_offset,
            max_offset: result.max_offset,
            suggest_pulling_from_slave: result.suggest_pulling_from_slave,
            skipped: result.skipped,
        };
        Ok(answer(py, messages, result)?.unbind())
    }
}

#[pymethods]
impl GetResult {
    /// The messages in queue order, as a new list of Message.
    #[getter]
    fn messages<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyList> {
        slf.as_super().get().0.bind(slf.py()).to_list()
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Reduced<'py, GetParts> {
        let (py, result) = (slf.py(), slf.get());
        let offsets = (result.next_begin_offset, result.min_offset, result.max_offset);
        let messages = slf.as_super().get().0.clone_ref(py);
        let rest = (result.suggest_pulling_from_slave, result.skipped, messages);
        Ok((of_native(py, "_get_result")?, (result.status.clone(), offsets, rest)))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        let (result, length) = (slf.get(), slf.as_super().get().__len__(slf.py()));
        format!(
            "<mqstore.GetResult {}, {length} messages, next_begin_offset={}, queue {}..{}>",
            result.status, result.next_begin_offset, result.min_offset, result.max_offset
        )
    }
}

/// The answer to `Store.query`: a sequence of Message, ascending by physical offset, and how much
/// of the log it covers.
#[pyclass(frozen, extends = Messages, module = "mqstore")]
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
}

impl QueryResult {
    pub(super) fn new(py: Python<'_>, result: read::QueryResult) -> PyResult<Py<Self>> {
        let messages = Messages::of(py, result.messages)?;
        let result = Self {
            complete: result.complete,
            covers: (result.covers.start, result.covers.end),
            skipped: result.skipped,
        };
        Ok(answer(py, messages, result)?.unbind())
    }
}

#[pymethods]
impl QueryResult {
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Reduced<'py, QueryParts> {
        let (py, result) = (slf.py(), slf.get());
        let messages = slf.as_super().get().0.clone_ref(py);
        let parts = (result.complete, result.covers, result.skipped, messages);
        Ok((of_native(py, "_query_result")?, parts))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        let (result, length) = (slf.get(), slf.as_super().get().__len__(slf.py()));
        let complete = if result.complete { "True" } else { "False" };
        let (begin, end) = result.covers;
        format!("<mqstore.QueryResult {length} messages, complete={complete}, covers {begin}..{end}>")
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
    };
    answer(py, Messages(messages), result)
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
    };
    answer(py, Messages(messages), result)
}
