//! Appending and waiting, with the interpreter or without.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyString};

use super::append_result;
use super::arguments::{explained, type_of};
use super::buffer::Offsets;
use super::capsule::{import_table, speaks_arrow};
use super::errors::{WaitTimeoutError, of_append};
use super::fields::{PropertyArguments, is_buffer};
use super::handle::Handle;
use super::nowait;
use super::rows;
use super::time::to_deadline;
use crate::arrow::{self, Defaults};
use crate::error::{Error, Result};
use crate::format::Message;
use crate::interrupt;
use crate::store::{self, Appender, Incoming, MessageStore, PutStatus, QueueChoice, TopicWriter};

/// Longest wait between two checks for an interrupt of the user.
const INTERRUPTIBLE: Duration = Duration::from_millis(50);

/// Appends without releasing the interpreter, because a release takes longer than an append, unless that has to wait.
#[inline]
fn append(py: Python<'_>, handle: &Arc<Handle>, appender: Appender<'_>, mut message: Message<'_>) -> Result<store::AppendResult> {
    let checked = appender.checked(&mut message)?;
    match checked.try_append()? {
        Some(result) => Ok(result),
        None => handle.detach_append(py, || checked.append()),
    }
}

/// Options of the append of one message.
#[derive(Clone, Copy)]
pub(super) struct AppendOptions<'a> {
    pub(super) queue: QueueChoice<'a>,
    /// See [`MessageStore::appender`].
    pub(super) durable: Option<bool>,
}

/// Chooses the queue of a message.
pub(super) fn choose_queue(store: &MessageStore, message: &mut Message<'_>, choice: QueueChoice<'_>) -> Result<()> {
    message.queue_id = match choice {
        QueueChoice::Id(id) => id,
        choice => store.topics().queues().queue_id(&message.topic, choice)?,
    };
    Ok(())
}

/// Appends one message.
///
/// The writer is asked for here, after the message was made: code of the caller's made it, which may have forked or closed the store.
pub(super) fn one(
    py: Python<'_>,
    handle: &Arc<Handle>,
    mut message: Message<'_>,
    AppendOptions { queue, durable }: AppendOptions<'_>,
) -> PyResult<append_result::AppendResult> {
    let store = handle.writer()?;
    choose_queue(&store, &mut message, queue).map_err(|error| of_append(py, error))?;
    let appended = append(py, handle, store.appender(durable).of_producer(), message);
    told(py, handle, &store, appended).map(append_result::AppendResult)
}

/// Appends one message by a prepared writer, as [`append`] does.
pub(super) fn prepared(
    py: Python<'_>,
    handle: &Arc<Handle>,
    writer: &TopicWriter,
    body: &[u8],
    keys: &[Cow<'_, str>],
) -> PyResult<append_result::AppendResult> {
    let appended = match writer.try_append(body, keys) {
        Ok(None) => handle.detach_append(py, || writer.append(body, keys)),
        Ok(Some(result)) => Ok(result),
        Err(error) => Err(error),
    };
    told(py, handle, writer.store(), appended).map(append_result::AppendResult)
}

/// Returns or raises the outcome of an append, after the warnings of slow appends. Handles a signal that came during the call: its
/// exception can still say that the message is stored.
fn told(
    py: Python<'_>,
    handle: &Handle,
    store: &MessageStore,
    appended: Result<store::AppendResult>,
) -> PyResult<store::AppendResult> {
    let is_stored = matches!(appended, Ok(_) | Err(Error::NotDurable { .. }));
    let handled = handle.after_append(py, store).and_then(|()| py.check_signals());
    handled.inspect_err(|error| {
        // What a handler of a signal raises may be of a class that takes no attribute.
        let _ = error.value(py).setattr("stored", usize::from(is_stored));
    })?;
    match appended {
        Ok(result) => Ok(result),
        Err(error) => Err(of_append(py, error)),
    }
}

/// Appends one message as [`one`] does, and returns a future of the result: the caller waits for it, or nobody. In event loops that is the
/// result itself where nothing is waited for.
pub(super) fn nowait<'py>(
    py: Python<'py>,
    handle: &Arc<Handle>,
    mut message: Message<'_>,
    AppendOptions { queue, durable }: AppendOptions<'_>,
    running_loop: Option<&Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    // Before the append, so that nothing is stored where no thread can be started, no loop runs, or the interpreter ends.
    let running = running_loop.map(|running_loop| running_loop.call0(py)).transpose()?;
    let waits = handle.writer()?.appender(durable).waits_for([&message]);
    let completer = if waits.any() {
        Some(handle.completer(py)?)
    } else {
        nowait::expect_module(py)?;
        None
    };
    let store = handle.writer()?;
    choose_queue(&store, &mut message, queue).map_err(|error| of_append(py, error))?;
    let appended = append(py, handle, store.appender(durable).of_producer().without_waiting(), message);
    let result = told(py, handle, &store, appended)?;
    let offset = result.appended.physical_offset;
    let result = append_result::AppendResult(result);
    match (completer, running) {
        (Some(completer), running) => completer.call_method1("append", (offset, result, running, waits.disk, waits.slaves)),
        (None, None) => nowait::done(py, result),
        (None, Some(_)) => Ok(Bound::new(py, result)?.into_any()),
    }
}

/// The physical offset that a wait without a deadline is for, and a future that says whether it is durable: true as soon as it is, false
/// when `sync_flush_timeout` is over.
pub(super) fn durable<'py>(
    py: Python<'py>,
    handle: &Handle,
    offset: Option<i64>,
    running_loop: Option<&Py<PyAny>>,
) -> PyResult<(i64, Bound<'py, PyAny>)> {
    handle.expect_open()?;
    let running = running_loop.map(|running_loop| running_loop.call0(py)).transpose()?;
    let completer = handle.completer(py)?;
    let (store, offset) = awaited(handle, offset)?;
    store.ask_durable(offset);
    Ok((offset, completer.call_method1("durable", (offset, running))?))
}

/// Options of a batch append.
#[derive(Clone, Copy)]
pub(super) struct BatchOptions {
    /// All or none of them, in one segment.
    pub(super) together: bool,
    /// See [`MessageStore::appender`].
    pub(super) durable: Option<bool>,
}

/// Appends rows, or the rows of a table. The writer is asked for as in [`one`]. Whatever is raised says which rows were stored.
pub(super) fn batch(
    py: Python<'_>,
    handle: &Arc<Handle>,
    rows: &Bound<'_, PyAny>,
    defaults: &Defaults<'_>,
    how: BatchOptions,
) -> PyResult<Offsets> {
    let mut done = Vec::new();
    let outcome = append_rows(py, handle, rows, defaults, how, &mut done);
    stored(py, handle, outcome, &done)
}

/// Checks the rows of a table as [`batch`] does before the first byte, and appends none.
pub(super) fn check(py: Python<'_>, handle: &Arc<Handle>, rows: &Bound<'_, PyAny>, defaults: &Defaults<'_>) -> PyResult<()> {
    let (table, store) = (import_table(rows)?, handle.writer()?);
    let checked = handle.detach(py, || {
        let appender = store.appender(None).of_producer();
        appender.check_all(&mut arrow::Rows::of(&table)?.messages(defaults)?)
    });
    checked.map_err(|error| of_append(py, error))
}

/// Appends a producer's batch, with the properties of the batch itself. The writer is asked for as in [`one`].
pub(super) fn producer_batch(
    py: Python<'_>,
    handle: &Arc<Handle>,
    common: &Message<'_>,
    properties: Option<&Bound<'_, PyAny>>,
    durable: Option<bool>,
) -> PyResult<Offsets> {
    let of_batch = PropertyArguments {
        properties,
        ..PropertyArguments::default()
    };
    let (of_batch, store) = (of_batch.encode()?, handle.writer()?);
    let mut done = Vec::new();
    let appended = handle.detach_append(py, || {
        store
            .appender(durable)
            .of_producer()
            .append_producer_batch(common, Some(&of_batch), &mut done)
    });
    let outcome = appended.map_err(|error| of_append(py, error));
    stored(py, handle, outcome, &done)
}

/// The offsets of a batch. What is raised says which rows were stored, also where none failed and they are not durable in time, or where
/// a signal came during the call.
fn stored(py: Python<'_>, handle: &Handle, outcome: PyResult<()>, done: &[store::AppendResult]) -> PyResult<Offsets> {
    let warned = handle.writer().map_or(Ok(()), |store| handle.after_append(py, &store));
    let outcome = outcome.and(warned).and_then(|()| py.check_signals());
    let late = done.last().filter(|last| last.status != PutStatus::PutOk);
    let error = match (outcome, late) {
        (Ok(()), None) => return Ok(Offsets::new(done)),
        (Ok(()), Some(last)) => {
            let what = match last.status {
                PutStatus::SlaveNotAvailable => "too few slaves are connected, or they are far behind",
                PutStatus::FlushSlaveTimeout => "too few slaves had them when slave_timeout was over",
                PutStatus::FlushDiskTimeout | PutStatus::PutOk => {
                    "they were not durable when sync_flush_timeout was over: wait_durable() waits on"
                }
            };
            let rows = done.len();
            let text = format!("all {rows} rows are stored, and {what}; they are at the `offsets` of this exception");
            let error = WaitTimeoutError::new_err(text);
            error.value(py).setattr("status", last.status.name())?;
            error
        }
        (Err(error), _) => error,
    };
    // What a handler of a signal raises may be of a class that takes no attribute.
    let _ = error.value(py).setattr("stored", done.len());
    let _ = error.value(py).setattr("offsets", Offsets::new(done));
    Err(error)
}

fn append_all(
    store: &MessageStore,
    messages: Vec<Incoming<'_>>,
    how: BatchOptions,
    done: &mut Vec<store::AppendResult>,
) -> Result<()> {
    let appender = store.appender(how.durable).of_producer();
    if how.together {
        return appender.append_together(messages, done);
    }
    appender.append_all(messages, done)
}

fn append_rows(
    py: Python<'_>,
    handle: &Arc<Handle>,
    rows: &Bound<'_, PyAny>,
    defaults: &Defaults<'_>,
    how: BatchOptions,
    done: &mut Vec<store::AppendResult>,
) -> PyResult<()> {
    let outcome = if speaks_arrow(rows)? {
        let (table, store) = (import_table(rows)?, handle.writer()?);
        handle.detach_append(py, || {
            append_all(&store, arrow::Rows::of(&table)?.messages(defaults)?, how, done)
        })
    } else {
        let each = each(rows)?;
        let rows = handle.interruptible(|| {
            each.map(|row| interrupt::check().map_err(PyErr::from).and(row))
                .collect::<PyResult<Vec<_>>>()
        })?;
        let messages = handle.interruptible(|| rows::messages(&rows, defaults))?;
        let store = handle.writer()?;
        handle.detach_append(py, || append_all(&store, messages, how, done))
    };
    outcome.map_err(|error| of_append(py, error))
}

/// The rows of an iterable. A single body is one, too, of numbers: whoever gives it means a list.
fn each<'py>(rows: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    let is_body = rows.is_instance_of::<PyString>() || is_buffer(rows)?;
    let wrong = || {
        Ok(format!(
            "rows is an iterable of rows or speaks Arrow, {} does not",
            type_of(rows)?
        ))
    };
    let each = rows.try_iter().map_err(|error| explained(rows.py(), error, wrong))?;
    if is_body {
        let given = type_of(rows)?;
        return Err(PyTypeError::new_err(format!("rows is a single {given}: put it into a list")));
    }
    Ok(each)
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
    handle.expect_open()?;
    let deadline = to_deadline(timeout)?;
    let (store, offset) = awaited(handle, offset)?;
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

/// Returns what [`wait`] waits for: the store, and a physical offset in it.
fn awaited(handle: &Handle, offset: Option<i64>) -> PyResult<(Arc<MessageStore>, i64)> {
    let store = handle.writer()?;
    let offset = match offset {
        Some(offset) => {
            store.expect_appended(offset)?;
            offset
        }
        None => store.appended_offset() - 1,
    };
    Ok((store, offset))
}
