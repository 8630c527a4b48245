//! `Store.verify`.

use std::sync::Arc;

use pyo3::prelude::*;

use super::arguments;
use super::handle::Freshness;
use super::pass::reading_threads;
use super::reports;
use super::scan::{bytes_per_s, callable};
use super::store::Store;
use crate::check::{VerifyRequest, verify};
use crate::error::{Error, Result};
use crate::storage::{Env, RealEnv};

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
    fn verify<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::deep)] deep: bool,
        progress: Option<&Bound<'_, PyAny>>,
        max_mb_per_s: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = VerifyRequest {
            deep,
            max_bytes_per_s: max_mb_per_s.map(bytes_per_s).transpose()?,
            threads: reading_threads(),
            ..VerifyRequest::default()
        };
        let progress = progress.map(callable).transpose()?;
        let reader = self.handle.reader(py, Freshness::Walk)?;
        let env: Arc<dyn Env> = Arc::new(RealEnv::new());
        let report = self.handle.detach(py, || {
            verify(&env, &reader, request, |done, all| tell(progress.as_ref(), done, all))
        })?;
        reports::verify_report(py, &report)
    }
}

pub(super) fn tell(progress: Option<&Py<PyAny>>, done: i64, all: i64) -> Result<()> {
    let told = progress.and_then(|progress| Python::try_attach(|py| progress.call1(py, (done, all))));
    match told {
        Some(Err(raised)) => Err(Error::Interrupted { cause: Arc::new(raised) }),
        Some(Ok(_)) | None => Ok(()),
    }
}
