//! `RecoveryReport`.

use pyo3::prelude::*;

use crate::recovery;

/// What opening the store found: where its log ends and why, and where queues and log disagreed. A
/// read-only store sets that right in memory and changes no file; a writer sets it right on disk.
#[pyclass(frozen, module = "mqstore")]
pub(super) struct RecoveryReport {
    report: recovery::RecoveryReport,
    /// Nobody else had the store.
    is_writer: bool,
}

impl RecoveryReport {
    pub(super) fn new(report: recovery::RecoveryReport, is_writer: bool) -> Self {
        Self { report, is_writer }
    }
}

#[pymethods]
impl RecoveryReport {
    /// Whether the last writer closed the store: it has no `abort` file. A reader finds one beside
    /// a live writer, too.
    #[getter]
    fn clean_exit(&self) -> bool {
        self.report.clean_exit
    }

    /// Physical offset from which the log was read to find its end.
    #[getter]
    fn scan_start(&self) -> i64 {
        self.report.scan_start
    }

    /// Physical offset at which the log ends.
    #[getter]
    fn log_end(&self) -> i64 {
        self.report.log_end
    }

    /// Why it ends there, in words.
    #[getter]
    fn stop_reason(&self) -> &str {
        &self.report.stop_reason
    }

    /// Messages that the log holds and the queue files lack; they are read all the same.
    #[getter]
    fn undispatched(&self) -> u64 {
        self.report.undispatched
    }

    /// Messages of `undispatched` that the recovery of RocketMQ 4.9.8, 5.3.3 or 5.5.1 does not put into
    /// their queues, or puts at another queue offset: `mqstore.rebuild` before a broker starts. 0
    /// beside a live writer and for a store opened for writing.
    #[getter]
    fn lost_by_brokers(&self) -> u64 {
        self.report.lost_by_brokers
    }

    /// Keys in the index that the recovery of one of these versions drops; 0 as in `lost_by_brokers`.
    #[getter]
    fn keys_lost_by_brokers(&self) -> u64 {
        self.report.keys_lost_by_brokers
    }

    /// Messages with a topic, queue id or queue offset that no queue can have, because the record
    /// is damaged there: they are in no queue, and are read by physical offset, id and key alone.
    #[getter]
    fn refused(&self) -> u64 {
        self.report.refused
    }

    /// Queue entries that point at or past the end of the log; they are left out.
    #[getter]
    fn queue_entries_ahead(&self) -> u64 {
        self.report.queue_entries_ahead
    }

    /// Bytes past the end of the log that a writer removed; 0 for a read-only store.
    #[getter]
    fn bytes_cut(&self) -> u64 {
        self.report.bytes_cut
    }

    /// Damaged stretches inside the log that `recovery="salvage"` passed over in this open, as
    /// pairs of physical offsets: the first byte, and the byte after the last. What an earlier open
    /// lost is not among them: reads raise there, or count it (`errors="skip"`).
    #[getter]
    fn lost(&self) -> Vec<(i64, i64)> {
        self.report.lost.iter().map(|lost| (lost.start, lost.end)).collect()
    }

    /// Bytes in the stretches of `lost`.
    #[getter]
    fn bytes_lost(&self) -> i64 {
        self.report.lost.iter().map(|lost| lost.end - lost.start).sum()
    }

    /// False if this open lost messages (`lost`), the store's own files tell of messages that are
    /// not in its log (a part of it is missing or damaged), or the last file of a queue is cut
    /// short. After a crash queues and times may run ahead of the log, but not past its last
    /// segment. Beside a live writer only a missing segment between others makes it False, and a log
    /// that ends before the last message that mqstore's own checkpoint says was on disk.
    #[getter]
    fn complete(&self) -> bool {
        self.report.missing.is_none()
    }

    /// What is missing and what tells of it, in words; None if `complete`.
    #[getter]
    fn missing(&self) -> Option<&str> {
        self.report.missing.as_deref()
    }

    fn __repr__(&self) -> String {
        let report = &self.report;
        let incomplete = report
            .missing
            .as_ref()
            .map_or_else(String::new, |missing| format!("INCOMPLETE ({missing}) "));
        let found = match (report.clean_exit, self.is_writer) {
            (true, _) => "after a clean exit",
            (false, true) => "after a crash",
            (false, false) => "of a store with an abort file: a live writer, or a crash",
        };
        let lost = self.bytes_lost();
        format!(
            "<mqstore.RecoveryReport {incomplete}{found}; log read from {} to its end at {} ({}); undispatched={}, refused={}, \
             queue_entries_ahead={}, bytes_cut={}, bytes_lost={lost}>",
            report.scan_start,
            report.log_end,
            report.stop_reason,
            report.undispatched,
            report.refused,
            report.queue_entries_ahead,
            report.bytes_cut
        )
    }
}
