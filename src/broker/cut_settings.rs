//! The progress of a slave before its log is cut: no progress may pass a message that only the part after the cut has settled.
//!
//! | progress | settled by | before the cut |
//! |-|-|-|
//! | of a group | an acknowledgement, which no record has | stays, up to the end of the queue |
//! | of a group | a retry or a dead letter after the cut | back to the message that it names as its origin |
//! | of transactions | a copy or an op message | to the starts of the queues |
//! | of delayed messages | a copy | to the starts of the queues: a writer finds the copies that are left |
//! | of timer messages | a copy | to the start, in the same way |
//!
//! Progress whose records all are before the cut stays: the files say where these records end.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::consumer_offset::name_of;
use super::copies::{CopySearch, real_place};
use super::cut_mark::CutMark;
use super::delay_offset::stored_log_end;
use super::replicated_settings::{OFFSET_TABLE, ReplicatedFile, drop_own_field, levels_of, offsets_of, set_offset, topic_of};
use super::retry::DEAD_LETTER_PREFIX;
use super::settings_file::SettingsFile;
use super::timer_offset::load_timer_check;
use super::transaction_record::TRANSACTION_GROUP;
use crate::error::{Error, Result};
use crate::format::{
    CONFIG_DIR, MessageId, MessageView, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_CHECK_FILE, TOPIC_GROUP_SEPARATOR, TimerCheck,
    TimerProgress, property,
};
use crate::storage::{Step, replace_file};
use crate::store::MessageStore;

/// Lowers the progress of groups, transactions, delayed messages and timer messages to what a log that ends at `log_end` settles, durably,
/// in both versions of each file. Called before the log is cut there.
///
/// # Errors
/// [`Error::DiskFull`], [`Error::Io`]: the old file remains. Those of reading log and queues.
pub fn cut_settings(store: &MessageStore, log_end: i64) -> Result<()> {
    for kind in [ReplicatedFile::ConsumerOffsets, ReplicatedFile::DelayOffsets] {
        let mut file = kind.load(store);
        let cut = match kind {
            ReplicatedFile::DelayOffsets => cut_delays(store, &mut file, log_end),
            _ => cut_groups(store, &mut file, log_end),
        };
        match cut {
            // No writer uses a damaged file, nor overwrites it.
            Err(Error::Corrupt { .. } | Error::Unsupported { .. }) if file.fields().is_err() => {}
            cut => cut?,
        }
    }
    cut_timers(store, log_end)
}

fn cut_delays(store: &MessageStore, file: &mut SettingsFile, log_end: i64) -> Result<()> {
    let levels = levels_of(file.fields()?);
    if levels.is_empty() || stored_log_end(file).is_some_and(|end| end <= log_end) {
        return Ok(());
    }
    for (level, _) in levels {
        let start = store.reader().queue_bounds(SCHEDULE_TOPIC, level - 1)?.start;
        file.table(OFFSET_TABLE)?.insert(level.to_string(), start.into());
    }
    drop_own_field(file)?;
    file.persist_cut()
}

/// The progress of a broker stays: only its wheel says what it has delivered.
fn cut_timers(store: &MessageStore, log_end: i64) -> Result<()> {
    let reader = store.reader();
    let Some(file) = load_timer_check(reader)? else {
        return Ok(());
    };
    if file.progress.is_none_or(|progress| progress.log_end <= log_end) {
        return Ok(());
    }
    let restarted = TimerCheck {
        progress: Some(TimerProgress::default()),
        ..file
    };
    let path = reader.path().join(CONFIG_DIR).join(TIMER_CHECK_FILE);
    let env = reader.env().as_ref();
    replace_file(env, &path, &restarted.encode(), Step::SettingsFile, Step::SettingsRenamed)
}

fn cut_groups(store: &MessageStore, file: &mut SettingsFile, log_end: i64) -> Result<()> {
    if file.fields()?.is_empty() {
        return Ok(());
    }
    let topics = store.highest_queue_ids();
    for (name, queue_id, offset) in offsets_of(file.fields()?) {
        let Some(topic) = topic_of(&name, |topic| topics.contains_key(topic)) else {
            continue;
        };
        let end = store.reader().queue_end_at(&topic, queue_id, log_end)?;
        set_offset(file, &name, queue_id, offset.min(end))?;
    }
    let mut mark = CutMark::of(file);
    let settled_end = mark.settled_end.unwrap_or(i64::MAX).min(store.appended_offset());
    if settled_end > log_end {
        restart_transactions(store, file)?;
        mark.of_cut_log.extend(lower_to_origins(store, file, log_end..settled_end)?);
    }
    mark.settled_end = Some(settled_end.min(log_end));
    drop_own_field(file)?;
    mark.write(file)?;
    file.persist_cut()
}

fn restart_transactions(store: &MessageStore, file: &mut SettingsFile) -> Result<()> {
    for (name, queue_id, _) in offsets_of(file.fields()?) {
        if let Some((topic, TRANSACTION_GROUP)) = name.rsplit_once(TOPIC_GROUP_SEPARATOR) {
            let start = store.reader().queue_bounds(topic, queue_id)?.start;
            set_offset(file, &name, queue_id, start)?;
        }
    }
    Ok(())
}

/// A retry or a dead letter, which has settled a message for a group.
#[derive(Debug)]
struct SentBack {
    group: String,
    /// The topic of the message.
    topic: Option<String>,
    origin: Option<MessageId>,
    born_time: i64,
}

impl SentBack {
    /// Returns `None` for any other message, and for a retry that was delivered: the delayed message before it has settled the message.
    fn of(view: &MessageView<'_>) -> Option<Self> {
        let place = real_place(view);
        let is_copy = place
            .as_ref()
            .is_some_and(|(topic, queue_id)| view.has_topic(topic) && view.queue_id() == *queue_id);
        let group_of = |topic: &str| {
            let group = topic
                .strip_prefix(RETRY_PREFIX)
                .or_else(|| topic.strip_prefix(DEAD_LETTER_PREFIX));
            group.map(str::to_owned)
        };
        let group = group_of(&view.topic()).or_else(|| group_of(&place?.0)).filter(|_| !is_copy)?;
        let value = |name| Some(view.properties().get(name)?.into_owned());
        Some(Self {
            group,
            topic: value(property::RETRY_TOPIC),
            origin: value(property::ORIGIN_MESSAGE_ID).and_then(|id| id.parse().ok()),
            born_time: view.born_time(),
        })
    }

    /// Returns the queue id and the queue offset of the message; `None` if it has expired or cannot be read, or is another one: the
    /// origin may be an id of a client.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn settled(&self, store: &MessageStore) -> Result<Option<(i32, i64)>> {
        let (Some(origin), Some(topic)) = (self.origin, &self.topic) else {
            return Ok(None);
        };
        match store.reader().message_at(origin.physical_offset) {
            Ok(message) => {
                let view = message.view();
                let is_it = view.has_topic(topic) && view.born_time() == self.born_time;
                Ok(is_it.then(|| (view.queue_id(), view.queue_offset())))
            }
            Err(error) if error.is_damage() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Takes groups back to the messages that only this part of the log has settled. Returns the names of the progress for which such a
/// message was not found.
fn lower_to_origins(store: &MessageStore, file: &mut SettingsFile, part: Range<i64>) -> Result<BTreeSet<String>> {
    // The first message that a retry names, by the name of the progress and the queue.
    let mut lowest: BTreeMap<(String, i32), i64> = BTreeMap::new();
    // The groups of retries without their message, and the names of the progress if the topic is known.
    let mut lost = BTreeSet::new();
    let mut search = CopySearch::new(part);
    while !search.is_done() {
        for (_, sent_back) in search.read(store.reader(), SentBack::of)? {
            let settled = sent_back.settled(store)?;
            let name = sent_back.topic.as_ref().map(|topic| name_of(&sent_back.group, topic));
            match name.clone().zip(settled) {
                Some((name, (queue_id, settled))) => {
                    let first = lowest.entry((name, queue_id)).or_insert(settled);
                    *first = settled.min(*first);
                }
                None => {
                    lost.insert((sent_back.group, name));
                }
            }
        }
    }
    let mut of_cut_log = BTreeSet::new();
    for (name, queue_id, offset) in offsets_of(file.fields()?) {
        let key = (name, queue_id);
        if let Some(settled) = lowest.get(&key) {
            set_offset(file, &key.0, queue_id, offset.min(*settled))?;
        }
        let (name, _) = key;
        let group = name
            .rsplit_once(TOPIC_GROUP_SEPARATOR)
            .map_or("", |(_, group)| group)
            .to_owned();
        if lost.contains(&(group.clone(), None)) || lost.contains(&(group, Some(name.clone()))) {
            of_cut_log.insert(name);
        }
    }
    Ok(of_cut_log)
}
