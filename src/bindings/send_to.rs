//! Bytes of a store to a Python socket, without a copy in Python.

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;

use pyo3::exceptions::{PyBlockingIOError, PyOSError, PyTimeoutError, PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::arguments::{explained, type_of, whole};
use super::fields::body;
use super::handle::interruptible_by_signals;
use super::imports::module;
use crate::storage::{Part, RealEnv, RealSocket, Transfer, Unsent, UnsentCause};

/// Sends parts to a Python socket, without their first `start` bytes, and returns the number of bytes that were sent.
///
/// # Errors
/// Those of the socket's own methods, with the attribute `characters_written`; `TypeError`, `ValueError`, `CorruptError`.
pub(super) fn send(py: Python<'_>, socket: &Bound<'_, PyAny>, parts: &[Part<'_>], start: usize) -> PyResult<u64> {
    let (socket, timeout) = opened(socket)?;
    let parts = after(parts, start)?;
    let wanted: usize = parts.iter().map(Part::len).sum();
    let sent = py.detach(|| {
        let send = || Transfer::new(&RealEnv::new()).send(&socket, timeout, &parts);
        interruptible_by_signals(|| Ok(()), send)
    });
    sent.map_err(|unsent| ended_early(py, unsent, wanted))
}

/// Converts the argument `header`.
pub(super) fn header_bytes(value: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
    let bytes = body(value.as_borrowed()).map_err(|error| {
        explained(value.py(), error, || {
            Ok(format!("header is bytes or a buffer of bytes, not {}", type_of(value)?))
        })
    });
    Ok(Some(bytes?.into_owned()))
}

/// Converts the argument `start`.
pub(super) fn start_bytes(value: &Bound<'_, PyAny>) -> PyResult<usize> {
    Ok(whole::<u64>(value, "start")? as usize)
}

/// Returns the parts without their first `start` bytes.
fn after<'b>(parts: &[Part<'b>], start: usize) -> PyResult<Vec<Part<'b>>> {
    let mut left = start;
    let rest = parts.iter().map(|part| {
        let skipped = left.min(part.len());
        left -= skipped;
        part.after(skipped)
    });
    let rest: Vec<_> = rest.collect();
    if left > 0 {
        let all = start - left;
        return Err(PyValueError::new_err(format!(
            "start is {start}: expected at most the {all} bytes of header and records"
        )));
    }
    Ok(rest)
}

/// Returns a duplicate of a Python socket, which another thread may close, and its timeout; `None` if it has none or does not block.
fn opened(socket: &Bound<'_, PyAny>) -> PyResult<(RealSocket<OwnedFd>, Option<Duration>)> {
    let py = socket.py();
    if !socket.is_instance(&module(py, "socket")?.getattr("socket")?)? {
        return Err(PyTypeError::new_err(format!(
            "socket is a socket.socket, not {}",
            type_of(socket)?
        )));
    }
    // Who has such a socket has imported its module.
    let ssl = module(py, "sys")?.getattr("modules")?.call_method1("get", ("ssl",))?;
    if !ssl.is_none() && socket.is_instance(&ssl.getattr("SSLSocket")?)? {
        return Err(PyTypeError::new_err(
            "socket is an ssl.SSLSocket: the records would bypass TLS; send message.raw of each message with its sendall",
        ));
    }
    let descriptor: RawFd = socket.call_method0("fileno")?.extract()?;
    if descriptor < 0 {
        return Err(PyOSError::new_err((libc::EBADF, "the socket is closed")));
    }
    let timeout: Option<f64> = socket.call_method0("gettimeout")?.extract()?;
    let duplicate = RealSocket::duplicate(descriptor).map_err(|error| match error.raw_os_error() {
        Some(number) => PyOSError::new_err((number, format!("the socket cannot be used: {error}"))),
        None => PyValueError::new_err("socket is no stream socket: expected one of the type SOCK_STREAM"),
    })?;
    let timeout = timeout.filter(|seconds| *seconds > 0.0);
    let timeout = timeout.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
    Ok((duplicate, timeout))
}

/// Returns the exception of a transfer that ended early.
fn ended_early(py: Python<'_>, unsent: Unsent, wanted: usize) -> PyErr {
    let sent = unsent.sent;
    let error = match unsent.cause {
        UnsentCause::Store(error) => PyErr::from(error),
        UnsentCause::Socket(error) => {
            let text = |why: &str| format!("{why}: {sent} of {wanted} bytes were sent");
            match (error.kind(), error.raw_os_error()) {
                (io::ErrorKind::WouldBlock, number) => {
                    PyBlockingIOError::new_err((number.unwrap_or(libc::EAGAIN), text("the buffer of the socket is full")))
                }
                (_, Some(number)) => PyOSError::new_err((number, text(&error.to_string()))),
                (io::ErrorKind::TimedOut, None) => PyTimeoutError::new_err(text("the timeout of the socket has passed")),
                _ => PyOSError::new_err(text(&error.to_string())),
            }
        }
    };
    // What a handler of a signal raises may be of a class that takes no attribute.
    let _ = error.value(py).setattr("characters_written", sent);
    error
}
