//! Recalls of timer messages. RocketMQ: `RecallMessageProcessor`, and `TIMER_DEL_UNIQKEY` in `TimerMessageStore`.
//!
//! A broker reads all recalls of a second before it delivers the timer messages of that second. So a recall ends the messages with its
//! key that were stored before it and after it, and none of another second.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::copies::real_place;
use super::timer_copies::{Timer, read_at};
use super::timer_queue::{TimerHeads, TimerQueue};
use crate::error::Result;
use crate::format::{MessageView, TimerRecord, recall_key};
use crate::read::MessageReader;

/// The recalls whose second has not passed.
#[derive(Debug, Default)]
pub(super) struct TimerRecalls {
    /// The keys that are recalled, by the end of the second, in ms, and the queue offset of the recall.
    keys: BTreeMap<Timer, String>,
    /// The seconds with a recall or a timer message that [`TimerRecalls::apply`] has not compared: `TIMER_OUT_MS` and the end.
    changed: BTreeSet<(i64, i64)>,
}

impl TimerRecalls {
    /// Takes up a record of the queue. Returns true if it is a recall.
    pub(super) fn take_up(&mut self, record: &TimerRecord, offset: i64) -> bool {
        let end = record.end_ms();
        if let Some(key) = &record.recalls {
            self.keys.insert((end, offset), key.clone());
        } else if self.of_second(end).next().is_none() {
            return false;
        }
        self.changed.insert((record.out_ms, end));
        record.recalls.is_some()
    }

    /// Removes the timer messages that were recalled from those that wait.
    ///
    /// # Errors
    /// Those of reading queue and log; the next call continues.
    pub(super) fn apply(&mut self, reader: &MessageReader, waiting: &mut BTreeSet<Timer>) -> Result<()> {
        let mut heads = TimerHeads::default();
        while let Some((out_ms, end)) = self.changed.first().copied() {
            let keys: HashSet<_> = self.of_second(end).map(|(_, key)| key.as_str()).collect();
            let mut recalled = Vec::new();
            for timer in waiting.range((out_ms, i64::MIN)..=(end, i64::MAX)) {
                let key = read_at(reader, &mut heads, timer.1, |view| key_in(view, out_ms))?;
                if key.is_some_and(|key| keys.contains(key.as_str())) {
                    recalled.push(*timer);
                }
            }
            for timer in recalled {
                waiting.remove(&timer);
            }
            self.changed.pop_first();
        }
        Ok(())
    }

    /// Removes the recalls whose second has passed by the time `now_ms`. Returns the end of the last one.
    pub(super) fn pass(&mut self, now_ms: i64) -> Option<i64> {
        let later = self.keys.split_off(&(now_ms.saturating_add(1), i64::MIN));
        let passed = std::mem::replace(&mut self.keys, later);
        passed.last_key_value().map(|((end, _), _)| *end)
    }

    /// Returns the recalls, each with the end of its second, in ms, and its queue offset.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Timer> {
        self.keys.keys()
    }

    /// Removes a recall.
    pub(super) fn remove(&mut self, recall: &Timer) {
        self.keys.remove(recall);
    }

    fn of_second(&self, end: i64) -> impl Iterator<Item = (&Timer, &String)> {
        self.keys.range((end, i64::MIN)..=(end, i64::MAX))
    }
}

/// Returns true if a record of the queue recalls the timer message at a queue offset. It reads the queue.
///
/// # Errors
/// Those of reading queue and log.
pub(super) fn is_recalled(reader: &Arc<MessageReader>, offset: i64) -> Result<bool> {
    let of_timer = |view: &MessageView<'_>| {
        let record = TimerRecord::of(view).filter(|record| record.recalls.is_none())?;
        Some((record.out_ms, key_in(view, record.out_ms)?))
    };
    let Some((out_ms, key)) = read_at(reader, &mut TimerHeads::default(), offset, of_timer)? else {
        return Ok(false);
    };
    let mut queue = TimerQueue::open(reader, 0)?;
    while let Some((_, record)) = queue.next(TimerRecord::of)? {
        if record.is_some_and(|record| record.out_ms == out_ms && record.recalls.as_ref() == Some(&key)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the key by which a timer message of the second after `out_ms` is recalled; `None` for one of another second, or without a
/// unique key.
fn key_in(view: &MessageView<'_>, out_ms: i64) -> Option<String> {
    TimerRecord::of(view).filter(|record| record.out_ms == out_ms)?;
    let (topic, _) = real_place(view)?;
    Some(recall_key(&topic, &view.unique_key()?))
}
