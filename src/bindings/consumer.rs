//! `Consumer`: a member of a consumer group, or a reader with a positions file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::arguments::{self, texts};
use super::errors::ClosedError;
use super::follow::{beginning, queue_offsets, up_to_date};
use super::handle::{Handle, Mode};
use super::message::{Message, listed};
use super::store::Store;
use super::time::{to_deadline, to_wait};
use super::warnings::warn_of_lost;
use super::writer::Writer;
use crate::broker::{self, Start, Subscription};
use crate::error::Error;
use crate::read::{FollowFrom, OnMissing, StoredMessage, lost_queues};
use crate::storage::Generation;

/// RocketMQ's `consumeTimeout`.
const CONSUME_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// A consumer of a group: it polls messages, and acknowledges them. `Writer.consumer` and
/// `Store.consumer` make one. A context manager, and an iterator over the messages as they come.
///
/// Each message comes at least once. In the process that writes the store, the consumers of a group
/// share its queues, by RocketMQ's rule for averages, and continue where the group was. The progress
/// of a group is the first message of a queue that is not acknowledged; it is written to
/// `config/consumerOffset.json` every 5 s, by `commit(durable=True)` and by `close`, and never
/// passes a message that is not durable. After a crash the group gets the messages after it again.
///
/// A consumer of a store that is open for reading keeps its positions in a file of its user, written
/// every 5 s by a poll, by `commit(durable=True)` and by `close`. It works alone, and sends nothing
/// back: `nack` raises `ReadOnlyError`.
///
/// Any number of threads may use a consumer. It does not pickle, and raises `ClosedError` in a fork.
#[pyclass(frozen, module = "mqstore")]
pub(super) struct Consumer {
    handle: Arc<Handle>,
    member: broker::Consumer,
    begun_in: Generation,
    group: Option<String>,
    topics: Vec<String>,
    /// The time after which an iteration ends without a message.
    timeout: Option<Duration>,
}

#[pymethods]
impl Writer {
    /// Returns a `Consumer` of a group, which remembers what the group has consumed.
    ///
    /// Parameters
    /// ----------
    /// group : str or None
    ///     Name of the group. None reads every message for itself and keeps no progress (broadcast).
    /// topics : str or iterable of str
    ///     A topic, or several. All consumers of a group have the same topics and options.
    /// tags : str, optional
    ///     Wanted tags, such as "paid || refund". All by default.
    /// start : {"earliest", "latest"} or mapping, default "earliest"
    ///     Where a group begins that has no progress in a queue: "earliest" (the default), "latest",
    ///     or a mapping of (topic, queue id) to a queue offset.
    /// since : datetime or int, optional
    ///     Begins with the messages stored then or later instead: a datetime with a timezone, or an
    ///     int of ms since 1970.
    /// on_missing : {"earliest", "latest"}, optional
    ///     What happens where the progress lies outside of the queue, because messages expired or
    ///     were lost: by default `OffsetOutOfRangeError`; "earliest" and "latest" continue at that
    ///     end of the queue.
    /// ordered : bool, optional
    ///     True keeps the order of each queue: a message that fails is given again after 1 s, and its
    ///     queue waits. By default as the topic was created.
    /// max_reconsume_times : int, optional
    ///     Retries before a message becomes a dead letter. By default `retryMaxTimes` of the group's
    ///     settings, which is 16 for a new group; no limit if ordered.
    /// consume_timeout : float or timedelta, default 900
    ///     Seconds, or a timedelta (15 min by default): a message that was neither acknowledged nor
    ///     sent back by then is given again.
    /// timeout : float or timedelta, optional
    ///     Seconds, or a timedelta, after which an iteration ends without a message. None waits for
    ///     ever.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     Another consumer of the group has other topics or options; a name that no broker accepts; the
    ///     settings of the group (`config/subscriptionGroup.json`) have `consumeEnable` false, or no
    ///     `retryQueueNums`.
    /// CorruptError
    ///     `config/consumerOffset.json`, `config/subscriptionGroup.json`, or without `ordered`
    ///     `config/topics.json`, cannot be read, and has no usable previous version.
    #[pyo3(
        signature = (group, topics, *, tags=None, start=None, since=None, on_missing=None, ordered=None, max_reconsume_times=None,
            consume_timeout=None, timeout=None),
        text_signature = "($self, group, topics, *, tags=None, start='earliest', since=None, on_missing=None, ordered=None, \
                          max_reconsume_times=None, consume_timeout=900, timeout=None)"
    )]
    fn consumer(
        &self,
        py: Python<'_>,
        group: Option<&str>,
        topics: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::tag_expression)] tags: Option<&str>,
        start: Option<&Bound<'_, PyAny>>,
        since: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::on_missing)] on_missing: Option<OnMissing>,
        ordered: Option<bool>,
        max_reconsume_times: Option<i32>,
        consume_timeout: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Consumer> {
        let handle = self.handle();
        handle.expect_open()?;
        let topics = topic_names(topics)?;
        let start = to_start(start, since)?;
        let consume_timeout = to_wait(consume_timeout, "consume_timeout")?.unwrap_or(CONSUME_TIMEOUT);
        let timeout = to_wait(timeout, "timeout")?;
        let broker = handle.broker()?;
        let is_ordered = ordered.map_or_else(|| broker.is_ordered(&topics), Ok)?;
        let subscription = Subscription {
            topics: topics.clone(),
            tags: tags.unwrap_or("*").to_owned(),
            is_ordered,
            max_reconsume_times,
            consume_timeout,
            on_missing: on_missing.unwrap_or(OnMissing::Refuse),
        };
        let consumer = handle.detach(py, || broker.consumer(group, subscription, &start))?;
        Ok(Consumer {
            handle: Arc::clone(handle),
            member: consumer,
            begun_in: Generation::current(),
            group: group.map(str::to_owned),
            topics,
            timeout,
        })
    }
}

#[pymethods]
impl Store {
    /// Returns a `Consumer` that keeps its positions in a file. The store is only read: it may be that
    /// of a live broker or of another process that writes it.
    ///
    /// The file has, for each queue, the offset of the next message, and the offsets and checksum of the
    /// record before it. They are compared with the store first, so that nothing is skipped or read
    /// again because the store was replaced, or its log was cut. `docs/FORMAT.md` describes the file,
    /// which is replaced as a whole. A file beside it, with `.lock` after the name, keeps a second
    /// consumer away. The messages of a queue whose files are lost are missing: a `RuntimeWarning`
    /// names it.
    ///
    /// Parameters
    /// ----------
    /// topics : str or iterable of str
    ///     A topic, or several.
    /// positions : str or os.PathLike
    ///     The positions file. It is created if it does not exist, and lies outside of the store.
    /// group : str, optional
    ///     A label: `Consumer.group`.
    /// tags : str, optional
    ///     Wanted tags, such as "paid || refund". All by default.
    /// start : {"earliest", "latest"} or mapping, default "earliest"
    ///     Where the consumer begins in topics without a position: "earliest" (the default), "latest",
    ///     or a mapping of (topic, queue id) to a queue offset.
    /// since : datetime or int, optional
    ///     Begins with the messages stored then or later instead: a datetime with a timezone, or an
    ///     int of ms since 1970.
    /// on_missing : {"earliest", "latest"}, optional
    ///     What happens where a position does not fit the store: by default
    ///     `OffsetOutOfRangeError` or `PositionMismatchError`; "earliest" and "latest" continue at
    ///     that end of the queue.
    /// consume_timeout : float or timedelta, default 900
    ///     Seconds, or a timedelta (15 min by default): a message that was not acknowledged by then is
    ///     given again.
    /// timeout : float or timedelta, optional
    ///     Seconds, or a timedelta, after which an iteration ends without a message. None waits for
    ///     ever.
    ///
    /// Raises
    /// ------
    /// PositionMismatchError
    ///     The record before a position is another one in this store.
    /// OffsetOutOfRangeError
    ///     A position lies outside of its queue: messages expired unread, or the store lost messages.
    /// LockedError
    ///     Another consumer keeps its positions in the file.
    /// CorruptError
    ///     The file is damaged.
    /// ValueError
    ///     The file lies in the store.
    #[pyo3(
        signature = (topics, *, positions, group=None, tags=None, start=None, since=None, on_missing=None, consume_timeout=None,
            timeout=None),
        text_signature = "($self, topics, *, positions, group=None, tags=None, start='earliest', since=None, on_missing=None, \
                          consume_timeout=900, timeout=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "the arguments of a Python call")]
    fn consumer(
        &self,
        py: Python<'_>,
        topics: &Bound<'_, PyAny>,
        positions: PathBuf,
        group: Option<&str>,
        #[pyo3(from_py_with = arguments::tag_expression)] tags: Option<&str>,
        start: Option<&Bound<'_, PyAny>>,
        since: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::on_missing)] on_missing: Option<OnMissing>,
        consume_timeout: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Consumer> {
        let handle = &self.handle;
        handle.expect_open()?;
        if handle.mode() != Mode::Read {
            return Err(PyTypeError::new_err(
                "this store is open for writing, and keeps the progress of groups itself: call Writer.consumer",
            ));
        }
        let topics = topic_names(topics)?;
        // Absolute: the process may change its directory before it writes the file.
        let path =
            std::path::absolute(positions).map_err(|error| PyValueError::new_err(format!("positions names no file: {error}")))?;
        let start = to_start(start, since)?;
        let consume_timeout = to_wait(consume_timeout, "consume_timeout")?.unwrap_or(CONSUME_TIMEOUT);
        let timeout = to_wait(timeout, "timeout")?;
        let subscription = Subscription {
            topics: topics.clone(),
            tags: tags.unwrap_or("*").to_owned(),
            is_ordered: false,
            max_reconsume_times: None,
            consume_timeout,
            on_missing: on_missing.unwrap_or(OnMissing::Refuse),
        };
        let reader = up_to_date(py, handle)?;
        let lost = handle.detach(py, || lost_queues(&reader, Some(topics.clone())))?;
        warn_of_lost(py, handle.path(), &lost.names())?;
        let open = || broker::Consumer::with_positions(reader, &path, subscription, &start);
        Ok(Consumer {
            handle: Arc::clone(handle),
            member: handle.detach(py, open)?,
            begun_in: Generation::current(),
            group: group.map(str::to_owned),
            topics,
            timeout,
        })
    }
}

#[pymethods]
impl Consumer {
    /// Returns up to `max_messages` messages; waits up to `timeout` for the first one. An append
    /// ends the wait.
    ///
    /// Parameters
    /// ----------
    /// max_messages : int, default 32
    ///     The most messages to return, 1 or more.
    /// timeout : float of seconds, or timedelta, optional
    ///     The longest wait. None waits for ever.
    ///
    /// Returns
    /// -------
    /// list of Message
    ///     The messages; none when the time is over.
    ///
    /// Raises
    /// ------
    /// ValueError
    ///     An argument is not one of those accepted.
    /// OffsetOutOfRangeError
    ///     The progress of the group lies outside of a queue (`on_missing`).
    /// CorruptError
    ///     A message is damaged. A store that was opened with `errors="skip"` skips and counts it.
    /// ClosedError, PoisonedError
    ///     The store or the consumer is closed, or a write of the store has failed.
    #[pyo3(signature = (max_messages=32, timeout=None))]
    fn poll<'py>(
        &self,
        py: Python<'py>,
        max_messages: usize,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        if max_messages == 0 {
            return Err(PyValueError::new_err(
                "max_messages is 0: a poll returns at least one message",
            ));
        }
        let deadline = to_deadline(timeout)?;
        let messages = self.take(py, max_messages, deadline)?;
        PyList::new(py, messages.into_iter().map(Message::consumed))
    }

    /// Acknowledges a message, or several. Returns how many of them were in flight: a message that
    /// took longer than `consume_timeout` is not, and neither is an acknowledged message.
    fn ack(&self, py: Python<'_>, messages: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.expect_own()?;
        let messages = listed(messages)?;
        let mut topics: Vec<String> = Vec::new();
        let mut places = Vec::with_capacity(messages.len());
        for message in &messages {
            let view = message.get().bytes().view();
            if topics.last().is_none_or(|last| !view.has_topic(last)) {
                topics.push(view.topic().into_owned());
            }
            places.push((topics.len() - 1, view.queue_id(), view.queue_offset()));
        }
        let places = places
            .iter()
            .filter_map(|(topic, queue_id, offset)| Some((topics.get(*topic)?.as_str(), *queue_id, *offset)));
        // Detached: a poll of another thread may hold the group's lock and ask for the interpreter.
        Ok(py.detach(|| self.member.ack(places))?)
    }

    /// Sends a message back: the group gets it again later.
    ///
    /// Parameters
    /// ----------
    /// message : Message
    ///     The message, as a poll returned it.
    /// delay_level : int, optional
    ///     The delay level after which it comes. None: after 10 s, 30 s, 1 min and so on up to 2 h.
    ///     Negative: it becomes a dead letter at once.
    ///
    /// Returns
    /// -------
    /// bool
    ///     False if the message was not in flight.
    ///
    /// Raises
    /// ------
    /// ReadOnlyError
    ///     The store is open for reading.
    /// TypeError
    ///     `message` is no `Message`, or the consumer has no group.
    /// StoreError
    ///     As `append`: the message stays in flight.
    ///
    /// Notes
    /// -----
    /// After `max_reconsume_times` retries the message becomes a dead letter, in the topic `%DLQ%` and
    /// the name of the group. In an ordered topic it comes again after 1 s, and its queue waits.
    #[pyo3(signature = (message, delay_level=None))]
    fn nack(&self, py: Python<'_>, message: &Bound<'_, PyAny>, delay_level: Option<i32>) -> PyResult<bool> {
        self.expect_own()?;
        if self.group.is_none() && self.handle.mode() != Mode::Read {
            return Err(PyTypeError::new_err(
                "a consumer without a group has no retry topic: give a group, or handle the message again",
            ));
        }
        let message = message.cast::<Message>()?.get();
        let is_sent_back = self
            .handle
            .detach(py, || self.member.nack(&message.bytes().view(), delay_level, Instant::now()))?;
        self.handle.after_append(py, self.handle.writer()?.as_ref())?;
        Ok(is_sent_back)
    }

    /// Writes the progress of the store's groups, or the positions, to disk if `durable`. Without it
    /// they are written every 5 s, and by `close`.
    ///
    /// With a positions file raises `CorruptError` if messages were cut from the log since they were
    /// read, and `PositionMismatchError` if the store was replaced: the file keeps its positions then.
    #[pyo3(signature = (durable=false))]
    fn commit(&self, py: Python<'_>, durable: bool) -> PyResult<()> {
        self.expect_own()?;
        if durable {
            self.handle.detach(py, || self.member.commit())?;
        }
        Ok(())
    }

    /// Continues at a queue offset of a queue. What is in flight in the queue is forgotten.
    ///
    /// Parameters
    /// ----------
    /// queue_id : int
    ///     The id of the queue.
    /// offset : int
    ///     The queue offset of the message that is handed out next.
    /// topic : str, optional
    ///     The topic of the queue. It may be left out if the consumer has one topic.
    ///
    /// Raises
    /// ------
    /// TypeError
    ///     The consumer has several topics, and none is named.
    /// OffsetOutOfRangeError
    ///     The offset lies outside of the queue.
    #[pyo3(signature = (queue_id, offset, topic=None))]
    fn seek(&self, py: Python<'_>, queue_id: i32, offset: i64, topic: Option<&str>) -> PyResult<()> {
        self.expect_own()?;
        let topic = match (topic, self.topics.as_slice()) {
            (Some(topic), _) => topic,
            (None, [topic]) => topic,
            (None, _) => return Err(PyTypeError::new_err("this consumer has several topics: name one")),
        };
        Ok(py.detach(|| self.member.seek(topic, queue_id, offset))?)
    }

    /// Returns the position in each queue that this consumer reads now, as a dict of (topic, queue
    /// id) to the queue offset that is handed out next.
    fn position<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.positions(py, |position| position.next)
    }

    /// Returns the progress of the group in each queue that this consumer reads now, as a dict of
    /// (topic, queue id) to the first queue offset that is not acknowledged.
    fn committed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.positions(py, |position| position.committed)
    }

    /// Returns the number of messages in the queues of this consumer that are not acknowledged, also
    /// of those with other tags.
    fn lag(&self, py: Python<'_>) -> PyResult<i64> {
        self.expect_own()?;
        let positions = self.handle.detach(py, || self.member.positions())?;
        Ok(positions
            .iter()
            .map(|position| (position.queue.end - position.committed).max(0))
            .sum())
    }

    /// Pauses these queues, pairs of (topic, queue id), by default all that this consumer reads now:
    /// `poll` returns no new message of them. They stay assigned to this consumer.
    #[pyo3(signature = (queues=None))]
    fn pause(&self, py: Python<'_>, queues: Option<Vec<(String, i32)>>) -> PyResult<()> {
        self.expect_own()?;
        let queues = if let Some(queues) = queues {
            queues
        } else {
            let positions = self.handle.detach(py, || self.member.positions())?;
            let named = positions.into_iter();
            named.map(|position| (position.topic, position.queue_id)).collect()
        };
        self.member.pause(queues);
        Ok(())
    }

    /// Continues these queues, by default all that are paused.
    #[pyo3(signature = (queues=None))]
    fn resume(&self, queues: Option<Vec<(String, i32)>>) -> PyResult<()> {
        self.expect_own()?;
        self.member.resume(queues.unwrap_or_else(|| self.member.paused()));
        Ok(())
    }

    /// Number of lost or damaged messages that the group has skipped, with errors="skip".
    #[getter]
    fn skipped(&self) -> u64 {
        self.member.skipped()
    }

    /// Name of the group; None for a consumer that reads every message for itself.
    #[getter]
    fn group(&self) -> Option<&str> {
        self.group.as_deref()
    }

    /// The topics, ascending.
    #[getter]
    fn topics(&self) -> Vec<String> {
        self.topics.clone()
    }

    /// Leaves the group, and makes its progress durable. The other consumers of the group get what
    /// this one has in flight. A second call does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        // The positions file is not part of the store, which may be closed first.
        if self.member.is_closed() || (self.handle.is_closed() && self.handle.mode() != Mode::Read) {
            return Ok(());
        }
        self.handle.expect_own_process()?;
        self.expect_not_forked()?;
        let close = || self.member.close();
        Ok(if self.handle.is_closed() {
            py.detach(close)
        } else {
            self.handle.detach(py, close)
        }?)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(py)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        let deadline = self.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let taken = self.take(py, 1, deadline)?;
        Ok(taken.into_iter().next().map(Message::consumed))
    }

    #[expect(clippy::unused_self, reason = "Python calls it on the object")]
    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a consumer does not pickle: it belongs to the process that made it",
        ))
    }

    fn __repr__(&self) -> String {
        let group = self
            .group
            .as_ref()
            .map_or_else(|| "None".to_owned(), |group| format!("{group:?}"));
        format!("<mqstore.Consumer group={group} topics={:?}>", self.topics)
    }
}

impl Consumer {
    /// Refuses a consumer that is closed, of a closed store, and of a process that this one was forked from.
    fn expect_own(&self) -> PyResult<()> {
        self.handle.expect_open()?;
        self.handle.expect_own_process()?;
        self.expect_not_forked()?;
        if self.member.is_closed() { Err(left()) } else { Ok(()) }
    }

    /// Refuses a consumer with a positions file in a fork of its process, which has the lock.
    fn expect_not_forked(&self) -> PyResult<()> {
        if self.begun_in == Generation::current() {
            return Ok(());
        }
        Err(ClosedError::new_err(
            "the consumer belongs to the process that this one was forked from: make one here, with another positions file",
        ))
    }

    fn take(&self, py: Python<'_>, most: usize, deadline: Option<Instant>) -> PyResult<Vec<StoredMessage>> {
        self.expect_own()?;
        let taken = self.handle.detach(py, || self.member.poll(most, deadline));
        match taken {
            // A close of the store ends a poll that waits.
            Err(Error::Closed) => {
                self.handle.expect_open()?;
                Err(left())
            }
            taken => Ok(taken?),
        }
    }

    fn positions<'py>(&self, py: Python<'py>, value: fn(&broker::QueuePosition) -> i64) -> PyResult<Bound<'py, PyDict>> {
        self.expect_own()?;
        let positions = self.handle.detach(py, || self.member.positions())?;
        let shown = PyDict::new(py);
        for position in positions {
            shown.set_item((&position.topic, position.queue_id), value(&position))?;
        }
        Ok(shown)
    }
}

/// Converts the topics of a consumer, ascending.
fn topic_names(topics: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let mut topics = texts(topics, "topics")?;
    topics.sort();
    topics.dedup();
    if topics.is_empty() {
        return Err(PyValueError::new_err("topics names no topic"));
    }
    Ok(topics)
}

fn left() -> PyErr {
    ClosedError::new_err("the consumer is closed: it has left its group")
}

fn to_start(start: Option<&Bound<'_, PyAny>>, since: Option<&Bound<'_, PyAny>>) -> PyResult<Start> {
    if start.is_none() && since.is_none() {
        return Ok(Start::Earliest);
    }
    let from = beginning(start, since, |start| {
        let Some(items) = arguments::items_of_mapping(start)? else {
            return Err(PyTypeError::new_err(
                "start is \"earliest\", \"latest\" or a mapping of (topic, queue id) to a queue offset; since takes a time",
            ));
        };
        Ok(FollowFrom::Offsets(queue_offsets(start, items)?, OnMissing::Refuse))
    })?;
    Ok(match from {
        FollowFrom::Latest => Start::Latest,
        FollowFrom::Time(ms) => Start::Time(ms),
        FollowFrom::Offsets(offsets, _) => Start::Offsets(offsets.into_iter().collect()),
        FollowFrom::Earliest => Start::Earliest,
    })
}
