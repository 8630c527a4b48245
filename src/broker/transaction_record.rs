//! The records of a transaction, as RocketMQ's `TransactionalMessageBridge` and `EndTransactionProcessor` make them.
//!
//! A half message waits in the topic of half messages. A commit appends its copy to the topic that it names; the copy names the half
//! message by its physical offset. An op message lists half messages that have ended, by their queue offsets: one in the form of
//! 4.9.x, which this crate writes, several, each before a comma, in that of 5.x. Source: docs/BROKER_RECORDS.md, "Transactions".

use super::copies::real_place;
use crate::error::{Error, Result};
use crate::format::{
    COMMIT, GIVEN_UP_TOPIC, HALF_TOPIC, Message, MessageView, OP_TOPIC, Properties, PropertyList, TRANSACTION_MASK,
    is_system_topic, property,
};

/// The group whose progress is that of the transactions.
pub(super) const TRANSACTION_GROUP: &str = "CID_RMQ_SYS_TRANS";
/// The properties that delay a message.
const DELAYS: [&str; 4] = [
    property::DELAY,
    property::TIMER_DELIVER_MS,
    property::TIMER_DELAY_SEC,
    property::TIMER_DELAY_MS,
];
/// The tag of an op message.
const OP_TAG: &str = "d";

/// Returns a message of a producer with the properties of a half message. [`half`] makes its record.
///
/// # Errors
/// [`Error::IllegalMessage`] for a delayed message, a type of transaction among the bits, and a topic of the broker.
pub(super) fn prepared<'m>(message: Message<'m>, group: &str) -> Result<Message<'m>> {
    let given = Properties::new(&message.properties);
    let mut properties = PropertyList::default();
    for (name, value) in given.to_pairs() {
        if DELAYS.contains(&&*name) && value != "0" {
            return Err(Error::illegal(format!(
                "property {name} is {value:?}: a message of a transaction cannot be delayed"
            )));
        }
        properties.put(name.into_owned(), value.into_owned());
    }
    if message.sys_flag & TRANSACTION_MASK != 0 {
        return Err(Error::illegal(format!(
            "sys_flag is {:#x}: a half message has no type of transaction, {TRANSACTION_MASK:#x}",
            message.sys_flag
        )));
    }
    if is_system_topic(&message.topic) {
        return Err(Error::illegal(format!(
            "topic {:?} belongs to the broker: no transaction ends there",
            message.topic
        )));
    }
    properties.put(property::PGROUP, group.to_owned());
    properties.put(property::TRAN_MSG, "true");
    properties.put(property::REAL_TOPIC, message.topic.clone().into_owned());
    properties.put(property::REAL_QID, message.queue_id.to_string());
    let encoded = properties.encode().map_err(Error::of_properties)?;
    Ok(Message {
        properties: encoded.into(),
        ..message
    })
}

/// Returns the half message of a [`prepared`] message.
pub(super) fn half(message: Message<'_>) -> Message<'_> {
    Message {
        topic: HALF_TOPIC.into(),
        queue_id: 0,
        prepared_transaction_offset: 0,
        ..message
    }
}

/// Returns the message that a commit appends; `None` if the half message names no topic.
pub(super) fn committed<'m>(half: &MessageView<'m>) -> Option<Message<'m>> {
    let (topic, queue_id) = real_place(half)?;
    Some(Message {
        topic: topic.into(),
        queue_id,
        sys_flag: half.sys_flag() & !TRANSACTION_MASK | COMMIT,
        prepared_transaction_offset: half.physical_offset(),
        ..half.to_message()
    })
}

/// Returns the op message of an ended half message.
pub(super) fn op(half_offset: i64, now_ms: i64) -> Result<Message<'static>> {
    let mut properties = PropertyList::default();
    properties.put(property::WAIT, "true");
    properties.put(property::TAGS, OP_TAG);
    Ok(Message {
        topic: OP_TOPIC.into(),
        queue_id: 0,
        born_time: now_ms,
        body: half_offset.to_string().into_bytes().into(),
        properties: properties.encode().map_err(Error::of_properties)?.into(),
        ..Message::default()
    })
}

/// Returns the copy of a half message whose producers never answered. Unlike RocketMQ's it names the half message, so that a crash before
/// the op message does not repeat it.
pub(super) fn given_up<'m>(half: &MessageView<'m>, checks: u32) -> Result<Message<'m>> {
    let message = half.to_message();
    let mut properties = PropertyList::default();
    for (name, value) in Properties::new(&message.properties).to_pairs() {
        properties.put(name, value);
    }
    properties.put(property::TRANSACTION_CHECK_TIMES, checks.to_string());
    let encoded = properties.encode().map_err(Error::of_properties)?;
    Ok(Message {
        topic: GIVEN_UP_TOPIC.into(),
        queue_id: 0,
        prepared_transaction_offset: half.physical_offset(),
        properties: encoded.into(),
        ..message
    })
}

/// Returns the queue offsets of the half messages that an op message lists; none for another message.
pub(super) fn listed(op: &MessageView<'_>) -> Vec<i64> {
    if op.tags().is_none_or(|tag| tag != OP_TAG) {
        return Vec::new();
    }
    let items = op.body().split(|byte| *byte == b',');
    items
        .filter_map(|item| std::str::from_utf8(item).ok()?.trim().parse().ok())
        .collect()
}

/// Returns true for a half message in its topic and queue.
pub(super) fn is_half(view: &MessageView<'_>) -> bool {
    view.has_topic(HALF_TOPIC) && view.queue_id() == 0 && view.has_queue_entry()
}
