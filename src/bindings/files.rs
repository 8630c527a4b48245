//! `Store`: copies, files that it writes and reads. What concerns files of no store is done in Python.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::arguments;
use super::batches::Batches;
use super::capsule::import_table;
use super::imports::call;
use super::record_batch::RecordBatch;
use super::store::Store;
use crate::arrow::{self, BatchBuilder, BodyAs, MessageColumns, from_arrow};
use crate::config::StoreConfig;
use crate::storage::{Env, RealEnv};
use crate::store::{Copier, OpenMode, choose_sizes, expect_outside};

/// Messages by topic in the copy, bytes of their records, messages left out by topic, and how many got a later store time.
type Copied = (BTreeMap<String, u64>, u64, BTreeMap<String, u64>, u64);

#[pymethods]
impl Store {
    /// Writes messages to files: Parquet, Arrow IPC, JSON Lines or CSV. Returns an
    /// `mqstore.files.Exported` with the files and exact counts.
    ///
    /// `target` gets its name when all of it is written and synced: until then it is in a directory
    /// `.mqstore-*.part` beside it, which a killed process leaves there. `format` is "parquet",
    /// "arrow", "jsonl" or "csv"; by default as the name ends (.parquet, .arrow, .jsonl, .ndjson,
    /// .csv), and "parquet" for any other name. The first two need pyarrow (extra `arrow`). The
    /// other arguments are those of `scan`, which selects the messages; memory is taken for one
    /// batch of `batch_bytes` (32 MiB by default), a row group of Parquet.
    ///
    /// Bodies are written as they are stored. With `decode_body=True` they are decompressed (zlib,
    /// LZ4 or Zstandard), and the compression bits of `sys_flag` are cleared, so that consumers can
    /// read the messages that `import_from` appends. A body that does not decompress counts as
    /// damaged: it raises `CorruptError`, or is left out and counted with `errors="skip"`.
    ///
    /// `partition_by` is "topic", "hour" (of the store time, in UTC) or both. `target` is then a
    /// directory, of files `topic=orders/hour=2026-11-23T05/part-00000.parquet`, and the files lack
    /// the column `topic`: pyarrow, polars, duckdb and Spark read it from the names. It needs
    /// pyarrow for each format. Where it names "topic", `order` is "queue" by default.
    ///
    /// `rewrite` is called with each `RecordBatch`, also with an empty one if there is no other,
    /// and gives what is written instead: anything that speaks Arrow, always with the same columns.
    ///
    /// A line of JSON Lines is an object with a field a column: times are ISO 8601 in UTC
    /// ("2026-11-23T05:51:16.123Z"; a number of ms since 1970 outside the years 1 to 9999), `keys`
    /// an array, `properties` an object. `body_as` says what the body is: "base64", "text" (it must
    /// be UTF-8), or "json" (it must be JSON, and becomes a value of the object; its line ends
    /// become spaces).
    ///
    /// A CSV file follows RFC 4180, in UTF-8: a header with the names of the columns, then a row a
    /// message, each ended by CRLF. Its cells have the values of JSON Lines: times and numbers are
    /// written in the same way, `keys` and `properties` as JSON text, the body as `body_as` says,
    /// and null as an empty cell. `spreadsheet=True` puts a `'` before each cell that begins with
    /// `=`, `+`, `-`, `@`, a tab or a carriage return, because a spreadsheet may run such a cell as
    /// a formula; only CSV takes it.
    ///
    /// `import_from` reads these files, except CSV.
    ///
    /// Raises `FileExistsError` if `target` exists, `ValueError` and `TypeError` for an argument
    /// and for a body that is not what `body_as` says, `ImportError` without pyarrow, `OSError`
    /// where the system refuses, and what a `scan`, `rewrite` and `progress` raise. No `target` is
    /// there then.
    #[pyo3(
        signature = (target, **options),
        text_signature = "(self, target, *, format=None, columns=None, partition_by=(), rewrite=None, body_as='base64', decode_body=False, spreadsheet=False, **conditions)"
    )]
    fn export<'py>(
        slf: &Bound<'py, Self>,
        target: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        in_python(slf, "mqstore._export", "export", target, options)
    }

    /// Appends the messages of files that `export` wrote. Returns an `mqstore.files.Imported` with
    /// exact counts.
    ///
    /// `source` is a file, a directory with files below it (in the order of their names; a folder
    /// `topic=...` names the topic of its files), or several of these. `format` is as in `export`,
    /// but CSV is not read; so is `body_as`: with "json" a body is the value as it is written. Other
    /// tables with columns as `append_batch` takes them are read as well. `topic` is that of rows
    /// that name none. `progress` is called with the files that are done, and how many there are.
    ///
    /// Every field that a caller of `append` can set is as it was. Offsets, store time and offset
    /// id are given anew; `copy_to` keeps store times.
    ///
    /// Files are read and appended a batch at a time. Where that fails, `stored` of the exception
    /// says how many rows were stored. Raises `FileNotFoundError` for a file that is missing and
    /// for a directory without files of a format, `ValueError` for a line that is none and for
    /// columns of other names or types, `ImportError` without pyarrow, and what `append_batch` and
    /// `progress` raise.
    #[pyo3(
        signature = (source, **options),
        text_signature = "(self, source, *, format=None, topic=None, body_as='base64', progress=None)"
    )]
    fn import_from<'py>(
        slf: &Bound<'py, Self>,
        source: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.get().handle.expect_writable()?;
        in_python(slf, "mqstore._import", "import_from", source, options)
    }

    /// Copy messages into a new store at `path`, in the order of the log; gives an
    /// `mqstore.files.Copied` with exact counts. It drops topics and deleted messages, renames
    /// topics, makes the index anew, and changes the sizes of files.
    ///
    /// The arguments are those of `scan`, but for what would change messages or their order.
    /// `topics` selects topics, all by default; `rename` maps names of topics to new ones, to the
    /// same one to merge them. Bodies, properties (but for `__CRC32#`, which is made anew), queue
    /// ids, hosts, flags, born times, unique keys and keys are as they were, and with
    /// `keep_store_time` so are store times; a time that is before that of the message before it is
    /// raised to that (`Copied.raised`). Queue offsets begin at 0 in each queue, and physical
    /// offsets and offset ids are new. `prepared_transaction_offset` stays and names a place in the
    /// old log. Messages that wait for their delay are copied, too, and still name their topic by
    /// its old name. No settings of a broker are copied: a broker on the copy delivers from the
    /// first offset of each delay level and to each group.
    ///
    /// Only what consumers see is copied. A half, rolled-back or deleted message would stand in no
    /// queue of the copy or come back into one, so `transactions="all"` is no argument: `export`
    /// writes such messages. A broker's own topics of half messages and of their ends
    /// (`RMQ_SYS_TRANS_HALF_TOPIC`, `RMQ_SYS_TRANS_OP_HALF_TOPIC`) are left out
    /// (`Copied.left_out`), because one names offsets of the other, which are new: the broker would
    /// take open transactions for ended ones. End them before you copy.
    ///
    /// `geometry` is None for the sizes of this store, "broker", or a mapping of the sizes that
    /// `mqstore.open` takes by name, with those of a small store for the others. The copy is closed
    /// and synced before it is at `path`: until then it is in a directory `.mqstore-*.part` beside
    /// it, which a killed process leaves there.
    ///
    /// Raises `FileExistsError` if `path` exists, `TypeError` and `ValueError` for an argument and
    /// where `rename` gives a topic the name of another one that keeps it, `IllegalMessageError`
    /// for a message that no store takes (a batch that is stored whole, one that is larger than a
    /// segment of the copy, and one whose properties take 32,767 bytes without the separator at
    /// their end, which brokers before 5.2 leave out), `DiskFullError`, `OSError`, and what a
    /// `scan` and `progress` raise. No store is at `path` then.
    #[pyo3(
        signature = (path, **options),
        text_signature = "(self, path, *, rename=None, keep_store_time=True, geometry=None, **conditions)"
    )]
    fn copy_to<'py>(
        slf: &Bound<'py, Self>,
        path: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        in_python(slf, "mqstore._copy", "copy_to", path, options)
    }

    /// Appends the messages of batches of another store.
    fn _copy_from(
        &self,
        py: Python<'_>,
        batches: &Batches,
        rename: HashMap<String, String>,
        #[pyo3(from_py_with = arguments::keep_store_time)] keep_store_time: bool,
    ) -> PyResult<Copied> {
        let writer = self.handle.writer()?;
        let mut copier = Copier::new(writer.appender(Some(false)), rename, keep_store_time);
        batches.each(py, |view| copier.take(view))?;
        let copied = self.handle.detach(py, || copier.finish())?;
        Ok((copied.topics, copied.bytes, copied.left_out, copied.raised))
    }

    /// The options that make a store of the same sizes, delays and index.
    fn _options_of_copy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let reader = self.handle.current_reader(py)?;
        let (env, path): (Arc<dyn Env>, _) = (Arc::new(RealEnv::new()), self.handle.path());
        let mut config: StoreConfig = reader.config().clone();
        let sizes = self
            .handle
            .detach(py, || choose_sizes(&env, path, &mut config, false, OpenMode::Existing))?;
        let options = PyDict::new(py);
        options.set_item("mapped_file_size_commit_log", sizes.commit_log)?;
        options.set_item("mapped_file_size_consume_queue", sizes.consume_queue)?;
        options.set_item("max_hash_slot_num", sizes.index.slots)?;
        options.set_item("max_index_num", sizes.index.items)?;
        options.set_item("message_delay_level", &config.message_delay_level)?;
        options.set_item("index_tags", config.index_tags)?;
        Ok(options)
    }
}

/// Calls a function of a module of this package with the store, one argument and the others by name.
fn in_python<'py>(
    store: &Bound<'py, Store>,
    module: &str,
    function: &str,
    argument: &Bound<'py, PyAny>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    store.get().handle.expect_open()?;
    call(store.py(), module, function, (store, argument), options)
}

/// The names of the columns of a table, in order, and its rows as lines of JSON.
#[pyfunction(name = "_named_json_lines")]
pub(super) fn named_json_lines<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    body_as: &str,
) -> PyResult<(Vec<String>, Bound<'py, PyBytes>)> {
    let written_as = match body_as {
        "base64" => BodyAs::Base64,
        "text" => BodyAs::Text,
        "json" => BodyAs::Json,
        _ => {
            return Err(PyValueError::new_err(format!(
                "body_as is {body_as:?}: expected \"base64\", \"text\" or \"json\""
            )));
        }
    };
    let table = import_table(rows)?;
    let lines = py.detach(|| arrow::json_lines(&table, written_as))?;
    let names = table.names().map(str::to_owned).collect();
    Ok((names, PyBytes::new(py, &lines)))
}

/// The rows of a table as lines of JSON.
#[pyfunction(name = "_json_lines")]
pub(super) fn json_lines<'py>(py: Python<'py>, rows: &Bound<'py, PyAny>, body_as: &str) -> PyResult<Bound<'py, PyBytes>> {
    named_json_lines(py, rows, body_as).map(|(_, lines)| lines)
}

/// Raises `ValueError` if this path lies in a store.
#[pyfunction(name = "_expect_outside")]
pub(super) fn expect_path_outside(path: PathBuf) -> PyResult<()> {
    Ok(expect_outside(&RealEnv::new(), &path)?)
}

/// A batch of no message with these columns, every one by default: what schemas come from.
#[pyfunction(name = "_no_messages", signature = (columns=None))]
pub(super) fn no_messages(#[pyo3(from_py_with = arguments::columns)] columns: Option<Vec<String>>) -> PyResult<RecordBatch> {
    let empty = BatchBuilder::new(&MessageColumns::select(columns.as_deref())?).finish();
    Ok(RecordBatch(empty.map_err(from_arrow)?))
}
