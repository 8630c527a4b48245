//! Messages that consumers send back: to the retry topic of their group, and to its dead letters in the end.
//!
//! The records and properties are those of RocketMQ's `consumerSendMsgBack`: docs/BROKER_RECORDS.md, "Retries and dead letters". A resend
//! takes them back.

use std::borrow::Cow;

use crate::error::{Error, Result};
use crate::format::{Message, MessageView, PropertyList, Version, property, retry_topic};
use crate::store::{AppendResult, MessageStore};

/// The topics of the messages that a consumer group was given too often.
pub(super) const DEAD_LETTER_PREFIX: &str = "%DLQ%";
/// The delay level of the first retry; each further one has the next level.
const FIRST_RETRY_LEVEL: i32 = 3;

/// The properties that a retry adds, and its delivery. RocketMQ does not keep the WAIT that the producer gave.
const ADDED: [&str; 6] = [
    property::RETRY_TOPIC,
    property::ORIGIN_MESSAGE_ID,
    property::WAIT,
    property::DELAY,
    property::REAL_TOPIC,
    property::REAL_QID,
];

/// Appends a message for its next delivery to the group: after `delay_level`, by default a level that rises with each retry. After
/// `max_reconsume_times` retries, and for a negative level, it becomes a dead letter. The messages of a queue go to the `retry_queues`
/// queues of the retry topic in turn, where RocketMQ draws one.
///
/// # Errors
/// Those of an append: the message is not sent back.
pub(super) fn send_back(
    store: &MessageStore,
    group: &str,
    view: &MessageView<'_>,
    delay_level: Option<i32>,
    max_reconsume_times: i32,
    retry_queues: i32,
) -> Result<AppendResult> {
    let given = view.reconsume_times();
    let is_dead = given >= max_reconsume_times || delay_level.is_some_and(|level| level < 0);
    let level = match delay_level {
        _ if is_dead => 0,
        Some(level) if level > 0 => level,
        _ => FIRST_RETRY_LEVEL.saturating_add(given),
    };
    let (topic, queue_id) = if is_dead {
        (format!("{DEAD_LETTER_PREFIX}{group}"), 0)
    } else {
        let turn = view.queue_offset().checked_rem(i64::from(retry_queues));
        let queue_id = turn.and_then(|turn| i32::try_from(turn).ok());
        (retry_topic(group), queue_id.unwrap_or(0))
    };
    let mut properties = PropertyList::default();
    for (name, value) in view.properties().to_pairs() {
        properties.put(name, value);
    }
    if view.properties().get(property::RETRY_TOPIC).is_none() {
        properties.put(property::RETRY_TOPIC, view.topic());
    }
    if view.properties().get(property::ORIGIN_MESSAGE_ID).is_none() {
        properties.put(property::ORIGIN_MESSAGE_ID, view.message_id().to_string());
    }
    properties.put(property::WAIT, "false");
    properties.put(property::DELAY, level.to_string());
    let mut message = Message {
        version: Version::of_topic(&topic),
        topic: Cow::Owned(topic),
        queue_id,
        properties: properties.encode().map_err(Error::of_properties)?.into(),
        reconsume_times: given.saturating_add(1),
        prepared_transaction_offset: 0,
        ..view.to_message()
    };
    message.crc_property = false;
    store.appender(Some(false)).append(message)
}

/// The outcome of a resend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resent {
    /// Dead letters that were appended again.
    pub sent: u64,
    /// Dead letters that are lost or damaged, or name no topic, each with its queue id and queue offset.
    pub skipped: Vec<(i32, i64)>,
    /// Dead letters that expired before they were sent again.
    pub expired: u64,
}

/// Appends a dead letter again to a queue of the topic of its first record, as a producer would send it.
///
/// # Errors
/// [`Error::Invalid`] for a message that names no such topic; those of an append.
pub(super) fn resend(store: &MessageStore, view: &MessageView<'_>, turn: usize) -> Result<AppendResult> {
    let Some(topic) = view.properties().get(property::RETRY_TOPIC) else {
        return Err(Error::Invalid {
            what: format!(
                "message {} of {} in queue {} has no property RETRY_TOPIC: it is not a dead letter",
                view.queue_offset(),
                view.topic(),
                view.queue_id()
            ),
        });
    };
    let mut properties = PropertyList::default();
    for (name, value) in view.properties().to_pairs() {
        if !ADDED.contains(&&*name) {
            properties.put(name, value);
        }
    }
    let queue_ids = store.reader().queue_ids(&topic)?;
    let of_turn = turn.checked_rem(queue_ids.len()).and_then(|turn| queue_ids.get(turn));
    let mut message = Message {
        version: Version::of_topic(&topic),
        queue_id: of_turn.copied().unwrap_or(0),
        topic,
        properties: properties.encode().map_err(Error::of_properties)?.into(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        ..view.to_message()
    };
    message.crc_property = false;
    store.appender(Some(false)).append(message)
}
