//! The search for messages by key, of one key or many: each index file once, and each stretch without an index once.
//!
//! An index file returns candidates: physical offsets of records, some of which only have a key of the same hash. They are checked in the
//! order of the log, each record once. Stretches without an index are walked, and their keys stay in memory for later searches.

use std::cell::OnceCell;
use std::ops::Range;

use crate::config::Errors;
use crate::error::Result;
use crate::format::{Check, DispatchRequest, MessageView, is_salvage_record};
use crate::interrupt;
use crate::log::{Candidate, Candidates, Indexed, KeyLookup, LogRecord, RecordCursor, Source};
use crate::read::damage::{Unread, Unreadable, first_damage};
use crate::read::message_reader::MessageReader;
use crate::read::resolve::contradicted::Contradicted;
use crate::read::resolve::hits::{HitBounds, KeyHit, KeyHits, KeyMatches};
use crate::read::resolve::offsets::OffsetResolver;
use crate::read::resolve::query_request::{Numbers, Wanted};
use crate::read::resolve::sources::sources;

/// Records that are read ahead at once.
pub(super) const AHEAD: usize = 1024;
/// Candidates whose keys and records are brought into the cache of the processor at once.
const NEAR: usize = 16;
/// The factor by which more of a chain is followed where the records that it led to were not enough.
const DEEPER: usize = 4;

impl MessageReader {
    /// Finds for each `(topic, key)` every message with it within the bounds, ascending by physical offset. With [`Errors::Skip`]
    /// damaged messages are left out; without a usable index, so are those in the same segment after them that are in no queue.
    ///
    /// With a limit, memory is taken for as many hits, not for those beyond it. The keys of a stretch that no index serves stay
    /// in memory, up to 256 MiB, so that it is not walked again.
    ///
    /// # Errors
    /// [`crate::error::Error::Corrupt`] where a part of the log that had to be looked at cannot be read, unless that is skipped;
    /// [`crate::error::Error::Io`].
    pub fn resolve_keys(&self, wanted: &[(&str, &str)], bounds: &HitBounds, errors: Errors) -> Result<KeyHits> {
        find_keys(self, Wanted::Keys(wanted), bounds, errors)
    }
}

/// Finds the messages with these keys, in one stretch of the log after the other.
pub(super) fn find_keys(reader: &MessageReader, wanted: Wanted<'_>, bounds: &HitBounds, errors: Errors) -> Result<KeyHits> {
    let mut search = KeySearch::new(reader, wanted, bounds, errors, false)?;
    let log = reader.physical_bounds();
    let mut sources = sources(reader, log.start..log.end.min(bounds.physical.end))?;
    sources.retain(|source| source.range().end > bounds.physical.start);
    if bounds.limit.is_some() {
        sources.reverse();
    }
    for source in sources {
        search.drop_full_keys();
        if !search.keys.is_empty() {
            search.look_into(&source)?;
        }
    }
    Ok(search.found.finish(wanted.len()))
}

/// A search for one or many keys, in one stretch of the log after the other.
pub(crate) struct KeySearch<'a> {
    reader: &'a MessageReader,
    wanted: Wanted<'a>,
    /// The number and the hash of each key of which more messages are wanted, ascending by number.
    pub(crate) keys: Vec<(usize, i32)>,
    /// Made when the log has to be walked.
    numbers: OnceCell<Numbers<'a>>,
    bounds: &'a HitBounds,
    /// The queue entries with which hits are compared: no checksum covers the queue id and the queue offset of a record.
    entries: OffsetResolver<'a>,
    /// The store times of the messages that are wanted; `None` for any.
    times: Option<&'a Range<i64>>,
    errors: Errors,
    pub(crate) found: KeyMatches,
    /// The offsets that could not be read, for a caller that decides about them; the body of each hit is checked then, too. `None`: damage
    /// ends the search or is skipped.
    pub(crate) unread: Option<Unread>,
}

impl<'a> KeySearch<'a> {
    /// Begins a search. `collects_unread`: the offsets that cannot be read are collected, for a caller that decides about them.
    ///
    /// # Errors
    /// Those of [`interrupt::check`].
    pub(crate) fn new(
        reader: &'a MessageReader,
        wanted: Wanted<'a>,
        bounds: &'a HitBounds,
        errors: Errors,
        collects_unread: bool,
    ) -> Result<Self> {
        let mut keys = Vec::with_capacity(wanted.len());
        for number in 0..wanted.len() {
            interrupt::check()?;
            keys.push((number, wanted.hash(number)));
        }
        Ok(Self {
            reader,
            wanted,
            keys,
            numbers: OnceCell::new(),
            bounds,
            entries: OffsetResolver::new(reader),
            times: match wanted {
                Wanted::Query(request) => request.bounds(),
                Wanted::Keys(_) | Wanted::UniqueKeys(..) => None,
            },
            errors,
            found: KeyMatches::new(wanted.len(), bounds.limit),
            unread: collects_unread.then(Unread::new),
        })
    }

    fn drop_full_keys(&mut self) {
        self.found.keep_newest();
        self.keys.retain(|(key, _)| !self.found.is_full(*key));
    }

    /// Finds the messages of a stretch.
    ///
    /// # Errors
    /// [`crate::error::Error::Corrupt`] for damage that is neither collected nor skipped; [`crate::error::Error::Io`].
    pub(crate) fn look_into(&mut self, source: &Source) -> Result<()> {
        if let Source::Index(indexed) = source {
            if self.look_up_index(indexed)? {
                return self.note_lost(indexed);
            }
            if self.unread.is_none() {
                // Newer ones may have been missed, and a key of which these are as many as are wanted would not be looked for again. A key
                // that was found before keeps its hits: stretches that follow each other may share a record.
                self.found.forget(&self.keys, indexed.range());
            }
        }
        self.walk(source)
    }

    /// Finds the messages to which an index file leads. Returns false if a chain is broken, or one leads where no record with its hash
    /// starts: then the log must be walked.
    ///
    /// # Errors
    /// As [`look_into`](Self::look_into).
    pub(crate) fn look_up_index(&mut self, indexed: &Indexed) -> Result<bool> {
        let index = self.reader.index();
        self.look_up(indexed.range(), Check::Whole, |lookup| index.find_all(indexed, lookup))
    }

    /// Checks the records that `find_all` returns. Returns false if it returns none because a chain is broken, or one leads where no record
    /// with its hash starts.
    fn look_up(
        &mut self,
        range: &Range<i64>,
        check: Check,
        find_all: impl Fn(KeyLookup<'_>) -> Result<Option<Candidates>>,
    ) -> Result<bool> {
        let wanted = &self.bounds.physical;
        let range = &(range.start.max(wanted.start)..range.end.min(wanted.end));
        let mut most = self.bounds.limit.unwrap_or(usize::MAX);
        let mut cut: Option<Vec<(usize, i32)>> = None;
        loop {
            let keys = cut.as_ref().unwrap_or(&self.keys);
            if keys.is_empty() {
                return Ok(true);
            }
            let lookup = KeyLookup {
                keys,
                range,
                times: self.times,
                most,
            };
            let Some(Candidates { records, cut: rest }) = find_all(lookup)? else {
                return Ok(false);
            };
            if !self.check_all(records, check)? {
                return Ok(false);
            }
            // Some records only have a key of the same hash, or have their key twice.
            self.found.keep_newest();
            let mut rest = rest;
            rest.retain(|(key, _)| !self.found.is_full(*key));
            cut = Some(rest);
            most = most.saturating_mul(DEEPER);
        }
    }

    /// Reads the records of the candidates in the order of the log. Returns false if a record shows that the index is damaged.
    fn check_all(&mut self, mut candidates: Vec<Candidate>, check: Check) -> Result<bool> {
        if let [only] = candidates.as_slice() {
            return self.check_only(*only, check);
        }
        let mut cursor = RecordCursor::default();
        candidates.sort_unstable();
        // A message may have a key twice.
        candidates.dedup();
        for window in candidates.chunks(AHEAD) {
            let offsets: Vec<i64> = window.iter().map(|candidate| candidate.physical_offset).collect();
            self.reader.log().read_ahead(&offsets)?;
            for near in window.chunks(NEAR) {
                self.wanted.touch(near.iter().map(|candidate| candidate.key));
                for candidate in near {
                    cursor.touch(candidate.physical_offset);
                }
                for of_record in near.chunk_by(|one, next| one.physical_offset == next.physical_offset) {
                    interrupt::check()?;
                    if !self.check(&mut cursor, of_record, check)? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Reads the record of the only candidate, as most queries have it: an order and a cursor cost more than the record.
    fn check_only(&mut self, candidate: Candidate, check: Check) -> Result<bool> {
        let at = candidate.physical_offset;
        let message = match self.reader.log().read(at, check)? {
            LogRecord::Message(message) => message,
            found => return self.note_unread(at, found),
        };
        let view = message.view();
        if !self.wanted.is_of(candidate.key, &view) {
            return if is_salvage_record(&view) {
                self.note(at, Unreadable::Lost).map(|()| true)
            } else {
                Ok(self.has_hash(candidate, &view) || self.note_wrong_place(candidate, &view)?)
            };
        }
        self.found.drop_surplus();
        match message.intact() {
            Ok(()) if self.note_wrong_place(candidate, &view)? => {}
            Ok(()) => self.found.push(candidate.key, KeyHit::of(&view)),
            Err(lost) => self.note(at, Unreadable::Damaged(lost))?,
        }
        Ok(true)
    }

    /// Reads the record of these candidates, and adds it to the hits of the keys that it has. Returns false as above.
    #[inline]
    fn check(&mut self, cursor: &mut RecordCursor, of_record: &[Candidate], check: Check) -> Result<bool> {
        let (log, Some(first)) = (self.reader.log(), of_record.first()) else {
            return Ok(true);
        };
        let at = first.physical_offset;
        let found = cursor.read(log, at, check)?;
        let view = match (&found, cursor.view()) {
            (LogRecord::Message(()), Some(view)) if !is_salvage_record(&view) => view,
            _ => return self.note_unread(at, found),
        };
        self.found.drop_surplus();
        let before = self.found.len();
        if !self.add(&view, of_record)? {
            return Ok(false);
        }
        if let Err(lost) = cursor.check_intact() {
            self.found.truncate(before);
            self.note(at, Unreadable::Damaged(lost))?;
        }
        Ok(true)
    }

    /// Takes account of a candidate at which no message is, or a salvage record. Returns false if the index is damaged.
    #[cold]
    fn note_unread<M>(&mut self, at: i64, found: LogRecord<M>) -> Result<bool> {
        let why = match found {
            LogRecord::Message(_) => Unreadable::Lost,
            LogRecord::Missing if self.reader.log().is_removed(at) => Unreadable::Expired,
            LogRecord::Corrupt(error) => Unreadable::Damaged(error),
            LogRecord::Missing | LogRecord::NoRecord(_) | LogRecord::Blank { .. } | LogRecord::End => return Ok(false),
        };
        self.note(at, why).map(|()| true)
    }

    /// Adds a message to the hits of the keys that it has. Returns false if it does not even have the hash of a candidate, and no queue
    /// shows that this is damage of the message.
    #[inline]
    fn add(&mut self, view: &MessageView<'_>, of_record: &[Candidate]) -> Result<bool> {
        for candidate in of_record {
            if self.wanted.is_of(candidate.key, view) {
                let is_in_place = self.entries.leads_to(self.wanted.topic(candidate.key), view)?;
                if is_in_place || !self.note_wrong_place(*candidate, view)? {
                    self.found.push(candidate.key, KeyHit::of(view));
                }
            } else if !self.has_hash(*candidate, view) && !self.note_wrong_place(*candidate, view)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes account of a record that names another place than the entry of the wanted topic that leads to it. Returns false if none does.
    fn note_wrong_place(&mut self, candidate: Candidate, view: &MessageView<'_>) -> Result<bool> {
        let damage = self.reader.find_wrong_place([self.wanted.topic(candidate.key)], view)?;
        let is_damaged = damage.is_some();
        if let Some(damage) = damage {
            self.note(view.physical_offset(), Unreadable::Damaged(damage))?;
        }
        Ok(is_damaged)
    }

    /// Returns true if the message has a key with the hash of the candidate.
    fn has_hash(&self, candidate: Candidate, view: &MessageView<'_>) -> bool {
        DispatchRequest::of(view).has_index_key_hash(self.wanted.hash(candidate.key))
    }

    /// Takes account of an offset that could not be read.
    fn note(&mut self, at: i64, why: Unreadable) -> Result<()> {
        match (&mut self.unread, why) {
            (Some(unread), why) => {
                unread.insert(at, why);
                Ok(())
            }
            (None, Unreadable::Damaged(error)) => self.reader.skip(error, self.errors),
            (None, Unreadable::Expired | Unreadable::Lost) => Ok(()),
        }
    }

    /// Adds the salvage records of the stretch that an index file covers: the keys of the messages that were lost there are in no index.
    fn note_lost(&mut self, indexed: &Indexed) -> Result<()> {
        let Some(unread) = &mut self.unread else { return Ok(()) };
        let salvage_records = indexed.salvage_records()?.into_iter();
        for offset in salvage_records.filter(|offset| indexed.range().contains(offset)) {
            if let LogRecord::Message(message) = self.reader.log().read(offset, Check::Structure)?
                && is_salvage_record(&message.view())
            {
                unread.insert(offset, Unreadable::Lost);
            }
        }
        Ok(())
    }

    /// Finds what lies in a stretch that no index serves: in the log what was not walked before, and then in memory, the newest part first.
    /// The memory does not show what could not be read.
    fn walk(&mut self, source: &Source) -> Result<()> {
        let range = source.range();
        if self.unread.is_some() {
            return self.walk_log(source, range.start);
        }
        let known = self.reader.walked.parts_of(&range);
        let known_until = known.last().map_or(range.start, |part| part.end());
        if known_until < range.end {
            self.walk_log(source, known_until)?;
        }
        for part in known.iter().rev() {
            self.drop_full_keys();
            if !self.look_up(&range, Check::Structure, |lookup| Ok(Some(part.find_all(lookup))))? {
                return self.walk_log(source, range.start);
            }
        }
        Ok(())
    }

    /// Walks the rest of a stretch from an offset on. After damage that is skipped, the queues of the topics lead to messages that the walk
    /// missed.
    fn walk_log(&mut self, source: &Source, from: i64) -> Result<()> {
        let (reader, bounds, range) = (self.reader, self.bounds, source.range());
        let (wanted, found) = (self.wanted, &mut self.found);
        let numbers = self.numbers.get_or_init(|| wanted.numbers());
        let (mut unchecked, checks_bodies) = (Vec::new(), self.unread.is_some());
        // Returns true if it has added a hit that is not checked later.
        let mut add = |view: &MessageView<'_>| {
            found.drop_surplus();
            let physical_offset = view.physical_offset();
            let mut is_hit = false;
            if bounds.physical.contains(&physical_offset) {
                wanted.each_of(view, numbers, |key| {
                    if checks_bodies {
                        unchecked.push(Candidate { physical_offset, key });
                    } else {
                        found.push(key, KeyHit::of(view));
                        is_hit = true;
                    }
                });
            }
            is_hit
        };
        let log_start = reader.physical_bounds().start;
        let mut memory = self.unread.is_none().then(|| reader.walked.walk_from(from, log_start));
        let mut contradicted = Contradicted::new(wanted, numbers, reader);
        let mut visit = |view: &MessageView<'_>| {
            let is_hit = add(view);
            contradicted.look_at(view, is_hit);
            if let Some(memory) = &mut memory {
                memory.add(view);
            }
        };
        let mut unread = if from > range.start {
            reader.walk(from..range.end, &mut visit)?
        } else {
            reader.walk_source(source, &mut visit)?
        };
        let mut wrong = contradicted.finish()?;
        let offsets: Vec<i64> = wrong.keys().copied().collect();
        unread.append(&mut wrong);
        if let Some(damage) = first_damage(&unread) {
            if self.unread.is_none() {
                reader.skip(damage.clone(), self.errors)?;
            }
            if self.errors == Errors::Skip {
                for topic in wanted.topics(numbers) {
                    reader.visit_queued(topic, &range, &mut unread, |message| {
                        add(&message.view());
                    })?;
                }
            }
        } else if let Some(memory) = memory {
            reader.walked.keep(memory);
        }
        self.found.drop_at(&offsets);
        if let Some(known) = &mut self.unread {
            known.append(&mut unread);
        }
        // Visited queues lead back to earlier offsets.
        unchecked.sort_unstable();
        unchecked.dedup();
        let Some(first) = unchecked.first().map(|candidate| candidate.physical_offset) else {
            return Ok(());
        };
        if !self.look_up(&range, Check::Whole, |lookup| Ok(Some(newest(&unchecked, lookup))))? {
            // Another process has cut the log since the walk.
            self.note(first, Unreadable::Lost)?;
        }
        Ok(())
    }
}

/// Returns the newest of the candidates, which ascend, for the only key of a lookup.
fn newest(candidates: &[Candidate], lookup: KeyLookup<'_>) -> Candidates {
    let first = candidates.len().saturating_sub(lookup.most);
    Candidates {
        records: candidates.get(first..).unwrap_or_default().to_vec(),
        cut: if first > 0 { lookup.keys.to_vec() } else { Vec::new() },
    }
}
