//! `AppendResult`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDateTime;

use super::arguments;
use super::recipe::{Reduced, of_native};
use super::time::{to_datetime, to_text};
use crate::format::Malformed;
use crate::log::Appended;
use crate::store::{self, PutStatus};

/// The result of an append. Two results with the same values are equal.
#[pyclass(frozen, eq, hash, module = "mqstore")]
#[derive(PartialEq, Eq, Hash)]
pub(super) struct AppendResult(pub(super) store::AppendResult);

/// Converts the argument `offset` of a wait: an `AppendResult` counts as the physical offset of its message, and `None` is for everything
/// that was appended.
pub(super) fn offset_or_none(value: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    match value.cast::<AppendResult>() {
        Ok(result) => Ok(Some(result.get().physical_offset())),
        Err(_) => arguments::offset_or_none(value),
    }
}

#[pymethods]
impl AppendResult {
    /// RocketMQ's word for it: `PUT_OK`, or `FLUSH_DISK_TIMEOUT` for a message that was not durable
    /// yet when `sync_flush_timeout` was over. Of a `SYNC_MASTER` also `FLUSH_SLAVE_TIMEOUT`: too few
    /// slaves had it when `slave_timeout` was over; and `SLAVE_NOT_AVAILABLE`: too few are connected, or
    /// they are far behind, and it was not waited for. What is not stored raises instead.
    #[getter]
    fn status(&self) -> &'static str {
        self.0.status.name()
    }

    /// The physical offset of its record in the commit log, in bytes.
    #[getter]
    fn physical_offset(&self) -> i64 {
        self.0.appended.physical_offset
    }

    /// Its number in its queue, from 0; 0 for a message that takes none: a prepared or rolled-back
    /// one.
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

    /// The offset id: store host and physical offset as 32 (IPv4) or 56 (IPv6) hex digits in
    /// capitals.
    #[getter]
    fn message_id(&self) -> String {
        self.0.message_id.to_string()
    }

    /// Returns a result with the status `FLUSH_DISK_TIMEOUT`: the message is stored, and not durable yet.
    #[pyo3(name = "_late")]
    fn late(&self) -> Self {
        Self(store::AppendResult {
            status: PutStatus::FlushDiskTimeout,
            ..self.0
        })
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, Fields> {
        let Appended {
            physical_offset,
            queue_offset,
            wrote_bytes,
            store_time,
        } = self.0.appended;
        Ok((
            of_native(py, "_append_result")?,
            (
                self.status(),
                physical_offset,
                queue_offset,
                wrote_bytes,
                store_time,
                self.message_id(),
            ),
        ))
    }

    fn __repr__(&self) -> String {
        format!(
            "<mqstore.AppendResult {}, physical_offset={} queue_offset={} wrote_bytes={} {}>",
            self.status(),
            self.physical_offset(),
            self.queue_offset(),
            self.wrote_bytes(),
            to_text(self.0.appended.store_time)
        )
    }
}

/// Status, physical offset, queue offset, bytes, store time, message id.
type Fields = (&'static str, i64, i64, i32, i64, String);

/// A result from its fields: what pickle calls.
#[pyfunction(name = "_append_result")]
pub(super) fn unpickle_append_result(
    status: &str,
    physical_offset: i64,
    queue_offset: i64,
    wrote_bytes: i32,
    store_time: i64,
    message_id: &str,
) -> PyResult<AppendResult> {
    let message_id = message_id.parse();
    let message_id = message_id.map_err(|malformed: Malformed| PyValueError::new_err(malformed.reason.into_owned()))?;
    let appended = Appended {
        physical_offset,
        queue_offset,
        wrote_bytes,
        store_time,
    };
    Ok(AppendResult(store::AppendResult {
        status: PutStatus::of_name(status).unwrap_or(PutStatus::PutOk),
        appended,
        message_id,
    }))
}
