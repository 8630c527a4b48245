//! Whose turn it is to read a pass that several threads share.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// One thread reads at a time; the others wait.
#[derive(Default)]
pub(super) struct Turn {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Free,
    /// This thread reads.
    Taken(ThreadId),
    /// The thread that reads runs code of the caller's, which may wait for any thread.
    Told,
}

/// The turn of a thread, to the end of this.
pub(super) struct Taken<'a>(&'a Turn);

impl Turn {
    /// Waits until no thread reads.
    ///
    /// # Errors
    /// `ValueError` for code that the thread that reads has called, and for any thread that asks while such code runs: it may be
    /// waited for.
    pub(super) fn take(&self, py: Python<'_>) -> PyResult<Taken<'_>> {
        let this = thread::current().id();
        py.detach(|| {
            let mut state = self.state();
            if *state == State::Told || *state == State::Taken(this) {
                return Err(PyValueError::new_err(
                    "this pass is being read, by a call that waits for code of yours, such as progress",
                ));
            }
            while *state != State::Free {
                state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            *state = State::Taken(this);
            Ok(Taken(self))
        })
    }

    /// Runs code of the caller's, in the thread whose turn it is.
    pub(super) fn tell<T>(&self, code: impl FnOnce() -> T) -> T {
        let taken = *self.state();
        self.set(State::Told);
        let told = code();
        self.set(taken);
        told
    }

    fn set(&self, state: State) {
        *self.state() = state;
        self.ended.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.set(State::Free);
    }
}
