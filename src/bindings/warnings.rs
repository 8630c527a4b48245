//! Warnings, at the line of the caller.

use std::ffi::CString;

use pyo3::exceptions::{PyRuntimeWarning, PyValueError};
use pyo3::prelude::*;

/// Warns of `text` at the innermost line outside this package. Python shows a text once for each line, and a filter can name the module
/// of that line.
///
/// # Errors
/// The warning as an exception, where a filter asks for that.
pub(super) fn warn(py: Python<'_>, text: &str) -> PyResult<()> {
    let text = CString::new(text.replace('\0', "\\0"))?;
    PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, stack_level(py)?)
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
