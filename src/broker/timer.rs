//! Delivery of timer messages: a copy of each is appended to its own topic at the time that its producer has asked for. RocketMQ:
//! `TimerMessageStore`, whose timing wheel on disk is a sorted set in memory here.
//!
//! A broker compares whole seconds; here the time in ms counts. Source: docs/FORMAT.md, "Timer messages".

use std::sync::Arc;
use std::time::Instant;

use super::copies::real_place;
use super::delivery::{Delivery, DeliverySchedule, LastCopy, STEP_BYTES, STEP_MESSAGES, until_due};
use super::timer_copies::Timer;
use super::timer_offset::{TimerOffsets, TimerState};
use crate::error::Result;
use crate::format::{Message, MessageView, Properties, PropertyList, TIMER_TOPIC, TimerCheck, is_system_topic, property};
use crate::log::StoredMessage;
use crate::services::Next;
use crate::store::{Incoming, MessageStore};

/// The delivery of timer messages.
#[derive(Debug)]
pub(super) struct TimerService {
    store: Arc<MessageStore>,
    timers: Arc<TimerOffsets>,
}

/// Prepares the delivery of timer messages in a store that was just opened, with its `timercheck`.
///
/// # Errors
/// Those of reading the queue.
pub(super) fn timers_of(store: &Arc<MessageStore>, file: TimerCheck) -> Result<DeliverySchedule<TimerOffsets>> {
    let timers = Arc::new(TimerOffsets::load(store, file)?);
    let delivery = TimerService {
        store: store.clone(),
        timers: timers.clone(),
    };
    Ok(DeliverySchedule::new(store, timers, delivery))
}

impl TimerService {
    /// Delivers due messages, up to the most of a step. Returns true if there were any.
    fn deliver(&self, state: &mut TimerState, now_ms: i64, noted: &mut LastCopy) -> Result<bool> {
        let (mut batch, mut passed, mut bytes) = (Vec::new(), Vec::new(), 0);
        for timer in &state.waiting {
            if timer.0 > now_ms || batch.len() + passed.len() >= STEP_MESSAGES || bytes >= STEP_BYTES {
                break;
            }
            match self.read(*timer, now_ms) {
                Ok(Some(message)) => {
                    bytes += message.view().size() as usize;
                    batch.push((*timer, message));
                }
                Ok(None) => passed.push(*timer),
                // Those before it are delivered first.
                Err(_) if !batch.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        let is_any = !batch.is_empty() || !passed.is_empty();
        state.passed_over += passed.len() as u64;
        for timer in passed {
            state.pass(timer);
        }
        let copies = batch.iter().filter_map(|(_, message)| copy_of(&message.view(), now_ms));
        let copies: Vec<_> = copies.map(Incoming::Copied).collect();
        let mut done = Vec::with_capacity(copies.len());
        let appended = if copies.is_empty() {
            Ok(())
        } else {
            self.store.appender(Some(false)).append_all(copies, &mut done)
        };
        noted.note(&done);
        for (timer, _) in batch.iter().take(done.len()) {
            state.pass(*timer);
        }
        if is_any {
            self.timers.count_delivery();
        }
        appended.map(|()| is_any)
    }

    /// Reads a message; `None` if it is lost or damaged, or cannot be delivered.
    fn read(&self, (_, offset): Timer, now_ms: i64) -> Result<Option<StoredMessage>> {
        let message = match self.store.reader().message_in_queue(TIMER_TOPIC, 0, offset) {
            Err(error) if error.is_damage() => return Ok(None),
            read => read?,
        };
        let copy = copy_of(&message.view(), now_ms).map(Incoming::Copied);
        let is_deliverable = copy.is_some_and(|copy| self.store.appender(None).check_all(&mut [copy]).is_ok());
        Ok(is_deliverable.then_some(message))
    }
}

impl Delivery for TimerService {
    fn work(&mut self, now: Instant, copies: &mut LastCopy) -> Result<Next> {
        let mut state = self.timers.state();
        if !self.timers.read_some(&mut state)? {
            return Ok(Next::Again);
        }
        let now_ms = self.store.reader().env().now_ms();
        if self.deliver(&mut state, now_ms, copies)? {
            return Ok(Next::Again);
        }
        let next = state.waiting.first().copied();
        drop(state);
        let until = next.map(|(due, _)| {
            self.timers.renew_snapshot();
            until_due(due, now_ms, now)
        });
        Ok(Next::Idle { until })
    }
}

/// Returns the copy of a timer message as it is delivered at the time `now_ms`; `None` if it names no topic, or one of the broker. Its
/// properties stay as they are stored, and get the times at which it was stored and is delivered.
fn copy_of<'m>(view: &MessageView<'m>, now_ms: i64) -> Option<Message<'m>> {
    let (topic, queue_id) = real_place(view)?;
    if is_system_topic(&topic) {
        return None;
    }
    let message = view.to_message();
    let mut properties = PropertyList::default();
    for (name, value) in Properties::new(&message.properties).to_pairs() {
        properties.put(name.into_owned(), value.into_owned());
    }
    properties.put(property::TIMER_ENQUEUE_MS, view.store_time().to_string());
    properties.put(property::TIMER_DEQUEUE_MS, now_ms.to_string());
    let properties = properties.encode().ok()?.into();
    Some(Message {
        topic: topic.into(),
        queue_id,
        prepared_transaction_offset: 0,
        properties,
        ..message
    })
}
