//! `Topics`, `Topic`, `Queues`.
#![expect(clippy::doc_markdown, reason = "docstrings in numpy's style")]

use std::ops::Range;
use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyKeyError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PyRange, PySlice};

use super::arguments::{self, explained, type_of};
use super::batches::Batches;
use super::handle::{Freshness, Handle};
use super::imports;
use super::message::Message;
use super::message_iterator::MessageIterator;
use super::queue::Queue;
use super::recipe::{Recipe, Reduced, of_native, part_of_pickle};
use super::source::{Selection, Source};
use super::tabular::{Tabular, tabular};
use super::warnings::warn_of_lost;
use crate::config::Errors;
use crate::error::Result;
use crate::read::{OnDamage, QueueScan, lost_queues};

/// The topics of a store by name, ascending: a mapping of str to Topic.
///
/// If the queues are a RocksDB database the names come from walking the log. Any use raises
/// `ClosedError` once the store is closed.
#[pyclass(frozen, module = "mqstore", mapping)]
pub(super) struct Topics {
    handle: Arc<Handle>,
}

impl Topics {
    pub(super) fn new(handle: Arc<Handle>) -> Self {
        Self { handle }
    }

    fn names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let reader = self.handle.reader(py, Freshness::Queues)?;
        Ok(self.handle.detach(py, || reader.topics())?)
    }

    /// # Errors
    /// `KeyError`.
    pub(super) fn topic<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, Topic>> {
        let Some(topic) = self.find(py, name)? else {
            let closest = imports::there_is(py, name, self.names(py)?.iter().map(String::as_str))?;
            let path = self.handle.path().display();
            return Err(PyKeyError::new_err(format!("{path} has no topic {name:?}{closest}")));
        };
        tabular(py, topic)
    }

    fn find(&self, py: Python<'_>, name: &str) -> PyResult<Option<Topic>> {
        let reader = self.handle.reader(py, Freshness::Queues)?;
        let found = self.handle.detach(py, || reader.has_topic(name))?;
        Ok(found.then(|| Topic {
            handle: self.handle.clone(),
            name: name.to_owned(),
        }))
    }
}

#[pymethods]
impl Topics {
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.names(py)?.len())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.names(py)?)?.try_iter()
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::name)] name: &str,
    ) -> PyResult<Bound<'py, Topic>> {
        self.topic(py, name)
    }

    fn __contains__(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<bool> {
        match name.extract::<&str>() {
            Ok(name) => Ok(self.find(py, name)?.is_some()),
            Err(_) => Ok(false),
        }
    }

    /// Returns the topic with a name.
    ///
    /// Parameters
    /// ----------
    /// key : str
    ///     The name.
    /// default : object, optional
    ///     What to return if there is no such topic.
    ///
    /// Returns
    /// -------
    /// Topic
    ///     The topic, or `default`.
    ///
    /// Raises
    /// ------
    /// TypeError
    ///     The name is not a str.
    #[pyo3(signature = (key, default=None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::name)] key: &str,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.find(py, key)? {
            Some(topic) => Ok(Some(tabular(py, topic)?.into_any())),
            None => Ok(default),
        }
    }

    /// The names, as a view.
    fn keys<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf, "KeysView")
    }

    /// The topics, as a view.
    fn values<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf, "ValuesView")
    }

    /// Name and topic, as a view.
    fn items<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf, "ItemsView")
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, (&Py<Recipe>,)> {
        Ok((of_native(py, "_topics")?, (self.handle.recipe()?,)))
    }

    /// Returns the completions of `IPython` and Jupyter after `topics["`.
    fn _ipython_key_completions_(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.names(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let names = self.names(py)?;
        let first: Vec<_> = names.iter().take(8).map(String::as_str).collect();
        let more = if names.len() > first.len() { ", ..." } else { "" };
        Ok(format!("<mqstore.Topics {}: {}{more}>", names.len(), first.join(", ")))
    }
}

fn view<'py>(topics: &Bound<'py, Topics>, kind: &str) -> PyResult<Bound<'py, PyAny>> {
    topics.py().import("collections.abc")?.call_method1(kind, (topics,))
}

/// One topic of a store, a collection of its messages.
///
/// Iteration yields the messages queue by queue, in the order of their ids, and treats damage as
/// iteration of a `Queue` does. If the files of a queue are lost, a `RuntimeWarning` and the
/// `lost_queues` of the iterator name it. `len(topic)` is the sum of the lengths of its queues. A topic
/// without messages is therefore false: `name in store.topics` tests whether it exists.
#[pyclass(frozen, extends = Tabular, module = "mqstore")]
pub(super) struct Topic {
    handle: Arc<Handle>,
    #[pyo3(get)]
    /// Its name.
    name: String,
}

impl Topic {
    /// Returns a topic, which has no messages if it does not exist.
    pub(super) fn new(py: Python<'_>, handle: Arc<Handle>, name: String) -> PyResult<Bound<'_, Self>> {
        tabular(py, Self { handle, name })
    }

    /// Returns the ids of its queues, each with its bounds.
    fn bounds(&self, py: Python<'_>) -> PyResult<Vec<(i32, Range<i64>)>> {
        let reader = self.handle.reader(py, Freshness::Queues)?;
        let bounds: Result<Vec<_>> = self.handle.detach(py, || {
            let ids = reader.queue_ids(&self.name)?.into_iter();
            ids.map(|id| Ok((id, reader.queue_bounds(&self.name, id)?))).collect()
        });
        Ok(bounds?)
    }
}

#[pymethods]
impl Topic {
    /// Its queues by id: a sequence of Queue.
    ///
    /// Raises `UnsupportedFormatError` where the queues are a RocksDB database or the topic's is a
    /// batch consume queue: `message_at`, `message` and `query` of the store work there.
    #[getter]
    fn queues(&self, py: Python<'_>) -> PyResult<Queues> {
        let reader = self.handle.reader(py, Freshness::Queues)?;
        let ids = self.handle.detach(py, || reader.queue_ids(&self.name))?;
        Ok(Queues {
            handle: self.handle.clone(),
            topic: self.name.clone(),
            length: ids.last().map_or(0, |highest| i64::from(*highest) + 1),
        })
    }

    /// Returns the messages that the topic has now as Arrow record batches, one queue after the other,
    /// by id.
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
    ///     An iterable of `RecordBatch` that speaks Arrow; each iteration reads again. If the files of
    ///     a queue are lost, `lost_queues` names it.
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
        let source = Source::Store(self.handle.clone(), Selection::Topic(self.name.clone(), self.bounds(py)?));
        Batches::new(source, columns.as_deref(), max_bytes, errors)
    }

    /// The ids of the queues that are there, ascending: list of int. `queues` spans every id up to
    /// the highest.
    ///
    /// Raises `UnsupportedFormatError` as `queues` does.
    #[getter]
    fn queue_ids(&self, py: Python<'_>) -> PyResult<Vec<i32>> {
        let reader = self.handle.reader(py, Freshness::Queues)?;
        Ok(self.handle.detach(py, || reader.queue_ids(&self.name))?)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let bounds = self.bounds(py)?.into_iter();
        Ok(bounds.map(|(_, offsets)| (offsets.end - offsets.start) as usize).sum())
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<MessageIterator> {
        let (bounds, reader) = (self.bounds(py)?, self.handle.reader(py, Freshness::Queues)?);
        let on_damage = OnDamage::new(self.handle.errors());
        let begun: Result<_> = self.handle.detach(py, || {
            let scan = |(id, offsets)| {
                let scan = QueueScan::new(Arc::clone(&reader), self.name.clone(), id, offsets)?;
                Ok(scan.on_damage(on_damage.clone()))
            };
            let scans: Result<Vec<_>> = bounds.into_iter().map(scan).collect();
            Ok((scans?, lost_queues(&reader, Some(vec![self.name.clone()]))?))
        });
        let (scans, lost) = begun?;
        warn_of_lost(py, self.handle.path(), &lost.names())?;
        Ok(MessageIterator::over(self.handle.clone(), scans.into_iter().flatten(), on_damage).lacking(lost))
    }

    fn __contains__(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(message) = value.cast::<Message>() else {
            return Ok(false);
        };
        let queue = Queue::new(self.handle.clone(), self.name.clone(), message.get().queue_id()?);
        Ok(queue.find(py, value, &(0..i64::MAX))?.is_some())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, (&Py<Recipe>, &str)> {
        Ok((part_of_pickle(py)?, (self.handle.recipe()?, &self.name)))
    }

    fn __repr__(&self) -> String {
        format!("<mqstore.Topic {:?}>", self.name)
    }
}

/// The queues of a topic, a sequence of Queue: `queues[n]` is the queue with id n. An id that has
/// no files is an empty queue.
#[pyclass(frozen, module = "mqstore", sequence)]
pub(super) struct Queues {
    handle: Arc<Handle>,
    topic: String,
    /// The highest id and one.
    length: i64,
}

impl Queues {
    fn queue(&self, queue_id: i64) -> Queue {
        Queue::new(self.handle.clone(), self.topic.clone(), queue_id as i32)
    }

    /// Returns the id of a queue, if it is one of these and between the ids `wanted`.
    #[expect(clippy::unnecessary_wraps, reason = "the form that the sequences of messages need")]
    pub(super) fn find(&self, _py: Python<'_>, queue: &Bound<'_, PyAny>, wanted: &Range<i64>) -> PyResult<Option<i64>> {
        let Ok(queue) = queue.cast::<Queue>() else { return Ok(None) };
        let id = i64::from(queue.get().queue_id());
        let is_here = (0..self.length).contains(&id) && wanted.contains(&id) && self.queue(id).is_same(queue.get());
        Ok(is_here.then_some(id))
    }

    /// The queues with these ids, made as they are asked for.
    fn each<'py>(slf: &Bound<'py, Self>, ids: &Bound<'py, PyRange>) -> PyResult<Bound<'py, PyAny>> {
        slf.py()
            .import("builtins")?
            .call_method1("map", (slf.getattr("__getitem__")?, ids))
    }
}

#[pymethods]
impl Queues {
    fn __len__(&self) -> usize {
        self.length as usize
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = index.cast::<PySlice>() {
            let within = slice.indices(self.length as isize)?;
            let ids = PyRange::new_with_step(py, within.start, within.stop, within.step)?;
            let queues = ids.try_iter()?.map(|id| tabular(py, self.queue(id?.extract()?)));
            return Ok(PyList::new(py, queues.collect::<PyResult<Vec<_>>>()?)?.into_any());
        }
        let wrong = || Ok(format!("queues are indexed by int or slice, not {}", type_of(index)?));
        let given = match index.extract::<i64>() {
            // Less and more than any id.
            Err(error) if error.is_instance_of::<PyOverflowError>(py) => {
                if index.lt(0)? {
                    i64::MIN
                } else {
                    i64::MAX
                }
            }
            given => given.map_err(|error| explained(py, error, wrong))?,
        };
        let id = if given < 0 { given.saturating_add(self.length) } else { given };
        if !(0..self.length).contains(&id) {
            return Err(PyIndexError::new_err(format!(
                "{} has no queue {given}: its ids are 0 to {}",
                self.topic,
                self.length - 1
            )));
        }
        Ok(tabular(py, self.queue(id))?.into_any())
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let ids = PyRange::new(slf.py(), 0, slf.get().length as isize)?;
        Self::each(slf, &ids)
    }

    fn __reversed__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let ids = PyRange::new_with_step(slf.py(), slf.get().length as isize - 1, -1, -1)?;
        Self::each(slf, &ids)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, (Bound<'py, Topic>, &'static str)> {
        let topic = Topic {
            handle: self.handle.clone(),
            name: self.topic.clone(),
        };
        Ok((py.import("builtins")?.getattr("getattr")?, (tabular(py, topic)?, "queues")))
    }

    fn __repr__(&self) -> String {
        format!("<mqstore.Queues of {:?}: {}>", self.topic, self.length)
    }
}
