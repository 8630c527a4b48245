//! Recalls of timer messages. RocketMQ: `RecallMessageProcessor`, and `TIMER_DEL_UNIQKEY` in `TimerMessageStore`.
//!
//! A broker reads all recalls of a second before it delivers the timer messages of that second. So a recall ends the messages with its
//! key that were stored before it and after it, and none of another second.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
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
    /// The end of the second of each, in ms, and its queue offset.
    recalls: BTreeSet<Timer>,
    /// The seconds with a recall, by their ends.
    seconds: BTreeMap<i64, RecalledSecond>,
    /// The recalls that [`TimerRecalls::apply`] has not applied.
    unapplied: Vec<TimerRecord>,
}

/// A second with a recall. Its timer messages are indexed, so that none is read for each recall.
#[derive(Debug, Default)]
struct RecalledSecond {
    /// The keys that are recalled.
    recalled: HashSet<String>,
    /// The other timer messages, by their keys. Some may not wait any more.
    timers: HashMap<String, Vec<Timer>>,
}

impl RecalledSecond {
    /// Reads the keys of the timer messages that wait in the second of a recall.
    ///
    /// # Errors
    /// Those of reading queue and log.
    fn read(reader: &MessageReader, recall: &TimerRecord, waiting: &BTreeSet<Timer>) -> Result<Self> {
        let (mut second, mut heads) = (Self::default(), TimerHeads::default());
        for timer in waiting.range((recall.out_ms, i64::MIN)..=(recall.end_ms(), i64::MAX)) {
            if let Some(key) = read_at(reader, &mut heads, timer.1, |view| key_in(view, recall.out_ms))? {
                second.timers.entry(key).or_default().push(*timer);
            }
        }
        Ok(second)
    }
}

impl TimerRecalls {
    /// Takes up a recall, at its queue offset. [`TimerRecalls::apply`] applies it.
    pub(super) fn insert(&mut self, recall: TimerRecord, offset: i64) {
        self.recalls.insert((recall.end_ms(), offset));
        self.unapplied.push(recall);
    }

    /// Returns the second and the key of a timer message in a second with a recall; `None` for any other.
    pub(super) fn key_of(&self, record: &TimerRecord, view: &MessageView<'_>) -> Option<(i64, String)> {
        let end = record.end_ms();
        self.seconds.get(&end)?;
        Some((end, key_in(view, record.out_ms)?))
    }

    /// Takes up a timer message with what [`TimerRecalls::key_of`] returned for it. Returns true if it is recalled.
    pub(super) fn take_up(&mut self, keyed: Option<(i64, String)>, timer: Timer) -> bool {
        let Some((end, key)) = keyed else {
            return false;
        };
        let Some(second) = self.seconds.get_mut(&end) else {
            return false;
        };
        let is_recalled = second.recalled.contains(&key);
        if !is_recalled {
            second.timers.entry(key).or_default().push(timer);
        }
        is_recalled
    }

    /// Removes the timer messages that were recalled from those that wait. The first recall of a second reads these.
    ///
    /// # Errors
    /// Those of reading queue and log; the next call continues.
    pub(super) fn apply(&mut self, reader: &MessageReader, waiting: &mut BTreeSet<Timer>) -> Result<()> {
        while let Some(recall) = self.unapplied.last() {
            let end = recall.end_ms();
            let second = match self.seconds.entry(end) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => unknown.insert(RecalledSecond::read(reader, recall, waiting)?),
            };
            let Some(key) = self.unapplied.pop().and_then(|recall| recall.recalls) else {
                continue;
            };
            for timer in second.timers.remove(&key).into_iter().flatten() {
                waiting.remove(&timer);
            }
            second.recalled.insert(key);
        }
        Ok(())
    }

    /// Removes the recalls whose second has passed by the time `now_ms`. Returns the end of the last one.
    pub(super) fn pass(&mut self, now_ms: i64) -> Option<i64> {
        let next = now_ms.saturating_add(1);
        self.seconds = self.seconds.split_off(&next);
        let later = self.recalls.split_off(&(next, i64::MIN));
        let passed = std::mem::replace(&mut self.recalls, later);
        passed.last().map(|(end, _)| *end)
    }

    /// Returns the recalls, each with the end of its second, in ms, and its queue offset.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Timer> {
        self.recalls.iter()
    }

    /// Removes a recall that was stored again. What it recalls stays recalled.
    pub(super) fn remove(&mut self, recall: &Timer) {
        self.recalls.remove(recall);
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
