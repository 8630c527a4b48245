//! The crate's errors as the exceptions of `mqstore.errors`.

use std::path::Path;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::{PyErr, import_exception};

use super::remedies::advice;
use crate::error::{Error, TransactionOutcome, wait_in_words};
use crate::format::COMMIT_LOG_DIR;

macro_rules! exceptions {
    ($($name:ident)*) => {
        $(import_exception!(mqstore.errors, $name);)*

        /// Looks every exception up. `import_exception!` does that at the first use and panics where the import fails: the interpreter
        /// imports nothing any more while it ends, and errors are raised until then.
        ///
        /// # Errors
        /// That of the import.
        pub(super) fn import_all(py: Python<'_>) -> PyResult<()> {
            py.import("mqstore.errors")?;
            $(py.get_type::<$name>();)*
            Ok(())
        }
    };
}

exceptions! {
    BusyError
    ClosedError
    CorruptError
    DiskFullError
    IllegalMessageError
    LockedError
    NotAStoreError
    NotFoundError
    OffsetOutOfRangeError
    PoisonedError
    PositionMismatchError
    ReadOnlyError
    StoreError
    StoreExistsError
    StoreIOError
    TransactionEndedError
    UnsupportedFormatError
    WaitTimeoutError
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        if let Error::Interrupted { cause } = &error
            && let Some(cause) = cause.downcast_ref::<PyErr>()
        {
            return Python::attach(|py| cause.clone_ref(py));
        }
        let remedy = error.remedy();
        let raised = exception_of(error);
        match remedy {
            None => raised,
            Some(remedy) => Python::attach(|py| {
                let value = raised.value(py);
                let is_set = value
                    .setattr("remedy", remedy.name())
                    .and_then(|()| value.setattr("advice", advice(remedy)));
                is_set.err().unwrap_or(raised)
            }),
        }
    }
}

fn exception_of(error: Error) -> PyErr {
    let text = error.text().to_string();
    match error {
        Error::NotAStore { path, found } => {
            let why = format!("not a message store: expected a directory with commitlog/ in it, found {found}");
            NotAStoreError::new_err((libc::ENOENT, why, path.into_os_string()))
        }
        Error::NoSuchDirectory { path } => NotAStoreError::new_err((libc::ENOENT, "no such directory", path.into_os_string())),
        Error::Corrupt {
            path, offset, reason, ..
        } => CorruptError::new_err((path.into_os_string(), offset, reason)),
        Error::LogCut { path, at } => of_cut(&path, at),
        Error::Unsupported { .. } => UnsupportedFormatError::new_err(text),
        Error::NotFound { .. } => NotFoundError::new_err(text),
        Error::OffsetOutOfRange { .. } | Error::PositionMismatch { .. } | Error::PositionsLocked { .. } => {
            of_position(error, text)
        }
        Error::ReadOnly { .. } => ReadOnlyError::new_err(text),
        Error::Invalid { .. } => PyValueError::new_err(text),
        Error::TransactionEnded { half, outcome } => {
            let committed = match outcome {
                TransactionOutcome::Committed(at) => Some(at),
                _ => None,
            };
            TransactionEndedError::new_err((text, half, outcome.name(), committed))
        }
        Error::Exists { path } => {
            let why = "a new store wants a missing or an empty directory";
            StoreExistsError::new_err((libc::EEXIST, why, path.into_os_string()))
        }
        Error::Locked { path, waited } => {
            let why = format!(
                "another store, of this process or another, or a broker writes here{}: close it first; lsof or fuser on this \
                 file names the process",
                wait_in_words(waited)
            );
            LockedError::new_err((libc::EAGAIN, why, path.into_os_string()))
        }
        Error::IllegalMessage { what, status } => IllegalMessageError::new_err((what, status)),
        Error::DiskFull { path } => {
            let why = "no space left on the disk for this file: free some and try again";
            DiskFullError::new_err((libc::ENOSPC, why, path.into_os_string()))
        }
        Error::Poisoned { cause, flushed } => poisoned(*cause, flushed, text),
        Error::NotDurable { cause, .. } => match *cause {
            Error::Poisoned { cause, flushed } => poisoned(*cause, flushed, text),
            Error::Closed => ClosedError::new_err(text),
            Error::DiskFull { path } => DiskFullError::new_err((libc::ENOSPC, text, path.into_os_string())),
            Error::Io { path, source, .. } if source.raw_os_error().is_some() => {
                StoreIOError::new_err((source.raw_os_error(), text, path.into_os_string()))
            }
            cause => cause.into(),
        },
        Error::Busy { .. } | Error::PoolFull { .. } => BusyError::new_err((libc::EAGAIN, text)),
        Error::TimedOut { .. } => WaitTimeoutError::new_err(text),
        Error::Closed => ClosedError::new_err(text),
        Error::Interrupted { .. } | Error::Panicked { .. } => StoreError::new_err(text),
        Error::Io { action, path, source } => match source.raw_os_error() {
            Some(number) => {
                let why = format!("cannot {action}: {source}");
                StoreIOError::new_err((number, why, path.into_os_string()))
            }
            // With the number None Python would show "[Errno None]".
            None => StoreIOError::new_err(text),
        },
    }
}

/// Returns the exception of a reader whose log was cut, with a mark: it is not about one message, so no option passes over it.
fn of_cut(path: &Path, at: i64) -> PyErr {
    let why = "the log was cut here since the store was opened, because the master of its slave has other messages from here on: open the store \
               again, and read again what was read after this offset";
    let error = CorruptError::new_err((path.join(COMMIT_LOG_DIR).into_os_string(), at, why));
    let marked = Python::attach(|py| error.value(py).setattr("_is_of_a_cut", true));
    marked.err().unwrap_or(error)
}

/// Returns the exception of a consumer's position.
fn of_position(error: Error, text: String) -> PyErr {
    match error {
        Error::OffsetOutOfRange {
            topic,
            queue_id,
            offset,
            bounds,
        } => OffsetOutOfRangeError::new_err((text, topic, queue_id, offset, bounds.start, bounds.end)),
        Error::PositionMismatch {
            path,
            topic,
            queue_id,
            offset,
            reason,
        } => PositionMismatchError::new_err((text, path.into_os_string(), topic, queue_id, offset, reason)),
        Error::PositionsLocked { path } => {
            let why = "another consumer keeps its positions in this file: close it first, or choose another file";
            LockedError::new_err((libc::EAGAIN, why, path.into_os_string()))
        }
        _ => StoreError::new_err(text),
    }
}

/// Returns the exception of an append, with RocketMQ's status and whether the message was stored.
pub(super) fn of_append(py: Python<'_>, error: Error) -> PyErr {
    let status = error.put_status();
    let is_stored = matches!(error, Error::NotDurable { .. });
    let error = PyErr::from(error);
    // What a handler of a signal raises may be of a class that takes no attribute.
    let _ = error.value(py).setattr("stored", usize::from(is_stored));
    if let Some(status) = status {
        let _ = error.value(py).setattr("status", status);
    }
    error
}

fn poisoned(cause: Error, flushed: i64, text: String) -> PyErr {
    let number = match cause {
        Error::Io { ref source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        _ => libc::EIO,
    };
    let error = PoisonedError::new_err((number, text, flushed));
    Python::attach(|py| error.set_cause(py, Some(cause.into())));
    error
}
