//! Comparison of the log with queues and index in sections, by several threads. A section with any contradiction is compared again, record
//! by record, by the caller, which knows the state before it: only that shows the finding.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

use crate::check::index_items::{KeyFile, KeyItems};
use crate::check::store_times::FAR;
use crate::error::Result;
use crate::format::{Check, DelayLevels, DispatchRequest, MessageView, is_light_queue, is_salvage_record};
use crate::log::{ConsumeQueue, EntryCursor, LogFiles, QueueHandle, QueueTable, SequentialRead};
use crate::pipeline::{Pipeline, Worker};

/// Bytes after the start of a section in which its first record is searched, and bytes of them that are searched at once.
const SEARCHED: i64 = 64 << 10;
const SEARCHED_AT_ONCE: i64 = 4 << 10;

/// The content of a section of which everything agrees, provided that the section before it ends at its start.
#[derive(Debug, Default)]
pub(super) struct Agreed {
    /// From the start of its first record to the start of the record after its last one.
    pub(super) stretch: Range<i64>,
    pub(super) messages: u64,
    /// Store times of the first and the last message. They do not fall, and the last one is not far from the one before it.
    pub(super) store_times: Option<(i64, i64)>,
    /// The queue offsets of its messages, without a gap in each queue.
    pub(super) queues: Vec<(QueueHandle, Range<i64>)>,
    /// The numbers of the items of its messages, in each index file by its index, in the order of the log.
    pub(super) items: Vec<(usize, Range<i32>)>,
}

/// Compares sections, one after the other.
#[derive(Debug)]
pub(super) struct SectionReader<'a> {
    log: &'a LogFiles,
    check: Check,
    levels: &'a DelayLevels,
    queues: QueueTable<Entries>,
    /// Some light queue has files. Sections with its messages do not agree: only a comparison of each message looks at it.
    has_light: bool,
    files: &'a [Arc<KeyFile>],
    agreed: Agreed,
    /// Set if the time of the last message is far from the one before it: only the next message decides about it.
    is_undecided: bool,
}

/// The entries of a queue.
#[derive(Debug)]
struct Entries {
    cursor: EntryCursor,
    /// Of which of the queues of the section.
    met: Option<usize>,
}

impl<'a> SectionReader<'a> {
    /// Creates a reader. The handles of the queues are in the order of `queues`; of each, `at_once` entries are read at once.
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
                cursor: EntryCursor::reading_at_once(Arc::clone(queue), at_once),
                met: None,
            };
            table.add(topic.as_bytes(), *queue_id, entries);
        }
        Self {
            log,
            check,
            levels,
            queues: table,
            has_light: queues.iter().any(|(topic, ..)| is_light_queue(topic)),
            files,
            agreed: Agreed::default(),
            is_undecided: false,
        }
    }

    /// Compares the records that start in `section`. Returns them if they agree with queues and index.
    ///
    /// # Errors
    /// Those of reading log, queues and index.
    pub(super) fn read(&mut self, section: Range<i64>) -> Result<Option<Agreed>> {
        let agrees = self.compare(section);
        let agreed = std::mem::take(&mut self.agreed);
        for (handle, _) in &agreed.queues {
            if let Some(entries) = self.queues.get_mut(*handle) {
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
        Ok(scan.stopped_by().is_none() && !self.is_undecided)
    }

    /// Returns the offset at which its first record may start. A body may hold bytes that look like a record.
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
        self.is_undecided = time > last.saturating_add(FAR);
        self.agreed.store_times = Some((first, time));
        self.agreed.messages += 1;
        let dispatched = DispatchRequest::of(view);
        Ok(self.has_entry(view, &dispatched)? && items.take(view, &dispatched)?)
    }

    /// Returns true if the entry of the message is right, and follows the entry of the message before it in its queue.
    #[inline]
    fn has_entry(&mut self, view: &MessageView<'_>, dispatched: &DispatchRequest<'_>) -> Result<bool> {
        if !view.has_queue_entry() {
            return Ok(true);
        }
        if self.has_light && !view.light_queues().is_empty() {
            return Ok(false);
        }
        let Some(handle) = self.queues.find(view.topic_bytes(), view.queue_id()) else {
            return Ok(false);
        };
        let Some(entries) = self.queues.get_mut(handle) else {
            return Ok(false);
        };
        let offset = view.queue_offset();
        let met = &mut self.agreed.queues;
        let at = *entries.met.get_or_insert_with(|| {
            met.push((handle, offset..offset));
            met.len() - 1
        });
        let Some((_, offsets)) = met.get_mut(at).filter(|(_, offsets)| offsets.end == offset) else {
            return Ok(false);
        };
        offsets.end = offset.saturating_add(1);
        let known = entries.cursor.known_unit(offset)?;
        Ok(known.is_some_and(|known| dispatched.is_entry(known, self.levels)))
    }
}

/// A section, and what it holds if all of it agrees.
type Compared = (Range<i64>, Option<Agreed>);

/// The part of the log that no section has yet.
pub(super) struct Ahead {
    at: i64,
    end: i64,
    /// Bytes of a section.
    bytes: i64,
    read: SequentialRead,
    /// The start of the section that was taken last.
    taken_at: Arc<AtomicI64>,
}

impl Worker for SectionReader<'_> {
    type Source = Ahead;
    type Task = Range<i64>;
    type Output = Compared;

    fn find(&mut self, ahead: &mut Ahead) -> Option<Range<i64>> {
        let section = ahead.at..ahead.at.saturating_add(ahead.bytes).min(ahead.end);
        if section.is_empty() {
            return None;
        }
        ahead.read.drop_before(self.log, ahead.taken_at.load(Ordering::Relaxed));
        ahead.read.at_range(self.log, section.clone(), ahead.end);
        ahead.at = section.end;
        Some(section)
    }

    fn process(&mut self, section: Range<i64>) -> Result<Compared> {
        let agreed = self.read(section.clone())?;
        Ok((section, agreed))
    }
}

/// The sections of a log, in their order.
pub(super) struct ComparedSections<'p, 'a> {
    pipeline: &'p Pipeline<SectionReader<'a>>,
    reader: SectionReader<'a>,
    taken_at: Arc<AtomicI64>,
}

impl<'a> ComparedSections<'_, 'a> {
    /// Runs `take` with the sections of `bounds`, each of `bytes` bytes, while `threads` - 1 other threads compare sections, too.
    pub(super) fn run<T>(
        log: &'a LogFiles,
        bounds: &Range<i64>,
        bytes: i64,
        threads: usize,
        reader: impl Fn() -> SectionReader<'a> + Sync,
        take: impl FnOnce(&mut ComparedSections<'_, 'a>) -> T,
    ) -> T {
        let taken_at = Arc::new(AtomicI64::new(bounds.start));
        let ahead = Ahead {
            at: bounds.start,
            end: bounds.end,
            bytes: bytes.max(1),
            read: SequentialRead::default(),
            taken_at: Arc::clone(&taken_at),
        };
        let pipeline = Pipeline::new("verify", ahead, threads + 1);
        let taken = thread::scope(|scope| {
            let _stop = Stop(&pipeline);
            for _ in 1..threads {
                let reads = || {
                    let mut reader = reader();
                    while pipeline.process_next(&mut reader) {}
                };
                // If the system starts no thread, the caller's compares all sections.
                let _ = thread::Builder::new()
                    .name("mqstore-verify".to_owned())
                    .spawn_scoped(scope, reads);
            }
            take(&mut ComparedSections {
                pipeline: &pipeline,
                reader: reader(),
                taken_at,
            })
        });
        pipeline.with_source(|ahead| ahead.read.drop_before(log, i64::MAX));
        taken
    }

    /// Takes the next section; `None` at the end.
    ///
    /// # Errors
    /// Those of [`SectionReader::read`] and of [`interrupt::check`](crate::interrupt::check).
    pub(super) fn next(&mut self) -> Result<Option<Compared>> {
        let next = self.pipeline.take(Some(&mut self.reader))?;
        if let Some((section, _)) = &next {
            self.taken_at.store(section.start, Ordering::Relaxed);
        }
        Ok(next)
    }
}

/// Ends the threads when it is dropped, also after a panic.
struct Stop<'p, 'a>(&'p Pipeline<SectionReader<'a>>);

impl Drop for Stop<'_, '_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
