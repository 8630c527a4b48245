//! The Arrow `PyCapsule` interface: <https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>.
#![expect(unsafe_code, reason = "Arrow crosses the border as C structs behind pointers")]

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, to_ffi};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array, RecordBatch, RecordBatchReader, StructArray};
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::arguments::type_of;
use super::arrow_input::{table_of_array, table_of_stream};
use crate::arrow::Table;

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const STREAM: &CStr = c"arrow_array_stream";

/// Exports a schema for `__arrow_c_schema__`.
pub(super) fn export_schema<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema).map_err(refused)?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// Exports a batch for `__arrow_c_array__`, as one struct array.
pub(super) fn export_batch<'py>(
    py: Python<'py>,
    batch: &RecordBatch,
) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
    let (array, _) = to_ffi(&StructArray::from(batch.clone()).to_data()).map_err(refused)?;
    let array = PyCapsule::new_with_value(py, array, ARRAY)?;
    Ok((export_schema(py, &batch.schema())?, array))
}

/// Exports an array without nulls for `__arrow_c_array__`.
pub(super) fn export_array<'py>(py: Python<'py>, array: &dyn Array) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
    let (exported, _) = to_ffi(&array.to_data()).map_err(refused)?;
    let schema = FFI_ArrowSchema::try_from(Field::new("", array.data_type().clone(), false)).map_err(refused)?;
    let schema = PyCapsule::new_with_value(py, schema, SCHEMA)?;
    Ok((schema, PyCapsule::new_with_value(py, exported, ARRAY)?))
}

/// Exports a stream for `__arrow_c_stream__`, which reads each batch on request, on the consumer's thread.
pub(super) fn export_stream(
    py: Python<'_>,
    schema: SchemaRef,
    batches: impl Iterator<Item = Result<RecordBatch, ArrowError>> + Send + 'static,
) -> PyResult<Bound<'_, PyCapsule>> {
    let exported = Exported {
        schema,
        batches: Some(batches),
    };
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(exported)), STREAM)
}

/// The reader of an exported stream. A panic that reached its C caller would abort the process.
struct Exported<I> {
    schema: SchemaRef,
    /// `None` after an error or the end.
    batches: Option<I>,
}

impl<I: Iterator<Item = Result<RecordBatch, ArrowError>>> Iterator for Exported<I> {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batches = self.batches.as_mut()?;
        let next = catch_unwind(AssertUnwindSafe(|| batches.next()))
            .unwrap_or_else(|_| Some(Err(ArrowError::ExternalError("mqstore failed: please report it".into()))));
        if !matches!(next, Some(Ok(_))) {
            self.batches = None;
        }
        // The text travels as a C string, and the exporter panics on a NUL inside it.
        next.map(|batch| {
            batch.map_err(|error| match error.to_string() {
                text if text.contains('\0') => ArrowError::ExternalError(text.replace('\0', "\u{fffd}").into()),
                _ => error,
            })
        })
    }
}

impl<I: Iterator<Item = Result<RecordBatch, ArrowError>>> RecordBatchReader for Exported<I> {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// Returns true if `import_table` takes it.
pub(super) fn speaks_arrow(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(value.hasattr("__arrow_c_stream__")? || value.hasattr("__arrow_c_array__")?)
}

/// Takes the batches of anything that speaks the interface.
///
/// # Errors
/// `TypeError` if `value` does not, or holds no table; `ValueError` with what its producer said.
pub(super) fn import_table(value: &Bound<'_, PyAny>) -> PyResult<Table> {
    if let Some(method) = value.getattr_opt("__arrow_c_stream__")? {
        return import_stream(value.py(), &method.call0()?);
    }
    if let Some(method) = value.getattr_opt("__arrow_c_array__")? {
        let (schema, array) = method.call0()?.extract()?;
        return import_array(&schema, &array);
    }
    Err(PyTypeError::new_err(format!(
        "expected a table that speaks Arrow (__arrow_c_stream__ or __arrow_c_array__: of pyarrow, polars, duckdb, pandas), got {}",
        type_of(value)?
    )))
}

fn import_stream(py: Python<'_>, capsule: &Bound<'_, PyAny>) -> PyResult<Table> {
    let capsule = capsule.cast::<PyCapsule>()?;
    let stream = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: a capsule of this name holds a stream by the interface's contract; `capsule` keeps it alive, and the stream is moved
    // out of it, so that nobody can use it twice.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(stream.as_ptr()) };
    py.detach(move || table_of_stream(stream))
}

fn import_array(schema: &Bound<'_, PyCapsule>, array: &Bound<'_, PyCapsule>) -> PyResult<Table> {
    let schema = schema.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
    // SAFETY: a capsule of this name holds a schema by the interface's contract and outlives this borrow.
    let schema = unsafe { schema.as_ref() };
    // SAFETY: a capsule of this name holds an array by the interface's contract; it is moved out of the capsule.
    let array = unsafe { FFI_ArrowArray::from_raw(array.as_ptr()) };
    table_of_array(schema, array)
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn refused(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
