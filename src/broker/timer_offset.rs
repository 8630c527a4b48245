//! The timer messages that wait, in a set sorted by time, and the progress of their delivery in `config/timercheck`.
//!
//! They are delivered in the order of their times, not of their queue, so the progress is a time: of the part of the queue that was read,
//! all up to that time were delivered, and none after it. A persist takes the progress together with the end of the log, makes the log
//! durable up to its end, and only then replaces the file: it never passes a timer message whose copy a power failure can take.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::delay_offset::DelayStats;
use super::progress_persister::{PersistedProgress, ProgressChanges, SNAPSHOT_AFTER};
use super::timer_copies::{Timer, TimerCopies, roll_times, stored_again};
use super::timer_queue::TimerQueue;
use crate::error::Result;
use crate::format::{CONFIG_DIR, TIMER_CHECK_FILE, TIMER_CHECK_SIZE, TIMER_TOPIC, TimerCheck, TimerProgress, timer_due};
use crate::read::MessageReader;
use crate::storage::{Step, read_file, replace_file};
use crate::store::MessageStore;
use crate::sync::{Mutex, MutexGuard, lock};

/// The most entries of the queue that one step reads.
const STEP_ENTRIES: usize = 16 * 1024;

/// The timer messages of a store that is open for writing.
#[derive(Debug)]
pub(super) struct TimerOffsets {
    store: Arc<MessageStore>,
    file: Mutex<TimerCheck>,
    state: Mutex<TimerState>,
    changes: ProgressChanges,
    /// The end of the log in the last snapshot that is in the file.
    snapshot_end: AtomicI64,
}

/// The timer messages that wait. Its owner locks it for a whole step, so that no snapshot is taken between a copy and its count.
#[derive(Debug)]
pub(super) struct TimerState {
    phase: Phase,
    /// In the order of their times.
    pub(super) waiting: BTreeSet<Timer>,
    /// The queue offset up to which the queue was read.
    next: i64,
    /// The latest time of a timer message that was delivered or passed over.
    delivered_until: i64,
    /// The progress of the file, if it is that of this log.
    stored: Option<TimerProgress>,
    /// True once a timer message that was stored again waits.
    has_rolled: bool,
    /// Messages that could not be delivered.
    pub(super) passed_over: u64,
}

#[derive(Debug)]
enum Phase {
    /// The part of the queue that the open has found is read.
    Reading,
    /// The log is searched for copies.
    Searching(TimerCopies),
    /// Only new entries are read.
    Delivering,
}

impl TimerOffsets {
    /// Reads the progress. If it is not that of this log, all timer messages wait until their copies are found.
    ///
    /// # Errors
    /// Those of reading the queue.
    pub(super) fn load(store: &Arc<MessageStore>, file: TimerCheck) -> Result<Self> {
        let (queue, log) = (store.reader().queue_bounds(TIMER_TOPIC, 0)?, store.reader().physical_bounds());
        let fits = |progress: &TimerProgress| {
            (0..=progress.queue_end).contains(&progress.first) && progress.queue_end <= queue.end && progress.log_end <= log.end
        };
        let stored = file.progress.filter(fits);
        let state = TimerState {
            phase: Phase::Reading,
            waiting: BTreeSet::new(),
            next: stored.map_or(0, |stored| stored.first).max(queue.start),
            delivered_until: stored.map_or(i64::MIN, |stored| stored.delivered_until),
            stored,
            has_rolled: false,
            passed_over: 0,
        };
        Ok(Self {
            store: store.clone(),
            file: Mutex::new(file),
            state: Mutex::new(state),
            changes: ProgressChanges::default(),
            snapshot_end: AtomicI64::new(stored.map_or(0, |stored| stored.log_end)),
        })
    }

    /// Locks the timer messages that wait.
    pub(super) fn state(&self) -> MutexGuard<'_, TimerState> {
        lock(&self.state)
    }

    /// Reads further entries of the queue, or a further part of the log. Returns true once the delivery may continue, and false if more is
    /// to be read first.
    ///
    /// # Errors
    /// Those of reading queue and log; the next call continues.
    pub(super) fn read_some(&self, state: &mut TimerState) -> Result<bool> {
        let reader = self.store.reader();
        let searched = match &mut state.phase {
            Phase::Delivering => {
                state.take_up(reader)?;
                return Ok(true);
            }
            Phase::Reading => {
                if state.take_up(reader)? {
                    state.begin_search(reader)?;
                }
                return Ok(false);
            }
            Phase::Searching(search) => search.advance()?,
        };
        if searched {
            state.end_search(reader)?;
            self.changes.count();
        }
        Ok(false)
    }

    /// Returns true once the copies were found that the log had at the open.
    pub(super) fn is_settled(&self) -> bool {
        self.state().is_settled()
    }

    /// Counts a delivery.
    pub(super) fn count_delivery(&self) {
        self.changes.count();
    }

    /// Asks for a new snapshot if the log has grown much since the last one.
    pub(super) fn renew_snapshot(&self) {
        if self.store.appended_offset() - self.snapshot_end.load(Ordering::Relaxed) >= SNAPSHOT_AFTER {
            self.changes.count();
        }
    }

    /// Counts the timer messages that wait, those that are overdue, and those that were passed over.
    ///
    /// # Errors
    /// Those of reading the queue.
    pub(super) fn stats(&self) -> Result<DelayStats> {
        let now = self.store.reader().env().now_ms();
        let end = self.store.reader().queue_bounds(TIMER_TOPIC, 0)?.end;
        let state = self.state();
        Ok(DelayStats {
            waiting: state.waiting.len() as u64 + (end - state.next).max(0).unsigned_abs(),
            passed_over: state.passed_over,
            overdue: state.waiting.range(..(now, i64::MIN)).count() as u64,
            next_due: state.waiting.first().map(|(due, _)| *due),
        })
    }

    /// Persists the progress at the close, if the file is out of date.
    ///
    /// # Errors
    /// As [`PersistedProgress::persist`].
    pub(super) fn persist_last(&self) -> Result<()> {
        let is_behind = self.store.appended_offset() > self.snapshot_end.load(Ordering::Relaxed);
        if self.changes.is_any() || (is_behind && self.stats()?.waiting > 0) {
            return self.persist();
        }
        Ok(())
    }
}

impl PersistedProgress for TimerOffsets {
    fn changes(&self) -> &ProgressChanges {
        &self.changes
    }

    /// Does nothing while the progress is not a time: then the file stays older.
    fn persist(&self) -> Result<()> {
        let mut file = lock(&self.file);
        let reader = self.store.reader();
        let (changes, progress) = {
            let state = self.state();
            (self.changes.get(), state.progress(self.store.appended_offset()))
        };
        let Some(progress) = progress else {
            return Ok(());
        };
        let [state_version, _, counter] = file.version;
        let renewed = TimerCheck {
            version: [state_version, reader.env().now_ms(), counter.saturating_add(1)],
            progress: Some(progress),
            ..*file
        };
        // After the snapshot: the copies of the messages before it are in the log by now.
        self.store.flush()?;
        replace_file(
            reader.env().as_ref(),
            &path_of(reader),
            &renewed.encode(),
            Step::SettingsFile,
            Step::SettingsRenamed,
        )?;
        *file = renewed;
        self.changes.note_persisted(changes);
        self.snapshot_end.store(progress.log_end, Ordering::Relaxed);
        Ok(())
    }
}

impl TimerState {
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.phase, Phase::Delivering)
    }

    /// Notes that a timer message was delivered or passed over.
    pub(super) fn pass(&mut self, (due, offset): Timer) {
        self.waiting.remove(&(due, offset));
        self.delivered_until = self.delivered_until.max(due);
    }

    /// Returns the progress, if it is a time: nothing that waits was due at or before the last delivery.
    fn progress(&self, log_end: i64) -> Option<TimerProgress> {
        let is_time = self.waiting.first().is_none_or(|(due, _)| *due > self.delivered_until);
        let first = self.waiting.iter().map(|(_, offset)| *offset).min();
        (self.is_settled() && is_time).then_some(TimerProgress {
            first: first.unwrap_or(self.next),
            queue_end: self.next,
            delivered_until: self.delivered_until,
            log_end,
        })
    }

    /// Takes up the next entries of the queue, up to the most of a step. Returns true if there are no more.
    fn take_up(&mut self, reader: &Arc<MessageReader>) -> Result<bool> {
        let end = reader.queue_bounds(TIMER_TOPIC, 0)?.end;
        if self.next >= end {
            return Ok(true);
        }
        let mut queue = TimerQueue::open(reader, self.next)?;
        for _ in 0..STEP_ENTRIES {
            let entry = queue.next(|view| Some((timer_due(view)?, roll_times(view))))?;
            self.passed_over += queue.take_damaged();
            let Some((offset, found)) = entry else {
                self.next = self.next.max(queue.position());
                return Ok(true);
            };
            self.next = offset + 1;
            match found {
                Some((due, _)) if self.was_delivered(due, offset) => {}
                Some((due, rolls)) => {
                    self.has_rolled |= rolls > 0;
                    self.waiting.insert((due, offset));
                }
                None => self.passed_over += 1,
            }
        }
        Ok(false)
    }

    /// Returns true for a timer message that was delivered before the snapshot in the file.
    fn was_delivered(&self, due: i64, offset: i64) -> bool {
        let of_stored = |stored: TimerProgress| offset < stored.queue_end && due <= stored.delivered_until;
        self.stored.is_some_and(of_stored)
    }

    fn begin_search(&mut self, reader: &Arc<MessageReader>) -> Result<()> {
        let first = self.waiting.iter().map(|(_, offset)| *offset).min();
        let Some(first) = first else {
            self.phase = Phase::Delivering;
            return Ok(());
        };
        let from = match self.stored {
            Some(stored) => stored.log_end,
            None => reader
                .position(TIMER_TOPIC, 0, first)?
                .map_or(0, |place| place.physical_offset),
        };
        self.phase = Phase::Searching(TimerCopies::plan(reader, from));
        Ok(())
    }

    /// Passes the timer messages of which copies were found.
    fn end_search(&mut self, reader: &Arc<MessageReader>) -> Result<()> {
        let Phase::Searching(search) = &self.phase else {
            return Ok(());
        };
        let again = if self.has_rolled {
            stored_again(reader, &self.waiting)?
        } else {
            BTreeSet::new()
        };
        let once: BTreeSet<Timer>;
        let waiting = if again.is_empty() {
            &self.waiting
        } else {
            once = self.waiting.difference(&again).copied().collect();
            &once
        };
        let delivered = search.delivered(waiting)?;
        self.waiting.retain(|timer| !again.contains(timer));
        for timer in delivered {
            self.pass(timer);
        }
        self.phase = Phase::Delivering;
        Ok(())
    }
}

/// Reads the file of a store; a missing one is empty.
///
/// # Errors
/// [`crate::error::Error::Io`].
pub(super) fn load_timer_check(reader: &MessageReader) -> Result<Option<TimerCheck>> {
    let bytes = read_file(reader.env().as_ref(), &path_of(reader), TIMER_CHECK_SIZE)?;
    Ok(bytes.map(|bytes| TimerCheck::decode(&bytes)))
}

fn path_of(reader: &MessageReader) -> PathBuf {
    reader.path().join(CONFIG_DIR).join(TIMER_CHECK_FILE)
}
