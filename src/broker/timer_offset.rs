//! The timer messages that wait, in a set sorted by time, and the progress of their delivery in `config/timercheck`.
//!
//! They are delivered in the order of their times, not of their queue, so the progress is a time: of the part of the queue that was read,
//! all up to that time were delivered, and none after it. A persist takes the progress together with the end of the log, makes the log
//! durable up to its end, and only then replaces the file: it never passes a timer message whose copy a power failure can take. It then
//! removes the timer wheel of an earlier broker, which does not have this progress.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use super::delay_offset::DelayStats;
use super::progress_persister::{PersistedProgress, ProgressChanges, SNAPSHOT_AFTER};
use super::timer_copies::{Timer, TimerCopies, roll_times, stored_again};
use super::timer_queue::TimerQueue;
use super::timer_recalls::TimerRecalls;
use super::timer_wheel::remove_timer_wheel;
use crate::error::Result;
use crate::format::{CONFIG_DIR, TIMER_CHECK_FILE, TIMER_CHECK_SIZE, TIMER_TOPIC, TimerCheck, TimerProgress, TimerRecord};
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
    /// True once the timer wheel of an earlier broker is gone.
    is_wheel_gone: AtomicBool,
}

/// The timer messages that wait. Its owner locks it for a whole step, so that no snapshot is taken between a copy and its count.
#[derive(Debug)]
pub(super) struct TimerState {
    phase: Phase,
    /// In the order of their times.
    pub(super) waiting: BTreeSet<Timer>,
    pub(super) recalls: TimerRecalls,
    /// The queue offset up to which the queue was read.
    next: i64,
    /// The latest time of a timer message that was delivered or passed over, or of a recall that has passed.
    delivered_until: i64,
    /// The progress of the file, if it is that of this log.
    stored: Option<TimerProgress>,
    /// The end of the queue after the last hand-over, as in [`TimerProgress`].
    handed_over: i64,
    /// The last timer message that a hand-over has stored again. No progress is taken while one before it waits.
    last_rolled: Option<i64>,
    /// True once a timer message that was stored again waits.
    has_rolled: bool,
    /// Messages that could not be delivered.
    pub(super) passed_over: u64,
    /// The number of these that were found to be lost or damaged when the queue was read.
    pub(super) damaged: u64,
}

#[derive(Debug)]
enum Phase {
    /// The part of the queue that the open has found is read.
    Reading,
    /// The log is searched for copies.
    Searching(TimerCopies),
    /// Only new entries are read.
    Delivering,
    /// The timer messages from this queue offset on are a broker's. They are counted, and not delivered.
    HandedOver(i64),
}

impl TimerOffsets {
    /// Reads the progress. If it is not that of this log, all timer messages wait until their copies are found.
    ///
    /// # Errors
    /// Those of reading the queue.
    pub(super) fn load(store: &Arc<MessageStore>, file: TimerCheck) -> Result<Self> {
        let state = TimerState::begin(store.reader(), file)?;
        let stored = state.stored;
        Ok(Self {
            store: store.clone(),
            file: Mutex::new(file),
            state: Mutex::new(state),
            changes: ProgressChanges::default(),
            snapshot_end: AtomicI64::new(stored.map_or(0, |stored| stored.log_end)),
            is_wheel_gone: AtomicBool::new(false),
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
        let was_searching = state.is_searching();
        let may_continue = state.read_some(self.store.reader())?;
        if was_searching && state.is_settled() {
            self.changes.count();
        }
        Ok(may_continue)
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
        let env = reader.env().as_ref();
        replace_file(
            env,
            &path_of(reader),
            &renewed.encode(),
            Step::SettingsFile,
            Step::SettingsRenamed,
        )?;
        *file = renewed;
        if !self.is_wheel_gone.load(Ordering::Relaxed) {
            remove_timer_wheel(env, reader.path())?;
            self.is_wheel_gone.store(true, Ordering::Relaxed);
        }
        self.changes.note_persisted(changes);
        self.snapshot_end.store(progress.log_end, Ordering::Relaxed);
        Ok(())
    }
}

impl TimerState {
    /// Begins with the progress of a file. If it is not that of this log, all timer messages wait until their copies are found.
    ///
    /// # Errors
    /// Those of reading the queue.
    pub(super) fn begin(reader: &MessageReader, file: TimerCheck) -> Result<Self> {
        let (queue, log) = (reader.queue_bounds(TIMER_TOPIC, 0)?, reader.physical_bounds());
        let fits = |progress: &TimerProgress| {
            (0..=progress.queue_end).contains(&progress.first) && progress.queue_end <= queue.end && progress.log_end <= log.end
        };
        let stored = file.progress.filter(fits);
        Ok(Self {
            phase: Phase::Reading,
            waiting: BTreeSet::new(),
            recalls: TimerRecalls::default(),
            next: stored.map_or(0, |stored| stored.first).max(queue.start),
            delivered_until: stored.map_or(i64::MIN, |stored| stored.delivered_until),
            handed_over: stored.map_or(0, |stored| stored.handed_over),
            last_rolled: None,
            stored,
            has_rolled: false,
            passed_over: 0,
            damaged: 0,
        })
    }

    /// Returns true if the progress is known: only what was delivered after it is searched for.
    pub(super) fn has_progress(&self) -> bool {
        self.stored.is_some()
    }

    /// Returns the queue offset up to which the queue was read.
    pub(super) fn next(&self) -> i64 {
        self.next
    }

    /// Reads further entries of the queue, or a further part of the log. Returns true at the end of the queue, once copies were found: then
    /// every recall is known that was stored before.
    ///
    /// # Errors
    /// Those of reading queue and log; the next call continues.
    pub(super) fn read_some(&mut self, reader: &Arc<MessageReader>) -> Result<bool> {
        match &mut self.phase {
            Phase::Delivering | Phase::HandedOver(_) => return self.take_up(reader),
            Phase::Reading => {
                if self.take_up(reader)? {
                    self.begin_search(reader)?;
                }
            }
            Phase::Searching(search) => {
                if search.advance()? {
                    self.end_search(reader)?;
                }
            }
        }
        Ok(false)
    }

    fn is_searching(&self) -> bool {
        matches!(self.phase, Phase::Searching(_))
    }

    pub(super) fn is_settled(&self) -> bool {
        matches!(self.phase, Phase::Delivering | Phase::HandedOver(_))
    }

    pub(super) fn is_handed_over(&self) -> bool {
        matches!(self.phase, Phase::HandedOver(_))
    }

    /// Notes that a timer message or a recall was stored again at a queue offset: it does not wait any more.
    pub(super) fn note_rolled(&mut self, timer: Timer, again: i64) {
        self.forget(&timer);
        self.last_rolled = self.last_rolled.max(Some(timer.1));
        self.handed_over = self.handed_over.max(again + 1);
    }

    /// Removes a timer message or a recall.
    pub(super) fn forget(&mut self, timer: &Timer) {
        self.waiting.remove(timer);
        self.recalls.remove(timer);
    }

    /// Ends the delivery, after each timer message that waits was stored again: the part of the queue that was not read has these, and
    /// those that were appended since.
    pub(super) fn end_delivery(&mut self) {
        self.waiting.clear();
        self.recalls = TimerRecalls::default();
        self.phase = Phase::HandedOver(self.next);
    }

    /// Notes that a timer message was delivered or passed over.
    pub(super) fn pass(&mut self, (due, offset): Timer) {
        self.waiting.remove(&(due, offset));
        self.delivered_until = self.delivered_until.max(due);
    }

    /// Passes the recalls of the seconds up to a time, in ms, at which no timer message waits any more. Returns true if there were any.
    pub(super) fn pass_recalls(&mut self, now_ms: i64) -> bool {
        let passed = self.recalls.pass(now_ms);
        self.delivered_until = self.delivered_until.max(passed.unwrap_or(i64::MIN));
        passed.is_some()
    }

    /// Returns the time of the next timer message or recall, in ms.
    pub(super) fn next_time(&self) -> Option<i64> {
        let next = self.waiting.first().into_iter().chain(self.recalls.iter().next()).min();
        next.map(|(time, _)| *time)
    }

    /// Returns the progress, if it is a time: nothing that waits was due at or before the last delivery. A hand-over that has failed leaves
    /// messages that were stored again among those that wait: until these are delivered the progress is no time.
    fn progress(&self, log_end: i64) -> Option<TimerProgress> {
        if let Phase::HandedOver(first) = self.phase {
            return Some(TimerProgress {
                first,
                queue_end: first,
                delivered_until: self.delivered_until,
                log_end,
                handed_over: self.handed_over,
            });
        }
        let is_time = self.waiting.first().is_none_or(|(due, _)| *due > self.delivered_until);
        let undone = self.waiting.iter().chain(self.recalls.iter());
        let first = undone.map(|(_, offset)| *offset).min().unwrap_or(self.next);
        let is_known = self.is_settled() && is_time && self.last_rolled.is_none_or(|last| last < first);
        is_known.then_some(TimerProgress {
            first,
            queue_end: self.next,
            delivered_until: self.delivered_until,
            log_end,
            handed_over: self.handed_over,
        })
    }

    /// Takes up the next entries of the queue, up to the most of a step, and removes what they recall. Returns true if there are no more.
    ///
    /// # Errors
    /// Those of reading the queue; the next call continues.
    pub(super) fn take_up(&mut self, reader: &Arc<MessageReader>) -> Result<bool> {
        let is_at_end = self.read_entries(reader)?;
        self.recalls.apply(reader, &mut self.waiting)?;
        Ok(is_at_end)
    }

    fn read_entries(&mut self, reader: &Arc<MessageReader>) -> Result<bool> {
        let end = reader.queue_bounds(TIMER_TOPIC, 0)?.end;
        if self.next >= end {
            return Ok(true);
        }
        let mut queue = TimerQueue::open(reader, self.next)?;
        for _ in 0..STEP_ENTRIES {
            let entry = queue.next(|view| {
                let record = TimerRecord::of(view);
                let keyed = record.as_ref().and_then(|record| self.recalls.key_of(record, view));
                Some((record, roll_times(view), keyed))
            })?;
            self.pass_damaged(queue.take_damaged());
            let Some((offset, found)) = entry else {
                self.next = self.next.max(queue.position());
                return Ok(true);
            };
            self.next = offset + 1;
            match found {
                Some((Some(record), ..)) if self.was_delivered(record.due, offset) => {}
                Some((Some(record), ..)) if record.recalls.is_some() => self.recalls.insert(record, offset),
                Some((Some(record), rolls, keyed)) => {
                    let timer = (record.due, offset);
                    if !self.recalls.take_up(keyed, timer) {
                        self.has_rolled |= rolls > 0;
                        self.waiting.insert(timer);
                    }
                }
                Some((None, ..)) => self.passed_over += 1,
                None => self.pass_damaged(1),
            }
        }
        Ok(false)
    }

    fn pass_damaged(&mut self, count: u64) {
        self.damaged += count;
        self.passed_over += count;
    }

    /// Passes the timer messages for each of which a later one waits.
    ///
    /// # Errors
    /// Those of reading queue and log.
    pub(super) fn pass_stored_again(&mut self, reader: &Arc<MessageReader>) -> Result<()> {
        if self.has_rolled {
            let again = stored_again(reader, &self.waiting, self.handed_over)?;
            self.waiting.retain(|timer| !again.contains(timer));
        }
        Ok(())
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
                .map_or(0, |position| position.physical_offset),
        };
        self.phase = Phase::Searching(TimerCopies::plan(reader, from));
        Ok(())
    }

    /// Passes the timer messages of which copies were found.
    fn end_search(&mut self, reader: &Arc<MessageReader>) -> Result<()> {
        self.pass_stored_again(reader)?;
        let Phase::Searching(search) = &self.phase else {
            return Ok(());
        };
        for timer in search.delivered(&self.waiting)? {
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
