//! What a store refuses before the first byte is written, and what it makes of a delayed message.

use std::borrow::Cow;

use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::format::{
    DelayLevels, MAX_PROPERTIES_SIZE, Message, Properties, SCHEDULE_TOPIC, Transaction, Version, encode_properties, property,
    transaction, validate_topic,
};

/// Bytes of the longest topic that a V1 record holds.
const MAX_V1_TOPIC: usize = 127;

/// A message on its way into the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Draft<'a> {
    /// As its producer sends it: a delay level in its properties sends it to that level's queue.
    New(Message<'a>),
    /// As a record holds it: its properties say what became of it, and it stays where it is. A delivered one still has its level.
    Copy(Message<'a>),
}

impl<'a> From<Message<'a>> for Draft<'a> {
    fn from(message: Message<'a>) -> Self {
        Self::New(message)
    }
}

/// Checks a message against every limit, picks its record form, and sends a delayed one to its level's queue.
///
/// # Errors
/// [`Error::IllegalMessage`] with `RocketMQ`'s status.
pub(super) fn prepare<'a>(draft: Draft<'a>, config: &StoreConfig, levels: &DelayLevels, max_record: u64) -> Result<Message<'a>> {
    let (mut message, is_new) = match draft {
        Draft::New(message) => (message, true),
        Draft::Copy(message) => (message, false),
    };
    message.version = if message.topic.len() > MAX_V1_TOPIC {
        Version::V2
    } else {
        Version::V1
    };
    validate_topic(&message.topic, message.version).map_err(|malformed| illegal(malformed.to_string()))?;
    if message.queue_id < 0 {
        return Err(illegal(format!("queue is {}: queues are numbered from 0", message.queue_id)));
    }
    if message.body.len() > config.max_message_size {
        return Err(illegal(format!(
            "the body takes {} bytes: max_message_size is {}",
            message.body.len(),
            config.max_message_size
        )));
    }
    check_numbers(&message)?;
    // Whoever copies a record brings a checksum of its old place along; a broker that checks it would end the log here.
    message.crc_property |= Properties::new(&message.properties).get(property::CRC32).is_some();
    if is_new && let Some(level) = delay_level(&message, levels) {
        delay(&mut message, level)?;
    }
    if message.properties.len() > MAX_PROPERTIES_SIZE {
        return Err(Error::IllegalMessage {
            what: format!(
                "the properties take {} bytes, at most {MAX_PROPERTIES_SIZE} fit",
                message.properties.len()
            ),
            status: "PROPERTIES_SIZE_EXCEEDED",
        });
    }
    if message.encoded_len() as u64 > max_record {
        return Err(illegal(format!(
            "the record takes {} bytes, at most {max_record} fit into a segment",
            message.encoded_len()
        )));
    }
    Ok(message)
}

/// A broker's recovery ends the log at a record whose numeric properties are none, so they must be.
fn check_numbers(message: &Message<'_>) -> Result<()> {
    let properties = Properties::new(&message.properties);
    for name in [property::DELAY, property::INNER_NUM, property::INNER_BASE] {
        if let Some(value) = properties.get(name)
            && value.parse::<i64>().is_err()
        {
            return Err(illegal(format!(
                "property {name} is {value:?}: a broker expects a number there"
            )));
        }
    }
    Ok(())
}

fn delay_level(message: &Message<'_>, levels: &DelayLevels) -> Option<i32> {
    let immediate =
        matches!(transaction(message.sys_flag), Transaction::Prepared | Transaction::Rollback) || message.topic == SCHEDULE_TOPIC;
    let level: i32 = Properties::new(&message.properties).get(property::DELAY)?.parse().ok()?;
    (!immediate && level > 0).then(|| level.min(levels.max_level()))
}

/// The message as it waits: in its level's queue of the schedule topic, with where it belongs kept in two properties.
fn delay(message: &mut Message<'_>, level: i32) -> Result<()> {
    let mut pairs = Properties::new(&message.properties).to_pairs();
    let mut put = |name: &'static str, value: String| match pairs.iter_mut().find(|(own, _)| own == name) {
        Some((_, old)) => *old = Cow::Owned(value),
        None => pairs.push((Cow::Borrowed(name), Cow::Owned(value))),
    };
    put(property::DELAY, level.to_string());
    put(property::REAL_TOPIC, message.topic.clone());
    put(property::REAL_QID, message.queue_id.to_string());
    let encoded = encode_properties(pairs.iter().map(|(name, value)| (name.as_ref(), value.as_ref())), true);
    message.properties = encoded.map_err(|malformed| illegal(malformed.to_string()))?;
    SCHEDULE_TOPIC.clone_into(&mut message.topic);
    message.queue_id = level - 1;
    message.version = Version::V1;
    Ok(())
}

fn illegal(what: String) -> Error {
    Error::IllegalMessage {
        what,
        status: "MESSAGE_ILLEGAL",
    }
}
