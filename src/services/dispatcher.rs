//! Dispatch: adds the queue entry and the index keys of each new message of the log. `RocketMQ` calls it Reput.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::format::{Check, CqUnit, DelayLevels, DispatchRequest, IndexGeometry, MessageView, SCHEDULE_TOPIC, TIMER_TOPIC};
use crate::log::{
    CommitLog, ConsumeQueue, ConsumeQueueStore, IndexPut, IndexService, LogRecord, LogScan, QueueHandle, QueueTable,
};
use crate::services::checkpointer::{Checkpointer, LastDispatched};
use crate::services::queue_files::QueueFiles;
use crate::services::read_barrier::ReadBarrier;
use crate::services::stepped::{Next, RETRY_AFTER, Stepped};
use crate::watermark::Watermark;

/// The most messages that one step dispatches, so that the next write-back comes soon.
const STEP_MESSAGES: usize = 4096;
/// The number of messages after which the header of the index counts their keys and *dispatched* rises, if no thread waits for it.
/// Raising a number that other threads read takes as long as adding a queue entry.
const PUBLISH_MESSAGES: usize = 32;
/// The most queues that one step writes back, so that no message waits for all of them.
const STEP_QUEUES: usize = 1000;
/// The most entries that wait in memory: 12 MiB of them.
const WRITE_OUT_ENTRIES: usize = 512 * 1024;
/// The time for which an entry waits in memory until it is written back.
const WRITE_OUT_AFTER: Duration = Duration::from_millis(10);
/// The interval at which the dispatcher looks for queues whose files were created: a queue with many entries needs one file after the other.
const TAKE_BACK_AFTER: Duration = Duration::from_millis(2);
/// The wait for each queue with waiting entries, if that is longer in total. Writing a queue back takes a fifth of that, for one entry or
/// for thousands. So with many queues each collects several entries.
const WRITE_OUT_AFTER_EACH: Duration = Duration::from_micros(20);
/// The duration from which on a stamp is followed by a pause of ten times that duration, however much is appended. No message is
/// dispatched during a stamp, and a stamp of 50,000 queues takes seconds.
const SLOW_STAMP: Duration = Duration::from_millis(100);
/// The factor of the pause.
const PAUSE_AFTER_STAMP: u32 = 10;
/// The longest pause between two attempts to stamp after a shortage. The pause doubles each time, because each attempt syncs the
/// whole file system.
const STAMP_RETRY_AFTER: Duration = Duration::from_secs(10);

/// The schedule of a dispatcher's deferred work: writing queues back, stamping the checkpoint, and retries after a shortage.
#[derive(Debug)]
struct Schedule {
    /// The time of the next attempt after a shortage.
    retry_at: Option<Instant>,
    /// The time at which the oldest waiting entry was added.
    waiting_since: Option<Instant>,
    /// The number of queues with waiting entries.
    waiting_queues: u32,
    /// The time at which the dispatcher takes queues back whose files are being created; `None` without such queues.
    take_back_at: Option<Instant>,
    /// The time before which no stamp is written.
    stamp_at: Option<Instant>,
    /// The pause after the next shortage of a stamp.
    stamp_pause: Duration,
}

impl Schedule {
    fn new() -> Self {
        Self {
            retry_at: None,
            waiting_since: None,
            waiting_queues: 0,
            take_back_at: None,
            stamp_at: None,
            stamp_pause: RETRY_AFTER,
        }
    }

    /// Returns the time of the next work; `None` if nothing is deferred.
    fn next_due(&self) -> Option<Instant> {
        let deferred = [self.write_out_at(), self.take_back_at, self.stamp_at];
        self.retry_at.or_else(|| deferred.into_iter().flatten().min())
    }

    /// Returns true until the next attempt after a shortage.
    fn is_short(&self, now: Instant) -> bool {
        self.retry_at.is_some_and(|at| now < at)
    }

    /// Notes that an entry was added to a queue without other entries in memory.
    fn queue_waits(&mut self, now: Instant) {
        self.waiting_since.get_or_insert(now);
        self.waiting_queues += 1;
    }

    /// Notes that all waiting queues are being written back.
    fn queues_are_due(&mut self) {
        (self.waiting_since, self.waiting_queues) = (None, 0);
    }

    /// Returns the time at which the waiting entries are written back.
    fn write_out_at(&self) -> Option<Instant> {
        let of_all = WRITE_OUT_AFTER_EACH * self.waiting_queues;
        self.waiting_since.map(|since| since + of_all.max(WRITE_OUT_AFTER))
    }

    fn is_write_out_due(&self, now: Instant) -> bool {
        self.write_out_at().is_some_and(|at| now >= at)
    }

    /// Returns true if a stamp may be written.
    fn may_stamp(&mut self, now: Instant) -> bool {
        self.stamp_at = self.stamp_at.filter(|at| now < *at);
        self.stamp_at.is_none()
    }

    /// Notes that a shortage prevented a stamp.
    fn stamp_was_short(&mut self, now: Instant) {
        self.stamp_at = Some(now + self.stamp_pause);
        self.stamp_pause = STAMP_RETRY_AFTER.min(self.stamp_pause * 2);
    }

    /// Notes that a stamp was written, or failed permanently.
    fn stamp_took(&mut self, now: Instant, took: Duration) {
        self.stamp_at = (took >= SLOW_STAMP).then(|| now + took * PAUSE_AFTER_STAMP);
        self.stamp_pause = RETRY_AFTER;
    }
}

/// The dispatcher service, which follows the end of the log.
#[derive(Debug)]
pub struct Dispatcher {
    log: Arc<CommitLog>,
    queues: Arc<ConsumeQueueStore>,
    files: Arc<QueueFiles>,
    index: Arc<IndexService>,
    checkpointer: Checkpointer,
    dispatched: Arc<Watermark>,
    /// The end of the last delayed message or timer message that is in its queue.
    scheduled: Arc<Watermark>,
    barrier: Arc<ReadBarrier>,
    delay_levels: DelayLevels,
    geometry: IndexGeometry,
    index_tags: bool,
    /// The offset before which messages got their queue entries at the open.
    queued_until: i64,
    indexed_until: i64,
    last: LastDispatched,
    /// The offset up to which the checkpoint covers the log.
    covered_until: i64,
    checkpoint_interval: i64,
    known: QueueTable<Option<NewEntries>>,
    /// The queues with new entries, each once.
    touched: Vec<QueueHandle>,
    /// The end of the last message among the new entries that is delayed or a timer message.
    last_scheduled: Option<i64>,
    /// The hashes of the keys of one message.
    hashes: Vec<i32>,
    /// The queues that are being written back, some in each step.
    due: Vec<Arc<ConsumeQueue>>,
    /// The other queues with entries in memory, each once.
    waiting: Vec<Arc<ConsumeQueue>>,
    /// The number of entries added since the last queues became due.
    entries: usize,
    schedule: Schedule,
}

impl Dispatcher {
    /// Creates a dispatcher that starts at the value of `dispatched`, and raises it. It raises `scheduled` to the end of each delayed
    /// message. It reports to `barrier` when it cannot continue for now. `last` is the last message that already has its queue entry.
    /// The checkpoint covers the log up to `covered_until`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for invalid delay levels.
    pub fn new(
        checkpointer: Checkpointer,
        dispatched: Arc<Watermark>,
        scheduled: Arc<Watermark>,
        barrier: Arc<ReadBarrier>,
        last: LastDispatched,
        covered_until: i64,
        config: &StoreConfig,
    ) -> Result<Self> {
        let log = checkpointer.log.clone();
        Ok(Self {
            files: Arc::new(QueueFiles::new(checkpointer.queues.clone())),
            queues: checkpointer.queues.clone(),
            index: checkpointer.index.clone(),
            geometry: checkpointer.geometry,
            checkpointer,
            delay_levels: config.delay_levels()?,
            index_tags: config.index_tags,
            queued_until: log.watermarks.readable.get(),
            indexed_until: dispatched.get() - 1,
            dispatched,
            scheduled,
            barrier,
            last,
            covered_until,
            checkpoint_interval: i64::try_from(config.checkpoint_interval).unwrap_or(i64::MAX),
            log,
            known: QueueTable::default(),
            touched: Vec::new(),
            last_scheduled: None,
            hashes: Vec::new(),
            due: Vec::new(),
            waiting: Vec::new(),
            entries: 0,
            schedule: Schedule::new(),
        })
    }

    /// Returns the requests for new queue files, which a service may answer.
    pub(super) fn queue_files(&self) -> &Arc<QueueFiles> {
        &self.files
    }

    /// Writes back all waiting entries, and stamps the checkpoint.
    ///
    /// # Errors
    /// Those of [`Checkpointer::stamp`].
    pub fn stamp(&mut self) -> Result<()> {
        self.write_out()?;
        self.barrier.call_returned(true);
        let stamped = self.checkpointer.stamp(self.last, self.dispatched.get());
        self.barrier.call_returned(false);
        stamped?;
        self.covered_until = self.covered();
        Ok(())
    }

    /// Returns the physical offset before which each message has its queue entry on disk, after a sync of the queue files. Unlike a
    /// stamp this needs no free space.
    ///
    /// # Errors
    /// Those of [`Checkpointer::sync_queues`].
    pub fn sync_queues(&mut self) -> Result<i64> {
        self.end_creation()?;
        self.barrier.call_returned(true);
        let first_unwritten = self.checkpointer.sync_queues();
        self.barrier.call_returned(false);
        Ok(first_unwritten?.map_or(self.covered(), |first| first.min(self.covered())))
    }

    /// Returns the offset up to which messages are in their queues.
    fn covered(&self) -> i64 {
        self.dispatched.get().max(self.queued_until)
    }

    /// Dispatches new messages for a waiting caller. Write-back and stamps are left to the next step, unless too many entries wait.
    ///
    /// # Errors
    /// Those of [`Stepped::step`].
    pub fn help(&mut self, now: Instant) -> Result<Next> {
        // The steps of the service dispatch the rest of a stopped log.
        if self.has_failed() || self.log.watermarks.readable.poisoned().is_some() {
            return Ok(Next::Done);
        }
        if self.schedule.is_short(now) {
            return Ok(self.idle());
        }
        match self.dispatch_next(now).and_then(|()| self.write_back_if_full(now)) {
            Err(error) if error.is_shortage() => Ok(self.retry_later(now)),
            Err(error) => Err(error),
            Ok(()) if self.is_behind() => Ok(Next::Again),
            Ok(()) => Ok(self.idle()),
        }
    }

    /// Returns true after a failure: the affected files are not in the state that the next step assumes.
    fn has_failed(&self) -> bool {
        matches!(self.dispatched.poisoned(), Some(cause) if !matches!(cause, Error::Closed))
    }

    fn is_behind(&self) -> bool {
        self.dispatched.get() < self.log.watermarks.readable.get()
    }

    fn idle(&self) -> Next {
        let until = self.schedule.next_due();
        Next::Idle { until }
    }

    fn retry_later(&mut self, now: Instant) -> Next {
        self.schedule.retry_at = Some(now + RETRY_AFTER);
        self.barrier.set_short(true);
        self.idle()
    }

    fn dispatch_next(&mut self, now: Instant) -> Result<()> {
        self.schedule.retry_at = None;
        self.barrier.set_short(false);
        self.barrier.call_returned(true);
        let dispatched = self.dispatch(self.dispatched.get(), now);
        self.barrier.call_returned(false);
        dispatched
    }

    /// Writes some queues back if too many entries wait (back-pressure), those first that wait for their files.
    fn write_back_if_full(&mut self, now: Instant) -> Result<()> {
        if self.entries < WRITE_OUT_ENTRIES {
            return Ok(());
        }
        self.create_files(now)?;
        self.write_some_out(now)
    }

    /// Creates the requested files, or waits for the service that is creating them.
    fn create_files(&mut self, now: Instant) -> Result<()> {
        if self.schedule.take_back_at.is_none() {
            return Ok(());
        }
        self.barrier.call_returned(true);
        while self.files.create(&|may_sync| self.barrier.call_returned(may_sync)) {}
        self.barrier.call_returned(false);
        self.take_back(now)
    }

    /// Creates the requested files before a sync: it covers no file that gets its name later, and another thread that syncs the file
    /// system may get an error that is reported once. After a shortage the queues wait again.
    fn end_creation(&mut self) -> Result<()> {
        match self.create_files(Instant::now()) {
            Err(error) if error.is_shortage() => Ok(()),
            created => created,
        }
    }

    /// Takes the queues back whose files were created, and those whose files could not be created.
    fn take_back(&mut self, now: Instant) -> Result<()> {
        let taken = self.files.take_back();
        // Their entries have waited for the file, and are not delayed again.
        self.due.extend(taken.queues);
        self.schedule.take_back_at = taken.is_partial.then(|| now + TAKE_BACK_AFTER);
        taken.outcome
    }

    /// Writes back the due queues, and stamps the checkpoint when enough was dispatched since the last stamp.
    fn do_due(&mut self, now: Instant) -> Result<()> {
        if self.schedule.take_back_at.is_some_and(|at| now >= at) {
            self.take_back(now)?;
        }
        self.write_back_if_full(now)?;
        if !self.due.is_empty() || self.schedule.is_write_out_due(now) {
            self.write_some_out(now)?;
        }
        let may_stamp = self.schedule.may_stamp(now);
        if may_stamp && self.covered() - self.covered_until >= self.checkpoint_interval {
            self.try_stamp(now)?;
        }
        Ok(())
    }

    /// Stamps the checkpoint, or defers it after a shortage: the old stamp does no harm, and dispatching continues.
    fn try_stamp(&mut self, now: Instant) -> Result<()> {
        let begun = Instant::now();
        match self.stamp() {
            Err(error) if error.is_shortage() => {
                self.schedule.stamp_was_short(now);
                Ok(())
            }
            stamped => {
                self.schedule.stamp_took(now, begun.elapsed());
                stamped
            }
        }
    }

    /// Writes back all waiting entries.
    fn write_out(&mut self) -> Result<()> {
        self.end_creation()?;
        while !self.due.is_empty() || !self.waiting.is_empty() {
            let queues = self.next_due_queues();
            self.write_out_queues(queues)?;
        }
        Ok(())
    }

    /// Writes back some of the due queues. New files are left to the service that creates them, if there is one.
    fn write_some_out(&mut self, now: Instant) -> Result<()> {
        let queues = self.next_due_queues();
        if !self.files.is_served() {
            return self.write_out_queues(queues);
        }
        let written = self
            .queues
            .write_back(&queues, &|may_sync| self.barrier.call_returned(may_sync));
        match written {
            Ok(without_file) if without_file.is_empty() => {}
            Ok(without_file) => {
                self.files.ask(without_file);
                self.schedule.take_back_at.get_or_insert(now + TAKE_BACK_AFTER);
            }
            Err(error) => {
                self.still_due(queues);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes some of the due queues. If no queue is due, all waiting queues become due.
    fn next_due_queues(&mut self) -> Vec<Arc<ConsumeQueue>> {
        if self.due.is_empty() {
            self.due = std::mem::take(&mut self.waiting);
            self.schedule.queues_are_due();
            // The entries of queues that wait for their files count until these are taken back.
            if self.schedule.take_back_at.is_none() {
                self.entries = 0;
            }
        }
        let some = self.due.len().saturating_sub(STEP_QUEUES)..;
        self.due.drain(some).collect()
    }

    /// Writes these queues back, and creates their new files.
    fn write_out_queues(&mut self, queues: Vec<Arc<ConsumeQueue>>) -> Result<()> {
        let written = self
            .queues
            .write_out(&queues, &|may_sync| self.barrier.call_returned(may_sync));
        self.still_due(queues);
        written
    }

    /// Keeps the queues that still have entries in memory. After a shortage some of them have none any more: their next entry adds
    /// them again.
    fn still_due(&mut self, mut queues: Vec<Arc<ConsumeQueue>>) {
        queues.retain(|queue| queue.waits());
        self.due.append(&mut queues);
    }

    fn dispatch(&mut self, from: i64, now: Instant) -> Result<()> {
        let (log, index) = (self.log.clone(), self.index.clone());
        // Readable bytes are immutable.
        let mut scan = log
            .files()
            .scan(from, log.watermarks.readable.get(), Check::Structure)
            .of_immutable();
        let mut keys = index.put_keys(self.geometry);
        let dispatched = self.dispatch_some(&mut scan, &mut keys, now);
        self.append_entries(now);
        // Also after a failure: some keys of the failed message may be in the file.
        let published = keys.publish();
        dispatched.and(published)?;
        expect_no_stop(&scan)?;
        self.dispatched.advance(scan.position());
        Ok(())
    }

    fn dispatch_some(&mut self, scan: &mut LogScan<'_>, keys: &mut IndexPut<'_>, now: Instant) -> Result<()> {
        for number in 0..STEP_MESSAGES {
            if !scan.advance()? {
                break;
            }
            self.dispatch_one(scan, keys)?;
            // A read that waits for the first of many messages must not wait for all of them.
            if number % PUBLISH_MESSAGES == 0 || self.dispatched.waiting() > 0 {
                self.append_entries(now);
                keys.publish()?;
                self.dispatched.advance(LogScan::position(scan));
            }
        }
        Ok(())
    }

    /// Adds the new entries to their queues: one hold of the lock for each queue, not for each message.
    fn append_entries(&mut self, now: Instant) {
        for handle in self.touched.drain(..) {
            let Some(Some(new)) = self.known.get_mut(handle) else {
                continue;
            };
            let (added, is_first) = new.queue.append(new.units.drain(..));
            self.entries += added;
            if is_first {
                self.waiting.push(new.queue.clone());
                self.schedule.queue_waits(now);
            }
        }
        if let Some(end) = self.last_scheduled.take() {
            self.scheduled.advance(end);
        }
    }

    fn dispatch_one(&mut self, scan: &LogScan<'_>, keys: &mut IndexPut<'_>) -> Result<()> {
        let Some(view) = scan.view() else { return Ok(()) };
        let (offset, queue_offset, store_time) = (view.physical_offset(), view.queue_offset(), view.store_time());
        let (is_unqueued, is_unindexed) = (offset >= self.queued_until, offset > self.indexed_until);
        let request = DispatchRequest::of(&view);
        self.hashes.clear();
        if is_unindexed {
            let hashes = request.index_key_hashes(self.index_tags);
            hashes.for_each(|hash| self.hashes.push(hash));
        }
        let unit = request.unit(&self.delay_levels).filter(|_| is_unqueued);
        let queue = match unit {
            Some(_) => Some(handle_of(&mut self.known, &self.queues, scan, &view)?),
            None => None,
        };
        // No byte of an unreadable page gets into queues and index.
        scan.check_intact()?;
        if let Some((handle, unit)) = queue.zip(unit)
            && let Some(Some(new)) = self.known.get_mut(handle)
        {
            if new.units.is_empty() {
                self.touched.push(handle);
            }
            new.units.push((queue_offset, unit));
            if [SCHEDULE_TOPIC.as_bytes(), TIMER_TOPIC.as_bytes()].contains(&view.topic_bytes()) {
                self.last_scheduled = Some(view.end());
            }
        }
        if is_unindexed {
            keys.put(offset, store_time, &self.hashes)?;
            self.indexed_until = offset;
        }
        if is_unqueued {
            self.last = LastDispatched {
                physical_offset: offset,
                store_time,
            };
        }
        Ok(())
    }
}

/// A queue, and its entries that the next [`Dispatcher::append_entries`] adds to it.
#[derive(Debug)]
struct NewEntries {
    queue: Arc<ConsumeQueue>,
    units: Vec<(i64, CqUnit)>,
}

/// Returns the handle of the message's queue; its value is `None` for a batch consume queue, which is not built here.
fn handle_of(
    known: &mut QueueTable<Option<NewEntries>>,
    queues: &ConsumeQueueStore,
    scan: &LogScan<'_>,
    view: &MessageView<'_>,
) -> Result<QueueHandle> {
    let (topic, queue_id) = (view.topic_bytes(), view.queue_id());
    if let Some(handle) = known.find(topic, queue_id) {
        return Ok(handle);
    }
    let topic = topic.to_owned();
    scan.check_intact()?;
    let queue = queues.queue_or_new(&String::from_utf8_lossy(&topic), queue_id);
    let units = Vec::new();
    Ok(known.add(&topic, queue_id, queue.map(|queue| NewEntries { queue, units })))
}

impl Stepped for Dispatcher {
    /// Dispatches new messages, and writes back due queues. Returns [`Next::Done`] once no message can follow and everything is
    /// written back.
    ///
    /// A [shortage](Error::is_shortage) is waited out: derived files can be written later, and the log continues until its disk is
    /// full.
    ///
    /// # Errors
    /// Those of reading the log and of writing queues and index; nothing is dispatched after it. A shortage is an error only once
    /// the log is stopped, and a later step may then succeed.
    fn step(&mut self, now: Instant) -> Result<Next> {
        if self.has_failed() {
            return Ok(Next::Done);
        }
        // Read before the end of the log: a stopped log does not grow any more.
        let stopped = self.log.watermarks.readable.poisoned();
        if stopped.is_none() && self.schedule.is_short(now) {
            return Ok(self.idle());
        }
        let worked = self.dispatch_next(now).and_then(|()| match stopped {
            Some(_) => self.write_out(),
            None => self.do_due(now),
        });
        match worked {
            Err(error) if error.is_shortage() && stopped.is_none() => return Ok(self.retry_later(now)),
            worked => worked?,
        }
        if self.is_behind() || !self.due.is_empty() {
            return Ok(Next::Again);
        }
        if let Some(cause) = stopped {
            self.dispatched.poison(cause);
            return Ok(Next::Done);
        }
        Ok(self.idle())
    }

    fn awaited(&self) -> (Arc<Watermark>, i64) {
        // During a shortage new messages wait with the rest.
        let next = self.schedule.retry_at.map_or(self.dispatched.get() + 1, |_| i64::MAX);
        (self.log.watermarks.readable.clone(), next)
    }

    /// Poisons the store, unless the cause is a shortage: after the stop of the log the close dispatches again, and reports it.
    fn fail(&self, cause: Error) {
        if !cause.is_shortage() {
            self.dispatched.poison(self.log.refuse(cause));
        }
    }
}

/// Checks that the scan has not stopped before the end of the log, which would mean damage: every byte below the end belongs to a
/// record or a BLANK.
fn expect_no_stop(scan: &LogScan<'_>) -> Result<()> {
    match scan.stopped_by() {
        None => Ok(()),
        Some(LogRecord::Corrupt(error) | LogRecord::NoRecord(error)) => Err(error.clone()),
        Some(_) => Err(Error::not_found(format!(
            "no message starts at physical offset {}, although one was appended there",
            scan.position()
        ))),
    }
}
