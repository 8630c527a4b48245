//! Polling of a store that another process writes to.
//!
//! A mapped write raises no event for another process. So a reader polls the eight bytes at the end of the log through the mapping, every
//! 0.5 ms at first and every 20 ms at last, and refreshes when they are not zero.

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::read::message_reader::MessageReader;
use crate::read::refresh::Refreshed;

/// The longest time between two polls of the end of the log.
const LONGEST: Duration = Duration::from_millis(20);
/// A reader pauses for 1/128 of the time since the last message.
const PATIENCE: u32 = 128;
/// Interval after which the directories are listed, too: segments and topics may be gone, or the log may have been cut.
const LOOK_AROUND: Duration = Duration::from_millis(250);

/// The times of the polls of a store that another process writes to.
#[derive(Debug)]
pub struct GrowthPoll {
    /// The time of the last message.
    came: Instant,
    /// The last time that the directories were listed.
    looked_around: Instant,
}

impl GrowthPoll {
    /// The shortest time between two polls of the end of the log.
    pub const SHORTEST: Duration = Duration::from_micros(500);

    /// Begins after a refresh at the time `now`.
    pub fn new(now: Instant) -> Self {
        Self {
            came: now,
            looked_around: now,
        }
    }

    /// Notes that a message has come: the next pauses are short.
    pub fn note_message(&mut self) {
        self.came = Instant::now();
    }

    /// Refreshes the reader if it may have grown, or if the directories are due.
    ///
    /// # Errors
    /// Those of [`MessageReader::refresh`].
    pub fn look(&mut self, reader: &MessageReader) -> Result<Refreshed> {
        if self.looked_around.elapsed() >= LOOK_AROUND {
            self.looked_around = Instant::now();
            return reader.refresh();
        }
        // A segment that was replaced cannot be looked at, and is a reason to read on.
        if reader.may_have_grown().unwrap_or(true) {
            return reader.read_on();
        }
        Ok(Refreshed {
            bytes: 0,
            reopened: None,
        })
    }

    /// Returns true if a [`look`](Self::look) may find something.
    pub fn is_due(&self, reader: &MessageReader) -> bool {
        self.looked_around.elapsed() >= LOOK_AROUND || reader.may_have_grown().unwrap_or(true)
    }

    /// Returns the pause before the next poll.
    pub fn pause(&self) -> Duration {
        (self.came.elapsed() / PATIENCE).clamp(Self::SHORTEST, LONGEST)
    }
}
