//! The state of appending: where the log ends, and what the next message gets.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use foldhash::fast::RandomState;

use crate::error::Error;
use crate::format::{BLANK_SIZE, EncodedMessage, encode_blank, fits};
use crate::log::commit_log::stats::{PutStats, SegmentStats};
use crate::storage::AppendFile;

/// The next offset of every queue that has one, by topic and queue id.
pub type QueueOffsets = HashMap<String, BTreeMap<i32, i64>>;

/// The end of a log that was recovered, where it is appended to.
#[derive(Debug)]
pub(crate) struct LogEnd {
    /// The offset of the end.
    pub at: i64,
    /// Past it every byte is zero.
    pub written_until: i64,
    /// After a crash: from here on, the bytes of the log may be in memory alone.
    pub rewrite_from: Option<i64>,
    /// Store time of its last message; 0 for none.
    pub last_store_time: i64,
    /// The checkpoint covers messages up to this store time, so every new message gets a later one.
    pub covered_time: i64,
    /// The next queue offset of each queue.
    pub queue_offsets: QueueOffsets,
}

/// A topic, and what was appended to it since the open.
#[derive(Debug, Default)]
struct TopicState {
    /// The next offset of each queue that has one.
    queues: BTreeMap<i32, i64>,
    puts: PutStats,
}

/// The place of an appended message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Appended {
    /// The first byte of its record.
    pub physical_offset: i64,
    /// Its queue offset.
    pub queue_offset: i64,
    /// Its record's bytes.
    pub wrote_bytes: i32,
    /// When, in ms.
    pub store_time: i64,
}

impl Appended {
    /// Returns the physical offset after its record.
    pub fn end(&self) -> i64 {
        self.physical_offset + i64::from(self.wrote_bytes)
    }
}

/// The wait of one append for room in the pool, which begins with the first attempt that finds none.
#[derive(Debug, Default)]
pub(super) struct RoomWait {
    /// When it is over; `None` before it.
    pub(super) until: Option<Instant>,
}

/// The state that the append lock protects.
#[derive(Debug)]
pub(super) struct AppendState {
    /// The end of the log.
    pub(super) end: u64,
    /// The segment that is appended to.
    pub(super) current: Option<Arc<AppendFile>>,
    /// The segment after it, once it is made.
    pub(super) next: Option<Arc<AppendFile>>,
    /// The next segment was asked for when the first message since the open, or since the last roll, was appended.
    is_next_asked: bool,
    /// Store time of the last message; 0 for none.
    pub(super) last_store_time: i64,
    /// Every new message gets a later store time.
    pub(super) covered_time: i64,
    topics: HashMap<String, TopicState, RandomState>,
    /// The segments since the open.
    pub(super) segments: SegmentStats,
    /// An append waits for the next segment.
    is_next_waited_for: bool,
    /// The reason why nothing is appended any more.
    pub(super) stopped: Option<Error>,
}

impl TopicState {
    fn named((name, queues): (String, BTreeMap<i32, i64>)) -> (String, Self) {
        let puts = PutStats::default();
        (name, Self { queues, puts })
    }
}

impl AppendState {
    /// At the end of the log, which lies in `current` unless the next segment has to be made.
    pub(super) fn new(end: LogEnd, current: Option<Arc<AppendFile>>) -> Self {
        Self {
            end: end.at as u64,
            current,
            next: None,
            is_next_asked: false,
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

    /// Writes messages past the end, in the current segment, and passes the place of each to `done`; with `passes_pool` through its
    /// mapping. The end moves when all of them are written.
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
    /// As [`AppendState::write`].
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

    /// Continues in the next segment, if that was made.
    pub(super) fn move_to_next(&mut self) {
        if let Some(next) = self.next.take() {
            self.end = next.start();
            self.segments.locked += u64::from(next.is_locked());
            self.current = Some(next);
            self.is_next_asked = false;
            self.segments.begun += 1;
            self.segments.made_ahead += u64::from(!std::mem::take(&mut self.is_next_waited_for));
        }
    }

    /// Returns true if the next segment is to be asked for now that a message was appended: once for each segment.
    #[inline]
    pub(super) fn asks_for_next(&mut self) -> bool {
        let is_asked = std::mem::replace(&mut self.is_next_asked, true);
        !is_asked && self.next.is_none()
    }

    /// Returns true if an append of `len` bytes finds room, in this segment or in the next one.
    pub(super) fn has_room(&self, len: u64) -> bool {
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

    /// Counts the message, and takes the next queue offset of its queue; 0 for a message that has none.
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

    /// Returns the counts of each topic that was appended to since the open.
    pub(super) fn put_stats(&self) -> Vec<(String, PutStats)> {
        let appended = self.topics.iter().filter(|(_, topic)| topic.puts.times > 0);
        appended.map(|(name, topic)| (name.clone(), topic.puts)).collect()
    }
}
