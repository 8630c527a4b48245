//! Appending and waiting, with the interpreter or without.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyString};

use super::append_result;
use super::arguments::type_of;
use super::buffer::Offsets;
use super::capsule::{import_table, speaks_arrow};
use super::errors::ReadOnlyError;
use super::fields::{PropertyArguments, is_buffer};
use super::handle::{Handle, Mode};
use super::rows;
use super::time::to_deadline;
use crate::arrow::{self, Defaults};
use crate::error::{Error, Result};
use crate::format::Message;
use crate::interrupt;
use crate::store::{self, Attempt, Incoming, MessageStore};

/// How long a wait goes on before it looks whether the user interrupts it.
const INTERRUPTIBLE: Duration = Duration::from_millis(50);

/// Appends one message. It keeps the interpreter, because letting go of it takes longer than the append, unless a segment has to be
/// made first.
///
/// The writer is asked for here, after the message was made: code of the caller's made it, which may have forked or closed the store.
pub(super) fn one(py: Python<'_>, handle: &Handle, message: Message<'_>) -> PyResult<append_result::AppendResult> {
    let store = handle.writer()?;
    let appended = store.try_append(message).and_then(|attempt| match attempt {
        Attempt::Stored(result) => Ok(result),
        Attempt::WouldBlock(message) => py.detach(|| store.append(message)),
    });
    match appended {
        Ok(result) => Ok(append_result::AppendResult(result)),
        Err(error) => Err(not_stored(py, error)?),
    }
}

/// Appends rows, or the rows of a table. The writer is asked for as in [`one`]. Whatever is raised says how many rows were stored.
pub(super) fn batch(
    py: Python<'_>,
    handle: &Arc<Handle>,
    rows: &Bound<'_, PyAny>,
    defaults: &Defaults<'_>,
    together: bool,
) -> PyResult<Offsets> {
    let mut done = Vec::new();
    match append_rows(py, handle, rows, defaults, together, &mut done) {
        Ok(()) => Ok(Offsets::new(&done)),
        Err(error) => {
            // What a handler of a signal raises may be of a class that takes no attribute.
            let _ = error.value(py).setattr("stored", done.len());
            Err(error)
        }
    }
}

/// Appends a producer's batch, with the properties of the batch itself. The writer is asked for as in [`one`].
pub(super) fn producer_batch(
    py: Python<'_>,
    handle: &Handle,
    common: &Message<'_>,
    properties: Option<&Bound<'_, PyAny>>,
) -> PyResult<Offsets> {
    let of_batch = PropertyArguments {
        properties,
        ..PropertyArguments::default()
    };
    let (of_batch, store) = (of_batch.encode()?, handle.writer()?);
    match py.detach(|| store.append_producer_batch(common, Some(&of_batch))) {
        Ok(done) => Ok(Offsets::new(&done)),
        Err(error) => Err(not_stored(py, error)?),
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

fn append_rows(
    py: Python<'_>,
    handle: &Arc<Handle>,
    rows: &Bound<'_, PyAny>,
    defaults: &Defaults<'_>,
    together: bool,
    done: &mut Vec<store::AppendResult>,
) -> PyResult<()> {
    let outcome = if speaks_arrow(rows)? {
        let (table, store) = (import_table(rows)?, handle.writer()?);
        handle.detach(py, || append_all(&store, arrow::messages(&table, defaults)?, together, done))
    } else {
        let each = each(rows)?;
        let rows = handle.interruptible(|| {
            each.map(|row| interrupt::check().map_err(PyErr::from).and(row))
                .collect::<PyResult<Vec<_>>>()
        })?;
        let messages = handle.interruptible(|| rows::messages(&rows, defaults))?;
        let store = handle.writer()?;
        handle.detach(py, || append_all(&store, messages, together, done))
    };
    match outcome {
        Ok(()) => Ok(()),
        Err(error) => Err(not_stored(py, error)?),
    }
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

/// Waits for the message at a physical offset, or for everything appended so far, in steps, each until the time that `wait` is given, so
/// that Ctrl-C ends it. A handler of a signal may fork: the child has no thread that makes anything durable.
pub(super) fn wait(
    py: Python<'_>,
    handle: &Handle,
    offset: Option<i64>,
    timeout: Option<&Bound<'_, PyAny>>,
    wait: impl Fn(&MessageStore, i64, Option<Instant>) -> Result<()> + Sync,
) -> PyResult<()> {
    if handle.mode() == Mode::Read {
        return Err(ReadOnlyError::new_err(format!(
            "{} is open with mode \"r\", a snapshot in which nothing changes: open it again to read what was appended since",
            handle.path().display()
        )));
    }
    handle.expect_writable()?;
    let (deadline, store) = (to_deadline(timeout)?, handle.writer()?);
    let offset = match offset {
        Some(offset) => {
            store.expect_appended(offset)?;
            offset
        }
        None => store.appended_offset() - 1,
    };
    loop {
        let step = Instant::now() + INTERRUPTIBLE;
        let is_last = deadline.is_some_and(|deadline| deadline <= step);
        match py.detach(|| wait(&store, offset, if is_last { deadline } else { Some(step) })) {
            Err(Error::TimedOut { .. }) if !is_last => {
                py.check_signals()?;
                handle.expect_own_process()?;
            }
            done => return Ok(done?),
        }
    }
}
