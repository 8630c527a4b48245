//! Finding messages by key: by the index where it speaks, by walking the log where it does not. Topic and key are compared
//! themselves, so that two keys with one hash never mix.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::Result;
use crate::format::{Check, MessageView, index_key_hash, index_keys};
use crate::log::{LogRecord, Source, StoredMessage};
use crate::read::message_reader::MessageReader;

/// What a query asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryRequest {
    /// The topic.
    pub topic: String,
    /// The key: a unique key, or one of the keys of a message.
    pub key: String,
    /// Store time in ms from which messages are wanted, inclusive.
    pub begin: i64,
    /// Store time in ms to which messages are wanted, inclusive.
    pub end: i64,
    /// Most messages to return, the newest; `None` for all.
    pub limit: Option<usize>,
}

/// The answer to a query.
#[derive(Debug, Clone)]
pub struct QueryResult {
    /// The messages, ascending by physical offset.
    pub messages: Vec<StoredMessage>,
    /// Whether every part of the log that had to be looked at could be read.
    pub complete: bool,
    /// The physical offsets that were looked at, by index or by walk: down from the log's end until the limit was reached.
    pub covers: Range<i64>,
}

impl MessageReader {
    /// Finds the newest messages with a key, within a time.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub fn query(&self, request: &QueryRequest) -> Result<QueryResult> {
        let bounds = self.physical_bounds();
        let limit = request.limit.unwrap_or(usize::MAX);
        let mut found = BTreeMap::new();
        let mut result = QueryResult {
            messages: Vec::new(),
            complete: true,
            covers: bounds.end..bounds.end,
        };
        for source in self.index().sources(bounds)?.iter().rev() {
            if found.len() >= limit {
                break;
            }
            result.covers.start = source.range().start;
            let times = match source {
                Source::Index(file, ..) => file.header().begin_time..=file.header().end_time,
                Source::Log(_) => i64::MIN..=i64::MAX,
            };
            if *times.end() < request.begin {
                break; // everything in front of it is older still
            }
            if *times.start() > request.end {
                continue;
            }
            let wanted = |view: &MessageView<'_>| {
                (request.begin..=request.end).contains(&view.store_time()) && has_key(view, &request.topic, &request.key)
            };
            let hash = index_key_hash(&request.topic, &request.key);
            result.complete &= self.collect_from(source, hash, wanted, &mut found)?;
        }
        let surplus = found.len().saturating_sub(limit);
        result.messages = found.into_values().skip(surplus).collect();
        Ok(result)
    }

    /// The first stored message with this unique key, over every topic.
    pub(super) fn message_by_unique_key(&self, unique_key: &str) -> Result<Option<StoredMessage>> {
        let topics = self.topics()?;
        let any_topic = [String::new()];
        let wanted = |view: &MessageView<'_>| view.unique_key().is_some_and(|key| key == unique_key);
        for source in self.index().sources(self.physical_bounds())? {
            let mut found = BTreeMap::new();
            // Where the log is walked, one pass serves every topic.
            let topics = if matches!(source, Source::Log(_)) {
                &any_topic[..]
            } else {
                &topics[..]
            };
            for topic in topics {
                self.collect_from(&source, index_key_hash(topic, unique_key), wanted, &mut found)?;
            }
            if let Some((_, message)) = found.pop_first() {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// Adds the wanted messages of one source; tells whether all of it could be read.
    fn collect_from(
        &self,
        source: &Source<'_>,
        key_hash: i32,
        wanted: impl Fn(&MessageView<'_>) -> bool,
        found: &mut BTreeMap<i64, StoredMessage>,
    ) -> Result<bool> {
        let (offsets, mut complete) = self.candidates(source, key_hash, &wanted)?;
        for offset in offsets {
            match self.log().read(offset, Check::Body)? {
                LogRecord::Message(message) if wanted(&message.view()) => {
                    found.insert(offset, message);
                }
                LogRecord::Message(_) => {}
                LogRecord::Missing if offset < self.physical_bounds().start => {} // expired since it was indexed
                _ => complete = false,
            }
        }
        Ok(complete)
    }

    /// Physical offsets at which a wanted message may start, and whether there can be no others.
    fn candidates(
        &self,
        source: &Source<'_>,
        key_hash: i32,
        wanted: impl Fn(&MessageView<'_>) -> bool,
    ) -> Result<(Vec<i64>, bool)> {
        if let Source::Index(file, geometry, _) = source {
            let (offsets, whole) = file.offsets(*geometry, key_hash)?;
            if whole {
                return Ok((offsets, true));
            }
        }
        let mut offsets = Vec::new();
        let damage = self.walk(source.range(), |message| {
            let view = message.view();
            if wanted(&view) {
                offsets.push(view.physical_offset());
            }
        })?;
        Ok((offsets, damage.is_none()))
    }
}

/// Whether the message would stand in the index under this topic and key.
fn has_key(view: &MessageView<'_>, topic: &str, key: &str) -> bool {
    view.topic() == topic && index_keys(view, false).iter().any(|own| own == key)
}
