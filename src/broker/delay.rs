//! Delivery of delayed messages: a copy of each is appended to its own topic once its time has come.
//!
//! Each level is a queue of the topic of delayed messages, and is delivered in order. The progress is in `config/delayOffset.json`. It is
//! older than the last copies after a crash, so the copies in the log are searched first. Source: docs/FORMAT.md, "Delayed messages".

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::copies::real_place;
use super::delay_offset::{DelayOffsets, bounds};
use super::delay_queue::DelayQueue;
use super::delivered::DeliveredCopies;
use crate::error::{Error, Result};
use crate::format::{HALF_TOPIC, Message, MessageView};
use crate::log::StoredMessage;
use crate::services::{Next, Stepped};
use crate::store::{Incoming, MessageStore};
use crate::watermark::Watermark;

/// The pause after a failure that may pass, such as a full disk.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// The longest wait for a message that is not due: the clock may be set.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// The most messages of a level that one step delivers.
const STEP_MESSAGES: usize = 1024;
/// The bytes of them after which the step takes no more.
const STEP_BYTES: usize = 1 << 20;

/// The service that delivers delayed messages.
#[derive(Debug)]
pub(super) struct DelayService {
    store: Arc<MessageStore>,
    offsets: Arc<DelayOffsets>,
    max_level: i32,
    /// The search for what was delivered before the open. `None` once it is done.
    search: Option<DeliveredCopies>,
    /// The queue offsets of messages that were delivered before the open, by level.
    struck: BTreeMap<i32, BTreeSet<i64>>,
    /// The end of the last delayed message that the queues had when they were looked at.
    seen: i64,
    retry_at: Option<Instant>,
}

/// The messages of a level that one step delivers.
#[derive(Debug, Default)]
struct Batch {
    /// Each with the progress after it, and the messages that were passed over before it.
    messages: Vec<(Settled, StoredMessage)>,
    bytes: usize,
    /// The progress after all of it.
    settled: Settled,
    /// The time at which the next message is due, if that is later.
    due: Option<i64>,
}

/// A progress with the number of messages before it that could not be delivered.
#[derive(Debug, Clone, Copy, Default)]
struct Settled {
    next: i64,
    passed_over: u64,
}

impl DelayService {
    /// Prepares the delivery in a store that was just opened.
    ///
    /// # Errors
    /// Those of reading the queues.
    pub(super) fn new(store: &Arc<MessageStore>, offsets: &Arc<DelayOffsets>) -> Result<Self> {
        let search = DeliveredCopies::plan(store, offsets)?;
        if search.is_none() {
            offsets.settle();
        }
        Ok(Self {
            store: store.clone(),
            offsets: offsets.clone(),
            max_level: store.config().delay_levels()?.max_level(),
            search,
            struck: BTreeMap::new(),
            seen: 0,
            retry_at: None,
        })
    }

    /// Searches for copies, or delivers what is due.
    fn work(&mut self, now: Instant) -> Result<Next> {
        if let Some(search) = &mut self.search {
            if search.advance()? {
                self.struck = self.search.take().map_or_else(BTreeMap::new, DeliveredCopies::into_struck);
            }
            return Ok(Next::Again);
        }
        let now_ms = self.store.reader().env().now_ms();
        // Read before the queues, so that no message is missed.
        self.seen = self.store.scheduled().get();
        let (mut is_behind, mut next_due, mut failed) = (false, None, None);
        for level in 1..=self.max_level {
            if self.offsets.next(level) >= bounds(&self.store, level)?.end {
                continue;
            }
            match self.deliver_level(level, now_ms) {
                Ok(None) => is_behind = true,
                Ok(Some(due)) => next_due = next_due.into_iter().chain([due]).min(),
                Err(error) => failed = Some(error),
            }
        }
        self.store.show(self.store.appended_offset())?;
        if self.struck.values().all(BTreeSet::is_empty) {
            self.offsets.settle();
        }
        if let Some(error) = failed {
            return Err(error);
        }
        if is_behind {
            return Ok(Next::Again);
        }
        let until = next_due.map(|due| {
            self.offsets.renew_snapshot();
            now + Duration::from_millis(due.abs_diff(now_ms)).min(LONGEST_WAIT)
        });
        Ok(Next::Idle { until })
    }

    /// Delivers the due messages of a level, up to the most of a step. Returns the time at which the next one is due; `None` if the level
    /// is to be looked at again at once.
    fn deliver_level(&mut self, level: i32, now_ms: i64) -> Result<Option<i64>> {
        let batch = self.collect(level, now_ms)?;
        let copies: Vec<_> = batch.messages.iter().map(|(_, message)| copy_of(&message.view())).collect();
        let copies: Vec<_> = copies.into_iter().flatten().map(Incoming::Copied).collect();
        let mut done = Vec::with_capacity(copies.len());
        let mut appended = Ok(());
        if !copies.is_empty() {
            self.offsets.begin_copies();
            appended = self.store.appender(Some(false)).append_all(copies, &mut done);
        }
        let after_last = done.len().checked_sub(1).and_then(|last| batch.messages.get(last));
        let settled = match after_last {
            _ if appended.is_ok() => batch.settled,
            Some((after, _)) => *after,
            None => Settled::at(self.offsets.next(level)),
        };
        self.offsets.move_to(level, settled.next, settled.passed_over);
        if let Some(struck) = self.struck.get_mut(&level) {
            *struck = struck.split_off(&settled.next);
        }
        appended.map(|()| batch.due)
    }

    /// Reads the due messages of a level, up to the most of a step. A failure ends the batch, and is returned if that is empty.
    fn collect(&self, level: i32, now_ms: i64) -> Result<Batch> {
        let from = self.offsets.next(level);
        let mut queue = DelayQueue::open(&self.store, level, from..i64::MAX)?;
        let mut batch = Batch {
            settled: Settled::at(from),
            ..Batch::default()
        };
        let filled = self.fill(&mut batch, &mut queue, level, now_ms);
        if batch.settled.next == from {
            filled?;
        }
        Ok(batch)
    }

    fn fill(&self, batch: &mut Batch, queue: &mut DelayQueue, level: i32, now_ms: i64) -> Result<()> {
        let struck = self.struck.get(&level);
        while batch.messages.len() < STEP_MESSAGES && batch.bytes < STEP_BYTES {
            let entry = queue.next(false)?;
            batch.settled.passed_over += queue.take_damaged();
            let Some(entry) = entry else {
                batch.settled.next = batch.settled.next.max(queue.position());
                break;
            };
            let is_struck = struck.is_some_and(|struck| struck.contains(&entry.offset));
            let due = queue.due(entry, now_ms)?;
            if due > now_ms && !is_struck {
                batch.due = Some(due);
                break;
            }
            let message = if is_struck { None } else { queue.message(entry)? };
            batch.settled.next = entry.offset + 1;
            match message.filter(|message| self.is_deliverable(&message.view())) {
                Some(message) if is_discarded(&message.view()) => {}
                Some(message) => {
                    batch.bytes += message.view().size() as usize;
                    batch.messages.push((batch.settled, message));
                }
                None => batch.settled.passed_over += u64::from(!is_struck),
            }
        }
        Ok(())
    }

    /// Returns true if the copy of a message can be appended.
    fn is_deliverable(&self, view: &MessageView<'_>) -> bool {
        copy_of(view).is_some_and(|copy| self.store.appender(None).check_all(&mut [Incoming::Copied(copy)]).is_ok())
    }
}

impl Settled {
    fn at(next: i64) -> Self {
        Self { next, passed_over: 0 }
    }
}

impl Stepped for DelayService {
    /// Delivers what is due. A failure that may pass is tried again after a moment, at the same message.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`]: nothing can be appended any more.
    fn step(&mut self, now: Instant) -> Result<Next> {
        if self.store.scheduled().poisoned().is_some() {
            return Ok(Next::Done);
        }
        if self.retry_at.is_none_or(|at| now >= at) {
            self.retry_at = None;
            match self.work(now) {
                Err(error) if !matches!(error, Error::Poisoned { .. } | Error::Closed) => self.retry_at = Some(now + RETRY_AFTER),
                worked => return worked,
            }
        }
        Ok(Next::Idle { until: self.retry_at })
    }

    fn awaited(&self) -> (Arc<Watermark>, i64) {
        // During a failure new messages wait with the rest.
        let next = self.retry_at.map_or(self.seen + 1, |_| i64::MAX);
        (self.store.scheduled().clone(), next)
    }

    fn fail(&self, _cause: Error) {}
}

/// Returns the copy of a delayed message as it is delivered; `None` if it names no topic. Its properties stay as they are stored.
fn copy_of<'m>(view: &MessageView<'m>) -> Option<Message<'m>> {
    let (topic, queue_id) = real_place(view)?;
    Some(Message {
        topic: topic.into(),
        queue_id,
        prepared_transaction_offset: 0,
        ..view.to_message()
    })
}

/// Returns true for a half message. A broker does not deliver it: its transaction is settled by other means.
fn is_discarded(view: &MessageView<'_>) -> bool {
    real_place(view).is_some_and(|(topic, _)| topic == HALF_TOPIC)
}
