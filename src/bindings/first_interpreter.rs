//! Refuses an import in a second interpreter of the process (PEP 734).
//!
//! `PyO3` keeps classes and exceptions in statics, which belong to the interpreter that came first. In another one
//! `except mqstore.StoreError` would not catch what this module raises, and the statics would outlive their interpreter.
#![expect(unsafe_code, reason = "the number of the running interpreter")]

use std::sync::atomic::{AtomicI64, Ordering};

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// The number of the interpreter that imported this module first; -1 before that.
static FIRST: AtomicI64 = AtomicI64::new(-1);

/// Fails unless `py` is the interpreter that called this first.
///
/// # Errors
/// `ImportError`.
pub(super) fn expect_first(_py: Python<'_>) -> PyResult<()> {
    // SAFETY: this thread is attached to an interpreter, so that both calls have a valid state.
    let current = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    match FIRST.compare_exchange(-1, current, Ordering::AcqRel, Ordering::Acquire) {
        Err(first) if first != current => Err(PyImportError::new_err(
            "mqstore cannot be imported in a subinterpreter after another interpreter of this process has imported it: \
             use threads, or a process of its own (multiprocessing)",
        )),
        _ => Ok(()),
    }
}
