//! The settings files that a slave takes from its master: topics, groups, the progress of groups and that of delayed messages.
//!
//! A master answers what is on disk: progress there passes no message, and no retry or copy that settles a message, that a power failure can take.
//! A slave takes it once it holds the master's log up to the end that the master had then, so that the same is true there. It removes
//! nothing, and replaces no progress by older progress, except for progress that may pass what a cut of its log has removed: this begins
//! again at the start of the queue, or where the next answer says.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::cut_mark::CutMark;
use super::delay_offset::LOG_END;
use super::settings_file::{Fields, OWN_FIELD, SettingsFile};
use crate::error::Result;
use crate::format::{
    BrokerFile, CONSUMER_OFFSET_FILE, ConsumerOffset, DELAY_OFFSET_FILE, Malformed, SCHEDULE_TOPIC, SUBSCRIPTION_GROUP_FILE,
    TOPICS_FILE, consumer_offsets_of, decode_settings, delay_offsets_of, subscription_groups_of, topic_configs_of,
};
use crate::log::load_broker_settings;
use crate::store::MessageStore;

const DATA_VERSION: &str = "dataVersion";
pub(super) const OFFSET_TABLE: &str = "offsetTable";

/// A settings file that a slave takes from its master.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReplicatedFile {
    /// The topics.
    Topics,
    /// The settings of consumer groups.
    Groups,
    /// The progress of consumer groups.
    ConsumerOffsets,
    /// The progress of the delivery of delayed messages.
    DelayOffsets,
}

impl ReplicatedFile {
    /// All of them, in the order in which a slave takes them: progress after that to which it belongs.
    pub const ALL: [Self; 4] = [Self::Topics, Self::Groups, Self::ConsumerOffsets, Self::DelayOffsets];

    fn file(self) -> BrokerFile {
        match self {
            Self::Topics => TOPICS_FILE,
            Self::Groups => SUBSCRIPTION_GROUP_FILE,
            Self::ConsumerOffsets => CONSUMER_OFFSET_FILE,
            Self::DelayOffsets => DELAY_OFFSET_FILE,
        }
    }

    fn table(self) -> &'static str {
        match self {
            Self::Topics => "topicConfigTable",
            Self::Groups => "subscriptionGroupTable",
            Self::ConsumerOffsets | Self::DelayOffsets => OFFSET_TABLE,
        }
    }

    fn decode(self, json: &[u8]) -> std::result::Result<Fields, Malformed> {
        let fields = decode_settings(json)?;
        self.check(&fields).map(|()| fields)
    }

    fn check(self, fields: &Fields) -> std::result::Result<(), Malformed> {
        match self {
            Self::Topics => topic_configs_of(fields).map(drop),
            Self::Groups => subscription_groups_of(fields).map(drop),
            Self::ConsumerOffsets => consumer_offsets_of(fields).map(drop),
            Self::DelayOffsets => delay_offsets_of(fields).map(drop),
        }
    }

    /// Returns the file of a store as it is on disk, as JSON with a table and a version.
    ///
    /// # Errors
    /// Those of [`load_broker_settings`].
    pub(super) fn on_disk(self, store: &MessageStore) -> Result<Vec<u8>> {
        let reader = store.reader();
        let found = load_broker_settings(reader.env().as_ref(), reader.path(), self.file(), |json| self.decode(json))?;
        let mut fields = found.map(|settings| settings.content).unwrap_or_default();
        fields.entry(self.table()).or_insert_with(|| json!({}));
        // A slave of RocketMQ takes no topics without a version.
        let version = json!({ "counter": 0, "stateVersion": 0, "timestamp": 0 });
        fields.entry(DATA_VERSION).or_insert(version);
        Ok(Value::Object(fields).to_string().into_bytes())
    }

    pub(super) fn load(self, store: &MessageStore) -> SettingsFile {
        let reader = store.reader();
        SettingsFile::load(reader.env(), reader.path(), self.file(), |fields| self.check(fields))
    }
}

/// The settings that a master has answered.
#[derive(Debug, Default)]
pub struct ReceivedSettings {
    files: BTreeMap<ReplicatedFile, Fields>,
}

impl ReceivedSettings {
    /// Adds a file.
    ///
    /// # Errors
    /// [`Malformed`] for bytes that are no such file.
    pub fn add(&mut self, file: ReplicatedFile, json: &[u8]) -> std::result::Result<(), Malformed> {
        self.files.insert(file, file.decode(json)?);
        Ok(())
    }

    /// Merges them into the files of a store that holds the log of the master up to `log_end`, where it ended when it had answered.
    /// Progress ends with the queue, and never goes back unless a cut has removed what settled it. A file is written only if it changes.
    ///
    /// # Errors
    /// The damage of a file: it stays as it is. [`Error::Poisoned`]; [`Error::DiskFull`], [`Error::Io`]: the old file remains. Those of
    /// reading the queues.
    pub fn merge(&self, store: &MessageStore, log_end: i64) -> Result<()> {
        // The ends of the queues: what is dispatched later is taken with the next answer.
        store.catch_up(MessageStore::PATIENCE)?;
        let mut merged = Ok(());
        for (file, received) in &self.files {
            let one = match file {
                ReplicatedFile::Topics | ReplicatedFile::Groups => merge_entries(store, *file, received),
                ReplicatedFile::ConsumerOffsets => merge_consumer_offsets(store, received, log_end),
                ReplicatedFile::DelayOffsets => merge_delay_offsets(store, received),
            };
            // A damaged file does not keep the others from being taken.
            merged = merged.and(one);
        }
        merged
    }
}

/// Writes a file if its fields were changed, after the log is durable up to its end.
fn persist_changed(store: &MessageStore, file: &mut SettingsFile, before: &Fields) -> Result<()> {
    if file.fields()? == before {
        return Ok(());
    }
    file.persist_after_log(store)
}

fn merge_entries(store: &MessageStore, kind: ReplicatedFile, received: &Fields) -> Result<()> {
    let mut file = kind.load(store);
    let before = file.fields()?.clone();
    let received_table = |name: &str| received.get(name).and_then(Value::as_object).into_iter().flatten();
    let table = file.table(kind.table())?;
    table.extend(received_table(kind.table()).map(|(name, entry)| (name.clone(), entry.clone())));
    if received.contains_key(DATA_VERSION) {
        let version = file.table(DATA_VERSION)?;
        version.extend(received_table(DATA_VERSION).map(|(name, value)| (name.clone(), value.clone())));
    }
    persist_changed(store, &mut file, &before)
}

fn merge_consumer_offsets(store: &MessageStore, received: &Fields, log_end: i64) -> Result<()> {
    let mut file = ReplicatedFile::ConsumerOffsets.load(store);
    let (before, mark) = (file.fields()?.clone(), CutMark::of(&file));
    let topics = store.highest_queue_ids();
    restart_cut_progress(store, &mut file, &mark)?;
    for (name, queue_id, offset) in offsets_of(received) {
        let Some(topic) = topic_of(&name, |topic| topics.contains_key(topic)) else {
            continue;
        };
        let end = store.reader().queue_bounds(&topic, queue_id)?.end;
        let table = file.table(OFFSET_TABLE)?.entry(name).or_insert_with(|| json!({}));
        if let Some(queues) = table.as_object_mut() {
            raise(queues, queue_id, offset.min(end));
        }
    }
    drop_own_field(&mut file)?;
    let settled_end = if file.fields()?.get(OFFSET_TABLE) == before.get(OFFSET_TABLE) {
        mark.settled_end
    } else if offsets_of(&before).is_empty() {
        Some(log_end)
    } else {
        mark.settled_end.map(|end| end.max(log_end))
    };
    let taken = CutMark {
        settled_end,
        ..CutMark::default()
    };
    taken.write(&mut file)?;
    persist_changed(store, &mut file, &before)
}

/// Moves the progress that may pass what a cut has removed to the starts of the queues. What the master answers is raised from there.
fn restart_cut_progress(store: &MessageStore, file: &mut SettingsFile, mark: &CutMark) -> Result<()> {
    if mark.of_cut_log.is_empty() {
        return Ok(());
    }
    let topics = store.highest_queue_ids();
    for (name, queue_id, _) in offsets_of(file.fields()?) {
        let topic = topic_of(&name, |topic| topics.contains_key(topic)).filter(|_| mark.of_cut_log.contains(&name));
        let Some(topic) = topic else { continue };
        let start = store.reader().queue_bounds(&topic, queue_id)?.start;
        set_offset(file, &name, queue_id, start)?;
    }
    Ok(())
}

/// Sets the progress of this name in a queue.
pub(super) fn set_offset(file: &mut SettingsFile, name: &str, queue_id: i32, offset: i64) -> Result<()> {
    if let Some(queues) = file.table(OFFSET_TABLE)?.get_mut(name).and_then(Value::as_object_mut) {
        queues.insert(queue_id.to_string(), Value::from(offset));
    }
    Ok(())
}

/// Takes the progress of all levels, or of none: together with the end of the log it is one snapshot.
fn merge_delay_offsets(store: &MessageStore, received: &Fields) -> Result<()> {
    let mut file = ReplicatedFile::DelayOffsets.load(store);
    let before = file.fields()?.clone();
    let table = file.table(OFFSET_TABLE)?;
    let mut merged = table.clone();
    for (level, offset) in levels_of(received) {
        let end = store.reader().queue_bounds(SCHEDULE_TOPIC, level - 1)?.end;
        let (taken, key) = (offset.min(end), level.to_string());
        let known = table.get(&key).and_then(Value::as_i64);
        if known.is_some_and(|known| known > taken) {
            return Ok(());
        }
        merged.insert(key, Value::from(taken));
    }
    *table = merged;
    drop_own_field(&mut file)?;
    if let Some(log_end) = received.get(OWN_FIELD).and_then(|own| own.get(LOG_END)?.as_i64()) {
        let log_end = log_end.min(store.appended_offset());
        file.table(OWN_FIELD)?.insert(LOG_END.to_owned(), Value::from(log_end));
    }
    persist_changed(store, &mut file, &before)
}

/// Sets the progress in a queue, unless it is older.
fn raise(queues: &mut Fields, queue_id: i32, offset: i64) {
    let key = queue_id.to_string();
    let known = queues.get(&key).and_then(Value::as_i64).unwrap_or(i64::MIN);
    if offset > known {
        queues.insert(key, Value::from(offset));
    }
}

/// Removes what only the writer of this log can know. A file without it counts as one of a broker.
pub(super) fn drop_own_field(file: &mut SettingsFile) -> Result<()> {
    file.remove(OWN_FIELD)
}

/// Returns the progress in the fields of `consumerOffset.json`: topic and group, queue, offset.
pub(super) fn offsets_of(fields: &Fields) -> Vec<(String, i32, i64)> {
    let table = fields.get(OFFSET_TABLE).and_then(Value::as_object).into_iter().flatten();
    let queues = table.filter_map(|(name, queues)| Some((name, queues.as_object()?)));
    let offsets =
        queues.flat_map(|(name, queues)| numbers_of(queues).map(move |(queue_id, offset)| (name.clone(), queue_id, offset)));
    offsets.collect()
}

/// Returns the progress in the fields of `delayOffset.json`, of the levels that have a queue.
pub(super) fn levels_of(fields: &Fields) -> Vec<(i32, i64)> {
    let table = fields.get(OFFSET_TABLE).and_then(Value::as_object).into_iter();
    table.flat_map(numbers_of).filter(|(level, _)| *level > 0).collect()
}

fn numbers_of(table: &Fields) -> impl Iterator<Item = (i32, i64)> {
    let numbers = table.iter();
    numbers
        .filter_map(|(key, value)| Some((key.parse().ok()?, value.as_i64()?)))
        .filter(|(key, offset)| *key >= 0 && *offset >= 0)
}

/// Returns the topic in a name of topic and group; `None` for a name that is not one.
pub(super) fn topic_of(topic_group: &str, is_topic: impl Fn(&str) -> bool) -> Option<String> {
    let names = ConsumerOffset {
        topic_group: topic_group.to_owned(),
        queue_id: 0,
        offset: 0,
        is_lmq: false,
    };
    names.names(is_topic).map(|(topic, _)| topic.to_owned())
}
