//! `open`: the mode and the options of a store.

use std::collections::BTreeMap;
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDelta, PyDict};

use super::arguments::{self, explained, one_of, repr_of, str_of};
use super::errors::LockedError;
use super::handle::{Handle, Mode, interruptible_by_signals};
use super::imports;
use super::nowait;
use super::recipe::Recipe;
use super::remedies::advising;
use super::store::Store;
use super::time::{delta_ms, to_wait};
use super::warnings::warn;
use super::writer::Writer;
use crate::config::{BrokerRole, Errors, FlushDiskType, Geometry, OptionField, OptionType, Recovery, StoreConfig};
use crate::error::Error;

/// Opens the message store in the directory `path`.
///
/// Parameters
/// ----------
/// path : str, bytes or os.PathLike
///     The directory of the store.
/// mode : {"r", "a", "r+", "x"}, default "r"
///     "r" reads. It changes no file and takes no lock, so that a running broker may own the store.
///     The store is read as it was when it was opened. The other modes write, too, one process at a
///     time and without a broker: "a" creates the store if it does not exist, "r+" requires that it
///     exists, and "x" creates it in a missing or empty directory.
/// config : StoreConfig, optional
///     Options that several calls share, such as `StoreConfig.from_broker_conf("broker.conf")`. An
///     option that the call itself gives by name wins.
/// geometry : {"broker", None}, default None
///     The sizes of the files of a new store. None: segments of 64 MiB and index files of 500,000
///     items. "broker": RocketMQ's defaults, 1 GiB and 20,000,000 items; a store of other sizes
///     refuses it. `mapped_file_size_commit_log`, `max_hash_slot_num` and `max_index_num` state single
///     sizes. An existing store keeps its sizes.
/// flush_disk_type : {"ASYNC_FLUSH", "SYNC_FLUSH"}, default "ASYNC_FLUSH"
///     When an append returns. "ASYNC_FLUSH": when its message survives the death of the process; a
///     power failure can lose the appends of the last half second (`flush_interval_commit_log`), or
///     of the last 10 s at very low rates. "SYNC_FLUSH": when it survives a power failure.
/// errors : {"raise", "skip"}, default "raise"
///     What a read of many messages (iteration, slices, `get`, `batches`, `fetch`) does at a message
///     that was lost or is damaged, unless the call states it: it raises `CorruptError`, or skips the
///     message and counts it (`skipped`).
/// recovery : {"heal", "salvage"}, default "heal"
///     What an open does with damage inside the log of a store that its last writer did not close.
///     With "heal" a writer truncates a torn end, and refuses damage (`CorruptError`) of messages that
///     were on disk, as the checkpoint or the mark of flushed bytes proves. "salvage" keeps whole
///     messages on both sides of any damage. Copy a crashed store whose disk is in doubt before you
///     open it with "heal".
/// lock_timeout : float, timedelta or None, default 0
///     How long a writer waits while another one has the store, in seconds; None for no limit.
///     Signals interrupt the wait.
/// **options
///     All other options, by name: `help(mqstore.StoreConfig)` describes each. They have RocketMQ's
///     names in snake case, units and defaults. A duration may also be a timedelta.
///
/// Returns
/// -------
/// Store or Writer
///     The open store, a context manager: a `Store`, which reads, with mode "r", and a `Writer`,
///     which has all calls of a `Store` and those that append, with any other mode. A `Store` has
///     no `append`: the call raises `AttributeError`.
///
/// Raises
/// ------
/// NotAStoreError
///     The directory has no store; a `FileNotFoundError`.
/// StoreExistsError
///     The mode is "x" and the directory is not empty; a `FileExistsError`.
/// LockedError
///     Another writer has the store; a `BlockingIOError`. The text states how long the call waited.
/// CorruptError
///     The files cannot belong together, or are damaged (`recovery`).
/// StoreIOError
///     The system refuses; an `OSError`.
/// ValueError
///     The mode, or the value of an option, is none of those accepted.
/// TypeError
///     There is no option of this name, or its value is of another type.
///
/// Notes
/// -----
/// A store that its last writer did not close is recovered: in memory to read it, on disk to write to
/// it. `Store.recovery` reports what was found. Messages before the last checkpoint of mqstore are not
/// checked then; a read of a damaged one raises `CorruptError`. A reader warns (`RuntimeWarning`) if
/// files of the store show that messages are missing in its log, as in an incomplete copy.
///
/// A small store, of a few MiB: `mapped_file_size_commit_log=1 << 20, max_hash_slot_num=1000,
/// max_index_num=4000`. A fast one: the defaults, and `append_batch` for many messages. A durable one:
/// `flush_disk_type="SYNC_FLUSH"`, or `durable=True` for single appends.
#[pyfunction]
#[pyo3(signature = (path, mode="r", config=None, **options))]
#[expect(clippy::doc_markdown, reason = "a docstring in numpy's style")]
pub(super) fn open<'py>(
    py: Python<'py>,
    #[pyo3(from_py_with = arguments::path)] path: PathBuf,
    #[pyo3(from_py_with = arguments::mode)] mode: &str,
    config: Option<&Bound<'py, PyAny>>,
    options: Option<Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, Store>> {
    let options = merged(py, config, options)?;
    let config = config_of(&options)?;
    open_with(py, path, Mode::parse(mode)?, options, config, Duration::ZERO)
}

/// Opens a store for a caller that has `waited` for its lock before.
fn open_with<'py>(
    py: Python<'py>,
    path: PathBuf,
    mode: Mode,
    options: Bound<'py, PyDict>,
    config: StoreConfig,
    waited: Duration,
) -> PyResult<Bound<'py, Store>> {
    if mode != Mode::Read {
        // Imported now, so that a later append needs no descriptor for it; costs about 9 ms, once a process.
        nowait::expect_module(py)?;
    }
    // Absolute, because a reader that is pickled or reopened may find itself in another working directory.
    let path = std::path::absolute(&path).map_err(|error| Error::io("find", path, error))?;
    let recipe = Py::new(py, Recipe::new(&path, options.unbind()))?;
    let opened = py.detach(|| interruptible_by_signals(|| Ok(()), || Handle::open(path, config, mode, recipe)));
    let handle = opened.map_err(|error| error.after_wait(waited))?;
    let handle = Arc::new(handle);
    warn_of_missing(py, &handle)?;
    if mode == Mode::Read {
        Bound::new(py, Store { handle })
    } else {
        warn_of_unlocked_pool(py, &handle)?;
        warn_of_cut_progress(py, &handle)?;
        Ok(Writer::of(py, handle, None)?.into_super())
    }
}

/// Warns at once about a store with missing messages: most programs never look at `Store.recovery`.
fn warn_of_missing(py: Python<'_>, handle: &Handle) -> PyResult<()> {
    let reader = handle.current_reader(py)?;
    let Some(missing) = &reader.recovery().missing else {
        return Ok(());
    };
    let text = format!("{} is INCOMPLETE: {}", handle.path().display(), missing.what);
    warn(py, &advising(text, missing.remedy))
}

/// A pool that is not locked works, until the machine is short of memory.
fn warn_of_unlocked_pool(py: Python<'_>, handle: &Handle) -> PyResult<()> {
    let store = handle.writer()?;
    let Some(refusal) = store.lock_refusal() else {
        return Ok(());
    };
    let text = format!(
        "the transient store pool of {} is not locked in memory ({refusal}), and appends are slow where it is swapped out: raise \
         RLIMIT_MEMLOCK (ulimit -l) or make transient_store_pool_buffer_size smaller",
        handle.path().display()
    );
    warn(py, &text)
}

/// A group that has passed a message of which only a lost retry was left would never get it, and nobody would know.
fn warn_of_cut_progress(py: Python<'_>, handle: &Handle) -> PyResult<()> {
    let names = Vec::from_iter(handle.broker()?.progress_of_cut_log());
    if names.is_empty() {
        return Ok(());
    }
    let text = format!(
        "{} was a slave whose log was cut, and the messages of retries that were in the cut part were not found: the progress of {} (topic \
         and group) may pass them. store.broker.reset(group, topic, ...) sets it back, and ends this warning",
        handle.path().display(),
        names.join(", ")
    );
    warn(py, &text)
}

/// Makes one attempt to open a store as `open` does, for a caller that has `waited` for its lock. Returns None where another writer has
/// the store and `lock_timeout` is not over.
#[pyfunction(name = "_open_after", signature = (waited, path, mode="r", config=None, **options))]
pub(super) fn open_after<'py>(
    py: Python<'py>,
    waited: Duration,
    #[pyo3(from_py_with = arguments::path)] path: PathBuf,
    #[pyo3(from_py_with = arguments::mode)] mode: &str,
    config: Option<&Bound<'py, PyAny>>,
    options: Option<Bound<'py, PyDict>>,
) -> PyResult<Option<Bound<'py, Store>>> {
    let options = merged(py, config, options)?;
    let mut config = config_of(&options)?;
    let timeout = mem::take(&mut config.lock_timeout);
    match open_with(py, path, Mode::parse(mode)?, options, config, waited) {
        Err(error) if error.is_instance_of::<LockedError>(py) && waited < timeout => Ok(None),
        attempt => attempt.map(Some),
    }
}

/// A store from its path and options: what pickle calls for a `Recipe`.
#[pyfunction(name = "_reopen")]
pub(super) fn reopen<'py>(py: Python<'py>, path: PathBuf, options: Bound<'py, PyDict>) -> PyResult<Bound<'py, Store>> {
    open(py, path, "r", None, Some(options))
}

/// Returns the options of a call: those by name, and those of a `mqstore.StoreConfig` that are not among them.
fn merged<'py>(
    py: Python<'py>,
    config: Option<&Bound<'py, PyAny>>,
    options: Option<Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyDict>> {
    let Some(config) = config else {
        return Ok(options.unwrap_or_else(|| PyDict::new(py)));
    };
    let merged = imports::call(py, "mqstore._config", "merged", (config,), options.as_ref())?;
    Ok(merged.cast_into::<PyDict>()?)
}

/// Refuses what `open` refuses, without a store.
#[pyfunction(name = "_check_options", signature = (**options))]
pub(super) fn check_options(options: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    options.map_or(Ok(()), |options| Ok(config_of(options)?.validate()?))
}

/// Returns the name of each option that RocketMQ has, by RocketMQ's name.
#[pyfunction(name = "_rocketmq_options")]
pub(super) fn rocketmq_options() -> BTreeMap<&'static str, &'static str> {
    let options = StoreConfig::options().into_iter();
    let named = options.filter(|option| !option.rocketmq.is_empty());
    named.map(|option| (option.rocketmq, option.name)).collect()
}

/// # Errors
/// `TypeError` and `ValueError` for an option.
pub(super) fn config_of(options: &Bound<'_, PyDict>) -> PyResult<StoreConfig> {
    let mut config = StoreConfig::default();
    for (name, value) in options {
        set_option(&mut config, name.extract()?, &value)?;
    }
    Ok(config)
}

fn set_option(config: &mut StoreConfig, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let Some(field) = config.option(name) else {
        let names = StoreConfig::options().into_iter().map(|option| option.name);
        let closest = imports::there_is(value.py(), name, names)?;
        return Err(PyTypeError::new_err(format!(
            "open() has no option {name:?}{closest}: help(mqstore.StoreConfig) lists them"
        )));
    };
    let set = match field {
        OptionField::Flag(field) => assign(field, value),
        OptionField::Text(field) => assign(field, value),
        OptionField::U32(field) => assign(field, value),
        OptionField::U64(field) => assign(field, value),
        OptionField::Millis(field) => match value.cast::<PyDelta>() {
            Ok(delta) => delta_ms(delta).map(|ms| *field = ms),
            Err(_) => assign(field, value),
        },
        OptionField::Seconds(field) => match value.cast::<PyDelta>() {
            Ok(delta) => delta_ms(delta).map(|ms| *field = ms.div_ceil(1000)),
            Err(_) => assign(field, value),
        },
        OptionField::Usize(field) => assign(field, value),
        OptionField::Size(field) => assign(field, value),
        OptionField::Choice(field) => assign(field, value),
        // Its error has the name.
        OptionField::Wait(field) => return lock_timeout(value).map(|timeout| *field = timeout),
        OptionField::Age(field) => age(value).map(|age| *field = age),
        OptionField::FlushDiskType(field) => one_of(value, FlushDiskType::NAMES).map(|named| *field = named),
        OptionField::Recovery(field) => one_of(value, Recovery::NAMES).map(|named| *field = named),
        OptionField::Errors(field) => one_of(value, Errors::NAMES).map(|named| *field = named),
        OptionField::BrokerRole(field) => one_of(value, BrokerRole::NAMES).map(|named| *field = named),
        OptionField::Geometry(field) => geometry(value).map(|named| *field = named),
    };
    set.map_err(|error| arguments::named(value.py(), &format!("option {name}"), error))
}

fn assign<'py, T>(field: &mut T, value: &Bound<'py, PyAny>) -> PyResult<()>
where
    T: OptionType + for<'a> FromPyObject<'a, 'py>,
{
    *field = value.extract().map_err(Into::into).map_err(|error: PyErr| {
        let py = value.py();
        let expected = || PyResult::Ok(format!("expected {}, got {}", T::ACCEPTED, str_of(value)?));
        if error.is_instance_of::<PyOverflowError>(py) {
            expected().map_or_else(|other| other, PyValueError::new_err)
        } else {
            explained(py, error, expected)
        }
    })?;
    Ok(())
}

/// Converts the longest wait for the lock. None, and a time that no clock can count to, mean no limit.
fn lock_timeout(value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let timeout = to_wait(Some(value).filter(|value| !value.is_none()), "lock_timeout")?;
    Ok(timeout.unwrap_or(Duration::MAX))
}

/// Converts an age in hours.
fn age(value: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    if value.is_none() {
        return Ok(None);
    }
    if let Ok(delta) = value.cast::<PyDelta>() {
        return Ok(Some(Duration::from_millis(delta_ms(delta)?)));
    }
    let expected = || {
        PyResult::Ok(format!(
            "expected {}, got {}",
            <Option<Duration> as OptionType>::ACCEPTED,
            str_of(value)?
        ))
    };
    let hours: f64 = value.extract().map_err(|error| explained(value.py(), error, expected))?;
    match Duration::try_from_secs_f64(hours * 3600.0) {
        Ok(age) => Ok(Some(age)),
        Err(_) => Err(PyValueError::new_err(expected()?)),
    }
}

fn geometry(value: &Bound<'_, PyAny>) -> PyResult<Geometry> {
    if value.is_none() {
        return Ok(Geometry::Small);
    }
    let expected = format!("expected \"broker\" or None, got {}", repr_of(value)?);
    match value.extract::<&str>() {
        Ok("broker") => Ok(Geometry::Broker),
        Ok(_) => Err(PyValueError::new_err(expected)),
        Err(_) => Err(PyTypeError::new_err(expected)),
    }
}
