//! `Tabular`: what a queue, a slice of one, a topic and a result have in common.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};
use pyo3::{PyClass, PyTypeInfo};

use super::arguments::type_of;
use super::capsule::export_schema;
use crate::arrow::MessageColumns;

/// Messages that turn into a table, with the columns of a message. `batches` reads them in batches
/// of bounded size; polars, duckdb and pyarrow take the object as it is
/// (`polars.DataFrame(queue[:])`), in such batches.
///
/// `pandas.DataFrame(...)` does not look for Arrow: `to_pandas` makes a frame, and so does
/// `pandas.DataFrame.from_arrow`.
#[pyclass(frozen, subclass, module = "mqstore._native")]
pub(super) struct Tabular;

#[pymethods]
impl Tabular {
    /// Returns all messages as a pyarrow.Table.
    ///
    /// `columns` names the columns wanted, in order, all by default. Raises `ImportError` without
    /// pyarrow, `ValueError` for a column that a message does not have, and what reading the
    /// messages raises.
    #[pyo3(signature = (columns=None))]
    fn to_arrow<'py>(slf: &Bound<'py, Self>, columns: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        batches(slf, columns)?.call_method0("to_arrow")
    }

    /// Returns all messages as a polars.DataFrame.
    ///
    /// `columns` as in `to_arrow`. Raises `ImportError` without polars, and what `to_arrow` raises.
    #[pyo3(signature = (columns=None))]
    fn to_polars<'py>(slf: &Bound<'py, Self>, columns: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        batches(slf, columns)?.call_method0("to_polars")
    }

    /// Returns all messages as a pandas.DataFrame.
    ///
    /// `columns` as in `to_arrow`. Raises `ImportError` without pandas or pyarrow, and what
    /// `to_arrow` raises.
    #[pyo3(signature = (columns=None))]
    fn to_pandas<'py>(slf: &Bound<'py, Self>, columns: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        batches(slf, columns)?.call_method0("to_pandas")
    }

    /// The Arrow PyCapsule interface.
    fn __arrow_c_schema__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyCapsule>> {
        export_schema(slf.py(), MessageColumns::select(None)?.schema())
    }

    /// The Arrow PyCapsule interface: all columns of the messages, in batches of 4 MiB.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        slf: &Bound<'py, Self>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        batches(slf, None)?.call_method1("__arrow_c_stream__", (requested_schema,))
    }

    /// Refused, because an array, and the `pandas.DataFrame` that asks for it, would have one
    /// column of objects.
    #[pyo3(signature = (*_arguments, **_keywords))]
    fn __array__(slf: &Bound<'_, Self>, _arguments: &Bound<'_, PyTuple>, _keywords: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        Err(PyTypeError::new_err(format!(
            "{} is not a NumPy array: call its to_pandas() for a pandas.DataFrame, list() for a list of Message",
            type_of(slf.as_any())?
        )))
    }
}

/// Calls `batches`, which each subclass has.
fn batches<'py>(messages: &Bound<'py, Tabular>, columns: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
    messages.call_method1("batches", (columns,))
}

/// An object of a class that turns into a table.
pub(super) fn tabular<T>(py: Python<'_>, messages: T) -> PyResult<Bound<'_, T>>
where
    T: PyClass<BaseType = Tabular> + PyTypeInfo,
{
    Bound::new(py, PyClassInitializer::from(Tabular).add_subclass(messages))
}
