//! Finding messages by key or tag: by the index where it speaks, by walking the log where it does not. Topic, key, tag and store time
//! are compared themselves, so that two keys with one hash never mix, and a clock that was set back hides no message.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use crate::error::{Error, Result};
use crate::format::{
    Check, IndexGeometry, MessageView, Transaction, index_key_hash, index_key_of_tag, index_keys, is_salvage_record,
};
use crate::interrupt;
use crate::log::{IndexFile, LogRecord, Source, StoredMessage};
use crate::read::message_reader::MessageReader;
use crate::read::nothing::{EXPIRED, WAS_LOST, nothing_at};

/// What a query asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryRequest {
    /// The topic.
    pub topic: String,
    /// What its messages are found by.
    pub by: QueryBy,
    /// Store time in ms from which messages are wanted, inclusive.
    pub begin: i64,
    /// Store time in ms to which messages are wanted, inclusive.
    pub end: i64,
    /// Most messages to return, the newest; `None` for all.
    pub limit: Option<usize>,
}

/// What the messages of a query have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryBy {
    /// The key: a unique key, or one of the keys of a message.
    Key(String),
    /// The whole `TAGS` of a message. The index serves only where
    /// [`StoreConfig::index_tags`](crate::config::StoreConfig::index_tags) says that it holds tags.
    Tag(String),
}

impl QueryBy {
    /// The key under which the index holds what is wanted.
    fn index_key(&self) -> Cow<'_, str> {
        match self {
            Self::Key(key) => key.into(),
            Self::Tag(tag) => index_key_of_tag(tag).into(),
        }
    }

    /// Whether the message would stand in the index under this key or tag.
    fn is_of(&self, view: &MessageView<'_>) -> bool {
        match self {
            Self::Key(key) => index_keys(view, false).iter().any(|own| own == key),
            Self::Tag(tag) => indexed_tag(view).is_some_and(|own| own == *tag),
        }
    }
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

/// What is collected of each stretch of the log.
struct Search<W> {
    key_hash: i32,
    /// Store times outside of which nothing is wanted.
    times: RangeInclusive<i64>,
    limit: usize,
    wanted: W,
}

impl MessageReader {
    /// Finds the newest messages with a key or tag, within a time.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub fn query(&self, request: &QueryRequest) -> Result<QueryResult> {
        let bounds = self.physical_bounds();
        let times = request.begin..=request.end;
        let search = Search {
            key_hash: index_key_hash(&request.topic, &request.by.index_key()),
            times: times.clone(),
            limit: request.limit.unwrap_or(usize::MAX),
            wanted: |view: &MessageView<'_>| {
                times.contains(&view.store_time()) && view.topic() == request.topic && request.by.is_of(view)
            },
        };
        let mut found = BTreeMap::new();
        let mut result = QueryResult {
            messages: Vec::new(),
            complete: true,
            covers: bounds.end..bounds.end,
        };
        for mut source in self.index().sources(bounds)?.into_iter().rev() {
            if found.len() >= search.limit {
                break;
            }
            result.covers.start = source.range().start;
            if let (Source::Index(file, geometry, range), QueryBy::Tag(_)) = (&source, &request.by)
                && !self.holds_tags(file, *geometry)?
            {
                source = Source::Log(range.clone());
            }
            result.complete &= self.collect_from(&source, &search, &mut found)?.is_none();
        }
        // What was removed meanwhile is not covered any more.
        result.covers.start = result.covers.start.max(self.physical_bounds().start).min(result.covers.end);
        result.messages = found.into_values().collect();
        Ok(result)
    }

    /// The first stored message with this unique key: by the index for every topic that has queues, and then, if `walk` says so, by
    /// walking the log, because a message may stand in no queue and in no index.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it was not found and a part of the log that had to be looked at could not be read.
    pub(super) fn message_by_unique_key(&self, unique_key: &str, walk: bool) -> Result<Option<StoredMessage>> {
        let topics = self.topics()?;
        let search_in = |topic: &str| Search {
            key_hash: index_key_hash(topic, unique_key),
            times: i64::MIN..=i64::MAX,
            limit: usize::MAX,
            wanted: |view: &MessageView<'_>| view.unique_key().is_some_and(|key| key == unique_key),
        };
        let mut damage = None;
        for source in self.index().sources(self.physical_bounds())? {
            let Source::Index(file, geometry, range) = &source else {
                continue;
            };
            let (mut found, mut is_whole) = (BTreeMap::new(), true);
            for topic in &topics {
                interrupt::check()?;
                match self.collect_indexed(file, *geometry, range, &search_in(topic), &mut found)? {
                    Some(unread) => damage = damage.or(unread.filter(|unread| matches!(unread, Error::Corrupt { .. }))),
                    None => is_whole = false,
                }
            }
            if let Some((_, message)) = found.pop_first() {
                return Ok(Some(message));
            }
            if walk && !is_whole {
                break;
            }
        }
        let mut found = BTreeMap::new();
        if walk {
            damage = self.collect_walking(self.physical_bounds(), &search_in(""), &mut found)?;
        }
        match found.pop_first() {
            Some((_, message)) => Ok(Some(message)),
            None => damage.map_or(Ok(None), Err),
        }
    }

    /// Whether the tags of the messages that the file speaks for are in it, too. The option says so, and the records at both ends do not
    /// contradict it.
    fn holds_tags(&self, file: &IndexFile, geometry: IndexGeometry) -> Result<bool> {
        if !self.config().index_tags {
            return Ok(false);
        }
        let header = file.header();
        // The tag is the last key of a record: of the last record of a full file it may stand in the next one.
        let last = Some(header.end_physical_offset).filter(|_| !header.is_full(geometry));
        for offset in [Some(header.begin_physical_offset), last].into_iter().flatten() {
            let LogRecord::Message(message) = self.log().read(offset, Check::Structure)? else {
                continue;
            };
            let view = message.view();
            let Some(tag) = indexed_tag(&view) else { continue };
            let key_hash = index_key_hash(&view.topic(), &index_key_of_tag(&tag));
            let (offsets, _) = file.offsets(geometry, key_hash, &(i64::MIN..=i64::MAX))?;
            if !offsets.contains(&offset) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds the newest wanted messages of one stretch until `found` holds `limit`. Gives the first thing that could not be read.
    fn collect_from(
        &self,
        source: &Source,
        search: &Search<impl Fn(&MessageView<'_>) -> bool>,
        found: &mut BTreeMap<i64, StoredMessage>,
    ) -> Result<Option<Error>> {
        if let Source::Index(file, geometry, range) = source
            && let Some(damage) = self.collect_indexed(file, *geometry, range, search, found)?
        {
            return Ok(damage.or(self.lost_of(file, *geometry, range)?));
        }
        self.collect_walking(source.range(), search, found)
    }

    /// Adds those to which an index file leads. `None` where it is not to be trusted.
    #[expect(
        clippy::option_option,
        reason = "no damage, damage, and not to be trusted are three answers"
    )]
    fn collect_indexed(
        &self,
        file: &IndexFile,
        geometry: IndexGeometry,
        range: &Range<i64>,
        search: &Search<impl Fn(&MessageView<'_>) -> bool>,
        found: &mut BTreeMap<i64, StoredMessage>,
    ) -> Result<Option<Option<Error>>> {
        let (newest_first, whole) = file.offsets(geometry, search.key_hash, &search.times)?;
        if !whole {
            return Ok(None);
        }
        let candidates = newest_first.into_iter().filter(|offset| range.contains(offset));
        self.collect_at(candidates, search, |view| has_hash(view, search.key_hash), found)
    }

    /// A salvage record in the stretch that an index file speaks for: the keys of the messages that were lost there are in no index.
    fn lost_of(&self, file: &IndexFile, geometry: IndexGeometry, range: &Range<i64>) -> Result<Option<Error>> {
        let (salvage_records, _) = file.offsets(geometry, index_key_hash("", ""), &(i64::MIN..=i64::MAX))?;
        for offset in salvage_records.into_iter().filter(|offset| range.contains(offset)) {
            if let LogRecord::Message(message) = self.log().read(offset, Check::Structure)?
                && is_salvage_record(&message.view())
            {
                return Ok(Some(nothing_at(offset, WAS_LOST)));
            }
        }
        Ok(None)
    }

    fn collect_walking(
        &self,
        range: Range<i64>,
        search: &Search<impl Fn(&MessageView<'_>) -> bool>,
        found: &mut BTreeMap<i64, StoredMessage>,
    ) -> Result<Option<Error>> {
        let mut offsets = Vec::new();
        let mut damage = self.walk(range, |message| {
            let view = message.view();
            if (search.wanted)(&view) {
                offsets.push(view.physical_offset());
            }
        })?;
        let newest_first = offsets.into_iter().rev();
        if let Some(unread) = self.collect_at(newest_first, search, |_| true, found)?.flatten() {
            damage.get_or_insert(unread);
        }
        Ok(damage)
    }

    /// Reads the candidates in turn, bodies checked, until `found` holds `limit`. Gives the first damaged record. Gives the outer `None`
    /// where no record starts, or one that is no candidate: then whatever named the candidates is wrong.
    #[expect(
        clippy::option_option,
        reason = "no damage, damage, and not to be trusted are three answers"
    )]
    fn collect_at(
        &self,
        candidates: impl Iterator<Item = i64>,
        search: &Search<impl Fn(&MessageView<'_>) -> bool>,
        is_candidate: impl Fn(&MessageView<'_>) -> bool,
        found: &mut BTreeMap<i64, StoredMessage>,
    ) -> Result<Option<Option<Error>>> {
        let mut damage = None;
        for offset in candidates {
            if found.len() >= search.limit {
                break;
            }
            interrupt::check()?;
            match self.log().read(offset, Check::Body)? {
                LogRecord::Message(message) if (search.wanted)(&message.view()) => {
                    found.insert(offset, message);
                }
                LogRecord::Message(message) if is_candidate(&message.view()) => {}
                LogRecord::Message(message) if is_salvage_record(&message.view()) => {
                    damage.get_or_insert(nothing_at(offset, WAS_LOST));
                }
                LogRecord::Missing if self.log().is_removed(offset) => {
                    damage.get_or_insert(nothing_at(offset, EXPIRED));
                }
                LogRecord::Corrupt(error) => {
                    damage.get_or_insert(error);
                }
                LogRecord::Message(_)
                | LogRecord::NoRecord(_)
                | LogRecord::Blank { .. }
                | LogRecord::End
                | LogRecord::Missing => return Ok(None),
            }
        }
        Ok(Some(damage))
    }
}

/// Whether an index item with this hash may lead to the message: one of its keys, or its tag, has it.
pub(super) fn has_hash(view: &MessageView<'_>, key_hash: i32) -> bool {
    let topic = view.topic();
    index_keys(view, true)
        .iter()
        .any(|key| index_key_hash(&topic, key) == key_hash)
}

/// The tag under which an index of tags holds the message.
fn indexed_tag<'a>(view: &MessageView<'a>) -> Option<Cow<'a, str>> {
    view.tags().filter(|_| view.transaction() != Transaction::Rollback)
}
