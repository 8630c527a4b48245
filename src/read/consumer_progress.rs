//! The progress of a broker's consumers, and their lag.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::error::{Error, Result};
use crate::format::{
    BrokerFile, CONFIG_DIR, CONSUMER_OFFSET_FILE, ConsumerOffset, DELAY_OFFSET_FILE, DelayOffset, LMQ_CONSUMER_OFFSET_FILE,
    Malformed, SUBSCRIPTION_GROUP_FILE, SubscriptionGroupConfig, TOPIC_GROUP_SEPARATOR, TOPICS_FILE, TopicConfig,
    decode_consumer_offsets, decode_delay_offsets, decode_subscription_groups, decode_topic_configs, retry_topic,
};
use crate::log::{BrokerSettings, load_broker_settings};
use crate::read::message_reader::MessageReader;

/// The progress of a group in a queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupOffset {
    /// The group of consumers.
    pub group: String,
    /// The topic.
    pub topic: String,
    /// The queue of the topic.
    pub queue_id: i32,
    /// The queue offset of the message that the group gets next.
    pub offset: i64,
}

/// The bounds of a queue, and the progress of a group in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupLag {
    /// The group of consumers.
    pub group: String,
    /// The topic.
    pub topic: String,
    /// The queue of the topic.
    pub queue_id: i32,
    /// The queue offset of the message that the group gets next; `None` if the broker has none.
    pub offset: Option<i64>,
    /// The offsets of the queue's messages; `None` where the queue is not a file of this format.
    pub queue: Option<Range<i64>>,
}

impl GroupLag {
    /// Returns the number of messages of the queue that the group has not consumed.
    pub fn lag(&self) -> Option<i64> {
        let Range { start, end } = *self.queue.as_ref()?;
        Some(end - self.offset.unwrap_or(start).max(start).min(end))
    }

    /// Returns the queue offset of the first message that the group has not consumed; `None` if it has consumed all.
    fn first_unconsumed(&self) -> Option<i64> {
        let queue = self.queue.as_ref().filter(|_| self.lag() > Some(0))?;
        Some(self.offset.unwrap_or(queue.start).max(queue.start))
    }
}

/// The state of a group in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupState {
    /// The progress.
    pub lag: GroupLag,
    /// The store time in ms of the first message that the group has not consumed; `None` if it has consumed all.
    pub unconsumed_since: Option<i64>,
    /// The number of the group's consumers in this process; `None` unless it writes the store.
    pub consumers: Option<i32>,
    /// Messages that these consumers have got and not acknowledged.
    pub in_flight: Option<i64>,
}

impl GroupState {
    fn new(unconsumed_since: Option<i64>, lag: GroupLag) -> Self {
        Self {
            lag,
            unconsumed_since,
            consumers: None,
            in_flight: None,
        }
    }
}

impl MessageReader {
    /// Returns the progress of all consumer groups, by the broker's own files; ascending. The files of a broker with light queues take
    /// precedence over those of a broker without them.
    ///
    /// # Errors
    /// [`Error::NotFound`] where no broker has written any, and those of [`load_broker_settings`].
    pub fn consumer_offsets(&self) -> Result<BrokerSettings<Vec<GroupOffset>>> {
        let plain = self.settings(CONSUMER_OFFSET_FILE, decode_consumer_offsets);
        let light = load_broker_settings(
            self.env().as_ref(),
            self.path(),
            LMQ_CONSUMER_OFFSET_FILE,
            decode_consumer_offsets,
        )?;
        let Some(light) = light else {
            let plain = plain?;
            return Ok(BrokerSettings {
                content: self.by_group(&plain.content)?.into_values().collect(),
                doubts: plain.doubts,
            });
        };
        let plain = match plain {
            Err(Error::NotFound { .. }) => None,
            plain => Some(plain?),
        };
        let mut doubts = light.doubts;
        let mut offsets = self.by_group(&light.content)?;
        if let Some(plain) = plain {
            doubts.extend(plain.doubts);
            let mut contradicted = 0;
            for (queue, offset) in self.by_group(&plain.content)? {
                contradicted += usize::from(offsets.get(&queue).is_some_and(|known| *known != offset));
                offsets.entry(queue).or_insert(offset);
            }
            if contradicted > 0 {
                doubts.push(format!(
                    "{} and {} contradict each other about {contradicted} queues of groups: this is what the first one says, which a \
                     broker with enableLmq writes",
                    LMQ_CONSUMER_OFFSET_FILE.name, CONSUMER_OFFSET_FILE.name
                ));
            }
        }
        Ok(BrokerSettings {
            content: offsets.into_values().collect(),
            doubts,
        })
    }

    /// Returns the lag of each group in the topics that it has consumed from, and in its retry topic, by queue; ascending.
    ///
    /// # Errors
    /// As [`MessageReader::consumer_offsets`].
    pub fn lag(&self) -> Result<BrokerSettings<Vec<GroupLag>>> {
        self.lag_of(self.consumer_offsets()?)
    }

    /// Returns the lag of the groups in `found`, by queue; ascending.
    ///
    /// # Errors
    /// Those of reading the bounds of queues.
    pub fn lag_of(&self, found: BrokerSettings<Vec<GroupOffset>>) -> Result<BrokerSettings<Vec<GroupLag>>> {
        let mut queues: BTreeMap<(String, String), BTreeMap<i32, Option<i64>>> = BTreeMap::new();
        for offset in found.content {
            let of_group = queues.entry((offset.group, offset.topic)).or_default();
            of_group.insert(offset.queue_id, Some(offset.offset));
        }
        // A group has no progress in the queues of its retry topic before its first poll after a retry.
        let groups: BTreeSet<String> = queues.keys().map(|(group, _)| group.clone()).collect();
        for group in groups {
            let retries = retry_topic(&group);
            queues.entry((group, retries)).or_default();
        }
        let mut lags = Vec::new();
        for ((group, topic), mut queues) in queues {
            for queue_id in supported(self.queue_ids(&topic))?.unwrap_or_default() {
                queues.entry(queue_id).or_insert(None);
            }
            for (queue_id, offset) in queues {
                lags.push(GroupLag {
                    queue: supported(self.queue_bounds(&topic, queue_id))?,
                    group: group.clone(),
                    topic: topic.clone(),
                    queue_id,
                    offset,
                });
            }
        }
        Ok(BrokerSettings {
            content: lags,
            doubts: found.doubts,
        })
    }

    /// Adds to each lag the time of the first message that the group has not consumed. A message that is damaged or lost has no time.
    ///
    /// # Errors
    /// Those of reading, damage excepted.
    pub fn group_states(&self, lags: BrokerSettings<Vec<GroupLag>>) -> Result<BrokerSettings<Vec<GroupState>>> {
        let state = |lag: GroupLag| Ok(GroupState::new(self.unconsumed_since(&lag)?, lag));
        Ok(BrokerSettings {
            content: lags.content.into_iter().map(state).collect::<Result<_>>()?,
            doubts: lags.doubts,
        })
    }

    /// Returns [`MessageReader::group_states`] with a time for only one queue of each topic of each group: the one whose first unconsumed
    /// message lies first in the log. So it reads the entries of queues, and one message for each topic of each group.
    ///
    /// # Errors
    /// As [`MessageReader::group_states`].
    pub fn oldest_states(&self, lags: BrokerSettings<Vec<GroupLag>>) -> Result<BrokerSettings<Vec<GroupState>>> {
        let mut states: Vec<_> = lags.content.into_iter().map(|lag| GroupState::new(None, lag)).collect();
        for of_topic in states.chunk_by_mut(|one, next| one.lag.group == next.lag.group && one.lag.topic == next.lag.topic) {
            let mut firsts = Vec::new();
            for state in of_topic {
                if let Some(at) = self.first_in_log(&state.lag)? {
                    firsts.push((at, state));
                }
            }
            firsts.sort_by_key(|(at, _)| *at);
            for (_, state) in firsts {
                state.unconsumed_since = self.unconsumed_since(&state.lag)?;
                if state.unconsumed_since.is_some() {
                    break;
                }
            }
        }
        Ok(BrokerSettings {
            content: states,
            doubts: lags.doubts,
        })
    }

    /// Returns the physical offset of the first unconsumed message; `None` if there is none, or it is damaged or lost.
    fn first_in_log(&self, lag: &GroupLag) -> Result<Option<i64>> {
        let Some(first) = lag.first_unconsumed() else {
            return Ok(None);
        };
        let position = readable(self.position(&lag.topic, lag.queue_id, first))?;
        Ok(position.flatten().map(|position| position.physical_offset))
    }

    /// Returns the store time of the first unconsumed message; `None` if there is none, or it is damaged or lost.
    fn unconsumed_since(&self, lag: &GroupLag) -> Result<Option<i64>> {
        let Some(first) = lag.first_unconsumed() else {
            return Ok(None);
        };
        let message = readable(self.message_in_queue(&lag.topic, lag.queue_id, first))?;
        Ok(message.map(|message| message.view().store_time()))
    }

    /// Returns the topics as the broker is configured; ascending.
    ///
    /// # Errors
    /// As [`MessageReader::consumer_offsets`].
    pub fn topic_configs(&self) -> Result<BrokerSettings<Vec<TopicConfig>>> {
        self.settings(TOPICS_FILE, decode_topic_configs)
    }

    /// Returns the consumer groups as the broker is configured; ascending.
    ///
    /// # Errors
    /// As [`MessageReader::consumer_offsets`].
    pub fn subscription_groups(&self) -> Result<BrokerSettings<Vec<SubscriptionGroupConfig>>> {
        self.settings(SUBSCRIPTION_GROUP_FILE, decode_subscription_groups)
    }

    /// Returns the progress of the delivery of delayed messages, by level; ascending.
    ///
    /// # Errors
    /// As [`MessageReader::consumer_offsets`].
    pub fn delay_offsets(&self) -> Result<BrokerSettings<Vec<DelayOffset>>> {
        self.settings(DELAY_OFFSET_FILE, decode_delay_offsets)
    }

    fn settings<T>(&self, file: BrokerFile, decode: fn(&[u8]) -> Result<T, Malformed>) -> Result<BrokerSettings<T>> {
        let found = load_broker_settings(self.env().as_ref(), self.path(), file, decode)?;
        found.ok_or_else(|| {
            Error::not_found(format!(
                "{} does not exist: a broker writes it; if this store is a copy of a broker's, copy the directory {CONFIG_DIR} too",
                self.path().join(CONFIG_DIR).join(file.name).display()
            ))
        })
    }

    /// Returns the offsets by group, topic and queue, each name of an entry divided.
    fn by_group(&self, offsets: &[ConsumerOffset]) -> Result<BTreeMap<(String, String, i32), GroupOffset>> {
        let is_ambiguous = |offset: &ConsumerOffset| offset.topic_group.matches(TOPIC_GROUP_SEPARATOR).count() > 1;
        let topics: BTreeSet<String> = if offsets.iter().any(is_ambiguous) {
            self.topics()?.into_iter().collect()
        } else {
            BTreeSet::new()
        };
        let divided = offsets.iter().filter_map(|offset| {
            let (topic, group) = offset.names(|name| topics.contains(name))?;
            let (topic, group) = (topic.to_owned(), group.to_owned());
            let queue = (group.clone(), topic.clone(), offset.queue_id);
            let offset = GroupOffset {
                group,
                topic,
                queue_id: offset.queue_id,
                offset: offset.offset,
            };
            Some((queue, offset))
        });
        Ok(divided.collect())
    }
}

/// Returns an answer; `None` where the queue is not a file of this format.
fn supported<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Err(Error::Unsupported { .. }) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Returns an answer; `None` where the message is damaged, lost, or has expired.
fn readable<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) if error.is_damage() => Ok(None),
        answer => answer.map(Some),
    }
}
