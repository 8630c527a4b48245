//! `open`: the mode and the options of a store.

use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arguments::{self, explained, one_of, repr_of, str_of};
use super::errors::LockedError;
use super::handle::{Handle, Mode, interruptible_by_signals};
use super::nowait;
use super::recipe::Recipe;
use super::store::Store;
use super::time::to_wait;
use super::warnings::warn;
use crate::config::{Errors, FlushDiskType, Geometry, OptionField, OptionType, Recovery, StoreConfig};
use crate::error::Error;

/// Open the message store in the directory `path`.
///
/// `mode` is "r" to read: no file is changed and no lock is taken, so a running broker may own the
/// store, and what is read is the store as it was when it was opened. The others write, one process
/// at a time and no broker beside it: "r+" goes on with a store that must exist, "a" makes it if it
/// does not, "x" makes it and wants a missing or empty directory. While another writer has the
/// store, such an open waits up to `lock_timeout` (seconds, or a timedelta; None for no limit) and
/// then raises `LockedError`; by default it does not wait. Signals interrupt the wait.
///
/// Options are RocketMQ's by name. Sizes, by default as the files say:
/// `mapped_file_size_commit_log`, `mapped_file_size_consume_queue` (bytes), `max_hash_slot_num`,
/// `max_index_num`; a new store has segments of 64 MiB and an index file of 125,000 slots and
/// 500,000 items, or RocketMQ's own sizes (1 GiB, 5,000,000, 20,000,000) with `geometry="broker"`,
/// which a store of other sizes refuses. Writing: `max_message_size` (4,194,304 bytes of body),
/// `enabled_append_prop_crc` (False: whether each record gets a checksum of all its bytes as its
/// last property, `__CRC32#`; brokers of 5.2 and later with `forceVerifyPropCRC` check it, others
/// read a property), `flush_disk_type` (`ASYNC_FLUSH`: an append returns when its message survives
/// the process, or waits in the pool; `SYNC_FLUSH`: when it survives a power cut, and it is read
/// only then), `sync_flush_timeout` (5,000 ms: how long an append waits for that at most, unless it
/// is the one that syncs for all), `flush_interval_commit_log` (500 ms),
/// `flush_commit_log_least_pages` (4: pages of 4 KiB that must be new for a flush at the interval),
/// `flush_commit_log_thorough_interval` (10,000 ms, after which a flush needs no new pages),
/// `flush_commit_log_timed` (True; if False, such a flush comes as soon as there are enough pages),
/// `warm_mapped_file_enable` (False: whether all pages of a segment are written with zeros and
/// locked in memory before it is used; with `ASYNC_FLUSH` not where there is a pool),
/// `flush_least_pages_when_warm_mapped_file` (4,096: with `SYNC_FLUSH` those zeros are synced after
/// so many pages), `transient_store_pool_enable` (False: whether appended messages wait in memory
/// until a thread of the store writes them to the log in large pieces; a read of this store,
/// `commit` and every sync have them written at once, and a killed process loses what waits; with
/// `SYNC_FLUSH` they wait in such memory anyway, for the sync that makes them durable, and this
/// locks it), `transient_store_pool_size` (5 buffers), `transient_store_pool_buffer_size` (4 MiB
/// each, locked in memory by `transient_store_pool_enable` as far as `RLIMIT_MEMLOCK` lets it),
/// `commit_interval_commit_log` (200 ms: how often that thread writes, unless much waits),
/// `commit_commit_log_least_pages` (4: pages of 4 KiB that must wait),
/// `commit_commit_log_thorough_interval` (200 ms, after which it writes fewer), `wait_time_out`
/// (5,000 ms: how long an append waits for the next segment of the log or for a buffer at most),
/// `os_page_cache_busy_time_out_mills` (1,000 ms: while an append has been writing for longer,
/// others raise `BusyError`), `checkpoint_interval` (64 MiB: how much recovery reads, about; more
/// where stamps of the checkpoint take 100 ms or longer), `index_tags` (False: whether tags are
/// indexed, as 5.4 does; for a reader, whether the index holds the tag of every message, so that
/// `query(topic, tag=...)` need not walk the log). Reading: `access_message_in_memory_max_ratio`
/// (40 percent), `max_transfer_bytes_on_message_in_memory` (262,144),
/// `max_transfer_count_on_message_in_memory` (32), `max_transfer_bytes_on_message_in_disk`
/// (65,536), `max_transfer_count_on_message_in_disk` (8), `max_filter_message_size` (16,000 bytes).
/// Both: `check_crc_on_recover` (True), `message_delay_level` ("1s 5s 10s ..."), `errors` ("raise":
/// see below), and `sigbus_guard` (True): whether a failing device raises `CorruptError` instead of
/// killing the process.
///
/// A reader warns (`RuntimeWarning`) of a store whose files tell of messages that are not in its
/// log, such as an incomplete copy. `Store.recovery` says what is missing.
///
/// A writer bounds what its log takes of the page cache: what it has appended is dropped from there
/// once it is durable, and lies before the last `access_message_in_memory_max_ratio` percent of the
/// machine's memory.
///
/// A store that its last writer did not close is recovered: in memory to read it, on disk to write
/// to it; `Store.recovery` says what was found. With `recovery="heal"`, the default, a writer
/// refuses (`CorruptError`) damage before a message that was on disk, as the checkpoint or the mark
/// of what was flushed says. Any later damage counts as a torn end. It is cut together with all
/// that follows it, because nothing on disk says that it was flushed. Messages before the last
/// checkpoint of mqstore are not checked at an open; reading a damaged one raises `CorruptError`.
/// With "salvage" what is whole is kept on both sides of any damage. Copy a crashed store whose
/// disk is in doubt before you open it with "heal".
///
/// With `errors="raise"`, the default, a read of many messages (iteration, slices, `get`,
/// `batches`, `fetch`) raises `CorruptError` at the first that was lost or is damaged; with "skip"
/// it passes over such messages and counts them (`skipped`). A call may say otherwise.
///
/// Raises `NotAStoreError` (a `FileNotFoundError`) if the directory holds no store,
/// `StoreExistsError` (a `FileExistsError`) if it holds anything and the mode is "x",
/// `CorruptError` if its files cannot belong together, `ValueError` for a mode or value that cannot
/// be, `TypeError` for an unknown option, `StoreIOError` (an `OSError`: a `FileNotFoundError`, a
/// `PermissionError`) for what the system refuses; and where the mode writes, `LockedError` (a
/// `BlockingIOError`) while another writer has the store; its text says how long the call waited.
#[pyfunction]
#[pyo3(
    signature = (path, mode="r", **options),
    text_signature = "(path, mode='r', *, geometry=None, mapped_file_size_commit_log=None, \
mapped_file_size_consume_queue=None, max_hash_slot_num=None, max_index_num=None, access_message_in_memory_max_ratio=40, \
max_transfer_bytes_on_message_in_memory=262144, max_transfer_count_on_message_in_memory=32, \
max_transfer_bytes_on_message_in_disk=65536, max_transfer_count_on_message_in_disk=8, max_filter_message_size=16000, \
check_crc_on_recover=True, message_delay_level='1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h', \
max_message_size=4194304, enabled_append_prop_crc=False, flush_disk_type='ASYNC_FLUSH', sync_flush_timeout=5000, \
flush_interval_commit_log=500, flush_commit_log_least_pages=4, flush_commit_log_thorough_interval=10000, \
flush_commit_log_timed=True, warm_mapped_file_enable=False, flush_least_pages_when_warm_mapped_file=4096, \
transient_store_pool_enable=False, transient_store_pool_size=5, \
transient_store_pool_buffer_size=4194304, commit_interval_commit_log=200, commit_commit_log_least_pages=4, \
commit_commit_log_thorough_interval=200, wait_time_out=5000, os_page_cache_busy_time_out_mills=1000, checkpoint_interval=67108864, \
lock_timeout=0, recovery='heal', errors='raise', index_tags=False, sigbus_guard=True)"
)]
pub(super) fn open(
    py: Python<'_>,
    #[pyo3(from_py_with = arguments::path)] path: PathBuf,
    #[pyo3(from_py_with = arguments::mode)] mode: &str,
    options: Option<Bound<'_, PyDict>>,
) -> PyResult<Store> {
    let options = options.unwrap_or_else(|| PyDict::new(py));
    let config = config_of(&options)?;
    open_with(py, path, Mode::parse(mode)?, options, config, Duration::ZERO)
}

/// Opens a store for a caller that has `waited` for its lock before.
fn open_with(
    py: Python<'_>,
    path: PathBuf,
    mode: Mode,
    options: Bound<'_, PyDict>,
    config: StoreConfig,
    waited: Duration,
) -> PyResult<Store> {
    if mode != Mode::Read {
        // Imported now, so that a later append needs no descriptor for it; costs about 9 ms, once a process.
        nowait::expect_module(py)?;
    }
    // Absolute, because a reader that is pickled or reopened may find itself in another working directory.
    let path = std::path::absolute(&path).map_err(|error| Error::io("find", path, error))?;
    let recipe = Py::new(py, Recipe::new(&path, options.unbind()))?;
    let opened = py.detach(|| interruptible_by_signals(|| Ok(()), || Handle::open(path, config, mode, recipe)));
    let handle = opened.map_err(|error| error.after_wait(waited))?;
    if mode == Mode::Read {
        warn_of_missing(py, &handle)?;
    } else {
        warn_of_unlocked_pool(py, &handle)?;
    }
    Ok(Store {
        handle: Arc::new(handle),
        running_loop: None,
    })
}

/// Whoever reads a store that lacks messages is told at once: most programs never look at `Store.recovery`.
fn warn_of_missing(py: Python<'_>, handle: &Handle) -> PyResult<()> {
    let reader = handle.current_reader(py)?;
    let Some(missing) = &reader.recovery().missing else {
        return Ok(());
    };
    warn(py, &format!("{} is INCOMPLETE: {missing}", handle.path().display()))
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

/// Makes one attempt to open a store as `open` does, for a caller that has `waited` for its lock. Returns None where another writer has
/// the store and `lock_timeout` is not over.
#[pyfunction(name = "_open_after", signature = (waited, path, mode="r", **options))]
pub(super) fn open_after(
    py: Python<'_>,
    waited: Duration,
    #[pyo3(from_py_with = arguments::path)] path: PathBuf,
    #[pyo3(from_py_with = arguments::mode)] mode: &str,
    options: Option<Bound<'_, PyDict>>,
) -> PyResult<Option<Store>> {
    let options = options.unwrap_or_else(|| PyDict::new(py));
    let mut config = config_of(&options)?;
    let timeout = mem::take(&mut config.lock_timeout);
    match open_with(py, path, Mode::parse(mode)?, options, config, waited) {
        Err(error) if error.is_instance_of::<LockedError>(py) && waited < timeout => Ok(None),
        attempt => attempt.map(Some),
    }
}

/// A store from its path and options: what pickle calls for a `Recipe`.
#[pyfunction(name = "_reopen")]
pub(super) fn reopen(py: Python<'_>, path: PathBuf, options: Bound<'_, PyDict>) -> PyResult<Store> {
    open(py, path, "r", Some(options))
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
        return Err(PyTypeError::new_err(format!(
            "open() has no option {name:?}: help(mqstore.open) lists them"
        )));
    };
    let set = match field {
        OptionField::Flag(field) => assign(field, value),
        OptionField::Text(field) => assign(field, value),
        OptionField::U32(field) => assign(field, value),
        OptionField::U64(field) => assign(field, value),
        OptionField::Usize(field) => assign(field, value),
        OptionField::Size(field) => assign(field, value),
        // Its error has the name.
        OptionField::Wait(field) => return lock_timeout(value).map(|timeout| *field = timeout),
        OptionField::FlushDiskType(field) => one_of(value, FlushDiskType::NAMES).map(|named| *field = named),
        OptionField::Recovery(field) => one_of(value, Recovery::NAMES).map(|named| *field = named),
        OptionField::Errors(field) => one_of(value, Errors::NAMES).map(|named| *field = named),
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
