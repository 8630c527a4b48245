//! `Writer.transactions`: half messages, their ends, and the questions about those that are open.
#![expect(clippy::doc_markdown, reason = "docstrings in numpy's style")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDateTime, PyDelta};

use super::append::choose_queue;
use super::append_result::AppendResult;
use super::arguments::{self, named, one_of, repr_of};
use super::broker::BrokerState;
use super::errors::of_append;
use super::fields::{self, MessageArguments, PropertyArguments};
use super::handle::{Freshness, Handle};
use super::imports;
use super::message::Message;
use super::reports;
use super::time::{age_of, now_ms, to_datetime, to_wait};
use super::warnings::warn;
use super::writer::Writer;
use crate::broker::{self, BrokerController, CheckRules, OpenHalf, TransactionChecker, TransactionEnd, open_transactions};
use crate::error::Result;
use crate::format::{self, MessageId, property};
use crate::storage::{Env, RealEnv};
use crate::store::{self, QueueChoice};

/// RocketMQ's name for a producer that has named no group.
const DEFAULT_GROUP: &str = "DEFAULT_PRODUCER";

/// The transactions of a store that is open for writing: `Writer.transactions` is one.
///
/// A message of a transaction is appended as a *half message*, which consumers do not get. A commit
/// appends its copy to its topic; a rollback ends it without one. Each transaction ends once: a
/// second end raises `TransactionEndedError` with the outcome, after a crash too. A transaction that
/// nobody ends stays open until a check asks about it.
#[pyclass(frozen, module = "mqstore")]
pub(super) struct Transactions(Arc<Handle>);

/// A half message. `Transactions.send_half`, `begin` and `open` return it; it equals another one of
/// the same half message.
#[pyclass(frozen, eq, hash, module = "mqstore")]
pub(super) struct Half {
    handle: Arc<Handle>,
    /// Its offset message id: 32 hex digits, with which another process can end it.
    #[pyo3(get)]
    id: String,
    /// Its unique key, by which consumers know the message; None if a broker stored it without one.
    #[pyo3(get)]
    unique_key: Option<String>,
    /// The producer group.
    #[pyo3(get)]
    group: Option<String>,
    /// The topic that gets the message at the commit.
    #[pyo3(get)]
    topic: Option<String>,
    /// The id of the queue that gets it.
    #[pyo3(get)]
    queue_id: Option<i32>,
    /// The physical offset of its record.
    #[pyo3(get)]
    physical_offset: i64,
    /// Its number among the half messages.
    #[pyo3(get)]
    queue_offset: i64,
    /// The number of questions about it so far.
    #[pyo3(get)]
    checks: u32,
    store_time: i64,
}

impl PartialEq for Half {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.handle, &other.handle) && self.physical_offset == other.physical_offset
    }
}

impl Eq for Half {}

impl std::hash::Hash for Half {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.physical_offset.hash(state);
    }
}

impl Half {
    fn of_open(handle: &Arc<Handle>, open: &OpenHalf) -> Self {
        let view = open.message.view();
        let stated = |name| view.properties().get(name).map(std::borrow::Cow::into_owned);
        Self {
            handle: handle.clone(),
            id: view.message_id().to_string(),
            unique_key: stated(property::UNIQ_KEY),
            group: stated(property::PGROUP),
            topic: stated(property::REAL_TOPIC),
            queue_id: stated(property::REAL_QID).and_then(|id| id.parse().ok()),
            physical_offset: view.physical_offset(),
            queue_offset: view.queue_offset(),
            checks: open.checks,
            store_time: view.store_time(),
        }
    }

    fn of_sent(handle: &Arc<Handle>, sent: &format::Message<'_>, group: &str, result: &store::AppendResult) -> Self {
        let unique_key = format::Properties::new(&sent.properties).get(property::UNIQ_KEY);
        Self {
            handle: handle.clone(),
            id: result.message_id.to_string(),
            unique_key: unique_key.map(std::borrow::Cow::into_owned),
            group: Some(group.to_owned()),
            topic: Some(sent.topic.clone().into_owned()),
            queue_id: Some(sent.queue_id),
            physical_offset: result.appended.physical_offset,
            queue_offset: result.appended.queue_offset,
            checks: 0,
            store_time: result.appended.store_time,
        }
    }
}

#[pymethods]
impl Half {
    /// When it was stored, in UTC, to the ms: its age counts from there.
    #[getter]
    fn store_time<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDateTime>> {
        to_datetime(py, self.store_time)
    }

    /// The time since it was stored: a `timedelta`, never negative.
    #[getter]
    fn age<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDelta>> {
        age_of(py, self.store_time)
    }

    /// Its message, as it is stored among the half messages: a `Message`. Reads it.
    #[getter]
    fn message(&self, py: Python<'_>) -> PyResult<Message> {
        let transactions = Transactions(self.handle.clone());
        transactions
            .call(py, |own| own.message(self.physical_offset))
            .map(Message::new)
    }

    fn __repr__(&self) -> String {
        format!(
            "<mqstore.Half {} of topic {:?}, {} checks>",
            self.id,
            self.topic.as_deref().unwrap_or_default(),
            self.checks
        )
    }
}

/// A transaction with one message, for `with`: `Transactions.begin` makes one.
///
/// The message is committed at the end of the block, and rolled back if the block raises. A block
/// that has ended the half message itself leaves nothing to do.
#[pyclass(frozen, module = "mqstore")]
pub(super) struct Transaction {
    half: Py<Half>,
    durable: Option<bool>,
}

#[pymethods]
impl Transaction {
    /// The half message: a `Half`.
    #[getter]
    fn half(&self, py: Python<'_>) -> Py<Half> {
        self.half.clone_ref(py)
    }

    fn __enter__(&self, py: Python<'_>) -> Py<Half> {
        self.half.clone_ref(py)
    }

    #[pyo3(signature = (_kind=None, raised=None, _traceback=None))]
    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: Option<&Bound<'_, PyAny>>,
        raised: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let half = self.half.get();
        let end = if raised.is_some() {
            TransactionEnd::Rollback
        } else {
            TransactionEnd::Commit
        };
        let transactions = Transactions(half.handle.clone());
        let ended = transactions.call(py, |own| {
            if own.is_open(half.queue_offset)? {
                own.end(half.physical_offset, end, self.durable)?;
            }
            Ok(())
        });
        match (ended, raised) {
            // The caller must see the exception of the block.
            (Err(error), Some(raised)) => {
                let note = format!("the transaction of half message {} stays open: {error}", half.id);
                raised.call_method1("add_note", (note,))?;
            }
            (ended, _) => ended?,
        }
        Ok(false)
    }
}

impl Transactions {
    /// Runs a call without the interpreter.
    fn call<T: Send>(&self, py: Python<'_>, call: impl Send + FnOnce(&broker::Transactions) -> Result<T>) -> PyResult<T> {
        let broker = self.0.broker()?;
        let called = self.0.detach_append(py, || call(broker.transactions()?));
        called.map_err(|error| of_append(py, error))
    }

    fn send(
        &self,
        py: Python<'_>,
        mut message: format::Message<'_>,
        queue: QueueChoice<'_>,
        group: &str,
        durable: Option<bool>,
    ) -> PyResult<Half> {
        let store = self.0.writer()?;
        choose_queue(&store, &mut message, queue).map_err(|error| of_append(py, error))?;
        let sent = message.clone();
        let result = self.call(py, |own| own.send_half(message, group, durable))?;
        Ok(Half::of_sent(&self.0, &sent, group, &result))
    }
}

/// Makes a method of `Transactions` that takes the arguments of a half message, and passes the half message and `durable` to a function.
macro_rules! takes_half {
    ($(#[$($text:tt)*])* $name:ident -> $returned:ty { $make:expr }) => {
        #[pymethods]
        impl Transactions {
            $(#[$($text)*])*
            #[pyo3(signature = (topic, body, *, group=None, tags=None, keys=None, properties=None, queue_id=None, sharding_key=None,
                unique_key=None, born_time=None, durable=None),
                text_signature = "($self, topic, body, *, group='DEFAULT_PRODUCER', tags=None, keys=None, properties=None, \
                                  queue_id=None, sharding_key=None, unique_key=None, born_time=None, durable=None)")]
            fn $name(
                &self,
                py: Python<'_>,
                #[pyo3(from_py_with = arguments::topic)] topic: &str,
                body: &Bound<'_, PyAny>,
                #[pyo3(from_py_with = arguments::group)] group: Option<&str>,
                #[pyo3(from_py_with = arguments::tags)] tags: Option<&str>,
                keys: Option<&Bound<'_, PyAny>>,
                properties: Option<&Bound<'_, PyAny>>,
                #[pyo3(from_py_with = arguments::queue_choice)] queue_id: Option<QueueChoice<'static>>,
                #[pyo3(from_py_with = arguments::sharding_key)] sharding_key: Option<&str>,
                #[pyo3(from_py_with = arguments::unique_key)] unique_key: Option<&str>,
                #[pyo3(from_py_with = fields::born_time)] born_time: Option<i64>,
                #[pyo3(from_py_with = arguments::durable)] durable: Option<bool>,
            ) -> PyResult<$returned> {
                self.0.expect_open()?;
                let queue = QueueChoice::of(queue_id, sharding_key)?;
                let made = unique_key.map_or_else(|| store::new_unique_key(&RealEnv::new()).to_string(), str::to_owned);
                let message = MessageArguments {
                    topic: topic.into(),
                    body: fields::body(body.as_borrowed())?,
                    properties: PropertyArguments {
                        unique_key: Some(&made),
                        sharding_key,
                        tags,
                        keys,
                        properties,
                        delay_level: 0,
                        deliver_at: None,
                    },
                    born_time: born_time.unwrap_or_else(now_ms),
                    ..MessageArguments::default()
                };
                let half = self.send(py, message.message()?, queue, group.unwrap_or(DEFAULT_GROUP), durable)?;
                ($make)(py, half, durable)
            }
        }
    };
}

takes_half! {
    /// Begins a transaction with one message, for `with`: the block gets the half message, a `Half`. Its
    /// end commits the message, an exception rolls it back.
    ///
    /// Parameters
    /// ----------
    /// topic, body, group, tags, keys, properties, queue_id, sharding_key, unique_key, born_time
    ///     As in `send_half`.
    /// durable : bool, optional
    ///     As in `Writer.append`, for the half message and its end.
    ///
    /// Returns
    /// -------
    /// Transaction
    ///     A context manager.
    ///
    /// Raises
    /// ------
    /// IllegalMessageError, StoreError
    ///     As `send_half`; the end of the block as `end`.
    begin -> Transaction { |py, half, durable| {
        Ok(Transaction { half: Py::new(py, half)?, durable })
    } }
}

takes_half! {
    /// Appends a half message, which consumers do not get until it is committed.
    ///
    /// Parameters
    /// ----------
    /// topic, body, tags, keys, properties, queue_id, sharding_key, born_time, durable
    ///     As in `Writer.append`: of the message that the commit appends. The settings of its topic hold.
    /// group : str, default "DEFAULT_PRODUCER"
    ///     The producer group, whose producers a broker would ask.
    /// unique_key : str, optional
    ///     The property UNIQ_KEY. None makes one.
    ///
    /// Returns
    /// -------
    /// Half
    ///     The half message, for `end`.
    ///
    /// Raises
    /// ------
    /// IllegalMessageError
    ///     As `append`. A message of a transaction cannot be delayed.
    /// StoreError
    ///     As `append`.
    send_half -> Half { |_py, half, _durable| Ok(half) }
}

#[pymethods]
impl Transactions {
    /// Ends the transaction of a half message. Returns the result of the committed message, an
    /// `AppendResult`, or None for a rollback.
    ///
    /// Parameters
    /// ----------
    /// half : Half or str
    ///     The half message, or its `id`.
    /// how : {"commit", "rollback"}
    ///     The end.
    /// durable : bool, optional
    ///     As in `Writer.append`. After a power failure that takes an end that was not durable the
    ///     transaction is open.
    ///
    /// Raises
    /// ------
    /// TransactionEndedError
    ///     The transaction has ended: `outcome` says how. Nothing was stored.
    /// ValueError
    ///     It is not a half message, or a `Half` of another store.
    /// NotFoundError
    ///     Nothing is at that offset, or it has expired.
    /// CorruptError
    ///     `config/consumerOffset.json`, or the half message, is damaged.
    /// StoreError
    ///     As `append`: nothing was stored, and the transaction is open, unless `stored` is 1.
    #[pyo3(signature = (half, how, *, durable=None))]
    fn end(
        &self,
        py: Python<'_>,
        half: &Bound<'_, PyAny>,
        how: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::durable)] durable: Option<bool>,
    ) -> PyResult<Option<AppendResult>> {
        let how = to_end(how)?;
        let offset = to_offset(half, &self.0)?;
        Ok(self.call(py, |own| own.end(offset, how, durable))?.map(AppendResult))
    }

    /// Returns the half messages whose transactions are open, the oldest first: a list of `Half`. A
    /// `RuntimeWarning` counts those that are left out because they are lost or damaged, and another one
    /// what may have ended transactions that are listed: op messages, and stretches of the log, that are
    /// lost or damaged. `BrokerState.transactions` has the same as plain data.
    fn open(&self, py: Python<'_>) -> PyResult<Vec<Half>> {
        let open = self.call(py, broker::Transactions::open)?;
        for doubt in open.doubts() {
            warn(py, &format!("{}: {doubt}", self.0.path().display()))?;
        }
        Ok(open.halves.iter().map(|half| Half::of_open(&self.0, half)).collect())
    }

    /// Asks about open transactions, in a thread, until the close of the store.
    ///
    /// Parameters
    /// ----------
    /// callback : callable or None
    ///     It gets a `Half`, and returns "commit" or "rollback"; anything else means that the end is not
    ///     known yet, and so does an exception, which is logged. None ends the check that runs; another
    ///     callback replaces it.
    /// timeout : float or timedelta, default 6
    ///     The age of a half message at the first question, unless its property
    ///     CHECK_IMMUNITY_TIME_IN_SECONDS states another.
    /// interval : float or timedelta, default 60
    ///     The time between two questions.
    /// max_checks : int, default 15
    ///     A half message that stays unanswered this many times is moved to
    ///     TRANS_CHECK_MAX_TIME_TOPIC.
    ///
    /// Notes
    /// -----
    /// Without a check nothing is counted, and no transaction is given up. The count survives a reopen.
    #[pyo3(
        signature = (callback, *, timeout=None, interval=None, max_checks=15),
        text_signature = "($self, callback, *, timeout=6, interval=60, max_checks=15)"
    )]
    fn check(
        &self,
        py: Python<'_>,
        callback: &Bound<'_, PyAny>,
        timeout: Option<&Bound<'_, PyAny>>,
        interval: Option<&Bound<'_, PyAny>>,
        max_checks: u32,
    ) -> PyResult<()> {
        if !callback.is_none() && !callback.is_callable() {
            return Err(PyTypeError::new_err("callback is neither None nor callable: it gets a Half"));
        }
        let default = CheckRules::default();
        let rules = CheckRules {
            timeout: to_wait(timeout, "timeout")?.unwrap_or(default.timeout),
            interval: to_wait(interval, "interval")?.unwrap_or(default.interval),
            max_checks,
        };
        let broker = self.0.broker()?;
        let checker = TransactionChecker::new(broker.transactions()?.clone(), rules);
        if callback.is_none() {
            return Ok(());
        }
        let checker = Checker {
            handle: self.0.clone(),
            questions: Mutex::new(checker),
            patience: rules.timeout.min(rules.interval),
        };
        imports::module(py, "mqstore._check")?.call_method1("start", (checker, callback, Self(self.0.clone())))?;
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("<mqstore.Transactions of \"{}\">", self.0.path().display())
    }
}

#[pymethods]
impl BrokerState {
    /// Returns the half messages whose transactions are open, the oldest first: an `OpenTransactions`.
    ///
    /// In the process that writes the store these are as they are now. A reader finds them by the progress
    /// in `config/consumerOffset.json`, by op messages, and by the committed messages in the log, which is
    /// read from the first half message that may be open.
    ///
    /// Warns as `consumer_offsets`. Raises `CorruptError` if the progress cannot be read,
    /// `UnsupportedFormatError` if the queues are in RocksDB.
    fn transactions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let handle = self.handle();
        let reader = handle.reader(py, Freshness::Queues)?;
        let broker = handle.own_broker()?;
        let open = handle.detach(py, || {
            let own = broker.as_deref().map(BrokerController::transactions).transpose()?;
            open_transactions(&reader, own.map(Arc::as_ref))
        })?;
        for doubt in open.doubts {
            warn(py, &doubt)?;
        }
        reports::open_transactions(py, &open.content)
    }
}

#[pymethods]
impl Writer {
    /// The transactions of the store: a `Transactions`.
    #[getter]
    fn transactions(&self) -> PyResult<Transactions> {
        self.handle().expect_open()?;
        Ok(Transactions(self.handle().clone()))
    }
}

/// A check of the open transactions, for its thread.
#[pyclass(frozen, name = "_Checker", module = "mqstore._native")]
pub(super) struct Checker {
    handle: Arc<Handle>,
    questions: Mutex<TransactionChecker>,
    /// A new half message is due after this time at the earliest.
    patience: Duration,
}

#[pymethods]
impl Checker {
    /// Returns the half messages to ask about now, counted, and the seconds to wait then.
    fn take_due(&self, py: Python<'_>) -> PyResult<(Vec<Half>, f64)> {
        self.handle.broker()?;
        let now = now_ms();
        let taken = py.detach(|| self.questions.lock().unwrap_or_else(PoisonError::into_inner).take_due(now));
        let (halves, next) = taken?;
        let until = next.map(|next| Duration::from_millis(next.saturating_sub(now).unsigned_abs()));
        let patience = self.patience.min(RealEnv::new().longest_wall_clock_wait());
        let patience = until.map_or(patience, |until| until.min(patience));
        let halves = halves.iter().map(|half| Half::of_open(&self.handle, half)).collect();
        Ok((halves, patience.as_secs_f64()))
    }

    /// Waits for that many seconds. Returns False if the check ends before.
    fn wait(&self, py: Python<'_>, seconds: f64) -> bool {
        let patience = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        py.detach(|| self.questions.lock().unwrap_or_else(PoisonError::into_inner).wait(patience))
    }
}

fn to_end(how: &Bound<'_, PyAny>) -> PyResult<TransactionEnd> {
    let ends = [("commit", TransactionEnd::Commit), ("rollback", TransactionEnd::Rollback)];
    one_of(how, ends).map_err(|error| named(how.py(), "how", error))
}

/// Converts a half message of the store, or its id, to its physical offset. Another store may have another half message there.
fn to_offset(half: &Bound<'_, PyAny>, store: &Handle) -> PyResult<i64> {
    if let Ok(half) = half.cast::<Half>() {
        let (half, path) = (half.get(), store.path());
        return if half.handle.path() == path {
            Ok(half.physical_offset)
        } else {
            let (own, path) = (half.handle.path().display(), path.display());
            Err(PyValueError::new_err(format!(
                "half is one of the store at {own}, not of {path}: end it there"
            )))
        };
    }
    let id = half.extract::<&str>().ok().and_then(|id| id.parse::<MessageId>().ok());
    id.map(|id| id.physical_offset).ok_or_else(|| {
        let found = repr_of(half).unwrap_or_default();
        PyTypeError::new_err(format!("half is {found}: expected a Half, or its id, 32 or 56 hex digits"))
    })
}
