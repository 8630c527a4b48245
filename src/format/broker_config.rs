//! A broker's own settings, in the directory `config`: the progress of consumers, the progress of the delivery of delayed messages,
//! and the topics.

use serde_json::{Map, Value};

use super::broker_json::parse;
use super::malformed::Malformed;

/// The separator between the names of a topic and a group. The clients of a broker refuse it in a name; MQTT clients use it in
/// theirs.
pub const TOPIC_GROUP_SEPARATOR: char = '@';
/// The prefix of the names of light queues (LMQ), and of the groups that consume them.
const LMQ_PREFIX: &str = "%LMQ%";

/// The queue id of every light queue.
pub const LIGHT_QUEUE_ID: i32 = 0;

/// Returns true for the name of a light queue, which is the topic of its files. Its messages are stored under other topics.
pub fn is_light_queue(topic: &str) -> bool {
    topic.starts_with(LMQ_PREFIX)
}

/// The progress of a consumer group in a queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConsumerOffset {
    /// The name of the topic, `@`, and the name of the group.
    pub topic_group: String,
    /// The queue of the topic.
    pub queue_id: i32,
    /// The queue offset of the message that the group gets next.
    pub offset: i64,
    /// Set for a light queue, which has one queue and a group of its own kind.
    pub is_lmq: bool,
}

impl ConsumerOffset {
    /// Splits `topic_group` into topic and group. Of several `@` it takes the first one after the name of a topic that `is_topic`
    /// knows, otherwise the first, as a broker does. The group of a light queue starts with the prefix of light queues.
    pub fn names(&self, is_topic: impl Fn(&str) -> bool) -> Option<(&str, &str)> {
        let splits = self.topic_group.match_indices(TOPIC_GROUP_SEPARATOR);
        let mut names = splits
            .filter_map(|(at, _)| Some((self.topic_group.get(..at)?, self.topic_group.get(at + 1..)?)))
            .filter(|(_, group)| !self.is_lmq || group.starts_with(LMQ_PREFIX));
        let first = names.next()?;
        let mut all = std::iter::once(first).chain(names);
        Some(all.find(|(topic, _)| is_topic(topic)).unwrap_or(first))
    }
}

/// The progress of the delivery of the delayed messages of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DelayOffset {
    /// The level, from 1.
    pub level: i32,
    /// The queue offset of the next message to deliver, in the queue of the level. The id of that queue is the level - 1.
    pub offset: i64,
}

/// The configuration of a topic in a broker. A field that the file does not have is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopicConfig {
    /// Its name.
    pub topic: String,
    /// The number of queues that consumers read.
    pub read_queue_nums: Option<i32>,
    /// The number of queues that producers write.
    pub write_queue_nums: Option<i32>,
    /// The permissions, a sum of: 4 reading, 2 writing, 1 a template for new topics, 8 priority.
    pub perm: Option<i32>,
    /// `SINGLE_TAG` or `MULTI_TAG`.
    pub topic_filter_type: Option<String>,
    /// Bit 0: a unit topic; bit 1: a unit topic with subscriptions.
    pub topic_sys_flag: Option<i32>,
    /// Set if the topic keeps its order while brokers come and go.
    pub order: Option<bool>,
    /// Further attributes, such as `message.type`; 5.x and later.
    pub attributes: Option<Vec<(String, String)>>,
    /// Set in an entry of this crate that grows with its topic: see [`TopicConfig::GROWS`].
    pub grows: bool,
}

impl TopicConfig {
    /// The field of an entry that grows with its topic. A broker ignores the field, and drops it with its next change of the file: then
    /// the entry is the broker's.
    pub const GROWS: &str = "mqstoreGrows";
}

/// The configuration of a consumer group in a broker. A field that the file does not have is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SubscriptionGroupConfig {
    /// Its name.
    pub group: String,
    /// False if the group must not consume.
    pub consume_enable: Option<bool>,
    /// Set if each consumer of the group may get all messages.
    pub consume_broadcast_enable: Option<bool>,
    /// Set if the group consumes each queue in its order; 5.x and later.
    pub consume_message_orderly: Option<bool>,
    /// The number of queues of the group's retry topic.
    pub retry_queue_nums: Option<i32>,
    /// The number of retries after which a message is a dead letter.
    pub retry_max_times: Option<i32>,
    /// The time after which a message that was delivered is delivered again, in minutes; 5.x and later.
    pub consume_timeout_minute: Option<i32>,
}

/// Decodes `consumerOffset.json`, or `lmqConsumerOffset.json`, which has a second table. The result ascends.
///
/// # Errors
/// [`Malformed`] for bytes that are not such a file.
pub fn decode_consumer_offsets(json: &[u8]) -> Result<Vec<ConsumerOffset>, Malformed> {
    consumer_offsets_of(&decode_settings(json)?)
}

/// Returns the progress in the fields of `consumerOffset.json` or `lmqConsumerOffset.json`, ascending.
///
/// # Errors
/// [`Malformed`] for the fields of another file.
pub fn consumer_offsets_of(fields: &Map<String, Value>) -> Result<Vec<ConsumerOffset>, Malformed> {
    let mut offsets = Vec::new();
    for (topic_group, queues) in table(fields, "offsetTable")?.into_iter().flatten() {
        let path = || format!("offsetTable, {topic_group:?}");
        for (queue_id, offset) in numbered(as_table(queues, path)?, path)? {
            offsets.push(ConsumerOffset {
                topic_group: known_group(topic_group, false)?,
                queue_id,
                offset,
                is_lmq: false,
            });
        }
    }
    if let Some(light) = fields.get("lmqOffsetTable") {
        for (topic_group, offset) in as_table(light, || "lmqOffsetTable".to_owned())? {
            let path = || format!("lmqOffsetTable, {topic_group:?}");
            offsets.push(ConsumerOffset {
                topic_group: known_group(topic_group, true)?,
                queue_id: 0,
                offset: whole(offset, path)?,
                is_lmq: true,
            });
        }
    }
    offsets.sort();
    Ok(offsets)
}

/// Decodes `delayOffset.json`. The result ascends.
///
/// # Errors
/// [`Malformed`] for bytes that are not such a file.
pub fn decode_delay_offsets(json: &[u8]) -> Result<Vec<DelayOffset>, Malformed> {
    delay_offsets_of(&decode_settings(json)?)
}

/// Returns the progress in the fields of `delayOffset.json`, ascending.
///
/// # Errors
/// [`Malformed`] for the fields of another file.
pub fn delay_offsets_of(fields: &Map<String, Value>) -> Result<Vec<DelayOffset>, Malformed> {
    let levels =
        table(fields, "offsetTable")?.map_or_else(|| Ok(Vec::new()), |levels| numbered(levels, || "offsetTable".to_owned()))?;
    let levels = levels.into_iter();
    let mut offsets: Vec<_> = levels.map(|(level, offset)| DelayOffset { level, offset }).collect();
    offsets.sort();
    Ok(offsets)
}

/// Decodes `topics.json`. The result ascends by name.
///
/// # Errors
/// [`Malformed`] for bytes that are not such a file.
pub fn decode_topic_configs(json: &[u8]) -> Result<Vec<TopicConfig>, Malformed> {
    topic_configs_of(&decode_settings(json)?)
}

/// Returns the topics in the fields of `topics.json`, ascending by name.
///
/// # Errors
/// [`Malformed`] for the fields of another file.
pub fn topic_configs_of(fields: &Map<String, Value>) -> Result<Vec<TopicConfig>, Malformed> {
    let topics = table(fields, "topicConfigTable")?.into_iter().flatten();
    let configs = topics.map(|(topic, config)| decode_topic_config(topic, config));
    let mut configs: Vec<_> = configs.collect::<Result<_, _>>()?;
    configs.sort();
    Ok(configs)
}

/// Decodes the entry of one topic in `topics.json`.
///
/// # Errors
/// [`Malformed`] for a value of another type.
pub fn decode_topic_config(topic: &str, entry: &Value) -> Result<TopicConfig, Malformed> {
    let entry = Entry::of("topicConfigTable", topic, entry)?;
    let attributes = entry.given("attributes").map(|attributes| {
        let path = || entry.path("attributes");
        let attributes = as_table(attributes, path)?.iter();
        let text = |(name, value): (&String, &Value)| Ok((name.clone(), text(value, path)?));
        attributes.map(text).collect::<Result<_, Malformed>>()
    });
    let filter_type = entry.given("topicFilterType");
    Ok(TopicConfig {
        topic: topic.to_owned(),
        read_queue_nums: entry.number("readQueueNums")?,
        write_queue_nums: entry.number("writeQueueNums")?,
        perm: entry.number("perm")?,
        topic_filter_type: filter_type
            .map(|value| text(value, || entry.path("topicFilterType")))
            .transpose()?,
        topic_sys_flag: entry.number("topicSysFlag")?,
        order: entry.flag("order")?,
        attributes: attributes.transpose()?,
        grows: entry.flag(TopicConfig::GROWS)?.unwrap_or(false),
    })
}

/// Decodes `subscriptionGroup.json`. The result ascends by name.
///
/// # Errors
/// [`Malformed`] for bytes that are not such a file.
pub fn decode_subscription_groups(json: &[u8]) -> Result<Vec<SubscriptionGroupConfig>, Malformed> {
    subscription_groups_of(&decode_settings(json)?)
}

/// Returns the groups in the fields of `subscriptionGroup.json`, ascending by name.
///
/// # Errors
/// [`Malformed`] for the fields of another file.
pub fn subscription_groups_of(fields: &Map<String, Value>) -> Result<Vec<SubscriptionGroupConfig>, Malformed> {
    let groups = table(fields, "subscriptionGroupTable")?.into_iter().flatten();
    let configs = groups.map(|(group, config)| decode_subscription_group(group, config));
    let mut configs: Vec<_> = configs.collect::<Result<_, _>>()?;
    configs.sort();
    Ok(configs)
}

/// Decodes the entry of one group in `subscriptionGroup.json`.
///
/// # Errors
/// [`Malformed`] for a value of another type.
pub fn decode_subscription_group(group: &str, entry: &Value) -> Result<SubscriptionGroupConfig, Malformed> {
    let entry = Entry::of("subscriptionGroupTable", group, entry)?;
    Ok(SubscriptionGroupConfig {
        group: group.to_owned(),
        consume_enable: entry.flag("consumeEnable")?,
        consume_broadcast_enable: entry.flag("consumeBroadcastEnable")?,
        consume_message_orderly: entry.flag("consumeMessageOrderly")?,
        retry_queue_nums: entry.number("retryQueueNums")?,
        retry_max_times: entry.number("retryMaxTimes")?,
        consume_timeout_minute: entry.number("consumeTimeoutMinute")?,
    })
}

/// An entry of a table of settings, with its path for error messages. A field that is null counts as missing.
struct Entry<'a> {
    table: &'a str,
    name: &'a str,
    fields: &'a Map<String, Value>,
}

impl<'a> Entry<'a> {
    fn of(table: &'a str, name: &'a str, entry: &'a Value) -> Result<Self, Malformed> {
        let fields = as_table(entry, || format!("{table}, {name:?}"))?;
        Ok(Self { table, name, fields })
    }

    fn path(&self, field: &str) -> String {
        format!("{}, {:?}, {field}", self.table, self.name)
    }

    fn given(&self, field: &str) -> Option<&'a Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    fn number(&self, field: &str) -> Result<Option<i32>, Malformed> {
        let value = self.given(field);
        value.map(|value| whole(value, || self.path(field))).transpose()
    }

    fn flag(&self, field: &str) -> Result<Option<bool>, Malformed> {
        let flag = |value: &Value| {
            let flag = value.as_bool();
            flag.ok_or_else(|| Malformed::new(0, format!("{} is not true or false", self.path(field))))
        };
        self.given(field).map(flag).transpose()
    }
}

/// Decodes any settings file: its fields.
///
/// # Errors
/// [`Malformed`] for bytes that are not a JSON object, and for a `dataVersion` that is not one.
pub fn decode_settings(json: &[u8]) -> Result<Map<String, Value>, Malformed> {
    let fields = match parse(json)? {
        Value::Object(fields) => fields,
        other => return Err(Malformed::new(0, format!("the file is {}, not an object", shown(&other)))),
    };
    if let Some(version) = fields.get("dataVersion") {
        as_table(version, || "dataVersion".to_owned())?;
    }
    Ok(fields)
}

/// Returns the table of this name. A broker with nothing to store may write no field at all.
fn table<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<Option<&'a Map<String, Value>>, Malformed> {
    match fields.get(name) {
        Some(table) => as_table(table, || name.to_owned()).map(Some),
        None if fields.is_empty() => Ok(None),
        None => Err(Malformed::new(0, format!("there is no field {name:?}: this is another file"))),
    }
}

fn as_table(value: &Value, path: impl Fn() -> String) -> Result<&Map<String, Value>, Malformed> {
    let table = value.as_object();
    table.ok_or_else(|| Malformed::new(0, format!("{} is {}, not an object", path(), shown(value))))
}

/// Describes a value for an error message. An object or an array is not quoted: it may have many megabytes.
fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        scalar => scalar.to_string(),
    }
}

/// Decodes a table whose names and values are numbers.
fn numbered(table: &Map<String, Value>, path: impl Fn() -> String) -> Result<Vec<(i32, i64)>, Malformed> {
    let entry = |(name, value): (&String, &Value)| {
        let number = name.parse();
        let number = number.map_err(|_| Malformed::new(0, format!("{} has the name {name:?}, not a 32-bit number", path())))?;
        Ok((number, whole(value, || format!("{}, {name}", path()))?))
    };
    table.iter().map(entry).collect()
}

fn whole<T: TryFrom<i64>>(value: &Value, path: impl Fn() -> String) -> Result<T, Malformed> {
    let number = value.as_i64().and_then(|number| T::try_from(number).ok());
    let bits = 8 * size_of::<T>();
    number.ok_or_else(|| Malformed::new(0, format!("{} is {}, not a {bits}-bit number", path(), shown(value))))
}

fn text(value: &Value, path: impl Fn() -> String) -> Result<String, Malformed> {
    let text = value.as_str();
    Ok(text
        .ok_or_else(|| Malformed::new(0, format!("{} is {}, not text", path(), shown(value))))?
        .to_owned())
}

/// Returns the name of an entry, if it has a topic and a group.
fn known_group(topic_group: &str, is_lmq: bool) -> Result<String, Malformed> {
    let is_whole = if is_lmq {
        topic_group.contains(&format!("{TOPIC_GROUP_SEPARATOR}{LMQ_PREFIX}"))
    } else {
        topic_group.contains(TOPIC_GROUP_SEPARATOR)
    };
    if is_whole {
        return Ok(topic_group.to_owned());
    }
    Err(Malformed::new(
        0,
        format!("{topic_group:?} is not a topic and a group with a {TOPIC_GROUP_SEPARATOR} between them"),
    ))
}
