//! Fork handling: a child releases the locks of its parent, and an object can detect that it is in a child.
//!
//! An open-file-description lock is held while any process has the description open. A child inherits it, so a lock would outlive a
//! killed parent. The child therefore closes the descriptor first of all, by close alone: releasing the lock in the child would
//! release the parent's. A child of vfork or posix_spawn runs no handler; its exec closes the descriptor.

use std::cell::UnsafeCell;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// The identity of a process across forks: two values are equal in one process, and differ across a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation(u32);

/// Incremented in each child.
static GENERATION: AtomicU32 = AtomicU32::new(0);

impl Generation {
    /// Returns the generation of this process. It costs a load; a process id would cost a system call.
    pub fn current() -> Self {
        static HANDLERS: Once = Once::new();
        HANDLERS.call_once(|| {
            // SAFETY: the three handlers are functions of this library, and call in the child only async-signal-safe functions. On
            // failure there is no memory for the entry; a child then keeps the descriptors, as it would without handlers.
            unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
        });
        Self(GENERATION.load(Ordering::Relaxed))
    }
}

/// The descriptors that a child closes, and the mutex that guards them. It is a pthread mutex, because the forking thread takes it
/// in one handler and releases it in another one, both in the parent and in the child.
struct Private {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    descriptors: UnsafeCell<Vec<RawFd>>,
}

// SAFETY: `descriptors` is accessed only with `mutex` held.
unsafe impl Sync for Private {}

static PRIVATE: Private = Private {
    mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
    descriptors: UnsafeCell::new(Vec::new()),
};

impl Private {
    /// Runs `change` while no thread forks. `change` must neither fork nor call this again.
    fn with<T>(&self, change: impl FnOnce(&mut Vec<RawFd>) -> T) -> T {
        /// Releases the mutex, after a panic too.
        struct MutexGuard<'a>(&'a Private);
        impl Drop for MutexGuard<'_> {
            fn drop(&mut self) {
                // SAFETY: this thread holds the mutex.
                unsafe { libc::pthread_mutex_unlock(self.0.mutex.get()) };
            }
        }
        // SAFETY: the mutex is initialized, never moves, and this thread does not hold it.
        unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
        let guard = MutexGuard(self);
        // SAFETY: the mutex is held until the end of this function, and this is the only reference.
        let changed = change(unsafe { &mut *self.descriptors.get() });
        drop(guard);
        changed
    }
}

extern "C" fn before_fork() {
    // SAFETY: the mutex is initialized and never moves. Its holder opens or closes one file and does not wait for the forking
    // thread.
    unsafe { libc::pthread_mutex_lock(PRIVATE.mutex.get()) };
}

extern "C" fn after_fork() {
    // SAFETY: this thread took the mutex in `before_fork`.
    unsafe { libc::pthread_mutex_unlock(PRIVATE.mutex.get()) };
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    // SAFETY: this thread, the only one of the child, took the mutex in `before_fork`. Clearing a vector of numbers frees nothing,
    // and close is allowed after fork. The child does not close these descriptors again: `PrivateFile` compares the generation.
    unsafe {
        for descriptor in (*PRIVATE.descriptors.get()).drain(..) {
            libc::close(descriptor);
        }
        libc::pthread_mutex_unlock(PRIVATE.mutex.get());
    }
}

/// An open file whose descriptor is closed in a child of fork.
pub(super) struct PrivateFile {
    file: ManuallyDrop<File>,
    opened_in: Generation,
}

impl PrivateFile {
    /// Opens the file. No fork comes between opening it and listing its descriptor.
    pub(super) fn open(open: impl FnOnce() -> io::Result<File>) -> io::Result<Self> {
        let opened_in = Generation::current();
        let file = PRIVATE.with(|descriptors| {
            let file = open()?;
            descriptors.push(file.as_raw_fd());
            Ok::<_, io::Error>(file)
        })?;
        Ok(Self {
            file: ManuallyDrop::new(file),
            opened_in,
        })
    }

    /// Returns the file; `None` in a child of the process that opened it, where it is closed.
    pub(super) fn file(&self) -> Option<&File> {
        (Generation::current() == self.opened_in).then_some(&*self.file)
    }
}

impl Drop for PrivateFile {
    fn drop(&mut self) {
        if self.file().is_none() {
            return;
        }
        PRIVATE.with(|descriptors| {
            let descriptor = self.file.as_raw_fd();
            descriptors.retain(|noted| *noted != descriptor);
            // SAFETY: the file is not used again: this is its drop.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        });
    }
}
