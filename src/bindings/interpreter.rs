//! The interpreter: its end under a thread of ours, imports in a second one, and the failed close of a dropped store.
//!
//! Before 3.14 CPython ends a daemon thread that runs Python code under a call of ours by `pthread_exit` when it wants the interpreter
//! back. That unwinds the thread's stack, and the process aborts where the unwinding meets a frame of Rust. CPython 3.14 stops the
//! thread for ever instead, and `PyO3` does the same where a thread attaches through it. Here that is done for each thread that has
//! called this module: almost every argument may be written in Python (a number by its `__index__`, a time by its `tzinfo`).
//!
//! A second interpreter of the process (PEP 734) must not import the module. `PyO3` keeps classes and exceptions in statics, which
//! belong to the interpreter that came first. In another one `except mqstore.StoreError` would not catch what this module raises, and
//! the statics would outlive their interpreter.
#![expect(
    unsafe_code,
    reason = "the C library's cleanup handlers of a thread, and the number of the running interpreter"
)]

use std::ffi::{c_int, c_void};
use std::io::Write;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread::AccessError;

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::error::Error;

/// `struct _pthread_cleanup_buffer` of glibc; that of musl is a part of it.
#[repr(C)]
struct CleanupBuffer {
    routine: extern "C" fn(*mut c_void),
    argument: *mut c_void,
    cancel_type: c_int,
    previous: *mut CleanupBuffer,
}

// SAFETY: these are the declarations of glibc's pthread.h; musl exports the same symbols.
unsafe extern "C" {
    fn _pthread_cleanup_push(buffer: *mut CleanupBuffer, routine: extern "C" fn(*mut c_void), argument: *mut c_void);
    fn _pthread_cleanup_pop(buffer: *mut CleanupBuffer, execute: c_int);
}

/// A cleanup handler of this thread, until the thread ends.
///
/// The handler's buffer is on the heap on purpose. glibc runs a handler when the unwinding has left the frame that holds its buffer, and
/// decides that by address: with a buffer outside the stack it runs before the first frame is unwound.
struct Pushed(Box<MaybeUninit<CleanupBuffer>>);

impl Pushed {
    fn new() -> Self {
        let mut pushed = Self(Box::new(MaybeUninit::uninit()));
        // SAFETY: the buffer is to be filled, and lives until it is popped.
        unsafe { _pthread_cleanup_push(pushed.0.as_mut_ptr(), hang, std::ptr::null_mut()) };
        pushed
    }
}

impl Drop for Pushed {
    fn drop(&mut self) {
        // SAFETY: this thread pushed the buffer. The thread is past its last frame: whatever was pushed after it was popped.
        unsafe { _pthread_cleanup_pop(self.0.as_mut_ptr(), 0) };
    }
}

thread_local! {
    static PUSHED: Pushed = Pushed::new();
}

/// Lets this thread stop, from now on, where the interpreter would end it. A thread that ends otherwise ends as ever. Costs a load when
/// it was called before.
pub(super) fn hang_at_exit() {
    // A thread whose locals are gone runs no more code of Python's under a call.
    let _: Result<(), AccessError> = PUSHED.try_with(|_| ());
}

extern "C" fn hang(_: *mut c_void) {
    // SAFETY: it has no preconditions. The interpreter clears this flag before it ends a thread.
    while unsafe { ffi::Py_IsInitialized() } == 0 {
        // SAFETY: it has no preconditions.
        unsafe { libc::pause() };
    }
}

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

/// Reports the failed close of a store that was dropped open: as an error in `__del__`, or, while the interpreter ends, by a line on the
/// standard error.
pub(super) fn report_failed_close(path: &Path, error: &Error) {
    let what = format!("closing the store {}, which was dropped open", path.display());
    let then = "the next open recovers it";
    let hook_told = Python::try_attach(|py| {
        // The store may be dropped while an exception is on its way: that exception continues.
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
        // A failure here cannot be reported anywhere.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

/// Returns true while the interpreter ends: `sys.stderr`, and modules that print exceptions, may be gone.
fn is_ending(py: Python<'_>) -> bool {
    let asked = py.import("sys").and_then(|sys| sys.call_method0("is_finalizing")?.extract());
    asked.unwrap_or(true)
}
