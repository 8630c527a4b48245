//! Delayed messages that wait for their delivery, by level. Reads queue entries, which hold the times, and no message.

use crate::error::Result;
use crate::format::{DelayOffset, SCHEDULE_TOPIC};
use crate::read::message_reader::MessageReader;

/// The messages of a delay level that wait for their delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DelayBacklog {
    /// The level, from 1.
    pub level: i32,
    /// The queue offset of the next message to deliver.
    pub offset: i64,
    /// The number of messages that wait.
    pub waiting: i64,
    /// The time in ms at which the next one is due; `None` if none waits, or its entry does not hold the time.
    pub next_due: Option<i64>,
    /// The number of messages that were due before now.
    pub overdue: i64,
}

/// Returns the messages that wait in each level, ascending. A level without progress has delivered nothing.
///
/// # Errors
/// Those of [`MessageReader::queue_ids`]; [`crate::error::Error::Io`].
pub fn delay_backlog(reader: &MessageReader, progress: &[DelayOffset]) -> Result<Vec<DelayBacklog>> {
    let now = reader.env().now_ms();
    let mut levels = Vec::new();
    for queue_id in reader.queue_ids(SCHEDULE_TOPIC)? {
        let bounds = reader.queue_bounds(SCHEDULE_TOPIC, queue_id)?;
        let level = queue_id.saturating_add(1);
        let known = progress.iter().find(|known| known.level == level);
        let offset = known.map_or(0, |known| known.offset).min(bounds.end).max(bounds.start);
        // The messages of a level have one delay, so they are due in their order.
        let (mut first, mut end) = (offset, bounds.end);
        while first < end {
            let middle = first + (end - first) / 2;
            if due(reader, queue_id, middle)?.is_some_and(|due| due > now) {
                end = middle;
            } else {
                first = middle + 1;
            }
        }
        levels.push(DelayBacklog {
            level,
            offset,
            waiting: bounds.end - offset,
            next_due: due(reader, queue_id, offset)?,
            overdue: first - offset,
        });
    }
    Ok(levels)
}

/// Returns the time at which a delayed message is due; `None` without an entry, or where that is damaged. Other entries hold the
/// hash of a tag, or nothing.
fn due(reader: &MessageReader, queue_id: i32, offset: i64) -> Result<Option<i64>> {
    let entry = match reader.entry(SCHEDULE_TOPIC, queue_id, offset) {
        Err(error) if error.is_damage() => None,
        entry => entry?,
    };
    Ok(entry.map(|entry| entry.tags_code).filter(|code| *code > i64::from(i32::MAX)))
}
