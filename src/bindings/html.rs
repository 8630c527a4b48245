//! What notebooks show: `mqstore._html` writes it.

use pyo3::prelude::*;

use super::append_result::AppendResult;
use super::batches::Batches;
use super::finding::Finding;
use super::imports::call;
use super::message::Message;
use super::record_batch::RecordBatch;
use super::recovery::RecoveryReport;
use super::repair::{Change, RepairReport};
use super::stats::{StoreStats, TopicStats};
use super::store::Store;
use super::tabular::Tabular;
use super::topic::{Queues, Topics};
use super::verify::VerifyReport;

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
    AppendResult Batches Change Finding Message Queues RecordBatch RecoveryReport RepairReport Store StoreStats Tabular TopicStats Topics VerifyReport
);
