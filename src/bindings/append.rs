//! Appending and waiting, with the interpreter or without.

use std::time::{Duration, Instant};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyString};

use super::append_result::AppendResult;
use super::arguments::type_of;
use super::buffer::Offsets;
use super::capsule::{import_table, speaks_arrow};
use super::fields::is_buffer;
use super::handle::Handle;
use super::rows;
use super::time::to_deadline;
use crate::arrow::{self, Defaults};
use crate::error::{Error, Result};
use crate::format::Message;
use crate::store::{self, Attempt, Incoming, MessageStore};

/// How long a wait goes on before it looks whether the user interrupts it.
const INTERRUPTIBLE: Duration = Duration::from_millis(100);

/// Appends one message. It keeps the interpreter, because letting go of it takes longer than the append, unless a segment has to be
/// made first.
///
/// The writer is asked for here, after the message was made: code of the caller's made it, which may have forked or closed the store.
pub(super) fn one(py: Python<'_>, handle: &Handle, message: Message<'_>) -> PyResult<AppendResult> {
    let store = handle.writer()?;
    let appended = store.try_append(message).and_then(|attempt| match attempt {
        Attempt::Stored(result) => Ok(result),
        Attempt::WouldBlock(message) => py.detach(|| store.append(message)),
    });
    match appended {
        Ok(result) => Ok(AppendResult(result)),
        Err(error) => Err(not_stored(py, error)?),
    }
}

/// Appends rows, or the rows of a table. The writer is asked for as in [`one`].
pub(super) fn batch(
    py: Python<'_>,
    handle: &Handle,
    rows: &Bound<'_, PyAny>,
    defaults: &Defaults<'_>,
    together: bool,
) -> PyResult<Offsets> {
    let mut done = Vec::new();
    let outcome = if speaks_arrow(rows)? {
        let (table, store) = (import_table(rows)?, handle.writer()?);
        py.detach(|| append_all(&store, arrow::messages(&table, defaults)?, together, &mut done))
    } else {
        let rows = each(rows)?.collect::<PyResult<Vec<_>>>()?;
        let (messages, store) = (rows::messages(&rows, defaults)?, handle.writer()?);
        py.detach(|| append_all(&store, messages, together, &mut done))
    };
    match outcome {
        Ok(()) => Ok(Offsets::new(&done)),
        Err(error) => {
            let error = not_stored(py, error)?;
            error.value(py).setattr("stored", done.len())?;
            Err(error)
        }
    }
}

fn append_all(
    store: &MessageStore,
    messages: Vec<Incoming<'_>>,
    together: bool,
    done: &mut Vec<store::AppendResult>,
) -> Result<()> {
    if together {
        *done = store.append_together(messages)?;
        return Ok(());
    }
    store.append_all(messages, done)
}

/// The rows of an iterable. A single body is one, too, of numbers: whoever gives it means a list.
fn each<'py>(rows: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    let is_body = is_buffer(rows) || rows.is_instance_of::<PyString>();
    match rows.try_iter() {
        Ok(each) if !is_body => Ok(each),
        Ok(_) => Err(PyTypeError::new_err(format!(
            "rows is a single {}: put it into a list",
            type_of(rows)?
        ))),
        Err(_) => Err(PyTypeError::new_err(format!(
            "rows is an iterable of rows or speaks Arrow, {} does not",
            type_of(rows)?
        ))),
    }
}

/// What appending raises.
fn not_stored(py: Python<'_>, error: Error) -> PyResult<PyErr> {
    let status = error.put_status();
    let error = PyErr::from(error);
    if let Some(status) = status {
        error.value(py).setattr("status", status)?;
    }
    Ok(error)
}

/// Waits in steps, each until the time that `wait` is given, so that Ctrl-C ends it. A handler of a signal may fork: the child has no
/// thread that makes anything durable.
pub(super) fn wait(
    py: Python<'_>,
    handle: &Handle,
    timeout: Option<&Bound<'_, PyAny>>,
    wait: impl Fn(&MessageStore, Option<Instant>) -> Result<()> + Sync,
) -> PyResult<()> {
    handle.expect_writable()?;
    let (deadline, store) = (to_deadline(timeout)?, handle.writer()?);
    loop {
        let step = Instant::now() + INTERRUPTIBLE;
        let is_last = deadline.is_some_and(|deadline| deadline <= step);
        match py.detach(|| wait(&store, if is_last { deadline } else { Some(step) })) {
            Err(Error::TimedOut { .. }) if !is_last => {
                py.check_signals()?;
                handle.expect_own_process()?;
            }
            done => return Ok(done?),
        }
    }
}
