//! The modes of `mqstore.open`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::store::OpenMode;

/// What a store is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Read,
    Write(OpenMode),
}

impl Mode {
    /// # Errors
    /// `ValueError`.
    pub(super) fn parse(name: &str) -> PyResult<Self> {
        match name {
            "r" => Ok(Self::Read),
            "r+" => Ok(Self::Write(OpenMode::Existing)),
            "a" => Ok(Self::Write(OpenMode::Append)),
            "x" => Ok(Self::Write(OpenMode::New)),
            _ => Err(PyValueError::new_err(format!(
                "mode is {name:?}: expected \"r\" (read), \"r+\" (write, must exist), \"a\" (write, made if it does not exist) or \"x\" \
                 (write, must not exist)"
            ))),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Read => "r",
            Self::Write(OpenMode::Existing | OpenMode::Rebuild) => "r+",
            Self::Write(OpenMode::Append) => "a",
            Self::Write(OpenMode::New) => "x",
        }
    }
}
