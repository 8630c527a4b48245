//! `trim`.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arguments;
use super::handle::interruptible_by_signals;
use super::open::config_of;
use super::reports;
use super::writer::trim_to;
use crate::broker::{TrimRequest, trim_closed};
use crate::config::StoreConfig;
use crate::storage::{Env, RealEnv};

/// Removes the oldest messages of a store that no writer has open, such as that of a broker whose
/// disk is full. By default it changes nothing and reports what it would remove.
///
/// Parameters
/// ----------
/// path : str, bytes or os.PathLike
///     The directory of the store.
/// before : datetime with a timezone, int of ms since 1970, or timedelta, optional
///     Removes messages that were stored before this time, or are older than this.
/// before_offset : int, optional
///     Removes messages before this physical offset.
/// max_bytes : int, optional
///     Removes the oldest messages until the log has at most this many bytes. One of the three is
///     given.
/// dry_run : bool, default True
///     False removes the files.
/// force : bool, default False
///     As in `Writer.trim`.
/// **options
///     The options of `repair`, such as `lock_timeout`.
///
/// Returns
/// -------
/// TrimReport
///     As `Writer.trim`.
///
/// Raises
/// ------
/// LockedError
///     A writer has the store; a dry run does not ask.
/// CorruptError
///     The first segment that would stay does not begin with a message, a settings file with the
///     progress of groups is damaged, or, unless `force` is true, the progress of a group is lost:
///     nothing is removed.
/// StoreError
///     As `open`.
///
/// Notes
/// -----
/// It only removes files, and needs no free space. It recovers nothing: the next writer finds the
/// end of the log, the checkpoint and `abort` as they are. Messages that are not in their queues on
/// disk stay, and `refusal` says so. After an error or a crash it may be called again.
#[pyfunction]
#[pyo3(signature = (path, before=None, *, before_offset=None, max_bytes=None, dry_run=true, force=false, **options))]
#[expect(clippy::doc_markdown, reason = "a docstring in numpy's style")]
pub(super) fn trim<'py>(
    py: Python<'py>,
    #[pyo3(from_py_with = arguments::path)] path: PathBuf,
    before: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = arguments::before_offset)] before_offset: Option<i64>,
    max_bytes: Option<u64>,
    #[pyo3(from_py_with = arguments::dry_run)] dry_run: bool,
    force: bool,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let config = options.map_or_else(|| Ok(StoreConfig::default()), config_of)?;
    let request = TrimRequest {
        to: trim_to(before, before_offset, max_bytes)?,
        is_forced: force,
        is_dry_run: dry_run,
    };
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let report = py.detach(|| interruptible_by_signals(|| Ok(()), || trim_closed(&env, &path, &config, request)))?;
    reports::trim_report(py, &report, dry_run)
}
