//! Finding messages by key or tag: by the index where it covers the log, by walking the log elsewhere. Topic, key, tag and store time
//! are compared themselves, so that two keys with one hash never mix, and a clock that was set back hides no message.

use std::ops::Range;

use crate::config::Errors;
use crate::error::Result;
use crate::format::{Check, index_key_hash, index_key_of_tag};
use crate::interrupt;
use crate::log::{Indexed, LogRecord, Source, StoredMessage};
use crate::read::damage::{Unread, Unreadable, first_damage, first_gone};
use crate::read::message_reader::MessageReader;
use crate::read::resolve::{HitBounds, KeyHit, KeySearch, QueryBy, QueryRequest, Wanted, indexed_tag, sources};

/// The answer to a query.
#[derive(Debug, Clone)]
pub struct QueryResult {
    /// The locations of the messages, ascending by physical offset.
    pub hits: Vec<KeyHit>,
    /// True if these are all messages that match: the limit left none out, every part of the log that was needed could be read,
    /// and the open found no sign of messages that are missing.
    pub complete: bool,
    /// The physical offsets that were searched, by index or by walk: down from the log's end, until the limit was reached.
    pub covers: Range<i64>,
    /// Offsets of the log that were skipped, because a message that could match was lost, or is damaged there. After damage to the
    /// length of a record, one can stand for several messages.
    pub skipped: u64,
}

impl MessageReader {
    /// Finds the newest messages with a key or tag, within a time.
    ///
    /// # Errors
    /// [`crate::error::Error::Corrupt`] where a message that could match is damaged, unless that is skipped; [`crate::error::Error::Io`].
    pub fn query(&self, request: &QueryRequest) -> Result<QueryResult> {
        let bounds = self.physical_bounds();
        let limit = request.limit.unwrap_or(usize::MAX);
        let hit_bounds = HitBounds {
            // One more shows that there are more.
            limit: request.limit.map(|limit| limit.saturating_add(1)),
            ..HitBounds::default()
        };
        let mut search = KeySearch::new(self, Wanted::Query(request), &hit_bounds, request.errors, true)?;
        let mut covers = bounds.end..bounds.end;
        let (mut is_cut, mut oldest) = (false, None);
        for mut source in sources(self, bounds)?.into_iter().rev() {
            if search.found.len() >= limit {
                // An older index file may have some keys of the first record that was searched.
                if oldest != Some(covers.start) {
                    covers.start = covers.start.max(source.range().end);
                }
                is_cut = true;
                break;
            }
            covers.start = source.range().start;
            if let (Source::Index(indexed), QueryBy::Tag(_)) = (&source, &request.by)
                && !self.holds_tags(indexed)?
            {
                source = Source::Log(indexed.range().clone());
            }
            search.look_into(&source)?;
            let unread = search.unread.get_or_insert_default();
            if let Some((start, has_more)) = search.found.cut(limit) {
                oldest = Some(start);
                if has_more || unread.first_key_value().is_some_and(|(offset, _)| *offset < start) {
                    (covers.start, is_cut) = (start, true);
                }
                if !unread.is_empty() {
                    *unread = unread.split_off(&start);
                }
            }
            if request.errors == Errors::Raise
                && let Some(damage) = first_damage(unread)
            {
                return Err(self.advise(damage.clone()));
            }
        }
        // What was removed during the query is not covered any more.
        covers.start = covers.start.max(self.physical_bounds().start).min(covers.end);
        let unread = search.unread.unwrap_or_default();
        let skipped = unread.values().filter(|why| !matches!(why, Unreadable::Expired));
        Ok(QueryResult {
            complete: !is_cut && unread.is_empty() && self.recovery().missing.is_none(),
            covers,
            skipped: skipped.count() as u64,
            hits: search.found.into_ascending(),
        })
    }

    /// Returns the first stored message with this unique key: by the index for every topic that has queues, and then, if `walk` says so, by
    /// walking the log, because a message may be in no queue and in no index.
    ///
    /// # Errors
    /// [`crate::error::Error::Corrupt`] if it was not found and a part of the log that had to be looked at could not be read.
    pub(super) fn message_by_unique_key(&self, unique_key: &str, walk: bool) -> Result<Option<StoredMessage>> {
        let (topics, wanted, bounds) = (self.topics()?, [unique_key], HitBounds::default());
        let wanted = Wanted::UniqueKeys(&topics, &wanted);
        let mut search = KeySearch::new(self, wanted, &bounds, Errors::Raise, true)?;
        let of_topics = std::mem::take(&mut search.keys);
        for source in sources(self, self.physical_bounds())? {
            let Source::Index(indexed) = &source else { continue };
            let mut is_whole = true;
            for of_topic in &of_topics {
                interrupt::check()?;
                // Alone: the broken chain of one topic hides no message of another one.
                search.keys = vec![*of_topic];
                is_whole &= search.look_up_index(indexed)?;
            }
            if search.found.len() > 0 {
                let first = search.found.into_ascending().into_iter().next();
                return first.map(|hit| self.message_at(hit.physical_offset)).transpose();
            }
            if walk && !is_whole {
                break;
            }
        }
        let mut unread = search.unread.unwrap_or_default();
        if walk && let Some(message) = self.walk_for_unique_key(unique_key, &mut unread)? {
            return Ok(Some(message));
        }
        let gone = first_gone(&unread).filter(|_| walk);
        first_damage(&unread).cloned().or(gone).map_or(Ok(None), Err)
    }

    /// Walks the whole log for the first message with this unique key that can be read. Replaces `unread` by what it could not read.
    fn walk_for_unique_key(&self, unique_key: &str, unread: &mut Unread) -> Result<Option<StoredMessage>> {
        let mut offsets = Vec::new();
        *unread = self.walk(self.physical_bounds(), |view| {
            if view.unique_key().is_some_and(|key| key == unique_key) {
                offsets.push(view.physical_offset());
            }
        })?;
        for offset in offsets {
            let why = match self.log().read(offset, Check::Whole)? {
                LogRecord::Message(message) => {
                    let topics = self.queue_store().topics();
                    match self.find_wrong_place(topics.iter().map(String::as_str), &message.view())? {
                        Some(damage) => Unreadable::Damaged(damage),
                        None => return Ok(Some(message)),
                    }
                }
                LogRecord::Corrupt(error) => Unreadable::Damaged(error),
                // It has expired since.
                _ => Unreadable::Expired,
            };
            unread.insert(offset, why);
        }
        Ok(None)
    }

    /// Returns true if the file also has the tags of the messages that it covers: the option says so, and the records at both ends do not
    /// contradict it.
    fn holds_tags(&self, indexed: &Indexed) -> Result<bool> {
        if !self.config().index_tags {
            return Ok(false);
        }
        let header = indexed.header();
        // The tag is the last key of a record: of the last record of a full file it may be in the next one.
        let last = Some(header.end_physical_offset).filter(|_| !indexed.is_full());
        for offset in [Some(header.begin_physical_offset), last].into_iter().flatten() {
            let LogRecord::Message(message) = self.log().read(offset, Check::Structure)? else {
                continue;
            };
            let view = message.view();
            let Some(tag) = indexed_tag(&view) else { continue };
            let key_hash = index_key_hash(&view.topic(), &index_key_of_tag(&tag));
            let (offsets, _) = indexed.offsets(key_hash)?;
            if !offsets.contains(&offset) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
