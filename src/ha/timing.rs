//! The times of a connection between master and slave.

use std::time::Duration;

use super::wire::{HEARTBEAT, SILENCE};

/// The time between two questions for settings: that of a slave of `RocketMQ` 4.9.x.
const SETTINGS_INTERVAL: Duration = Duration::from_secs(10);
/// The longest time for all answers to one question.
const SETTINGS_ANSWER: Duration = Duration::from_secs(30);

/// The times of a connection. A master uses `heartbeat` and `silence`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// The pause before the next connection after a failure.
    pub pause: Duration,
    /// The longest time without a report of the slave, or a frame of the master.
    pub heartbeat: Duration,
    /// The time without a byte of the other end after which it counts as dead.
    pub silence: Duration,
    /// The time between two questions for settings.
    pub settings: Duration,
    /// The longest time for all answers to one question for settings.
    pub settings_answer: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            pause: HEARTBEAT,
            heartbeat: HEARTBEAT,
            silence: SILENCE,
            settings: SETTINGS_INTERVAL,
            settings_answer: SETTINGS_ANSWER,
        }
    }
}
