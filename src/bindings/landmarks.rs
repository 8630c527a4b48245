//! What Spark asks a store: whether it is the one that was planned with, and how far a stream may read.

use pyo3::prelude::*;

use super::store::Store;
use crate::error::Result;

/// Physical offsets of the first and the last record of a log, with their checksums.
#[pyfunction(name = "_landmarks")]
pub(super) fn landmarks(py: Python<'_>, store: &Bound<'_, Store>) -> PyResult<Vec<(i64, u32)>> {
    let reader = store.get().handle.current_reader(py)?;
    Ok(py.detach(|| reader.landmarks())?)
}

/// For each physical offset the checksum of the record that starts there, None where none does.
#[pyfunction(name = "_checksums")]
#[expect(clippy::needless_pass_by_value, reason = "an extracted argument")]
pub(super) fn checksums(py: Python<'_>, store: &Bound<'_, Store>, offsets: Vec<i64>) -> PyResult<Vec<Option<u32>>> {
    let reader = store.get().handle.current_reader(py)?;
    let checksums: Result<_> = py.detach(|| offsets.iter().map(|offset| reader.record_checksum(*offset)).collect());
    Ok(checksums?)
}

/// Up to which physical offset a power cut takes nothing away, None if the store was closed and if
/// its writer does not say.
#[pyfunction(name = "_flushed_mark")]
pub(super) fn flushed_mark(py: Python<'_>, store: &Bound<'_, Store>) -> PyResult<Option<i64>> {
    let reader = store.get().handle.current_reader(py)?;
    Ok(py.detach(|| reader.flushed_mark())?)
}
