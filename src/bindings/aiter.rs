//! `async for`: what asyncio iterates, read in a thread.

use pyo3::prelude::*;

use super::batches::Batches;
use super::imports::call;
use super::message_iterator::MessageIterator;
use super::queue::{Queue, QueueSlice};
use super::topic::Topic;

/// The same as iterating gives, for the tasks of an event loop.
macro_rules! in_a_thread {
    ($read:literal: $($class:ident)*) => {
        $(#[pymethods]
        impl $class {
            fn __aiter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
                call(slf.py(), "mqstore.aio", $read, (slf,), None)
            }
        })*
    };
}

in_a_thread!("_each": Batches Queue QueueSlice Topic);
in_a_thread!("_as_they_come": MessageIterator);
