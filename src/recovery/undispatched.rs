//! The entries that are missing in the queue files: one for each message of the log without an entry.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::format::{
    Check, CqUnit, DelayLevels, DispatchRequest, LIGHT_QUEUE_ID, MAX_QUEUE_OFFSET, MIN_RECORD_SIZE, MessageView, Version,
    is_light_queue, is_salvage_record, validate_topic,
};
use crate::log::{ConsumeQueue, ConsumeQueueStore, EntryCursor, LogFiles, LogRecord, QueueHandle, QueueTable, QueueTail};

/// The entries that are missing in each queue, by topic and queue id.
pub(crate) type QueueTails = BTreeMap<(String, i32), QueueTail>;

/// Ranges of queue offsets in each queue, by topic and queue id.
pub(super) type QueueRanges = BTreeMap<(String, i32), Vec<Range<i64>>>;

/// The outcome of a scan of the log.
pub(super) struct Dispatched {
    /// The entries to add.
    pub(super) entries: QueueTails,
    /// The number of messages without an entry that get none.
    pub(super) refused: u64,
    /// In a rebuild: the queue offsets between messages of the log that no message has.
    pub(super) unused: QueueRanges,
}

/// Collects the entries that are missing in the queues, while the log is scanned.
pub(super) struct Undispatched<'a> {
    log: &'a LogFiles,
    queues: &'a ConsumeQueueStore,
    delay_levels: DelayLevels,
    /// True if queues are made again: then an entry with the address of an extension is replaced, and unused queue offsets are noted.
    is_rebuild: bool,
    /// Set if a light queue has files.
    has_light_queues: bool,
    /// One for each queue that the scan has met; `None` for a batch consume queue.
    incomplete: QueueTable<Option<IncompleteQueue>>,
    /// The scan has met a message whose predecessor is missing in its queue.
    pub(super) gap: bool,
    pub(super) refused: u64,
    /// The entry that fills queue offsets that are missing, and how many of them it may fill. It leads to a salvage record, to a missing
    /// segment, or to a message whose queue offset is in doubt.
    substitute: Option<CqUnit>,
    lost: i64,
}

/// One queue, and the entries that are missing in it.
struct IncompleteQueue {
    topic: String,
    queue_id: i32,
    queue: Option<Arc<ConsumeQueue>>,
    /// The entries of the queue to which the scan comes next.
    cursor: Option<EntryCursor>,
    /// True if the topic can be written.
    is_valid: bool,
    entries: QueueTail,
    /// The last message, if it was refused only for its queue offset.
    refused: Option<(i64, CqUnit)>,
    /// The queue offset after the last message that has its place in the queue.
    placed_until: Option<i64>,
    /// In a rebuild: queue offsets between messages of the log that no message has.
    unused: Vec<Range<i64>>,
}

/// The entry of a queue at the queue offset of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// There is no entry, or a torn one.
    Absent,
    /// The entry leads to the message.
    Whole,
    /// The entry leads to another message with this queue offset, or to a salvage record after the message: then the message that was lost
    /// there belongs to the queue, and this one to an earlier topic of the same name.
    Taken,
    /// The queue continues after the message without it: its topic was deleted since, and made again. Or its queue offset is damaged, and
    /// the queue has another message there.
    Superseded,
}

/// The consequence for a message of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    /// Its queue has its entry.
    Present,
    /// It gets no entry, and no queue misses it.
    Superseded,
    /// It gets no entry. No checksum covers its topic, queue id and queue offset, so it may be a message of another queue.
    Foreign,
    /// Its queue gets its entry.
    Missing,
    /// Its queue gets its entry, after entries `substitute` at the queue offsets of messages that were lost.
    AfterLost { lost: Range<i64>, substitute: CqUnit },
    /// Its queue gets its entry, and loses the only one gathered so far, which is for a larger queue offset: either of the two is damaged.
    Replacing,
    /// Its queue gets the entry of the message before it, which was refused, and its own: a new topic of the same name begins at 0.
    BeginsAgain { first: CqUnit },
    /// Its queue gets the entry of the message before it, which was refused, and its own, after a hole.
    AfterHole { hole: Range<i64>, before: CqUnit },
    /// It gets no entry for its queue offset, unless the next message continues it.
    Refused,
}

/// The largest hole of a queue that a rebuild fills.
const MAX_HOLE: i64 = 1 << 20;

impl<'a> Undispatched<'a> {
    pub(super) fn new(log: &'a LogFiles, queues: &'a ConsumeQueueStore, delay_levels: DelayLevels, is_rebuild: bool) -> Self {
        Self {
            log,
            queues,
            delay_levels,
            is_rebuild,
            has_light_queues: queues.has_light_queues(),
            incomplete: QueueTable::default(),
            gap: false,
            refused: 0,
            substitute: None,
            lost: 0,
        }
    }

    /// Passes over bytes in which messages were lost. The queue offsets that are then missing get the entry `substitute`; `None` keeps the
    /// entry of the call before.
    pub(super) fn pass_over(&mut self, substitute: Option<CqUnit>, bytes: i64) {
        self.substitute = substitute.or(self.substitute);
        self.lost += bytes / MIN_RECORD_SIZE as i64;
    }

    /// Notes that some queue may miss the message of this entry. A missing queue offset gets the entry, unless a lost message may have
    /// had it.
    fn doubt(&mut self, unit: CqUnit) {
        let substitute = self.substitute.filter(|known| known.is_lost()).unwrap_or(unit.of_lost());
        self.pass_over(Some(substitute), MIN_RECORD_SIZE as i64);
    }

    /// Doubts the flags of a record without a queue entry that names a queue offset, which only inner batches do: no checksum covers the
    /// flags. If they are damaged, the message is missing from the queue.
    fn doubt_flags(&mut self, view: &MessageView<'_>) {
        let handle = self.handle(view.topic_bytes(), view.queue_id(), view.version());
        if view.queue_offset() > 0 && self.incomplete.get(handle).is_some_and(Option::is_some) {
            self.doubt(CqUnit {
                physical_offset: view.physical_offset(),
                size: view.size() as i32,
                tags_code: 0,
            });
        }
    }

    /// Adds the entry of a message that is missing in its queue.
    ///
    /// # Errors
    /// Those of reading an entry, and the message to which it leads.
    pub(super) fn add(&mut self, view: &MessageView<'_>) -> Result<()> {
        if self.queues.rocksdb().is_some() {
            return Ok(());
        }
        let request = DispatchRequest::of(view);
        let Some(unit) = request.unit(&self.delay_levels) else {
            self.doubt_flags(view);
            return Ok(());
        };
        let (log, is_rebuild, queue_offset) = (self.log, self.is_rebuild, view.queue_offset());
        let lost = self.substitute.map(|substitute| (substitute, self.lost));
        let handle = self.handle(view.topic_bytes(), view.queue_id(), view.version());
        let Some(queue) = self.incomplete.get_mut(handle).and_then(Option::as_mut) else {
            return Ok(()); // a batch consume queue: this crate does not write those
        };
        // An entry may span two sectors, and the sector that holds its tags code may be lost. An entry with an extension has an address
        // instead of a tags code.
        let is_whole = |known: CqUnit| {
            let has_extension = !is_rebuild && known.ext_address().is_some();
            let is_same = (known.physical_offset, known.size) == (unit.physical_offset, unit.size);
            (has_extension && is_same) || request.is_entry(known, &self.delay_levels)
        };
        let known = queue.known(log, queue_offset, unit, is_whole)?;
        let verdict = queue.classify(known, queue_offset, lost);
        self.apply(verdict, handle, queue_offset, unit);
        Ok(())
    }

    /// Gives the queue of a message the entries that the verdict names. Where the verdict may come from damage, another queue may miss the
    /// message.
    fn apply(&mut self, verdict: Verdict, handle: QueueHandle, offset: i64, unit: CqUnit) {
        let Some(queue) = self.incomplete.get_mut(handle).and_then(Option::as_mut) else {
            return;
        };
        let is_after_gap = offset > queue.next().unwrap_or(0);
        let mut is_doubtful = is_after_gap;
        match verdict {
            Verdict::Present => return queue.note_place(offset, self.is_rebuild),
            Verdict::Superseded => {
                queue.refused = None;
                self.refused += 1;
                return;
            }
            Verdict::Foreign => {
                self.refused += 1;
                return self.doubt(unit);
            }
            Verdict::Missing => {
                queue.entries.insert(offset, unit);
                queue.note_place(offset, self.is_rebuild);
            }
            Verdict::AfterLost { lost, substitute } => {
                self.lost -= lost.end - lost.start;
                queue.fill(lost, substitute);
                queue.entries.insert(offset, unit);
                queue.note_place(offset, self.is_rebuild);
                is_doubtful = false;
            }
            Verdict::Replacing => {
                queue.entries = QueueTail::default();
                queue.entries.insert(offset, unit);
                queue.refused = Some((offset, unit));
                self.refused += 1;
                is_doubtful = true;
            }
            Verdict::BeginsAgain { first } => {
                queue.entries = QueueTail::default();
                queue.accept_refused(first, offset, unit);
                self.refused -= 1;
            }
            Verdict::AfterHole { hole, before } => {
                queue.fill(hole, before.of_lost());
                queue.accept_refused(before, offset, unit);
                self.refused -= 1;
            }
            Verdict::Refused => {
                queue.refused = Some((offset, unit));
                self.refused += 1;
                is_doubtful = true;
            }
        }
        self.gap |= is_after_gap;
        if is_doubtful {
            // No checksum covers its topic, queue id and queue offset. If one of them is damaged, the message belongs to another queue,
            // in which a queue offset is missing then.
            self.doubt(unit);
        }
    }

    /// Adds the entries of a message that are missing in light queues. A queue that ends before was removed, as a broker removes those that
    /// nobody uses.
    ///
    /// # Errors
    /// Those of reading an entry, and the message to which it leads.
    pub(super) fn add_to_light_queues(&mut self, view: &MessageView<'_>) -> Result<()> {
        if !self.has_light_queues {
            return Ok(());
        }
        let (log, request) = (self.log, DispatchRequest::of(view));
        let Some(unit) = request.unit(&self.delay_levels) else {
            return Ok(());
        };
        let light = view.light_queues().into_iter().filter(|(name, _)| is_light_queue(name));
        for (name, queue_offset) in light {
            let handle = self.handle(name.as_bytes(), LIGHT_QUEUE_ID, view.version());
            let Some(Some(queue)) = self.incomplete.get_mut(handle) else {
                continue;
            };
            let is_free = queue_offset <= queue.next().unwrap_or(0) && queue.entries.get(queue_offset).is_none();
            let is_whole = |known| request.is_entry(known, &self.delay_levels);
            if queue.is_valid && is_free && queue.known(log, queue_offset, unit, is_whole)? == Known::Absent {
                queue.entries.insert(queue_offset, unit);
            }
        }
        Ok(())
    }

    /// Returns the handle of a queue, which it adds if it is new.
    fn handle(&mut self, topic: &[u8], queue_id: i32, version: Version) -> QueueHandle {
        if let Some(handle) = self.incomplete.find(topic, queue_id) {
            return handle;
        }
        let queue = IncompleteQueue::of(topic, queue_id, version, self.queues);
        self.incomplete.add(topic, queue_id, queue)
    }

    /// Ends the scan. A rebuild accepts the last message of a queue after a hole: before it, verify has corrected the places that nothing
    /// supports.
    pub(super) fn into_dispatched(self) -> Dispatched {
        let mut dispatched = Dispatched {
            entries: QueueTails::new(),
            refused: self.refused,
            unused: QueueRanges::new(),
        };
        for mut queue in self.incomplete.into_values().into_iter().flatten() {
            if self.is_rebuild
                && let Some((offset, unit)) = queue.refused
                && let Some(hole) = queue.hole_before(offset)
            {
                queue.fill(hole, unit.of_lost());
                queue.entries.insert(offset, unit);
                dispatched.refused -= 1;
            }
            let name = (queue.topic, queue.queue_id);
            if !queue.unused.is_empty() {
                dispatched.unused.insert(name.clone(), queue.unused);
            }
            if !queue.entries.is_empty() {
                dispatched.entries.insert(name, queue.entries);
            }
        }
        dispatched
    }
}

impl IncompleteQueue {
    /// Returns a queue without new entries; `None` for a batch consume queue.
    fn of(topic: &[u8], queue_id: i32, version: Version, queues: &ConsumeQueueStore) -> Option<Self> {
        let topic = String::from_utf8_lossy(topic);
        let queue = queues.queue(&topic, queue_id).ok()?;
        Some(Self {
            cursor: queue.clone().map(EntryCursor::new),
            queue,
            // The directory of any other name would hold the entries of another topic.
            is_valid: matches!(topic, Cow::Borrowed(_)) && validate_topic(&topic, version).is_ok(),
            topic: topic.into_owned(),
            queue_id,
            entries: QueueTail::default(),
            refused: None,
            placed_until: None,
            unused: Vec::new(),
        })
    }

    /// Returns what the queue has at the queue offset of a message with the entry `unit`.
    fn known(&mut self, log: &LogFiles, offset: i64, unit: CqUnit, is_whole: impl Fn(CqUnit) -> bool) -> Result<Known> {
        let known = match &mut self.cursor {
            Some(entries) => entries.known_unit(offset)?,
            None => None,
        };
        if known.is_some_and(is_whole) {
            return Ok(Known::Whole);
        }
        let is_taken = match known.filter(|known| known.physical_offset != unit.physical_offset) {
            Some(known) if known.physical_offset > unit.physical_offset && leads_to_salvage_record(log, known)? => true,
            Some(known) => leads(log, &self.topic, self.queue_id, offset, known)?,
            None => false,
        };
        let is_unknown = self.ends_before(offset) || (!is_taken && self.has_later_before(offset, &unit, log)?);
        Ok(if is_unknown && self.leads_past(log, unit.physical_offset)? {
            Known::Superseded
        } else if is_taken {
            Known::Taken
        } else {
            Known::Absent
        })
    }

    /// Returns true if the queue has no entry at this queue offset, nor after it.
    fn ends_before(&self, offset: i64) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.max_offset() <= offset)
    }

    /// Returns true if the entry before this queue offset leads to a later message of the log than `unit`.
    fn has_later_before(&mut self, offset: i64, unit: &CqUnit, log: &LogFiles) -> Result<bool> {
        let (Some(queue), Some(before)) = (&self.queue, offset.checked_sub(1)) else {
            return Ok(false);
        };
        match queue.known_unit(before)? {
            Some(known) if known.physical_offset > unit.physical_offset => leads(log, &self.topic, self.queue_id, before, known),
            _ => Ok(false),
        }
    }

    /// Returns true if the last entry of the queue leads to a message after this physical offset.
    fn leads_past(&self, log: &LogFiles, physical_offset: i64) -> Result<bool> {
        let Some(queue) = &self.queue else { return Ok(false) };
        let last = queue.max_offset() - 1;
        match queue.known_unit(last)? {
            Some(unit) if unit.physical_offset > physical_offset => {
                Ok(leads(log, &self.topic, self.queue_id, last, unit)? || leads_to_salvage_record(log, unit)?)
            }
            _ => Ok(false),
        }
    }

    /// Returns the queue offset of the queue's next message; `None` for a queue without a message.
    fn next(&self) -> Option<i64> {
        let gathered = self.entries.end();
        let known = self.queue.as_ref().map(|queue| queue.max_offset()).filter(|max| *max > 0);
        gathered.max(known)
    }

    /// Notes that a message has its place, and in a rebuild the queue offsets before it that no message has.
    fn note_place(&mut self, offset: i64, is_rebuild: bool) {
        self.refused = None;
        if is_rebuild {
            self.unused
                .extend(self.placed_until.filter(|next| *next < offset).map(|next| next..offset));
            self.placed_until = self.placed_until.max(offset.checked_add(1));
        }
    }

    /// Decides on a message at a queue offset by what the queue has there, and by what the scan has gathered. `lost`: the entry for the
    /// queue offsets of lost messages, and the largest number of them.
    fn classify(&self, known: Known, offset: i64, lost: Option<(CqUnit, i64)>) -> Verdict {
        let is_possible = self.is_valid && self.queue_id >= 0 && (0..MAX_QUEUE_OFFSET).contains(&offset);
        match known {
            Known::Whole => return Verdict::Present,
            Known::Superseded => return Verdict::Superseded,
            Known::Absent if is_possible => {}
            Known::Absent | Known::Taken => return Verdict::Foreign,
        }
        if let Some(next) = self.next().filter(|next| offset > *next) {
            return match lost.filter(|(_, most)| offset - next <= *most) {
                Some((substitute, _)) => Verdict::AfterLost {
                    lost: next..offset,
                    substitute,
                },
                // Nobody ever appended the messages between: this queue offset is damaged.
                None => self.continued(offset).unwrap_or(Verdict::Refused),
            };
        }
        let is_new = self.queue.as_ref().is_none_or(|queue| queue.max_offset() <= 0);
        if self.entries.get(offset).is_some() {
            // Of two messages with one queue offset, the second is the damaged one.
            self.continued(offset).unwrap_or(Verdict::Refused)
        } else if is_new && self.entries.first().is_some_and(|first| offset < first) {
            // The queue had no message, and this one has a smaller queue offset than the first one met: one of the two is damaged. Two
            // messages in a row are better evidence than one.
            let is_alone = self.entries.len() == 1;
            self.continued(offset)
                .unwrap_or(if is_alone { Verdict::Replacing } else { Verdict::Refused })
        } else {
            Verdict::Missing
        }
    }

    /// Returns the verdict on this message and the one before it, which was refused, if their queue offsets follow each other: two are better
    /// evidence than one. A queue that begins again at 0 is that of a new topic of the same name. Otherwise a broker assigned no
    /// queue offset between: the hole gets entries of lost messages.
    fn continued(&self, offset: i64) -> Option<Verdict> {
        let (refused, before) = self.refused.filter(|(refused, _)| refused.checked_add(1) == Some(offset))?;
        if refused == 0 {
            return Some(Verdict::BeginsAgain { first: before });
        }
        let hole = self.hole_before(refused)?;
        Some(Verdict::AfterHole { hole, before })
    }

    /// Returns the queue offsets between the queue's last message and this one; `None` if it is before the end, or too far after it.
    fn hole_before(&self, offset: i64) -> Option<Range<i64>> {
        let next = self.next().unwrap_or(0);
        (next..next.saturating_add(MAX_HOLE))
            .contains(&offset)
            .then_some(next..offset)
    }

    /// Gives queue offsets one entry.
    fn fill(&mut self, hole: Range<i64>, unit: CqUnit) {
        self.entries.extend(hole.map(|offset| (offset, unit)).collect());
    }

    /// Accepts a message, and the one before it, which was refused.
    fn accept_refused(&mut self, before: CqUnit, offset: i64, unit: CqUnit) {
        self.entries.insert(offset - 1, before);
        self.entries.insert(offset, unit);
        self.refused = None;
    }
}

/// Returns true if the entry leads to a salvage record of an earlier recovery.
pub(super) fn leads_to_salvage_record(log: &LogFiles, unit: CqUnit) -> Result<bool> {
    Ok(unit.is_lost()
        && match log.read(unit.physical_offset, Check::Structure)? {
            LogRecord::Message(message) => is_salvage_record(&message.view()) && message.view().size() as i32 == unit.size,
            _ => false,
        })
}

/// Returns true if the entry leads to the message of this queue and queue offset.
pub(super) fn leads(log: &LogFiles, topic: &str, queue_id: i32, queue_offset: i64, unit: CqUnit) -> Result<bool> {
    Ok(match log.read(unit.physical_offset, Check::Structure)? {
        LogRecord::Message(message) => {
            let view = message.view();
            view.size() as i32 == unit.size && view.is_in_queue_at(topic, queue_id, queue_offset)
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(physical_offset: i64) -> CqUnit {
        CqUnit {
            physical_offset,
            size: 100,
            tags_code: 0,
        }
    }

    /// Creates a queue without files, with entries that the scan has gathered.
    fn queue(gathered: &[i64], refused: Option<i64>) -> IncompleteQueue {
        IncompleteQueue {
            topic: "orders".to_owned(),
            queue_id: 0,
            queue: None,
            cursor: None,
            is_valid: true,
            entries: gathered.iter().map(|offset| (*offset, unit(*offset))).collect(),
            refused: refused.map(|offset| (offset, unit(offset))),
            placed_until: None,
            unused: Vec::new(),
        }
    }

    #[test]
    fn a_known_entry_decides_before_the_gathered_ones() {
        let queue = queue(&[0, 1], Some(1));
        for (known, verdict) in [
            (Known::Whole, Verdict::Present),
            (Known::Superseded, Verdict::Superseded),
            (Known::Taken, Verdict::Foreign),
        ] {
            assert_eq!(queue.classify(known, 2, None), verdict);
        }
        for offset in [-1, MAX_QUEUE_OFFSET] {
            assert_eq!(queue.classify(Known::Absent, offset, None), Verdict::Foreign);
        }
    }

    #[test]
    fn gathered_entries_decide_on_a_message_without_an_entry() {
        let substitute = unit(7);
        let lost = |most| Some((substitute, most));
        let filled = |range| Verdict::AfterLost { lost: range, substitute };
        let after_hole = |hole| Verdict::AfterHole { hole, before: unit(4) };
        let rows = [
            // The next one of the queue, and the first one of an empty queue, which may have expired messages.
            (queue(&[0, 1], None), 2, None, Verdict::Missing),
            (queue(&[], None), 9, None, Verdict::Missing),
            // A message between the gathered ones.
            (queue(&[0, 2], None), 1, None, Verdict::Missing),
            // A hole explained by lost messages, and larger ones.
            (queue(&[0, 1], None), 4, lost(2), filled(2..4)),
            (queue(&[0, 1], None), 4, lost(1), Verdict::Refused),
            (queue(&[0, 1], None), 4, None, Verdict::Refused),
            // The second message of a queue offset.
            (queue(&[0, 1], None), 1, None, Verdict::Refused),
            // A smaller queue offset than the first one.
            (queue(&[5], None), 3, None, Verdict::Replacing),
            (queue(&[5, 6], None), 3, None, Verdict::Refused),
            // Two messages in a row after a hole, and those of a topic that was made again.
            (queue(&[0, 1], Some(4)), 5, None, after_hole(2..4)),
            (queue(&[0, 1], Some(3)), 5, None, Verdict::Refused),
            (queue(&[0, 1], Some(0)), 1, None, Verdict::BeginsAgain { first: unit(0) }),
            (queue(&[5], Some(0)), 1, None, Verdict::BeginsAgain { first: unit(0) }),
            (queue(&[0], Some(MAX_HOLE + 1)), MAX_HOLE + 2, None, Verdict::Refused),
        ];
        for (queue, offset, lost, verdict) in rows {
            let gathered: Vec<_> = queue.entries.iter().map(|(offset, _)| offset).collect();
            assert_eq!(
                queue.classify(Known::Absent, offset, lost),
                verdict,
                "{offset} after {gathered:?}"
            );
        }
    }
}
