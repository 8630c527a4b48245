//! The state under the append lock: the end of the log, and the offsets and times of the next message.

use std::collections::{BTreeMap, HashMap};
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
    /// Store time of the last message; 0 without messages.
    pub last_store_time: i64,
    /// The store time up to which the checkpoint covers messages. Every new message gets a later one.
    pub covered_time: i64,
    /// The next queue offset of each queue.
    pub queue_offsets: QueueOffsets,
}

/// A topic, and the counts of what was appended to it since the open.
#[derive(Debug, Default)]
struct TopicState {
    /// The next offset of each queue with messages.
    queues: BTreeMap<i32, i64>,
    puts: PutStats,
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
    topics: HashMap<String, TopicState, RandomState>,
    /// The counts of segments since the open.
    pub(super) segments: SegmentStats,
    /// Set while an append waits for the next segment.
    is_next_waited_for: bool,
    /// The reason why appends have ended.
    pub(super) stopped: Option<Error>,
}

impl TopicState {
    fn named((name, queues): (String, BTreeMap<i32, i64>)) -> (String, Self) {
        let puts = PutStats::default();
        (name, Self { queues, puts })
    }
}

impl AppendState {
    /// Starts at the end of the log, which lies in `current` unless the next segment has to be created.
    pub(super) fn new(end: LogEnd, current: Option<Arc<AppendFile>>) -> Self {
        Self {
            end: end.at as u64,
            current,
            next: None,
            is_next_requested: false,
            last_store_time: end.last_store_time,
            covered_time: end.covered_time,
            topics: end.queue_offsets.into_iter().map(TopicState::named).collect(),
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
        messages: &[EncodedMessage<'_>],
        passes_pool: bool,
        mut done: impl FnMut(Appended),
    ) -> Result<(), usize> {
        let store_time = now.max(self.last_store_time).max(self.covered_time + 1);
        self.last_store_time = store_time;
        let mut end = self.end;
        for message in messages {
            let queue_offset = self.next_queue_offset(message);
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

    /// Counts the message, and takes the next queue offset of its queue; 0 for a message without a queue offset.
    #[inline]
    pub(super) fn next_queue_offset(&mut self, message: &EncodedMessage<'_>) -> i64 {
        let topic = match self.topics.get_mut(message.topic()) {
            Some(topic) => topic,
            None => self.topics.entry(message.topic().to_owned()).or_default(),
        };
        topic.puts.times += 1;
        topic.puts.size += message.len() as u64;
        if !message.has_queue_offset() {
            return 0;
        }
        let next = topic.queues.entry(message.queue_id()).or_default();
        *next += 1;
        *next - 1
    }

    /// Returns the highest id of the queues of each topic.
    pub(super) fn highest_queue_ids(&self) -> impl Iterator<Item = (String, i32)> {
        let highest = |topic: &TopicState| topic.queues.last_key_value().map(|(id, _)| *id);
        self.topics
            .iter()
            .filter_map(move |(name, topic)| Some((name.clone(), highest(topic)?)))
    }

    /// Returns the counts of each topic that was appended to since the open.
    pub(super) fn put_stats(&self) -> Vec<(String, PutStats)> {
        let appended = self.topics.iter().filter(|(_, topic)| topic.puts.times > 0);
        appended.map(|(name, topic)| (name.clone(), topic.puts)).collect()
    }
}
