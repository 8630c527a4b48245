//! Checks a message before the first byte of it is written, and sends a delayed message to its level's queue, and a timer message to the
//! queue of timer messages.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::format::{
    BatchUnit, DelayLevels, INNER_BATCH, MAX_NUL_RUN, MAX_PROPERTIES_SIZE, Message, ProducerBatch, Properties, SCHEDULE_TOPIC,
    StoreOrders, TIMER_ADDED_SIZE, TIMER_TOPIC, TimerRequest, Transaction, Version, encode_properties, end_properties,
    is_system_topic, longest_nul_run, property, stored_properties, timer_out_ms, transaction, validate_topic,
};
use crate::storage::Env;

/// A broker refuses the id of a queue that its topic does not have, and no topic has more than this. A higher one is a slip, and
/// would make the topic as long: its queues are counted up to the highest.
const MAX_QUEUE_ID: i32 = 65_535;

/// A message on its way into the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming<'a> {
    /// A message from a producer: a delay level or a time of delivery among its properties sends it to the queue of such messages.
    Sent(Message<'a>),
    /// A message from a record, which keeps its topic. A message that was delivered after its delay still has the level. Another thread
    /// may write to the memory of its body: the body is copied before its checksum is computed, because a record that does not match
    /// its checksum ends the log. Nobody writes to the memory of its topic and properties.
    Copied(Message<'a>),
}

impl<'a> Incoming<'a> {
    #[inline]
    pub(super) fn message(&self) -> &Message<'a> {
        match self {
            Self::Sent(message) | Self::Copied(message) => message,
        }
    }

    /// Returns the body, if others may change it.
    #[inline]
    pub(super) fn changing_body(&self) -> Option<&[u8]> {
        match self {
            Self::Sent(_) => None,
            Self::Copied(message) => Some(&message.body),
        }
    }
}

impl<'a> From<Message<'a>> for Incoming<'a> {
    fn from(message: Message<'a>) -> Self {
        Self::Sent(message)
    }
}

/// The limits on messages, and the queues of delayed ones.
#[derive(Debug)]
pub(super) struct MessageChecker {
    max_message_size: usize,
    max_record_size: u64,
    delay_levels: DelayLevels,
    /// The longest delay of a timer message.
    max_timer_ms: i64,
    /// The clock.
    env: Arc<dyn Env>,
    /// Set at the first delayed message or timer message.
    has_delayed: AtomicBool,
    /// True if each record gets a checksum of the whole record.
    append_prop_crc: bool,
    /// Topics whose queues are batch consume queues, which are not built here.
    batch_topics: BTreeSet<String>,
}

impl MessageChecker {
    pub(super) fn new(
        env: &Arc<dyn Env>,
        config: &StoreConfig,
        max_record_size: u64,
        batch_topics: BTreeSet<String>,
    ) -> Result<Self> {
        Ok(Self {
            max_message_size: config.max_message_size,
            max_record_size,
            delay_levels: config.delay_levels()?,
            max_timer_ms: i64::try_from(config.timer_max_delay_sec)
                .unwrap_or(i64::MAX)
                .saturating_mul(1000),
            env: env.clone(),
            has_delayed: AtomicBool::default(),
            append_prop_crc: config.enabled_append_prop_crc,
            batch_topics,
        })
    }

    /// Returns true after the first delayed message or timer message.
    pub(super) fn has_delayed(&self) -> bool {
        self.has_delayed.load(Ordering::Relaxed)
    }

    /// Calls [`check`](Self::check) for a message on its way into the log.
    #[inline]
    pub(super) fn check_incoming(&self, incoming: &mut Incoming<'_>) -> Result<()> {
        match incoming {
            Incoming::Sent(message) => self.check(message, true),
            Incoming::Copied(message) => self.check(message, false),
        }
    }

    /// Checks a message against every limit, picks its record form, and sends a delayed message or a timer message to its queue.
    ///
    /// # Errors
    /// [`Error::IllegalMessage`] with `RocketMQ`'s status.
    #[inline]
    pub(super) fn check(&self, message: &mut Message<'_>, is_sent: bool) -> Result<()> {
        message.version = Version::of_topic(&message.topic);
        validate_topic(&message.topic, message.version).map_err(|malformed| Error::illegal(malformed.reason.into_owned()))?;
        if !(0..=MAX_QUEUE_ID).contains(&message.queue_id) {
            return Err(Error::illegal(format!(
                "queue_id is {}: queues are numbered from 0 to {MAX_QUEUE_ID}",
                message.queue_id
            )));
        }
        self.check_body(message.body.len())?;
        let orders = Properties::new(&message.properties).orders();
        self.check_batch_queue(message, orders)?;
        // Whoever copies a record brings a checksum of its old offsets along; a broker that checks it would end the log here.
        message.crc_property |= self.append_prop_crc || orders.has_crc;
        if let Some(level) = delay_level(message, orders)?
            && is_sent
        {
            delay(message, level.min(self.delay_levels.max_level()))?;
            self.has_delayed.store(true, Ordering::Relaxed);
        } else if is_sent
            && orders.has_timer
            && let Some(deliver_at) = self.deliver_at(message)?
        {
            self.delay_until(message, deliver_at)?;
            self.has_delayed.store(true, Ordering::Relaxed);
        }
        // Recovery takes properties that end otherwise for torn.
        end_properties(&mut message.properties);
        check_properties_len(message.properties_len())?;
        check_zeros(&message.properties)?;
        self.check_size("record", message.encoded_len() as u64)
    }

    /// Returns the messages in the body of a producer batch, each checked. With `batch_properties` each gets them after its own.
    ///
    /// # Errors
    /// [`Error::IllegalMessage`], for one of them with its number.
    pub(super) fn check_batch<'a>(&self, common: &'a Message<'_>, batch_properties: Option<&[u8]>) -> Result<Vec<Message<'a>>> {
        self.check_body(common.body.len())?;
        if transaction(common.sys_flag) != Transaction::None {
            return Err(Error::illegal("a batch cannot be part of a transaction".to_owned()));
        }
        let units: std::result::Result<Vec<BatchUnit<'_>>, _> = ProducerBatch::new(&common.body).collect();
        let units = units.map_err(|malformed| Error::illegal(format!("the body is not a producer batch: {malformed}")))?;
        if units.is_empty() {
            return Err(Error::illegal("the batch holds no message".to_owned()));
        }
        let shared = Message {
            body: Cow::Borrowed(&[]),
            prepared_transaction_offset: 0,
            topic: Cow::Borrowed(&*common.topic),
            properties: Cow::Borrowed(&[]),
            ..*common
        };
        let check = |unit: &BatchUnit<'a>| {
            let mut message = Message {
                flag: unit.flag,
                body: unit.body.into(),
                properties: stored_properties(unit.properties, batch_properties),
                ..shared.clone()
            };
            let orders = Properties::new(&message.properties).orders();
            if delay_level(&message, orders)?.is_some() || (orders.has_timer && self.deliver_at(&message)?.is_some()) {
                return Err(Error::illegal("a message of a batch cannot be delayed".to_owned()));
            }
            self.check(&mut message, true).map(|()| message)
        };
        let checked = units.iter().enumerate();
        checked
            .map(|(row, unit)| check(unit).map_err(|error| error.at_row(row)))
            .collect()
    }

    /// Checks that this many bytes fit into one segment.
    ///
    /// # Errors
    /// [`Error::IllegalMessage`].
    #[inline]
    pub(super) fn check_size(&self, what: &str, len: u64) -> Result<()> {
        if len <= self.max_record_size {
            return Ok(());
        }
        Err(Error::illegal(format!(
            "the {what} takes {len} bytes, at most {} fit into a segment",
            self.max_record_size
        )))
    }

    /// Checks a body of this many bytes.
    ///
    /// # Errors
    /// [`Error::IllegalMessage`].
    #[inline]
    pub(super) fn check_body(&self, len: usize) -> Result<()> {
        if len <= self.max_message_size {
            return Ok(());
        }
        Err(Error::illegal(format!(
            "the body takes {len} bytes: max_message_size is {}",
            self.max_message_size
        )))
    }

    /// Returns the time at which a timer message is to be delivered, in ms, if that is later than now. A message that is part of an open
    /// transaction, or is in the topic of timer messages already, is not one.
    ///
    /// # Errors
    /// [`Error::IllegalMessage`], as a broker refuses it.
    fn deliver_at(&self, message: &Message<'_>) -> Result<Option<i64>> {
        if is_open(message) || message.topic == TIMER_TOPIC {
            return Ok(None);
        }
        let now = self.env.now_ms();
        let refused = |why: String| Err(Error::illegal(why));
        let deliver_at = match TimerRequest::of(&message.properties, now) {
            TimerRequest::Absent => return Ok(None),
            TimerRequest::At(time) => time,
            TimerRequest::Malformed(name) => return refused(format!("property {name} is not a number of 64 bits")),
        };
        if deliver_at <= now {
            if Properties::new(&message.properties)
                .get(property::TIMER_DEL_UNIQKEY)
                .is_some()
            {
                return refused("the time of delivery of the timer to recall has passed".to_owned());
            }
            return Ok(None);
        }
        let wait = deliver_at.saturating_sub(now);
        if wait > self.max_timer_ms {
            let seconds = wait.unsigned_abs().div_ceil(1000);
            return refused(format!(
                "the time of delivery is {seconds} s from now: timer_max_delay_sec is {}",
                self.max_timer_ms / 1000
            ));
        }
        if is_system_topic(&message.topic) {
            return refused(format!(
                "topic {:?} belongs to the broker: no message is delivered there later",
                message.topic
            ));
        }
        Ok(Some(deliver_at))
    }

    /// Makes a message wait in the queue of timer messages.
    fn delay_until(&self, message: &mut Message<'_>, deliver_at: i64) -> Result<()> {
        wait_in(
            message,
            TIMER_TOPIC,
            0,
            (property::TIMER_OUT_MS, timer_out_ms(deliver_at).to_string()),
        )?;
        let len = message.properties.len() + TIMER_ADDED_SIZE;
        if len > MAX_PROPERTIES_SIZE {
            return Err(Error::properties_exceeded(format!(
                "the properties take {len} bytes with those that the delivery adds, at most {MAX_PROPERTIES_SIZE} fit"
            )));
        }
        self.check_size("record", (message.encoded_len() + TIMER_ADDED_SIZE) as u64)
    }

    /// Refuses a batch in the wrong queue: a producer batch that is stored as one record belongs into a batch consume queue, and nothing
    /// else does.
    #[inline]
    fn check_batch_queue(&self, message: &Message<'_>, orders: StoreOrders<'_>) -> Result<()> {
        if message.sys_flag & INNER_BATCH != 0 || orders.is_inner_batch {
            return Err(Error::illegal(format!(
                "sys_flag {INNER_BATCH:#x} and property {} mark a batch stored as one record, for a batch consume queue: append \
                 it as a producer batch",
                property::INNER_NUM
            )));
        }
        if self.batch_topics.contains(&*message.topic) {
            return Err(Error::illegal(format!(
                "topic {} has a batch consume queue, which is only read",
                message.topic
            )));
        }
        Ok(())
    }
}

/// Refuses properties that take more than this many bytes in a record.
#[inline]
pub(super) fn check_properties_len(len: usize) -> Result<()> {
    if len <= MAX_PROPERTIES_SIZE {
        return Ok(());
    }
    Err(Error::properties_exceeded(format!(
        "the properties take {len} bytes, at most {MAX_PROPERTIES_SIZE} fit"
    )))
}

/// Refuses properties that read like a record of which a sector never reached the disk: recovery ends the log at one.
#[inline]
fn check_zeros(properties: &[u8]) -> Result<()> {
    if properties.len() <= MAX_NUL_RUN {
        return Ok(());
    }
    let zeros = longest_nul_run(properties);
    if zeros <= MAX_NUL_RUN {
        return Ok(());
    }
    Err(Error::illegal(format!(
        "the properties hold {zeros} NUL characters in a row, at most {MAX_NUL_RUN} are accepted"
    )))
}

/// Returns the level by which a message asks to be delayed; prepared and rolled-back ones and those that wait already cannot.
#[inline]
fn delay_level(message: &Message<'_>, orders: StoreOrders<'_>) -> Result<Option<i32>> {
    let Some(text) = orders.delay.map(String::from_utf8_lossy) else {
        return Ok(None);
    };
    // A broker's recovery ends the log at a record in which it finds no number.
    let Ok(level) = text.parse::<i32>() else {
        return Err(Error::illegal(format!(
            "property {} is {text:?}: a broker expects a number there",
            property::DELAY
        )));
    };
    let is_immediate = is_open(message) || message.topic == SCHEDULE_TOPIC;
    Ok((!is_immediate && level > 0).then_some(level))
}

/// Returns true for a half message, and for one of a transaction that was rolled back.
#[inline]
fn is_open(message: &Message<'_>) -> bool {
    matches!(transaction(message.sys_flag), Transaction::Prepared | Transaction::Rollback)
}

/// Makes a message wait in the queue of its level.
fn delay(message: &mut Message<'_>, level: i32) -> Result<()> {
    wait_in(message, SCHEDULE_TOPIC, level - 1, (property::DELAY, level.to_string()))
}

/// Moves a message to the queue where it waits. Its own topic and queue id become two properties.
fn wait_in(message: &mut Message<'_>, topic: &'static str, queue_id: i32, (name, value): (&'static str, String)) -> Result<()> {
    let mut pairs = Properties::new(&message.properties).to_pairs();
    let mut put = |name: &'static str, value: String| match pairs.iter_mut().find(|(own, _)| own == name) {
        Some((_, old)) => *old = Cow::Owned(value),
        None => pairs.push((Cow::Borrowed(name), Cow::Owned(value))),
    };
    put(name, value);
    put(property::REAL_TOPIC, message.topic.clone().into_owned());
    put(property::REAL_QID, message.queue_id.to_string());
    let encoded = encode_properties(pairs.iter().map(|(name, value)| (name.as_ref(), value.as_ref())), true);
    message.properties = encoded.map_err(Error::of_properties)?.into();
    message.topic = topic.into();
    message.queue_id = queue_id;
    message.version = Version::V1;
    Ok(())
}
