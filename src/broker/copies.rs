//! Copies of messages that are delivered later: the fields that a message and its copy share, and the search of the log for copies.
//!
//! A copy has the topic, the queue id and all properties that the message names. Messages with the same key are interchangeable, so
//! counting copies is enough.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;

use crate::error::Result;
use crate::format::{Check, Host, MessageView, property};
use crate::read::{MessageReader, Walked};

/// Bytes of the log that one step reads.
const STEP_BYTES: i64 = 4 << 20;

/// The fields that a message and its copy share.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct CopyKey {
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
    /// Returns the key of a message that is delivered later, or of a copy; `None` for any other message.
    pub(super) fn of(view: &MessageView<'_>) -> Option<Self> {
        let (topic, queue_id) = real_place(view)?;
        Some(Self {
            topic,
            queue_id,
            born_time: view.born_time(),
            born_host: view.born_host(),
            flag: view.flag(),
            reconsume_times: view.reconsume_times(),
            body_crc: view.body_crc(),
            unique_key: view.unique_key().map(Cow::into_owned),
        })
    }

    /// Returns true if the message with this key is a copy: it is where the message is delivered.
    pub(super) fn is_of_copy(&self, view: &MessageView<'_>) -> bool {
        view.has_topic(&self.topic) && view.queue_id() == self.queue_id
    }
}

/// Returns the topic and the queue id to which a message is delivered later.
pub(super) fn real_place(view: &MessageView<'_>) -> Option<(String, i32)> {
    let properties = view.properties();
    let topic = properties.get(property::REAL_TOPIC)?.into_owned();
    let queue_id = properties.get(property::REAL_QID)?.parse().ok()?;
    Some((topic, queue_id))
}

/// A search of a stretch of the log, in steps.
#[derive(Debug)]
pub(super) struct CopySearch {
    stretch: Range<i64>,
    at: i64,
}

impl CopySearch {
    pub(super) fn new(stretch: Range<i64>) -> Self {
        Self {
            at: stretch.start,
            stretch,
        }
    }

    /// Returns the physical offset at which the stretch begins.
    pub(super) fn start(&self) -> i64 {
        self.stretch.start
    }

    /// Returns true once the whole stretch was read.
    pub(super) fn is_done(&self) -> bool {
        self.at >= self.stretch.end
    }

    /// Reads the next part of the stretch. Returns what `find` returns for its messages, with their physical offsets. It passes damage.
    ///
    /// # Errors
    /// Those of reading the log; the next call continues.
    pub(super) fn read<T>(
        &mut self,
        reader: &MessageReader,
        find: impl Fn(&MessageView<'_>) -> Option<T>,
    ) -> Result<Vec<(i64, T)>> {
        let until = self.stretch.end.min(self.at.saturating_add(STEP_BYTES));
        let mut walk = reader.log_walk(self.at..until, Check::Structure);
        let mut found = Vec::new();
        while let Some(walked) = walk.advance()? {
            if walked == Walked::Stop {
                walk.pass_damage()?;
                continue;
            }
            let copy = walk.view().and_then(|view| Some((view.physical_offset(), find(&view)?)));
            walk.check_intact()?;
            found.extend(copy);
        }
        self.at = walk.position().max(until);
        Ok(found)
    }
}

/// A multiset of the copies that were found, by key. Each copy is struck off against one message.
#[derive(Debug)]
pub(super) struct Left<'a, K>(HashMap<&'a K, u64>);

impl<'a, K: Eq + Hash> Left<'a, K> {
    /// Begins with all copies.
    pub(super) fn all(found: &'a HashMap<K, u64>) -> Self {
        Self(found.iter().map(|(key, count)| (key, *count)).collect())
    }

    /// Returns true once every copy was struck off.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Strikes a copy off for a message with this key; returns false if there is none.
    pub(super) fn strike(&mut self, key: &K) -> bool {
        let Some(count) = self.0.get_mut(key) else {
            return false;
        };
        *count -= 1;
        if *count == 0 {
            self.0.remove(key);
        }
        true
    }
}
