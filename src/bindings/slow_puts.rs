//! Warnings of appends that held the lock of the log for long, through Python's `logging`.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use super::handle::Handle;
use crate::store::MessageStore;

/// Logs a warning for each slow append that was not told yet. Called after an append, when its message is stored and the lock is free. A
/// handler that fails is reported, and does not hide what became of the append.
///
/// # Errors
/// What is no `Exception`, such as `KeyboardInterrupt`.
pub(super) fn warn_of_slow_puts(py: Python<'_>, handle: &Handle, store: &MessageStore) -> PyResult<()> {
    for held in store.take_slow_puts() {
        match warn(py, handle, held.as_millis()) {
            Err(error) if error.is_instance_of::<PyException>(py) => error.write_unraisable(py, None),
            told => told?,
        }
    }
    Ok(())
}

fn warn(py: Python<'_>, handle: &Handle, ms: u128) -> PyResult<()> {
    let text = "%s: an append held the lock of the log for %d ms, and other appends waited: the disk or the machine stalled";
    let logger = py.import("logging")?.call_method1("getLogger", ("mqstore",))?;
    logger.call_method1("warning", (text, handle.path().as_os_str(), ms))?;
    Ok(())
}
