//! Warnings at the line of the caller, and those of slow appends through Python's `logging`.

use std::ffi::CString;
use std::path::Path;

use pyo3::call::PyCallArgs;
use pyo3::exceptions::{PyException, PyRuntimeWarning, PyValueError};
use pyo3::prelude::*;

use super::imports;
use crate::broker::CleanWarnings;
use crate::store::MessageStore;

/// Warns of `text` at the innermost line outside this package. Python shows a text once for each line, and a filter can name the module
/// of that line.
///
/// # Errors
/// The warning as an exception, where a filter asks for that.
pub(super) fn warn(py: Python<'_>, text: &str) -> PyResult<()> {
    let text = CString::new(text.replace('\0', "\\0"))?;
    PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, stack_level(py)?)
}

/// Warns of queues whose files are lost, if there are any: their messages are missing in a pass over the store at `path`.
///
/// # Errors
/// As [`warn`].
pub(super) fn warn_of_lost(py: Python<'_>, path: &Path, queues: &[(String, i32)]) -> PyResult<()> {
    if queues.is_empty() {
        return Ok(());
    }
    let text = imports::call(py, "mqstore._lost_queues", "lost_warning", (path.as_os_str(), queues), None)?;
    warn(py, &text.extract::<String>()?)
}

/// Warns of followed queues that begin again: their messages come from the first one on.
///
/// # Errors
/// As [`warn`].
pub(super) fn warn_of_begun_again(py: Python<'_>, path: &Path, queues: &[(String, i32)]) -> PyResult<()> {
    let text = imports::call(py, "mqstore._names", "begun_again", (path.as_os_str(), queues), None)?;
    warn(py, &text.extract::<String>()?)
}

/// Counts the frames from the innermost one to the first that is not of this package.
fn stack_level(py: Python<'_>) -> PyResult<i32> {
    let mut frame = match py.import("sys")?.call_method0("_getframe") {
        Ok(frame) => frame,
        // A thread that began with the call has no frame.
        Err(error) if error.is_instance_of::<PyValueError>(py) => return Ok(1),
        Err(error) => return Err(error),
    };
    let mut level = 1;
    while !frame.is_none() {
        let module = frame.getattr("f_globals")?.call_method1("get", ("__name__", ""))?;
        if !module
            .extract::<String>()
            .is_ok_and(|name| name == "mqstore" || name.starts_with("mqstore."))
        {
            break;
        }
        level += 1;
        frame = frame.getattr("f_back")?;
    }
    Ok(level)
}

/// Logs a warning for each slow append that was not reported yet. Called after an append, when its message is stored and the lock is
/// free. A handler that fails is reported, and does not hide the result of the append.
///
/// # Errors
/// An exception that is not an `Exception`, such as `KeyboardInterrupt`.
pub(super) fn warn_of_slow_puts(py: Python<'_>, path: &Path, store: &MessageStore) -> PyResult<()> {
    let text = "%s: an append held the lock of the log for %d ms, and other appends waited: the disk or the machine stalled";
    for held in store.take_slow_puts() {
        log_warning(py, (text, path.as_os_str(), held.as_millis()))?;
    }
    Ok(())
}

/// Logs a warning for each message that the removal of old segments has for the user. A handler that fails is reported.
///
/// # Errors
/// An exception that is not an `Exception`, such as `KeyboardInterrupt`.
pub(super) fn warn_of_removals(py: Python<'_>, path: &Path, warnings: &CleanWarnings) -> PyResult<()> {
    for text in warnings.take() {
        log_warning(py, ("%s: %s", path.as_os_str(), text))?;
    }
    Ok(())
}

fn log_warning<'py>(py: Python<'py>, arguments: impl PyCallArgs<'py>) -> PyResult<()> {
    let log = || {
        let logger = py.import("logging")?.call_method1("getLogger", ("mqstore",))?;
        logger.call_method1("warning", arguments)
    };
    match log() {
        Err(error) if error.is_instance_of::<PyException>(py) => {
            error.write_unraisable(py, None);
            Ok(())
        }
        logged => logged.map(drop),
    }
}
