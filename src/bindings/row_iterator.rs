//! The rows of a table as objects of Python: named tuples and dicts. No Arrow library is needed.

use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use super::imports::call;
use super::time::us_to_time;

/// The rows of a table, one by one.
#[pyclass(frozen, module = "mqstore._native")]
pub(super) struct RowIterator {
    batch: RecordBatch,
    /// The class of the rows: a named tuple with a field for each column.
    class: Py<PyAny>,
    next: AtomicUsize,
}

impl RowIterator {
    pub(super) fn over(py: Python<'_>, batch: RecordBatch) -> PyResult<Self> {
        let names = PyTuple::new(py, names(&batch))?;
        let class = call(py, "mqstore._rows", "row_class", (names,), None)?.unbind();
        let next = AtomicUsize::new(0);
        Ok(Self { batch, class, next })
    }
}

#[pymethods]
impl RowIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let row = self.next.fetch_add(1, Ordering::Relaxed);
        if row >= self.batch.num_rows() {
            // So that the count never comes back to 0.
            self.next.store(self.batch.num_rows(), Ordering::Relaxed);
            return Ok(None);
        }
        let values: PyResult<Vec<_>> = self.batch.columns().iter().map(|column| value(py, column, row)).collect();
        self.class.bind(py).call1(PyTuple::new(py, values?)?).map(Some)
    }

    fn __length_hint__(&self) -> usize {
        self.batch.num_rows().saturating_sub(self.next.load(Ordering::Relaxed))
    }
}

/// Rows that are converted before signals are looked for.
const UNINTERRUPTED: usize = 4096;

/// Returns each row as a dict by column name.
pub(super) fn dicts<'py>(py: Python<'py>, batch: &RecordBatch) -> PyResult<Bound<'py, PyList>> {
    let names: Vec<_> = names(batch).map(|name| PyString::new(py, name)).collect();
    let rows = PyList::empty(py);
    for row in 0..batch.num_rows() {
        if row % UNINTERRUPTED == 0 {
            py.check_signals()?;
        }
        let fields = PyDict::new(py);
        for (name, column) in names.iter().zip(batch.columns()) {
            fields.set_item(name, value(py, column, row)?)?;
        }
        rows.append(fields)?;
    }
    Ok(rows)
}

fn names(batch: &RecordBatch) -> impl ExactSizeIterator<Item = &str> {
    batch.schema_ref().fields().iter().map(|field| field.name().as_str())
}

/// Converts a cell: null to None, a time to an aware `datetime` or an `int` (see [`us_to_time`]), pairs and a struct to a dict.
///
/// # Errors
/// `TypeError` for a column of another type.
fn value<'py>(py: Python<'py>, column: &dyn Array, row: usize) -> PyResult<Bound<'py, PyAny>> {
    if column.is_null(row) {
        return Ok(py.None().into_bound(py));
    }
    Ok(match column.data_type() {
        DataType::Boolean => PyBool::new(py, column.as_boolean().value(row)).to_owned().into_any(),
        DataType::Int32 => PyInt::new(py, column.as_primitive::<Int32Type>().value(row)).into_any(),
        DataType::Int64 => PyInt::new(py, column.as_primitive::<Int64Type>().value(row)).into_any(),
        DataType::Float64 => PyFloat::new(py, column.as_primitive::<Float64Type>().value(row)).into_any(),
        DataType::Utf8 => PyString::new(py, column.as_string::<i32>().value(row)).into_any(),
        DataType::Binary => PyBytes::new(py, column.as_binary::<i32>().value(row)).into_any(),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            us_to_time(py, column.as_primitive::<TimestampMicrosecondType>().value(row))?
        }
        DataType::List(_) => {
            let items = column.as_list::<i32>().value(row);
            let values: PyResult<Vec<_>> = (0..items.len()).map(|item| value(py, &items, item)).collect();
            PyList::new(py, values?)?.into_any()
        }
        DataType::Map(_, _) => {
            let pairs = column.as_map().value(row);
            let fields = PyDict::new(py);
            for pair in 0..pairs.len() {
                fields.set_item(value(py, pairs.column(0), pair)?, value(py, pairs.column(1), pair)?)?;
            }
            fields.into_any()
        }
        DataType::Struct(_) => {
            let record = column.as_struct();
            let fields = PyDict::new(py);
            for (name, values) in record.column_names().iter().zip(record.columns()) {
                fields.set_item(name, value(py, values, row)?)?;
            }
            fields.into_any()
        }
        other => {
            return Err(PyTypeError::new_err(format!(
                "a column of {other} is read by an Arrow library: call to_arrow()"
            )));
        }
    })
}
