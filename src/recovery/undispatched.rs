//! The entries that are missing in the queue files: one for each message of the log without an entry.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::format::{
    CQ_UNIT_SIZE, Check, CqUnit, DelayLevels, DispatchRequest, MIN_RECORD_SIZE, MessageView, Version, is_light_queue,
    is_salvage_record, validate_topic,
};
use crate::log::{ConsumeQueue, ConsumeQueueStore, EntryCursor, LogFiles, LogRecord, QueueHandle, QueueTable, QueueTail};

/// The queue id of every light queue.
const LIGHT_QUEUE_ID: i32 = 0;

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
    /// Set if a light queue has files. Where a database holds queues, too, it holds the light queues, and the broker writes there.
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

/// The largest hole of a queue that a rebuild fills.
const MAX_HOLE: i64 = 1 << 20;

impl<'a> Undispatched<'a> {
    pub(super) fn new(log: &'a LogFiles, queues: &'a ConsumeQueueStore, delay_levels: DelayLevels, is_rebuild: bool) -> Self {
        Self {
            log,
            queues,
            delay_levels,
            is_rebuild,
            has_light_queues: queues.second_rocksdb().is_none() && queues.topics().iter().any(|topic| is_light_queue(topic)),
            incomplete: QueueTable::default(),
            gap: false,
            refused: 0,
            substitute: None,
            lost: 0,
        }
    }

    /// Messages were lost in this many bytes. The queue offsets that are then missing get the entry `substitute`; `None` keeps the
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
        let place = self.place(view.topic_bytes(), view.queue_id(), view.version());
        if view.queue_offset() > 0 && self.incomplete.get(place).is_some_and(Option::is_some) {
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
        let Some(unit) = DispatchRequest::of(view).unit(&self.delay_levels) else {
            self.doubt_flags(view);
            return Ok(());
        };
        let (queue_id, queue_offset) = (view.queue_id(), view.queue_offset());
        let (log, is_rebuild) = (self.log, self.is_rebuild);
        let place = self.place(view.topic_bytes(), view.queue_id(), view.version());
        let Some(queue) = self.incomplete.get_mut(place).and_then(Option::as_mut) else {
            return Ok(()); // a batch consume queue: this crate does not write those
        };
        let known = queue.known(log, queue_offset, unit, !is_rebuild)?;
        let is_possible = queue.is_valid && (0..MAX_QUEUE_OFFSET).contains(&queue_offset) && queue_id >= 0;
        match known {
            Known::Whole => queue.note_place(queue_offset, is_rebuild),
            Known::Absent if is_possible => self.put(place, queue_offset, unit),
            Known::Superseded => {
                queue.refused = None;
                self.refused += 1;
            }
            // No checksum covers its topic, queue id and queue offset, so it may be a message of another queue.
            Known::Absent | Known::Taken => {
                self.refused += 1;
                self.doubt(unit);
            }
        }
        Ok(())
    }

    /// Puts the entry of a message into its queue, unless the messages before it show that its queue offset is damaged.
    fn put(&mut self, place: QueueHandle, queue_offset: i64, unit: CqUnit) {
        let (substitute, lost) = (self.substitute, self.lost);
        let Some(queue) = self.incomplete.get_mut(place).and_then(Option::as_mut) else {
            return;
        };
        let gap = queue.is_after_a_gap(queue_offset);
        let substitute = substitute.filter(|_| queue_offset - queue.next().unwrap_or(queue_offset) <= lost);
        let (filled, mut refused) = queue.put(queue_offset, unit, substitute);
        let accepts_last = refused > 0 && queue.continues_refused(queue_offset, unit);
        if accepts_last {
            refused = 0;
        } else if refused == 0 {
            queue.note_place(queue_offset, self.is_rebuild);
        }
        self.refused -= u64::from(accepts_last);
        self.gap |= gap;
        self.lost -= filled;
        self.refused += refused;
        if refused > 0 || (gap && filled == 0) {
            // No checksum covers its topic, queue id and queue offset. If one of them is damaged, the message belongs to another queue,
            // in which a queue offset is missing then.
            self.doubt(unit);
        }
    }

    /// Adds the missing entries at the ends of the light queues of a store. A queue whose next message is another one was removed, as a
    /// broker removes those that nobody uses, or is kept in RocksDB.
    pub(super) fn add_to_light_queues(&mut self, view: &MessageView<'_>) {
        if !self.has_light_queues {
            return;
        }
        let Some(unit) = DispatchRequest::of(view).unit(&self.delay_levels) else {
            return;
        };
        let light = view.light_queues().into_iter().filter(|(name, _)| is_light_queue(name));
        for (name, queue_offset) in light {
            let place = self.place(name.as_bytes(), LIGHT_QUEUE_ID, view.version());
            if let Some(Some(queue)) = self.incomplete.get_mut(place)
                && queue.is_valid
                && queue.next().unwrap_or(0) == queue_offset
            {
                queue.entries.insert(queue_offset, unit);
            }
        }
    }

    /// Returns the place of a queue in the table.
    fn place(&mut self, topic: &[u8], queue_id: i32, version: Version) -> QueueHandle {
        if let Some(place) = self.incomplete.find(topic, queue_id) {
            return place;
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
            {
                dispatched.refused -= u64::from(queue.put_after_hole(offset, unit));
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

    /// Returns what the queue has at the queue offset of a message with the entry `unit`. `keeps_extensions`: the address of an extension
    /// counts as the tags code of the message.
    fn known(&mut self, log: &LogFiles, offset: i64, unit: CqUnit, keeps_extensions: bool) -> Result<Known> {
        let known = match &mut self.cursor {
            Some(entries) => entries.known_unit(offset)?,
            None => None,
        };
        // An entry may span two sectors, and the sector that holds its tags code may be lost. An entry with an extension has an address
        // instead of a tags code.
        let is_whole = |known: &CqUnit| {
            let has_extension = keeps_extensions && known.ext_address().is_some();
            let tags_code = if has_extension { known.tags_code } else { unit.tags_code };
            *known == CqUnit { tags_code, ..unit }
        };
        if known.as_ref().is_some_and(is_whole) {
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

    fn is_after_a_gap(&self, offset: i64) -> bool {
        offset > self.next().unwrap_or(0)
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

    /// Accepts the message before this one, which was refused, and this one, if their queue offsets follow each other: two messages in a
    /// row are better evidence than one. A queue that begins again at 0 is that of a new topic of the same name. Otherwise a broker
    /// assigned no queue offset between: the hole gets entries of lost messages.
    fn continues_refused(&mut self, offset: i64, unit: CqUnit) -> bool {
        let last = self.refused.replace((offset, unit));
        let Some((before, unit_before)) = last.filter(|(before, _)| before.checked_add(1) == Some(offset)) else {
            return false;
        };
        if before == 0 {
            self.entries = QueueTail::default();
            self.entries.insert(before, unit_before);
        } else if !self.put_after_hole(before, unit_before) {
            return false;
        }
        self.entries.insert(offset, unit);
        self.refused = None;
        true
    }

    /// Adds an entry after a hole, which gets entries of lost messages. Returns false if there is no hole, or too large a hole.
    fn put_after_hole(&mut self, offset: i64, unit: CqUnit) -> bool {
        let next = self.next().unwrap_or(0);
        let is_after = (next..next.saturating_add(MAX_HOLE)).contains(&offset);
        if is_after {
            let lost = unit.of_lost();
            self.entries.extend((next..offset).map(|hole| (hole, lost)).collect());
            self.entries.insert(offset, unit);
        }
        is_after
    }

    /// Adds an entry. Where messages can have been lost, each queue offset that is missing before it gets the entry `substitute`.
    /// Returns the number of queue offsets that were filled, and of messages that were refused.
    fn put(&mut self, offset: i64, unit: CqUnit, substitute: Option<CqUnit>) -> (i64, u64) {
        let (mut filled, mut refused) = (0, 0);
        if let Some(next) = self.next().filter(|next| offset > *next) {
            let Some(substitute) = substitute else {
                // Nobody ever appended the messages between: this queue offset is damaged.
                return (0, 1);
            };
            self.entries.extend((next..offset).map(|lost| (lost, substitute)).collect());
            filled = offset - next;
        }
        if self.entries.get(offset).is_some() {
            return (filled, 1); // of two messages with one queue offset, the second is the damaged one
        }
        let is_empty = self.queue.as_ref().is_none_or(|queue| queue.max_offset() <= 0);
        if is_empty && self.entries.first().is_some_and(|first| offset < first) {
            // The queue had no message, and this one has a smaller queue offset than the first one met: one of the two is damaged. Two
            // messages in a row are better evidence than one.
            refused = 1;
            if self.entries.len() > 1 {
                return (filled, refused);
            }
            self.entries = QueueTail::default();
        }
        self.entries.insert(offset, unit);
        (filled, refused)
    }
}

/// The name of a queue file cannot express this queue offset, nor a higher one.
const MAX_QUEUE_OFFSET: i64 = i64::MAX / CQ_UNIT_SIZE as i64;

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
