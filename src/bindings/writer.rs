//! `Writer`: appends and durability. Files outside of a store are handled in Python.
#![expect(clippy::doc_markdown, reason = "docstrings in numpy's style")]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDelta, PyDict, PyTuple};

use super::append::{self, AppendOptions, BatchOptions, wait};
use super::append_result::{self, AppendResult};
use super::arguments;
use super::batches::Batches;
use super::buffer::Offsets;
use super::fields::{self, MessageArguments, PropertyArguments};
use super::handle::Handle;
use super::imports;
use super::record_batch::RecordBatch;
use super::reports;
use super::store::{Store, in_python};
use super::time::{delta_ms, now_ms, to_datetime, to_ms};
use crate::arrow::{self, Defaults};
use crate::broker::TopicSettings;
use crate::format::{MessageType, Round};
use crate::ha::{Master, SettingsServer};
use crate::store::{Copier, MessageStore, QueueChoice, TrimTo};

/// Messages by topic in the copy, bytes of their records, messages left out by topic, and how many got a later store time.
type Copied = (BTreeMap<String, u64>, u64, BTreeMap<String, u64>, u64);

/// A message store that is open for writing: `mqstore.open(path, "a")` makes one. A context manager.
///
/// It reads as a `Store` does. A read sees every append that returned before it: it waits the
/// moment until what was appended is in its queue, a sync included. With `SYNC_FLUSH` a message is
/// read once it is durable: after `append` with `durable=False` that is a moment later, or
/// after `wait_durable`. A read waits no longer than 100 ms for queue files that cannot be written,
/// and then answers with what is there and warns (`RuntimeWarning`).
///
/// Close it (or use `with`): what it appended is then durable, and the next writer opens the store.
/// A `Writer`, and what it returned (topics, queues, slices), is not pickled: that raises
/// `TypeError`. In a fork its calls raise `ClosedError`: the child opens the store for itself, with
/// mode "r".
///
/// Once a write or sync has failed, calls that write raise `PoisonedError`.
#[pyclass(frozen, extends = Store, module = "mqstore")]
pub(super) struct Writer {
    handle: Arc<Handle>,
    /// Returns the event loop that the futures of this object are for. `None` where they are for threads.
    running_loop: Option<Py<PyAny>>,
}

impl Writer {
    pub(super) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// Makes the Python object of a store that is open for writing.
    pub(super) fn of(py: Python<'_>, handle: Arc<Handle>, running_loop: Option<Py<PyAny>>) -> PyResult<Bound<'_, Self>> {
        let store = Store { handle: handle.clone() };
        Bound::new(
            py,
            PyClassInitializer::from(store).add_subclass(Self { handle, running_loop }),
        )
    }
}

/// Makes a method of `Writer` that takes the arguments of one message, and passes the message and `durable` to a function.
macro_rules! takes_message {
    ($(#[$($text:tt)*])* $name:ident -> $returned:ty { $append:expr }) => {
        #[pymethods]
        impl Writer {
            $(#[$($text)*])*
            #[pyo3(signature = (topic, body, *, tags=None, keys=None, properties=None, queue_id=None, sharding_key=None,
                delay_level=0, deliver_at=None, unique_key=None, born_time=None, born_host=None, store_host=None, flag=0, sys_flag=0, reconsume_times=0,
                prepared_transaction_offset=0, durable=None))]
            fn $name<'py>(
                &self,
                py: Python<'py>,
                #[pyo3(from_py_with = arguments::topic)] topic: &str,
                body: &Bound<'py, PyAny>,
                #[pyo3(from_py_with = arguments::tags)] tags: Option<&str>,
                keys: Option<&Bound<'py, PyAny>>,
                properties: Option<&Bound<'py, PyAny>>,
                #[pyo3(from_py_with = arguments::queue_choice)] queue_id: Option<QueueChoice<'static>>,
                #[pyo3(from_py_with = arguments::sharding_key)] sharding_key: Option<&str>,
                #[pyo3(from_py_with = arguments::delay_level)] delay_level: i32,
                #[pyo3(from_py_with = fields::deliver_at)] deliver_at: Option<i64>,
                #[pyo3(from_py_with = arguments::unique_key)] unique_key: Option<&str>,
                #[pyo3(from_py_with = fields::born_time)] born_time: Option<i64>,
                #[pyo3(from_py_with = arguments::born_host)] born_host: Option<&str>,
                #[pyo3(from_py_with = arguments::store_host)] store_host: Option<&str>,
                #[pyo3(from_py_with = arguments::flag)] flag: i32,
                #[pyo3(from_py_with = arguments::sys_flag)] sys_flag: i32,
                #[pyo3(from_py_with = arguments::reconsume_times)] reconsume_times: i32,
                #[pyo3(from_py_with = arguments::prepared_transaction_offset)] prepared_transaction_offset: i64,
                #[pyo3(from_py_with = arguments::durable)] durable: Option<bool>,
            ) -> PyResult<$returned> {
                self.handle.expect_open()?;
                let queue = QueueChoice::of(queue_id, sharding_key)?;
                let message = MessageArguments {
                    topic: topic.into(),
                    body: fields::body(body.as_borrowed())?,
                    properties: PropertyArguments {
                        unique_key,
                        sharding_key,
                        tags,
                        keys,
                        properties,
                        delay_level,
                        deliver_at,
                    },
                    queue_id: 0,
                    born_time: born_time.unwrap_or_else(now_ms),
                    born_host,
                    store_host,
                    flag,
                    sys_flag,
                    reconsume_times,
                    prepared_transaction_offset,
                };
                ($append)(self, py, message.message()?, AppendOptions { queue, durable })
            }
        }
    };
}

takes_message! {
    /// Appends one message. It survives the death of the process when the call returns, and a power failure
    /// once it is durable.
    ///
    /// Parameters
    /// ----------
    /// topic : str
    ///     1 to 255 bytes of UTF-8, without a slash or control character. More than 127 bytes make a record
    ///     at which brokers before 5.1 end their log.
    /// body : bytes or a buffer of bytes
    ///     The body, stored as it is. A buffer is copied first.
    /// tags : str, optional
    ///     One tag. "paid || refund" is an expression for `get`, and no expression matches such a tag.
    /// keys : str or iterable of str, optional
    ///     The keys by which `query` finds the message; a key holds no space.
    /// properties : mapping or iterable of pairs, of str to str, optional
    ///     All properties, TAGS, KEYS and DELAY included. An argument wins over the property of the same
    ///     name.
    /// queue_id : int or "next", default 0
    ///     The id of the queue, 0 to 65,535. With "next" the queues of a created topic take turns.
    /// sharding_key : str, optional
    ///     Chooses the queue of a created topic (`create_topic`), as RocketMQ's `SelectMessageQueueByHash`
    ///     does: messages with one key are in one queue, in their order. It is stored (`__SHARDINGKEY`).
    /// delay_level : int, default 0
    ///     1 or more delays the message: it waits in the queue of that level until this writer (see the
    ///     option `services`) or a broker delivers it. A level above the last one counts as the last.
    ///     `AppendResult` has its offsets there.
    /// deliver_at : datetime with a timezone, timedelta, or int of ms since 1970, optional
    ///     The time from which on the topic has the message, rounded up to ms, or the delay from now on. It
    ///     waits in a topic for all such messages until this writer (see the option `services`) or a broker
    ///     of 5.x delivers it, at most `timer_max_delay_sec` from now. A past time is not a delay.
    ///     `AppendResult` has its offsets there.
    /// unique_key : str, optional
    ///     The property UNIQ_KEY; `mqstore.new_unique_key` makes one. None: the message has none.
    /// born_time : datetime with a timezone, or int of ms since 1970, optional
    ///     The time of the producer. None: now.
    /// born_host, store_host : str, default "127.0.0.1:0"
    ///     The hosts of the producer and of the broker, "ip:port", an IPv6 address in brackets.
    /// flag : int, default 0
    ///     A number for the application.
    /// sys_flag : int, default 0
    ///     RocketMQ's bit field (a compressed body, the type of a transaction). Its two address bits follow
    ///     the hosts.
    /// reconsume_times : int, default 0
    ///     How often a consumer group has failed on the message.
    /// prepared_transaction_offset : int, default 0
    ///     The physical offset of the half message that this one ends.
    /// durable : bool, optional
    ///     True: the call returns when the message is durable; calls that wait at the same time share a
    ///     sync. False: it becomes durable later (with `SYNC_FLUSH` it is synced at once). None: as
    ///     `flush_disk_type` says; with `SYNC_FLUSH` a message whose property WAIT is not "true" is not
    ///     waited for.
    ///
    /// Returns
    /// -------
    /// AppendResult
    ///     The offsets of the message. Its `status` is `FLUSH_DISK_TIMEOUT` if the message was not durable
    ///     when `sync_flush_timeout` was over.
    ///
    /// Raises
    /// ------
    /// IllegalMessageError
    ///     No store takes the message; a `ValueError`.
    /// ClosedError, PoisonedError, DiskFullError, BusyError
    ///     The store cannot take it now. `status` has RocketMQ's word. Nothing was stored and `stored` is
    ///     0, unless `status` is `FLUSH_DISK_TIMEOUT`: the message was stored, could not be made durable,
    ///     and may be there after a reopen or not. `stored` is then 1, also if Ctrl-C ended the wait.
    ///
    /// Notes
    /// -----
    /// Where appended messages wait in memory (`transient_store_pool_enable`, `SYNC_FLUSH`), a message
    /// survives the death of the process once `committed_offset` is past it.
    append -> AppendResult { |store: &Self, py, message, how| append::one(py, &store.handle, message, how) }
}

takes_message! {
    /// Appends a message as `append` does, without a wait until it is durable.
    ///
    /// Parameters
    /// ----------
    /// topic, body, queue_id, sharding_key
    ///     The message and its queue, as in `append`.
    /// tags, keys, properties, unique_key
    ///     Its properties, as in `append`.
    /// delay_level, deliver_at
    ///     Its delay, as in `append`.
    /// born_time, born_host, store_host
    ///     Its origin, as in `append`.
    /// flag, sys_flag, reconsume_times, prepared_transaction_offset
    ///     Its other fields, as in `append`.
    /// durable : bool, optional
    ///     As in `append`: True, and None with `SYNC_FLUSH`, complete the future when the message is
    ///     durable.
    ///
    /// Returns
    /// -------
    /// concurrent.futures.Future of AppendResult
    ///     The message is stored when the call returns. The future is done when `append` would have
    ///     returned. It raises `PoisonedError`, or `ClosedError` where the close failed, for a message that
    ///     was stored and could not be made durable; `status` is then `FLUSH_DISK_TIMEOUT`, and `stored` 1.
    ///
    /// Raises
    /// ------
    /// StoreError
    ///     As `append`: nothing was stored.
    /// RuntimeError
    ///     No thread can be started.
    ///
    /// Notes
    /// -----
    /// Thousands of messages may wait at the same time, and one sync is for all of them. A thread of the
    /// store completes the futures in the order of the calls, and runs their callbacks. `close` completes
    /// all of them. `cancel` of such a future returns False: the message stays. In a fork of the process no
    /// future is completed. A future costs more than the append: where one caller has many messages,
    /// `append` for each and one `wait_durable` for the last takes a tenth of the time.
    append_nowait -> Bound<'py, PyAny> { |store: &Self, py, message, how| {
        append::nowait(py, &store.handle, message, how, store.running_loop.as_ref())
    } }
}

#[pymethods]
impl Writer {
    #[new]
    #[pyo3(signature = (*_arguments, **_options))]
    fn new_by_hand(_arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> PyResult<PyClassInitializer<Self>> {
        Err(PyTypeError::new_err(
            "a Writer is not made by its class: mqstore.open(path, \"a\") opens one",
        ))
    }

    /// Returns this store for the tasks of event loops. Its `append_nowait` returns the result itself
    /// where nothing is waited for. Where it and `_durable` return a future, that is one of the loop
    /// that `running_loop` returns.
    fn _in_loops<'py>(&self, py: Python<'py>, running_loop: Py<PyAny>) -> PyResult<Bound<'py, Self>> {
        Self::of(py, self.handle.clone(), Some(running_loop))
    }

    /// Appends messages in order, in one call.
    ///
    /// Parameters
    /// ----------
    /// rows : iterable, or anything that speaks Arrow
    ///     An item is a body (bytes or a buffer), a tuple (topic, body, tags, keys, properties, `queue_id`;
    ///     the last four may be left out), a dict of a message's fields (`Message.to_dict`), or a
    ///     `Message`. A table, frame or batch has the columns below.
    /// topic : str, optional
    ///     The topic of rows that name none.
    /// queue_id : int or "next", optional
    ///     The queue id of rows that name none; None is 0. With "next" they take turns. A column or field
    ///     `sharding_key` chooses the queue instead, as in `append`.
    /// one_segment : bool, default False
    ///     True stores all rows or none, one after the other in one segment, as a broker stores a
    ///     producer's batch; other appends wait. A crash before the call returns, and a power failure
    ///     before the rows are durable, may still keep a first part of them.
    /// durable : bool, optional
    ///     As in `append`, for all rows at once: if one row is waited for, all are.
    ///
    /// Returns
    /// -------
    /// Offsets
    ///     The physical offsets, a row each, which `fetch` takes as a column `physical_offset`.
    ///
    /// Raises
    /// ------
    /// StoreError
    ///     As `append`. Every row is checked before the first byte is written; an error about a row names
    ///     its position. Where a write fails midway, `stored` says how many rows, from the first, were
    ///     stored, and `offsets` where; also of what a signal handler raises, such as `KeyboardInterrupt`.
    /// WaitTimeoutError
    ///     The rows are stored, and were not durable in time; `offsets` has all of them.
    /// ValueError
    ///     A column has another name or type; text is not UTF-8; a column, dict or `Message` contradicts
    ///     `topic` or `queue_id`; rows with `one_segment` need more than a segment.
    ///
    /// Notes
    /// -----
    /// Columns and fields: `body` (binary or utf8; required), `topic`, `tags`, `unique_key` (utf8), `keys`
    /// (list of utf8), `properties` (map of utf8, list of pairs, or struct), `queue_id`, `delay_level`,
    /// `flag`, `sys_flag`, `reconsume_times`, `prepared_transaction_offset` (integers), `born_time`,
    /// `deliver_at` (timestamp with a timezone, or ms), `born_host`, `store_host` (utf8). A store assigns
    /// `queue_offset`, `physical_offset`, `store_size`, `store_time` and `message_id` itself: such columns
    /// are skipped, and so are pandas' own labels. A column that is null in every row may have any
    /// type.
    ///
    /// A `Message`, a dict and a row of a table stay in their topic, also with DELAY or TIMER_DELIVER_MS
    /// among the properties, unless `delay_level` is 1 or more or `deliver_at` is given.
    #[pyo3(signature = (rows, topic=None, queue_id=None, *, one_segment=false, durable=None))]
    fn append_batch(
        &self,
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::default_topic)] topic: Option<&str>,
        #[pyo3(from_py_with = arguments::queue_choice)] queue_id: Option<QueueChoice<'static>>,
        #[pyo3(from_py_with = arguments::one_segment)] one_segment: bool,
        #[pyo3(from_py_with = arguments::durable)] durable: Option<bool>,
    ) -> PyResult<Offsets> {
        let defaults = Defaults {
            topic,
            queue: queue_id,
            topics: self.handle.writer()?.topics().queues(),
            born_time: now_ms(),
        };
        let how = BatchOptions {
            together: one_segment,
            durable,
        };
        append::batch(py, &self.handle, rows, &defaults, how)
    }

    /// Raises what `append_batch` raises for rows of a table that no store takes, and appends
    /// nothing.
    #[pyo3(name = "_check_batch", signature = (rows, topic=None))]
    fn check_batch(
        &self,
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::default_topic)] topic: Option<&str>,
    ) -> PyResult<()> {
        let defaults = Defaults {
            topic,
            queue: None,
            topics: self.handle.writer()?.topics().queues(),
            born_time: now_ms(),
        };
        append::check(py, &self.handle, rows, &defaults)
    }

    /// Creates a topic with a fixed number of queues, or changes its settings. They are durable when
    /// the call returns. Does nothing if the topic has these settings.
    ///
    /// Parameters
    /// ----------
    /// topic : str
    ///     1 to 127 letters and digits of ASCII and %|-_, as a broker accepts it, and no topic that a
    ///     broker makes for itself.
    /// queues : int, default 8
    ///     The number of queues, 1 to 65,536. A queue that has messages stays readable if there are
    ///     fewer now.
    /// perm : int, default 6
    ///     2 (write), 4 (read) or 6 (both), or one of them + 1 (a template for topics that a broker
    ///     creates).
    /// order : bool, default False
    ///     A broker's flag of an ordered topic.
    /// message_type : {"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"}, optional
    ///     The messages that the topic takes. "NORMAL": no delay, transaction or sharding key. "FIFO":
    ///     with a sharding key. "DELAY", "TRANSACTION": with a delay, or of a transaction. "MIXED",
    ///     "UNSPECIFIED": any. None keeps the type that the topic has.
    ///
    /// Raises
    /// ------
    /// TypeError, ValueError
    ///     No broker takes the name, or a value.
    /// CorruptError
    ///     `config/topics.json` is damaged. Appends still work; restore the file, or remove it.
    /// UnsupportedFormatError
    ///     A broker keeps the topics in RocksDB.
    ///
    /// Notes
    /// -----
    /// From then on appends follow these settings, as they follow those that a broker has written: a
    /// message without permission, for a queue that the topic does not have, or of another type raises
    /// `IllegalMessageError`. A topic that is not created has as many queues as its messages name;
    /// `close` writes it to `config/topics.json` as well, so that a broker serves it.
    #[pyo3(signature = (topic, *, queues=8, perm=6, order=false, message_type=None))]
    fn create_topic(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::topic)] topic: &str,
        #[pyo3(from_py_with = arguments::queues)] queues: i32,
        #[pyo3(from_py_with = arguments::perm)] perm: i32,
        #[pyo3(from_py_with = arguments::is_ordered)] order: bool,
        #[pyo3(from_py_with = arguments::message_type)] message_type: Option<MessageType>,
    ) -> PyResult<()> {
        let broker = self.handle.broker()?;
        let settings = TopicSettings {
            queues,
            perm,
            order,
            message_type,
        };
        Ok(py.detach(|| broker.topics().create(topic, &settings))?)
    }

    /// Appends a batch as a producer sends it, each message as its own record.
    ///
    /// Parameters
    /// ----------
    /// topic : str
    ///     As in `append`.
    /// body : bytes or a buffer of bytes
    ///     The body of the producer's request (RocketMQ's `MessageDecoder.encodeMessages` makes it):
    ///     body, flag and properties of each message. `max_message_size` bounds all of it.
    /// properties : mapping or iterable of pairs, of str to str, optional
    ///     The properties of the batch itself, which brokers up to 5.3.3 store after a message's own,
    ///     and later ones not at all. They name no transaction and no delay.
    /// queue_id : int, default 0
    ///     The id of the queue, 0 to 65,535.
    /// born_time, born_host, store_host, sys_flag
    ///     As in `append`, for all messages.
    /// durable : bool, optional
    ///     As in `append_batch`.
    ///
    /// Returns
    /// -------
    /// Offsets
    ///     The physical offsets, one for each message.
    ///
    /// Raises
    /// ------
    /// StoreError
    ///     As `append_batch`.
    ///
    /// Notes
    /// -----
    /// The messages are stored as `append_batch` stores rows with `one_segment`. A broker's limits
    /// hold.
    #[pyo3(signature = (topic, body, *, properties=None, queue_id=0, born_time=None, born_host=None, store_host=None, sys_flag=0,
        durable=None))]
    fn append_producer_batch(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::topic)] topic: &str,
        body: &Bound<'_, PyAny>,
        properties: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::queue_id)] queue_id: i32,
        #[pyo3(from_py_with = fields::born_time)] born_time: Option<i64>,
        #[pyo3(from_py_with = arguments::born_host)] born_host: Option<&str>,
        #[pyo3(from_py_with = arguments::store_host)] store_host: Option<&str>,
        #[pyo3(from_py_with = arguments::sys_flag)] sys_flag: i32,
        #[pyo3(from_py_with = arguments::durable)] durable: Option<bool>,
    ) -> PyResult<Offsets> {
        self.handle.expect_open()?;
        let common = MessageArguments {
            topic: topic.into(),
            body: fields::body(body.as_borrowed())?,
            queue_id,
            born_time: born_time.unwrap_or_else(now_ms),
            born_host,
            store_host,
            sys_flag,
            ..MessageArguments::default()
        };
        append::producer_batch(py, &self.handle, &common.message()?, properties, durable)
    }

    /// Makes everything appended so far durable. Returns the physical offset up to which the log is
    /// durable.
    ///
    /// Raises `PoisonedError` if the device refuses: what is not durable by then is lost.
    fn flush(&self, py: Python<'_>) -> PyResult<i64> {
        let writer = self.handle.writer()?;
        Ok(py.detach(|| writer.flush())?)
    }

    /// Physical offset below which the log survives a power failure.
    #[getter]
    fn flushed_offset(&self) -> PyResult<i64> {
        Ok(self.handle.writer()?.flushed_offset())
    }

    /// Physical offset below which the log survives the death of the process: what is appended
    /// after it waits in the transient store pool, which a store with `SYNC_FLUSH` always has.
    #[getter]
    fn committed_offset(&self) -> PyResult<i64> {
        Ok(self.handle.writer()?.committed_offset())
    }

    /// The slaves of this store: who is connected, since when and how far, and who was refused and why.
    /// They connect where the option `ha_listen_port` says so, and ask for topics, groups and progress
    /// where `listen_port` says so.
    #[getter]
    fn replicas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let writer = self.handle.writer()?;
        let ports = self.handle.ports();
        let master = ports.as_ref().and_then(|ports| ports.master.as_ref());
        let settings = ports.as_ref().and_then(|ports| ports.settings.as_ref());
        let addresses = [master.map(Master::address), settings.and_then(SettingsServer::address)];
        reports::replicas(py, writer.replicas(), addresses)
    }

    /// Physical offset below which messages are in their queues and in the index.
    #[getter]
    fn dispatched_offset(&self) -> PyResult<i64> {
        Ok(self.handle.writer()?.dispatched_offset())
    }

    /// Writes what waits in the transient store pool to the log: the death of the process does not
    /// lose it then. Does nothing without a pool.
    ///
    /// Raises `PoisonedError`, `ClosedError`, `DiskFullError`, and `StoreIOError` for what the system
    /// refuses.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        let writer = self.handle.writer()?;
        Ok(self.handle.detach(py, || writer.commit())?)
    }

    /// Returns the counters since the open: puts and bytes by topic, slow puts,
    /// syncs, segments; the backlog of groups and deliveries; what retention has removed, and removes
    /// next.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let writer = self.handle.writer()?;
        let broker = self.handle.broker()?;
        // A damaged file of the progress does not hide the counters.
        let delays = py.detach(|| broker.delay_stats().ok().flatten());
        let cleaning = self.handle.detach(py, || broker.clean_stats(Instant::now()).ok().flatten());
        let groups = py.detach(|| broker.group_backlog().map(|states| states.content).unwrap_or_default());
        let groups = (RecordBatch(arrow::groups(&groups)?),);
        let groups = imports::call(py, "mqstore._groups", "stats_of", groups, None)?;
        let next_due = delays.and_then(|delays| delays.next_due);
        let next_due = next_due.and_then(|due| to_datetime(py, due).ok());
        reports::store_stats(py, &py.detach(|| writer.stats()), delays, next_due, groups, cleaning.as_ref())
    }

    /// Removes the oldest messages, by whole segments of the log, and the queue and index files that
    /// lead to nothing else. Returns a `TrimReport`. Queues keep their offsets, and reads find that the
    /// messages have expired.
    ///
    /// Parameters
    /// ----------
    /// before : datetime with a timezone, int of ms since 1970, or timedelta, optional
    ///     Removes messages that were stored before this time, or are older than this.
    /// before_offset : int, optional
    ///     Removes messages before this physical offset.
    /// max_bytes : int, optional
    ///     Removes the oldest messages until the log has at most this many bytes. One of the three is
    ///     given.
    /// dry_run : bool, default False
    ///     Removes nothing, and reports what would be removed.
    /// force : bool, default False
    ///     Also removes messages that consumer groups have not consumed, and that connected slaves have
    ///     not acknowledged: without it a trim stops before the first of them. Delayed messages that
    ///     were not delivered, and half messages of open transactions, are always kept. So is the last
    ///     segment.
    ///
    /// Raises
    /// ------
    /// CorruptError
    ///     A settings file with the progress of groups is damaged, or, unless `force` is true, the
    ///     progress of a group is lost: nothing is removed.
    /// DiskFullError
    ///     Nothing can be removed before there is free space.
    /// PoisonedError, ClosedError, StoreIOError
    ///     As in `append`.
    ///
    /// Notes
    /// -----
    /// It needs no free space for messages that each group has passed by the progress on disk, and
    /// whose queue entries are on disk. What they free is used to store newer progress and entries;
    /// `refusal` says if it was too little to remove the rest.
    #[pyo3(signature = (before=None, *, before_offset=None, max_bytes=None, dry_run=false, force=false))]
    fn trim<'py>(
        &self,
        py: Python<'py>,
        before: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = arguments::before_offset)] before_offset: Option<i64>,
        max_bytes: Option<u64>,
        dry_run: bool,
        force: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.handle.expect_open()?;
        let to = trim_to(before, before_offset, max_bytes)?;
        let broker = self.handle.broker()?;
        let report = self.handle.detach(py, || broker.trim(to, force, dry_run))?;
        reports::trim_report(py, &report, dry_run)
    }

    /// Waits until a message is durable. The store syncs it at once.
    ///
    /// Parameters
    /// ----------
    /// offset : AppendResult or int, optional
    ///     The message, or a physical offset in it. None: everything that was appended so far.
    /// timeout : float of seconds, or timedelta, optional
    ///     The longest wait. None waits for ever.
    ///
    /// Raises
    /// ------
    /// TypeError, ValueError
    ///     An argument is not one of those accepted, or nothing was appended at the offset.
    /// WaitTimeoutError
    ///     The time is over; a `TimeoutError`.
    /// PoisonedError, ClosedError
    ///     The message can no longer become durable.
    #[pyo3(signature = (offset=None, timeout=None))]
    fn wait_durable(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = append_result::offset_or_none)] offset: Option<i64>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        wait(py, &self.handle, offset, timeout, MessageStore::wait_durable)
    }

    /// Starts a wait for a caller that does not block, as `wait_durable`: a physical offset to wait for, and a
    /// future that is done with True when the message there is durable, or with False when
    /// `sync_flush_timeout` is over.
    #[pyo3(name = "_durable", signature = (offset=None))]
    fn durable<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = append_result::offset_or_none)] offset: Option<i64>,
    ) -> PyResult<(i64, Bound<'py, PyAny>)> {
        append::durable(py, &self.handle, offset, self.running_loop.as_ref())
    }

    /// Waits until a message is in its queue and in the index. Reads of this store wait for that
    /// themselves.
    ///
    /// Parameters
    /// ----------
    /// offset, timeout
    ///     As in `wait_durable`.
    ///
    /// Raises
    /// ------
    /// TypeError, ValueError, WaitTimeoutError
    ///     As `wait_durable`.
    /// PoisonedError, ClosedError
    ///     The message can no longer come into its queue.
    #[pyo3(signature = (offset=None, timeout=None))]
    fn wait_dispatched(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = append_result::offset_or_none)] offset: Option<i64>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        wait(py, &self.handle, offset, timeout, MessageStore::wait_dispatched)
    }

    /// Appends the messages of files that `export` wrote, and of other tables with columns as
    /// `append_batch` takes them.
    ///
    /// Parameters
    /// ----------
    /// source : str, os.PathLike, or an iterable of them
    ///     A file, a directory with files below it (in the order of their names; a folder `topic=...`
    ///     names the topic of its files), or several of these.
    /// format : {"parquet", "arrow", "jsonl"}, optional
    ///     None: as the name of a file ends. CSV is not read.
    /// topic : str, optional
    ///     The topic of rows that name none.
    /// body_as : {"base64", "text", "json"}, default "base64"
    ///     The form of the body in JSON Lines, as in `export`. With "json" a body is the value as it is
    ///     written.
    /// progress : callable, optional
    ///     Called with two ints: how many files are done, and of how many. What it raises ends the
    ///     call.
    ///
    /// Returns
    /// -------
    /// mqstore.files.Imported
    ///     The files, and exact counts.
    ///
    /// Raises
    /// ------
    /// FileNotFoundError
    ///     A file is missing, or a directory has no file of a format.
    /// TypeError, ValueError
    ///     An argument is not one of those accepted, a line is malformed, or a column has another name
    ///     or type.
    /// ImportError
    ///     pyarrow is not installed.
    /// StoreError
    ///     As `append_batch`.
    ///
    /// Notes
    /// -----
    /// Files are read and appended a batch at a time. Where that fails, `stored` of the exception says
    /// how many rows were stored.
    ///
    /// Every field that a caller of `append` can set is as it was. Offsets, store time and offset id
    /// are new; `copy_to` keeps store times.
    #[pyo3(
        signature = (source, **options),
        text_signature = "(self, source, *, format=None, topic=None, body_as='base64', progress=None)"
    )]
    fn import_from<'py>(
        slf: &Bound<'py, Self>,
        source: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        in_python(slf.as_super(), "mqstore._import", "import_from", source, options)
    }

    /// Appends the messages of batches of another store.
    fn _copy_from(
        &self,
        py: Python<'_>,
        batches: &Batches,
        rename: HashMap<String, String>,
        #[pyo3(from_py_with = arguments::keep_store_time)] keep_store_time: bool,
    ) -> PyResult<Copied> {
        let writer = self.handle.writer()?;
        let mut copier = Copier::new(writer.appender(Some(false)), rename, keep_store_time);
        batches.each(py, |view| copier.take(view))?;
        let copied = self.handle.detach(py, || copier.finish())?;
        Ok((copied.topics, copied.bytes, copied.left_out, copied.raised))
    }
}

/// Converts the arguments `before`, `before_offset` and `max_bytes` of a trim.
///
/// # Errors
/// `TypeError` unless one of them is given; `TypeError` and `ValueError` for an impossible one.
pub(super) fn trim_to(before: Option<&Bound<'_, PyAny>>, before_offset: Option<i64>, max_bytes: Option<u64>) -> PyResult<TrimTo> {
    let before = match (before, before_offset, max_bytes) {
        (Some(before), None, None) => before,
        (None, Some(offset), None) => return Ok(TrimTo::Offset(offset)),
        (None, None, Some(most)) => return Ok(TrimTo::Bytes(most)),
        _ => return Err(PyTypeError::new_err("give one of before, before_offset and max_bytes")),
    };
    if let Ok(age) = before.cast::<PyDelta>() {
        let age = i64::try_from(delta_ms(age)?).unwrap_or(i64::MAX);
        return Ok(TrimTo::StoreTime(now_ms().saturating_sub(age)));
    }
    Ok(TrimTo::StoreTime(to_ms(before, "before", Round::Down)?))
}
