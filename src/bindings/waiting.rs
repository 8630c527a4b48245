use std::time::{Duration, Instant};

use pyo3::prelude::*;

use super::handle::Handle;
use super::time::to_deadline;
use crate::error::{Error, Result};
use crate::store::MessageStore;

/// How long a wait goes on before it looks whether the user interrupts it.
const INTERRUPTIBLE: Duration = Duration::from_millis(100);

/// Waits in steps, so that Ctrl-C ends it.
pub(super) fn wait(
    handle: &Handle,
    py: Python<'_>,
    timeout: Option<&Bound<'_, PyAny>>,
    wait: impl Fn(&MessageStore, Option<Instant>) -> Result<()> + Sync,
) -> PyResult<()> {
    let writer = handle.writer()?;
    let deadline = to_deadline(timeout)?;
    loop {
        let step = Instant::now() + INTERRUPTIBLE;
        let is_last = deadline.is_some_and(|deadline| deadline <= step);
        match py.detach(|| wait(&writer, if is_last { deadline } else { Some(step) })) {
            Err(Error::TimedOut { .. }) if !is_last => py.check_signals()?,
            done => return Ok(done?),
        }
    }
}
