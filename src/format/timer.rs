//! Timer messages: a message with a delivery time of its own, in a topic for all of them.
//!
//! A producer gives the time in one of three properties. The record in [`TIMER_TOPIC`] also has `TIMER_OUT_MS`: the start of the second
//! before the delivery. A broker compares whole seconds, and delivers in the second after `TIMER_OUT_MS`.
//!
//! A recall is a record of the same topic that ends a timer message before it is due (`TIMER_DEL_UNIQKEY`). It names the topic and the
//! unique key of the message, and has its `TIMER_OUT_MS`.

use std::borrow::Cow;

use super::message_view::MessageView;
use super::properties::{Properties, property};

/// The topic that holds timer messages until they are due, in queue 0.
pub const TIMER_TOPIC: &str = "rmq_sys_wheel_timer";
/// The precision of a broker (`timerPrecisionMs`).
const SECOND_MS: i64 = 1000;
/// The most bytes that a delivery or a roll adds to the properties: `TIMER_ENQUEUE_MS`, `TIMER_DEQUEUE_MS`, `TIMER_ROLL_TIMES`.
pub const TIMER_ADDED_SIZE: usize = 128;

/// The time of delivery that the properties of a new message ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerRequest<'a> {
    /// The message has no such property, or has `TIMER_OUT_MS`, as a timer message that was delivered.
    Absent,
    /// The time in ms.
    At(i64),
    /// The name of a property whose value is not a number, or exceeds 64 bits.
    Malformed(&'a str),
}

impl<'a> TimerRequest<'a> {
    /// Reads the request in the order of a broker: a delay in seconds, a delay in ms, a time.
    pub fn of(properties: &'a [u8], now_ms: i64) -> Self {
        let properties = Properties::new(properties);
        if properties.get(property::TIMER_OUT_MS).is_some() {
            return Self::Absent;
        }
        for (name, unit, since) in [
            (property::TIMER_DELAY_SEC, SECOND_MS, now_ms),
            (property::TIMER_DELAY_MS, 1, now_ms),
            (property::TIMER_DELIVER_MS, 1, 0),
        ] {
            if let Some(value) = properties.get(name) {
                let number = value.parse::<i64>().ok();
                let at = number.and_then(|number| number.checked_mul(unit)?.checked_add(since));
                return at.map_or(Self::Malformed(name), Self::At);
            }
        }
        Self::Absent
    }
}

/// Returns the `TIMER_OUT_MS` of a message that is to be delivered at `deliver_at`: the start of its second, or of the second before
/// if the time is a whole second.
pub fn timer_out_ms(deliver_at: i64) -> i64 {
    deliver_at.saturating_sub(1).div_euclid(SECOND_MS) * SECOND_MS
}

/// A record of [`TIMER_TOPIC`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerRecord {
    /// The start of the second after which a broker delivers the message, in ms.
    pub out_ms: i64,
    /// The time at which the message is due, in ms; of a recall the end of its second.
    pub due: i64,
    /// The messages that a recall ends: those with this [`recall_key`] and the same `out_ms`. `None` for a message.
    pub recalls: Option<String>,
}

impl TimerRecord {
    /// Reads a record; `None` if it has no time, so that it cannot be delivered.
    pub fn of(view: &MessageView<'_>) -> Option<Self> {
        let properties = view.properties();
        let number = |name: &str| properties.get(name)?.parse::<i64>().ok();
        let out_ms = number(property::TIMER_OUT_MS)?;
        // The end of the second in which a broker delivers: not before the time that was asked for.
        let latest = out_ms.checked_add(SECOND_MS)?;
        let recalls = properties.get(property::TIMER_DEL_UNIQKEY).map(Cow::into_owned);
        if recalls.is_some() {
            return Some(Self {
                out_ms,
                due: latest,
                recalls,
            });
        }
        let delay = number(property::TIMER_DELAY_SEC).map(|seconds| seconds.saturating_mul(SECOND_MS));
        let asked = match delay.or_else(|| number(property::TIMER_DELAY_MS)) {
            Some(delay) => view.store_time().saturating_add(delay),
            None => number(property::TIMER_DELIVER_MS).unwrap_or(latest),
        };
        Some(Self {
            out_ms,
            due: asked.clamp(out_ms, latest),
            recalls,
        })
    }

    /// Returns the latest time at which a message of the same second is due, in ms.
    pub fn end_ms(&self) -> i64 {
        self.out_ms.saturating_add(SECOND_MS)
    }
}

/// Returns the value of `TIMER_DEL_UNIQKEY` of a record that recalls a timer message, as brokers from 5.3.2 on compare it.
pub fn recall_key(topic: &str, unique_key: &str) -> String {
    format!("{topic}+{unique_key}")
}
