use super::bytes::{i64_at, put_i64};

// 0 physic time | 8 logics time | 16 index time | 24 master flushed offset (5.0) | 32 confirm offset (5.1.1)
// 40 logics physical offset (5.5.0) | ours: 48 keys dispatched | 56 index items | 64 physic time of ours
// 72 queue entries | 80 log start | zeros to 4096; all i64

const PHYSIC_MSG_TIMESTAMP_AT: usize = 0;
const LOGICS_MSG_TIMESTAMP_AT: usize = PHYSIC_MSG_TIMESTAMP_AT + 8;
const INDEX_MSG_TIMESTAMP_AT: usize = LOGICS_MSG_TIMESTAMP_AT + 8;
const MASTER_FLUSHED_OFFSET_AT: usize = INDEX_MSG_TIMESTAMP_AT + 8;
const CONFIRM_PHY_OFFSET_AT: usize = MASTER_FLUSHED_OFFSET_AT + 8;
const LOGICS_PHYSICAL_OFFSET_AT: usize = CONFIRM_PHY_OFFSET_AT + 8;
const KEYS_DISPATCHED_AT: usize = LOGICS_PHYSICAL_OFFSET_AT + 8;
const INDEX_ITEMS_AT: usize = KEYS_DISPATCHED_AT + 8;
const KEYS_STAMP_AT: usize = INDEX_ITEMS_AT + 8;
const QUEUE_ENTRIES_AT: usize = KEYS_STAMP_AT + 8;
const LOG_START_AT: usize = QUEUE_ENTRIES_AT + 8;
const _: () = assert!(LOGICS_PHYSICAL_OFFSET_AT == 40 && LOG_START_AT == 80);
/// Bytes of the fields.
pub const CHECKPOINT_FIELDS_SIZE: usize = LOG_START_AT + 8;
/// Bytes of the checkpoint file.
pub const CHECKPOINT_SIZE: usize = 4096;

/// The safety margin between a broker's stamps and its recovery, whose clocks may differ.
const MARGIN_MS: i64 = 3000;

/// The stamps that say what a broker knew to be on disk (docs/FORMAT.md, section Checkpoint).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Store time up to which the commit log is flushed, in ms.
    pub physic_msg_timestamp: i64,
    /// Store time of the last consume-queue entry, in ms.
    pub logics_msg_timestamp: i64,
    /// End time of the last full and flushed index file, in ms; 0 before the first roll.
    pub index_msg_timestamp: i64,
    /// Flushed offset of the master, on a slave (5.0 and later).
    pub master_flushed_offset: i64,
    /// Offset up to which the replicas agree (5.1.1 and later).
    pub confirm_phy_offset: i64,
    /// Start of the last record whose queue entry is flushed; 0 if unknown (5.5.0 and later).
    pub logics_physical_offset: i64,
    /// Offset below which every key is in the index. Ours: brokers leave the field unchanged, so it counts only while `keys_stamp`
    /// equals the stamps and the index has `index_items` items. See [`Checkpoint::keys_dispatched`].
    pub keys_dispatched: i64,
    /// Items in all index files. Ours.
    pub index_items: i64,
    /// `physic_msg_timestamp` when our fields were written. Ours.
    pub keys_stamp: i64,
    /// Entries in all queue files of messages up to `logics_physical_offset`. Ours. See [`Checkpoint::queue_entries`].
    pub queue_entries: i64,
    /// Start of the log when our fields were written. Ours.
    pub log_start: i64,
}

impl Checkpoint {
    /// Decodes the file. A missing or short file reads as zeros, which cover nothing.
    pub fn decode(bytes: &[u8]) -> Self {
        Self {
            physic_msg_timestamp: i64_at(bytes, PHYSIC_MSG_TIMESTAMP_AT),
            logics_msg_timestamp: i64_at(bytes, LOGICS_MSG_TIMESTAMP_AT),
            index_msg_timestamp: i64_at(bytes, INDEX_MSG_TIMESTAMP_AT),
            master_flushed_offset: i64_at(bytes, MASTER_FLUSHED_OFFSET_AT),
            confirm_phy_offset: i64_at(bytes, CONFIRM_PHY_OFFSET_AT),
            logics_physical_offset: i64_at(bytes, LOGICS_PHYSICAL_OFFSET_AT),
            keys_dispatched: i64_at(bytes, KEYS_DISPATCHED_AT),
            index_items: i64_at(bytes, INDEX_ITEMS_AT),
            keys_stamp: i64_at(bytes, KEYS_STAMP_AT),
            queue_entries: i64_at(bytes, QUEUE_ENTRIES_AT),
            log_start: i64_at(bytes, LOG_START_AT),
        }
    }

    /// Encodes the whole file.
    pub fn encode(&self) -> [u8; CHECKPOINT_SIZE] {
        let mut out = [0; CHECKPOINT_SIZE];
        put_i64(&mut out, PHYSIC_MSG_TIMESTAMP_AT, self.physic_msg_timestamp);
        put_i64(&mut out, LOGICS_MSG_TIMESTAMP_AT, self.logics_msg_timestamp);
        put_i64(&mut out, INDEX_MSG_TIMESTAMP_AT, self.index_msg_timestamp);
        put_i64(&mut out, MASTER_FLUSHED_OFFSET_AT, self.master_flushed_offset);
        put_i64(&mut out, CONFIRM_PHY_OFFSET_AT, self.confirm_phy_offset);
        put_i64(&mut out, LOGICS_PHYSICAL_OFFSET_AT, self.logics_physical_offset);
        put_i64(&mut out, KEYS_DISPATCHED_AT, self.keys_dispatched);
        put_i64(&mut out, INDEX_ITEMS_AT, self.index_items);
        put_i64(&mut out, KEYS_STAMP_AT, self.keys_stamp);
        put_i64(&mut out, QUEUE_ENTRIES_AT, self.queue_entries);
        put_i64(&mut out, LOG_START_AT, self.log_start);
        out
    }

    /// Returns the offset below which every key is in an index of `index_items` items; `None` if it is unknown, because a broker
    /// has written since, or the index has changed.
    pub fn keys_dispatched(&self, index_items: i64) -> Option<i64> {
        (self.is_ours() && self.index_items == index_items).then_some(self.keys_dispatched)
    }

    /// Returns the number of entries of messages up to `logics_physical_offset` in the queue files of a log that starts at
    /// `log_start`; `None` if it is unknown, because a broker has written since, or expired segments were removed.
    pub fn queue_entries(&self, log_start: i64) -> Option<i64> {
        (self.is_ours() && self.log_start == log_start).then_some(self.queue_entries)
    }

    /// Returns true if the stamps are ours, and therefore exact: no broker has written since.
    pub fn is_ours(&self) -> bool {
        let stamps = [self.physic_msg_timestamp, self.logics_msg_timestamp];
        self.keys_stamp > 0 && stamps == [self.keys_stamp; 2]
    }

    /// Returns the store time up to which messages are on disk and in their queues. A broker with a transient store pool also
    /// stamps messages that are not in a file yet, and stamps its log and its queues at different times. Its own recovery therefore
    /// leaves the same margin.
    pub fn covered_until(&self) -> i64 {
        if self.is_ours() {
            self.physic_msg_timestamp
        } else {
            self.min_timestamp()
        }
    }

    /// Returns the stamps with those after `now` set to 0: a stamp of a wrong clock covers nothing.
    #[must_use]
    pub fn ignoring_future(mut self, now: i64) -> Self {
        for stamp in [
            &mut self.physic_msg_timestamp,
            &mut self.logics_msg_timestamp,
            &mut self.index_msg_timestamp,
        ] {
            if *stamp > now {
                *stamp = 0;
            }
        }
        self
    }

    /// Returns the stamps of a log that was salvaged and ends with a message of this store time. Other messages may now have the
    /// old offsets, so our stamp is not exact any more.
    #[must_use]
    pub fn of_another_history(self, last_store_time: i64) -> Self {
        Self {
            physic_msg_timestamp: self.physic_msg_timestamp.min(last_store_time),
            logics_msg_timestamp: self.logics_msg_timestamp.min(last_store_time),
            keys_stamp: 0,
            ..self
        }
    }

    /// Returns the stamps of a log that is cut before messages which they may cover: they cover nothing.
    #[must_use]
    pub fn of_a_cut_log(self) -> Self {
        Self {
            physic_msg_timestamp: 0,
            logics_msg_timestamp: 0,
            index_msg_timestamp: 0,
            logics_physical_offset: 0,
            keys_stamp: 0,
            ..self
        }
    }

    /// Returns true if the stamps cover a message that is on disk then, by its store time. Ours are exact, and a slave may have received
    /// several messages of one store time: of these they cover those up to the stamped one.
    pub fn covers(&self, physical_offset: i64, store_time: i64) -> bool {
        store_time <= self.covered_until() && (!self.is_ours() || physical_offset <= self.logics_physical_offset)
    }

    /// Returns the stamps of a store whose index files are all removed.
    #[must_use]
    pub fn without_index(self) -> Self {
        Self {
            index_msg_timestamp: 0,
            ..self
        }
    }

    /// Returns the latest store time, in ms, of a record at which recovery may start.
    pub fn min_timestamp(&self) -> i64 {
        let flushed = self.physic_msg_timestamp.min(self.logics_msg_timestamp);
        flushed.saturating_sub(MARGIN_MS).max(0)
    }
}
