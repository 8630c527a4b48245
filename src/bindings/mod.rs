//! The Python bindings. Every call converts its arguments, releases the interpreter, calls the core, and converts the answer.
//! They decide nothing about a store.

/// The end of the interpreter, second interpreters, and the failed close of a dropped store.
mod interpreter;
/// Arguments of a call, each refused by its name.
mod arguments;
/// Tables that come in through Arrow's C structs, checked before they are used.
mod arrow_input;
/// Arrow batches and streams across the language border, as `PyCapsule`s.
mod capsule;
/// Buffers without a copy: the body of a message; `Offsets`.
mod buffer;
/// Remedies and fixes in the words of Python.
mod remedies;
/// The crate's errors as the exceptions of `mqstore.errors`.
mod errors;
/// Modules that are imported when a call needs them.
mod imports;
/// Times: ms since 1970 here, timezone-aware `datetime` there.
mod time;
/// Reports and counters as the dataclasses of `mqstore._reports`.
mod reports;
/// Warnings.
mod warnings;
/// `Recipe`: path and options of a reader, for pickle and copy.
mod recipe;
/// `AppendResult`.
mod append_result;
/// Futures of appends, and the thread of a store that completes them.
mod nowait;
/// An open store as Python holds it: closes once, reopens itself after a fork.
mod handle;
/// Extraction of a message from Python objects.
mod fields;
/// `Message`.
mod message;
/// `MessageIterator`.
mod message_iterator;
/// The sources of the messages of batches.
mod source;
/// The rows of a `RecordBatch` as named tuples and dicts.
mod row_iterator;
/// `RecordBatch`.
mod record_batch;
/// One pass over messages, batch by batch, and the turns of the threads that share it.
mod pass;
/// `Batches`: a source of record batches that can be read again.
mod batches;
/// Bytes of a store to a Python socket.
mod send_to;
/// `Tabular`: the methods that a queue, a slice of one, a topic and a result share.
mod tabular;
/// `Queue`, `QueueSlice`.
mod queue;
/// `Topics`, `Topic`, `Queues`.
mod topic;
/// The rows of `append_batch`.
mod rows;
/// Appends and waits, with the interpreter or without.
mod append;
/// `Inspect`: the files of a store and their bytes.
mod inspect;
/// `BrokerState`: the settings and positions of the broker of a store.
mod broker;
/// `Store`: its life, and reads.
#[expect(
    clippy::too_many_arguments,
    clippy::needless_pass_by_value,
    reason = "the arguments of a Python call, extracted"
)]
mod store;
/// `Store.get` and `Store.query`: `GetResult`, `QueryResult`.
#[expect(
    clippy::too_many_arguments,
    clippy::needless_pass_by_value,
    reason = "the arguments of a Python call, extracted"
)]
mod results;
/// `Store.usage`: `Usage`.
#[expect(clippy::needless_pass_by_value, reason = "the arguments of a Python call, extracted")]
mod usage;
/// `Store.refresh`, `Store.follow`, `Queue.tail`.
mod follow;
/// `Writer`: a store that is open for writing.
#[expect(clippy::too_many_arguments, reason = "the arguments of a Python call")]
mod writer;
/// `TopicWriter`: a prepared writer of one queue.
mod topic_writer;
/// `Consumer`: a member of a consumer group.
#[expect(
    clippy::doc_markdown,
    clippy::too_many_arguments,
    reason = "the arguments of a Python call, extracted, with a line a parameter"
)]
mod consumer;
/// `Transactions`: half messages and their ends.
#[expect(clippy::too_many_arguments, reason = "the arguments of a Python call")]
mod transactions;
/// Functions that belong to no class.
#[expect(clippy::needless_pass_by_value, reason = "the arguments of a Python call, extracted")]
mod functions;
/// `open`: the mode and the options.
mod open;
/// `repair`, `rebuild`.
#[expect(clippy::needless_pass_by_value, reason = "the arguments of a Python call, extracted")]
mod repair;
/// `trim`: the removal of the oldest messages.
#[expect(
    clippy::too_many_arguments,
    clippy::needless_pass_by_value,
    reason = "the arguments of a Python call, extracted"
)]
mod trim;
/// `replicate`, `tap`, `Replica`: the slave of a master.
#[expect(clippy::doc_markdown, reason = "docstrings in numpy's style")]
mod replicate;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Gives classes a method without arguments that a function of a Python module carries out.
macro_rules! in_python {
    ($method:ident, $module:literal, $function:literal: $($($class:ident)::+),+) => {
        $(
            #[pymethods]
            impl $($class)::+ {
                fn $method<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
                    imports::call(slf.py(), $module, $function, (slf,), None)
                }
            }
        )+
    };
}

in_python!(_repr_html_, "mqstore._html", "shown": append_result::AppendResult, batches::Batches, message::Message,
    record_batch::RecordBatch, store::Store, tabular::Tabular, topic::Queues, topic::Topics);
in_python!(__aiter__, "mqstore.aio", "_each": batches::Batches, queue::Queue, queue::QueueSlice, results::QueryResult,
    topic::Topic);
in_python!(__aiter__, "mqstore.aio", "_as_they_come": message_iterator::MessageIterator);

/// Gives a sequence without equal items the methods that look for an item, by its `find`.
macro_rules! finds {
    ($($class:ident)::+, $item:literal, $(#[$index:meta])* index, $(#[$count:meta])* count) => {
        #[pymethods]
        impl $($class)::+ {
            fn __contains__(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<bool> {
                Ok(self.find(py, value, &(0..i64::MAX))?.is_some())
            }

            $(#[$index])*
            ///
            /// Parameters
            /// ----------
            /// value : object
            ///     What is looked for.
            /// start, stop : int, default 0 and 2**63 - 1
            ///     The bounds of the result, the second exclusive.
            ///
            /// Returns
            /// -------
            /// int
            ///     The index of the value, as `[...]` takes it.
            ///
            /// Raises
            /// ------
            /// ValueError
            ///     It is not there, or not within the bounds.
            #[pyo3(signature = (value, start=0, stop=9_223_372_036_854_775_807, /))]
            #[expect(clippy::doc_markdown, reason = "a docstring in numpy's style")]
            fn index(&self, py: Python<'_>, value: &Bound<'_, PyAny>, start: i64, stop: i64) -> PyResult<i64> {
                let found = self.find(py, value, &(start..stop))?;
                found.ok_or_else(|| PyValueError::new_err(concat!("the ", $item, " is not here")))
            }

            $(#[$count])*
            #[pyo3(signature = (value, /))]
            fn count(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<usize> {
                Ok(usize::from(self.__contains__(py, value)?))
            }
        }
    };
}

finds! {
    queue::Queue, "message",
    /// Returns the queue offset of a message of this queue.
    index,
    /// Returns the number of times that the message is in this queue: 1 or 0.
    count
}
finds! {
    queue::QueueSlice, "message",
    /// Returns the index of a message in this slice.
    index,
    /// Returns the number of times that the message is in this slice: 1 or 0.
    count
}
finds! {
    results::QueryResult, "message",
    /// Returns the index of a message in this answer.
    index,
    /// Returns the number of times that the message is in this answer: 1 or 0.
    count
}
finds! {
    topic::Queues, "queue",
    /// Returns the id of a queue of this topic.
    index,
    /// Returns the number of times that the queue is here: 1 or 0.
    count
}

/// The native part of `mqstore`; import `mqstore` instead.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    /// The version of the package.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    use super::append_result::{AppendResult, unpickle_append_result};
    #[pymodule_export]
    use super::batches::Batches;
    #[pymodule_export]
    use super::broker::{BrokerState, timers};
    #[pymodule_export]
    use super::buffer::{Offsets, offsets};
    #[pymodule_export]
    use super::consumer::Consumer;
    #[pymodule_export]
    use super::functions::{
        checksums, expect_path_outside, flushed_mark, json_lines, landmarks, lost_queues, named_json_lines, new_unique_key,
        no_messages, part, query_result, stop_clock, topics,
    };
    #[pymodule_export]
    use super::inspect::Inspect;
    #[pymodule_export]
    use super::message::{Message, unpickle_message};
    #[pymodule_export]
    use super::message_iterator::MessageIterator;
    #[pymodule_export]
    use super::nowait::Flushed;
    #[pymodule_export]
    use super::open::{check_options, open, open_after, reopen, rocketmq_options};
    #[pymodule_export]
    use super::queue::{Queue, QueueSlice};
    #[pymodule_export]
    use super::recipe::Recipe;
    #[pymodule_export]
    use super::record_batch::RecordBatch;
    #[pymodule_export]
    use super::repair::{rebuild, repair};
    #[pymodule_export]
    use super::replicate::{Replica, replicate, tap};
    #[pymodule_export]
    use super::results::{GetResult, QueryResult, unpickle_get_result};
    #[pymodule_export]
    use super::store::Store;
    #[pymodule_export]
    use super::tabular::Tabular;
    #[pymodule_export]
    use super::topic::{Queues, Topic, Topics};
    #[pymodule_export]
    use super::topic_writer::TopicWriter;
    #[pymodule_export]
    use super::transactions::{Checker, Half, Transaction, Transactions};
    #[pymodule_export]
    use super::trim::trim;
    #[pymodule_export]
    use super::usage::Usage;
    #[pymodule_export]
    use super::writer::Writer;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::interpreter::expect_first(module.py())?;
        super::errors::import_all(module.py())?;
        super::imports::load_types(module.py())
    }
}
