//! What becomes of the error of a close that nobody has called.

use std::io::Write;
use std::path::Path;

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::error::Error;

/// Whoever forgot to close a store learns of the failure as of one in `__del__`; while the interpreter ends, by a line on the standard
/// error.
pub(super) fn report_failed_close(path: &Path, error: &Error) {
    let what = format!("closing the store {}, which was dropped open", path.display());
    let then = "the next open recovers it";
    let hook_told = Python::try_attach(|py| {
        // The store may be dropped while an exception is on its way: that one goes on.
        let under_way = PyErr::take(py);
        let is_alive = !is_ending(py);
        if is_alive {
            PyErr::from(error.clone()).write_unraisable(py, Some(&PyString::new(py, &format!("{what}; {then}"))));
        }
        if let Some(under_way) = under_way {
            under_way.restore(py);
        }
        is_alive
    });
    if hook_told != Some(true) {
        let line = format!("mqstore: {what}, failed: {error}; {then}\n");
        // Nobody is left to be told if this fails, too.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

/// Whether the interpreter ends: `sys.stderr`, and what the code of exceptions uses, may be gone.
fn is_ending(py: Python<'_>) -> bool {
    let asked = py.import("sys").and_then(|sys| sys.call_method0("is_finalizing")?.extract());
    asked.unwrap_or(true)
}
