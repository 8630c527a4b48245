//! The search for the next appended record after damage, which must not be a record stored inside the body of another one.
//!
//! A body may contain whole records (a mirrored log, a backup), and each of them may state the very offset at which it is stored.
//! So an intact record that is found after damage is only a candidate. Four rules decide, the first that applies:
//!
//! 1. A candidate to which the entry of its own queue points is a record of the log.
//! 2. A candidate inside the extent of a queue entry that points into the damaged range is part of a body.
//! 3. If an entry or an index item points to an intact record after the candidate, the chain of records from the candidate on must
//! lead there, each record to the next. If the chain steps over that record or ends before it, the candidate is part of a body. A
//! chain that reaches the end of its segment consists of records of the log, because no body crosses that end. A candidate that
//! starts at the known end of the damaged record is in no body: it must only not step over the named record.
//! 4. Otherwise the candidate is stale if it was stored before the last records that precede the damage. It is part of a body if it
//! steps over a record that a stamp names, or if its queue has another message at its queue offset. The latter is not evidence if
//! the end of the damaged record is known, because the queue offsets of its new messages may be those of an earlier topic of the
//! same name. Any other candidate is a record of the log.
//!
//! No damaged record ends after a record that an entry or an index item names: lengths and entries that claim this are ignored.
//!
//! Without queue files and index files only rule 4 remains: a record stored in a body counts as a record of the log if the size of
//! the damaged record is lost.
//!
//! A record that was stored earlier than those before the damage is stale: an earlier recovery of a broker has cut it, and its bytes
//! remain. However, a broker's clock may have been set back, and one flipped bit changes a store time. So in a closed store a record
//! is not stale if the entry of its own queue points to it, nor is any record before it. In a crashed store entries may be stale, too:
//! there a record is stale if it is older than both of the last two records before the damage.

use std::cell::Cell;

use crate::error::Result;
use crate::format::{Check, DispatchRequest, MessageView};
use crate::interrupt;
use crate::log::commit_log::{ClaimedEnd, LogFiles, LogRecord, RecordSearch};
use crate::log::consume_queue::ConsumeQueueStore;
use crate::log::index::IndexService;

/// The evidence that the last writer of a store has left.
#[derive(Debug, Clone, Copy)]
pub struct LastWriter {
    /// The record starts named by the mark of the flushed offset and by our stamp.
    pub named: [Option<i64>; 2],
    /// Set if it has closed the store, so that no queue entry is stale.
    pub has_closed: bool,
}

/// The evidence for the starts of records of a log.
#[derive(Debug)]
pub struct RecordStarts<'a> {
    log: &'a LogFiles,
    queues: &'a ConsumeQueueStore,
    index: Option<&'a IndexService>,
    last_writer: LastWriter,
    /// The end of the part of the log that is searched.
    until: i64,
    /// The bytes of false record heads in all searches so far.
    imitated: Cell<u64>,
}

impl<'a> RecordStarts<'a> {
    /// Collects the evidence of queue entries, of index items, and of the last writer.
    pub fn new(
        log: &'a LogFiles,
        queues: &'a ConsumeQueueStore,
        index: Option<&'a IndexService>,
        last_writer: LastWriter,
    ) -> Self {
        Self {
            log,
            queues,
            index,
            last_writer,
            until: i64::MAX,
            imitated: Cell::new(0),
        }
    }

    /// Restricts the search to records that start before `until`.
    #[must_use]
    pub fn up_to(self, until: i64) -> Self {
        Self { until, ..self }
    }

    /// Returns the earliest store time of a record that counts because a queue entry points to it.
    fn since_of_named(&self, since: i64) -> i64 {
        if self.last_writer.has_closed { i64::MIN } else { since }
    }

    /// Returns the start of the next record at `from` or after. Records that were stored before `since` may be stale. `damaged` is
    /// the end of the intact records before it. Reads every written byte there, so call it only after damage.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`]; [`crate::error::Error::Corrupt`] for bytes that imitate records so often that the search takes too
    /// long.
    pub fn next_record(&self, damaged: i64, from: i64, since: i64) -> Result<Option<i64>> {
        let mut search = self
            .log
            .search_records(self.since_of_named(since), self.until, &self.imitated);
        let Some(first) = search.next(from)? else {
            return Ok(None);
        };
        let mut after = AfterDamage {
            starts: self,
            damaged,
            since,
            first: first.view().physical_offset(),
            named: None,
            known_end: None,
        };
        let end = after.end_of_damaged()?;
        let mut next = if end > from { search.next(end)? } else { Some(first) };
        while let Some(found) = next {
            match after.end_of_forged(&found.view(), &mut search)? {
                None => return Ok(Some(found.view().physical_offset())),
                Some(end) => next = search.next(end)?,
            }
        }
        Ok(None)
    }

    /// Returns the first intact record at `from` or after to which a queue entry or an index item points.
    fn first_named(&self, from: i64, since: i64) -> Result<Option<i64>> {
        let mut first: Option<i64> = None;
        let mut take = |at: i64, since: i64, is_named: &dyn Fn(&MessageView<'_>) -> bool| {
            interrupt::check()?;
            if first.is_some_and(|first| first <= at) {
                return Ok(false);
            }
            let LogRecord::Message(message) = self.log.read(at, Check::Whole)? else {
                return Ok(true);
            };
            let view = message.view();
            let is_one = view.store_time() >= since && is_named(&view);
            if is_one {
                first = Some(at);
            }
            Ok(!is_one)
        };
        for (topic, queue_id, queue) in self.queues.file_queues() {
            queue.visit_from(from, |offset, unit| {
                take(unit.physical_offset, self.since_of_named(since), &|view| {
                    view.size() as i32 == unit.size && view.is_in_queue_at(&topic, queue_id, offset)
                })
            })?;
        }
        if let Some(index) = self.index {
            index.visit_from(from, |item| {
                take(item.physical_offset, since, &|view| {
                    let mut hashes = DispatchRequest::of(view).index_key_hashes(true);
                    hashes.any(|hash| hash == item.key_hash)
                })
            })?;
        }
        Ok(first)
    }

    /// Reads the queue entry at the record's own queue offset, and returns whether it points to this record or to another intact
    /// record.
    fn own_entry(&self, view: &MessageView<'_>) -> Result<OwnEntry> {
        if !view.has_queue_entry() {
            return Ok(OwnEntry::Absent);
        }
        let Ok(Some(queue)) = self.queues.queue(&view.topic(), view.queue_id()) else {
            return Ok(OwnEntry::Absent);
        };
        let Some(unit) = queue.known_unit(view.queue_offset())? else {
            return Ok(OwnEntry::Absent);
        };
        if (unit.physical_offset, unit.size) == (view.physical_offset(), view.size() as i32) {
            return Ok(OwnEntry::LeadsHere);
        }
        Ok(match self.log.read(unit.physical_offset, Check::Whole)? {
            LogRecord::Message(other)
                if unit.physical_offset != view.physical_offset()
                    && other
                        .view()
                        .is_in_queue_at(&view.topic(), view.queue_id(), view.queue_offset()) =>
            {
                OwnEntry::LeadsElsewhere
            }
            _ => OwnEntry::Absent,
        })
    }

    /// Returns the end of a record according to a queue entry, if `is_asked` accepts its start and end. Examines the last entry
    /// before `until` of each queue. The bytes at the end must be able to follow a record.
    fn extent(&self, until: i64, is_asked: impl Fn(i64, i64) -> bool) -> Result<Option<i64>> {
        for (_, _, queue) in self.queues.file_queues() {
            interrupt::check()?;
            let Some(unit) = queue.last_before(until)? else { continue };
            let end = unit.end();
            if is_asked(unit.physical_offset, end) && self.can_end(unit.physical_offset, end)? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    /// Returns true if the bytes at `end` can follow a record that starts at `start`.
    fn can_end(&self, start: i64, end: i64) -> Result<bool> {
        let is_inside = end < self.log.end_of_segment(start);
        Ok(is_inside && (self.log.has_record_at(end)? || matches!(self.log.read(end, Check::Structure)?, LogRecord::End)))
    }

    /// Returns true if a stamp names an intact record inside the extent of this record.
    fn steps_over_stamp(&self, view: &MessageView<'_>) -> Result<bool> {
        let inside = view.physical_offset() + 1..view.end();
        for stamp in self
            .last_writer
            .named
            .into_iter()
            .flatten()
            .filter(|stamp| inside.contains(stamp))
        {
            if matches!(self.log.read(stamp, Check::Whole)?, LogRecord::Message(_)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

enum OwnEntry {
    Absent,
    LeadsHere,
    LeadsElsewhere,
}

/// The state of the search after one damaged range.
struct AfterDamage<'a> {
    starts: &'a RecordStarts<'a>,
    damaged: i64,
    since: i64,
    /// The first intact record after it, part of a body or not.
    first: i64,
    /// The first named record that [`named`](Self::named) has found.
    named: Option<i64>,
    /// The end of the damaged records, if it is known: no record stored in a body starts there.
    known_end: Option<i64>,
}

/// The end of a damaged record, by the strength of the evidence.
enum DamagedEnd {
    /// Known by its own lengths, which agree, or by its queue entry.
    Known(i64),
    /// Known by one of its lengths, which disagree.
    Likely(i64),
    Unknown,
}

impl AfterDamage<'_> {
    /// Returns the first record at `from` or after to which an entry or an index item points; [`i64::MAX`] if there is no such
    /// record. The search reads every queue.
    fn named(&mut self, from: i64) -> Result<i64> {
        if let Some(named) = self.named.filter(|named| from <= *named) {
            return Ok(named);
        }
        let named = self.starts.first_named(from, self.since)?.unwrap_or(i64::MAX);
        Ok(*self.named.insert(named))
    }

    /// Returns true if no named record starts in the damaged range before `end`.
    fn is_before_named(&mut self, end: i64) -> Result<bool> {
        Ok(end <= self.first || end <= self.named(self.first)?)
    }

    /// Follows damaged records by their sizes. Returns the first offset without a damaged record, or with one of unknown size.
    fn end_of_damaged(&mut self) -> Result<i64> {
        let log = self.starts.log;
        let mut at = self.damaged;
        let mut is_known = true;
        loop {
            interrupt::check()?;
            let end = match self.end_of_record(at)? {
                DamagedEnd::Known(end) => end,
                DamagedEnd::Likely(end) => {
                    is_known = false;
                    end
                }
                DamagedEnd::Unknown => return Ok(at),
            };
            at = match log.read(end, Check::Whole)? {
                LogRecord::Blank { next } if next < log.files_end() => next,
                _ => end,
            };
            if matches!(log.read(at, Check::Whole)?, LogRecord::Message(_)) {
                self.known_end = Some(at).filter(|_| is_known);
                return Ok(at);
            }
        }
    }

    /// Finds the end of the damaged record at `at`: by its own lengths if they agree, otherwise by the entry that points to it,
    /// otherwise by one of its lengths that leads to a record. If two lengths do, the nearer end is right only if the records from
    /// there on lead to the farther end. Otherwise the nearer end is inside the body.
    fn end_of_record(&mut self, at: i64) -> Result<DamagedEnd> {
        let log = self.starts.log;
        let ends = match log.claimed_ends(at)? {
            ClaimedEnd::Known(end) if self.is_before_named(end)? => return Ok(DamagedEnd::Known(end)),
            ClaimedEnd::Known(_) => Vec::new(),
            ClaimedEnd::OneOf(ends) => ends,
        };
        if let Some(end) = self.starts.extent(at + 1, |start, _| start == at)?
            && self.is_before_named(end)?
        {
            return Ok(DamagedEnd::Known(end));
        }
        let mut possible = Vec::new();
        for end in ends {
            if self.is_before_named(end)? {
                possible.push(end);
            }
        }
        let mut leading = Vec::new();
        for end in possible.iter().copied() {
            if log.has_record_at(end)? {
                leading.push(end);
            }
        }
        if leading.is_empty() {
            // The record may be the last one.
            for end in possible {
                if self.starts.can_end(at, end)? {
                    return Ok(DamagedEnd::Likely(end));
                }
            }
        }
        Ok(match *leading.as_slice() {
            [near, far] if self.end_of_chain(near, far)?.is_some() => DamagedEnd::Likely(far),
            [near, ..] => DamagedEnd::Likely(near),
            [] => DamagedEnd::Unknown,
        })
    }

    /// Decides about a candidate. Returns `None` for a record of the log; for a part of a body, the offset at which the search
    /// resumes.
    fn end_of_forged(&mut self, view: &MessageView<'_>, search: &mut RecordSearch<'_>) -> Result<Option<i64>> {
        let starts = self.starts;
        let start = view.physical_offset();
        let own_entry = starts.own_entry(view)?;
        if matches!(own_entry, OwnEntry::LeadsHere) {
            return Ok(None);
        }
        let named = self.named(start)?;
        if named == start {
            return Ok(None);
        }
        let damaged = self.damaged;
        let covers = |from: i64, end: i64| from >= damaged && from < start && start < end;
        if let Some(end) = starts.extent(start, covers)? {
            return Ok(Some(end.min(named)));
        }
        let is_after_known = self.known_end == Some(start) && view.end() <= named;
        if named < i64::MAX && !is_after_known {
            let end = self.end_of_chain(start, named)?;
            search.count_imitated(start, end.unwrap_or(start) - start)?;
            return Ok(end.map(|end| end.max(start + 1)));
        }
        if named == i64::MAX && view.store_time() < self.since {
            search.count_imitated(start, i64::from(view.size()))?;
            return Ok(Some(start + 1));
        }
        let is_contradicted = !is_after_known && matches!(own_entry, OwnEntry::LeadsElsewhere);
        let is_forged = is_contradicted || starts.steps_over_stamp(view)?;
        Ok(is_forged.then_some(start + 1))
    }

    /// Returns the offset at which the chain of records from `start` on ends before it reaches `wanted`; `None` if it reaches
    /// `wanted` or the end of its segment. A damaged record of known size continues the chain.
    fn end_of_chain(&self, start: i64, wanted: i64) -> Result<Option<i64>> {
        let log = self.starts.log;
        let segment_end = log.end_of_segment(start);
        let mut at = start;
        while at < wanted.min(segment_end) {
            interrupt::check()?;
            let end = match log.read(at, Check::Whole)? {
                LogRecord::Message(message) => Some(message.view().end()),
                LogRecord::Blank { .. } => return Ok(None),
                _ => log.claimed_end(at)?,
            };
            match end.filter(|end| *end <= wanted) {
                Some(end) => at = end,
                None => return Ok(Some(at)),
            }
        }
        Ok(None)
    }
}
