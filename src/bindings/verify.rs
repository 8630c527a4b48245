//! `Store.verify` and what it gives: `VerifyReport`.

use std::sync::Arc;

use pyo3::prelude::*;

use super::arguments;
use super::finding::Finding;
use super::pass::reading_threads;
use super::scan::{bytes_per_s, callable};
use super::store::Store;
use crate::check::{self, VerifyRequest, verify};
use crate::error::{Error, Result};
use crate::storage::{Env, RealEnv};

/// What `Store.verify` compared, and what it found.
#[pyclass(frozen, module = "mqstore")]
pub(super) struct VerifyReport(pub(super) check::VerifyReport);

#[pymethods]
impl VerifyReport {
    /// Whether nothing is wrong: every finding is a note.
    #[getter]
    fn ok(&self) -> bool {
        self.0.is_ok()
    }

    /// What was found, the worst first.
    #[getter]
    fn findings(&self) -> Vec<Finding> {
        let findings = self.0.findings.iter().cloned();
        findings.map(|finding| Finding::new(finding, self.0.path.clone())).collect()
    }

    /// The physical offsets of the log that were compared: the first byte, and the byte after the
    /// last.
    #[getter]
    fn covered(&self) -> (i64, i64) {
        (self.0.covered.start, self.0.covered.end)
    }

    /// How many messages were compared.
    #[getter]
    fn messages(&self) -> u64 {
        self.0.messages
    }

    /// How many of them have, or should have, a queue entry that was compared.
    #[getter]
    fn queue_entries(&self) -> u64 {
        self.0.queue_entries
    }

    /// How many items of the index were compared.
    #[getter]
    fn index_items(&self) -> u64 {
        self.0.index_items
    }

    /// How long it took, in seconds.
    #[getter]
    fn seconds(&self) -> f64 {
        self.0.took.as_secs_f64()
    }

    fn __repr__(&self) -> String {
        let of = |severity| self.0.findings.iter().filter(|finding| finding.severity == severity).count();
        format!(
            "<mqstore.VerifyReport {}: errors={}, warnings={}, notes={}, covered {}..{}, messages={}, seconds={:.3}>",
            if self.0.is_ok() { "ok" } else { "NOT OK" },
            of(check::Severity::Error),
            of(check::Severity::Warning),
            of(check::Severity::Note),
            self.0.covered.start,
            self.0.covered.end,
            self.0.messages,
            self.seconds()
        )
    }
}

#[pymethods]
impl Store {
    /// Compares log, queues, index, checkpoint and settings with each other and with the format, in
    /// one pass over the log. Changes nothing, takes no lock, and keeps a bounded part of the store
    /// in memory. It compares the store as it is now, also if a writer has changed it since this
    /// store was opened. Beside a live writer of another process it covers what the log held when
    /// the call began.
    ///
    /// With `deep=False` bodies are not compared with their checksums, and links of the index are
    /// not followed. `progress` is called with two ints: how many bytes of the log are done, and of
    /// how many. `max_mb_per_s` bounds the reading, in 10**6 bytes a second, which one thread does
    /// then. Otherwise the log is read by as many threads as the environment variable
    /// `OMP_NUM_THREADS` says, or as the process may run at once, 16 at most. Damage is a finding
    /// and raises nothing. Raises `TypeError` and `ValueError` for an argument, `OSError` for a
    /// file that cannot be read, `CorruptError` for one that is cut meanwhile, and what `progress`
    /// raises.
    #[pyo3(signature = (deep=true, progress=None, max_mb_per_s=None))]
    fn verify(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::deep)] deep: bool,
        progress: Option<&Bound<'_, PyAny>>,
        max_mb_per_s: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<VerifyReport> {
        let request = VerifyRequest {
            deep,
            max_bytes_per_s: max_mb_per_s.map(bytes_per_s).transpose()?,
            threads: reading_threads(),
            ..VerifyRequest::default()
        };
        let progress = progress.map(callable).transpose()?;
        let reader = self.handle.walking_reader(py)?;
        let env: Arc<dyn Env> = Arc::new(RealEnv::new());
        let report = self.handle.detach(py, || {
            verify(&env, &reader, request, |done, all| tell(progress.as_ref(), done, all))
        })?;
        Ok(VerifyReport(report))
    }
}

pub(super) fn tell(progress: Option<&Py<PyAny>>, done: i64, all: i64) -> Result<()> {
    let told = progress.and_then(|progress| Python::try_attach(|py| progress.call1(py, (done, all))));
    match told {
        Some(Err(raised)) => Err(Error::Interrupted { cause: Arc::new(raised) }),
        Some(Ok(_)) | None => Ok(()),
    }
}
