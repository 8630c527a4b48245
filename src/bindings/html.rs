//! What notebooks show: `mqstore._html` writes it.

use pyo3::prelude::*;

use super::append_result::AppendResult;
use super::batches::Batches;
use super::imports::call;
use super::message::Message;
use super::record_batch::RecordBatch;
use super::store::Store;
use super::tabular::Tabular;
use super::topic::{Queues, Topics};

macro_rules! shown {
    ($($class:ident)*) => {
        $(#[pymethods]
        impl $class {
            fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
                call(slf.py(), "mqstore._html", "shown", (slf,), None)
            }
        })*
    };
}

shown!(
    AppendResult Batches Message Queues RecordBatch Store Tabular Topics
);
