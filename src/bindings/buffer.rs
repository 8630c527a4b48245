//! Buffers for Python without a copy: a message's body; `Offsets`.
#![expect(unsafe_code, reason = "Python's buffer protocol hands out pointers")]

use std::ffi::{c_int, c_void};

use arrow_array::Int64Array;
use pyo3::basic::CompareOp;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyCapsule, PyIterator, PyList, PyMemoryView};

use super::capsule::export_array;
use crate::store::AppendResult;

/// Bytes that stay where they are, unchanged, while their owner lives.
pub(super) trait PinnedBytes: Send + Sync {
    fn bytes(&self) -> &[u8];
}

/// A read-only memoryview of `owner`'s bytes; it keeps the owner alive.
pub(super) fn memory_view(py: Python<'_>, owner: Box<dyn PinnedBytes>) -> PyResult<Bound<'_, PyMemoryView>> {
    PyMemoryView::from(Bound::new(py, Buffer { owner })?.as_any())
}

/// The exporter of the buffer. Users do not see this class.
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

/// The physical offsets of messages that were stored, a row each: a sequence of int, a read-only
/// buffer of int64 and an Arrow array. Equal to another one, or a list, that holds the same.
#[pyclass(frozen, module = "mqstore", sequence)]
pub(super) struct Offsets {
    values: Int64Array,
    /// The number of values of the buffer.
    shape: [isize; 1],
}

impl Offsets {
    pub(super) fn new(results: &[AppendResult]) -> Self {
        offsets(results.iter().map(|result| result.appended.physical_offset).collect())
    }
}

/// Offsets from a list of them: what pickle calls.
#[pyfunction(name = "_offsets")]
pub(super) fn offsets(values: Vec<i64>) -> Offsets {
    Offsets {
        shape: [values.len() as isize],
        values: values.into(),
    }
}

#[pymethods]
impl Offsets {
    fn __len__(&self) -> usize {
        self.values.len()
    }

    /// An int for an int; for a slice a memoryview of int64, which copies nothing.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        view(slf)?.get_item(index)
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyIterator>> {
        view(slf)?.try_iter()
    }

    fn __reversed__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyIterator>> {
        view(slf)?.call_method0("tolist")?.call_method0("__reversed__")?.try_iter()
    }

    fn __contains__(slf: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        view(slf)?.contains(value)
    }

    /// The row of an offset. Raises `ValueError` if it is not there.
    #[pyo3(signature = (value, start=0, stop=9_223_372_036_854_775_807, /))]
    fn index(slf: &Bound<'_, Self>, value: &Bound<'_, PyAny>, start: i64, stop: i64) -> PyResult<usize> {
        view(slf)?
            .call_method0("tolist")?
            .call_method1("index", (value, start, stop))?
            .extract()
    }

    fn __eq__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(other) = other.cast::<Self>() {
            let same = slf.get().values == other.get().values;
            return Ok(PyBool::new(slf.py(), same).to_owned().into_any());
        }
        if other.is_instance_of::<PyList>() {
            return view(slf)?.call_method0("tolist")?.rich_compare(other, CompareOp::Eq);
        }
        Ok(slf.py().NotImplemented().into_bound(slf.py()))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyAny>,))> {
        let unpickle = slf.py().import("mqstore._native")?.getattr("_offsets")?;
        Ok((unpickle, (view(slf)?.call_method0("tolist")?,)))
    }

    /// In how many rows an offset is: 1 or 0.
    #[pyo3(signature = (value, /))]
    fn count(slf: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<usize> {
        Ok(usize::from(Self::__contains__(slf, value)?))
    }

    /// # Safety
    /// Python calls it with a `view` to fill.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let offsets = slf.get();
        let start = offsets.values.values().as_ptr();
        let length = size_of_val(offsets.values.values().as_ref());
        // SAFETY: as for `Buffer`: the values are pinned and read-only.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start.cast_mut().cast(), length as isize, 1, flags) };
        if filled != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        // SAFETY: `view` was filled as bytes just now. What it gets here points at what lives as long as `slf`, which nobody writes to
        // through a read-only view; the strides point at its own item size already.
        unsafe {
            (*view).itemsize = size_of::<i64>() as isize;
            if flags & ffi::PyBUF_FORMAT == ffi::PyBUF_FORMAT {
                (*view).format = c"q".as_ptr().cast_mut();
            }
            if flags & ffi::PyBUF_ND == ffi::PyBUF_ND {
                (*view).shape = offsets.shape.as_ptr().cast_mut();
            }
        }
        Ok(())
    }

    /// The Arrow PyCapsule interface: one array of int64.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        drop(requested_schema);
        export_array(py, &self.values)
    }

    fn __repr__(&self) -> String {
        match (self.values.values().first(), self.values.values().last()) {
            (Some(first), Some(last)) => format!("<mqstore.Offsets of {} messages, {first} to {last}>", self.values.len()),
            _ => "<mqstore.Offsets of 0 messages>".to_owned(),
        }
    }
}

fn view<'py>(offsets: &Bound<'py, Offsets>) -> PyResult<Bound<'py, PyAny>> {
    Ok(PyMemoryView::from(offsets.as_any())?.into_any())
}
