//! Finding messages by key or tag: by the index where it covers the log, by walking the log elsewhere. Topic, key, tag and store time
//! are compared themselves, so that two keys with one hash never mix, and a clock that was set back hides no message.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

use crate::config::Errors;
use crate::error::Result;
use crate::format::{Check, DispatchRequest, MessageView, Transaction, index_key_hash, index_key_of_tag, is_salvage_record};
use crate::interrupt;
use crate::log::{Indexed, LogRecord, Source, StoredMessage};
use crate::read::message_reader::MessageReader;
use crate::read::unreadable::{Unread, Unreadable, first_damage, first_gone};

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
    /// What to do where a message that could match is damaged.
    pub errors: Errors,
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
            Self::Key(key) => DispatchRequest::of(view).has_key(key),
            Self::Tag(tag) => indexed_tag(view).is_some_and(|own| own == *tag),
        }
    }
}

/// The answer to a query.
#[derive(Debug, Clone)]
pub struct QueryResult {
    /// The messages, ascending by physical offset.
    pub messages: Vec<StoredMessage>,
    /// Whether these are all messages that match: the limit left none out, every part of the log that had to be looked at could be read,
    /// and the open found no sign of messages that are missing.
    pub complete: bool,
    /// The physical offsets that were looked at, by index or by walk: down from the log's end, until the limit was reached.
    pub covers: Range<i64>,
    /// Places of the log that were passed over, because a message that could match was lost, or is damaged there. After damage to the
    /// length of a record the place can hold several messages.
    pub skipped: u64,
}

/// What is looked for in each stretch of the log.
struct Search<'a, W> {
    /// The topic whose queues help where the log is damaged.
    topic: &'a str,
    key_hash: i32,
    /// Store times outside of which nothing is wanted.
    times: RangeInclusive<i64>,
    limit: usize,
    errors: Errors,
    wanted: W,
}

/// What was found so far, by physical offset.
#[derive(Default)]
struct Found {
    /// The newest first, nearly in the order in which they are found. One more than the limit, to know that there are more.
    messages: Vec<StoredMessage>,
    unread: Unread,
}

impl Found {
    fn insert(&mut self, offset: i64, message: StoredMessage) {
        let offset_of = |known: &StoredMessage| known.view().physical_offset();
        let at = self.messages.partition_point(|known| offset_of(known) > offset);
        if self.messages.get(at).is_none_or(|known| offset_of(known) != offset) {
            self.messages.insert(at, message);
        }
    }

    /// Keeps the newest messages, and what could not be read among them. Gives the offset of the first of them if something was before it.
    fn keep_newest(&mut self, limit: usize) -> Option<i64> {
        let start = self.messages.get(limit.checked_sub(1)?)?.view().physical_offset();
        let is_cut = self.messages.len() > limit || self.unread.first_key_value().is_some_and(|(offset, _)| *offset < start);
        self.messages.truncate(limit);
        self.unread = self.unread.split_off(&start);
        is_cut.then_some(start)
    }
}

impl MessageReader {
    /// Finds the newest messages with a key or tag, within a time.
    ///
    /// # Errors
    /// [`crate::error::Error::Corrupt`] where a message that could match is damaged, unless that is skipped; [`crate::error::Error::Io`].
    pub fn query(&self, request: &QueryRequest) -> Result<QueryResult> {
        let bounds = self.physical_bounds();
        let times = request.begin..=request.end;
        let search = Search {
            topic: &request.topic,
            key_hash: index_key_hash(&request.topic, &request.by.index_key()),
            times: times.clone(),
            limit: request.limit.unwrap_or(usize::MAX),
            errors: request.errors,
            wanted: |view: &MessageView<'_>| {
                times.contains(&view.store_time()) && view.has_topic(&request.topic) && request.by.is_of(view)
            },
        };
        let mut found = Found::default();
        let mut covers = bounds.end..bounds.end;
        let mut is_cut = false;
        for mut source in self.sources(bounds)?.into_iter().rev() {
            if found.messages.len() >= search.limit {
                is_cut = true;
                break;
            }
            covers.start = source.range().start;
            if let (Source::Index(indexed), QueryBy::Tag(_)) = (&source, &request.by)
                && !self.holds_tags(indexed)?
            {
                source = Source::Log(indexed.range().clone());
            }
            self.collect_from(&source, &search, &mut found)?;
            if let Some(start) = found.keep_newest(search.limit) {
                (covers.start, is_cut) = (start, true);
            }
            if request.errors == Errors::Raise
                && let Some(damage) = first_damage(&found.unread)
            {
                return Err(self.advise(damage.clone()));
            }
        }
        // What was removed meanwhile is not covered any more.
        covers.start = covers.start.max(self.physical_bounds().start).min(covers.end);
        found.messages.reverse();
        let skipped = found.unread.values().filter(|why| !matches!(why, Unreadable::Expired));
        Ok(QueryResult {
            complete: !is_cut && found.unread.is_empty() && self.recovery().missing.is_none(),
            covers,
            skipped: skipped.count() as u64,
            messages: found.messages,
        })
    }

    /// The first stored message with this unique key: by the index for every topic that has queues, and then, if `walk` says so, by
    /// walking the log, because a message may stand in no queue and in no index.
    ///
    /// # Errors
    /// [`crate::error::Error::Corrupt`] if it was not found and a part of the log that had to be looked at could not be read.
    pub(super) fn message_by_unique_key(&self, unique_key: &str, walk: bool) -> Result<Option<StoredMessage>> {
        let topics = self.topics()?;
        let search_in = |topic| Search {
            topic,
            key_hash: index_key_hash(topic, unique_key),
            times: i64::MIN..=i64::MAX,
            limit: usize::MAX,
            errors: Errors::Raise,
            wanted: |view: &MessageView<'_>| view.unique_key().is_some_and(|key| key == unique_key),
        };
        let mut found = Found::default();
        for source in self.sources(self.physical_bounds())? {
            let Source::Index(indexed) = &source else { continue };
            let mut is_whole = true;
            for topic in &topics {
                interrupt::check()?;
                is_whole &= self.collect_indexed(indexed, &search_in(topic), &mut found)?;
            }
            if let Some(message) = found.messages.pop() {
                return Ok(Some(message));
            }
            if walk && !is_whole {
                break;
            }
        }
        if walk {
            found.unread.clear();
            self.collect_walking(&Source::Log(self.physical_bounds()), &search_in(""), &mut found)?;
        }
        if let Some(message) = found.messages.pop() {
            return Ok(Some(message));
        }
        let gone = first_gone(&found.unread).filter(|_| walk);
        first_damage(&found.unread).cloned().or(gone).map_or(Ok(None), Err)
    }

    /// Whether the tags of the messages that the file covers are in it, too. The option says so, and the records at both ends do not
    /// contradict it.
    fn holds_tags(&self, indexed: &Indexed) -> Result<bool> {
        if !self.config().index_tags {
            return Ok(false);
        }
        let header = indexed.header();
        // The tag is the last key of a record: of the last record of a full file it may stand in the next one.
        let last = Some(header.end_physical_offset).filter(|_| !indexed.is_full());
        for offset in [Some(header.begin_physical_offset), last].into_iter().flatten() {
            let LogRecord::Message(message) = self.log().read(offset, Check::Structure)? else {
                continue;
            };
            let view = message.view();
            let Some(tag) = indexed_tag(&view) else { continue };
            let key_hash = index_key_hash(&view.topic(), &index_key_of_tag(&tag));
            let (offsets, _) = indexed.offsets(key_hash, &(i64::MIN..=i64::MAX))?;
            if !offsets.contains(&offset) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds the newest wanted messages of one stretch until `found` holds more than `limit`, and what could not be read.
    fn collect_from(
        &self,
        source: &Source,
        search: &Search<'_, impl Fn(&MessageView<'_>) -> bool>,
        found: &mut Found,
    ) -> Result<()> {
        if let Source::Index(indexed) = source
            && self.collect_indexed(indexed, search, found)?
        {
            return self.collect_lost(indexed, &mut found.unread);
        }
        self.collect_walking(source, search, found)
    }

    /// Adds the messages to which an index file leads. `false` if a chain is broken or leads elsewhere: the log must be walked.
    fn collect_indexed(
        &self,
        indexed: &Indexed,
        search: &Search<'_, impl Fn(&MessageView<'_>) -> bool>,
        found: &mut Found,
    ) -> Result<bool> {
        let (newest_first, whole) = indexed.offsets(search.key_hash, &search.times)?;
        if !whole {
            return Ok(false);
        }
        let candidates = newest_first.into_iter().filter(|offset| indexed.range().contains(offset));
        let has_hash = |view: &MessageView<'_>| DispatchRequest::of(view).has_index_key_hash(search.key_hash);
        self.collect_at(candidates, search, has_hash, found)
    }

    /// Adds the salvage records of the stretch that an index file covers: the keys of the messages that were lost there are in no index.
    fn collect_lost(&self, indexed: &Indexed, unread: &mut Unread) -> Result<()> {
        let salvage_records = indexed.salvage_records()?.into_iter();
        for offset in salvage_records.filter(|offset| indexed.range().contains(offset)) {
            if let LogRecord::Message(message) = self.log().read(offset, Check::Structure)?
                && is_salvage_record(&message.view())
            {
                unread.insert(offset, Unreadable::Lost);
            }
        }
        Ok(())
    }

    /// Adds those of a stretch of the log. After damage that is skipped, the queues of the topic lead to those that the walk missed.
    fn collect_walking(
        &self,
        source: &Source,
        search: &Search<'_, impl Fn(&MessageView<'_>) -> bool>,
        found: &mut Found,
    ) -> Result<()> {
        let mut offsets = BTreeSet::new();
        let mut add = |view: &MessageView<'_>| {
            if (search.wanted)(view) {
                offsets.insert(view.physical_offset());
            }
        };
        let mut unread = self.walk_source(source, &mut add)?;
        let is_damaged = unread.values().any(|why| matches!(why, Unreadable::Damaged(_)));
        if is_damaged && search.errors == Errors::Skip {
            self.visit_queued(search.topic, &source.range(), &mut unread, |message| add(&message.view()))?;
        }
        found.unread.append(&mut unread);
        self.collect_at(offsets.into_iter().rev(), search, |_| true, found)?;
        Ok(())
    }

    /// Reads the candidates in turn, bodies checked, until `found` holds more than `limit`. Adds what could not be read. Gives `false`
    /// where no record starts, or one that is no candidate: then the index that named the offset is damaged.
    fn collect_at(
        &self,
        candidates: impl Iterator<Item = i64>,
        search: &Search<'_, impl Fn(&MessageView<'_>) -> bool>,
        is_candidate: impl Fn(&MessageView<'_>) -> bool,
        found: &mut Found,
    ) -> Result<bool> {
        for offset in candidates {
            if found.messages.len() > search.limit {
                break;
            }
            interrupt::check()?;
            let why = match self.log().read(offset, Check::Whole)? {
                LogRecord::Message(message) if (search.wanted)(&message.view()) => {
                    found.insert(offset, message);
                    continue;
                }
                LogRecord::Message(message) if is_candidate(&message.view()) => continue,
                LogRecord::Message(message) if is_salvage_record(&message.view()) => Unreadable::Lost,
                LogRecord::Missing if self.log().is_removed(offset) => Unreadable::Expired,
                LogRecord::Corrupt(error) => Unreadable::Damaged(error),
                LogRecord::Message(_)
                | LogRecord::NoRecord(_)
                | LogRecord::Blank { .. }
                | LogRecord::End
                | LogRecord::Missing => return Ok(false),
            };
            found.unread.insert(offset, why);
        }
        Ok(true)
    }
}

/// The tag under which an index of tags holds the message.
fn indexed_tag<'a>(view: &MessageView<'a>) -> Option<Cow<'a, str>> {
    view.tags().filter(|_| view.transaction() != Transaction::Rollback)
}
