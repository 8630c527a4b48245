//! The delayed messages that were delivered after the last snapshot of the progress: found by their copies in the log.
//!
//! A copy has the topic, the queue id and all properties that the delayed message names, so each copy is struck off against one waiting
//! message. Messages with the same key are interchangeable, so counting is enough.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::delay_offset::{DelayOffsets, bounds};
use super::delay_queue::{DelayEntry, DelayQueue};
use crate::error::Result;
use crate::format::{Check, Host, MessageView, property};
use crate::read::{MessageReader, Walked};
use crate::store::MessageStore;

/// Bytes of the log that one step reads.
const STEP_BYTES: i64 = 4 << 20;

/// The fields that a delayed message and its copy share.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CopyKey {
    topic: String,
    queue_id: i32,
    born_time: i64,
    born_host: Host,
    flag: i32,
    reconsume_times: i32,
    body_crc: u32,
    unique_key: Option<String>,
}

impl CopyKey {
    /// Returns the level and the key of a delayed message, or of a copy; `None` for any other message.
    fn of(view: &MessageView<'_>) -> Option<(i32, Self)> {
        let properties = view.properties();
        let level = std::str::from_utf8(properties.orders().delay?).ok()?.parse().ok()?;
        let (topic, queue_id) = real_place(view)?;
        let key = Self {
            topic,
            queue_id,
            born_time: view.born_time(),
            born_host: view.born_host(),
            flag: view.flag(),
            reconsume_times: view.reconsume_times(),
            body_crc: view.body_crc(),
            unique_key: view.unique_key().map(Cow::into_owned),
        };
        Some((level, key))
    }
}

/// Returns the topic and the queue id to which a delayed message is delivered.
pub(super) fn real_place(view: &MessageView<'_>) -> Option<(String, i32)> {
    let properties = view.properties();
    let topic = properties.get(property::REAL_TOPIC)?.into_owned();
    let queue_id = properties.get(property::REAL_QID)?.parse().ok()?;
    Some((topic, queue_id))
}

/// The copies of one level.
#[derive(Debug)]
struct LevelCopies {
    /// The queue offsets of the messages that waited at the open.
    waiting: Range<i64>,
    /// A copy of one of them lies after this physical offset.
    after: i64,
    found: HashMap<CopyKey, u64>,
}

/// The search for copies, in steps. Delivery starts after it.
#[derive(Debug)]
pub(super) struct DeliveredCopies {
    store: Arc<MessageStore>,
    levels: BTreeMap<i32, LevelCopies>,
    /// The part of the log to read.
    stretch: Range<i64>,
    at: i64,
    /// True if the progress in the file belongs to the start of the stretch. False if a broker has written the file: the messages before
    /// the progress may have copies in the stretch, too.
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
            stretch: start..log.end,
            at: start,
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
        if self.at < self.stretch.end {
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
        let until = self.stretch.end.min(self.at.saturating_add(STEP_BYTES));
        let mut walk = reader.log_walk(self.at..until, Check::Structure);
        let mut found = Vec::new();
        while let Some(walked) = walk.advance()? {
            if walked == Walked::Stop {
                walk.pass_damage()?;
                continue;
            }
            let copy = walk.view().and_then(|view| Some((view.physical_offset(), copied(&view)?)));
            walk.check_intact()?;
            found.extend(copy);
        }
        self.at = walk.position().max(until);
        for (at, (level, key)) in found {
            if let Some(copies) = self.levels.get_mut(&level).filter(|copies| at >= copies.after) {
                *copies.found.entry(key).or_default() += 1;
            }
        }
        Ok(())
    }

    /// Returns the queue offsets of the waiting messages of a level that have a copy.
    fn strike(&self, level: i32, copies: &LevelCopies) -> Result<BTreeSet<i64>> {
        let mut left: Left<'_> = copies.found.iter().map(|(key, count)| (key, *count)).collect();
        if !self.is_exact {
            self.strike_settled(level, copies.waiting.start, &mut left)?;
        }
        let mut struck = BTreeSet::new();
        let mut queue = DelayQueue::open(&self.store, level, copies.waiting.clone())?;
        let now_ms = self.store.reader().env().now_ms();
        while !left.is_empty()
            && let Some(entry) = queue.next(false)?
            && queue.due(entry, now_ms)? <= now_ms
        {
            if strike_one(&mut queue, entry, &mut left)? {
                struck.insert(entry.offset);
            }
        }
        Ok(struck)
    }

    /// Strikes off the copies of the messages before a broker's progress: of those that were due within the stretch.
    fn strike_settled(&self, level: i32, end: i64, left: &mut Left<'_>) -> Result<()> {
        let Ok(first) = self.store.reader().message_at(self.stretch.start) else {
            return Ok(());
        };
        let since = first.view().store_time();
        let mut queue = DelayQueue::open(&self.store, level, 0..end)?;
        while !left.is_empty()
            && let Some(entry) = queue.next(true)?
            && queue.due(entry, i64::MAX)? >= since
        {
            strike_one(&mut queue, entry, left)?;
        }
        Ok(())
    }
}

/// The copies that were not struck off yet.
type Left<'a> = HashMap<&'a CopyKey, u64>;

/// Strikes a copy off for the message of an entry; false if it has none.
fn strike_one(queue: &mut DelayQueue, entry: DelayEntry, left: &mut Left<'_>) -> Result<bool> {
    let message = queue.message(entry)?;
    let Some((_, key)) = message.and_then(|message| CopyKey::of(&message.view())) else {
        return Ok(false);
    };
    let Some(count) = left.get_mut(&key) else {
        return Ok(false);
    };
    *count -= 1;
    if *count == 0 {
        left.remove(&key);
    }
    Ok(true)
}

/// Returns the level and the key of a copy; `None` for any other message.
fn copied(view: &MessageView<'_>) -> Option<(i32, CopyKey)> {
    let is_copy = |key: &CopyKey| view.has_topic(&key.topic) && view.queue_id() == key.queue_id;
    CopyKey::of(view).filter(|(_, key)| is_copy(key))
}
