//! Modules that are imported when a call needs them, and the error where the process has no descriptor left for that.

use pyo3::call::PyCallArgs;
use pyo3::exceptions::{PyImportError, PyOSError};
use pyo3::prelude::*;
use pyo3::type_object::PyTypeInfo;
use pyo3::types::{PyDateTime, PyDelta, PyDict, PyTzInfo};

use super::arguments::str_of;
use super::errors::{StoreError, StoreIOError};

/// Loads the types of `datetime`. `PyO3` does that at their first use, and panics where the import fails.
///
/// # Errors
/// That of the import.
pub(super) fn load_types(py: Python<'_>) -> PyResult<()> {
    py.import("datetime")?;
    PyDateTime::type_object(py);
    PyDelta::type_object(py);
    PyTzInfo::utc(py).map(drop)
}

/// Imports a module.
///
/// # Errors
/// `StoreIOError` where the process has no descriptor or memory left; other errors of the import.
pub(super) fn module<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyModule>> {
    py.import(name).map_err(|error| of_shortage(py, error))
}

/// Imports a module and calls a function of it.
///
/// # Errors
/// `StoreIOError` where the process has no descriptor or memory left; other errors of import and call.
pub(super) fn call<'py>(
    py: Python<'py>,
    module: &str,
    function: &str,
    arguments: impl PyCallArgs<'py>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let called = py
        .import(module)
        .and_then(|module| module.getattr(function)?.call(arguments, options));
    called.map_err(|error| of_shortage(py, error))
}

/// Returns the hint `; there is A, B` with the names that are closest to `name`, or an empty text.
///
/// # Errors
/// Those of [`call`].
pub(super) fn there_is<'a>(py: Python<'_>, name: &str, names: impl IntoIterator<Item = &'a str>) -> PyResult<String> {
    let names: Vec<_> = names.into_iter().collect();
    call(py, "mqstore._names", "there_is", (name, names), None)?.extract()
}

/// Returns the `StoreIOError` of a shortage of descriptors or memory that Python met; any other error as it is.
fn of_shortage(py: Python<'_>, error: PyErr) -> PyErr {
    let number = match shortage(py, &error) {
        Ok(Some(number)) => number,
        Ok(None) => return error,
        Err(other) => return other,
    };
    let value = error.value(py);
    let why = match str_of(value) {
        Ok(why) => why,
        Err(other) => return other,
    };
    let path = value.getattr("filename").ok().filter(|path| !path.is_none());
    let text = format!("the process has no free descriptor or memory: free some and call again: {why}");
    let typed = StoreIOError::new_err((number, text, path.map(Bound::unbind)));
    typed.set_cause(py, Some(error));
    typed
}

/// The `errno` of a shortage.
fn shortage(py: Python<'_>, error: &PyErr) -> PyResult<Option<i32>> {
    let numbers = [libc::EMFILE, libc::ENFILE, libc::ENOMEM];
    if error.is_instance_of::<StoreError>(py) {
        return Ok(None);
    }
    let value = error.value(py);
    if error.is_instance_of::<PyOSError>(py) {
        let number: Option<i32> = value.getattr("errno")?.extract()?;
        return Ok(number.filter(|number| numbers.contains(number)));
    }
    if error.is_instance_of::<PyImportError>(py) {
        // The loader of shared libraries reports in words only.
        let (text, system) = (str_of(value)?, py.import("os")?);
        for number in numbers {
            let words: String = system.call_method1("strerror", (number,))?.extract()?;
            if text.contains(&words) {
                return Ok(Some(number));
            }
        }
    }
    Ok(None)
}
