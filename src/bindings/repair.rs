//! `repair`, `rebuild`.
#![expect(clippy::doc_markdown, reason = "docstrings in numpy's style")]

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arguments;
use super::handle::interruptible_by_signals;
use super::open::config_of;
use super::reports;
use crate::check::{self, RepairRequest};
use crate::config::StoreConfig;
use crate::storage::{Env, RealEnv};

/// Verifies a store, repairs it, and verifies it again. By default it changes nothing and reports what
/// it would change.
///
/// Parameters
/// ----------
/// path : str, bytes or os.PathLike
///     The directory of the store.
/// dry_run : bool, default True
///     False makes the changes.
/// into : str, bytes or os.PathLike, optional
///     A missing or empty directory, outside of any store: all files are copied into it, and the copy
///     is repaired; the store stays as it is. Segments that are missing or cut short get salvage
///     records, up to the highest offset that the mark of what was flushed, queues, index or checkpoint
///     name: no offset is assigned again. None: the store itself; if a part of its log is missing it
///     stays as it is, and `refusal` says what to put back.
/// progress : callable, optional
///     Called with two ints: how many bytes of the log are done, and of how many, in each pass (verify,
///     write, verify again).
/// **options
///     The options of `open` but `recovery`, which is chosen here.
///
/// Returns
/// -------
/// RepairReport
///     The changes, and what is wrong after them.
///
/// Raises
/// ------
/// LockedError
///     A writer has the store.
/// StoreExistsError
///     `into` is not empty.
/// ValueError
///     `into` lies in a store.
/// StoreError
///     As `open` and `Store.verify`.
///
/// Notes
/// -----
/// Queues, index and checkpoint are rebuilt from the log, as by `rebuild`, where one of them is wrong;
/// queues of a topic that was deleted then come back if the log still has its messages. Files that do
/// not belong into the store, and settings that are not JSON, are moved into a new directory
/// `mqstore-backup-...` of the store, which `backup` names; move a file back to undo that. A record
/// that is not whole is lost: a salvage record takes its place, as with `recovery="salvage"`, and every
/// other message keeps its offsets. The segment as it was is copied into the backup first.
///
/// It may be called again after an error or a crash, with another `into`: no message is lost then. Open
/// readers continue. What `progress` raises ends the call.
#[pyfunction]
#[pyo3(signature = (path, *, dry_run=true, into=None, progress=None, **options))]
pub(super) fn repair<'py>(
    py: Python<'py>,
    #[pyo3(from_py_with = arguments::path)] path: PathBuf,
    #[pyo3(from_py_with = arguments::dry_run)] dry_run: bool,
    into: Option<&Bound<'_, PyAny>>,
    progress: Option<&Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let config = config_without_recovery(options)?;
    let progress = progress.map(arguments::callable).transpose()?;
    let into = into.map(arguments::path).transpose()?;
    let request = RepairRequest {
        is_dry_run: dry_run,
        into: into.as_deref(),
    };
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let tell = |done, all| arguments::tell(progress.as_ref(), done, all);
    let report = py.detach(|| interruptible_by_signals(|| Ok(()), || check::repair(&env, &path, &config, request, tell)))?;
    reports::repair_report(py, &report, &path)
}

/// Rebuilds the queues, the index and the checkpoint of a store from its log, and verifies it
/// before and afterwards. Each queue keeps its offsets: entries of messages that have expired stay,
/// and so does a queue without a message.
///
/// Parameters
/// ----------
/// path : str, bytes or os.PathLike
///     The directory of the store.
/// dry_run : bool, default True
///     True changes nothing, and reports what would be changed.
/// progress : callable, optional
///     As in `repair`.
/// **options
///     The options of `open` but `recovery`, which is chosen here. Where all files of a kind are
///     gone, and nothing has recorded their sizes, those of a broker's defaults are made.
///
/// Returns
/// -------
/// RepairReport
///     What was changed, and the findings before and afterwards.
///
/// Raises
/// ------
/// CorruptError
///     The log is damaged, which needs `repair`; a part of it is missing, because queue offsets
///     would be given again; or a message and a queue entry contradict each other about topic,
///     queue id or queue offset.
///     The error says what to do. Nothing is changed, and a dry run raises it, too.
/// LockedError
///     A writer has the store; a dry run does not ask.
/// StoreError
///     As `open` and `Store.verify`.
///
/// Notes
/// -----
/// Queues of a topic that was deleted come back if the log still has its messages. It may be called
/// again after an error or a crash, and open readers continue.
#[pyfunction]
#[pyo3(signature = (path, *, dry_run=true, progress=None, **options))]
pub(super) fn rebuild<'py>(
    py: Python<'py>,
    #[pyo3(from_py_with = arguments::path)] path: PathBuf,
    #[pyo3(from_py_with = arguments::dry_run)] dry_run: bool,
    progress: Option<&Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let config = config_without_recovery(options)?;
    let progress = progress.map(arguments::callable).transpose()?;
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let tell = |done, all| arguments::tell(progress.as_ref(), done, all);
    let report = py.detach(|| interruptible_by_signals(|| Ok(()), || check::rebuild(&env, &path, &config, dry_run, tell)))?;
    reports::repair_report(py, &report, &path)
}

fn config_without_recovery(options: Option<&Bound<'_, PyDict>>) -> PyResult<StoreConfig> {
    let Some(options) = options else {
        return Ok(StoreConfig::default());
    };
    if options.contains("recovery")? {
        return Err(PyValueError::new_err(
            "recovery is no option here: what is damaged decides it; leave it out",
        ));
    }
    config_of(options)
}
