//! `RecordBatch`, and how batches turn into objects of Python, pyarrow, polars and pandas.

use arrow_array as arrow;
use pyo3::exceptions::PyModuleNotFoundError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};

use super::capsule::{export_batch, export_schema, export_stream};
use super::imports;
use super::interpreter::hang_at_exit;
use super::row_iterator::{RowIterator, dicts};

/// One Arrow record batch. Hand it to pyarrow, polars, duckdb or pandas as it is, or call one of
/// the `to_` methods.
///
/// No other package is needed to read its rows. Iteration yields a named tuple for each, with a
/// field for each column (`row.topic`, `row[0]`, `row._asdict()`); `to_pylist` returns dicts; `repr`
/// shows the first rows as a table. A null reads as None, a time as a datetime in UTC, a list as a
/// list, and a struct or a map as a dict. A time outside the years 1 to 9999, such as that of a
/// damaged record, reads as an int of ms since 1970; beyond 292,000 years it is null.
#[pyclass(frozen, subclass, module = "mqstore")]
pub(super) struct RecordBatch(pub(super) arrow::RecordBatch);

#[pymethods]
impl RecordBatch {
    /// The names of its columns, a list of str.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.0
            .schema_ref()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect()
    }

    /// Returns a pyarrow.RecordBatch with the same memory.
    ///
    /// Raises `ImportError` without pyarrow.
    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        to_arrow(slf.as_any(), "record_batch")
    }

    /// Returns the rows as a polars.DataFrame.
    ///
    /// Raises `ImportError` without polars.
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        to_polars(slf.as_any())
    }

    /// Returns the rows as a pandas.DataFrame.
    ///
    /// Raises `ImportError` without pandas or pyarrow.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        to_pandas(slf.as_any(), "record_batch")
    }

    /// Returns the rows as a list of dicts by column name.
    fn to_pylist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        hang_at_exit();
        dicts(py, &self.0)
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<RowIterator> {
        hang_at_exit();
        RowIterator::over(py, self.0.clone())
    }

    /// The Arrow PyCapsule interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        export_schema(py, self.0.schema_ref())
    }

    /// The Arrow PyCapsule interface.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        drop(requested_schema); // a wish that the interface lets a producer decline
        export_batch(py, &self.0)
    }

    /// The Arrow PyCapsule interface.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        export_stream(py, self.0.schema(), std::iter::once(Ok(self.0.clone())))
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    fn __repr__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let batch = slf.get();
        let head = format!(
            "<mqstore.RecordBatch {} rows: {}>",
            batch.0.num_rows(),
            batch.column_names().join(", ")
        );
        shown(slf, head)
    }
}

/// Returns the representation of a batch: this line, and its first rows as a table.
pub(super) fn shown<'py>(batch: &Bound<'py, RecordBatch>, head: String) -> PyResult<Bound<'py, PyAny>> {
    hang_at_exit();
    imports::call(batch.py(), "mqstore._table", "shown", (head, batch), None)
}

pub(super) fn to_arrow<'py>(batches: &Bound<'py, PyAny>, function: &str) -> PyResult<Bound<'py, PyAny>> {
    hang_at_exit();
    call_of_package(batches, "pyarrow", function)
}

pub(super) fn to_polars<'py>(batches: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    hang_at_exit();
    call_of_package(batches, "polars", "DataFrame")
}

pub(super) fn to_pandas<'py>(batches: &Bound<'py, PyAny>, function: &str) -> PyResult<Bound<'py, PyAny>> {
    hang_at_exit();
    imports::module(batches.py(), "pandas").map_err(|error| without(batches.py(), "pandas", error))?;
    to_arrow(batches, function)?.call_method0("to_pandas")
}

/// Calls a function of a package that mqstore itself does not need.
fn call_of_package<'py>(batches: &Bound<'py, PyAny>, package: &str, function: &str) -> PyResult<Bound<'py, PyAny>> {
    let py = batches.py();
    imports::call(py, package, function, (batches,), None).map_err(|error| without(py, package, error))
}

/// Says which package is missing.
fn without(py: Python<'_>, package: &str, error: PyErr) -> PyErr {
    if error.is_instance_of::<PyModuleNotFoundError>(py) {
        return PyModuleNotFoundError::new_err(format!("this call needs {package}: pip install {package}"));
    }
    error
}
