//! The requested queues, read in step with the log: they show a record that an entry points to although its topic field differs. No
//! checksum covers that field.

use std::ops::Range;

use crate::error::Result;
use crate::format::{CqUnit, is_light_queue};
use crate::interrupt;
use crate::log::EntryCursor;
use crate::read::merge::Heads;
use crate::read::message_reader::MessageReader;

/// The requested queues in files, each at the next message to which it leads. Records are looked up in the order of the walk.
#[derive(Debug)]
pub(super) struct AskedQueues {
    /// Ascending.
    topics: Option<Vec<String>>,
    ids: Option<Vec<i32>>,
    reverse: bool,
    queues: Vec<AskedQueue>,
    heads: Heads,
    /// The dispatched end of the log when the queues were listed.
    until: i64,
    /// The record that was looked up last, and the answer.
    last: Option<(i64, bool)>,
}

#[derive(Debug)]
struct AskedQueue {
    topic: String,
    id: i32,
    /// The queue offsets of the messages that were not skipped yet.
    left: Range<i64>,
    entries: EntryCursor,
}

impl AskedQueues {
    /// Creates the queues of these topics with these ids, `None` for all: in the order of the log, or from its end.
    pub(super) fn new(mut topics: Option<Vec<String>>, ids: Option<Vec<i32>>, reverse: bool) -> Self {
        if let Some(topics) = &mut topics {
            topics.sort_unstable();
        }
        Self {
            topics,
            ids,
            reverse,
            queues: Vec::new(),
            heads: Heads::new(reverse),
            until: i64::MIN,
            last: None,
        }
    }

    /// Returns true if one of the queues leads to the record at this physical offset, which is its message.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a queue leads to it and it is not the message of that queue: the entry or the record is damaged;
    /// [`Error::Io`].
    pub(super) fn lead_to(&mut self, at: i64, reader: &MessageReader) -> Result<bool> {
        if let Some((last, answer)) = self.last
            && last == at
        {
            return Ok(answer);
        }
        self.go_to(at, reader)?;
        self.last = Some((at, false));
        let after = if self.reverse { at - 1 } else { at + 1 };
        let mut found = Vec::new();
        while let Some(n) = self.heads.pop_up_to(at) {
            let Some(queue) = self.queues.get_mut(n) else { continue };
            let mut head = queue.pass(at, self.reverse)?;
            if let Some((offset, unit)) = head.filter(|(_, unit)| unit.physical_offset == at) {
                found.push((n, offset, unit));
                head = queue.pass(after, self.reverse)?;
            }
            if let Some((_, unit)) = head {
                self.heads.push(unit.physical_offset, n);
            }
        }
        let mut is_led = false;
        for (n, offset, unit) in found {
            let Some(queue) = self.queues.get(n) else { continue };
            is_led |= reader.message_of_entry(&queue.topic, queue.id, offset, unit)?.is_some();
        }
        self.last = Some((at, is_led));
        Ok(is_led)
    }

    /// Counts the messages to which the queues lead in a stretch of the log, which comes after those that were counted before.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn count(&mut self, stretch: &Range<i64>, reader: &MessageReader) -> Result<i64> {
        self.go_to(stretch.start, reader)?;
        let mut count = 0;
        while let Some(n) = self.heads.pop_up_to(stretch.end - 1) {
            let Some(queue) = self.queues.get_mut(n) else { continue };
            queue.pass(stretch.start, false)?;
            let first = queue.left.start;
            let head = queue.pass(stretch.end, false)?;
            count += queue.left.start - first;
            if let Some((_, unit)) = head {
                self.heads.push(unit.physical_offset, n);
            }
        }
        self.last = Some((stretch.end - 1, false));
        Ok(count)
    }

    /// Lists the queues again where they do not serve: at the start, after a step back, and where they may have grown.
    fn go_to(&mut self, at: i64, reader: &MessageReader) -> Result<()> {
        match self.last {
            Some((last, _)) if self.heads.is_before(last, at) && at < self.until => Ok(()),
            _ => self.begin(at, reader),
        }
    }

    /// Lists the queues, each at the first message that is not before an offset.
    fn begin(&mut self, at: i64, reader: &MessageReader) -> Result<()> {
        self.last = None;
        self.until = reader.queued_until();
        self.queues = self.list(reader).collect();
        self.heads.clear();
        for (n, queue) in self.queues.iter_mut().enumerate() {
            interrupt::check()?;
            let head = queue.pass(at, self.reverse)?;
            if let Some((_, unit)) = head {
                self.heads.push(unit.physical_offset, n);
            }
        }
        Ok(())
    }

    fn list(&self, reader: &MessageReader) -> impl Iterator<Item = AskedQueue> {
        let all = reader.queue_store().file_queues().into_iter();
        let asked = all.filter(|(topic, id, _)| {
            let is_named = match &self.topics {
                Some(topics) => topics.binary_search_by(|named| named.as_str().cmp(&**topic)).is_ok(),
                // It leads to messages of other topics, which are not given twice.
                None => !is_light_queue(topic),
            };
            is_named && self.ids.as_ref().is_none_or(|ids| ids.contains(id))
        });
        asked.map(|(topic, id, queue)| AskedQueue {
            topic: topic.to_string(),
            id,
            left: queue.min_offset()..queue.max_offset(),
            entries: EntryCursor::new(queue),
        })
    }
}

impl AskedQueue {
    /// Skips the messages that come before an offset, and damaged entries. Returns the queue offset and the entry of the next message.
    fn pass(&mut self, at: i64, reverse: bool) -> Result<Option<(i64, CqUnit)>> {
        let Range { mut start, mut end } = self.left;
        // The next message is likely to be near.
        let mut step = 0;
        while start < end {
            let near = ((end - start) / 2).min(step);
            let middle = if reverse { end - 1 - near } else { start + near };
            let is_passed = match self.entries.known_unit(middle)? {
                Some(unit) if reverse => unit.physical_offset > at,
                Some(unit) => unit.physical_offset < at,
                None => true,
            };
            if is_passed {
                step = 2 * step + 1;
            }
            if is_passed == reverse {
                end = middle;
            } else {
                start = middle + 1;
            }
        }
        let next = if reverse {
            self.left.end = end;
            end - 1
        } else {
            self.left.start = start;
            start
        };
        if self.left.is_empty() {
            return Ok(None);
        }
        let unit = self.entries.known_unit(next)?;
        Ok(unit.map(|unit| (next, unit)))
    }
}
