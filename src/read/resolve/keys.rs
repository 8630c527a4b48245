//! Finding the messages with many keys in one pass: each index file once, each stretch without an index once, and that only the first time.
//!
//! An index file gives candidates: physical offsets of records, some of which only have a key of the same hash. They are checked
//! in the order of the log, each record once. So does what an earlier walk has left in memory.

use std::cell::OnceCell;
use std::ops::Range;

use crate::config::Errors;
use crate::error::{Error, Result};
use crate::format::{Check, DispatchRequest, MessageView, is_salvage_record};
use crate::interrupt;
use crate::log::{Candidate, Candidates, KeyLookup, LogRecord, RecordCursor, Source};
use crate::read::message_reader::MessageReader;
use crate::read::resolve::hits::{Found, HitBounds, KeyHit, KeyHits};
use crate::read::resolve::wanted::{Numbers, Wanted};
use crate::read::unreadable::{Unread, first_damage};

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
        let mut keys = Vec::with_capacity(wanted.len());
        for number in 0..wanted.len() {
            interrupt::check()?;
            keys.push((number, wanted.hash(number)));
        }
        let mut search = KeySearch {
            reader: self,
            wanted,
            keys,
            numbers: OnceCell::new(),
            bounds,
            errors,
            found: Found::new(wanted.len(), bounds.limit),
        };
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

/// A search for many keys.
struct KeySearch<'a> {
    reader: &'a MessageReader,
    wanted: Wanted<'a>,
    /// The number and the hash of each key of which more messages are wanted, ascending by number.
    keys: Vec<(usize, i32)>,
    /// Made when the log has to be walked.
    numbers: OnceCell<Numbers<'a>>,
    bounds: &'a HitBounds,
    errors: Errors,
    found: Found,
}

impl KeySearch<'_> {
    fn drop_full_keys(&mut self) {
        self.found.keep_newest();
        self.keys.retain(|(key, _)| !self.found.is_full(*key));
    }

    fn look_into(&mut self, source: &Source) -> Result<()> {
        let index = self.reader.index();
        if let Source::Index(indexed) = source {
            if self.look_up(indexed.range(), Check::Whole, |lookup| index.find_all(indexed, lookup))? {
                return Ok(());
            }
            // Newer ones may have been missed, and a key of which these are as many as are wanted would not be looked for again. A key that
            // was found before keeps its hits: stretches that follow each other may share a record.
            self.found.forget(&self.keys, indexed.range());
        }
        self.walk(source)
    }

    /// Checks the records that `find_all` gives. `false` if it gives none because a chain is broken, or one leads where no record
    /// with its hash starts: then the log must be walked.
    fn look_up(
        &mut self,
        range: &Range<i64>,
        check: Check,
        find_all: impl Fn(KeyLookup<'_>) -> Result<Option<Candidates>>,
    ) -> Result<bool> {
        let wanted = &self.bounds.physical;
        let range = &(range.start.max(wanted.start)..range.end.min(wanted.end));
        let (mut keys, mut most) = (self.keys.clone(), self.bounds.limit.unwrap_or(usize::MAX));
        while !keys.is_empty() {
            let lookup = KeyLookup {
                keys: &keys,
                range,
                most,
            };
            let Some(Candidates { records, cut }) = find_all(lookup)? else {
                return Ok(false);
            };
            if !self.check_all(records, check)? {
                return Ok(false);
            }
            // Some records only have a key of the same hash, or have their key twice.
            self.found.keep_newest();
            keys = cut;
            keys.retain(|(key, _)| !self.found.is_full(*key));
            most = most.saturating_mul(DEEPER);
        }
        Ok(true)
    }

    fn check_all(&mut self, mut candidates: Vec<Candidate>, check: Check) -> Result<bool> {
        candidates.sort_unstable();
        // A message may have a key twice.
        candidates.dedup();
        let mut cursor = RecordCursor::default();
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

    /// Reads the record of these candidates, and adds it to the hits of the keys that it carries. `false` as above.
    fn check(&mut self, cursor: &mut RecordCursor, of_record: &[Candidate], check: Check) -> Result<bool> {
        let (log, Some(first)) = (self.reader.log(), of_record.first()) else {
            return Ok(true);
        };
        match cursor.read(log, first.physical_offset, check)? {
            LogRecord::Message(()) => {}
            LogRecord::Missing if log.is_removed(first.physical_offset) => return Ok(true),
            LogRecord::Corrupt(error) => return self.reader.skip(error, self.errors).map(|()| true),
            LogRecord::NoRecord(_) | LogRecord::Blank { .. } | LogRecord::End | LogRecord::Missing => return Ok(false),
        }
        let Some(view) = cursor.view().filter(|view| !is_salvage_record(view)) else {
            return Ok(true);
        };
        self.found.make_room();
        let before = self.found.len();
        for candidate in of_record {
            if self.wanted.is_of(candidate.key, &view) {
                self.found.push(candidate.key, KeyHit::of(&view));
            } else if !DispatchRequest::of(&view).has_index_key_hash(self.wanted.hash(candidate.key)) {
                return Ok(false);
            }
        }
        if let Err(lost) = cursor.check_intact() {
            self.found.truncate(before);
            self.reader.skip(lost, self.errors)?;
        }
        Ok(true)
    }

    /// Finds what lies in a stretch that no index serves: in the log what was not walked before, and then in memory, the newest part first.
    fn walk(&mut self, source: &Source) -> Result<()> {
        let range = source.range();
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

    /// Walks the rest of a stretch from a place on.
    fn walk_log(&mut self, source: &Source, from: i64) -> Result<()> {
        let (reader, bounds, range) = (self.reader, self.bounds, source.range());
        let (wanted, found) = (self.wanted, &mut self.found);
        let numbers = self.numbers.get_or_init(|| wanted.numbers());
        let mut add = |view: &MessageView<'_>| {
            found.make_room();
            if bounds.physical.contains(&view.physical_offset()) {
                wanted.each_of(view, numbers, |number| found.push(number, KeyHit::of(view)));
            }
        };
        let mut walk = reader.walked.walk_from(from, reader.physical_bounds().start);
        let mut visit = |view: &MessageView<'_>| {
            add(view);
            walk.add(view);
        };
        let unread = if from > range.start {
            reader.walk(from..range.end, &mut visit)?
        } else {
            reader.walk_source(source, &mut visit)?
        };
        let Some(damage) = first_damage(&unread) else {
            reader.walked.keep(walk);
            return Ok(());
        };
        reader.skip(damage.clone(), self.errors)?;
        let mut unread = Unread::new();
        let mut topics = wanted.topics(numbers).into_iter();
        topics.try_for_each(|topic| reader.visit_queued(topic, &range, &mut unread, |message| add(&message.view())))
    }
}
