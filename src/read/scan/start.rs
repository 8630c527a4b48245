//! Start positions of a pass that follows a store, checked against the bounds of their queues.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::format::is_light_queue;
use crate::read::message_reader::MessageReader;
use crate::read::scan::request::ScanRequest;

/// Queue offsets by topic and queue id.
pub type QueueOffsets = BTreeMap<(String, i32), i64>;

/// The start of a pass that follows a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FollowFrom {
    /// The next message that is appended.
    End,
    /// The first message of the store.
    Begin,
    /// The first message that was stored at this time, in ms, or later.
    Time(i64),
    /// These queue offsets of these queues; no other queues are followed.
    Offsets(QueueOffsets, OnMissing),
}

/// The start in a queue whose bounds exclude the queue offset asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnMissing {
    /// The pass is refused, unless the offset has expired: then it starts at the first message.
    Refuse,
    /// The first message of the queue.
    Earliest,
    /// The next message of the queue.
    Latest,
}

/// Refuses topics and queues that can never return a message.
///
/// # Errors
/// [`Error::Invalid`]; as [`MessageReader::queue_bounds`].
pub(super) fn expect_followable(reader: &MessageReader, request: &ScanRequest, from: &FollowFrom) -> Result<()> {
    let invalid = |what: String| Err(Error::Invalid { what });
    let topics = request.topics.as_ref();
    if topics.is_some_and(Vec::is_empty) {
        return invalid("topics names no topic, so that no message would come: leave it out to follow all of them".to_owned());
    }
    if let Some(light) = topics.into_iter().flatten().find(|topic| is_light_queue(topic)) {
        return invalid(light_queue("topics", light));
    }
    let FollowFrom::Offsets(offsets, _) = from else {
        return Ok(());
    };
    if offsets.is_empty() {
        return invalid("start names no queue, so that no message would come: name one, or leave start out".to_owned());
    }
    for (topic, queue_id) in offsets.keys() {
        if *queue_id < 0 {
            return invalid(format!("a queue id of start is {queue_id}: expected 0 or more"));
        }
        if let Some(topics) = topics.filter(|topics| !topics.contains(topic)) {
            let bounds = reader.queue_bounds(topic, *queue_id)?;
            return invalid(format!(
                "start names {topic}/{queue_id}, which has queue offsets from {} to {}, but topics is {topics:?}: add {topic:?} to topics, or \
                 leave its queues out of start",
                bounds.start, bounds.end
            ));
        }
        if is_light_queue(topic) {
            return invalid(light_queue("start", topic));
        }
    }
    Ok(())
}

fn light_queue(argument: &str, topic: &str) -> String {
    format!(
        "{argument} names the light queue {topic}, whose messages are stored under other topics: follow those, or use Queue.tail"
    )
}

/// Returns the queue offset at which a pass over a queue starts that is to start at `offset`. The offset of the next message, which
/// is the upper bound, is a valid start.
///
/// # Errors
/// [`Error::NotFound`] with the bounds; as [`MessageReader::queue_bounds`].
pub(super) fn start_offset(
    reader: &MessageReader,
    (topic, queue_id): (&str, i32),
    offset: i64,
    on_missing: OnMissing,
) -> Result<i64> {
    let bounds = reader.queue_bounds(topic, queue_id)?;
    match on_missing {
        _ if bounds.contains(&offset) || offset == bounds.end => Ok(offset),
        OnMissing::Earliest => Ok(bounds.start),
        OnMissing::Latest => Ok(bounds.end),
        OnMissing::Refuse if 0 <= offset && offset < bounds.start => Ok(bounds.start),
        OnMissing::Refuse if reader.queue(topic, queue_id)?.is_none() => Err(Error::NotFound {
            what: format!(
                "start is {topic}/{queue_id} at queue offset {offset}, and {}",
                absent(reader, topic, queue_id)?
            ),
        }),
        OnMissing::Refuse => Err(Error::NotFound {
            what: format!(
                "start is {topic}/{queue_id} at queue offset {offset}, but valid positions are {} to {}; the last one is the next message's; \
                 on_missing=\"earliest\" starts at its first message then, on_missing=\"latest\" at its next one",
                bounds.start, bounds.end
            ),
        }),
    }
}

/// Describes which is absent, the topic or only its queue, and what to do.
fn absent(reader: &MessageReader, topic: &str, queue_id: i32) -> Result<String> {
    let ids = reader.queue_ids(topic)?;
    let absent = if ids.is_empty() {
        format!("there is no topic {topic}")
    } else {
        format!("topic {topic} has no queue {queue_id}, only {ids:?}")
    };
    Ok(format!(
        "{absent}; start at queue offset 0 to follow it from its first message on, or correct the name"
    ))
}
