//! The settings of topics that bind producers and consumers. A broker's work on the store fills the table, and appends follow it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use foldhash::fast::RandomState;

use crate::error::{Error, Result};
use crate::format::{Message, MessageType, java_hash};

/// The permission to write of a topic, a bit of `perm`.
const WRITE: i32 = 2;
/// The permission to read.
const READ: i32 = 4;

/// The queue of a topic that a producer asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueChoice<'a> {
    /// The queue with this id.
    Id(i32),
    /// The queue of this sharding key.
    Key(&'a str),
    /// The next queue: the queues of the topic take turns.
    Next,
}

impl<'a> QueueChoice<'a> {
    /// Returns the choice of a producer that may name a queue or its turn, or state a sharding key; queue 0 without either.
    ///
    /// # Errors
    /// [`Error::Invalid`] for both.
    #[inline]
    pub fn of(queue: Option<Self>, sharding_key: Option<&'a str>) -> Result<Self> {
        match (queue, sharding_key) {
            (None, None) => Ok(Self::Id(0)),
            (Some(queue), None) => Ok(queue),
            (None, Some(key)) => Ok(Self::Key(key)),
            (Some(_), Some(key)) => Err(Error::Invalid {
                what: format!("queue_id and sharding_key {key:?} both choose the queue: leave one of the two out"),
            }),
        }
    }
}

/// The settings of one topic that bind producers and consumers.
#[derive(Debug, Clone)]
pub struct TopicRule {
    perm: i32,
    read_queue_nums: i32,
    write_queue_nums: i32,
    message_type: Option<MessageType>,
    /// Counts the messages whose queue was chosen by turns.
    turns: Arc<AtomicU32>,
}

impl TopicRule {
    /// Makes the rule of a topic from the fields of its settings.
    pub fn new(perm: i32, read_queue_nums: i32, write_queue_nums: i32, message_type: Option<MessageType>) -> Self {
        Self {
            perm,
            read_queue_nums,
            write_queue_nums,
            message_type,
            turns: Arc::default(),
        }
    }

    /// Refuses a message that a broker with these settings, or one of its clients, refuses.
    fn expect_allowed(&self, message: &Message<'_>, is_sent: bool) -> Result<()> {
        let topic = &message.topic;
        if self.perm & WRITE == 0 {
            return Err(Error::illegal(format!(
                "perm of topic {topic:?} is {}, without the permission to write, {WRITE}",
                self.perm
            )));
        }
        // A queue that is only read any more still takes messages of producers that do not know it yet: RocketMQ's rule.
        let queues = self.write_queue_nums.max(self.read_queue_nums);
        if message.queue_id >= queues {
            return Err(Error::illegal(format!(
                "queue_id is {}: topic {topic:?} has {queues} queues, with ids from 0",
                message.queue_id
            )));
        }
        let Some(expected) = self.message_type.filter(|_| is_sent) else {
            return Ok(());
        };
        let found = MessageType::of_message(&message.properties);
        if expected.takes(found) {
            return Ok(());
        }
        Err(Error::illegal(format!(
            "topic {topic:?} takes messages of type {}, and this one is of type {}, by its properties",
            expected.name(),
            found.name()
        )))
    }

    /// Returns the id of the chosen queue. A sharding key has the same queue as in `RocketMQ`'s `SelectMessageQueueByHash`.
    fn queue_id(&self, topic: &str, choice: QueueChoice<'_>) -> Result<i32> {
        let chosen = match choice {
            QueueChoice::Id(id) => return Ok(id),
            QueueChoice::Key(key) => java_hash(key).checked_rem(self.write_queue_nums).map(i32::abs),
            QueueChoice::Next => {
                let turn = self.turns.fetch_add(1, Ordering::Relaxed);
                let chosen = turn.checked_rem(self.write_queue_nums.unsigned_abs());
                chosen.and_then(|id| i32::try_from(id).ok())
            }
        };
        chosen.ok_or_else(|| Error::illegal(format!("topic {topic:?} has no queue to write to: writeQueueNums is 0")))
    }
}

type Rules = HashMap<String, TopicRule, RandomState>;

/// The rules of the topics of a store. A topic without one takes any message, and has as many queues as its messages name.
#[derive(Debug, Default)]
pub struct TopicTable {
    /// False while no topic has a rule: then an append costs one load more.
    has_rules: AtomicBool,
    rules: RwLock<Arc<Rules>>,
}

impl TopicTable {
    /// Sets the rules of topics. Those of other topics stay.
    pub fn set(&self, rules: impl IntoIterator<Item = (String, TopicRule)>) {
        let mut table = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut table).extend(rules);
        self.has_rules.store(!table.is_empty(), Ordering::Release);
    }

    /// Returns the queues of all topics as they are now.
    pub fn queues(&self) -> TopicQueues {
        TopicQueues(self.read().clone())
    }

    /// Refuses a message that the rule of its topic forbids a producer. The type of a message that was copied is not checked: the
    /// properties of a delivered message still name its delay.
    ///
    /// # Errors
    /// [`Error::IllegalMessage`].
    #[inline]
    pub(super) fn expect_allowed(&self, message: &Message<'_>, is_sent: bool) -> Result<()> {
        if !self.has_rules.load(Ordering::Acquire) {
            return Ok(());
        }
        let rules = self.read();
        let rule = rules.get(&*message.topic);
        rule.map_or(Ok(()), |rule| rule.expect_allowed(message, is_sent))
    }

    /// Refuses to read a topic whose settings do not permit that.
    ///
    /// # Errors
    /// [`Error::IllegalMessage`].
    pub fn expect_readable(&self, topic: &str) -> Result<()> {
        match self.read().get(topic) {
            Some(rule) if rule.perm & READ == 0 => Err(Error::illegal(format!(
                "perm of topic {topic:?} is {}, without the permission to read, {READ}",
                rule.perm
            ))),
            _ => Ok(()),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Arc<Rules>> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The queues of topics at one moment, for choosing among them without a lock.
#[derive(Debug, Clone)]
pub struct TopicQueues(Arc<Rules>);

impl TopicQueues {
    /// Returns the id of the chosen queue.
    ///
    /// # Errors
    /// [`Error::IllegalMessage`] for a sharding key or a turn in a topic whose number of queues is not set.
    #[inline]
    pub fn queue_id(&self, topic: &str, choice: QueueChoice<'_>) -> Result<i32> {
        if let QueueChoice::Id(id) = choice {
            return Ok(id);
        }
        let rule = self.0.get(topic).ok_or_else(|| {
            Error::illegal(format!(
                "topic {topic:?} has no number of queues to choose from: create the topic first (create_topic)"
            ))
        })?;
        rule.queue_id(topic, choice)
    }
}
