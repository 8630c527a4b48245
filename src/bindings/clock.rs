//! The clock of `mqstore.testing`.

use pyo3::prelude::*;

use super::time::to_ms;
use crate::format::Round;
use crate::storage::RealEnv;

/// Stops the wall clock that stores of this process read; None lets it run again.
#[pyfunction(name = "_stop_clock")]
pub(super) fn stop_clock(time: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    RealEnv::stop_wall_clock(time.map(|time| to_ms(time, "time", Round::Down)).transpose()?);
    Ok(())
}
