//! Deduplication of timer messages at an open: the log is searched for copies of those that wait.
//!
//! A message with a copy is not delivered again: it was delivered after the last snapshot of the progress, or by a broker, or a broker
//! has stored it again. Copies are matched by their fields, and counted: see `copies.rs`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::copies::{CopyKey, CopySearch, Left};
use super::timer_queue::TimerHeads;
use crate::error::Result;
use crate::format::{MessageView, TIMER_TOPIC, property};
use crate::read::MessageReader;

/// The most by which a broker delivers early: it compares whole seconds.
const EARLY_MS: i64 = 1000;

/// A waiting timer message: the time at which it is due, in ms, and its queue offset.
pub(super) type Timer = (i64, i64);

/// The fields that a timer message and its copy share.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TimerKey {
    key: CopyKey,
    out: String,
    deliver: Option<String>,
}

impl TimerKey {
    fn of(view: &MessageView<'_>) -> Option<Self> {
        let properties = view.properties();
        Some(Self {
            key: CopyKey::of(view)?,
            out: properties.get(property::TIMER_OUT_MS)?.into_owned(),
            deliver: properties.get(property::TIMER_DELIVER_MS).map(std::borrow::Cow::into_owned),
        })
    }

    /// Returns the key of a delivered copy; `None` for any other message.
    fn of_copy(view: &MessageView<'_>) -> Option<Self> {
        Self::of(view).filter(|of| of.key.is_of_copy(view) && !view.has_topic(TIMER_TOPIC))
    }
}

/// The search for copies, in steps. Delivery starts after it.
#[derive(Debug)]
pub(super) struct TimerCopies {
    reader: Arc<MessageReader>,
    search: CopySearch,
    found: HashMap<TimerKey, u64>,
    /// The latest store time of a copy.
    latest: i64,
}

impl TimerCopies {
    /// Plans a search of the log from a physical offset on.
    pub(super) fn plan(reader: &Arc<MessageReader>, from: i64) -> Self {
        let log = reader.physical_bounds();
        Self {
            reader: reader.clone(),
            search: CopySearch::new(from.max(log.start)..log.end),
            found: HashMap::new(),
            latest: i64::MIN,
        }
    }

    /// Does a part of the search, and returns true once it is done.
    ///
    /// # Errors
    /// Those of reading the log; the next call continues.
    pub(super) fn advance(&mut self) -> Result<bool> {
        let reader = self.reader.clone();
        let keyed = |view: &MessageView<'_>| Some((TimerKey::of_copy(view)?, view.store_time()));
        for (_, (key, stored)) in self.search.read(&reader, keyed)? {
            *self.found.entry(key).or_default() += 1;
            self.latest = self.latest.max(stored);
        }
        Ok(self.search.is_done())
    }

    /// Returns those of the waiting timer messages that have a copy.
    ///
    /// # Errors
    /// Those of reading queue and log.
    pub(super) fn delivered(&self, waiting: &BTreeSet<Timer>) -> Result<BTreeSet<Timer>> {
        let mut left = Left::all(&self.found);
        let (mut heads, mut delivered) = (TimerHeads::default(), BTreeSet::new());
        for timer in waiting {
            if left.is_empty() || timer.0 > self.latest.saturating_add(EARLY_MS) {
                break;
            }
            let key = read_at(&self.reader, &mut heads, timer.1, TimerKey::of)?;
            if key.is_some_and(|key| left.strike(&key)) {
                delivered.insert(*timer);
            }
        }
        Ok(delivered)
    }
}

/// Returns those of the waiting timer messages that were stored again (`TIMER_ROLL_TIMES`): for each of them a later one waits. A later
/// one before the queue offset `handed_over` is that of a message which does not wait.
///
/// # Errors
/// Those of reading queue and log.
pub(super) fn stored_again(reader: &Arc<MessageReader>, waiting: &BTreeSet<Timer>, handed_over: i64) -> Result<BTreeSet<Timer>> {
    let mut heads = TimerHeads::default();
    let mut by_key: HashMap<(TimerKey, u32), Vec<Timer>> = HashMap::new();
    let mut again = BTreeSet::new();
    let in_order: BTreeMap<i64, Timer> = waiting.iter().map(|timer| (timer.1, *timer)).collect();
    for (offset, timer) in in_order {
        let keyed = |view: &MessageView<'_>| Some((TimerKey::of(view)?, roll_times(view)));
        let Some((key, rolls)) = read_at(reader, &mut heads, offset, keyed)? else {
            continue;
        };
        let key = match rolls.checked_sub(1).filter(|_| offset >= handed_over) {
            Some(before) => {
                let mut of_before = (key, before);
                again.extend(by_key.get_mut(&of_before).and_then(Vec::pop));
                of_before.1 = rolls;
                of_before
            }
            None => (key, rolls),
        };
        by_key.entry(key).or_default().push(timer);
    }
    Ok(again)
}

/// Returns the number of times that a timer message was stored again.
pub(super) fn roll_times(view: &MessageView<'_>) -> u32 {
    let times = view.properties().get(property::TIMER_ROLL_TIMES);
    times.and_then(|times| times.parse().ok()).unwrap_or(0)
}

/// Returns what `read` returns for the timer message at a queue offset; `None` if it is lost or damaged.
///
/// # Errors
/// Those of reading queue and log.
pub(super) fn read_at<T>(
    reader: &MessageReader,
    heads: &mut TimerHeads,
    offset: i64,
    read: impl FnOnce(&MessageView<'_>) -> Option<T>,
) -> Result<Option<T>> {
    match reader.position(TIMER_TOPIC, 0, offset) {
        Ok(Some(position)) => heads.read(reader, (offset, position.physical_offset), read),
        Ok(None) => Ok(None),
        Err(error) if error.is_damage() => Ok(None),
        Err(error) => Err(error),
    }
}
