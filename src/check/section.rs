//! Whether all records of a section of the log agree with queues and index. A section in which anything differs is compared
//! again, record by record, by who knows what stands before it: only that tells what is wrong.

use std::ops::Range;
use std::sync::Arc;

use crate::check::key_items::{KeyFile, KeyItems};
use crate::error::Result;
use crate::format::{Check, DelayLevels, DispatchRequest, MessageView, is_salvage_record};
use crate::log::{ConsumeQueue, EntriesAhead, LogFiles, Place, QueueTable};

/// How far after the start of a section its first record is looked for, and how much of that at once.
const SEARCHED: i64 = 64 << 10;
const SEARCHED_AT_ONCE: i64 = 4 << 10;

/// What a section holds if all of it agrees, provided that the one before it ends where it starts.
#[derive(Debug, Default)]
pub(super) struct Agreed {
    /// Where its first record starts, and the record after its last one.
    pub(super) stretch: Range<i64>,
    pub(super) messages: u64,
    /// Store times of the first and the last message. They do not fall.
    pub(super) store_times: Option<(i64, i64)>,
    /// The queue offsets of its messages, without a gap in each queue.
    pub(super) queues: Vec<(Place, Range<i64>)>,
    /// The numbers of the items of its messages, in each index file by its place, in the order of the log.
    pub(super) items: Vec<(usize, Range<i32>)>,
}

/// Compares sections, one after the other.
#[derive(Debug)]
pub(super) struct SectionReader<'a> {
    log: &'a LogFiles,
    check: Check,
    levels: &'a DelayLevels,
    queues: QueueTable<Entries>,
    files: &'a [Arc<KeyFile>],
    agreed: Agreed,
}

/// The entries of a queue.
#[derive(Debug)]
struct Entries {
    queue: Arc<ConsumeQueue>,
    ahead: EntriesAhead,
    /// Of which of the queues of the section.
    met: Option<usize>,
}

impl<'a> SectionReader<'a> {
    /// The queues have their places in the order in which they are given. Of each, `at_once` entries are read at once.
    pub(super) fn new(
        log: &'a LogFiles,
        check: Check,
        levels: &'a DelayLevels,
        queues: &[(Arc<str>, i32, Arc<ConsumeQueue>)],
        at_once: i64,
        files: &'a [Arc<KeyFile>],
    ) -> Self {
        let mut table = QueueTable::default();
        for (topic, queue_id, queue) in queues {
            let entries = Entries {
                queue: Arc::clone(queue),
                ahead: EntriesAhead::of(at_once),
                met: None,
            };
            table.add(topic.as_bytes(), *queue_id, entries);
        }
        Self {
            log,
            check,
            levels,
            queues: table,
            files,
            agreed: Agreed::default(),
        }
    }

    /// The records that start in `section`, if they agree with queues and index.
    ///
    /// # Errors
    /// Those of reading log, queues and index.
    pub(super) fn read(&mut self, section: Range<i64>) -> Result<Option<Agreed>> {
        let agrees = self.compare(section);
        let agreed = std::mem::take(&mut self.agreed);
        for (place, _) in &agreed.queues {
            if let Some(entries) = self.queues.get_mut(*place) {
                entries.met = None;
            }
        }
        Ok(agrees?.then_some(agreed))
    }

    fn compare(&mut self, section: Range<i64>) -> Result<bool> {
        let Some(start) = self.find_start(&section)? else {
            return Ok(false);
        };
        let mut items = KeyItems::from(self.files, start)?;
        let mut scan = self.log.scan(start, section.end, self.check);
        while scan.advance()? {
            let agrees = match scan.view() {
                Some(view) => self.agrees(&view, &mut items)?,
                None => false,
            };
            if !agrees || scan.check_intact().is_err() {
                return Ok(false);
            }
        }
        self.agreed.stretch = start..scan.position();
        self.agreed.items = items.into_taken();
        Ok(scan.stopped_by().is_none())
    }

    /// Where its first record may start. A body may hold what looks like one.
    fn find_start(&self, section: &Range<i64>) -> Result<Option<i64>> {
        let end = section.end.min(section.start.saturating_add(SEARCHED));
        let mut from = section.start;
        while from < end {
            let to = end.min(from.saturating_add(SEARCHED_AT_ONCE));
            if let Some(start) = self.log.find_known_record(from..to, |_| true)? {
                return Ok(Some(start));
            }
            from = to;
        }
        Ok(None)
    }

    #[inline]
    fn agrees(&mut self, view: &MessageView<'_>, items: &mut KeyItems<'_>) -> Result<bool> {
        let time = view.store_time();
        let (first, last) = self.agreed.store_times.unwrap_or((time, time));
        if time < last || is_salvage_record(view) {
            return Ok(false);
        }
        self.agreed.store_times = Some((first, time));
        self.agreed.messages += 1;
        let dispatched = DispatchRequest::of(view);
        Ok(self.has_entry(view, &dispatched)? && items.take(view, &dispatched)?)
    }

    /// Whether the entry of the message is as it should be, and that after the entry of the message before it in its queue.
    #[inline]
    fn has_entry(&mut self, view: &MessageView<'_>, dispatched: &DispatchRequest<'_>) -> Result<bool> {
        let Some(unit) = dispatched.unit(self.levels) else {
            return Ok(true);
        };
        let Some(place) = self.queues.find(view.topic_bytes(), view.queue_id()) else {
            return Ok(false);
        };
        let Some(entries) = self.queues.get_mut(place) else {
            return Ok(false);
        };
        let offset = view.queue_offset();
        let met = &mut self.agreed.queues;
        let at = *entries.met.get_or_insert_with(|| {
            met.push((place, offset..offset));
            met.len() - 1
        });
        let Some((_, offsets)) = met.get_mut(at).filter(|(_, offsets)| offsets.end == offset) else {
            return Ok(false);
        };
        offsets.end = offset.saturating_add(1);
        Ok(entries.queue.known_unit(offset, &mut entries.ahead)? == Some(unit))
    }
}
