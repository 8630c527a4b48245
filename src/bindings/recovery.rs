//! `RecoveryReport`.

use pyo3::prelude::*;

use crate::engine;

/// What opening the store found: where its log ends and why, and where queues and log disagreed. A read-only store sets that right
/// in memory and changes no file.
#[pyclass(frozen, module = "mqstore")]
pub(super) struct RecoveryReport(engine::RecoveryReport);

impl RecoveryReport {
    pub(super) fn new(report: engine::RecoveryReport) -> Self {
        Self(report)
    }
}

#[pymethods]
impl RecoveryReport {
    /// Whether the last writer closed the store: it has no `abort` file. False also beside a running broker.
    #[getter]
    fn clean_exit(&self) -> bool {
        self.0.clean_exit
    }

    /// Physical offset from which the log was read to find its end.
    #[getter]
    fn scan_start(&self) -> i64 {
        self.0.scan_start
    }

    /// Physical offset at which the log ends.
    #[getter]
    fn log_end(&self) -> i64 {
        self.0.log_end
    }

    /// Why it ends there, in words.
    #[getter]
    fn stop_reason(&self) -> &str {
        &self.0.stop_reason
    }

    /// Messages that the log holds and the queue files lack; they are read all the same.
    #[getter]
    fn undispatched(&self) -> u64 {
        self.0.undispatched
    }

    /// Queue entries that point at or past the end of the log; they are left out.
    #[getter]
    fn queue_entries_ahead(&self) -> u64 {
        self.0.queue_entries_ahead
    }

    fn __repr__(&self) -> String {
        format!(
            "<mqstore.RecoveryReport clean_exit={}, log {}..{} ({}), undispatched={}, queue_entries_ahead={}>",
            if self.0.clean_exit { "True" } else { "False" },
            self.0.scan_start,
            self.0.log_end,
            self.0.stop_reason,
            self.0.undispatched,
            self.0.queue_entries_ahead
        )
    }
}
