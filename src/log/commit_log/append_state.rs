//! The state under the append lock: the end of the log, and the offsets and times of the next message.

use std::collections::{BTreeMap, HashMap};
use std::slice;
use std::sync::Arc;
use std::time::Instant;

use foldhash::fast::RandomState;

use crate::error::Error;
use crate::format::{BLANK_SIZE, EncodedMessage, encode_blank, fits};
use crate::log::commit_log::stats::{PutStats, SegmentStats};
use crate::storage::AppendFile;

/// The next offset of every queue, by topic and queue id.
pub type QueueOffsets = HashMap<String, BTreeMap<i32, i64>>;

/// The recovered end of a log, from which on it is appended to.
#[derive(Debug)]
pub(crate) struct LogEnd {
    /// The offset of the end.
    pub at: i64,
    /// The offset from which on every byte is zero.
    pub written_until: i64,
    /// After a crash: the offset from which on the bytes of the log may be in memory only.
    pub rewrite_from: Option<i64>,
    /// True if the segment of the end is replaced by a copy of its part before the end: readers have it mapped.
    pub is_replaced: bool,
    /// Store time of the last message; 0 without messages.
    pub last_store_time: i64,
    /// The store time up to which the checkpoint covers messages. Every new message gets a later one.
    pub covered_time: i64,
    /// The next queue offset of each queue.
    pub queue_offsets: QueueOffsets,
}

/// The handle of a queue in the state of its log. It stays valid until the store is closed.
#[derive(Debug, Clone, Copy)]
pub struct QueueSlot(usize);

/// The queue and the time of a prepared append.
#[derive(Debug, Clone, Copy)]
pub struct Prepared {
    /// The slot of the queue.
    pub slot: QueueSlot,
    /// The time of the call, in ms. The message is stored at this time, unless the append has to wait.
    pub called_at: i64,
}

/// A queue, and the counts of what was appended to it since the open.
#[derive(Debug, Default)]
struct QueueState {
    /// Its next offset; `None` for a queue that has no messages yet.
    next_offset: Option<i64>,
    puts: PutStats,
}

/// Messages that are appended one after the other, in one segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch<'m, 'a> {
    messages: &'m [EncodedMessage<'a>],
    /// The slot of the queue of all messages; `None` to look up the queue of each.
    slot: Option<QueueSlot>,
}

impl<'m, 'a> Batch<'m, 'a> {
    pub(super) fn of(messages: &'m [EncodedMessage<'a>]) -> Self {
        Self { messages, slot: None }
    }

    #[inline]
    pub(super) fn of_one(message: &'m EncodedMessage<'a>, prepared: Option<Prepared>) -> Self {
        Self {
            messages: slice::from_ref(message),
            slot: prepared.map(|prepared| prepared.slot),
        }
    }

    /// Returns the size of the records.
    #[inline]
    pub(super) fn len(self) -> u64 {
        self.messages.iter().map(|message| message.len() as u64).sum()
    }
}

/// The offsets, size and time of an appended message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Appended {
    /// The start of its record.
    pub physical_offset: i64,
    /// Its queue offset.
    pub queue_offset: i64,
    /// The size of its record.
    pub wrote_bytes: i32,
    /// Its store time, in ms.
    pub store_time: i64,
}

impl Appended {
    /// Returns the physical offset after its record.
    pub fn end(&self) -> i64 {
        self.physical_offset + i64::from(self.wrote_bytes)
    }
}

/// The wait of one append for space in the pool, which starts with the first attempt that finds no space.
#[derive(Debug, Default)]
pub(super) struct PoolWait {
    /// The deadline; `None` before the wait.
    pub(super) until: Option<Instant>,
}

/// The reason why an append has to wait, outside the lock.
pub(super) enum Blocked {
    /// For the next segment: this many bytes do not fit into the current one.
    Segment(u64),
    /// For the commit of every byte before this offset: the pool is full.
    Commit(i64),
}

/// The state that the append lock protects.
#[derive(Debug)]
pub(super) struct AppendState {
    /// The end of the log.
    pub(super) end: u64,
    /// The segment that is appended to.
    pub(super) current: Option<Arc<AppendFile>>,
    /// The segment after it, once it is created.
    pub(super) next: Option<Arc<AppendFile>>,
    /// Set once the next segment was requested, by the first append since the open or the last roll.
    is_next_requested: bool,
    /// Store time of the last message; 0 without messages.
    pub(super) last_store_time: i64,
    /// The store time that every new message exceeds.
    pub(super) covered_time: i64,
    /// The slot of each queue, by topic and queue id. A slot is never removed.
    topics: HashMap<String, BTreeMap<i32, QueueSlot>, RandomState>,
    /// The queues, by slot: the only home of their next offsets.
    queues: Vec<QueueState>,
    /// The counts of segments since the open.
    pub(super) segments: SegmentStats,
    /// Set while an append waits for the next segment.
    is_next_waited_for: bool,
    /// The reason why appends have ended.
    pub(super) stopped: Option<Error>,
}

impl AppendState {
    /// Starts at the end of the log, which lies in `current` unless the next segment has to be created.
    pub(super) fn new(end: LogEnd, current: Option<Arc<AppendFile>>) -> Self {
        let mut topics = HashMap::<_, BTreeMap<_, _>, RandomState>::default();
        let mut queues = Vec::new();
        for (topic, next_offsets) in end.queue_offsets {
            let slots = topics.entry(topic).or_default();
            for (queue_id, next_offset) in next_offsets {
                slots.insert(queue_id, QueueSlot(queues.len()));
                queues.push(QueueState {
                    next_offset: Some(next_offset),
                    puts: PutStats::default(),
                });
            }
        }
        Self {
            end: end.at as u64,
            current,
            next: None,
            is_next_requested: false,
            last_store_time: end.last_store_time,
            covered_time: end.covered_time,
            topics,
            queues,
            segments: SegmentStats::default(),
            is_next_waited_for: false,
            stopped: None,
        }
    }

    /// Returns the number of bytes after the end in the current segment.
    #[inline]
    pub(super) fn remaining(&self) -> u64 {
        self.current.as_ref().map_or(0, |file| file.end().saturating_sub(self.end))
    }

    /// Writes messages at the end, in the current segment, and passes the result of each to `done`. With `passes_pool` it writes
    /// through the mapping. The end moves after all of them are written.
    ///
    /// # Errors
    /// The position of a page of the segment that could not be written.
    #[inline]
    pub(super) fn write(
        &mut self,
        now: i64,
        batch: Batch<'_, '_>,
        passes_pool: bool,
        mut done: impl FnMut(Appended),
    ) -> Result<(), usize> {
        let store_time = now.max(self.last_store_time).max(self.covered_time + 1);
        self.last_store_time = store_time;
        let mut end = self.end;
        for message in batch.messages {
            let slot = batch.slot.unwrap_or_else(|| self.slot(message.topic(), message.queue_id()));
            let queue_offset = self.next_queue_offset(message, slot).ok_or(0_usize)?;
            let file = self.current.as_ref().ok_or(0_usize)?;
            let (at, physical_offset) = ((end - file.start()) as usize, end as i64);
            let is_written = message.write(queue_offset, physical_offset, store_time, |parts| {
                if passes_pool {
                    file.write_mapped(at, parts)
                } else {
                    file.write(at, parts)
                }
            });
            if !is_written {
                return Err(at);
            }
            end += message.len() as u64;
            done(Appended {
                physical_offset,
                queue_offset,
                wrote_bytes: message.len() as i32,
                store_time,
            });
        }
        self.end = end;
        Ok(())
    }

    /// Writes records of one segment as they were received, at the end. Returns false, and does nothing, if the next segment has to be
    /// created first.
    ///
    /// # Errors
    /// Those of [`AppendState::write`].
    pub(super) fn write_records(&mut self, records: &[u8], last_store_time: i64) -> Result<bool, usize> {
        if self.remaining() == 0 {
            if self.next.is_none() {
                return Ok(false);
            }
            self.move_to_next();
        }
        self.write_received(records)?;
        self.end += records.len() as u64;
        self.last_store_time = self.last_store_time.max(last_store_time);
        Ok(true)
    }

    /// Writes the BLANK that was received for the rest of the current segment, and continues in the next one. Returns false, and does
    /// nothing, if that has to be created first: no log ends with a BLANK.
    ///
    /// # Errors
    /// Those of [`AppendState::write`].
    pub(super) fn write_blank(&mut self, blank: &[u8]) -> Result<bool, usize> {
        if self.next.is_none() {
            return Ok(false);
        }
        self.write_received(blank)?;
        self.move_to_next();
        Ok(true)
    }

    fn write_received(&self, bytes: &[u8]) -> Result<(), usize> {
        let file = self.current.as_ref().ok_or(0_usize)?;
        let at = (self.end - file.start()) as usize;
        let is_written = bytes.len() as u64 <= self.remaining() && file.write(at, &[bytes]);
        if is_written { Ok(()) } else { Err(at) }
    }

    /// Writes a BLANK over the rest of the current segment.
    ///
    /// # Errors
    /// Those of [`AppendState::write`].
    pub(super) fn fill_rest(&self) -> Result<(), usize> {
        let remaining = self.remaining();
        if let Some(full) = &self.current
            && remaining > 0
        {
            let at = (self.end - full.start()) as usize;
            if !full.write(at, &[&encode_blank(remaining as u32)]) {
                return Err(at);
            }
            full.fill_until(self.end + BLANK_SIZE as u64);
        }
        Ok(())
    }

    /// Continues in the next segment, if it was created.
    pub(super) fn move_to_next(&mut self) {
        if let Some(next) = self.next.take() {
            self.end = next.start();
            self.segments.locked += u64::from(next.is_locked());
            self.current = Some(next);
            self.is_next_requested = false;
            self.segments.begun += 1;
            self.segments.made_ahead += u64::from(!std::mem::take(&mut self.is_next_waited_for));
        }
    }

    /// Returns true if this append has to request the next segment: once for each segment.
    #[inline]
    pub(super) fn requests_next(&mut self) -> bool {
        let is_requested = std::mem::replace(&mut self.is_next_requested, true);
        !is_requested && self.next.is_none()
    }

    /// Returns true if an append of `len` bytes fits into this segment or the next one.
    pub(super) fn has_space(&self, len: u64) -> bool {
        self.next.is_some() || fits(len, self.remaining())
    }

    /// Counts an append that waits for the next segment.
    pub(super) fn wait_for_next(&mut self) {
        self.segments.waits += 1;
        self.is_next_waited_for = true;
    }

    /// Returns the start of the segment after the current one.
    pub(super) fn next_start(&self) -> u64 {
        self.current.as_ref().map_or(self.end, |file| file.end())
    }

    /// Returns the slot of a queue, which gets one if it has none.
    #[inline]
    pub(super) fn slot(&mut self, topic: &str, queue_id: i32) -> QueueSlot {
        let slots = match self.topics.get_mut(topic) {
            Some(slots) => slots,
            None => self.topics.entry(topic.to_owned()).or_default(),
        };
        *slots.entry(queue_id).or_insert_with(|| {
            self.queues.push(QueueState::default());
            QueueSlot(self.queues.len() - 1)
        })
    }

    /// Counts the message, and takes the next queue offset of its queue; 0 for a message without a queue offset.
    #[inline]
    fn next_queue_offset(&mut self, message: &EncodedMessage<'_>, slot: QueueSlot) -> Option<i64> {
        let queue = self.queues.get_mut(slot.0)?;
        queue.puts.times += 1;
        queue.puts.size += message.len() as u64;
        if !message.has_queue_offset() {
            return Some(0);
        }
        let next = queue.next_offset.get_or_insert(0);
        *next += 1;
        Some(*next - 1)
    }

    /// Returns the highest id of the queues with messages of each topic.
    pub(super) fn highest_queue_ids(&self) -> impl Iterator<Item = (String, i32)> {
        let has_messages = |slot: &QueueSlot| self.queues.get(slot.0).is_some_and(|queue| queue.next_offset.is_some());
        let highest = move |slots: &BTreeMap<i32, QueueSlot>| {
            let mut used = slots.iter().rev().filter(|(_, slot)| has_messages(slot));
            used.next().map(|(id, _)| *id)
        };
        self.topics
            .iter()
            .filter_map(move |(name, slots)| Some((name.clone(), highest(slots)?)))
    }

    /// Returns the counts of each topic that was appended to since the open.
    pub(super) fn put_stats(&self) -> Vec<(String, PutStats)> {
        let puts = |slots: &BTreeMap<i32, QueueSlot>| {
            let queues = slots.values().filter_map(|slot| self.queues.get(slot.0));
            queues.map(|queue| queue.puts).fold(PutStats::default(), PutStats::plus)
        };
        let topics = self.topics.iter().map(|(name, slots)| (name, puts(slots)));
        let appended = topics.filter(|(_, puts)| puts.times > 0);
        appended.map(|(name, puts)| (name.clone(), puts)).collect()
    }
}
