//! `BrokerState`: the settings and positions that the broker of a store keeps beside its messages.

use std::sync::Arc;

use pyo3::prelude::*;

use super::handle::{Freshness, Handle};
use super::record_batch::RecordBatch;
use super::warnings::warn;
use crate::arrow;
use crate::error::{Error, Result};
use crate::log::BrokerSettings;
use crate::read::MessageReader;

/// The settings and positions that the broker of a store keeps in `config/`: `Store.broker` is one.
#[pyclass(frozen, module = "mqstore")]
pub(super) struct BrokerState(Arc<Handle>);

impl BrokerState {
    pub(super) fn new(handle: Arc<Handle>) -> Self {
        Self(handle)
    }

    /// Answers a question about the broker's settings, and warns if the answer may be out of date.
    fn settings<T>(
        &self,
        py: Python<'_>,
        ask: fn(&MessageReader) -> Result<BrokerSettings<Vec<T>>>,
        batch: fn(&[T]) -> Result<arrow_array::RecordBatch>,
    ) -> PyResult<RecordBatch> {
        let reader = self.0.reader(py, Freshness::Queues)?;
        let (batch, doubts) = self.0.detach(py, || {
            let settings = ask(&reader)?;
            Ok::<_, Error>((batch(&settings.content)?, settings.doubts))
        })?;
        for doubt in doubts {
            warn(py, &doubt)?;
        }
        Ok(RecordBatch(batch))
    }
}

#[pymethods]
impl BrokerState {
    /// Returns the positions of the groups of consumers, as the broker of the store has written
    /// them to `config/consumerOffset.json` (every 5 s) and, with light queues, to
    /// `config/lmqConsumerOffset.json`. A row a queue, ascending: `group` (utf8), `topic` (utf8),
    /// `queue_id` (int32), `offset` (int64: the queue offset of the message that the group gets
    /// next). Where names have an `@` in them, the topic is one of the store.
    ///
    /// If a file is missing, empty or damaged, its `.bak` is read, as by a broker, with a
    /// `RuntimeWarning`. Another one warns if the broker may keep newer offsets in another file.
    /// Raises `NotFoundError` if there is no file, `CorruptError` if none can be used,
    /// `UnsupportedFormatError` if the broker keeps the offsets in RocksDB alone.
    fn consumer_offsets(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        self.settings(py, MessageReader::consumer_offsets, |offsets| {
            arrow::consumer_offsets(offsets)
        })
    }

    /// Returns the number of messages that each group of consumers has not consumed yet. A row for
    /// each queue of each topic that the group has consumed from, ascending: `group`, `topic`,
    /// `queue_id` and `offset` as in `consumer_offsets`, `offset` null where the broker has none;
    /// `min_offset` and `max_offset` (int64) of the queue; `lag` (int64): messages of the queue
    /// that the group has not consumed, all of them without an offset. The last three are null
    /// where the queue is no file of this format (RocksDB, batch consume queue). With an `offset`
    /// below `min_offset` messages have expired unread; one above `max_offset` comes from another
    /// store, or messages were lost.
    ///
    /// Warns and raises as `consumer_offsets`.
    fn lag(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        self.settings(py, MessageReader::lag, arrow::lags)
    }

    /// Returns the topics in the settings of the broker of the store (`config/topics.json`), with
    /// messages or without, a row each, ascending: `topic` (utf8), `read_queue_nums` and
    /// `write_queue_nums` (int32), `perm` (int32: 4 to read, 2 to write, 1 a model for new topics),
    /// `topic_filter_type` (utf8), `topic_sys_flag` (int32), `order` (bool), `attributes` (map of
    /// utf8 to utf8, since 5.x). A value that is absent in the file is null.
    ///
    /// Warns and raises as `consumer_offsets`.
    fn topic_configs(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        self.settings(py, MessageReader::topic_configs, arrow::topic_configs)
    }

    /// Returns the consumer groups in the settings of the broker of the store
    /// (`config/subscriptionGroup.json`), a row each, ascending: `group` (utf8), `consume_enable`,
    /// `consume_broadcast_enable` and `consume_message_orderly` (bool), `retry_queue_nums`,
    /// `retry_max_times` (retries after which a message is a dead letter) and
    /// `consume_timeout_minute` (int32). A value that is absent in the file is null.
    ///
    /// Warns and raises as `consumer_offsets`.
    fn groups(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        self.settings(py, MessageReader::subscription_groups, arrow::subscription_groups)
    }

    /// Returns the positions of the delivery of delayed messages (`config/delayOffset.json`, every
    /// 10 s), a row a level, ascending: `level` (int32), `offset` (int64: the queue offset of the
    /// message that is delivered next, in queue `level - 1` of `SCHEDULE_TOPIC_XXXX`). A writer
    /// that delivers them itself returns its own progress, which is newer than the file.
    ///
    /// Warns and raises as `consumer_offsets`.
    fn delay_offsets(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        if let Some(offsets) = self.0.own_delay_offsets()? {
            return Ok(RecordBatch(arrow::delay_offsets(&offsets)?));
        }
        self.settings(py, MessageReader::delay_offsets, arrow::delay_offsets)
    }

    fn __repr__(&self) -> String {
        format!("<mqstore.BrokerState of \"{}\">", self.0.path().display())
    }
}
