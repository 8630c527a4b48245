//! `BrokerState`: the settings and positions that the broker of a store keeps beside its messages.
#![expect(clippy::doc_markdown, reason = "docstrings in numpy's style")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::arguments;
use super::handle::{Freshness, Handle};
use super::imports;
use super::message::listed;
use super::record_batch::RecordBatch;
use super::reports;
use super::time::to_ms;
use super::topic::Topic;
use super::warnings::warn;
use crate::arrow;
use crate::broker::{BrokerController, Start, TimerBacklog, TimerFate, next_removal};
use crate::config::Errors;
use crate::error::{Error, Result};
use crate::format::{Round, TIMER_TOPIC};
use crate::log::BrokerSettings;
use crate::read::{self, DelayBacklog, GroupOffset, GroupState, MessageReader};

/// The settings and positions that the broker of a store keeps in `config/`: `Store.broker` is one.
#[pyclass(frozen, module = "mqstore")]
pub(super) struct BrokerState {
    handle: Arc<Handle>,
    /// The `Store` or `Writer` that it belongs to.
    store: Py<PyAny>,
}

/// A question about settings, to a reader and, if this process writes the store, to its broker.
type Question<T> = fn(&MessageReader, Option<&BrokerController>) -> Result<BrokerSettings<Vec<T>>>;

impl BrokerState {
    pub(super) fn new(handle: Arc<Handle>, store: Py<PyAny>) -> Self {
        Self { handle, store }
    }

    /// Returns the open store.
    pub(super) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// Answers a question about the broker's settings, and warns if the answer may be out of date.
    fn settings<T>(
        &self,
        py: Python<'_>,
        ask: Question<T>,
        batch: fn(&[T]) -> Result<arrow_array::RecordBatch>,
    ) -> PyResult<RecordBatch> {
        let reader = self.handle.reader(py, Freshness::Queues)?;
        let broker = self.handle.own_broker()?;
        let (batch, doubts) = self.handle.detach(py, || {
            let settings = ask(&reader, broker.as_deref())?;
            Ok::<_, Error>((batch(&settings.content)?, settings.doubts))
        })?;
        for doubt in doubts {
            warn(py, &doubt)?;
        }
        Ok(RecordBatch(batch))
    }

    /// Returns the broker's work on a store that is open for writing.
    ///
    /// # Errors
    /// `ClosedError`; `TypeError` for a store that is open for reading.
    fn writing(&self, call: &str) -> PyResult<Arc<BrokerController>> {
        self.handle.own_broker()?.ok_or_else(|| {
            PyTypeError::new_err(format!(
                "{call} needs a store that is open for writing: open it with mode=\"a\""
            ))
        })
    }
}

/// Returns the progress of groups: in the process that writes the store as it is now.
fn offsets(reader: &MessageReader, broker: Option<&BrokerController>) -> Result<BrokerSettings<Vec<GroupOffset>>> {
    broker.map_or_else(|| reader.consumer_offsets(), BrokerController::consumer_offsets)
}

/// Returns the state of groups: in the process that writes the store as it is now.
fn states(reader: &MessageReader, broker: Option<&BrokerController>) -> Result<BrokerSettings<Vec<GroupState>>> {
    match broker {
        Some(broker) => broker.group_states(),
        None => reader.group_states(reader.lag_of(offsets(reader, None)?)?),
    }
}

/// Returns the delayed messages that wait. Without any progress nothing was delivered.
fn delay_backlog(reader: &MessageReader, broker: Option<&BrokerController>) -> Result<BrokerSettings<Vec<DelayBacklog>>> {
    let none = |content| BrokerSettings {
        content,
        doubts: Vec::new(),
    };
    let own = broker.map_or(Ok(None), BrokerController::delay_offsets)?;
    let progress = match own.map_or_else(|| reader.delay_offsets(), |own| Ok(none(own))) {
        Err(Error::NotFound { .. }) => none(Vec::new()),
        known => known?,
    };
    Ok(BrokerSettings {
        content: read::delay_backlog(reader, &progress.content)?,
        doubts: progress.doubts,
    })
}

#[pymethods]
impl BrokerState {
    /// Returns the positions of the groups of consumers, as the broker of the store has written
    /// them to `config/consumerOffset.json` (every 5 s; in the process that writes the store those of
    /// its groups are as they are now) and, with light queues, to
    /// `config/lmqConsumerOffset.json`. A row a queue, ascending: `group` (utf8), `topic` (utf8),
    /// `queue_id` (int32), `offset` (int64: the queue offset of the message that the group gets
    /// next). Where names have an `@` in them, the topic is one of the store.
    ///
    /// If a file is missing, empty or damaged, its `.bak` is read, as by a broker, with a
    /// `RuntimeWarning`. Another one warns if the broker may keep newer offsets in another file.
    /// Raises `NotFoundError` if there is no file, `CorruptError` if none can be used,
    /// `UnsupportedFormatError` if the broker keeps the offsets in RocksDB alone.
    fn consumer_offsets(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        self.settings(py, offsets, arrow::consumer_offsets)
    }

    /// Returns the number of messages that each group of consumers has not consumed yet. A row for
    /// each queue of each topic that the group has consumed from, ascending: `group`, `topic`,
    /// `queue_id` and `offset` as in `consumer_offsets`, `offset` null where the broker has none;
    /// `min_offset` and `max_offset` (int64) of the queue; `lag` (int64): messages of the queue
    /// that the group has not consumed, all of them without an offset. The last three are null
    /// where the queue is not a file of this format (RocksDB, batch consume queue). With an `offset`
    /// below `min_offset` messages have expired unread; one above `max_offset` comes from another
    /// store, or messages were lost.
    ///
    /// Warns and raises as `consumer_offsets`.
    fn lag(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        self.settings(py, |reader, broker| reader.lag_of(offsets(reader, broker)?), arrow::lags)
    }

    /// Returns the state of the groups of consumers in their queues, a row each, ascending: `group`,
    /// `topic`, `queue_id`, `offset`, `min_offset`, `max_offset` and `lag` as in `lag`;
    /// `unconsumed_since` (timestamp[us, UTC]): the store time of the first message that the group has
    /// not consumed, null without a lag and where that message is damaged or lost; `consumers` (int32):
    /// consumers of the group in this process, and `in_flight` (int64): messages that they have got and
    /// not acknowledged, both null unless this process writes the store. Reads a message for each queue
    /// with a lag.
    ///
    /// Warns and raises as `consumer_offsets`.
    fn groups(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        self.settings(py, states, arrow::groups)
    }

    /// Returns the dead letters of a group, which its consumers failed on too often: the `Topic`
    /// `%DLQ%` and the name of the group, empty without dead letters.
    #[pyo3(signature = (group))]
    fn dead_letters<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::name)] group: &str,
    ) -> PyResult<Bound<'py, Topic>> {
        self.handle.expect_open()?;
        Topic::new(py, self.handle.clone(), format!("%DLQ%{group}"))
    }

    /// Returns the segment that retention removes next, and when: a `NextRemoval`. None if the options
    /// of this open keep all, and in a writer whose `services` do not run.
    ///
    /// A reader goes by its own options, because it does not know those of the process that writes the
    /// store: `open(path, config=StoreConfig.from_broker_conf(file), geometry=None)` has those of a
    /// broker. It reads the newest segment, and the oldest one where its age is near the limit.
    ///
    /// Raises `CorruptError` if a settings file with the progress of groups is damaged, or if the
    /// removal waits for a group whose progress is lost, and `StoreIOError` for what the system
    /// refuses, such as the use of the disk.
    fn next_removal<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let reader = self.handle.reader(py, Freshness::Queues)?;
        let broker = self.handle.own_broker()?;
        let removal = self.handle.detach(py, || match broker {
            Some(broker) => Ok(broker.clean_stats(Instant::now())?.map(|stats| stats.removal)),
            None => next_removal(&reader, reader.config()),
        })?;
        removal.map(|removal| reports::next_removal(py, &removal)).transpose()
    }

    /// Returns the trace of a message: each record of it in the log, from its append on, and what
    /// became of it. A `Trace`.
    ///
    /// `id` is the unique key of the message, or the offset id of one of its records. Reads the index in
    /// each topic, and the log once where the index or queues are not whole. Without a unique key the
    /// trace has what groups have sent back, for which the log is read from the message on, and not the
    /// copies of a delayed message.
    ///
    /// Raises `NotFoundError` if no record of the log has the id.
    #[pyo3(signature = (id))]
    fn trace<'py>(&self, py: Python<'py>, #[pyo3(from_py_with = arguments::name)] id: &str) -> PyResult<Bound<'py, PyAny>> {
        self.handle.expect_open()?;
        imports::call(py, "mqstore._trace", "trace_of", (&self.store, id), None)
    }

    /// Appends dead letters of a group again to the topics that they came from, as their producer
    /// would: without the properties of the retries, and as if no consumer had failed. The queues of a
    /// topic take turns.
    ///
    /// Parameters
    /// ----------
    /// group : str
    ///     The name of the group.
    /// messages : Message or iterable of Message, optional
    ///     The letters. None: those that were not sent again before; the group has progress in its dead
    ///     letters, which then passes them and is durable. After a crash within the call some come
    ///     twice.
    /// errors : {"raise", "skip"}, optional
    ///     What to do at a letter that was lost or is damaged. None: as in `open`. "skip" passes it,
    ///     and the report names it.
    ///
    /// Returns
    /// -------
    /// ResendReport
    ///     The letters that were sent, and those that were not.
    ///
    /// Raises
    /// ------
    /// TypeError
    ///     The store is open for reading.
    /// ValueError
    ///     A message is not a dead letter of the group.
    /// CorruptError
    ///     A letter is damaged (`errors`). The letters before it were sent.
    /// StoreError
    ///     As `append`: the letters before it were sent.
    #[pyo3(signature = (group, messages=None, *, errors=None))]
    fn resend<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::name)] group: &str,
        messages: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = arguments::errors)] errors: Option<Errors>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let messages = messages.map(listed).transpose()?;
        let broker = self.writing("resend")?;
        let errors = errors.unwrap_or(self.handle.current_reader(py)?.config().errors);
        let views: Option<Vec<_>> = messages
            .as_ref()
            .map(|messages| messages.iter().map(|message| message.get().bytes().view()).collect());
        reports::resend_report(
            py,
            &self.handle.detach(py, || broker.resend(group, views.as_deref(), errors))?,
        )
    }

    /// Hands the timers that wait (`append(deliver_at=)`) over to a broker, durably, and returns their
    /// number. Call it before a broker of 5.x starts on the store.
    ///
    /// Each is appended again at the end of `rmq_sys_wheel_timer`, as a broker does it every two days,
    /// `config/timercheck` names the first of them, and the timer wheel of an earlier broker is
    /// removed: a broker that starts after the close of the store delivers each once. This writer
    /// delivers no timer any more: those that are appended from now on wait for the broker, too. The
    /// next writer delivers again, each once. After an error the delivery continues, and a later call
    /// hands over the rest. A second call returns 0.
    ///
    /// Warns if timers were skipped: lost, damaged, or without a topic. Delayed messages and
    /// transactions need no hand-over: a close persists their progress.
    ///
    /// Raises `ValueError` in a writer that delivers no timers (`services`), `TypeError` if the store is
    /// open for reading, `DiskFullError` and `StoreIOError` as `append`.
    fn hand_over(&self, py: Python<'_>) -> PyResult<u64> {
        let broker = self.writing("hand_over")?;
        // Those that were appended before the call are in their queue.
        self.handle.reader(py, Freshness::Queues)?;
        let report = self.handle.detach(py, || broker.hand_over())?;
        if report.passed_over > 0 {
            let count = report.passed_over;
            warn(
                py,
                &format!(
                    "{count} timers were not handed over: they are lost or damaged, or name no topic, so that nobody can deliver them"
                ),
            )?;
        }
        Ok(report.timers)
    }

    /// Recalls a timer: it is not delivered. Appends a recall as a broker of 5.3.2 or later does, which
    /// this writer and brokers from 5.3.2 on honour. A recall of what does not wait any more has no
    /// effect.
    ///
    /// Parameters
    /// ----------
    /// timer : `AppendResult`, `Message` or str
    ///     The result of `append(deliver_at=..., unique_key=...)`, the message that waits in
    ///     `rmq_sys_wheel_timer`, or the recall handle that a broker has given to its producer. The
    ///     unique key may not be missing.
    /// durable : bool, optional
    ///     As in `append`.
    ///
    /// Returns
    /// -------
    /// AppendResult
    ///     The offsets and the status of the recall in `rmq_sys_wheel_timer`.
    ///
    /// Raises
    /// ------
    /// TypeError
    ///     The store is open for reading.
    /// ValueError
    ///     It is neither a handle nor a timer with a unique key.
    /// IllegalMessageError
    ///     The time of delivery has passed.
    /// StoreError
    ///     As `append`.
    #[pyo3(signature = (timer, *, durable=None))]
    fn recall<'py>(&self, py: Python<'py>, timer: &Bound<'py, PyAny>, durable: Option<bool>) -> PyResult<Bound<'py, PyAny>> {
        self.writing("recall")?;
        imports::call(py, "mqstore._timers", "recall", (&self.store, timer, durable), None)
    }

    /// Moves the next offset of a group in each queue of a topic, durably.
    ///
    /// Parameters
    /// ----------
    /// group : str
    ///     The name of the group.
    /// topic : str
    ///     The topic.
    /// to : {"earliest", "latest"}, datetime with a timezone, or int of ms since 1970
    ///     The first message, the end of the queue, or the first message that was stored then or later.
    ///
    /// Returns
    /// -------
    /// dict of int to int
    ///     For each queue id the queue offset of the message that the group gets next.
    ///
    /// Raises
    /// ------
    /// TypeError, ValueError
    ///     The store is open for reading, or `to` is not one of those accepted.
    /// NotFoundError
    ///     The topic has no queues.
    /// CorruptError
    ///     `config/consumerOffset.json` cannot be read.
    ///
    /// Notes
    /// -----
    /// The consumers of the group in this process continue there; what they have in flight is
    /// forgotten, and an `ack` of it returns 0.
    fn reset(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::name)] group: &str,
        #[pyo3(from_py_with = arguments::name)] topic: &str,
        to: &Bound<'_, PyAny>,
    ) -> PyResult<BTreeMap<i32, i64>> {
        let to = to_start(to)?;
        let broker = self.writing("reset")?;
        Ok(self.handle.detach(py, || broker.reset(group, topic, &to))?)
    }

    /// Deletes a group of consumers, durably: its positions and its settings. Messages are then no longer
    /// kept for it (`trim`, `retain_unconsumed`). Its retry messages and dead letters stay, and a
    /// consumer of this name begins as one of a new group.
    ///
    /// Raises `ValueError` while consumers of the group are open in this process, and for
    /// `CID_RMQ_SYS_TRANS`; `NotFoundError` for an unknown group, `TypeError` if the store is open for
    /// reading, `CorruptError` where the settings cannot be read.
    fn delete_group(&self, py: Python<'_>, #[pyo3(from_py_with = arguments::name)] group: &str) -> PyResult<()> {
        let broker = self.writing("delete_group")?;
        Ok(self.handle.detach(py, || broker.delete_group(group))?)
    }

    /// Returns the topics in the settings of the broker of the store (`config/topics.json`), with
    /// messages or without, a row each, ascending: `topic` (utf8), `read_queue_nums` and
    /// `write_queue_nums` (int32), `perm` (int32: 4 to read, 2 to write, 1 a model for new topics),
    /// `topic_filter_type` (utf8), `topic_sys_flag` (int32), `order` (bool), `attributes` (map of
    /// utf8 to utf8, since 5.x). A value that is absent in the file is null.
    ///
    /// Warns and raises as `consumer_offsets`.
    fn topic_configs(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        self.settings(py, |reader, _| reader.topic_configs(), arrow::topic_configs)
    }

    /// Returns the consumer groups in the settings of the broker of the store
    /// (`config/subscriptionGroup.json`), a row each, ascending: `group` (utf8), `consume_enable`,
    /// `consume_broadcast_enable` and `consume_message_orderly` (bool), `retry_queue_nums`,
    /// `retry_max_times` (retries after which a message is a dead letter) and
    /// `consume_timeout_minute` (int32). A value that is absent in the file is null.
    ///
    /// Warns and raises as `consumer_offsets`.
    fn group_configs(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        self.settings(py, |reader, _| reader.subscription_groups(), arrow::subscription_groups)
    }

    /// Returns the positions of the delivery of delayed messages (`config/delayOffset.json`, every
    /// 10 s), a row a level, ascending: `level` (int32), `offset` (int64: the queue offset of the
    /// message that is delivered next, in queue `level - 1` of `SCHEDULE_TOPIC_XXXX`). A writer
    /// that delivers them itself returns its own progress, which is newer than the file.
    ///
    /// Warns and raises as `consumer_offsets`.
    fn delay_offsets(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        if let Some(offsets) = self.handle.own_delay_offsets()? {
            return Ok(RecordBatch(arrow::delay_offsets(&offsets)?));
        }
        self.settings(py, |reader, _| reader.delay_offsets(), arrow::delay_offsets)
    }

    /// Returns the delayed messages that wait for their delivery, a row for each level with a queue,
    /// ascending: `level` (int32), `offset` (int64: the queue offset of the message that is delivered
    /// next, in queue `level - 1` of `SCHEDULE_TOPIC_XXXX`), `waiting` (int64): messages from there on,
    /// `next_due` (timestamp[us, UTC]): the time at which the next one is due, null without one and
    /// where its queue entry is damaged or lost, `overdue` (int64): messages that were due before now.
    /// No message is read. The progress is that of `delay_offsets`; in a store without any, all
    /// messages wait.
    ///
    /// Warns as `consumer_offsets`. Raises `CorruptError` and `UnsupportedFormatError` as it does.
    fn delay_backlog(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        self.settings(py, delay_backlog, arrow::delay_backlog)
    }

    fn __repr__(&self) -> String {
        format!("<mqstore.BrokerState of \"{}\">", self.handle.path().display())
    }
}

/// The number of timers that wait, that a broker may have delivered, and that are lost or damaged; the fate of one.
type Timers = (i64, i64, u64, Option<&'static str>);

/// Returns the number of timers that wait, of those that a broker may have delivered, and of those that were found to be lost or
/// damaged, and for a queue offset the fate of that timer or recall in one word.
#[pyfunction(name = "_timers")]
#[pyo3(signature = (broker, queue_offset=None))]
pub(super) fn timers(py: Python<'_>, broker: &BrokerState, queue_offset: Option<i64>) -> PyResult<Timers> {
    let reader = broker.handle.reader(py, Freshness::Queues)?;
    let own = broker.handle.own_broker()?;
    let (backlog, end, fate) = broker.handle.detach(py, || {
        let backlog = own.map_or_else(|| TimerBacklog::read(&reader), |own| own.timer_backlog())?;
        let fate = queue_offset.map(|offset| backlog.fate(&reader, offset)).transpose()?;
        Ok::<_, Error>((backlog, reader.queue_bounds(TIMER_TOPIC, 0)?.end, fate))
    })?;
    let fate = fate.map(|fate| match fate {
        TimerFate::Waiting => "waiting",
        TimerFate::Recalled => "recalled",
        TimerFate::Done => "done",
        TimerFate::Unknown => "unknown",
    });
    Ok((backlog.waiting(end), backlog.unknown(), backlog.damaged, fate))
}

/// Converts the offset that a group is moved to.
fn to_start(to: &Bound<'_, PyAny>) -> PyResult<Start> {
    if !to.is_instance_of::<PyString>() {
        return Ok(Start::Time(to_ms(to, "to", Round::Down)?));
    }
    match to.extract::<&str>()? {
        "earliest" => Ok(Start::Earliest),
        "latest" => Ok(Start::Latest),
        other => Err(PyValueError::new_err(format!(
            "to is {other:?}: expected \"earliest\", \"latest\" or a time"
        ))),
    }
}
