//! `config/delayOffset.json`: the progress of the delivery of delayed messages.
//!
//! It never passes a delayed message whose copy a power failure can take: see [`SettingsFile::persist_after_log`]. A persist takes a
//! snapshot of the progress and of the end of the log, which lies after every copy of a message that the progress has passed, and before
//! every other copy: after a crash those copies show what was delivered since. Brokers ignore the field with the end of the log, and
//! drop it when they write the file.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::Value;

use super::progress_persister::{PersistedProgress, ProgressChanges, SNAPSHOT_AFTER};
use super::settings_file::{OWN_FIELD, SettingsFile};
use crate::error::Result;
use crate::format::{DELAY_OFFSET_FILE, DelayOffset, SCHEDULE_TOPIC, delay_offsets_of};
use crate::read::{DelayBacklog, delay_backlog};
use crate::store::MessageStore;
use crate::sync::{Mutex, lock};

const OFFSET_TABLE: &str = "offsetTable";
/// The end of the log in a snapshot.
pub(super) const LOG_END: &str = "logEnd";

/// The progress of the delivery of delayed messages, in a store that is open for writing.
#[derive(Debug)]
pub(super) struct DelayOffsets {
    store: Arc<MessageStore>,
    file: Mutex<SettingsFile>,
    progress: Mutex<Progress>,
    changes: ProgressChanges,
    /// The end of the log in the last snapshot that is in the file.
    snapshot_end: AtomicI64,
}

/// The progress as it changes.
#[derive(Debug, Default)]
struct Progress {
    /// The queue offset of the next message to deliver, by level.
    next: BTreeMap<i32, i64>,
    /// The end of the log before the copies that are being appended. `None` while none are.
    before_copies: Option<i64>,
    /// True once the file may be written: the messages whose copies the open has found are passed.
    is_settled: bool,
    /// Messages that could not be delivered.
    passed_over: u64,
}

/// The delivery of delayed messages in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DelayStats {
    /// Messages that wait for their delivery.
    pub waiting: u64,
    /// Messages since the open that could not be delivered: lost, damaged, or without a topic.
    pub passed_over: u64,
    /// Messages that were due before now and wait.
    pub overdue: u64,
    /// The time in ms at which the next message is due.
    pub next_due: Option<i64>,
}

impl DelayStats {
    /// Returns the numbers of both.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            waiting: self.waiting + other.waiting,
            passed_over: self.passed_over + other.passed_over,
            overdue: self.overdue + other.overdue,
            next_due: self.next_due.into_iter().chain(other.next_due).min(),
        }
    }
}

impl DelayOffsets {
    /// Reads the progress. An offset outside of its queue is moved to the nearest end, as by a broker.
    ///
    /// # Errors
    /// The damage of the file; those of reading the queues.
    pub(super) fn load(store: &Arc<MessageStore>, file: SettingsFile) -> Result<Self> {
        let fields = file.fields()?;
        let stored = |level: i32| fields.get(OFFSET_TABLE)?.get(level.to_string())?.as_i64();
        let mut progress = Progress::default();
        for level in 1..=store.config().delay_levels()?.max_level() {
            let Range { start, end } = bounds(store, level)?;
            progress.next.insert(level, stored(level).unwrap_or(0).min(end).max(start));
        }
        Ok(Self {
            store: store.clone(),
            file: Mutex::new(file),
            progress: Mutex::new(progress),
            changes: ProgressChanges::default(),
            snapshot_end: AtomicI64::new(0),
        })
    }

    /// Returns the queue offset of the next message of a level.
    pub(super) fn next(&self, level: i32) -> i64 {
        lock(&self.progress).next.get(&level).copied().unwrap_or(0)
    }

    /// Notes that copies are being appended.
    pub(super) fn begin_copies(&self) {
        let mut progress = lock(&self.progress);
        progress.before_copies = Some(self.store.appended_offset());
    }

    /// Moves the progress of a level to `next`, after the copies of the messages before it were appended.
    pub(super) fn move_to(&self, level: i32, next: i64, passed_over: u64) {
        let mut progress = lock(&self.progress);
        progress.before_copies = None;
        progress.passed_over += passed_over;
        if progress.next.insert(level, next) != Some(next) {
            self.changes.count();
        }
    }

    /// Permits persisting.
    pub(super) fn settle(&self) {
        lock(&self.progress).is_settled = true;
    }

    /// Returns true once [`DelayOffsets::settle`] was called.
    pub(super) fn is_settled(&self) -> bool {
        lock(&self.progress).is_settled
    }

    /// Asks for a new snapshot if the log has grown much since the last one.
    pub(super) fn renew_snapshot(&self) {
        if self.store.appended_offset() - self.snapshot_end.load(Ordering::Relaxed) >= SNAPSHOT_AFTER {
            self.changes.count();
        }
    }

    /// Returns the progress of every level that has messages.
    pub(super) fn all(&self) -> Vec<DelayOffset> {
        let progress = lock(&self.progress);
        let of_level = |(level, offset): (&i32, &i64)| DelayOffset {
            level: *level,
            offset: *offset,
        };
        progress.next.iter().map(of_level).filter(|of| of.offset > 0).collect()
    }

    /// Counts the messages that wait, those that are overdue, and those that were passed over.
    ///
    /// # Errors
    /// Those of reading the queues.
    pub(super) fn stats(&self) -> Result<DelayStats> {
        let passed_over = lock(&self.progress).passed_over;
        let levels = delay_backlog(self.store.reader(), &self.all())?;
        let sum = |count: fn(&DelayBacklog) -> i64| u64::try_from(levels.iter().map(count).sum::<i64>()).unwrap_or(0);
        Ok(DelayStats {
            waiting: sum(|level| level.waiting),
            passed_over,
            overdue: sum(|level| level.overdue),
            next_due: levels.iter().filter_map(|level| level.next_due).min(),
        })
    }

    /// Persists the progress at the close, if the file is out of date.
    ///
    /// # Errors
    /// As [`DelayOffsets::persist`].
    pub(super) fn persist_last(&self) -> Result<()> {
        let is_behind =
            || Ok(self.store.appended_offset() > self.snapshot_end.load(Ordering::Relaxed) && self.stats()?.waiting > 0);
        if self.changes.is_any() || is_behind()? {
            return self.persist();
        }
        Ok(())
    }

    /// Returns the number of changes, the progress, and the end of the log that belongs to it.
    fn snapshot(&self) -> Option<(i64, BTreeMap<i32, i64>, i64)> {
        let progress = lock(&self.progress);
        let log_end = progress.before_copies.unwrap_or_else(|| self.store.appended_offset());
        let snapshot = (self.changes.get(), progress.next.clone(), log_end);
        progress.is_settled.then_some(snapshot)
    }

    /// Returns the end of the log in the snapshot of the file; `None` if a broker has written the file.
    pub(super) fn stored_log_end(&self) -> Option<i64> {
        stored_log_end(&lock(&self.file))
    }
}

impl PersistedProgress for DelayOffsets {
    fn changes(&self) -> &ProgressChanges {
        &self.changes
    }

    /// Does nothing before [`DelayOffsets::settle`].
    ///
    /// # Errors
    /// [`Error::Poisoned`]; [`Error::DiskFull`], [`Error::Io`]: the file has older progress.
    fn persist(&self) -> Result<()> {
        let mut file = lock(&self.file);
        let Some((changes, next, log_end)) = self.snapshot() else {
            return Ok(());
        };
        let table = file.table(OFFSET_TABLE)?;
        for (level, next) in next {
            if next > 0 || table.contains_key(&level.to_string()) {
                table.insert(level.to_string(), Value::from(next));
            }
        }
        file.table(OWN_FIELD)?.insert(LOG_END.to_owned(), Value::from(log_end));
        file.persist_after_log(&self.store)?;
        self.changes.note_persisted(changes);
        self.snapshot_end.store(log_end, Ordering::Relaxed);
        Ok(())
    }
}

/// Reads the file of a store. The field with the end of the log shows that no broker has written it since.
pub(super) fn load_file(store: &MessageStore) -> SettingsFile {
    let reader = store.reader();
    SettingsFile::load(reader.env(), reader.path(), DELAY_OFFSET_FILE, |fields| {
        delay_offsets_of(fields).map(drop)
    })
}

/// Returns the end of the log in the snapshot of the file; `None` if a broker has written the file.
pub(super) fn stored_log_end(file: &SettingsFile) -> Option<i64> {
    file.fields().ok()?.get(OWN_FIELD)?.get(LOG_END)?.as_i64()
}

/// Returns the queue offsets of a level.
///
/// # Errors
/// Those of reading the queues.
pub(super) fn bounds(store: &MessageStore, level: i32) -> Result<Range<i64>> {
    store.reader().queue_bounds(SCHEDULE_TOPIC, level - 1)
}
