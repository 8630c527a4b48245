//! `config/consumerOffset.json`: the progress of consumer groups. No record has it, so this file is its only home.
//!
//! It never passes a message, or the retry or dead letter that settles a message, that a power failure can take, or that is in a topic
//! without an entry: the log is flushed between each snapshot of the progress and the write of the file. Callers that commit at the same
//! time share a write (leader/follower group commit).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::cut_mark::CutMark;
use super::lost_progress::note_lost_progress;
use super::settings_file::{Fields, OWN_FIELD, SettingsFile};
use super::topic_config::TopicConfigs;
use super::transaction_mark::TransactionMark;
use crate::error::Result;
use crate::format::{BrokerFile, CONSUMER_OFFSET_FILE, LMQ_CONSUMER_OFFSET_FILE, TOPIC_GROUP_SEPARATOR, consumer_offsets_of};
use crate::store::MessageStore;
use crate::sync::{Mutex, lock};
use crate::watermark::{Wait, Watermark};

const OFFSET_TABLE: &str = "offsetTable";
/// The progress in light queues, in a file of its own.
const LMQ_OFFSET_TABLE: &str = "lmqOffsetTable";
/// The progress of a group that has none yet.
const NO_PROGRESS: i64 = -1;

/// The progress of all consumer groups of a store that is open for writing.
#[derive(Debug)]
pub(super) struct ConsumerOffsets {
    store: Arc<MessageStore>,
    topics: Arc<TopicConfigs>,
    file: Mutex<SettingsFile>,
    /// Keyed by topic and group, as the file names them, and queue id.
    progress: Mutex<BTreeMap<String, BTreeMap<i32, Arc<QueueProgress>>>>,
    /// Counts changes of progress.
    changes: Arc<AtomicI64>,
    /// The changes that are on disk.
    persisted: Watermark,
    /// Written beside the progress, once a call has needed the transactions.
    mark: Mutex<Option<TransactionMark>>,
}

/// The progress of a group in a queue: the queue offset of the message that it gets next.
#[derive(Debug)]
pub(super) struct QueueProgress {
    offset: AtomicI64,
    changes: Arc<AtomicI64>,
}

impl QueueProgress {
    /// The progress `offset`; `None` for none yet. Changes are counted in `changes`.
    pub(super) fn new(offset: Option<i64>, changes: &Arc<AtomicI64>) -> Self {
        Self {
            offset: AtomicI64::new(offset.unwrap_or(NO_PROGRESS)),
            changes: changes.clone(),
        }
    }

    /// Returns the progress; `None` if the group has none.
    pub(super) fn get(&self) -> Option<i64> {
        Some(self.offset.load(Ordering::Acquire)).filter(|offset| *offset != NO_PROGRESS)
    }

    /// Sets the progress. The caller has appended what settles the messages before it.
    pub(super) fn set(&self, offset: i64) {
        if self.offset.swap(offset, Ordering::AcqRel) != offset {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl ConsumerOffsets {
    /// Reads the progress of the groups of a store. A file that cannot be used makes each call fail that needs it.
    pub(super) fn load(store: &Arc<MessageStore>, topics: Arc<TopicConfigs>) -> Self {
        let mut file = load_file(store, CONSUMER_OFFSET_FILE);
        let of_writer = CutMark {
            settled_end: None,
            ..CutMark::of(&file)
        };
        // A damaged file has no mark, and is not written.
        let _ = of_writer.write(&mut file);
        note_lost_progress(store.reader(), &mut file);
        Self {
            store: store.clone(),
            topics,
            file: Mutex::new(file),
            progress: Mutex::default(),
            changes: Arc::default(),
            persisted: Watermark::new(0),
            mark: Mutex::default(),
        }
    }

    /// Returns the mark of the transactions that the file has; `None` if a broker has written the file.
    ///
    /// # Errors
    /// The damage of the file.
    pub(super) fn stored_mark(&self) -> Result<Option<TransactionMark>> {
        Ok(TransactionMark::of_fields(lock(&self.file).fields()?))
    }

    /// Changes the mark of the transactions, which the next persist writes.
    pub(super) fn change_mark(&self, change: impl FnOnce(&mut TransactionMark)) {
        change(lock(&self.mark).get_or_insert_default());
    }

    /// Makes the next persist write the file although no progress has changed.
    pub(super) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the progress of a group in a queue, for reading and setting.
    ///
    /// # Errors
    /// The damage of the file.
    pub(super) fn of_queue(&self, group: &str, topic: &str, queue_id: i32) -> Result<Arc<QueueProgress>> {
        let name = name_of(group, topic);
        let file = lock(&self.file);
        let stored = stored_offset(file.fields()?, &name, queue_id);
        let mut progress = lock(&self.progress);
        let queues = progress.entry(name).or_default();
        let known = queues
            .entry(queue_id)
            .or_insert_with(|| Arc::new(QueueProgress::new(stored, &self.changes)));
        Ok(known.clone())
    }

    /// Returns true if a group has progress in a queue of the topic.
    ///
    /// # Errors
    /// The damage of the file.
    pub(super) fn has_progress(&self, group: &str, topic: &str) -> Result<bool> {
        let name = name_of(group, topic);
        let file = lock(&self.file);
        let is_stored = file
            .fields()?
            .get(OFFSET_TABLE)
            .is_some_and(|table| table.get(&name).is_some());
        let known = lock(&self.progress);
        let mut queues = known.get(&name).into_iter().flat_map(BTreeMap::values);
        Ok(is_stored || queues.any(|queue| queue.get().is_some()))
    }

    /// Returns the progress of the groups that have consumed in this process: topic and group as the file names them, queue, offset.
    pub(super) fn live(&self) -> Vec<(String, i32, i64)> {
        let progress = lock(&self.progress);
        let queues = progress
            .iter()
            .flat_map(|(name, queues)| queues.iter().map(move |queue| (name, queue)));
        queues
            .filter_map(|(name, (queue_id, progress))| Some((name.clone(), *queue_id, progress.get()?)))
            .collect()
    }

    /// Makes all progress so far durable. Callers at the same time share one write of the file.
    ///
    /// # Errors
    /// The damage of the file; [`Error::Poisoned`]; [`Error::DiskFull`], [`Error::Io`]: the file has older progress.
    pub(super) fn persist(&self) -> Result<()> {
        let wanted = self.changes.load(Ordering::Acquire);
        loop {
            match self.persisted.wait_or_lead(wanted, None) {
                Ok(leading) => {
                    let written = self.write()?;
                    leading.finish(written, Duration::ZERO);
                    return Ok(());
                }
                Err(Wait::Reached) => return Ok(()),
                Err(Wait::Poisoned(cause)) => return Err(cause),
                Err(Wait::TimedOut) => {}
            }
        }
    }

    /// Returns the progress that may pass messages which only records have settled that were cut while the store was a slave's: topic and
    /// group as the file names them.
    pub(super) fn of_cut_log(&self) -> BTreeSet<String> {
        CutMark::of(&lock(&self.file)).of_cut_log
    }

    /// Notes that the progress of a group in a topic was set by its user: the next persist writes it as any other.
    ///
    /// # Errors
    /// The damage of the file.
    pub(super) fn forget_cut(&self, group: &str, topic: &str) -> Result<()> {
        let mut file = lock(&self.file);
        let mut mark = CutMark::of(&file);
        if mark.of_cut_log.remove(&name_of(group, topic)) {
            mark.write(&mut file)?;
            self.note_change();
        }
        Ok(())
    }

    /// Removes the progress of a group in all topics, durably. Returns false if it has none.
    ///
    /// # Errors
    /// Those of [`persist`](Self::persist): the group keeps its progress.
    pub(super) fn remove(&self, group: &str) -> Result<bool> {
        let is_of_group = |name: &str| {
            let topic = name.strip_suffix(group);
            topic.is_some_and(|topic| topic.ends_with(TOPIC_GROUP_SEPARATOR))
        };
        let was_light = self.remove_light(is_of_group)?;
        let mut file = lock(&self.file);
        let table = file.table(OFFSET_TABLE)?;
        let before = table.clone();
        table.retain(|name, _| !is_of_group(name));
        let is_stored = table.len() < before.len();
        if is_stored {
            let mark = CutMark::of(&file);
            let mut of_others = mark.clone();
            of_others.of_cut_log.retain(|name| !is_of_group(name));
            of_others.write(&mut file)?;
            // The rest of the table may have progress that a failed persist has not written.
            if let Err(error) = file.persist_after_log(&self.store) {
                *file.table(OFFSET_TABLE)? = before;
                mark.write(&mut file)?;
                return Err(error);
            }
        }
        let mut progress = lock(&self.progress);
        let known = progress.len();
        progress.retain(|name, _| !is_of_group(name));
        Ok(is_stored || was_light || progress.len() < known)
    }

    /// Removes the progress of a group from the file of a broker with light queues, durably. Returns false if it has none. Readers prefer
    /// what that file says.
    fn remove_light(&self, is_of_group: impl Fn(&str) -> bool) -> Result<bool> {
        let mut file = load_file(&self.store, LMQ_CONSUMER_OFFSET_FILE);
        let mut removed = 0;
        for name in [OFFSET_TABLE, LMQ_OFFSET_TABLE] {
            if file.fields()?.contains_key(name) {
                let table = file.table(name)?;
                let known = table.len();
                table.retain(|name, _| !is_of_group(name));
                removed += known - table.len();
            }
        }
        if removed > 0 {
            file.persist_after_log(&self.store)?;
        }
        Ok(removed > 0)
    }

    /// Writes the file, and returns the number of changes that it has.
    fn write(&self) -> Result<i64> {
        let mut file = lock(&self.file);
        let mut written = self.settle(&mut file)?;
        // Callers that have arrived during these syncs share the write of the file. A lone caller waits for no other.
        if self.persisted.waiting() > 0 && self.changes.load(Ordering::Acquire) > written {
            written = self.settle(&mut file)?;
        }
        file.persist()?;
        Ok(written)
    }

    /// Puts the progress into the file's fields, then makes durable what it passes, and returns the number of changes that it has. A
    /// second call costs no sync unless messages were appended after the first.
    fn settle(&self, file: &mut SettingsFile) -> Result<i64> {
        let changes = self.snapshot(file)?;
        // A broker serves retries and dead letters only in topics with an entry.
        self.topics.persist()?;
        self.store.flush()?;
        Ok(changes)
    }

    /// Puts the progress and the mark of the transactions into the file's fields.
    fn snapshot(&self, file: &mut SettingsFile) -> Result<i64> {
        let changes = self.changes.load(Ordering::Acquire);
        let table = file.table(OFFSET_TABLE)?;
        for (name, queues) in &*lock(&self.progress) {
            for (queue_id, progress) in queues {
                let Some(offset) = progress.get() else { continue };
                let of_group = table.entry(name.as_str()).or_insert_with(|| Value::Object(Fields::new()));
                if let Some(of_group) = of_group.as_object_mut() {
                    of_group.insert(queue_id.to_string(), Value::from(offset));
                }
            }
        }
        if let Some(mark) = &*lock(&self.mark) {
            mark.write(file.table(OWN_FIELD)?);
        }
        Ok(changes)
    }
}

/// Reads a file of progress. One with another structure counts as damaged: what it says of groups is not known, so nobody continues
/// there, and nothing overwrites it.
fn load_file(store: &MessageStore, file: BrokerFile) -> SettingsFile {
    let reader = store.reader();
    SettingsFile::load(reader.env(), reader.path(), file, |fields| {
        consumer_offsets_of(fields).map(drop)
    })
}

/// Returns the name of a group's progress in a topic.
pub(super) fn name_of(group: &str, topic: &str) -> String {
    format!("{topic}{TOPIC_GROUP_SEPARATOR}{group}")
}

fn stored_offset(fields: &Fields, name: &str, queue_id: i32) -> Option<i64> {
    fields.get(OFFSET_TABLE)?.get(name)?.get(queue_id.to_string())?.as_i64()
}
