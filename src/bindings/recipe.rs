//! The recipe that opens a reader again, for pickle and copy.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// The result of `__reduce__`: the function that pickle calls, and its arguments.
pub(super) type Reduced<'py, T> = PyResult<(Bound<'py, PyAny>, T)>;

/// The path and options that open a reader again, in another process or later. A pickle holds it in
/// place of an open store. It is one object for a store and everything that came from it, so that a
/// pickle of several of them opens the store once.
#[pyclass(frozen, module = "mqstore._native")]
pub(super) struct Recipe {
    path: PathBuf,
    options: Py<PyDict>,
}

impl Recipe {
    /// `options` as `open` was given them.
    pub(super) fn new(path: &Path, options: Py<PyDict>) -> Self {
        Self {
            path: path.to_owned(),
            options,
        }
    }

    /// The store, opened again.
    ///
    /// # Errors
    /// Those of opening it.
    pub(super) fn open<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (reopen, arguments) = self.__reduce__(py)?;
        reopen.call1(arguments)
    }
}

#[pymethods]
impl Recipe {
    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, Bound<'py, PyTuple>> {
        let reopen = of_native(py, "_reopen")?;
        Ok((reopen, (self.path.as_os_str(), &self.options).into_pyobject(py)?))
    }
}

/// Returns the function that pickle calls for a store, a topic, a queue or a slice, with the recipe and its name in the store.
pub(super) fn part_of_pickle(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    of_native(py, "_part")
}

/// A function of the native module.
pub(super) fn of_native<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("mqstore._native")?.getattr(name)
}
