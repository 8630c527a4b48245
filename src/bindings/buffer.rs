//! A message's body as a read-only buffer, without a copy.
#![expect(unsafe_code, reason = "Python's buffer protocol hands out pointers")]

use std::ffi::{c_int, c_void};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

/// Bytes that stay where they are, unchanged, while their owner lives.
pub(super) trait PinnedBytes: Send + Sync {
    fn bytes(&self) -> &[u8];
}

/// A read-only memoryview of `owner`'s bytes; it keeps the owner alive.
pub(super) fn memory_view(py: Python<'_>, owner: Box<dyn PinnedBytes>) -> PyResult<Bound<'_, PyMemoryView>> {
    PyMemoryView::from(Bound::new(py, Buffer { owner })?.as_any())
}

/// What exports the buffer. Not a class that a user sees.
#[pyclass(frozen, module = "mqstore._native")]
struct Buffer {
    owner: Box<dyn PinnedBytes>,
}

#[pymethods]
impl Buffer {
    /// # Safety
    /// Python calls it with a `view` to fill.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = slf.get().owner.bytes();
        let length = isize::try_from(bytes.len()).unwrap_or(isize::MAX);
        let start = bytes.as_ptr().cast_mut().cast::<c_void>();
        // SAFETY: `view` comes from the interpreter; it takes a reference to `slf`, whose owner is frozen and pins the bytes; they
        // are declared read-only, so a request to write is refused.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
