//! The state of appending: where the log ends, and what the next message gets.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::Error;
use crate::format::EncodedMessage;
use crate::storage::AppendFile;

/// The next offset of every queue that has one, by topic and queue id.
pub type QueueOffsets = HashMap<String, HashMap<i32, i64>>;

/// Where and how a log goes on.
#[derive(Debug)]
pub(crate) struct LogEnd {
    /// Where it ends.
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

/// What the append lock protects.
#[derive(Debug)]
pub(super) struct AppendState {
    /// Where the log ends.
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
    queue_offsets: QueueOffsets,
    /// Why nothing is appended any more.
    pub(super) stopped: Option<Error>,
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
            queue_offsets: end.queue_offsets,
            stopped: None,
        }
    }

    /// The bytes after the end in the current segment.
    pub(super) fn remaining(&self) -> u64 {
        self.current.as_ref().map_or(0, |file| file.end().saturating_sub(self.end))
    }

    /// Goes on in the next segment, if that was made.
    pub(super) fn move_to_next(&mut self) {
        if let Some(next) = self.next.take() {
            self.end = next.start();
            self.current = Some(next);
            self.is_next_asked = false;
        }
    }

    /// Whether to ask for the next segment now that a message was appended: once for each segment.
    pub(super) fn asks_for_next(&mut self) -> bool {
        let is_asked = std::mem::replace(&mut self.is_next_asked, true);
        !is_asked && self.next.is_none()
    }

    /// Where the segment after the current one starts.
    pub(super) fn next_start(&self) -> u64 {
        self.current.as_ref().map_or(self.end, |file| file.end())
    }

    /// Takes the next queue offset of the message's queue; 0 for a message that has none.
    pub(super) fn next_queue_offset(&mut self, message: &EncodedMessage<'_>) -> i64 {
        if !message.has_queue_offset() {
            return 0;
        }
        let queues = match self.queue_offsets.get_mut(message.topic()) {
            Some(queues) => queues,
            None => self.queue_offsets.entry(message.topic().to_owned()).or_default(),
        };
        let next = queues.entry(message.queue_id()).or_default();
        *next += 1;
        *next - 1
    }
}
