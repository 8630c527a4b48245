//! A model of the recovery of `RocketMQ` 4.9.8, 5.3.3 and 5.5.1 after a crash: the messages that each version puts into the queues again,
//! and those that it does not. docs/FORMAT.md, "Start and recovery", has the rules.

use crate::error::Result;
use crate::format::{Check, Checkpoint};
use crate::log::{LogFiles, LogRecord};

/// The versions, in the order in which the model keeps what it knows of each.
const VERSIONS: [&str; 3] = ["4.9.8", "5.3.3", "5.5.1"];
/// Since 5.4.0 recovery considers this many of the newest segments (`commitLogRecoverMaxNum`).
const MOST_SEGMENTS: usize = 10;

/// The start of each version's recovery scan. A message before it is not dispatched, whether its queue has an entry or not.
#[derive(Debug, Clone, Copy)]
pub struct BrokerRecovery {
    starts: [i64; VERSIONS.len()],
}

impl BrokerRecovery {
    /// Computes the starts for a crashed store with this checkpoint, as it is on disk.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub fn of_crashed(log: &LogFiles, checkpoint: &Checkpoint) -> Result<Self> {
        let by_time = start_by_time(log, checkpoint.min_timestamp())?;
        Ok(Self {
            starts: [by_time, by_time, start_by_offset(log, checkpoint)?],
        })
    }

    /// Returns the offset from which every version dispatches.
    pub fn start(&self) -> i64 {
        self.starts.into_iter().max().unwrap_or(0)
    }
}

/// A queue under that recovery: the queue offset that each version gives the next message.
#[derive(Debug, Clone, Copy)]
pub struct RecoveredQueue {
    /// `None` for a queue without files, whose first message gets the queue offset that it names.
    ends: [Option<i64>; VERSIONS.len()],
}

impl RecoveredQueue {
    /// Describes a queue whose files end before this queue offset; `None` if it has no files.
    pub fn new(end: Option<i64>) -> Self {
        Self {
            ends: [end; VERSIONS.len()],
        }
    }

    /// Dispatches a message without an entry, and returns the versions that do not put it at its queue offset. Messages come in the
    /// order of the log.
    pub fn dispatch(&mut self, recovery: &BrokerRecovery, physical_offset: i64, queue_offset: i64) -> Vec<&'static str> {
        let mut losing = Vec::new();
        for ((version, start), end) in VERSIONS.into_iter().zip(recovery.starts).zip(&mut self.ends) {
            let place = end.unwrap_or(queue_offset);
            // An entry after a gap is appended in the gap, and one before the end is dropped.
            if physical_offset < start || place != queue_offset {
                losing.push(version);
            }
            if physical_offset >= start && place <= queue_offset {
                *end = Some(place.saturating_add(1));
            }
        }
        losing
    }
}

/// Returns, as brokers do until 5.4, the newest segment whose first record was stored at this time or before. The record itself is not
/// checked.
fn start_by_time(log: &LogFiles, until: i64) -> Result<i64> {
    for start in log.starts().rev() {
        if log.claimed_store_time(start)?.is_some_and(|time| time != 0 && time <= until) {
            return Ok(start);
        }
    }
    Ok(log.first_offset())
}

/// Returns, as brokers do since 5.5.0, the newest segment that starts at or before the last message whose queue entry was flushed. If no
/// stamp names that message, the stamp of the queues decides, without a margin.
fn start_by_offset(log: &LogFiles, checkpoint: &Checkpoint) -> Result<i64> {
    let until = checkpoint.logics_physical_offset;
    let mut oldest = log.first_offset();
    for start in log.starts().rev().take(MOST_SEGMENTS) {
        oldest = start;
        let LogRecord::Message(first) = log.read(start, Check::Body)? else {
            continue;
        };
        let time = first.view().store_time();
        let is_covered = if until > 0 {
            start <= until
        } else {
            time <= checkpoint.logics_msg_timestamp
        };
        if time != 0 && is_covered {
            return Ok(start);
        }
    }
    Ok(oldest)
}
