//! The queues beside a writer of another process.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::format::CqUnit;
use crate::log::consume_queue::consume_queue::{ConsumeQueue, State, UNIT};
use crate::log::consume_queue::consume_queue_store::ConsumeQueueStore;
use crate::log::consume_queue::entries::search;
use crate::log::consume_queue::tail::QueueTail;

/// Entries in the memory of one queue from which on the files are asked whether they have them.
const MANY: usize = 4096;

impl ConsumeQueueStore {
    /// Adds the entries of messages that another process has appended, and gives the queue; `None` for a batch consume queue.
    pub(crate) fn add(&self, topic: &str, queue_id: i32, entries: QueueTail) -> Option<Arc<ConsumeQueue>> {
        let queue = self.queue_or_new(topic, queue_id)?;
        queue.extend(entries);
        Some(queue)
    }
}

impl ConsumeQueue {
    /// Whether it has files, or has had.
    pub(super) fn has_files(&self) -> bool {
        self.files.end_offset().is_some()
    }

    /// Bytes of a file; 0 if nothing tells.
    pub(crate) fn file_size(&self) -> u64 {
        self.files.file_size()
    }

    /// Where there are many entries in memory, forgets those that the files have by now.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`], [`crate::error::Error::Corrupt`] for files that do not fit together.
    pub(crate) fn release_written(&self) -> Result<()> {
        let waiting: Vec<(i64, CqUnit)> = {
            let state = self.state();
            if state.tail.len() < MANY || state.tail.first() != Some(state.in_files.end) {
                return Ok(());
            }
            state.tail.iter().collect()
        };
        self.files.list_again()?;
        let mut written = self.entries();
        let mut end = None;
        for (next, unit) in waiting {
            // An entry with an extension has its address instead of a tags code.
            let is_same = |found: CqUnit| {
                let tags_code = found.ext_address().map_or(unit.tags_code, |_| found.tags_code);
                found == CqUnit { tags_code, ..unit }
            };
            if end.is_some_and(|end| end != next) || !written.get(next)?.is_some_and(is_same) {
                break;
            }
            end = Some(next + 1);
        }
        if let Some(end) = end {
            let mut state = self.state_mut();
            state.in_files.end = end;
            state.tail.forget_before(end);
        }
        Ok(())
    }

    /// Moves the smallest offset if files of the queue or of the log were found to be removed since the last call. `in_log` is how often
    /// segments were found to be removed, and the log now starts at `first_physical`.
    pub(crate) fn follow_removals(&self, in_log: u64, first_physical: impl Fn() -> i64) -> Result<()> {
        loop {
            let removals = in_log + self.files.removals();
            if self.followed.load(Ordering::Acquire) == removals {
                return Ok(());
            }
            // This reads entries, and may find more files removed.
            self.correct_min_offset(first_physical())?;
            self.followed.store(removals, Ordering::Release);
        }
    }

    /// Moves the smallest offset to the first entry whose message starts at or after `first_physical`.
    pub(crate) fn correct_min_offset(&self, first_physical: i64) -> Result<()> {
        let mut entries = self.entries();
        let mut state = self.state_mut();
        let expired = |unit: CqUnit| unit.is_pre_blank() || unit.physical_offset < first_physical;
        let mut all = state.in_files.start..state.max_offset();
        loop {
            let mut unit_at = |offset: i64| match state.tail.get(offset) {
                Some(unit) => Ok(Some(unit)),
                None => entries.get(offset),
            };
            // In most queues no message has expired, and the first entry says so.
            let is_live = |unit: CqUnit| unit.is_valid() && !expired(unit);
            let first = if !all.is_empty() && unit_at(all.start)?.is_some_and(is_live) {
                all.start
            } else {
                search(all.clone(), |offset| {
                    Ok(unit_at(offset)?.is_some_and(|unit| unit.is_valid() && expired(unit)))
                })?
            };
            all.start = self.after_removed(&state, first);
            if all.start == first {
                state.min_offset = first;
                return Ok(());
            }
        }
    }

    /// The first queue offset, from `offset` on, whose entry did not lie in a file that another process has removed.
    fn after_removed(&self, state: &State, offset: i64) -> i64 {
        if !(state.in_files.contains(&offset) && self.is_removed(offset)) {
            return offset;
        }
        let starts = self.files.starts().into_iter().map(|start| start as i64 / UNIT);
        let next_file = starts.into_iter().find(|start| *start > offset);
        let ends = next_file.into_iter().chain(state.tail.next(offset..));
        ends.min().unwrap_or(state.in_files.end)
    }
}
