//! A thread that runs Python code under a call of ours when the interpreter ends.
//!
//! Before 3.14 CPython ends such a thread (a daemon thread) by `pthread_exit` when it wants the interpreter back. That unwinds the
//! thread's stack, and the process aborts where the unwinding meets a frame of Rust. CPython 3.14 stops the thread for ever instead, and
//! `PyO3` does the same where a thread attaches through it. Here that is done for each thread that has called this module: almost every
//! argument may be written in Python (a number by its `__index__`, a time by its `tzinfo`).
#![expect(unsafe_code, reason = "the C library's cleanup handlers of a thread")]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::thread::AccessError;

use pyo3::ffi;

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
    // SAFETY: it has no preconditions. The interpreter clears what it tells before it ends a thread.
    while unsafe { ffi::Py_IsInitialized() } == 0 {
        // SAFETY: it has no preconditions.
        unsafe { libc::pause() };
    }
}
