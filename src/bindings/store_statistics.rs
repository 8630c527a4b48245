//! `Store`: what it tells of its messages, its files, and the consumers of a broker.

use pyo3::marker::Ungil;
use pyo3::prelude::*;

use super::arguments;
use super::handle::Freshness;
use super::record_batch::RecordBatch;
use super::store::Store;
use super::usage::{Usage, usage_by};
use super::warnings::warn;
use crate::arrow;
use crate::config::Errors;
use crate::error::Result;
use crate::log::BrokerSettings;
use crate::read::{MessageReader, UsageBy};
use crate::storage::RealEnv;

#[pymethods]
impl Store {
    /// How many messages the log holds and how many bytes they take, in one pass over it. `by`
    /// names what they are counted by, one or some of `topic` (utf8), `queue_id` (int32), `tags`
    /// (utf8, null without tags), `hour` (timestamp[us, UTC]: the hour of the store time) and
    /// `segment` (int64: the physical offset at which a segment of the log starts). A row a group,
    /// ascending: these columns, then `messages` (int64), `bytes` (int64, of their records),
    /// `first_store_time` and `last_store_time` (timestamp[us, UTC]). `by=()` counts all in one
    /// row.
    ///
    /// Every message of the log counts, also one that is in no queue: a half message, one whose
    /// topic was deleted. A batch that is stored whole counts as one. Bodies are not checked.
    /// Memory is taken for each group, not for each message. `errors`, "raise" or "skip", says what
    /// to do at damage; by default as in `open`. With "skip" the pass goes on at the next whole
    /// message, and `unread` of the answer says where nothing could be counted. Messages that
    /// recovery="salvage" has found lost are in `unread`, too. Raises `ValueError` for a name in
    /// `by` that is none of these or comes twice, `CorruptError` as `errors` says.
    #[pyo3(signature = (by=vec![UsageBy::Topic], *, errors=None), text_signature = "(self, by='topic', *, errors=None)")]
    fn usage<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = usage_by)] by: Vec<UsageBy>,
        #[pyo3(from_py_with = arguments::errors)] errors: Option<Errors>,
    ) -> PyResult<Bound<'py, Usage>> {
        let reader = self.handle.reader(py, Freshness::Log)?;
        let errors = errors.unwrap_or(self.handle.errors());
        let usage = self.handle.detach(py, || reader.usage(&by, errors))?;
        Usage::of(py, &usage, &by)
    }

    /// The segments of the log that are there, a row each, ascending: `segment` (int64: the
    /// physical offset at which it starts, its name), `bytes` (int64: those that belong to the
    /// log), `sealed` (bool: whether the log goes on in a later one), `first_store_time`
    /// (timestamp[us, UTC]: of its first message). Cheap: reads the first bytes of each segment.
    /// What lies in it says `usage("segment")`.
    fn segments(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        let reader = self.handle.reader(py, Freshness::Log)?;
        let segments = self.handle.detach(py, || arrow::segments(&reader.segments()?))?;
        Ok(RecordBatch(segments))
    }

    /// The index files, a row each, oldest first, to tell why queries by key are slow or walk the
    /// log. Reads them whole.
    ///
    /// Columns: `name` (utf8); `slots` and `max_items` (int64: how many keys it has room for), null
    /// if its bytes do not tell; `items` (int64: keys); `used_slots` (int64); `load` (float64:
    /// items a slot); `longest_chain` (int64) and `mean_chain` (float64): items in a used slot,
    /// which a query for a key of it reads; `first_physical_offset` and `last_physical_offset`
    /// (int64), `first_store_time` and `last_store_time` (timestamp[us, UTC]) of the messages that
    /// it indexes, null if it has no item; `whole` (bool): every item can be reached from its slot;
    /// `used` (bool): queries use it, and do not walk the log for its messages. `whole` is null
    /// where `slots` is; `used_slots` and the chains are null for a file that is not whole.
    fn index_files(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        let reader = self.handle.reader(py, Freshness::Walk)?;
        let files = self.handle.detach(py, || arrow::index_files(&reader.index_files()?))?;
        Ok(RecordBatch(files))
    }

    /// Returns the parts of the store that its broker keeps in files of another format, which are
    /// not read; mostly RocksDB databases. Cheap: lists some directories.
    ///
    /// Columns: `part` (utf8): `queues`, `keys`, `transactions`, `timers`, `compacted_topics`,
    /// `consumer_offsets` or `topic_configs`; `path` (utf8): the directory of these files; `topic`
    /// (utf8), null unless the part is of one topic; `message` (utf8): what is there, and what is
    /// read in its place.
    fn kept_elsewhere(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        let reader = self.handle.current_reader(py)?;
        let parts = self.handle.detach(py, || arrow::kept_elsewhere(&reader.kept_elsewhere()?))?;
        Ok(RecordBatch(parts))
    }

    /// What stands at a physical offset, byte by byte, whole or damaged: a row a field of the
    /// record or BLANK there. For looking at bytes; to read a message see `message_at`.
    ///
    /// Columns: `file` (utf8), `offset` (int64: the field's first byte in the file), `length`
    /// (int64: its bytes), `bytes` (binary: the first 256 of them at most), `field` (utf8: its
    /// name), `value` (utf8: what it says), `wrong` (utf8: what is wrong with it, null if nothing
    /// is). Raises `NotFoundError` where no segment is, `OSError` for a file that cannot be read.
    fn dump(&self, py: Python<'_>, physical_offset: i64) -> PyResult<RecordBatch> {
        let reader = self.handle.reader(py, Freshness::Log)?;
        let rows = self.handle.detach(py, || arrow::dump(&reader.dump(physical_offset)?))?;
        Ok(RecordBatch(rows))
    }

    /// The entry of a queue at a queue offset, in rows as those of `dump`, and after it the record
    /// that it leads to. Raises `NotFoundError` if no file of the queue has this place,
    /// `UnsupportedFormatError` as `get`, `OSError`.
    fn dump_entry(&self, py: Python<'_>, topic: &str, queue_id: i32, queue_offset: i64) -> PyResult<RecordBatch> {
        let reader = self.handle.reader(py, Freshness::Log)?;
        let rows = self
            .handle
            .detach(py, || arrow::dump(&reader.dump_entry(topic, queue_id, queue_offset)?))?;
        Ok(RecordBatch(rows))
    }

    /// Where the index has a key of a topic, in rows as those of `dump`: for each index file its
    /// slot and the items of the chain there, the newest first, at most `limit` of them, also those
    /// of other keys. The row `item N record` names the message that an item leads to. Raises
    /// `NotFoundError` if there is no index file, `OSError`.
    #[pyo3(signature = (topic, key, *, limit=64))]
    fn dump_key(&self, py: Python<'_>, topic: &str, key: &str, limit: usize) -> PyResult<RecordBatch> {
        let reader = self.handle.reader(py, Freshness::Walk)?;
        let rows = self.handle.detach(py, || arrow::dump(&reader.dump_key(topic, key, limit)?))?;
        Ok(RecordBatch(rows))
    }

    /// How far each group of consumers has come, as the broker of the store has written it to
    /// `config/consumerOffset.json` (every 5 s) and, with light queues, to
    /// `config/lmqConsumerOffset.json`. A row a queue, ascending: `group` (utf8), `topic` (utf8),
    /// `queue_id` (int32), `offset` (int64: the queue offset of the message that the group gets
    /// next). Where names have an `@` in them, the topic is one of the store.
    ///
    /// Where a file is missing, empty or damaged, its `.bak` is read, as a broker does, and a
    /// `RuntimeWarning` says so; so does one where the broker may keep newer offsets in another
    /// file. Raises `NotFoundError` if there is no file, `CorruptError` if none can be used,
    /// `UnsupportedFormatError` if the broker keeps the offsets in RocksDB alone.
    fn consumer_offsets(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        self.settings(py, |reader| {
            arrowed(reader.consumer_offsets(&RealEnv::new())?, |offsets| {
                arrow::consumer_offsets(offsets)
            })
        })
    }

    /// What is left for each group of consumers. A row for each queue of each topic that the group
    /// has consumed from, ascending: `group`, `topic`, `queue_id` and `offset` as in
    /// `consumer_offsets`, `offset` null where the broker has none; `min_offset` and `max_offset`
    /// (int64) of the queue; `lag` (int64): messages of the queue that the group has not consumed,
    /// all of them without an offset. The last three are null where the queue is no file of this
    /// format (RocksDB, batch consume queue). With an `offset` below `min_offset` messages have
    /// expired unread; one above `max_offset` comes from another store, or messages were lost.
    ///
    /// Warns and raises as `consumer_offsets`.
    fn lag(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        self.settings(py, |reader| arrowed(reader.lag(&RealEnv::new())?, arrow::lags))
    }

    /// The topics that the broker of the store is told to keep (`config/topics.json`), with
    /// messages or without, a row each, ascending: `topic` (utf8), `read_queue_nums` and
    /// `write_queue_nums` (int32), `perm` (int32: 4 to read, 2 to write, 1 a model for new topics),
    /// `topic_filter_type` (utf8), `topic_sys_flag` (int32), `order` (bool), `attributes` (map of
    /// utf8 to utf8, since 5.x). Null is what the file does not say.
    ///
    /// Warns and raises as `consumer_offsets`.
    fn topic_configs(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        self.settings(py, |reader| {
            arrowed(reader.topic_configs(&RealEnv::new())?, arrow::topic_configs)
        })
    }

    /// How far the delivery of delayed messages has come (`config/delayOffset.json`, every 10 s), a
    /// row a level, ascending: `level` (int32), `offset` (int64: the queue offset of the message
    /// that is delivered next, in queue `level - 1` of `SCHEDULE_TOPIC_XXXX`).
    ///
    /// Warns and raises as `consumer_offsets`.
    fn delay_offsets(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        self.settings(py, |reader| {
            arrowed(reader.delay_offsets(&RealEnv::new())?, |offsets| {
                arrow::delay_offsets(offsets)
            })
        })
    }
}

/// A batch, and why it may be out of date.
type Doubted = (arrow_array::RecordBatch, Vec<String>);

impl Store {
    /// What a question about the broker's settings answers. Warns of what makes it doubtful.
    fn settings(
        &self,
        py: Python<'_>,
        ask: impl Send + Ungil + FnOnce(&MessageReader) -> Result<Doubted>,
    ) -> PyResult<RecordBatch> {
        let reader = self.handle.reader(py, Freshness::Queues)?;
        let (batch, doubts) = self.handle.detach(py, || ask(&reader))?;
        for doubt in doubts {
            warn(py, &doubt)?;
        }
        Ok(RecordBatch(batch))
    }
}

fn arrowed<T>(settings: BrokerSettings<Vec<T>>, batch: fn(&[T]) -> Result<arrow_array::RecordBatch>) -> Result<Doubted> {
    Ok((batch(&settings.content)?, settings.doubts))
}
