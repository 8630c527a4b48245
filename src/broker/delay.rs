//! Delivery of delayed messages: a copy of each is appended to its own topic once its time has come. RocketMQ: `ScheduleMessageService`.
//!
//! Each level is a queue of the topic of delayed messages, and is delivered in order. The progress is in `config/delayOffset.json`. It is
//! older than the last copies after a crash, so the copies in the log are searched first. Source: docs/BROKER_RECORDS.md,
//! "Delayed messages".

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use super::arrivals::Arrivals;
use super::copies::real_place;
use super::delay_offset::{DelayOffsets, bounds, load_file, stored_log_end};
use super::delay_queue::DelayQueue;
use super::delivered::DeliveredCopies;
use super::delivery::{Delivery, DeliverySchedule, LastCopy, STEP_BYTES, STEP_MESSAGES, until_due};
use crate::error::Result;
use crate::format::{HALF_TOPIC, Message, MessageView};
use crate::log::StoredMessage;
use crate::services::Next;
use crate::store::{Incoming, MessageStore};

/// The delivery of delayed messages, level by level.
#[derive(Debug)]
pub(super) struct DelayService {
    store: Arc<MessageStore>,
    offsets: Arc<DelayOffsets>,
    arrivals: BTreeMap<i32, Arrivals>,
    /// The search for what was delivered before the open. `None` once it is done.
    search: Option<DeliveredCopies>,
    /// The queue offsets of messages that were delivered before the open, by level.
    struck: BTreeMap<i32, BTreeSet<i64>>,
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

/// The time of a step, by the wall clock and by the one that nobody sets.
#[derive(Debug, Clone, Copy)]
struct Now {
    wall_ms: i64,
    at: Instant,
}

/// A progress with the number of messages before it that could not be delivered.
#[derive(Debug, Clone, Copy, Default)]
struct Settled {
    next: i64,
    passed_over: u64,
}

/// Prepares the delivery of delayed messages in a store that was just opened; `None` if it does not run there. By default it runs in a
/// store that no broker has written since mqstore has made it, or since a writer has delivered messages in it: `has_progress` if it has
/// delivered timer messages.
///
/// # Errors
/// The damage of `delayOffset.json`; those of reading the queues.
pub(super) fn delays_of(store: &Arc<MessageStore>, has_progress: bool) -> Result<Option<DeliverySchedule<DelayOffsets>>> {
    let file = load_file(store);
    let is_own = |from: i64| {
        let is_absent = file.fields().is_ok_and(serde_json::Map::is_empty);
        let all_is_own = from <= store.reader().physical_bounds().start;
        has_progress || stored_log_end(&file).is_some() || (all_is_own && (is_absent || file.fields().is_err()))
    };
    if !store
        .config()
        .services
        .unwrap_or_else(|| store.was_own_from().is_some_and(is_own))
    {
        return Ok(None);
    }
    let offsets = Arc::new(DelayOffsets::load(store, file)?);
    let delivery = DelayService::new(store, &offsets)?;
    Ok(Some(DeliverySchedule::new(store, offsets, delivery)))
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
        let (levels, mut arrivals) = (store.config().delay_levels()?, BTreeMap::new());
        for level in 1..=levels.max_level() {
            arrivals.insert(level, Arrivals::new(levels.delay_ms(level), bounds(store, level)?.end));
        }
        Ok(Self {
            store: store.clone(),
            offsets: offsets.clone(),
            arrivals,
            search,
            struck: BTreeMap::new(),
        })
    }

    /// Delivers the due messages of a level, up to the most of a step. Returns the time at which the next one is due; `None` if the level
    /// is to be looked at again at once.
    fn deliver_level(&mut self, level: i32, now: Now, noted: &mut LastCopy) -> Result<Option<i64>> {
        let batch = self.collect(level, now)?;
        let copies: Vec<_> = batch.messages.iter().map(|(_, message)| copy_of(&message.view())).collect();
        let copies: Vec<_> = copies.into_iter().flatten().map(Incoming::Copied).collect();
        let mut done = Vec::with_capacity(copies.len());
        let mut appended = Ok(());
        if !copies.is_empty() {
            self.offsets.begin_copies();
            appended = self.store.appender(Some(false)).append_all(copies, &mut done);
        }
        noted.note(&done);
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
        if let Some(arrivals) = self.arrivals.get_mut(&level) {
            arrivals.forget_before(settled.next);
        }
        appended.map(|()| batch.due)
    }

    /// Reads the due messages of a level, up to the most of a step. A failure ends the batch, and is returned if that is empty.
    fn collect(&self, level: i32, now: Now) -> Result<Batch> {
        let from = self.offsets.next(level);
        let mut queue = DelayQueue::open(&self.store, level, from..i64::MAX)?;
        let mut batch = Batch {
            settled: Settled::at(from),
            ..Batch::default()
        };
        let filled = self.fill(&mut batch, &mut queue, level, now);
        if batch.settled.next == from {
            filled?;
        }
        Ok(batch)
    }

    fn fill(&self, batch: &mut Batch, queue: &mut DelayQueue, level: i32, now: Now) -> Result<()> {
        let (struck, arrivals) = (self.struck.get(&level), self.arrivals.get(&level));
        while batch.messages.len() < STEP_MESSAGES && batch.bytes < STEP_BYTES {
            let entry = queue.next(false)?;
            batch.settled.passed_over += queue.take_damaged();
            let Some(entry) = entry else {
                batch.settled.next = batch.settled.next.max(queue.position());
                break;
            };
            let is_struck = struck.is_some_and(|struck| struck.contains(&entry.offset));
            let due = queue.due(entry)?.zip(arrivals);
            let due = due.map_or(now.wall_ms, |(due, arrivals)| {
                arrivals.due(entry.offset, due, now.wall_ms, now.at)
            });
            if due > now.wall_ms && !is_struck {
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

    fn note_arrivals(&mut self, now: Instant) -> Result<()> {
        for (level, arrivals) in &mut self.arrivals {
            arrivals.note(bounds(&self.store, *level)?.end, now);
        }
        Ok(())
    }

    /// Returns the levels with messages that the progress has not passed.
    fn waiting_levels(&self) -> Vec<i32> {
        let waits = |(level, arrivals): &(&i32, &Arrivals)| self.offsets.next(**level) < arrivals.seen();
        self.arrivals.iter().filter(waits).map(|(level, _)| *level).collect()
    }

    /// Returns true if the copy of a message can be appended.
    fn is_deliverable(&self, view: &MessageView<'_>) -> bool {
        copy_of(view).is_some_and(|copy| self.store.appender(None).check_all(&mut [Incoming::Copied(copy)]).is_ok())
    }
}

impl Delivery for DelayService {
    fn work(&mut self, now: Instant, copies: &mut LastCopy) -> Result<Next> {
        self.note_arrivals(now)?;
        if let Some(search) = &mut self.search {
            if search.advance()? {
                self.struck = self.search.take().map_or_else(BTreeMap::new, DeliveredCopies::into_struck);
            }
            return Ok(Next::Again);
        }
        let now_ms = self.store.reader().env().now_ms();
        let (mut is_behind, mut next_due, mut failed) = (false, None, None);
        for level in self.waiting_levels() {
            let now = Now {
                wall_ms: now_ms,
                at: now,
            };
            match self.deliver_level(level, now, copies) {
                Ok(None) => is_behind = true,
                Ok(Some(due)) => next_due = next_due.into_iter().chain([due]).min(),
                Err(error) => failed = Some(error),
            }
        }
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
            until_due(&self.store, due, now_ms, now)
        });
        Ok(Next::Idle { until })
    }
}

impl Settled {
    fn at(next: i64) -> Self {
        Self { next, passed_over: 0 }
    }
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
