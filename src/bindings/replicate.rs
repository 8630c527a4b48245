//! `replicate`, `tap`, `Replica`: the slave of a master.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDateTime, PyDict, PyString, PyTuple};

use super::append_result;
use super::arguments;
use super::handle::interruptible_by_signals;
use super::open::config_of;
use super::reports;
use super::time::{to_datetime, to_deadline};
use crate::config::StoreConfig;
use crate::error::Error;
use crate::ha::{SettingsStatus, Slave, SlaveOptions, SlaveStatus, Tap, TapStart, Timing};
use crate::storage::{Env, RealEnv};

/// Follows a master: receives its log into a store of the same bytes, and makes queues and index of
/// it. The master is an open store with `ha_listen_port`, or a broker of RocketMQ 4.9.x or 5.x.
///
/// Parameters
/// ----------
/// master : str
///     "HOST:PORT", where the master listens for slaves: its `ha_listen_port`, for a broker its
///     `haListenPort` (by default its listening port + 1).
/// path : str, bytes or os.PathLike
///     The directory of the store. A missing or empty one gets the log from the start of the master's
///     last segment on, as an empty slave of RocketMQ. For the whole log, begin with a copy of the
///     closed master.
/// broker : str, optional
///     "HOST:PORT", where the master answers for topics, groups, their progress and that of delayed
///     messages: its `listen_port`, for a broker its `listenPort`. By default the port below that of
///     `master`; "" asks nothing. They are merged into the store, as `Replica.settings_taken_at` says.
/// sync : bool, default True
///     Syncs before each acknowledgement. False acknowledges what survives the death of this process,
///     and not a power failure.
/// discard_tail : bool, default False
///     Also removes what a writer has appended to this store, where the master has other bytes. By
///     default only what was received from a master is removed there.
/// **options
///     The sizes of a new store, which are those of the master (`geometry`,
///     `mapped_file_size_commit_log`, `mapped_file_size_consume_queue`, `max_hash_slot_num`,
///     `max_index_num`), and other options of `open` such as `lock_timeout`. What would promise more
///     than a slave does raises `ValueError`: `flush_disk_type`, `transient_store_pool_enable`,
///     `recovery`, `services`, the options of masters, and those by which a writer removes old
///     messages. Other options of appends have no effect.
///
/// Returns
/// -------
/// Replica
///     The running slave, a context manager. It connects in the background, and again after failures.
///
/// Raises
/// ------
/// ValueError
///     `master` is not "HOST:PORT", or an option has no meaning.
/// LockedError
///     A writer has the store.
/// StoreError
///     As `open`.
#[pyfunction]
#[pyo3(signature = (master, path, *, broker=None, sync=true, discard_tail=false, **options))]
#[expect(clippy::doc_markdown, reason = "a docstring in numpy's style")]
pub(super) fn replicate(
    py: Python<'_>,
    master: String,
    #[pyo3(from_py_with = arguments::path)] path: PathBuf,
    broker: Option<String>,
    sync: bool,
    discard_tail: bool,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Replica> {
    let options = SlaveOptions {
        broker: broker.or_else(|| port_below(&master)).filter(|broker| !broker.is_empty()),
        master,
        tap: None,
        is_sync: sync,
        discards_tail: discard_tail,
        config: options.map_or_else(|| Ok(StoreConfig::default()), config_of)?,
        timing: Timing::default(),
    };
    start(py, path, options)
}

/// The time that is added to `slave_timeout`: an append of RocketMQ 4.9.1 and 4.9.2 waits for 5 s.
const TAP_MARGIN: Duration = Duration::from_secs(5);

/// Follows a broker as `replicate`, and acknowledges nothing: its master sends the log, and no append
/// waits for this copy. A live copy for readers, without a consumer group.
///
/// A `SYNC_MASTER` of RocketMQ 4.9.x counts it as a connected slave all the same. If that has no other
/// slave its appends return `FLUSH_SLAVE_TIMEOUT` after their timeout, instead of
/// `SLAVE_NOT_AVAILABLE` at once.
///
/// Parameters
/// ----------
/// master : str
///     "HOST:PORT", where the master listens for slaves, as for `replicate`.
/// path : str, bytes or os.PathLike
///     The directory of the store. One with a log is continued at its end.
/// start : {"latest", "earliest"} or int, default "latest"
///     Where a missing or empty store begins. "latest": with the master's last segment. "earliest": at
///     the begin of its log. A physical offset: with the segment that contains it. All but "latest" ask
///     `broker` where the log of the master begins and ends.
/// broker : str, optional
///     "HOST:PORT" of the broker port, as for `replicate`. "" asks nothing: then "earliest" begins at
///     physical offset 0, an offset other than 0 is refused, and nobody notices that the master has
///     removed what comes next while this is connected.
/// sync : bool, default True
///     `offset` and `wait` count what is synced. False: what survives the death of this process.
/// **options
///     As for `replicate`. `slave_timeout` is that of the master (`slaveTimeout`, for 4.9.1 and 4.9.2
///     `syncFlushTimeout`), by default 3 s: a report never names a record that is not 5 s older.
///
/// Returns
/// -------
/// Replica
///     The running tap, a context manager. Its state is "failed" once the master has removed what comes
///     next: nothing is skipped.
///
/// Raises
/// ------
/// ValueError
///     `master` is not "HOST:PORT", `start` is none of these, or an option has no meaning.
/// LockedError
///     A writer has the store.
/// StoreError
///     As `open`.
#[pyfunction]
#[pyo3(signature = (master, path, start=TapStart::Latest, *, broker=None, sync=true, **options), text_signature = "(master, path, start='latest', *, broker=None, sync=True, **options)")]
pub(super) fn tap(
    py: Python<'_>,
    master: String,
    #[pyo3(from_py_with = arguments::path)] path: PathBuf,
    #[pyo3(from_py_with = tap_start)] start: TapStart,
    broker: Option<String>,
    sync: bool,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Replica> {
    let mut config = options.map_or_else(|| Ok(StoreConfig::default()), config_of)?;
    // It is that of the master: a slave has none.
    let timeout = std::mem::replace(&mut config.slave_timeout, StoreConfig::default().slave_timeout);
    let options = SlaveOptions {
        broker: broker.or_else(|| port_below(&master)).filter(|broker| !broker.is_empty()),
        master,
        tap: Some(Tap {
            start,
            age: Duration::from_millis(timeout).saturating_add(TAP_MARGIN),
        }),
        is_sync: sync,
        discards_tail: false,
        config,
        timing: Timing::default(),
    };
    self::start(py, path, options)
}

/// Extracts the start of a tap.
fn tap_start(start: &Bound<'_, PyAny>) -> PyResult<TapStart> {
    if let Ok(name) = start.cast::<PyString>() {
        return match name.to_str()? {
            "earliest" => Ok(TapStart::Earliest),
            "latest" => Ok(TapStart::Latest),
            other => Err(PyValueError::new_err(format!(
                "start is {other:?}: expected \"latest\", \"earliest\" or a physical offset"
            ))),
        };
    }
    start.extract().map(TapStart::Offset)
}

fn start(py: Python<'_>, path: PathBuf, options: SlaveOptions) -> PyResult<Replica> {
    let path = std::path::absolute(&path).map_err(|error| Error::io("find", path, error))?;
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let slave = py.detach(|| interruptible_by_signals(|| Ok(()), || Slave::start(&env, &path, options)))?;
    Ok(Replica { slave })
}

/// Returns the address with the port below; `None` without one.
fn port_below(master: &str) -> Option<String> {
    let (host, port) = master.rsplit_once(':')?;
    let below = port.parse::<u16>().ok()?.checked_sub(1).filter(|below| *below > 0)?;
    Some(format!("{host}:{below}"))
}

/// A running slave: what `replicate` and `tap` return.
///
/// It holds the lock of its store. Read the store beside it with `open` and mode "r", as that of any
/// writer. To promote it, `close` it, and open the store with mode "r+".
///
/// Any number of threads may use it. It does not pickle.
#[pyclass(frozen, module = "mqstore")]
pub(super) struct Replica {
    slave: Slave,
}

impl Replica {
    fn status(&self) -> SlaveStatus {
        self.slave.status()
    }

    fn settings(&self) -> SettingsStatus {
        self.slave.settings()
    }
}

#[pymethods]
impl Replica {
    #[new]
    #[pyo3(signature = (*_arguments, **_options))]
    fn new_by_hand(_arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        Err(PyTypeError::new_err(
            "a Replica is not made by its class: mqstore.replicate makes one",
        ))
    }

    /// The address of the master, "HOST:PORT".
    #[getter]
    fn master(&self) -> &str {
        self.slave.master()
    }

    /// The address that it asks for topics, groups and progress, "HOST:PORT"; None if it asks nothing.
    #[getter]
    fn broker(&self) -> Option<&str> {
        self.slave.broker()
    }

    /// When the topics, groups and progress of the master were last taken, in UTC; None before.
    #[getter]
    fn settings_taken_at<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDateTime>>> {
        let taken_at = self.settings().taken_at;
        taken_at.map(|taken_at| to_datetime(py, taken_at)).transpose()
    }

    /// The reason why the topics, groups and progress were not taken the last time, as an exception;
    /// None while they are. The log does not wait for them.
    #[getter]
    fn settings_error<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let error = self.settings().error?;
        Some(PyErr::from(error).into_value(py).into_bound(py).into_any())
    }

    /// The directory of its store, absolute.
    #[getter]
    fn path(&self) -> PathBuf {
        self.slave.path().to_owned()
    }

    /// The state: "connecting", "comparing" its log with that of the master, "following", "failed"
    /// (it has given up: see `error`) or "closed".
    #[getter]
    fn state(&self) -> &'static str {
        self.status().state.name()
    }

    /// The physical offset up to which it holds the log of the master, synced with `sync=True`, by what
    /// was compared or received since the start; None before.
    #[getter]
    fn offset(&self) -> Option<i64> {
        self.status().held
    }

    /// The bytes that have come from the master and are not held yet; None unless it follows. A master
    /// says where its log ends only when it has nothing to send, so bytes that are on their way are
    /// not counted: `Writer.replicas` of the master counts them.
    #[getter]
    fn lag(&self) -> Option<i64> {
        self.status().lag()
    }

    /// The cuts of its log since the start, the oldest first. A store that was opened before a cut has to
    /// be opened again if it has messages that were cut: `CorruptError` says so.
    #[getter]
    fn cuts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        reports::replica_cuts(py, &self.status().cuts)
    }

    /// The reason why it does not follow, as an exception; None while it follows, and before the first
    /// failure.
    #[getter]
    fn error<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let error = self.status().error?;
        Some(PyErr::from(error).into_value(py).into_bound(py).into_any())
    }

    /// Waits until it holds the message at a physical offset, as it acknowledges it.
    ///
    /// Parameters
    /// ----------
    /// offset : int or AppendResult
    ///     The physical offset, or the result of the append on the master.
    /// timeout : float of seconds or timedelta, optional
    ///     The longest wait. None waits for ever.
    ///
    /// Raises
    /// ------
    /// WaitTimeoutError
    ///     The time is up. It is a `TimeoutError`.
    /// ClosedError
    ///     The slave is closed.
    /// StoreError
    ///     The slave has given up: its `error`.
    #[pyo3(signature = (offset, timeout=None))]
    fn wait(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = append_result::offset_or_none)] offset: Option<i64>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let offset = offset.ok_or_else(|| PyTypeError::new_err("expected an int or an AppendResult as offset, got None"))?;
        let deadline = to_deadline(timeout)?;
        py.detach(|| interruptible_by_signals(|| Ok(()), || self.slave.wait(offset, deadline)))?;
        Ok(())
    }

    /// Ends the connection, and closes the store. A second call does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.slave.close())?)
    }

    /// True once it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.slave.is_closed()
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    #[expect(clippy::unused_self, reason = "Python calls it on the object")]
    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a Replica does not pickle: one process follows a master",
        ))
    }

    fn __repr__(&self) -> String {
        let held = self.status().held.map_or_else(|| "None".to_owned(), |held| held.to_string());
        format!("<mqstore.Replica of {:?}: {}, offset={held}>", self.master(), self.state())
    }
}
