//! `Batches`: a source of record batches that can be read again.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array as arrow;
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::exceptions::PyValueError;
use pyo3::marker::Ungil;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyCapsule;

use super::capsule::{export_schema, export_stream};
use super::imports;
use super::pass::{BatchPass, Latest, ReadLock, reading_threads};
use super::record_batch::{RecordBatch, to_arrow, to_pandas, to_polars};
use super::remedies::advising;
use super::source::Source;
use crate::arrow::{MAX_BATCH_BYTES, MessageColumns, column_names};
use crate::config::Errors;
use crate::error::Result;
use crate::format::MessageView;
use crate::storage::Generation;

/// Messages as Arrow record batches, read when they are asked for; it can be read any number of
/// times, from the start each time.
///
/// Iterating yields `RecordBatch` objects of about `max_bytes` at most (a larger message has one for
/// itself). Hand it to pyarrow, polars or duckdb as it is, or call one of the `to_` methods. Raises
/// `ClosedError` once the store is closed, and from a batch what reading its messages raises
/// (through `__arrow_c_stream__` the consumer raises its own error with the same text). An iterator
/// that has raised `CorruptError` or `NotFoundError` gives the messages after that one when it is
/// asked again.
#[pyclass(frozen, module = "mqstore")]
pub(super) struct Batches {
    source: Arc<Source>,
    columns: MessageColumns,
    max_bytes: usize,
    errors: Errors,
    progress: Option<Py<PyAny>>,
    latest: Mutex<Latest>,
}

/// Selects columns by name, all for `None`.
///
/// # Errors
/// `ValueError` for a repeated name, and for an unknown one, with the closest names.
pub(super) fn selected(names: Option<&[String]>) -> PyResult<MessageColumns> {
    let unknown = || names?.iter().find(|name| !column_names().any(|known| known == *name));
    MessageColumns::select(names).map_err(|error| match unknown() {
        Some(name) => {
            let closest = Python::attach(|py| imports::there_is(py, name, column_names()));
            closest.map_or_else(|other| other, |closest| PyValueError::new_err(format!("{error}{closest}")))
        }
        None => error.into(),
    })
}

impl Batches {
    /// Sets the function that is called with the progress of reading.
    pub(super) fn telling(self, progress: Option<Py<PyAny>>) -> Self {
        Self { progress, ..self }
    }

    /// # Errors
    /// `ValueError` for `columns` or `max_bytes`, and `ClosedError`.
    pub(super) fn new(source: Source, columns: Option<&[String]>, max_bytes: usize, errors: Option<Errors>) -> PyResult<Self> {
        source.expect_open()?;
        expect_batch_size("max_bytes", max_bytes)?;
        let errors = errors.unwrap_or(source.errors());
        Ok(Self {
            source: Arc::new(source),
            columns: selected(columns)?,
            max_bytes,
            errors,
            progress: None,
            latest: Mutex::new(Latest::new(errors)),
        })
    }

    fn latest(&self, py: Python<'_>) -> Latest {
        self.latest
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn pass(&self, py: Python<'_>) -> PyResult<BatchPass> {
        let latest = Latest::new(self.errors);
        let messages = self.source.messages(py, &latest.on_damage)?;
        *latest.coverage() = messages.coverage();
        *self.latest.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner) = latest.clone();
        let progress = self.progress.as_ref().map(|progress| progress.clone_ref(py));
        Ok(BatchPass::new(
            self.source.clone(),
            messages,
            &self.columns,
            self.max_bytes,
            progress,
            latest,
        ))
    }

    /// Hands each message to `take`, in a pass of its own.
    pub(super) fn each(&self, py: Python<'_>, take: impl Send + Ungil + FnMut(&MessageView<'_>) -> Result<()>) -> PyResult<()> {
        let pass = self.pass(py)?;
        let done = self.source.detach(py, || pass.each(take));
        if done.is_err() {
            self.source.expect_open()?;
        }
        Ok(done?)
    }

    /// A pass that returns batches.
    fn batches(&self, py: Python<'_>) -> PyResult<BatchPass> {
        // While the GIL is held: Python changes the environment under it.
        let threads = reading_threads();
        Ok(self.pass(py)?.with_threads(threads))
    }

    /// Collects all batches in memory. Raises the exceptions of this package, where a stream could only pass on a text.
    fn collect(&self, py: Python<'_>) -> PyResult<Collected> {
        let pass = self.batches(py)?;
        let batches = self.source.detach(py, || pass.collect::<Result<_>>());
        if batches.is_err() {
            // A stream cannot report that its store was closed during the pass.
            self.source.expect_open()?;
        }
        Ok(Collected {
            schema: self.columns.schema().clone(),
            batches: batches?,
        })
    }
}

#[pymethods]
impl Batches {
    /// The number of messages that the latest pass has skipped so far, because they were lost or
    /// are damaged: always 0 with `errors="raise"`. A pass along the log counts a missing or
    /// damaged stretch as the messages to which the queues lead there, and as one if none does.
    /// Messages that the log no longer holds, and that a queue still counts, are not among them.
    #[getter]
    fn skipped(&self, py: Python<'_>) -> u64 {
        self.latest(py).on_damage.skipped()
    }

    /// True if the latest pass has returned all messages: it came to its end before a `limit`, no
    /// message was skipped or raised an error, none expired during the pass, none is of
    /// `lost_queues`, and the open found no sign of messages that are missing. False before the
    /// first pass.
    #[getter]
    fn complete(&self, py: Python<'_>) -> bool {
        self.latest(py).is_complete()
    }

    /// Topics that were asked for by name and have neither a queue nor a message in the latest pass
    /// so far: a new list of str. The store does not know them, or they were deleted and their
    /// messages have expired.
    #[getter]
    fn absent_topics(&self, py: Python<'_>) -> Vec<String> {
        self.latest(py).coverage().absent_topics.clone()
    }

    /// Topic and queue id of each queue that had wanted messages in the part of the log that the
    /// latest pass has read, and whose files are lost: a new list. The pass does not return these
    /// messages. A pass for named topics may read only queues: it finds such a queue if the ids of
    /// the topic's queues or the broker's settings of the topic show that one is missing.
    #[getter]
    fn lost_queues(&self, py: Python<'_>) -> Vec<(String, i32)> {
        self.latest(py).coverage().lost_queues.clone()
    }

    /// The physical offsets that the latest pass looks at, from the first up to the second; None
    /// before the first pass, and for messages that are held in memory.
    #[getter]
    fn covers(&self, py: Python<'_>) -> Option<(i64, i64)> {
        let latest = self.latest(py);
        let covers = latest.coverage().covers.clone();
        covers.map(|covers| (covers.start, covers.end))
    }

    /// Returns all messages as a pyarrow.Table.
    ///
    /// Raises `ImportError` without pyarrow, and what reading the messages raises.
    fn to_arrow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_arrow(Bound::new(py, self.collect(py)?)?.as_any(), "table")
    }

    /// Returns all messages as a polars.DataFrame.
    ///
    /// Raises `ImportError` without polars, and what reading the messages raises.
    fn to_polars<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_polars(Bound::new(py, self.collect(py)?)?.as_any())
    }

    /// Returns all messages as a pandas.DataFrame.
    ///
    /// Raises `ImportError` without pandas or pyarrow, and what reading the messages raises.
    fn to_pandas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_pandas(Bound::new(py, self.collect(py)?)?.as_any(), "table")
    }

    /// The Arrow PyCapsule interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        export_schema(py, self.columns.schema())
    }

    /// The Arrow PyCapsule interface: a new pass over the messages.
    #[pyo3(signature = (requested_schema=None))]
    pub(super) fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let (mut pass, source) = (self.batches(py)?, self.source.clone());
        let batches = std::iter::from_fn(move || source.interruptible_in_main_thread(|| pass.next()));
        let batches =
            batches.map(|batch| batch.map_err(|error| ArrowError::ExternalError(advising(error.text(), error.remedy()).into())));
        export_stream(py, self.columns.schema().clone(), batches)
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<BatchIterator> {
        let pass = self.batches(py)?;
        Ok(BatchIterator {
            source: self.source.clone(),
            begun_in: Generation::current(),
            turn: pass.turn.clone(),
            pass: Mutex::new(pass),
        })
    }

    fn __repr__(&self) -> String {
        let columns = self.columns.schema().fields().len();
        let (source, max_bytes) = (&self.source, self.max_bytes);
        format!("<mqstore.Batches of {source}, {columns} columns, max_bytes={max_bytes}>")
    }
}

/// # Errors
/// `ValueError` for a size, the argument `name`, that no batch can have.
pub(super) fn expect_batch_size(name: &str, bytes: usize) -> PyResult<()> {
    if (1..=MAX_BATCH_BYTES).contains(&bytes) {
        return Ok(());
    }
    Err(PyValueError::new_err(format!(
        "{name} is {bytes}: expected 1 to {MAX_BATCH_BYTES} bytes"
    )))
}

/// The iterator over `Batches`.
#[pyclass(frozen, module = "mqstore._native")]
struct BatchIterator {
    source: Arc<Source>,
    begun_in: Generation,
    turn: Arc<ReadLock>,
    /// Locked by the thread whose turn it is.
    pass: Mutex<BatchPass>,
}

#[pymethods]
impl BatchIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        // Before the turn, which another thread may have had at the fork.
        self.source.expect_own_pass(self.begun_in)?;
        let _turn = self.turn.take(py)?;
        let mut pass = self.pass.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let pass = &mut *pass;
        let batch = self.source.detach(py, || pass.next()).transpose();
        if batch.is_err() {
            self.source.expect_open()?;
        }
        Ok(batch?.map(RecordBatch))
    }
}

/// Batches that were read already, as a stream.
#[pyclass(frozen, module = "mqstore._native")]
struct Collected {
    schema: SchemaRef,
    batches: Vec<arrow::RecordBatch>,
}

#[pymethods]
impl Collected {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        export_stream(py, self.schema.clone(), self.batches.clone().into_iter().map(Ok))
    }
}
