//! Finding the messages with many keys in one pass: each index file once, each stretch without an index once.
//!
//! An index file gives candidates: physical offsets of records, some of which only have a key of the same hash. They are checked in the order
//! of the log, each record once.

use std::cell::OnceCell;
use std::ops::Range;

use crate::config::Errors;
use crate::error::{Error, Result};
use crate::format::{Check, IndexGeometry, MessageView, is_salvage_record};
use crate::interrupt;
use crate::log::{Candidate, IndexFile, LogRecord, RecordCursor, Source};
use crate::read::message_reader::MessageReader;
use crate::read::query::has_hash;
use crate::read::resolve::hits::{KeyHit, KeyHits};
use crate::read::resolve::wanted::{Numbers, Wanted};
use crate::read::unreadable::{Unread, first_damage};

/// Records that are read ahead at once.
pub(super) const AHEAD: usize = 1024;
/// Candidates whose keys are brought into the cache of the processor at once.
const NEAR: usize = 64;
/// Messages of a walk for which a table of the keys takes longer than to look through the hashes. Between two index files lie two.
const FEW: usize = 4;

impl MessageReader {
    /// For each `(topic, key)`: every message with it, ascending by physical offset. With [`Errors::Skip`] damaged messages are left out; where no
    /// index serves, so are those in the same segment after them that stand in no queue.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where a part of the log that had to be looked at cannot be read, unless that is skipped; [`Error::Io`].
    pub fn resolve_keys(&self, wanted: &[(&str, &str)], errors: Errors) -> Result<KeyHits> {
        self.find_keys(Wanted::Keys(wanted), errors)
    }

    pub(super) fn find_keys(&self, wanted: Wanted<'_>, errors: Errors) -> Result<KeyHits> {
        let mut hashes = Vec::with_capacity(wanted.len());
        for number in 0..wanted.len() {
            interrupt::check()?;
            hashes.push(wanted.hash(number));
        }
        let mut search = KeySearch {
            reader: self,
            wanted,
            hashes,
            numbers: OnceCell::new(),
            errors,
            found: Vec::new(),
        };
        for source in self.sources(self.physical_bounds())? {
            search.look_into(&source)?;
        }
        Ok(KeyHits::new(search.found, wanted.len()))
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
    /// Of each key.
    hashes: Vec<i32>,
    /// Made when many messages have to be walked.
    numbers: OnceCell<Numbers<'a>>,
    errors: Errors,
    /// By the number of the key.
    found: Vec<(usize, KeyHit)>,
}

impl KeySearch<'_> {
    fn look_into(&mut self, source: &Source) -> Result<()> {
        let before = self.found.len();
        if let Source::Index(file, geometry, range) = source {
            if self.look_into_index(file, *geometry, range)? {
                return Ok(());
            }
            self.found.truncate(before);
        }
        self.walk(source)
    }

    /// `false` if a chain is broken, or an item leads where no record with its hash starts: then the index is damaged, and the log must be
    /// walked.
    fn look_into_index(&mut self, file: &IndexFile, geometry: IndexGeometry, range: &Range<i64>) -> Result<bool> {
        let Some(mut candidates) = self.reader.index().find_all(file, geometry, &self.hashes)? else {
            return Ok(false);
        };
        candidates.retain(|candidate| range.contains(&candidate.physical_offset));
        candidates.sort_unstable();
        // A message may have a key twice.
        candidates.dedup();
        let mut cursor = RecordCursor::default();
        for window in candidates.chunks(AHEAD) {
            let offsets: Vec<i64> = window.iter().map(|candidate| candidate.physical_offset).collect();
            self.reader.log().read_ahead(&offsets)?;
            for near in window.chunks(NEAR) {
                self.wanted.touch(near.iter().map(|candidate| candidate.key));
                for of_record in near.chunk_by(|one, next| one.physical_offset == next.physical_offset) {
                    interrupt::check()?;
                    if !self.check(&mut cursor, of_record)? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Reads the record of these candidates, and adds it to the hits of the keys that it carries. `false` as above.
    fn check(&mut self, cursor: &mut RecordCursor, of_record: &[Candidate]) -> Result<bool> {
        let (log, Some(first)) = (self.reader.log(), of_record.first()) else {
            return Ok(true);
        };
        match cursor.read(log, first.physical_offset, Check::Body)? {
            LogRecord::Message(()) => {}
            LogRecord::Missing if log.is_removed(first.physical_offset) => return Ok(true),
            LogRecord::Corrupt(error) => return self.reader.skip(error, self.errors).map(|()| true),
            LogRecord::NoRecord(_) | LogRecord::Blank { .. } | LogRecord::End | LogRecord::Missing => return Ok(false),
        }
        let Some(view) = cursor.view().filter(|view| !is_salvage_record(view)) else {
            return Ok(true);
        };
        let before = self.found.len();
        for candidate in of_record {
            if self.wanted.is_of(candidate.key, &view) {
                self.found.push((candidate.key, KeyHit::of(&view)));
            } else if !self.hashes.get(candidate.key).is_some_and(|hash| has_hash(&view, *hash)) {
                return Ok(false);
            }
        }
        if let Err(lost) = cursor.check_intact() {
            self.found.truncate(before);
            self.reader.skip(lost, self.errors)?;
        }
        Ok(true)
    }

    fn walk(&mut self, source: &Source) -> Result<()> {
        let (reader, wanted, found) = (self.reader, self.wanted, &mut self.found);
        let mut walked = 0;
        let mut add = |view: &MessageView<'_>| {
            let add = |number| found.push((number, KeyHit::of(view)));
            walked += 1;
            if walked <= FEW {
                wanted.each_by_hash(view, &self.hashes, add);
            } else {
                wanted.each_of(view, self.numbers.get_or_init(|| wanted.numbers()), add);
            }
        };
        let unread = reader.walk_source(source, |message| add(&message.view()))?;
        let Some(damage) = first_damage(&unread) else {
            return Ok(());
        };
        reader.skip(damage.clone(), self.errors)?;
        let mut unread = Unread::new();
        let mut topics = wanted.topics(self.numbers.get_or_init(|| wanted.numbers())).into_iter();
        topics.try_for_each(|topic| reader.visit_queued(topic, &source.range(), &mut unread, |message| add(&message.view())))
    }
}
