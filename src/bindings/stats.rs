//! `StoreStats`, `TopicStats`.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::log::PutStats;
use crate::store;

/// What was appended to one topic since the store was opened for writing. Two that tell the same
/// are equal.
#[pyclass(frozen, eq, hash, module = "mqstore")]
#[derive(PartialEq, Eq, Hash)]
pub(super) struct TopicStats(PutStats);

#[pymethods]
impl TopicStats {
    /// Messages that were appended.
    #[getter]
    fn put_message_times_total(&self) -> u64 {
        self.0.times
    }

    /// Bytes of their records.
    #[getter]
    fn put_message_size_total(&self) -> u64 {
        self.0.size
    }

    /// The same as a dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        put_dict(py, self.0)
    }

    fn __repr__(&self) -> String {
        format!("<mqstore.TopicStats {} puts, {} bytes>", self.0.times, self.0.size)
    }
}

/// What has happened to a store since it was opened for writing, at the time of the call;
/// `Store.stats` gives it. Names are those of RocketMQ's `StoreStatsService` where it counts the
/// same. Two that tell the same are equal.
#[pyclass(frozen, eq, hash, module = "mqstore")]
#[derive(PartialEq, Eq, Hash)]
pub(super) struct StoreStats(pub(super) store::StoreStats);

#[pymethods]
impl StoreStats {
    /// Messages that were appended.
    #[getter]
    fn put_message_times_total(&self) -> u64 {
        self.0.log.total().times
    }

    /// Bytes of their records in the log.
    #[getter]
    fn put_message_size_total(&self) -> u64 {
        self.0.log.total().size
    }

    /// What was appended to each topic. A delayed message counts in the topic that it waits in:
    /// `SCHEDULE_TOPIC_XXXX`.
    #[getter]
    fn topics(&self) -> BTreeMap<&str, TopicStats> {
        let topics = self.0.log.topics.iter();
        topics.map(|(name, puts)| (name.as_str(), TopicStats(*puts))).collect()
    }

    /// The longest time for which an append has held the lock of the log, in ms. The clock ticks
    /// every few ms.
    #[getter]
    fn in_lock_time_max_ms(&self) -> u64 {
        u64::try_from(self.0.log.in_lock_time_max.as_millis()).unwrap_or(u64::MAX)
    }

    /// Appends that held the lock of the log for more than 500 ms. The logger "mqstore" warns of
    /// each.
    #[getter]
    fn slow_puts(&self) -> u64 {
        self.0.log.slow_puts
    }

    /// Syncs of the log.
    #[getter]
    fn syncs(&self) -> u64 {
        self.0.log.syncs
    }

    /// Syncs that an append made which waited for durability, for itself and for all others that
    /// waited.
    #[getter]
    fn group_commits(&self) -> u64 {
        self.0.log.group_commits
    }

    /// Appends that waited until they were durable; an `append_batch` is one. Divided by
    /// `group_commits`: how many shared a sync.
    #[getter]
    fn group_commit_requests(&self) -> u64 {
        self.0.log.group_commit_requests
    }

    /// Segments of the log that were made and begun.
    #[getter]
    fn segments_begun(&self) -> u64 {
        self.0.log.segments.begun
    }

    /// Segments of `segments_begun` that were ready before an append needed them.
    #[getter]
    fn segments_made_ahead(&self) -> u64 {
        self.0.log.segments.made_ahead
    }

    /// Segments of `segments_begun` whose pages are locked in memory (`warm_mapped_file_enable`)
    /// until they are full and synced. Where `RLIMIT_MEMLOCK` is too small there are fewer.
    #[getter]
    fn segments_locked(&self) -> u64 {
        self.0.log.segments.locked
    }

    /// Appends that had to wait for a segment. The first append to a new store is one.
    #[getter]
    fn segment_waits(&self) -> u64 {
        self.0.log.segments.waits
    }

    /// Buffers of the transient store pool that hold nothing; None without a pool. A store with
    /// `SYNC_FLUSH` always has one.
    #[getter]
    fn available_buffer_nums(&self) -> Option<u64> {
        self.0.log.pool.map(|pool| pool.available)
    }

    /// Whether less than 0.4 of the buffers of the transient store pool hold nothing: the disk is
    /// slower than the appends. None without a pool.
    #[getter]
    fn is_transient_store_pool_low(&self) -> Option<bool> {
        self.0.log.pool.map(|pool| pool.is_low())
    }

    /// Whether the transient store pool is locked in memory, as `transient_store_pool_enable` asks;
    /// None without a pool.
    #[getter]
    fn is_transient_store_pool_locked(&self) -> Option<bool> {
        self.0.log.pool.map(|pool| pool.is_locked)
    }

    /// Appends that had to wait for a buffer of the transient store pool; None without a pool.
    #[getter]
    fn buffer_waits(&self) -> Option<u64> {
        self.0.log.pool.map(|pool| pool.waits)
    }

    /// Bytes at the end of the log that are not in their queues and in the index yet.
    #[getter]
    fn dispatch_behind_bytes(&self) -> u64 {
        self.0.dispatch_behind_bytes
    }

    /// Pages of mapped files, of any store of this process, that could not be read or written since
    /// the open: a file was cut short, or the device failed. What was read of them raises
    /// `CorruptError`. With `sigbus_guard=False` such a page ends the process.
    #[getter]
    fn mapping_faults(&self) -> u64 {
        self.0.mapping_faults
    }

    /// The same as a dict of numbers, with a dict for each topic in `topics`. What is about the
    /// transient store pool is there if the store has one.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = put_dict(py, self.0.log.total())?;
        let topics = PyDict::new(py);
        for (name, puts) in &self.0.log.topics {
            topics.set_item(name, put_dict(py, *puts)?)?;
        }
        dict.set_item("topics", topics)?;
        for (name, count) in self.counts() {
            dict.set_item(name, count)?;
        }
        if let Some(pool) = self.0.log.pool {
            dict.set_item("available_buffer_nums", pool.available)?;
            dict.set_item("is_transient_store_pool_low", pool.is_low())?;
            dict.set_item("is_transient_store_pool_locked", pool.is_locked)?;
            dict.set_item("buffer_waits", pool.waits)?;
        }
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        let (total, topics) = (self.0.log.total(), self.0.log.topics.len());
        let counts = self.counts().map(|(name, count)| format!("{name}={count}")).join(" ");
        format!(
            "<mqstore.StoreStats {} puts, {} bytes, {topics} topics; {counts}>",
            total.times, total.size
        )
    }
}

impl StoreStats {
    fn counts(&self) -> [(&'static str, u64); 11] {
        [
            ("in_lock_time_max_ms", self.in_lock_time_max_ms()),
            ("slow_puts", self.slow_puts()),
            ("syncs", self.syncs()),
            ("group_commits", self.group_commits()),
            ("group_commit_requests", self.group_commit_requests()),
            ("segments_begun", self.segments_begun()),
            ("segments_made_ahead", self.segments_made_ahead()),
            ("segments_locked", self.segments_locked()),
            ("segment_waits", self.segment_waits()),
            ("dispatch_behind_bytes", self.dispatch_behind_bytes()),
            ("mapping_faults", self.mapping_faults()),
        ]
    }
}

fn put_dict(py: Python<'_>, puts: PutStats) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("put_message_times_total", puts.times)?;
    dict.set_item("put_message_size_total", puts.size)?;
    Ok(dict)
}
