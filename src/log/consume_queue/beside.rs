//! The queues beside a writer of another process.

use std::sync::Arc;

use crate::error::Result;
use crate::format::CqUnit;
use crate::log::consume_queue::consume_queue::ConsumeQueue;
use crate::log::consume_queue::consume_queue_store::ConsumeQueueStore;
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
    pub(super) fn file_size(&self) -> u64 {
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
}
