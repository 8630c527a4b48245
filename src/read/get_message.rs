//! Reading by queue offset as a broker does: the same statuses, next offsets and bounds. Source: docs/FORMAT.md, "getMessage".

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use crate::config::Errors;
use crate::error::{Error, Result};
use crate::format::{CqUnit, MessageView, SCHEDULE_TOPIC, java_hash};
use crate::log::{ConsumeQueue, StoredMessage};
use crate::read::damage::OnDamage;
use crate::read::message_reader::MessageReader;
use crate::read::queue_walk::{MessageWalk, NamedQueue, QueueWalk};

/// The request of a `get`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetRequest {
    /// The topic.
    pub topic: String,
    /// The queue of that topic.
    pub queue_id: i32,
    /// Queue offset to start at.
    pub offset: i64,
    /// Most messages to return.
    pub max_messages: usize,
    /// The wanted tags.
    pub tags: TagFilter,
    /// True if the broker's bounds apply: one queue file, 16,000 bytes of entries, and its bytes and counts an answer.
    pub bounded: bool,
    /// The action at a message that was lost or is damaged.
    pub errors: Errors,
}

/// Tags that a reader wants: all, or some by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TagFilter {
    /// Name and hash; empty = every message.
    wanted: Vec<(String, i32)>,
}

impl TagFilter {
    /// Parses `"a || b"`; `"*"` and the empty text want every message.
    pub fn parse(expression: &str) -> Self {
        let names = expression.split("||").map(str::trim).filter(|name| !name.is_empty());
        let wanted: Vec<_> = names.map(|name| (name.to_owned(), java_hash(name))).collect();
        if wanted.iter().any(|(name, _)| name == "*") {
            Self::default()
        } else {
            Self { wanted }
        }
    }

    /// Returns true if every message is wanted.
    pub fn is_any(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Returns false if the tags code of the entry rules the message out.
    pub(super) fn may_match(&self, topic: &str, unit: &CqUnit) -> bool {
        self.wanted.is_empty() || !has_hash(topic, unit) || self.wanted.iter().any(|(_, hash)| *hash == unit.tags_code as i32)
    }

    /// Calls [`matches`](Self::matches), and looks for the tags of a message only if not all messages are wanted.
    pub(super) fn matches_tags_of(&self, view: &MessageView<'_>) -> bool {
        self.is_any() || self.matches(view.tags().as_ref())
    }

    /// Returns true if the message has a wanted tag. It compares names: two tags can share a hash.
    pub(super) fn matches(&self, tags: Option<&Cow<'_, str>>) -> bool {
        self.wanted.is_empty() || tags.is_some_and(|tags| self.wanted.iter().any(|(name, _)| name == tags.as_ref()))
    }
}

/// Returns true if the tags code of an entry is a hash. A delayed message's entry holds its delivery time, an entry with an extension an
/// address, and that of a lost message nothing of it.
fn has_hash(topic: &str, unit: &CqUnit) -> bool {
    topic != SCHEDULE_TOPIC && !unit.is_lost() && unit.ext_address().is_none()
}

/// Returns true if an entry may be that of a message with these tags.
pub(super) fn is_code_of(topic: &str, unit: &CqUnit, tags: Option<&Cow<'_, str>>) -> bool {
    !has_hash(topic, unit) || tags.map_or(0, |tags| java_hash(tags)) == unit.tags_code as i32
}

/// Returns the damage of a message whose tags have another code than the entry that leads to it.
pub(super) fn wrong_tags(reader: &MessageReader, view: &MessageView<'_>) -> Error {
    let damage = format!(
        "its tags are {:?}, and the entry of {}/{} that leads to it has the code of others: the entry or the record is damaged",
        view.tags().unwrap_or_default(),
        view.topic(),
        view.queue_id()
    );
    reader.advise(reader.log().corrupt(view.physical_offset(), damage))
}

/// The outcome of a `get`; the names are `RocketMQ`'s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GetMessageStatus {
    /// At least one message is returned.
    Found,
    /// Entries were examined and none passed the filters.
    NoMatchedMessage,
    /// The log no longer holds the messages that were examined.
    MessageWasRemoving,
    /// The offset lies in the queue but its entries cannot be read.
    OffsetFoundNull,
    /// The offset lies past the next message's.
    OffsetOverflowBadly,
    /// The offset is the next message's: nothing is there yet.
    OffsetOverflowOne,
    /// The offset is before the first message.
    OffsetTooSmall,
    /// The queue is empty or absent.
    NoMessageInQueue,
}

impl GetMessageStatus {
    /// Returns `RocketMQ`'s name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Found => "FOUND",
            Self::NoMatchedMessage => "NO_MATCHED_MESSAGE",
            Self::MessageWasRemoving => "MESSAGE_WAS_REMOVING",
            Self::OffsetFoundNull => "OFFSET_FOUND_NULL",
            Self::OffsetOverflowBadly => "OFFSET_OVERFLOW_BADLY",
            Self::OffsetOverflowOne => "OFFSET_OVERFLOW_ONE",
            Self::OffsetTooSmall => "OFFSET_TOO_SMALL",
            Self::NoMessageInQueue => "NO_MESSAGE_IN_QUEUE",
        }
    }
}

/// The answer to a `get`.
#[derive(Debug, Clone)]
pub struct GetResult {
    /// The outcome.
    pub status: GetMessageStatus,
    /// Queue offset to ask for next.
    pub next_begin_offset: i64,
    /// The queue's first offset.
    pub min_offset: i64,
    /// The queue's next offset.
    pub max_offset: i64,
    /// The messages, in queue order.
    pub messages: Vec<StoredMessage>,
    /// True if the last entry examined lies further from the log's end than memory is assumed to reach.
    pub suggest_pulling_from_slave: bool,
    /// Messages that were lost or are damaged, and were skipped.
    pub skipped: u64,
    /// The queue offsets from the first to the last of the wanted messages that the log no longer holds; empty if it holds all.
    pub missing: Range<i64>,
}

impl GetResult {
    /// Adds a message that the log no longer holds.
    fn miss_removed(&mut self, offset: i64) {
        self.miss(GetMessageStatus::MessageWasRemoving);
        let first = if self.missing.is_empty() { offset } else { self.missing.start };
        self.missing = first..offset + 1;
    }

    /// Sets the status, unless a message was found.
    fn miss(&mut self, status: GetMessageStatus) {
        if self.messages.is_empty() {
            self.status = status;
        }
    }
}

/// The most messages for which an answer has room before they are read.
const MOST_RESERVED: usize = 1024;

impl MessageReader {
    /// Reads messages from a queue offset on. `accept` sees every message that passed the tag filter and may refuse it.
    ///
    /// # Errors
    /// [`Error::Unsupported`], [`Error::Corrupt`], [`Error::Io`], and what `accept` raises.
    pub fn get<E: From<Error>>(
        &self,
        request: &GetRequest,
        mut accept: impl FnMut(&StoredMessage) -> Result<bool, E>,
    ) -> Result<GetResult, E> {
        // First: a removal while the queue is looked for counts.
        let removals = self.log().removals();
        let queue = self.queue(&request.topic, request.queue_id)?;
        let (min, max) = queue
            .as_ref()
            .map_or((0, 0), |queue| (queue.min_offset(), queue.max_offset()));
        let offset = request.offset;
        let mut result = GetResult {
            status: GetMessageStatus::NoMessageInQueue,
            next_begin_offset: 0,
            min_offset: min,
            max_offset: max,
            messages: Vec::new(),
            suggest_pulling_from_slave: false,
            skipped: 0,
            missing: 0..0,
        };
        let mut end = |status, next_begin_offset| {
            result.status = status;
            result.next_begin_offset = next_begin_offset;
        };
        match queue {
            None => {}
            Some(_) if max == 0 => {}
            Some(_) if offset < min => end(GetMessageStatus::OffsetTooSmall, min),
            Some(_) if offset == max => end(GetMessageStatus::OffsetOverflowOne, offset),
            Some(_) if offset > max => end(GetMessageStatus::OffsetOverflowBadly, max),
            Some(queue) => {
                let mut walk = self.walk_of(request, queue);
                if walk.is_readable()? {
                    self.collect(request, MessageWalk::new(walk, removals), &mut result, &mut accept)?;
                } else {
                    end(GetMessageStatus::OffsetFoundNull, walk.queue.queue.next_file_start(offset));
                }
            }
        }
        Ok(result)
    }

    fn collect<E: From<Error>>(
        &self,
        request: &GetRequest,
        mut walk: MessageWalk,
        result: &mut GetResult,
        accept: &mut impl FnMut(&StoredMessage) -> Result<bool, E>,
    ) -> Result<(), E> {
        let on_damage = OnDamage::new(request.errors);
        let log_end = self.log_end();
        let window = self.memory_window();
        let mut bytes = 0;
        let mut removed_until = i64::MIN;
        let mut furthest = 0;
        result.status = GetMessageStatus::NoMatchedMessage;
        result.next_begin_offset = walk.end();
        if request.tags.is_any() {
            let there = usize::try_from(walk.end() - request.offset).unwrap_or(0);
            result
                .messages
                .reserve_exact(there.min(request.max_messages).min(MOST_RESERVED));
        }
        while let Some((offset, unit)) = walk.next(self, &on_damage)? {
            furthest = unit.physical_offset;
            if unit.physical_offset < removed_until {
                result.missing.end = offset + 1;
                continue;
            }
            let cached = log_end.saturating_sub(unit.physical_offset) <= window;
            if self.is_full(request, result.messages.len(), bytes, unit.size, cached) {
                result.next_begin_offset = offset;
                break;
            }
            if !request.tags.may_match(&request.topic, &unit) {
                result.miss(GetMessageStatus::NoMatchedMessage);
                continue;
            }
            let message = match walk.message_or_removed(self, offset, unit) {
                Ok(Some(message)) => message,
                Ok(None) => {
                    result.miss_removed(offset);
                    // Not the next segment that is there: RocketMQ looks at the entries of each missing one.
                    removed_until = self.log().end_of_segment(unit.physical_offset);
                    continue;
                }
                Err(damage) => {
                    on_damage.pass_over(damage, 1)?;
                    result.miss(GetMessageStatus::NoMatchedMessage);
                    continue;
                }
            };
            let view = message.view();
            let is_wanted = request.tags.matches_tags_of(&view);
            if !is_wanted && !is_code_of(&request.topic, &unit, view.tags().as_ref()) {
                on_damage.pass_over(wrong_tags(self, &view), 1)?;
            }
            if is_wanted && accept(&message)? {
                bytes += u64::from(message.view().size());
                result.messages.push(message);
                result.status = GetMessageStatus::Found;
                removed_until = i64::MIN;
            } else {
                result.miss(GetMessageStatus::NoMatchedMessage);
            }
        }
        result.suggest_pulling_from_slave = log_end.saturating_sub(furthest) > window;
        result.skipped = on_damage.skipped();
        Ok(())
    }

    /// Begins a walk over the entries that the request may look at.
    fn walk_of(&self, request: &GetRequest, queue: Arc<ConsumeQueue>) -> QueueWalk {
        let examined = self.examined(request, &queue);
        let at_once = i64::try_from(request.max_messages).unwrap_or(i64::MAX);
        let (topic, id) = (request.topic.clone(), request.queue_id);
        QueueWalk::reading_at_once(NamedQueue { topic, id, queue }, examined, at_once)
    }

    /// Returns the queue offsets that this request may read.
    fn examined(&self, request: &GetRequest, queue: &ConsumeQueue) -> Range<i64> {
        let end = if request.bounded {
            let bytes = self
                .config()
                .max_filter_message_size
                .max(request.max_messages.saturating_mul(20));
            let entries = i64::try_from(bytes / 20).unwrap_or(i64::MAX);
            request
                .offset
                .saturating_add(entries)
                .min(queue.next_file_start(request.offset))
        } else {
            i64::MAX
        };
        request.offset..end.min(queue.max_offset())
    }

    fn is_full(&self, request: &GetRequest, count: usize, bytes: u64, size: i32, cached: bool) -> bool {
        let config = self.config();
        let (max_bytes, max_count) = if cached {
            (
                config.max_transfer_bytes_on_message_in_memory,
                config.max_transfer_count_on_message_in_memory,
            )
        } else {
            (
                config.max_transfer_bytes_on_message_in_disk,
                config.max_transfer_count_on_message_in_disk,
            )
        };
        let over = bytes + u64::from(size.unsigned_abs()) > max_bytes || count >= max_count;
        count > 0 && (count >= request.max_messages || (request.bounded && over))
    }
}
