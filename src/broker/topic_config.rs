//! `config/topics.json`: the topics, their queues and permissions.
//!
//! A broker serves only topics with an entry, and may delete the queues of others. So each topic that gets messages also gets an entry
//! here. An entry that [`TopicConfigs::persist`] has made grows with its topic, and says so in a field of its own. Any other entry
//! was made by `create_topic` or by a broker, and binds producers.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::settings_file::{Fields, SettingsFile};
use crate::error::{Error, Result};
use crate::format::{
    DelayLevels, MessageType, SCHEDULE_TOPIC, TOPICS_FILE, TopicConfig, decode_topic_config, is_light_queue, is_system_topic,
    topic_configs_of, validate_broker_topic,
};
use crate::store::{MessageStore, TopicRule};
use crate::sync::{Mutex, lock};

const TOPIC_TABLE: &str = "topicConfigTable";
const MESSAGE_TYPE: &str = "message.type";
/// The values that a broker takes for fields that are missing.
const DEFAULT_QUEUES: i32 = 16;
const DEFAULT_PERM: i32 = 6;
/// A queue id is below this.
pub(super) const MAX_QUEUES: i32 = 65_536;

/// The settings of a topic that is created or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicSettings {
    /// The number of queues.
    pub queues: i32,
    /// The permissions: 2 writing, 4 reading, 6 both; 1 more for a template of topics that a broker creates.
    pub perm: i32,
    /// Set if the order of the topic is kept while brokers come and go.
    pub order: bool,
    /// The type of its messages. `None` keeps the type that the topic has.
    pub message_type: Option<MessageType>,
}

impl TopicSettings {
    /// # Errors
    /// [`Error::Invalid`] for a value that no broker takes.
    fn validate(&self, topic: &str) -> Result<()> {
        let refuse = |what: String| Err(Error::Invalid { what });
        if let Err(malformed) = validate_broker_topic(topic) {
            return refuse(malformed.reason.into_owned());
        }
        if is_system_topic(topic) {
            return refuse(format!("topic {topic:?} belongs to the broker, which makes it itself"));
        }
        if !(1..=MAX_QUEUES).contains(&self.queues) {
            return refuse(format!("queues is {}: expected 1 to {MAX_QUEUES}", self.queues));
        }
        if !(2..=7).contains(&self.perm) {
            return refuse(format!(
                "perm is {}: expected 2 (write), 4 (read) or 6 (both), or one of them + 1 (a template for new topics)",
                self.perm
            ));
        }
        Ok(())
    }
}

/// The topics of a store that is open for writing.
#[derive(Debug)]
pub struct TopicConfigs {
    store: Arc<MessageStore>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: SettingsFile,
    /// The end of the log up to which every topic has an entry on disk. `None` if topics before the open may have none.
    complete_to: Option<i64>,
    /// Set while entries of topics with messages are not on disk, after a failure.
    is_dirty: bool,
}

impl TopicConfigs {
    /// Reads the topics of a store, and binds its producers to their settings. A damaged file binds nobody, and makes each call fail that
    /// needs it.
    pub(super) fn load(store: &Arc<MessageStore>) -> Self {
        let reader = store.reader();
        let file = SettingsFile::load(reader.env(), reader.path(), TOPICS_FILE, |fields| {
            topic_configs_of(fields).map(drop)
        });
        let entries = || file.fields().ok().and_then(|fields| fields.get(TOPIC_TABLE)?.as_object());
        let rules = entries()
            .into_iter()
            .flatten()
            .filter_map(|(topic, entry)| rule(topic, entry));
        store.topics().set(rules);
        // A crash may have left topics without an entry in a file of ours, or no file in a store of ours.
        let is_growing = |(_, entry): (&String, &Value)| entry.as_object().is_some_and(is_growing);
        let is_absent = file.fields().is_ok_and(Map::is_empty);
        let is_own_log = || {
            store
                .was_own_from()
                .is_some_and(|from| from <= reader.physical_bounds().start)
        };
        let is_ours = entries().into_iter().flatten().any(is_growing) || (is_absent && is_own_log());
        let complete_to = (!is_ours).then(|| store.appended_offset());
        Self {
            store: store.clone(),
            state: Mutex::new(State {
                file,
                complete_to,
                is_dirty: false,
            }),
        }
    }

    /// Returns the settings of a topic; `None` if it has none.
    ///
    /// # Errors
    /// The damage of the file.
    pub fn get(&self, topic: &str) -> Result<Option<TopicConfig>> {
        let state = lock(&self.state);
        let entry = state.file.fields()?.get(TOPIC_TABLE).and_then(|table| table.get(topic));
        let decode = |entry| decode_topic_config(topic, entry).map_err(|malformed| state.file.damage(&malformed));
        entry.map(decode).transpose()
    }

    /// Creates a topic, or changes its settings, durably. Does nothing if the topic has these settings. A queue with messages stays
    /// readable.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name or value that no broker takes; the damage of the file; [`Error::DiskFull`], [`Error::Io`]: the old
    /// settings remain on disk.
    pub fn create(&self, topic: &str, settings: &TopicSettings) -> Result<()> {
        settings.validate(topic)?;
        let highest = self.store.highest_queue_ids().get(topic).copied();
        let mut state = lock(&self.state);
        let table = state.file.table(TOPIC_TABLE)?;
        let old = table.get(topic).cloned();
        let mut entry = old.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
        settings.apply(topic, highest, &mut entry);
        let entry = Value::Object(entry);
        if old.as_ref() == Some(&entry) {
            return Ok(());
        }
        table.insert(topic.to_owned(), entry.clone());
        if let Err(error) = state.file.persist_change() {
            let table = state.file.table(TOPIC_TABLE)?;
            match old {
                Some(old) => table.insert(topic.to_owned(), old),
                None => table.remove(topic),
            };
            return Err(error);
        }
        self.store.topics().set(rule(topic, &entry));
        Ok(())
    }

    /// Makes sure that each topic with messages has an entry on disk with all its queues. Costs one load if nothing was appended since
    /// the last call. A damaged file stays as it is.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`]: it may be called again.
    pub(super) fn persist(&self) -> Result<()> {
        let end = self.store.appended_offset();
        let mut state = lock(&self.state);
        let mut is_dirty = state.is_dirty;
        if state.complete_to.is_some_and(|complete_to| complete_to >= end) {
            return Ok(());
        }
        let Ok(table) = state.file.table(TOPIC_TABLE) else {
            return Ok(());
        };
        let mut rules = Vec::new();
        for (topic, highest) in self.store.highest_queue_ids() {
            // A broker keeps no settings of light queues.
            if !is_light_queue(&topic) && ensure(table, &topic, highest) {
                rules.extend(table.get(&topic).and_then(|entry| rule(&topic, entry)));
                is_dirty = true;
            }
        }
        self.store.topics().set(rules);
        state.is_dirty = is_dirty;
        if is_dirty {
            state.file.persist_change()?;
            state.is_dirty = false;
        }
        state.complete_to = Some(end);
        Ok(())
    }
}

impl TopicSettings {
    /// Writes the settings into the entry of a topic. Other fields stay.
    fn apply(&self, topic: &str, highest: Option<i32>, entry: &mut Fields) {
        let read = highest.map_or(self.queues, |highest| self.queues.max(highest.saturating_add(1)));
        entry.insert("topicName".to_owned(), Value::from(topic));
        entry.insert("readQueueNums".to_owned(), Value::from(read));
        entry.insert("writeQueueNums".to_owned(), Value::from(self.queues));
        entry.insert("perm".to_owned(), Value::from(self.perm));
        entry.insert("order".to_owned(), Value::from(self.order));
        add_defaults(entry);
        entry.remove(TopicConfig::GROWS);
        let Some(message_type) = self.message_type else { return };
        let attributes = entry.entry("attributes").or_insert_with(|| Value::Object(Map::new()));
        if let Some(attributes) = attributes.as_object_mut() {
            attributes.insert(MESSAGE_TYPE.to_owned(), Value::from(message_type.name()));
        }
    }
}

/// Makes sure that the entry of a topic has all queues up to `highest`. Returns true if it was changed.
fn ensure(table: &mut Fields, topic: &str, highest: i32) -> bool {
    let queues = queues_of(topic, highest);
    let Some(entry) = table.get_mut(topic).and_then(Value::as_object_mut) else {
        let mut entry = Fields::new();
        entry.insert("topicName".to_owned(), Value::from(topic));
        entry.insert("readQueueNums".to_owned(), Value::from(queues));
        entry.insert("writeQueueNums".to_owned(), Value::from(queues));
        entry.insert("perm".to_owned(), Value::from(DEFAULT_PERM));
        entry.insert("order".to_owned(), Value::from(false));
        add_defaults(&mut entry);
        entry.insert(TopicConfig::GROWS.to_owned(), Value::from(true));
        table.insert(topic.to_owned(), Value::Object(entry));
        return true;
    };
    // The number of queues to write is the choice of whoever has made the entry.
    let names: &[&str] = if is_growing(entry) {
        &["readQueueNums", "writeQueueNums"]
    } else {
        &["readQueueNums"]
    };
    let mut is_changed = false;
    for name in names {
        let stated = entry.get(*name).and_then(Value::as_i64);
        if stated.unwrap_or(i64::from(DEFAULT_QUEUES)) < i64::from(queues) {
            entry.insert((*name).to_owned(), Value::from(queues));
            is_changed = true;
        }
    }
    is_changed
}

/// Returns the number of queues that a topic needs.
fn queues_of(topic: &str, highest: i32) -> i32 {
    let queues = highest.saturating_add(1);
    if topic == SCHEDULE_TOPIC {
        // A queue for each level, as a broker makes them.
        queues.max(DelayLevels::default().max_level())
    } else {
        queues
    }
}

fn add_defaults(entry: &mut Fields) {
    let defaults = [
        ("topicFilterType", Value::from("SINGLE_TAG")),
        ("topicSysFlag", Value::from(0)),
    ];
    for (name, value) in defaults {
        entry.entry(name).or_insert(value);
    }
}

fn is_growing(entry: &Fields) -> bool {
    entry.get(TopicConfig::GROWS).and_then(Value::as_bool) == Some(true)
}

/// Returns the rule of a topic for its producers; `None` for a topic that grows.
fn rule(topic: &str, entry: &Value) -> Option<(String, TopicRule)> {
    let config = decode_topic_config(topic, entry).ok().filter(|config| !config.grows)?;
    let attributes = config.attributes.iter().flatten();
    let message_type = attributes
        .filter(|(name, _)| name == MESSAGE_TYPE)
        .find_map(|(_, value)| MessageType::parse(value));
    let rule = TopicRule::new(
        config.perm.unwrap_or(DEFAULT_PERM),
        config.read_queue_nums.unwrap_or(DEFAULT_QUEUES),
        config.write_queue_nums.unwrap_or(DEFAULT_QUEUES),
        message_type,
    );
    Some((topic.to_owned(), rule))
}
