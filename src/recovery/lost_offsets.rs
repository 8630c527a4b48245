//! Queue offsets of lost messages, as ranges by queue.

use std::ops::Range;

/// Ranges that are kept.
const MOST: usize = 1000;
/// Ranges that a sentence lists.
const LISTED: usize = 20;

/// Consecutive queue offsets of one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueRange {
    /// The topic.
    pub topic: String,
    /// The id of the queue.
    pub queue_id: i32,
    /// The queue offsets.
    pub offsets: Range<i64>,
}

/// The queue offsets of messages that are lost: the first thousand ranges, by topic, queue id and offset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LostOffsets {
    ranges: Vec<QueueRange>,
    /// Messages of further ranges, which are only counted.
    further: i64,
}

impl LostOffsets {
    /// Returns the ranges, ascending.
    pub fn ranges(&self) -> &[QueueRange] {
        &self.ranges
    }

    /// Returns the number of messages.
    pub fn count(&self) -> i64 {
        let lengths = self.ranges.iter().map(|range| range.offsets.end - range.offsets.start);
        lengths.sum::<i64>() + self.further
    }

    /// Adds a message.
    pub(crate) fn add(&mut self, topic: &str, queue_id: i32, offset: i64) {
        let added = (topic, queue_id, offset);
        let after = self
            .ranges
            .partition_point(|range| (&*range.topic, range.queue_id, range.offsets.start) <= added);
        let end = offset.saturating_add(1);
        if let Some(before) = after.checked_sub(1).and_then(|before| self.ranges.get_mut(before))
            && (&*before.topic, before.queue_id) == (topic, queue_id)
            && before.offsets.end >= offset
        {
            before.offsets.end = before.offsets.end.max(end);
        } else if after >= MOST {
            self.further += 1;
        } else {
            let range = QueueRange {
                topic: topic.to_owned(),
                queue_id,
                offsets: offset..end,
            };
            self.ranges.insert(after, range);
            let over = self.ranges.len() > MOST;
            if let Some(QueueRange { offsets, .. }) = self.ranges.pop_if(|_| over) {
                self.further += offsets.end - offsets.start;
            }
        }
    }

    /// Returns the number of messages and their offsets in words; `None` without a message.
    pub(crate) fn describe(&self) -> Option<String> {
        let messages = self.count();
        let mut listed: Vec<String> = self.ranges.iter().take(LISTED).map(QueueRange::describe).collect();
        if self.ranges.len() > LISTED || self.further > 0 {
            listed.push("and others".to_owned());
        }
        (messages > 0).then(|| format!("{messages} ({})", listed.join(", ")))
    }
}

impl QueueRange {
    fn describe(&self) -> String {
        let (topic, id, Range { start, end }) = (&self.topic, self.queue_id, &self.offsets);
        let last = end - 1;
        if last > *start {
            format!("{topic}/{id}@{start}-{last}")
        } else {
            format!("{topic}/{id}@{start}")
        }
    }
}
