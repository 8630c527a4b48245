//! `Queue`, `QueueSlice`.
#![expect(clippy::doc_markdown, reason = "docstrings in numpy's style")]

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PySlice;

use super::arguments::{self, explained, repr_of, str_of};
use super::batches::Batches;
use super::errors::StoreError;
use super::handle::{Freshness, Handle};
use super::message::Message;
use super::message_iterator::MessageIterator;
use super::recipe::{Recipe, Reduced, part_of_pickle};
use super::source::{Selection, Source};
use super::tabular::{Tabular, tabular};
use super::time::to_ms;
use crate::config::Errors;
use crate::error::Error;
use crate::read::{OnDamage, QueueScan};

/// One queue of a topic: a sequence of messages by queue offset.
///
/// `queue[n]` is the message with queue offset n, a negative n counts from `max_offset`;
/// `queue[a:b]` is a `QueueSlice`, clipped to the queue, with queue offsets, too, so that it is
/// empty where those messages have expired (`queue[queue.min_offset:][a:b]` counts from the first
/// that is left); `len(queue)` is `max_offset - min_offset`. Iteration starts at `min_offset` and
/// skips messages that the log no longer holds; at a message that was lost or is damaged it raises
/// `CorruptError`, or, in a store opened with `errors="skip"`, skips and counts it
/// (`iter(queue).skipped`). The bounds are those of when the store was opened, but `min_offset`
/// rises when a read finds that a broker has removed the oldest files since. A queue file that is
/// removed under a reader takes its entries along, as with a broker, also where the log still holds
/// the messages; in a store that mqstore wrote, the next open makes them again from the log. Any
/// use raises `ClosedError` once the store is closed, and `UnsupportedFormatError` where the queues
/// are not files of this format (RocksDB, batch consume queues).
#[pyclass(frozen, extends = Tabular, module = "mqstore")]
pub(super) struct Queue {
    handle: Arc<Handle>,
    topic: String,
    id: i32,
}

impl Queue {
    pub(super) fn new(handle: Arc<Handle>, topic: String, id: i32) -> Self {
        Self { handle, topic, id }
    }

    /// Returns true if both are the same queue of the same open store.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.handle, &other.handle) && self.topic == other.topic && self.id == other.id
    }

    pub(super) fn source(&self) -> (&Arc<Handle>, &str, i32) {
        (&self.handle, &self.topic, self.id)
    }

    fn bounds(&self, py: Python<'_>) -> PyResult<Range<i64>> {
        let reader = self.handle.reader(py, Freshness::Queues)?;
        Ok(self.handle.detach(py, || reader.queue_bounds(&self.topic, self.id))?)
    }

    fn message(&self, py: Python<'_>, queue_offset: i64) -> PyResult<Message> {
        let reader = self.handle.reader(py, Freshness::Queues)?;
        let message = self
            .handle
            .detach(py, || reader.message_in_queue(&self.topic, self.id, queue_offset))?;
        Ok(Message::new(message))
    }

    /// The slice that was pickled.
    ///
    /// # Errors
    /// `StoreError` where the queue ends before the slice does: it would silently be shorter.
    pub(super) fn same_slice(&self, py: Python<'_>, offsets: Range<i64>) -> PyResult<QueueSlice> {
        let end = self.bounds(py)?.end;
        if end < offsets.end {
            return Err(StoreError::new_err(format!(
                "{}: queue {}/{} ends at queue offset {end} here, but the slice was pickled where it held {} to {}: this store is \
                 another one, or an older copy",
                self.handle.path().display(),
                self.topic,
                self.id,
                offsets.start,
                offsets.end
            )));
        }
        Ok(self.slice(offsets))
    }

    fn slice(&self, offsets: Range<i64>) -> QueueSlice {
        QueueSlice {
            queue: Self::new(self.handle.clone(), self.topic.clone(), self.id),
            offsets,
        }
    }

    fn scan(&self, py: Python<'_>, offsets: Range<i64>) -> PyResult<(QueueScan, OnDamage)> {
        let (reader, topic) = (self.handle.reader(py, Freshness::Queues)?, self.topic.clone());
        let on_damage = OnDamage::new(self.handle.errors());
        let scan = self.handle.detach(py, || QueueScan::new(reader, topic, self.id, offsets))?;
        Ok((scan.on_damage(on_damage.clone()), on_damage))
    }

    fn forward(&self, py: Python<'_>, offsets: Range<i64>) -> PyResult<MessageIterator> {
        let (scan, on_damage) = self.scan(py, offsets)?;
        Ok(MessageIterator::over(self.handle.clone(), scan, on_damage))
    }

    fn backward(&self, py: Python<'_>, offsets: Range<i64>) -> PyResult<MessageIterator> {
        let (scan, on_damage) = self.scan(py, offsets)?;
        Ok(MessageIterator::over(self.handle.clone(), scan.rev(), on_damage))
    }

    fn batches_of(
        &self,
        offsets: Range<i64>,
        columns: Option<&[String]>,
        max_bytes: usize,
        errors: Option<Errors>,
    ) -> PyResult<Batches> {
        let part = Selection::Queue(self.topic.clone(), self.id, offsets);
        Batches::new(Source::Store(self.handle.clone(), part), columns, max_bytes, errors)
    }

    /// Returns the queue offset of a message, if it is in this queue between `offsets`.
    pub(super) fn find(&self, py: Python<'_>, message: &Bound<'_, PyAny>, offsets: &Range<i64>) -> PyResult<Option<i64>> {
        let Ok(message) = message.cast::<Message>() else {
            return Ok(None);
        };
        let queue_offset = message.get().queue_offset()?;
        if !offsets.contains(&queue_offset) {
            return Ok(None);
        }
        let reader = self.handle.reader(py, Freshness::Queues)?;
        match self
            .handle
            .detach(py, || reader.message_in_queue(&self.topic, self.id, queue_offset))
        {
            Ok(stored) => Ok((Message::new(stored).is_same(message.get())?).then_some(queue_offset)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[pymethods]
impl Queue {
    /// The topic's name.
    #[getter]
    fn topic(&self) -> &str {
        &self.topic
    }

    /// The queue's id within the topic, from 0.
    #[getter]
    pub(super) fn queue_id(&self) -> i32 {
        self.id
    }

    /// Queue offset of the first message.
    #[getter]
    fn min_offset(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.bounds(py)?.start)
    }

    /// Queue offset of the message that comes next: one more than the last one's.
    #[getter]
    fn max_offset(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.bounds(py)?.end)
    }

    /// Returns the queue offset of the first message from a time on.
    ///
    /// Parameters
    /// ----------
    /// time : datetime with a timezone, or int of ms since 1970
    ///     The time.
    /// side : {"left", "right"}, default "left"
    ///     "left": of the first message stored at the time or later. "right": of the first one stored
    ///     later.
    ///
    /// Returns
    /// -------
    /// int
    ///     The queue offset; `max_offset` without such a message.
    ///
    /// Raises
    /// ------
    /// TypeError, ValueError
    ///     An argument is not one of those accepted, such as a datetime without a timezone.
    /// CorruptError
    ///     A message on the way is damaged, unless the store was opened with `errors="skip"`.
    ///
    /// Notes
    /// -----
    /// Messages that expired or were lost are skipped, and with `open(errors="skip")` damaged ones,
    /// too. Where the writer's clock was set back, several messages of the time follow an earlier one:
    /// the answer is the first that the search sees, and a short stretch of such messages further back
    /// can be missed. `query` with `since` and `until` misses none.
    #[pyo3(signature = (time, side="left"), text_signature = "(self, time, side='left')")]
    fn offset_at(
        &self,
        py: Python<'_>,
        time: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::side)] side: &str,
    ) -> PyResult<i64> {
        let side = arguments::word("side", side, arguments::SIDES)?;
        let ms = to_ms(time, "time", side.round())?;
        let reader = self.handle.reader(py, Freshness::Queues)?;
        Ok(self.handle.detach(py, || reader.offset_at(&self.topic, self.id, ms, side))?)
    }

    /// Returns the messages that the queue has now as Arrow record batches.
    ///
    /// Parameters
    /// ----------
    /// columns : iterable of str, optional
    ///     The columns, in order; None for all.
    /// max_bytes : int, default 4194304
    ///     About the most bytes in a batch.
    /// errors : {"raise", "skip"}, optional
    ///     What to do at a message that was lost or is damaged. None: as in `open`.
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
    /// UnsupportedFormatError
    ///     The queues are not files of this format (RocksDB, batch consume queue).
    /// CorruptError
    ///     Raised by the iteration at a message that was lost or is damaged (`errors`).
    #[pyo3(signature = (columns=None, max_bytes=4_194_304, *, errors=None))]
    #[expect(clippy::needless_pass_by_value, reason = "an extracted argument")]
    fn batches(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::columns)] columns: Option<Vec<String>>,
        #[pyo3(from_py_with = arguments::max_bytes)] max_bytes: usize,
        #[pyo3(from_py_with = arguments::errors)] errors: Option<Errors>,
    ) -> PyResult<Batches> {
        self.batches_of(self.bounds(py)?, columns.as_deref(), max_bytes, errors)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let bounds = self.bounds(py)?;
        Ok((bounds.end - bounds.start) as usize)
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let bounds = self.bounds(py)?;
        match indexed(index, &bounds)? {
            Indexed::One(queue_offset) => Ok(Bound::new(py, self.message(py, queue_offset)?)?.into_any()),
            Indexed::Several(offsets) => Ok(tabular(py, self.slice(offsets))?.into_any()),
            Indexed::Outside(given) => Err(PyIndexError::new_err(format!(
                "{}/{} has no queue offset {given}: it spans {} to {} (exclusive)",
                self.topic, self.id, bounds.start, bounds.end
            ))),
        }
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<MessageIterator> {
        self.forward(py, self.bounds(py)?)
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<MessageIterator> {
        self.backward(py, self.bounds(py)?)
    }

    fn __eq__(&self, other: &Bound<'_, Self>) -> bool {
        self.is_same(other.get())
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.topic, self.id).hash(&mut hasher);
        hasher.finish()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, (&Py<Recipe>, &str, i32)> {
        Ok((part_of_pickle(py)?, (self.handle.recipe()?, &self.topic, self.id)))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let state = match self.bounds(py) {
            Ok(bounds) => format!("{}..{}", bounds.start, bounds.end),
            Err(error) => error
                .get_type(py)
                .name()
                .map_or_else(|_| "unreadable".to_owned(), |name| name.to_string()),
        };
        format!("<mqstore.Queue {}/{} {state}>", self.topic, self.id)
    }
}

/// Consecutive messages of a queue, read when they are asked for.
///
/// An index counts from the slice's start, so `s[0]` is the message with queue offset `s.start`; it
/// raises `NotFoundError` where the log no longer holds the message, and iteration skips it.
/// `s[a:b]` is a smaller `QueueSlice`.
#[pyclass(frozen, extends = Tabular, module = "mqstore")]
pub(super) struct QueueSlice {
    queue: Queue,
    offsets: Range<i64>,
}

impl QueueSlice {
    fn length(&self) -> i64 {
        self.offsets.end - self.offsets.start
    }

    /// Returns the index of a message, if it is in this slice between the indexes `wanted`.
    pub(super) fn find(&self, py: Python<'_>, message: &Bound<'_, PyAny>, wanted: &Range<i64>) -> PyResult<Option<i64>> {
        let found = self.queue.find(py, message, &self.offsets)?;
        let index = found.map(|offset| offset - self.offsets.start);
        Ok(index.filter(|index| wanted.contains(index)))
    }
}

#[pymethods]
impl QueueSlice {
    /// Queue offset of the first message.
    #[getter]
    fn start(&self) -> i64 {
        self.offsets.start
    }

    /// Queue offset after the last message.
    #[getter]
    fn stop(&self) -> i64 {
        self.offsets.end
    }

    /// Returns the messages of the slice as Arrow record batches, read when they are asked for.
    ///
    /// Parameters
    /// ----------
    /// columns : iterable of str, optional
    ///     The columns, in order; None for all.
    /// max_bytes : int, default 4194304
    ///     About the most bytes in a batch.
    /// errors : {"raise", "skip"}, optional
    ///     What to do at a message that was lost or is damaged. None: as in `open`.
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
    ///     Raised by the iteration at a message that was lost or is damaged (`errors`).
    #[pyo3(signature = (columns=None, max_bytes=4_194_304, *, errors=None))]
    #[expect(clippy::needless_pass_by_value, reason = "an extracted argument")]
    fn batches(
        &self,
        #[pyo3(from_py_with = arguments::columns)] columns: Option<Vec<String>>,
        #[pyo3(from_py_with = arguments::max_bytes)] max_bytes: usize,
        #[pyo3(from_py_with = arguments::errors)] errors: Option<Errors>,
    ) -> PyResult<Batches> {
        self.queue
            .batches_of(self.offsets.clone(), columns.as_deref(), max_bytes, errors)
    }

    fn __len__(&self) -> usize {
        self.length() as usize
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (first, length) = (self.offsets.start, self.length());
        match indexed(index, &(0..length))? {
            Indexed::One(at) => Ok(Bound::new(py, self.queue.message(py, first + at)?)?.into_any()),
            Indexed::Several(Range { start, end }) => Ok(tabular(py, self.queue.slice(first + start..first + end))?.into_any()),
            Indexed::Outside(given) => Err(PyIndexError::new_err(format!(
                "index {given} is outside a slice of {length} messages"
            ))),
        }
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<MessageIterator> {
        self.queue.forward(py, self.offsets.clone())
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<MessageIterator> {
        self.queue.backward(py, self.offsets.clone())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, (&Py<Recipe>, &str, i32, i64, i64)> {
        let Queue { handle, topic, id } = &self.queue;
        let Range { start, end } = self.offsets;
        Ok((part_of_pickle(py)?, (handle.recipe()?, topic, *id, start, end)))
    }

    fn __repr__(&self) -> String {
        let Queue { topic, id, .. } = &self.queue;
        format!(
            "<mqstore.QueueSlice {topic}/{id}[{}:{}]>",
            self.offsets.start, self.offsets.end
        )
    }
}

/// The indexes that `[...]` names.
pub(super) enum Indexed {
    One(i64),
    Several(Range<i64>),
    /// An index out of range, as the caller gave it.
    Outside(i64),
}

/// Resolves an index or a slice among the indexes `valid`: a negative number counts from their end, and a slice is clipped to them.
pub(super) fn indexed(index: &Bound<'_, PyAny>, valid: &Range<i64>) -> PyResult<Indexed> {
    let absolute = |at: i64| if at < 0 { valid.end + at } else { at };
    if let Ok(slice) = index.cast::<PySlice>() {
        let clipped = |end: i64| absolute(end).clamp(valid.start, valid.end);
        let [start, stop] = slice_ends(slice)?;
        let start = start.map_or(valid.start, clipped);
        return Ok(Indexed::Several(start..stop.map_or(valid.end, clipped).max(start)));
    }
    let given = index_of(index)?;
    let at = absolute(given);
    Ok(if valid.contains(&at) {
        Indexed::One(at)
    } else {
        Indexed::Outside(given)
    })
}

/// Returns start and stop of a slice; `None` is the end on that side. A number outside of 64 bits becomes the nearest inside: the caller
/// clips it to the queue.
fn slice_ends(slice: &Bound<'_, PySlice>) -> PyResult<[Option<i64>; 2]> {
    let step = slice.getattr("step")?;
    if !step.is_none() && !step.eq(1)? {
        let given = str_of(&step)?;
        return Err(PyValueError::new_err(format!("a queue is sliced with step 1, not {given}")));
    }
    let end = |name: &str| -> PyResult<Option<i64>> {
        let value = slice.getattr(name)?;
        if value.is_none() {
            return Ok(None);
        }
        match value.extract::<i64>() {
            // Half of the range, so that no sum with it overflows.
            Ok(end) => Ok(Some(end.clamp(i64::MIN / 2, i64::MAX / 2))),
            Err(error) if error.is_instance_of::<PyOverflowError>(slice.py()) => {
                Ok(Some(if value.lt(0)? { i64::MIN / 2 } else { i64::MAX / 2 }))
            }
            Err(error) => Err(error),
        }
    };
    Ok([end("start")?, end("stop")?])
}

/// Returns the number in `[...]`.
fn index_of(index: &Bound<'_, PyAny>) -> PyResult<i64> {
    match index.extract::<i64>() {
        Ok(at) if at < i64::MIN / 2 => Err(PyIndexError::new_err(format!("there is no queue offset {at}"))),
        Ok(at) => Ok(at),
        Err(error) if error.is_instance_of::<PyOverflowError>(index.py()) => {
            Err(PyIndexError::new_err(format!("there is no queue offset {}", str_of(index)?)))
        }
        Err(error) => Err(explained(index.py(), error, || {
            let given = repr_of(&index.get_type())?;
            Ok(format!("a queue is indexed by int or slice, not {given}"))
        })),
    }
}
