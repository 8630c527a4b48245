//! Futures: `mqstore._nowait` completes them, in a thread of each store. Here is what that thread waits for, and when it ends.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use super::append_result::AppendResult;
use super::errors::of_append;
use super::imports;
use super::interpreter::hang_at_exit;
use crate::store::{self, MessageStore};

/// The durable end of a store's log. It does not keep the store open.
#[pyclass(frozen, name = "_Flushed", module = "mqstore._native")]
pub(super) struct Flushed(store::Flushed);

#[pymethods]
impl Flushed {
    /// Waits until the message at this physical offset is durable, or for that many seconds. Returns
    /// the physical offset up to which the log is durable then. Raises what
    /// `Writer.append` raises for a message that is stored and cannot become durable.
    fn wait(&self, py: Python<'_>, physical_offset: i64, timeout: f64) -> PyResult<i64> {
        hang_at_exit();
        // Keeps the interpreter: releasing it for each of many futures costs a wait to get it back.
        let offset = self.0.offset();
        if offset > physical_offset {
            return Ok(offset);
        }
        // Nothing is imported on this way: a call that a signal ended may have left the lock of an import held.
        let timeout = Duration::try_from_secs_f64(timeout).unwrap_or_default();
        let deadline = Instant::now().checked_add(timeout);
        match py.detach(|| self.0.wait(physical_offset, deadline)) {
            Ok(offset) => Ok(offset),
            Err(error) => Err(of_append(py, error)),
        }
    }

    /// Waits for slaves and, if `disk`, for durability. `timeout` is what is left of
    /// `sync_flush_timeout`, in seconds. Returns the result with its status.
    fn copied(&self, py: Python<'_>, result: &AppendResult, timeout: f64, disk: bool) -> PyResult<AppendResult> {
        hang_at_exit();
        let left = Duration::try_from_secs_f64(timeout).unwrap_or_default();
        match py.detach(|| self.0.wait_for_copies(result.0, Instant::now() + left, disk)) {
            Ok(result) => Ok(AppendResult(result)),
            Err(error) => Err(of_append(py, error)),
        }
    }
}

/// The completer of a store's futures: `mqstore._nowait.Completer`, once there was a future to complete.
#[derive(Default)]
pub(super) struct Completer(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    NotStarted,
    Started(Py<PyAny>),
    /// No other one is started.
    Ended,
}

impl Completer {
    /// The completer of this store, its thread started; `None` once it was let end.
    ///
    /// # Errors
    /// `RuntimeError` if no thread can be started.
    pub(super) fn started<'py>(&self, py: Python<'py>, store: &MessageStore) -> PyResult<Option<Bound<'py, PyAny>>> {
        match &*self.state() {
            State::NotStarted => {}
            State::Started(completer) => return Ok(Some(completer.bind(py).clone())),
            State::Ended => return Ok(None),
        }
        // Not under the mutex: this runs code in Python. Another thread may start a completer concurrently, or close the store.
        let timeout = Duration::from_millis(store.config().sync_flush_timeout).as_secs_f64();
        let made = module(py)?.call_method1("Completer", (Flushed(store.flushed()), timeout))?;
        let mut state = self.state();
        if matches!(*state, State::NotStarted) {
            *state = State::Started(made.clone().unbind());
            return Ok(Some(made));
        }
        drop(state);
        made.call_method0("end")?;
        self.started(py, store)
    }

    /// Lets the thread end, if there is one. It completes the futures first. The store was closed before, so that takes no wait.
    fn end<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let State::Started(completer) = std::mem::replace(&mut *self.state(), State::Ended) else {
            return Ok(None);
        };
        let completer = completer.into_bound(py);
        completer.call_method0("end")?;
        Ok(Some(completer))
    }

    /// Same as [`join`](Self::join), for a store that is dropped: without a wait, and without raising.
    pub(super) fn end_quietly(&self, py: Python<'_>) {
        // The store may be dropped while an exception propagates: that exception is kept.
        let under_way = PyErr::take(py);
        // No caller is left to get the error if this fails, as it may while the interpreter ends.
        let _ = self.end(py);
        if let Some(under_way) = under_way {
            under_way.restore(py);
        }
    }

    /// Lets the thread end, if there is one, and waits until every future is completed. The store was closed before.
    ///
    /// # Errors
    /// The exception of a signal handler that runs during it.
    pub(super) fn join(&self, py: Python<'_>) -> PyResult<()> {
        match self.end(py)? {
            Some(completer) => completer.call_method0("join").map(drop),
            None => Ok(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A future that is done.
pub(super) fn done(py: Python<'_>, result: AppendResult) -> PyResult<Bound<'_, PyAny>> {
    module(py)?.call_method1("done", (result,))
}

/// Imports what [`done`] needs.
///
/// # Errors
/// `ImportError` while the interpreter ends.
pub(super) fn expect_module(py: Python<'_>) -> PyResult<()> {
    module(py).map(drop)
}

fn module(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    imports::module(py, "mqstore._nowait")
}
