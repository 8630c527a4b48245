//! Finding the messages with many keys in one pass: each index file once, each stretch without an index once, and that only the first time.
//!
//! An index file gives candidates: physical offsets of records, some of which only have a key of the same hash. They are checked
//! in the order of the log, each record once. So does what an earlier walk has left in memory.

use std::cell::OnceCell;
use std::ops::{Range, RangeInclusive};

use crate::config::Errors;
use crate::error::{Error, Result};
use crate::format::{Check, DispatchRequest, MessageView, is_salvage_record};
use crate::interrupt;
use crate::log::{Candidate, Candidates, Indexed, KeyLookup, LogRecord, RecordCursor, Source};
use crate::read::message_reader::MessageReader;
use crate::read::resolve::hits::{Found, Hit, HitBounds, KeyHit, KeyHits};
use crate::read::resolve::wanted::{Numbers, Wanted};
use crate::read::unreadable::{Unread, Unreadable, first_damage};

/// Records that are read ahead at once.
pub(super) const AHEAD: usize = 1024;
/// Candidates whose keys and records are brought into the cache of the processor at once.
const NEAR: usize = 16;
/// By how much more of a chain is looked at where the records that it led to were not enough.
const DEEPER: usize = 4;

impl MessageReader {
    /// For each `(topic, key)`: every message with it within the bounds, ascending by physical offset. With [`Errors::Skip`]
    /// damaged messages are left out; where no index serves, so are those in the same segment after them that stand in no queue.
    ///
    /// With a limit, memory is taken for as many hits, not for those beyond it. The keys of a stretch that no index serves stay
    /// in memory, up to 256 MiB, so that it is not walked again.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where a part of the log that had to be looked at cannot be read, unless that is skipped; [`Error::Io`].
    pub fn resolve_keys(&self, wanted: &[(&str, &str)], bounds: &HitBounds, errors: Errors) -> Result<KeyHits> {
        self.find_keys(Wanted::Keys(wanted), bounds, errors)
    }

    pub(super) fn find_keys(&self, wanted: Wanted<'_>, bounds: &HitBounds, errors: Errors) -> Result<KeyHits> {
        let mut search: KeySearch<'_, KeyHit> = KeySearch::new(self, wanted, bounds, errors)?;
        let log = self.physical_bounds();
        let mut sources = self.sources(log.start..log.end.min(bounds.physical.end))?;
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

    /// Passes over damage where that is asked for.
    pub(super) fn skip(&self, damage: Error, errors: Errors) -> Result<()> {
        match (damage, errors) {
            (Error::Corrupt { .. }, Errors::Skip) => Ok(()),
            (damage, _) => Err(self.advise(damage)),
        }
    }
}

/// A search for one or many keys, in one stretch of the log after the other.
pub(in crate::read) struct KeySearch<'a, H> {
    reader: &'a MessageReader,
    wanted: Wanted<'a>,
    /// The number and the hash of each key of which more messages are wanted, ascending by number.
    pub(in crate::read) keys: Vec<(usize, i32)>,
    /// Made when the log has to be walked.
    numbers: OnceCell<Numbers<'a>>,
    bounds: &'a HitBounds,
    /// Store times outside of which no message is wanted; `None` if there are none.
    times: Option<RangeInclusive<i64>>,
    errors: Errors,
    pub(in crate::read) found: Found<H>,
    /// The places that could not be read, for a caller that decides about them. `None`: damage ends the search or is passed over.
    pub(in crate::read) unread: Option<Unread>,
}

impl<'a, H: Hit> KeySearch<'a, H> {
    /// Begins a search that has found nothing yet.
    ///
    /// # Errors
    /// Those of [`interrupt::check`].
    pub(in crate::read) fn new(
        reader: &'a MessageReader,
        wanted: Wanted<'a>,
        bounds: &'a HitBounds,
        errors: Errors,
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
            times: None,
            errors,
            found: Found::new(wanted.len(), bounds.limit),
            unread: None,
        })
    }

    /// Begins a search that collects the places that it cannot read.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(in crate::read) fn that_reports(
        reader: &'a MessageReader,
        wanted: Wanted<'a>,
        bounds: &'a HitBounds,
        errors: Errors,
    ) -> Result<Self> {
        Ok(Self {
            times: match wanted {
                Wanted::Query(request) => Some(request.begin..=request.end),
                Wanted::Keys(_) | Wanted::UniqueKeys(..) => None,
            },
            unread: Some(Unread::new()),
            ..Self::new(reader, wanted, bounds, errors)?
        })
    }

    fn drop_full_keys(&mut self) {
        self.found.keep_newest();
        self.keys.retain(|(key, _)| !self.found.is_full(*key));
    }

    /// Finds the messages of a stretch.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for damage that is neither collected nor skipped; [`Error::Io`].
    pub(in crate::read) fn look_into(&mut self, source: &Source) -> Result<()> {
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
    pub(in crate::read) fn look_up_index(&mut self, indexed: &Indexed) -> Result<bool> {
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
                times: self.times.as_ref(),
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

    /// Reads the records of the candidates in the order of the log. Returns false at one that shows that the index is damaged.
    fn check_all(&mut self, mut candidates: Vec<Candidate>, check: Check) -> Result<bool> {
        candidates.sort_unstable();
        // A message may have a key twice.
        candidates.dedup();
        let mut cursor = RecordCursor::default();
        for window in candidates.chunks(AHEAD) {
            if window.len() > 1 {
                let offsets: Vec<i64> = window.iter().map(|candidate| candidate.physical_offset).collect();
                self.reader.log().read_ahead(&offsets)?;
            }
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

    /// Reads the record of these candidates, and adds it to the hits of the keys that it has. Returns false as above.
    fn check(&mut self, cursor: &mut RecordCursor, of_record: &[Candidate], check: Check) -> Result<bool> {
        let (log, Some(first)) = (self.reader.log(), of_record.first()) else {
            return Ok(true);
        };
        let at = first.physical_offset;
        let found = cursor.read(log, at, check)?;
        let why = match (found, cursor.view()) {
            (LogRecord::Message(()), Some(view)) if is_salvage_record(&view) => Unreadable::Lost,
            (LogRecord::Message(()), Some(view)) => {
                let before = self.found.len();
                if !self.add(cursor, &view, of_record) {
                    return Ok(false);
                }
                match cursor.check_intact() {
                    Ok(()) => return Ok(true),
                    Err(lost) => {
                        self.found.truncate(before);
                        Unreadable::Damaged(lost)
                    }
                }
            }
            (LogRecord::Missing, _) if log.is_removed(at) => Unreadable::Expired,
            (LogRecord::Corrupt(error), _) => Unreadable::Damaged(error),
            _ => return Ok(false),
        };
        self.note(at, why).map(|()| true)
    }

    /// Adds a message to the hits of the keys that it has. Returns false if it does not even have the hash of a candidate.
    fn add(&mut self, cursor: &RecordCursor, view: &MessageView<'_>, of_record: &[Candidate]) -> bool {
        for candidate in of_record {
            if self.wanted.is_of(candidate.key, view) {
                let Some(hit) = H::of_read(cursor) else { return false };
                self.found.push(candidate.key, hit);
            } else if !DispatchRequest::of(view).has_index_key_hash(self.wanted.hash(candidate.key)) {
                return false;
            }
        }
        true
    }

    /// Takes account of a place that could not be read.
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

    /// Walks the rest of a stretch from a place on. After damage that is skipped, the queues of the topics lead to messages that the walk
    /// missed.
    fn walk_log(&mut self, source: &Source, from: i64) -> Result<()> {
        let (reader, bounds, range) = (self.reader, self.bounds, source.range());
        let (wanted, found) = (self.wanted, &mut self.found);
        let numbers = self.numbers.get_or_init(|| wanted.numbers());
        let mut unchecked = Vec::new();
        let mut add = |view: &MessageView<'_>| {
            found.make_room();
            let physical_offset = view.physical_offset();
            if bounds.physical.contains(&physical_offset) {
                wanted.each_of(view, numbers, |key| match H::of_walked(view) {
                    Some(hit) => found.push(key, hit),
                    None => unchecked.push(Candidate { physical_offset, key }),
                });
            }
        };
        let log_start = reader.physical_bounds().start;
        let mut memory = self.unread.is_none().then(|| reader.walked.walk_from(from, log_start));
        let mut visit = |view: &MessageView<'_>| {
            add(view);
            if let Some(memory) = &mut memory {
                memory.add(view);
            }
        };
        let mut unread = if from > range.start {
            reader.walk(from..range.end, &mut visit)?
        } else {
            reader.walk_source(source, &mut visit)?
        };
        if let Some(damage) = first_damage(&unread) {
            if self.unread.is_none() {
                reader.skip(damage.clone(), self.errors)?;
            }
            if self.errors == Errors::Skip {
                for topic in wanted.topics(numbers) {
                    reader.visit_queued(topic, &range, &mut unread, |message| add(&message.view()))?;
                }
            }
        } else if let Some(memory) = memory {
            reader.walked.keep(memory);
        }
        if let Some(known) = &mut self.unread {
            known.append(&mut unread);
        }
        self.check_all(unchecked, Check::Whole).map(drop)
    }
}
