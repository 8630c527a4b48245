//! The crate's errors as the exceptions of `mqstore.errors`.

use pyo3::PyErr;
use pyo3::exceptions::PyValueError;
use pyo3::import_exception;

use crate::error::Error;

import_exception!(mqstore.errors, ClosedError);
import_exception!(mqstore.errors, CorruptError);
import_exception!(mqstore.errors, NotAStoreError);
import_exception!(mqstore.errors, NotFoundError);
import_exception!(mqstore.errors, StoreError);
import_exception!(mqstore.errors, StoreIOError);
import_exception!(mqstore.errors, UnsupportedFormatError);

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        match error {
            Error::NotAStore { .. } => NotAStoreError::new_err(error.to_string()),
            Error::Corrupt { path, offset, reason } => CorruptError::new_err((path.into_os_string(), offset, reason)),
            Error::Unsupported { .. } => UnsupportedFormatError::new_err(error.to_string()),
            Error::NotFound { what } => NotFoundError::new_err(what),
            Error::Invalid { what } => PyValueError::new_err(what),
            Error::Io { action, path, source } => match source.raw_os_error() {
                Some(number) => StoreIOError::new_err((number, format!("cannot {action}: {source}"), path.into_os_string())),
                // With a number that is None Python would show "[Errno None]".
                None => StoreIOError::new_err(format!("cannot {action} {}: {source}", path.display())),
            },
        }
    }
}
