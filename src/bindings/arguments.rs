//! Arguments of a call, each refused by its name: the extraction that a signature brings along names it in a note alone.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use pyo3::exceptions::{PyTypeError, PyUnicodeEncodeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use super::interpreter_exit::hang_at_exit;
use crate::config::Errors;
use crate::error::Error;
use crate::read::QueryBy;

/// The same kind of error, with the name in front.
pub(super) fn named(py: Python<'_>, name: &str, error: &PyErr) -> PyErr {
    let text = format!("{name}: {}", error.value(py));
    if error.is_instance_of::<PyUnicodeEncodeError>(py) {
        // It cannot be made of a text.
        return PyValueError::new_err(text);
    }
    PyErr::from_type(error.get_type(py), (text,))
}

/// An argument of any type.
pub(super) fn extract<'py, T>(value: &Bound<'py, PyAny>, name: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    value
        .extract()
        .map_err(|error| named(value.py(), name, &Into::<PyErr>::into(error)))
}

/// Text that can be stored.
///
/// # Errors
/// `TypeError`; `IllegalMessageError` for half of a surrogate pair, which no UTF-8 has.
pub(super) fn text(value: &Bound<'_, PyAny>, what: &str) -> PyResult<String> {
    let Ok(text) = value.cast::<PyString>() else {
        return Err(PyTypeError::new_err(format!("{what} is a str, not {}", type_of(value)?)));
    };
    match text.to_str() {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(Error::illegal(format!(
            "{what} {} holds a lone surrogate: it is no text that can be stored",
            text.repr()?
        ))
        .into()),
    }
}

/// The type of a value, for a refusal.
pub(super) fn type_of(value: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(value.get_type().fully_qualified_name()?.to_string())
}

/// Text that may be None.
fn optional_text(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Option<String>> {
    if value.is_none() {
        Ok(None)
    } else {
        text(value, what).map(Some)
    }
}

/// A path: str, bytes or what has `__fspath__`. The empty one names no directory.
///
/// # Errors
/// `TypeError`; `NotAStoreError`, a `FileNotFoundError`.
pub(super) fn path(value: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    hang_at_exit();
    let of_system = value.py().import("os")?.call_method1("fspath", (value,));
    let of_system = of_system.map_err(|error| named(value.py(), "path", &error))?;
    let path = match of_system.cast::<PyBytes>() {
        Ok(bytes) => PathBuf::from(OsString::from_vec(bytes.as_bytes().to_vec())),
        Err(_) => extract(&of_system, "path")?,
    };
    if path.as_os_str().is_empty() {
        return Err(Error::NotAStore {
            path,
            found: "an empty path".to_owned(),
        }
        .into());
    }
    Ok(path)
}

/// What to do at damage; None for what the store was opened with.
pub(super) fn errors(value: &Bound<'_, PyAny>) -> PyResult<Option<Errors>> {
    if value.is_none() {
        return Ok(None);
    }
    let parsed = parse_errors(value).map_err(|error| named(value.py(), "errors", &error))?;
    Ok(Some(parsed))
}

/// # Errors
/// `TypeError`, `ValueError`, without the name.
pub(super) fn parse_errors(value: &Bound<'_, PyAny>) -> PyResult<Errors> {
    match value.extract::<&str>()? {
        "raise" => Ok(Errors::Raise),
        "skip" => Ok(Errors::Skip),
        other => Err(PyValueError::new_err(format!("{other:?}: expected \"raise\" or \"skip\""))),
    }
}

/// What the messages of a query are found by.
///
/// # Errors
/// `TypeError` for a key and a tag, and for neither.
pub(super) fn query_by(key: Option<String>, tag: Option<String>) -> PyResult<QueryBy> {
    match (key, tag) {
        (Some(key), None) => Ok(QueryBy::Key(key)),
        (None, Some(tag)) => Ok(QueryBy::Tag(tag)),
        (Some(_), Some(_)) => Err(PyTypeError::new_err(
            "query() finds by a key or by a tag: leave one of them out",
        )),
        (None, None) => Err(PyTypeError::new_err("query() finds by a key or by a tag: give one of them")),
    }
}

/// The topic of those rows that name none.
pub(super) fn default_topic(value: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    optional_text(value, "topic")
}

/// The queue of those rows that name none.
pub(super) fn default_queue(value: &Bound<'_, PyAny>) -> PyResult<Option<i32>> {
    extract(value, "queue")
}

macro_rules! arguments {
    ($($name:ident: $type:ty, $convert:ident;)*) => {
        $(pub(super) fn $name(value: &Bound<'_, PyAny>) -> PyResult<$type> {
            hang_at_exit();
            $convert(value, stringify!($name))
        })*
    };
}

arguments! {
    mode: String, extract;
    topic: String, text;
    tags: Option<String>, optional_text;
    unique_key: Option<String>, optional_text;
    born_host: Option<String>, optional_text;
    store_host: Option<String>, optional_text;
    key: Option<String>, optional_text;
    tag: Option<String>, optional_text;
    id: String, text;
    queue: i32, extract;
    queue_id: i32, extract;
    queue_offset: i64, extract;
    offset: i64, extract;
    physical_offset: i64, extract;
    max_messages: usize, extract;
    limit: Option<usize>, extract;
    max_bytes: usize, extract;
    columns: Option<Vec<String>>, extract;
    side: String, text;
    delay_level: i32, extract;
    flag: i32, extract;
    sys_flag: i32, extract;
    reconsume_times: i32, extract;
    prepared_transaction_offset: i64, extract;
}
