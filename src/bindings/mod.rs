//! The Python face. Every call converts its arguments, lets go of the interpreter, asks the core, and converts the answer; what a
//! store means is decided in the rooms below.

/// A thread inside Python code under a call of ours when the interpreter ends.
mod interpreter_exit;
/// Subinterpreters are refused.
mod first_interpreter;
/// Arguments of a call, each refused by its name.
mod arguments;
/// The bytes under the nulls of text that came in.
mod null_slots;
/// Tables that come in through Arrow's C structs, checked before they are used.
mod arrow_input;
/// Arrow batches and streams across the language border, as `PyCapsule`s.
mod capsule;
/// What is read as a buffer, without a copy: a message's body; `Offsets`.
mod buffer;
/// The crate's errors as the exceptions of `mqstore.errors`.
mod errors;
/// Modules that are imported when a call needs them.
mod imports;
/// Times: ms since 1970 here, timezone-aware `datetime` there.
mod time;
/// What a store is opened for.
mod mode;
/// Warnings, at the line of the caller.
mod warnings;
/// The error of a close that nobody has called.
mod failed_close;
/// What opens a reader again, for pickle and copy.
mod recipe;
/// `AppendResult`.
mod append_result;
/// Futures of what was appended, and the thread of a store that completes them.
mod nowait;
/// An open store as Python holds it: closes once, reopens itself after a fork.
mod handle;
/// The fields of a message as Python gives them.
mod fields;
/// The record that a `Message` shows: in the store, or a copy of its own.
mod held;
/// `Message`.
mod message;
/// What iterating a queue or a slice of it gives.
mod message_iterator;
/// Where the messages of batches come from.
mod source;
/// The rows of a `RecordBatch` as named tuples and dicts.
mod row_iterator;
/// `RecordBatch`.
mod record_batch;
/// Whose turn it is to read a pass that several threads share.
mod turn;
/// One pass over messages, batch by batch.
mod pass;
/// `Batches`: a source of record batches that can be read again.
mod batches;
/// What turns into a table: the methods that a queue, a slice of one, a topic and a result share.
mod tabular;
/// `Queue`, `QueueSlice`.
mod queue;
/// `Topics`, `Topic`, `Queues`.
mod topic;
/// `GetResult`, `QueryResult`.
mod results;
/// Reports and counters as the dataclasses of `mqstore._reports`.
mod reports;
/// Warnings of slow appends.
mod slow_puts;
/// The rows of `append_batch`.
mod rows;
/// Appending and waiting, with the interpreter or without.
mod append;
/// `Store`: its life, and what it reads.
#[expect(
    clippy::too_many_arguments,
    clippy::needless_pass_by_value,
    reason = "the arguments of a Python call, extracted"
)]
mod store;
/// `Store.scan`.
#[expect(
    clippy::too_many_arguments,
    clippy::needless_pass_by_value,
    reason = "the arguments of a Python call, extracted"
)]
mod scan;
/// `Usage`.
mod usage;
/// `Store`: what it tells of its messages, its files, and the consumers of a broker.
#[expect(clippy::needless_pass_by_value, reason = "the arguments of a Python call, extracted")]
mod store_statistics;
/// `Store.verify`.
mod verify;
/// `Store.refresh`, `Store.follow`, `Queue.tail`.
mod follow;
/// `Store`: what it writes.
#[expect(clippy::too_many_arguments, reason = "the arguments of a Python call")]
mod store_writing;
/// `async for`.
mod aiter;
/// The clock of `mqstore.testing`.
mod clock;
/// `Store`: copies, files that it writes and reads.
#[expect(clippy::needless_pass_by_value, reason = "the arguments of a Python call, extracted")]
mod files;
/// What pickle calls to make again what came from a store.
mod pickle;
/// What Spark asks a store: whether it is the one that was planned with, and how far a stream may read.
mod landmarks;
/// `new_unique_key`.
mod unique_key;
/// `open`: the mode and the options.
mod open;
/// `repair`, `rebuild`.
mod repair;
/// What notebooks show.
mod html;

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
    use super::clock::stop_clock;
    #[pymodule_export]
    use super::files::{expect_path_outside, json_lines, named_json_lines, no_messages};
    #[pymodule_export]
    use super::landmarks::{checksums, flushed_mark, landmarks};
    #[pymodule_export]
    use super::message::{Message, unpickle_message};
    #[pymodule_export]
    use super::message_iterator::MessageIterator;
    #[pymodule_export]
    use super::nowait::Flushed;
    #[pymodule_export]
    use super::open::{open, open_after, reopen};
    #[pymodule_export]
    use super::pickle::{part, topics};
    #[pymodule_export]
    use super::queue::{Queue, QueueSlice};
    #[pymodule_export]
    use super::recipe::Recipe;
    #[pymodule_export]
    use super::record_batch::RecordBatch;
    #[pymodule_export]
    use super::repair::{rebuild, repair};
    #[pymodule_export]
    use super::results::{GetResult, QueryResult, unpickle_get_result, unpickle_query_result};
    #[pymodule_export]
    use super::store::Store;
    #[pymodule_export]
    use super::tabular::Tabular;
    #[pymodule_export]
    use super::topic::{Queues, Topic, Topics};
    #[pymodule_export]
    use super::unique_key::new_unique_key;
    #[pymodule_export]
    use super::usage::Usage;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::first_interpreter::expect_first(module.py())?;
        super::errors::import_all(module.py())?;
        super::imports::load_types(module.py())
    }
}
