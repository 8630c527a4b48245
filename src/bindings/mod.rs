//! The Python face. Every call converts its arguments, lets go of the interpreter, asks the core, and converts the answer; what a
//! store means is decided in the rooms below.

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
/// The crate's errors as the exceptions of `mqstore.errors`.
mod errors;
/// Modules that are imported when a call needs them.
mod imports;
/// Reports and counters as the dataclasses of `mqstore._reports`.
mod reports;
/// Times: ms since 1970 here, timezone-aware `datetime` there.
mod time;
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
/// Turns of the threads that share a pass.
mod turn;
/// One pass over messages, batch by batch.
mod pass;
/// `Batches`: a source of record batches that can be read again.
mod batches;
/// `Tabular`: the methods that a queue, a slice of one, a topic and a result share.
mod tabular;
/// `Queue`, `QueueSlice`.
mod queue;
/// `Topics`, `Topic`, `Queues`.
mod topic;
/// `Messages`, `GetResult`, `QueryResult`.
mod results;
/// The rows of `append_batch`.
mod rows;
/// Appends and waits, with the interpreter or without.
mod append;
/// `Usage`.
mod usage;
/// `Store`: its life, and reads.
#[expect(
    clippy::too_many_arguments,
    clippy::needless_pass_by_value,
    reason = "the arguments of a Python call, extracted"
)]
mod store;
/// `Store.refresh`, `Store.follow`, `Queue.tail`.
mod follow;
/// `Store`: appends and durability, copies and files.
#[expect(clippy::too_many_arguments, reason = "the arguments of a Python call")]
mod store_writing;
/// Functions that belong to no class.
#[expect(clippy::needless_pass_by_value, reason = "the arguments of a Python call, extracted")]
mod functions;
/// `open`: the mode and the options.
mod open;
/// `repair`, `rebuild`.
#[expect(clippy::needless_pass_by_value, reason = "the arguments of a Python call, extracted")]
mod repair;

use pyo3::pymodule;

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
    use super::buffer::{Offsets, offsets};
    #[pymodule_export]
    use super::functions::{
        checksums, expect_path_outside, flushed_mark, json_lines, landmarks, named_json_lines, new_unique_key, no_messages, part,
        stop_clock, topics,
    };
    #[pymodule_export]
    use super::message::{Message, unpickle_message};
    #[pymodule_export]
    use super::message_iterator::MessageIterator;
    #[pymodule_export]
    use super::nowait::Flushed;
    #[pymodule_export]
    use super::open::{open, open_after, reopen};
    #[pymodule_export]
    use super::queue::{Queue, QueueSlice};
    #[pymodule_export]
    use super::recipe::Recipe;
    #[pymodule_export]
    use super::record_batch::RecordBatch;
    #[pymodule_export]
    use super::repair::{rebuild, repair};
    #[pymodule_export]
    use super::results::{GetResult, Messages, QueryResult, unpickle_get_result, unpickle_query_result};
    #[pymodule_export]
    use super::store::Store;
    #[pymodule_export]
    use super::tabular::Tabular;
    #[pymodule_export]
    use super::topic::{Queues, Topic, Topics};
    #[pymodule_export]
    use super::usage::Usage;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::interpreter::expect_first(module.py())?;
        super::errors::import_all(module.py())?;
        super::imports::load_types(module.py())
    }
}
