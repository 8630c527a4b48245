//! A thread that runs Python code under a call of ours when the interpreter ends.
//!
//! Before 3.14 CPython ends such a thread (a daemon thread) by `pthread_exit` when it wants the interpreter back. That unwinds the
//! thread's stack, and the process aborts where the unwinding meets a frame of Rust. CPython 3.14 stops the thread for ever instead, and
//! `PyO3` does the same where a thread attaches through it. Here that is done for code that Python calls on its own.
#![expect(unsafe_code, reason = "the C library's cleanup handlers of a thread")]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

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

/// Runs `call`. If the interpreter ends this thread meanwhile, the thread stops here and holds neither the interpreter nor a lock of it.
///
/// The handler's buffer is on the heap on purpose. glibc runs a handler when the unwinding has left the frame that holds its buffer, and
/// decides that by address: with a buffer outside the stack it runs before the first frame is unwound.
pub(super) fn hanging_at_exit<T>(call: impl FnOnce() -> T) -> T {
    /// Takes the handler away, after a panic too.
    struct Pushed(Box<MaybeUninit<CleanupBuffer>>);
    impl Drop for Pushed {
        fn drop(&mut self) {
            // SAFETY: this thread pushed the buffer, and whatever was pushed after it was popped: calls nest.
            unsafe { _pthread_cleanup_pop(self.0.as_mut_ptr(), 0) };
        }
    }
    let mut pushed = Pushed(Box::new(MaybeUninit::uninit()));
    // SAFETY: the buffer is to be filled, and lives until it is popped.
    unsafe { _pthread_cleanup_push(pushed.0.as_mut_ptr(), hang, std::ptr::null_mut()) };
    call()
}

extern "C" fn hang(_: *mut c_void) {
    loop {
        // SAFETY: it has no preconditions.
        unsafe { libc::pause() };
    }
}
