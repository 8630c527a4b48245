//! Dispatch: for each message that the log gains, its entry in its consume queue and its keys in the index. `RocketMQ` calls it Reput.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::format::{Check, CqUnit, DelayLevels, IndexGeometry, MessageView};
use crate::log::{CommitLog, ConsumeQueue, ConsumeQueueStore, IndexService, LogRecord, LogScan};
use crate::services::checkpointer::{Checkpointer, LastDispatched};
use crate::services::read_barrier::ReadBarrier;
use crate::services::stepped::{Next, RETRY_AFTER, Stepped};
use crate::watermark::Watermark;

/// Messages that one step dispatches at most, so that a write-out is never far away.
const STEP_MESSAGES: usize = 4096;
/// Entries of a queue that wait in memory until they are written out.
const WRITE_OUT_ENTRIES: usize = 64;
/// How long an entry waits in memory at most.
const WRITE_OUT_AFTER: Duration = Duration::from_millis(10);
/// The longest wait between two tries of a stamp after a shortage. The wait doubles each time, because each try syncs the whole file
/// system.
const STAMP_RETRY_AFTER: Duration = Duration::from_secs(10);

/// Follows the log's end.
#[derive(Debug)]
pub struct Dispatcher {
    log: Arc<CommitLog>,
    queues: Arc<ConsumeQueueStore>,
    index: Arc<IndexService>,
    checkpointer: Checkpointer,
    dispatched: Arc<Watermark>,
    barrier: Arc<ReadBarrier>,
    delay_levels: DelayLevels,
    geometry: IndexGeometry,
    index_tags: bool,
    /// Messages before it got their queue entries when the store was opened.
    queued_until: i64,
    indexed_until: i64,
    last: LastDispatched,
    /// Up to where the log is covered by the checkpoint.
    covered_until: i64,
    checkpoint_interval: i64,
    /// Queues with entries in memory, each once; written out together.
    waiting: Vec<Arc<ConsumeQueue>>,
    waiting_since: Option<Instant>,
    is_full: bool,
    /// When to try again after a shortage.
    retry_at: Option<Instant>,
    /// When to stamp again after a shortage, and how long the wait after the next one is.
    stamp_at: Option<Instant>,
    stamp_pause: Duration,
}

impl Dispatcher {
    /// Starts at `dispatched`, and raises it. Tells `barrier` when it cannot go on for now. `last` is the last message that already has
    /// its queue entry. The checkpoint covers the log up to `covered_until`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for delay levels that are none.
    pub fn new(
        checkpointer: Checkpointer,
        dispatched: Arc<Watermark>,
        barrier: Arc<ReadBarrier>,
        last: LastDispatched,
        covered_until: i64,
        config: &StoreConfig,
    ) -> Result<Self> {
        let log = checkpointer.log.clone();
        Ok(Self {
            queues: checkpointer.queues.clone(),
            index: checkpointer.index.clone(),
            geometry: checkpointer.geometry,
            checkpointer,
            delay_levels: config.delay_levels()?,
            index_tags: config.index_tags,
            queued_until: log.readable.get(),
            indexed_until: dispatched.get() - 1,
            dispatched,
            barrier,
            last,
            covered_until,
            checkpoint_interval: i64::try_from(config.checkpoint_interval).unwrap_or(i64::MAX),
            log,
            waiting: Vec::new(),
            waiting_since: None,
            is_full: false,
            retry_at: None,
            stamp_at: None,
            stamp_pause: RETRY_AFTER,
        })
    }

    /// Writes out what waits, and stamps the checkpoint.
    ///
    /// # Errors
    /// As [`Checkpointer::stamp`].
    pub fn stamp(&mut self) -> Result<()> {
        self.write_out()?;
        self.barrier.call_returned(true);
        let stamped = self.checkpointer.stamp(self.last, self.dispatched.get());
        self.barrier.call_returned(false);
        stamped?;
        self.covered_until = self.covered();
        Ok(())
    }

    /// Up to where messages are in their queues.
    fn covered(&self) -> i64 {
        self.dispatched.get().max(self.queued_until)
    }

    /// A step for a caller that waits: dispatches what has come. What is due to be written out or stamped is left to the next step, unless
    /// the entries of a queue become too many.
    ///
    /// # Errors
    /// As [`Stepped::step`].
    pub fn help(&mut self, now: Instant) -> Result<Next> {
        self.step_for(now, true)
    }

    fn step_for(&mut self, now: Instant, helps: bool) -> Result<Next> {
        // After a failure the files that it was about are not as the next step takes them to be.
        if matches!(self.dispatched.poisoned(), Some(cause) if !matches!(cause, Error::Closed)) {
            return Ok(Next::Done);
        }
        // Read before the end of the log is: a stopped log gets no longer.
        let stopped = self.log.readable.poisoned();
        if stopped.is_some() && helps {
            return Ok(Next::Done);
        }
        if stopped.is_none() && self.retry_at.is_some_and(|at| now < at) {
            return Ok(Next::Idle { until: self.retry_at });
        }
        self.retry_at = None;
        self.barrier.set_short(false);
        match self.work(now, stopped.is_some(), helps) {
            Err(error) if error.is_shortage() && stopped.is_none() => {
                self.retry_at = Some(now + RETRY_AFTER);
                self.barrier.set_short(true);
                return Ok(Next::Idle { until: self.retry_at });
            }
            done => done?,
        }
        if self.dispatched.get() < self.log.readable.get() {
            return Ok(Next::Again);
        }
        if let Some(cause) = stopped {
            self.dispatched.poison(cause);
            return Ok(Next::Done);
        }
        let write_out_at = self.waiting_since.map(|since| since + WRITE_OUT_AFTER);
        let until = write_out_at.into_iter().chain(self.stamp_at).min();
        Ok(Next::Idle { until })
    }

    fn work(&mut self, now: Instant, is_stopped: bool, helps: bool) -> Result<()> {
        self.barrier.call_returned(true);
        let dispatched = self.dispatch(self.dispatched.get(), now);
        self.barrier.call_returned(false);
        dispatched?;
        let is_due = !helps && self.waiting_since.is_some_and(|since| now >= since + WRITE_OUT_AFTER);
        if is_due || self.is_full || is_stopped {
            self.write_out()?;
        }
        let is_wanted = !is_stopped && !helps && self.covered() - self.covered_until >= self.checkpoint_interval;
        if is_wanted && self.stamp_at.is_none_or(|at| now >= at) {
            self.try_stamp(now)?;
        }
        Ok(())
    }

    /// Stamps the checkpoint, or a while later after a shortage: the old stamp does no harm, and messages are dispatched meanwhile.
    fn try_stamp(&mut self, now: Instant) -> Result<()> {
        match self.stamp() {
            Err(error) if error.is_shortage() => {
                self.stamp_at = Some(now + self.stamp_pause);
                self.stamp_pause = STAMP_RETRY_AFTER.min(self.stamp_pause * 2);
                Ok(())
            }
            stamped => {
                self.stamp_at = None;
                self.stamp_pause = RETRY_AFTER;
                stamped
            }
        }
    }

    fn write_out(&mut self) -> Result<()> {
        let written = self
            .queues
            .write_out(&self.waiting, &|may_sync| self.barrier.call_returned(may_sync));
        // After a shortage some of them have no entry in memory any more. Their next entry adds them again.
        self.waiting.retain(|queue| queue.waits());
        if written.is_ok() {
            self.waiting_since = None;
            self.is_full = false;
        }
        written
    }

    fn dispatch(&mut self, from: i64, now: Instant) -> Result<()> {
        let log = self.log.clone();
        let mut scan = log.files().scan(from, log.readable.get(), Check::Structure);
        for message in scan.by_ref().take(STEP_MESSAGES) {
            let message = message?;
            let view = message.view();
            self.dispatch_one(&view, now)?;
            // After each message, so that a read that waits for the first of many does not wait for all of them.
            self.dispatched.advance(view.physical_offset() + i64::from(view.size()));
        }
        expect_no_stop(&scan)?;
        self.dispatched.advance(scan.position());
        Ok(())
    }

    fn dispatch_one(&mut self, view: &MessageView<'_>, now: Instant) -> Result<()> {
        if view.physical_offset() >= self.queued_until
            && let Some(unit) = CqUnit::of(view, &self.delay_levels)
        {
            self.add_to_queue(view, unit, now);
        }
        if view.physical_offset() > self.indexed_until {
            self.index.put(view, self.geometry, self.index_tags)?;
            self.indexed_until = view.physical_offset();
        }
        if view.physical_offset() >= self.queued_until {
            self.last = LastDispatched {
                physical_offset: view.physical_offset(),
                store_time: view.store_time(),
            };
        }
        Ok(())
    }

    fn add_to_queue(&mut self, view: &MessageView<'_>, unit: CqUnit, now: Instant) {
        let Some(queue) = self.queues.queue_or_new(&view.topic(), view.queue_id()) else {
            return; // a batch consume queue, which is not built here
        };
        // `None` for a message that is dispatched again, because the disk was full when its keys were put.
        let Some(entries) = queue.append(view.queue_offset(), unit) else {
            return;
        };
        self.is_full |= entries >= WRITE_OUT_ENTRIES;
        if entries == 1 {
            self.waiting.push(queue);
            self.waiting_since.get_or_insert(now);
        }
    }
}

impl Stepped for Dispatcher {
    /// Dispatches what has come, and writes out what is due. Done when nothing can come any more and everything is written out.
    ///
    /// A [shortage](Error::is_shortage) is waited out: derived files can be written again, and the log goes on as long as it has room.
    ///
    /// # Errors
    /// What reading the log or writing queues and index raises; nothing is dispatched after it. A shortage is an error only once the log
    /// is stopped, and a later step may then succeed.
    fn step(&mut self, now: Instant) -> Result<Next> {
        self.step_for(now, false)
    }

    fn awaited(&self) -> (Arc<Watermark>, i64) {
        // Whatever comes in a shortage waits with the rest.
        let next = self.retry_at.map_or(self.dispatched.get() + 1, |_| i64::MAX);
        (self.log.readable.clone(), next)
    }

    fn fail(&self, cause: Error) {
        self.dispatched.poison(self.log.refuse(cause));
    }
}

/// Every byte below the log's end belongs to a record or a BLANK: a scan that stops before has met damage.
fn expect_no_stop(scan: &LogScan<'_>) -> Result<()> {
    match scan.stopped_by() {
        None => Ok(()),
        Some(LogRecord::Corrupt(error) | LogRecord::NoRecord(error)) => Err(error.clone()),
        Some(_) => Err(Error::NotFound {
            what: format!(
                "no message starts at physical offset {}, although one was appended there",
                scan.position()
            ),
        }),
    }
}
