//! Delivery of timer messages: a copy of each is appended to its own topic at the time that its producer has asked for. RocketMQ:
//! `TimerMessageStore`, whose timing wheel on disk is a sorted set in memory here.
//!
//! A broker compares whole seconds; here the time in ms counts. Source: docs/BROKER_RECORDS.md, "Timer messages".

use std::sync::Arc;
use std::time::Instant;

use super::copies::real_place;
use super::delivery::{Delivery, DeliverySchedule, LastCopy, STEP_BYTES, STEP_MESSAGES, until_due};
use super::timer_copies::{Timer, roll_times};
use super::timer_offset::{TimerOffsets, TimerState};
use crate::error::Result;
use crate::format::{Message, MessageView, Properties, PropertyList, TIMER_TOPIC, TimerCheck, is_system_topic, property};
use crate::interrupt;
use crate::log::StoredMessage;
use crate::services::Next;
use crate::store::{AppendResult, Incoming, MessageStore};

/// The delivery of timer messages.
#[derive(Debug)]
pub(super) struct TimerService {
    store: Arc<MessageStore>,
    timers: Arc<TimerOffsets>,
}

/// The timer messages of a [`BrokerController::hand_over`](super::BrokerController::hand_over).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HandOver {
    /// The number of timer messages that were stored again.
    pub timers: u64,
    /// The number of messages since the open that nobody can deliver: lost, damaged, or without a topic.
    pub passed_over: u64,
}

/// The purpose of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copying {
    /// The message is delivered to its own topic.
    Delivery,
    /// It is stored again in the topic of timer messages.
    Roll,
}

/// Timer messages that are copied together.
#[derive(Debug, Default)]
struct Batch {
    messages: Vec<(Timer, StoredMessage)>,
    /// Timer messages that cannot be delivered.
    passed: Vec<Timer>,
}

/// Prepares the delivery of timer messages in a store that was just opened, with its `timercheck`.
///
/// # Errors
/// Those of reading the queue.
pub(super) fn timers_of(store: &Arc<MessageStore>, file: TimerCheck) -> Result<DeliverySchedule<TimerOffsets>> {
    let timers = Arc::new(TimerOffsets::load(store, file)?);
    let delivery = TimerService::new(store, &timers);
    Ok(DeliverySchedule::new(store, timers, delivery))
}

impl TimerService {
    pub(super) fn new(store: &Arc<MessageStore>, timers: &Arc<TimerOffsets>) -> Self {
        Self {
            store: store.clone(),
            timers: timers.clone(),
        }
    }

    /// Delivers due messages, up to the most of a step. Returns true if there were any.
    fn deliver(&self, state: &mut TimerState, now_ms: i64, noted: &mut LastCopy) -> Result<bool> {
        let batch = self.collect(Copying::Delivery, state, now_ms)?;
        let is_any = !batch.messages.is_empty() || !batch.passed.is_empty();
        state.passed_over += batch.passed.len() as u64;
        for timer in &batch.passed {
            state.pass(*timer);
        }
        let mut done = Vec::with_capacity(batch.messages.len());
        let appended = self.append(Copying::Delivery, &batch, now_ms, &mut done);
        noted.note(&done);
        for (timer, _) in batch.messages.iter().take(done.len()) {
            state.pass(*timer);
        }
        if is_any {
            self.timers.count_delivery();
        }
        appended.map(|()| is_any)
    }

    /// Stores each timer message that waits again, at the end of the queue, ends the delivery, and persists that: a broker that starts on
    /// the store enqueues these, and no other. After a failure the delivery continues, and a later call hands over the rest.
    ///
    /// # Errors
    /// Those of reading, of an append, and of persisting.
    pub(super) fn hand_over(&self) -> Result<HandOver> {
        let mut report = HandOver::default();
        let mut state = self.timers.state();
        while !state.is_handed_over() && !self.timers.read_some(&mut state)? {
            interrupt::check()?;
        }
        if !state.is_handed_over() {
            // What is appended from now on has a higher offset in the queue, like the messages that are stored again.
            while !state.take_up(self.store.reader())? {
                interrupt::check()?;
            }
            let rolled = self.roll_all(&mut state, &mut report);
            self.timers.count_delivery();
            rolled?;
            state.end_delivery();
        }
        report.passed_over = state.passed_over;
        drop(state);
        self.timers.persist_last()?;
        Ok(report)
    }

    /// Stores the timer messages that wait again. Those that are stored do not wait any more: their copies are in the queue.
    fn roll_all(&self, state: &mut TimerState, report: &mut HandOver) -> Result<()> {
        while state.next_time().is_some() {
            interrupt::check()?;
            let now_ms = self.store.reader().env().now_ms();
            let batch = self.collect(Copying::Roll, state, now_ms)?;
            state.passed_over += batch.passed.len() as u64;
            let mut done = Vec::with_capacity(batch.messages.len());
            let appended = self.append(Copying::Roll, &batch, now_ms, &mut done);
            for timer in &batch.passed {
                state.forget(timer);
            }
            for ((timer, _), again) in batch.messages.iter().zip(&done) {
                report.timers += u64::from(state.waiting.contains(timer));
                state.note_rolled(*timer, again.appended.queue_offset);
            }
            appended?;
        }
        Ok(())
    }

    /// Reads messages, up to the most of a step: for a delivery those that are due. A failure ends the batch, and is returned if that is
    /// empty.
    fn collect(&self, copying: Copying, state: &TimerState, now_ms: i64) -> Result<Batch> {
        let until = if copying == Copying::Delivery { now_ms } else { i64::MAX };
        let (mut batch, mut bytes) = (Batch::default(), 0);
        let recalls = state.recalls.iter().filter(|_| copying == Copying::Roll);
        for timer in recalls.chain(&state.waiting) {
            if timer.0 > until || batch.messages.len() + batch.passed.len() >= STEP_MESSAGES || bytes >= STEP_BYTES {
                break;
            }
            match self.read(copying, *timer, now_ms) {
                Ok(Some(message)) => {
                    bytes += message.view().size() as usize;
                    batch.messages.push((*timer, message));
                }
                Ok(None) => batch.passed.push(*timer),
                // Those before it are copied first.
                Err(_) if !batch.messages.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(batch)
    }

    /// Appends the copies of a batch, and adds to `done` what was appended.
    fn append(&self, copying: Copying, batch: &Batch, now_ms: i64, done: &mut Vec<AppendResult>) -> Result<()> {
        let views = batch.messages.iter().map(|(_, message)| message.view());
        let copies = views.filter_map(|view| copying.copy(&view, now_ms));
        let copies: Vec<_> = copies.map(Incoming::Copied).collect();
        if copies.is_empty() {
            return Ok(());
        }
        self.store.appender(Some(false)).append_all(copies, done)
    }

    /// Reads a message; `None` if it is lost or damaged, or cannot be copied or delivered.
    fn read(&self, copying: Copying, (_, offset): Timer, now_ms: i64) -> Result<Option<StoredMessage>> {
        let message = match self.store.reader().message_in_queue(TIMER_TOPIC, 0, offset) {
            Err(error) if error.is_damage() => return Ok(None),
            read => read?,
        };
        let is_legal = |copying: Copying| {
            let copy = copying.copy(&message.view(), now_ms).map(Incoming::Copied);
            copy.is_some_and(|copy| self.store.appender(None).check_all(&mut [copy]).is_ok())
        };
        let is_legal = is_legal(Copying::Delivery) && (copying == Copying::Delivery || is_legal(copying));
        Ok(is_legal.then_some(message))
    }
}

impl Delivery for TimerService {
    fn work(&mut self, now: Instant, copies: &mut LastCopy) -> Result<Next> {
        let mut state = self.timers.state();
        if !self.timers.read_some(&mut state)? {
            return Ok(Next::Again);
        }
        if state.is_handed_over() {
            return Ok(Next::Idle { until: None });
        }
        let now_ms = self.store.reader().env().now_ms();
        if self.deliver(&mut state, now_ms, copies)? {
            return Ok(Next::Again);
        }
        if state.pass_recalls(now_ms) {
            self.timers.count_delivery();
        }
        let next = state.next_time();
        drop(state);
        let until = next.map(|time| {
            self.timers.renew_snapshot();
            until_due(&self.store, time, now_ms, now)
        });
        Ok(Next::Idle { until })
    }
}

impl Copying {
    /// Returns the copy of a timer message at the time `now_ms`; `None` if it names no topic, or one of the broker. Its properties stay as
    /// they are stored, and get the times at which it was stored and is copied.
    fn copy<'m>(self, view: &MessageView<'m>, now_ms: i64) -> Option<Message<'m>> {
        let (topic, queue_id) = real_place(view).filter(|(topic, _)| !is_system_topic(topic))?;
        let message = view.to_message();
        let mut properties = PropertyList::default();
        for (name, value) in Properties::new(&message.properties).to_pairs() {
            properties.put(name.into_owned(), value.into_owned());
        }
        properties.put(property::TIMER_ENQUEUE_MS, view.store_time().to_string());
        properties.put(property::TIMER_DEQUEUE_MS, now_ms.to_string());
        let (topic, queue_id) = match self {
            Self::Delivery => (topic.into(), queue_id),
            Self::Roll => {
                properties.put(property::TIMER_ROLL_TIMES, (roll_times(view) + 1).to_string());
                (TIMER_TOPIC.into(), 0)
            }
        };
        let properties = properties.encode().ok()?.into();
        Some(Message {
            topic,
            queue_id,
            prepared_transaction_offset: 0,
            properties,
            ..message
        })
    }
}
