//! `AppendResult`.

use pyo3::prelude::*;
use pyo3::types::PyDateTime;

use super::time::{to_datetime, to_text};
use crate::store;

/// What became of a message that was stored.
#[pyclass(frozen, module = "mqstore")]
pub(super) struct AppendResult(pub(super) store::AppendResult);

#[pymethods]
impl AppendResult {
    /// RocketMQ's word for it: `PUT_OK`. What is not stored raises instead.
    #[getter]
    #[expect(clippy::unused_self, reason = "an attribute of each result")]
    fn status(&self) -> &'static str {
        "PUT_OK"
    }

    /// Where its record starts in the commit log, in bytes.
    #[getter]
    fn physical_offset(&self) -> i64 {
        self.0.appended.physical_offset
    }

    /// Its number in its queue, from 0; 0 for a message that takes none: a prepared or rolled-back one.
    #[getter]
    fn queue_offset(&self) -> i64 {
        self.0.appended.queue_offset
    }

    /// Bytes of its record.
    #[getter]
    fn wrote_bytes(&self) -> i32 {
        self.0.appended.wrote_bytes
    }

    /// When it was stored, in UTC, to the ms; never earlier than that of the message before.
    #[getter]
    fn store_time<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDateTime>> {
        to_datetime(py, self.0.appended.store_time)
    }

    /// The offset id: store host and physical offset as 32 (IPv4) or 56 (IPv6) hex digits in capitals.
    #[getter]
    fn message_id(&self) -> String {
        self.0.message_id.to_string()
    }

    fn __repr__(&self) -> String {
        format!(
            "<mqstore.AppendResult PUT_OK, physical_offset={} queue_offset={} wrote_bytes={} {}>",
            self.physical_offset(),
            self.queue_offset(),
            self.wrote_bytes(),
            to_text(self.0.appended.store_time)
        )
    }
}
