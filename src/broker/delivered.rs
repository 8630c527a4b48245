//! Deduplication of delayed messages at an open: finds those that were delivered after the last snapshot of the progress.
//!
//! The log is read from the snapshot on. Each copy in it strikes off one message that waits, so a crash repeats no delivery.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::copies::{CopyKey, CopySearch, Left};
use super::delay_offset::{DelayOffsets, bounds};
use super::delay_queue::{DelayEntry, DelayQueue};
use crate::error::Result;
use crate::format::MessageView;
use crate::read::MessageReader;
use crate::store::MessageStore;

/// The copies of one level.
#[derive(Debug)]
struct LevelCopies {
    /// The queue offsets of the messages that waited at the open.
    waiting: Range<i64>,
    /// A copy of one of them lies after this physical offset.
    after: i64,
    found: HashMap<CopyKey, u64>,
    /// The physical offset of the last copy. It lies after every message that has a copy.
    last: i64,
}

/// The search for copies, in steps. Delivery starts after it.
#[derive(Debug)]
pub(super) struct DeliveredCopies {
    store: Arc<MessageStore>,
    levels: BTreeMap<i32, LevelCopies>,
    search: CopySearch,
    /// True if the progress in the file belongs to the start of the search. False if a broker has written the file: the messages before
    /// the progress may have copies there, too.
    is_exact: bool,
    /// The queue offsets of the messages with a copy, by level.
    struck: BTreeMap<i32, BTreeSet<i64>>,
}

impl DeliveredCopies {
    /// Plans the search in the log of a store that was just opened; `None` if no delayed message waits.
    ///
    /// # Errors
    /// Those of reading the queues.
    pub(super) fn plan(store: &Arc<MessageStore>, offsets: &DelayOffsets) -> Result<Option<Self>> {
        let log = store.reader().physical_bounds();
        let snapshot = offsets.stored_log_end();
        let mut levels = BTreeMap::new();
        for level in 1..=store.config().delay_levels()?.max_level() {
            let waiting = offsets.next(level)..bounds(store, level)?.end;
            let first = DelayQueue::open(store, level, waiting.clone())?.next_physical_offset()?;
            if let Some(first) = first {
                let copies = LevelCopies {
                    waiting,
                    after: snapshot.unwrap_or(first),
                    found: HashMap::new(),
                    last: 0,
                };
                levels.insert(level, copies);
            }
        }
        let Some(start) = levels.values().map(|copies| copies.after).min() else {
            return Ok(None);
        };
        let start = start.max(log.start);
        Ok(Some(Self {
            store: store.clone(),
            levels,
            search: CopySearch::new(start..log.end),
            is_exact: snapshot.is_some(),
            struck: BTreeMap::new(),
        }))
    }

    /// Does a part of the search, and returns true once it is done.
    ///
    /// # Errors
    /// Those of reading log and queues; the next call continues.
    pub(super) fn advance(&mut self) -> Result<bool> {
        let reader = self.store.reader().clone();
        if !self.search.is_done() {
            self.read_log(&reader)?;
            return Ok(false);
        }
        let Some((level, copies)) = self.levels.first_key_value() else {
            return Ok(true);
        };
        let level = *level;
        let struck = self.strike(level, copies)?;
        self.struck.insert(level, struck);
        self.levels.remove(&level);
        Ok(self.levels.is_empty())
    }

    /// Returns the queue offsets of the messages that were delivered, by level.
    pub(super) fn into_struck(self) -> BTreeMap<i32, BTreeSet<i64>> {
        self.struck
    }

    fn read_log(&mut self, reader: &MessageReader) -> Result<()> {
        for (at, (level, key)) in self.search.read(reader, copied)? {
            if let Some(copies) = self.levels.get_mut(&level).filter(|copies| at >= copies.after) {
                *copies.found.entry(key).or_default() += 1;
                copies.last = at;
            }
        }
        Ok(())
    }

    /// Returns the queue offsets of the waiting messages of a level that have a copy. The clock does not decide: it may have been set back
    /// since they were delivered, or may have been behind then.
    fn strike(&self, level: i32, copies: &LevelCopies) -> Result<BTreeSet<i64>> {
        let mut left = Left::all(&copies.found);
        if !self.is_exact {
            self.strike_settled(level, copies.waiting.start, &mut left)?;
        }
        let mut struck = BTreeSet::new();
        let mut queue = DelayQueue::open(&self.store, level, copies.waiting.clone())?;
        while !left.is_empty()
            && let Some(entry) = queue.next(false)?
            && entry.physical_offset() < copies.last
        {
            if strike_one(&mut queue, entry, &mut left)? {
                struck.insert(entry.offset);
            }
        }
        Ok(struck)
    }

    /// Strikes off the copies of the messages before a broker's progress: of those that were due within the stretch.
    fn strike_settled(&self, level: i32, end: i64, left: &mut Left<'_, CopyKey>) -> Result<()> {
        let Ok(first) = self.store.reader().message_at(self.search.start()) else {
            return Ok(());
        };
        let since = first.view().store_time();
        let mut queue = DelayQueue::open(&self.store, level, 0..end)?;
        while !left.is_empty()
            && let Some(entry) = queue.next(true)?
            && queue.due(entry)?.is_none_or(|due| due >= since)
        {
            strike_one(&mut queue, entry, left)?;
        }
        Ok(())
    }
}

/// Strikes a copy off for the message of an entry; false if it has none.
fn strike_one(queue: &mut DelayQueue, entry: DelayEntry, left: &mut Left<'_, CopyKey>) -> Result<bool> {
    let message = queue.message(entry)?;
    let key = message.and_then(|message| keyed(&message.view()));
    Ok(key.is_some_and(|(_, key)| left.strike(&key)))
}

/// Returns the level and the key of a delayed message, or of a copy; `None` for any other message.
fn keyed(view: &MessageView<'_>) -> Option<(i32, CopyKey)> {
    let level = std::str::from_utf8(view.properties().orders().delay?).ok()?.parse().ok()?;
    Some((level, CopyKey::of(view)?))
}

/// Returns the level and the key of a copy; `None` for any other message.
fn copied(view: &MessageView<'_>) -> Option<(i32, CopyKey)> {
    keyed(view).filter(|(_, key)| key.is_of_copy(view))
}
