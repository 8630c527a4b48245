//! `TopicWriter`: a prepared writer of one queue.
#![expect(clippy::doc_markdown, reason = "docstrings in numpy's style")]

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::append;
use super::append_result::AppendResult;
use super::arguments;
use super::errors::of_append;
use super::fields;
use super::handle::Handle;
use super::writer::Writer;
use crate::storage::Generation;
use crate::store;

/// A prepared writer: it appends messages with one tag to one queue of a topic. `Writer.writer`
/// makes one.
///
/// A call of its `append` costs less than one of `Writer.append`, because topic, queue and tag were
/// checked and encoded when the writer was made. The records are the same, and so are durability,
/// warnings and errors.
///
/// Any number of threads may use it. It does not pickle, and raises `ClosedError` once the store is
/// closed and in a fork.
#[pyclass(frozen, module = "mqstore")]
pub(super) struct TopicWriter {
    handle: Arc<Handle>,
    writer: store::TopicWriter,
    /// The process that opened the store.
    opened_in: Generation,
}

#[pymethods]
impl Writer {
    /// Returns a `TopicWriter`, whose `append(body, keys)` appends to one queue. It costs less than an
    /// `append` that names topic and tag at each call.
    ///
    /// Parameters
    /// ----------
    /// topic : str
    ///     As in `append`. Nothing is made of it before its first message.
    /// queue_id : int, default 0
    ///     The id of the queue, 0 to 65,535.
    /// tags : str, optional
    ///     The tag of all messages.
    ///
    /// Raises
    /// ------
    /// IllegalMessageError
    ///     No message may have this topic, queue id or tag, also by the settings of the topic
    ///     (`create_topic`).
    #[pyo3(signature = (topic, queue_id=0, tags=None))]
    fn writer(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::topic)] topic: &str,
        #[pyo3(from_py_with = arguments::queue_id)] queue_id: i32,
        #[pyo3(from_py_with = arguments::tags)] tags: Option<&str>,
    ) -> PyResult<TopicWriter> {
        let store = self.handle().writer()?;
        let writer = py.detach(|| store.writer(topic, queue_id, tags));
        Ok(TopicWriter {
            handle: self.handle().clone(),
            writer: writer.map_err(|error| of_append(py, error))?,
            opened_in: Generation::current(),
        })
    }
}

#[pymethods]
impl TopicWriter {
    #[new]
    #[pyo3(signature = (*_arguments, **_options))]
    fn new_by_hand(_arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        Err(PyTypeError::new_err(
            "a TopicWriter is not made by its class: Writer.writer makes one",
        ))
    }

    /// The topic of its messages.
    #[getter]
    fn topic(&self) -> &str {
        self.writer.topic()
    }

    /// The id of their queue.
    #[getter]
    fn queue_id(&self) -> i32 {
        self.writer.queue_id()
    }

    /// Appends one message, as `Writer.append` does with the topic, queue id and tag of this writer.
    ///
    /// Parameters
    /// ----------
    /// body : bytes or a buffer of bytes
    ///     The body, stored as it is. A buffer is copied first.
    /// keys : str or iterable of str, optional
    ///     The keys by which `query` finds the message; a key holds no space.
    ///
    /// Returns
    /// -------
    /// AppendResult
    ///     The offsets of the message. Its `status` is `FLUSH_DISK_TIMEOUT` if the message was not durable
    ///     when `sync_flush_timeout` was over. The call waits for that only with `SYNC_FLUSH`.
    ///
    /// Raises
    /// ------
    /// IllegalMessageError, ClosedError, PoisonedError, DiskFullError, BusyError
    ///     As `Writer.append`. The settings of the topic (`create_topic`) bind each append.
    #[pyo3(signature = (body, keys=None))]
    fn append(&self, py: Python<'_>, body: &Bound<'_, PyAny>, keys: Option<&Bound<'_, PyAny>>) -> PyResult<AppendResult> {
        self.handle.expect_writer_of(self.opened_in)?;
        let body = fields::body(body.as_borrowed())?;
        let keys = keys.map(fields::texts).transpose()?.unwrap_or_default();
        // Code of the caller's may have made the arguments, and closed the store or forked.
        self.handle.expect_writer_of(self.opened_in)?;
        append::prepared(py, &self.handle, &self.writer, &body, &keys)
    }

    #[expect(clippy::unused_self, reason = "Python calls it on the object")]
    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a TopicWriter does not pickle: open the store in the other process, and make one there",
        ))
    }

    fn __repr__(&self) -> String {
        format!("<mqstore.TopicWriter {:?}, queue_id={}>", self.topic(), self.queue_id())
    }
}
