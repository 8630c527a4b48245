//! Fork handling: a child releases the locks of its parent, and an object can detect that it is in a child.
//!
//! An open-file-description lock is held while any process has the description open. A child inherits it, so a lock would outlive a
//! killed parent. The child therefore closes the descriptor first of all, by close alone: releasing the lock in the child would
//! release the parent's. The same goes for sockets: a peer of a killed parent would not notice its end. A child of vfork or posix_spawn
//! runs no handler; its exec closes the descriptor.

use std::cell::UnsafeCell;
use std::fmt;
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
    // and close is allowed after fork. The child does not close these descriptors again: `ClosedInChild` compares the generation.
    unsafe {
        for descriptor in (*PRIVATE.descriptors.get()).drain(..) {
            libc::close(descriptor);
        }
        libc::pthread_mutex_unlock(PRIVATE.mutex.get());
    }
}

/// An open file or socket whose descriptor is closed in a child of fork.
pub(crate) struct ClosedInChild<T: AsRawFd> {
    opened: ManuallyDrop<T>,
    opened_in: Generation,
}

impl<T: AsRawFd> ClosedInChild<T> {
    /// Opens it. No fork comes between opening it and listing its descriptor, so `open` must not wait.
    ///
    /// # Errors
    /// Those of `open`.
    pub(crate) fn open(open: impl FnOnce() -> io::Result<T>) -> io::Result<Self> {
        let opened_in = Generation::current();
        let opened = PRIVATE.with(|descriptors| {
            let opened = open()?;
            descriptors.push(opened.as_raw_fd());
            Ok::<_, io::Error>(opened)
        })?;
        Ok(Self {
            opened: ManuallyDrop::new(opened),
            opened_in,
        })
    }

    /// Returns what was opened; `None` in a child of the process that opened it, where it is closed.
    pub(crate) fn get(&self) -> Option<&T> {
        (Generation::current() == self.opened_in).then_some(&*self.opened)
    }

    /// Returns what was opened.
    ///
    /// # Errors
    /// In a child of the process that opened it.
    pub(crate) fn of_process(&self) -> io::Result<&T> {
        self.get().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl<T: AsRawFd + fmt::Debug> fmt::Debug for ClosedInChild<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl<T: AsRawFd> Drop for ClosedInChild<T> {
    fn drop(&mut self) {
        if self.get().is_none() {
            return;
        }
        PRIVATE.with(|descriptors| {
            let descriptor = self.opened.as_raw_fd();
            descriptors.retain(|noted| *noted != descriptor);
            // SAFETY: it is not used again: this is its drop.
            unsafe { ManuallyDrop::drop(&mut self.opened) };
        });
    }
}
