//! `Inspect`: the files of a store and their bytes.
#![expect(clippy::doc_markdown, reason = "docstrings in numpy's style")]

use std::sync::Arc;

use pyo3::prelude::*;

use super::handle::{Freshness, Handle};
use super::record_batch::RecordBatch;
use crate::arrow;
use crate::read;

/// The files of a store and their bytes: `Store.inspect` is one.
///
/// `segments`, `index_files` and `kept_elsewhere` list files. `dump`, `dump_entry` and `dump_key`
/// decode bytes field by field, whole or damaged.
#[pyclass(frozen, module = "mqstore")]
pub(super) struct Inspect(Arc<Handle>);

impl Inspect {
    pub(super) fn new(handle: Arc<Handle>) -> Self {
        Self(handle)
    }
}

#[pymethods]
impl Inspect {
    /// Returns the segments of the log, a row each, ascending: `segment` (int64: the physical
    /// offset at which it starts, its name), `bytes` (int64: those that belong to the log),
    /// `sealed` (bool: true if the log continues in a later one), `first_store_time` (timestamp[us,
    /// UTC]: of its first message). Cheap: reads the first bytes of each segment.
    /// `usage("segment")` counts its messages.
    fn segments(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        let reader = self.0.reader(py, Freshness::Log)?;
        let segments = self.0.detach(py, || arrow::segments(&reader.segments()?))?;
        Ok(RecordBatch(segments))
    }

    /// Returns the index files, a row each, oldest first: they show why queries by key are slow or
    /// walk the log. Reads them whole.
    ///
    /// Columns: `name` (utf8); `slots` and `max_items` (int64: the keys that it has room for), null
    /// if its bytes do not show it; `items` (int64: keys); `used_slots` (int64); `load` (float64:
    /// items a slot); `longest_chain` (int64) and `mean_chain` (float64): items in a used slot,
    /// which a query for a key of it reads; `first_physical_offset` and `last_physical_offset`
    /// (int64), `first_store_time` and `last_store_time` (timestamp[us, UTC]) of the messages that
    /// it indexes, null if it has no item; `whole` (bool): every item can be reached from its slot;
    /// `used` (bool): queries use it, and do not walk the log for its messages. `whole` is null
    /// where `slots` is; `used_slots` and the chains are null for a file that is not whole.
    fn index_files(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        let reader = self.0.reader(py, Freshness::Walk)?;
        let files = self.0.detach(py, || arrow::index_files(&reader.index_files()?))?;
        Ok(RecordBatch(files))
    }

    /// Returns the parts of the store that its broker keeps in files of another format, which are
    /// not read; mostly RocksDB databases. Cheap: lists some directories.
    ///
    /// Columns: `part` (utf8): `queues`, `keys`, `transactions`, `timers`, `compacted_topics`,
    /// `consumer_offsets`, `topic_configs` or `group_configs`; `path` (utf8): the directory of these
    /// files; `topic` (utf8), null unless the part is of one topic; `message` (utf8): what is there,
    /// and what is read in its place.
    fn kept_elsewhere(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        let reader = self.0.current_reader(py)?;
        let parts = self.0.detach(py, || arrow::kept_elsewhere(&reader.kept_elsewhere()?))?;
        Ok(RecordBatch(parts))
    }

    /// Decodes the bytes at a physical offset, whole or damaged: a row for each field of the record
    /// or BLANK there. `message_at` reads a message.
    ///
    /// Columns: `file` (utf8), `offset` (int64: the field's first byte in the file), `length`
    /// (int64: its bytes), `bytes` (binary: the first 256 of them at most), `field` (utf8: its
    /// name), `value` (utf8: what it says), `wrong` (utf8: what is wrong with it, null if nothing
    /// is). Raises `NotFoundError` where no segment is, `OSError` for a file that cannot be read.
    fn dump(&self, py: Python<'_>, physical_offset: i64) -> PyResult<RecordBatch> {
        let reader = self.0.reader(py, Freshness::Log)?;
        let rows = self.0.detach(py, || arrow::dump(&read::dump(&reader, physical_offset)?))?;
        Ok(RecordBatch(rows))
    }

    /// Decodes the entry of a queue at a queue offset, and after it the record that it leads to.
    ///
    /// Parameters
    /// ----------
    /// topic : str
    ///     The topic.
    /// queue_id : int
    ///     The id of the queue.
    /// queue_offset : int
    ///     The queue offset of the entry.
    ///
    /// Returns
    /// -------
    /// RecordBatch
    ///     Rows as those of `dump`.
    ///
    /// Raises
    /// ------
    /// NotFoundError
    ///     No file of the queue has this queue offset.
    /// UnsupportedFormatError
    ///     As `get`.
    /// OSError
    ///     A file cannot be read.
    fn dump_entry(&self, py: Python<'_>, topic: &str, queue_id: i32, queue_offset: i64) -> PyResult<RecordBatch> {
        let reader = self.0.reader(py, Freshness::Log)?;
        let rows = self
            .0
            .detach(py, || arrow::dump(&read::dump_entry(&reader, topic, queue_id, queue_offset)?))?;
        Ok(RecordBatch(rows))
    }

    /// Decodes what the index has of a key: for each index file its slot, and the items of the
    /// chain there.
    ///
    /// Parameters
    /// ----------
    /// topic : str
    ///     The topic.
    /// key : str
    ///     The key.
    /// limit : int, default 64
    ///     The most items of a file, the newest first; items of other keys count, too.
    ///
    /// Returns
    /// -------
    /// RecordBatch
    ///     Rows as those of `dump`. The row `item N record` names the message that an item leads to.
    ///
    /// Raises
    /// ------
    /// NotFoundError
    ///     There is no index file.
    /// OSError
    ///     A file cannot be read.
    #[pyo3(signature = (topic, key, *, limit=64))]
    fn dump_key(&self, py: Python<'_>, topic: &str, key: &str, limit: usize) -> PyResult<RecordBatch> {
        let reader = self.0.reader(py, Freshness::Walk)?;
        let rows = self
            .0
            .detach(py, || arrow::dump(&read::dump_key(&reader, topic, key, limit)?))?;
        Ok(RecordBatch(rows))
    }

    fn __repr__(&self) -> String {
        format!("<mqstore.Inspect of \"{}\">", self.0.path().display())
    }
}
