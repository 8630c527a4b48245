//! The entries that the queue files lack: one for each message of the log that has none.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::format::{
    CQ_UNIT_SIZE, Check, CqUnit, DelayLevels, DispatchRequest, MIN_RECORD_SIZE, MessageView, Version, is_light_queue,
    is_salvage_record, validate_topic,
};
use crate::log::{ConsumeQueue, ConsumeQueueStore, EntriesAhead, LogFiles, LogRecord, QueueTable, QueueTail};

/// The queue id of every light queue.
const LIGHT_QUEUE_ID: i32 = 0;

/// For each topic and queue id: the entries that the queue lacks.
pub(crate) type QueueTails = BTreeMap<(String, i32), QueueTail>;

/// Collects the entries that the queues lack, while the log is scanned.
pub(super) struct Undispatched<'a> {
    log: &'a LogFiles,
    queues: &'a ConsumeQueueStore,
    delay_levels: DelayLevels,
    /// Whether an entry that leads to its message stays as it is where it has an address of an extension.
    keeps_extensions: bool,
    /// Set if a light queue has files. Where a database holds queues, too, it holds the light queues, and the broker writes there.
    has_light_queues: bool,
    /// One for each queue that the scan has met; `None` for a batch consume queue.
    lacking: QueueTable<Option<Lacking>>,
    /// The scan has met a message, and its queue lacks the message before it.
    pub(super) gap: bool,
    pub(super) refused: u64,
    /// The entry that fills queue offsets that are missing, and how many of them it may fill. It leads to a salvage record, to a missing
    /// segment, or to a message whose queue offset is in doubt.
    substitute: Option<CqUnit>,
    lost: i64,
}

/// One queue, and the entries that it lacks.
struct Lacking {
    topic: String,
    queue_id: i32,
    queue: Option<Arc<ConsumeQueue>>,
    /// The entries of the queue that the scan comes to next.
    ahead: EntriesAhead,
    /// Whether the topic can be written.
    is_valid: bool,
    entries: QueueTail,
    /// The last message, if it was refused only for its queue offset.
    refused: Option<(i64, CqUnit)>,
    /// The queue offset after the last message that has its place in the queue.
    placed_until: Option<i64>,
    /// Queue offsets that the scan has found no message for, each range with the entry of the next message.
    without_message: Vec<(Range<i64>, CqUnit)>,
}

/// The largest hole of a queue that a rebuild fills.
const MAX_HOLE: i64 = 1 << 20;

impl<'a> Undispatched<'a> {
    pub(super) fn new(
        log: &'a LogFiles,
        queues: &'a ConsumeQueueStore,
        delay_levels: DelayLevels,
        keeps_extensions: bool,
    ) -> Self {
        Self {
            log,
            queues,
            delay_levels,
            keeps_extensions,
            has_light_queues: queues.second_rocksdb().is_none() && queues.topics().iter().any(|topic| is_light_queue(topic)),
            lacking: QueueTable::default(),
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

    /// Some queue may lack the message of this entry. A queue offset that is missing gets the entry, unless a lost message may have had it.
    fn doubt(&mut self, unit: CqUnit) {
        let substitute = self.substitute.filter(|known| known.is_lost()).unwrap_or(unit.of_lost());
        self.pass_over(Some(substitute), MIN_RECORD_SIZE as i64);
    }

    /// Doubts the flags of a record without a queue entry that names a queue offset, which only inner batches do: no checksum covers the
    /// flags. If they are damaged, the message is missing from the queue.
    fn doubt_flags(&mut self, view: &MessageView<'_>) {
        if view.queue_offset() > 0 && self.queue(view).is_some() {
            self.doubt(CqUnit {
                physical_offset: view.physical_offset(),
                size: view.size() as i32,
                tags_code: 0,
            });
        }
    }

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
        let (log, substitute, lost, keeps_extensions) = (self.log, self.substitute, self.lost, self.keeps_extensions);
        let Some(lacking) = self.queue(view) else {
            return Ok(()); // a batch consume queue: this crate does not write those
        };
        let known = match &lacking.queue {
            Some(queue) => queue.known_unit(queue_offset, &mut lacking.ahead)?,
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
            lacking.note_place(queue_offset, unit);
            return Ok(());
        }
        let is_possible = lacking.is_valid && (0..MAX_QUEUE_OFFSET).contains(&queue_offset) && queue_id >= 0;
        // The entry leads to another message with this queue offset, or to a salvage record after this one: then the message that was lost
        // there belongs to the queue, and this one to an earlier topic of the same name.
        let is_taken = match known.filter(|known| known.physical_offset != unit.physical_offset) {
            Some(known) if known.physical_offset > unit.physical_offset && leads_to_salvage_record(log, known)? => true,
            Some(known) => leads(log, &lacking.topic, queue_id, queue_offset, known)?,
            None => false,
        };
        let is_unknown =
            lacking.ends_before(queue_offset) || (!is_taken && lacking.has_later_before(queue_offset, &unit, log)?);
        if is_unknown && lacking.leads_past(log, unit.physical_offset)? {
            // Its topic was deleted since, and made again. Or its queue offset is damaged, and the queue has another message there.
            lacking.refused = None;
            self.refused += 1;
            return Ok(());
        }
        if !is_possible || is_taken {
            self.refused += 1;
            self.doubt(unit);
            return Ok(());
        }
        let gap = lacking.is_after_a_gap(queue_offset);
        let substitute = substitute.filter(|_| queue_offset - lacking.next().unwrap_or(queue_offset) <= lost);
        let (filled, mut refused) = lacking.put(queue_offset, unit, substitute);
        let accepts_last = refused > 0 && lacking.continues_refused(queue_offset, unit);
        if accepts_last {
            refused = 0;
        } else if refused == 0 {
            lacking.note_place(queue_offset, unit);
        }
        self.refused -= u64::from(accepts_last);
        self.gap |= gap;
        self.lost -= filled;
        self.refused += refused;
        if refused > 0 || (gap && filled == 0) {
            // No checksum covers its topic, queue id and queue offset. If one of them is damaged, the message belongs to another queue,
            // which then lacks a queue offset.
            self.doubt(unit);
        }
        Ok(())
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
            let place = match self.lacking.find(name.as_bytes(), LIGHT_QUEUE_ID) {
                Some(place) => place,
                None => self.lacking.add(
                    name.as_bytes(),
                    LIGHT_QUEUE_ID,
                    Lacking::of_light(&name, view.version(), self.queues),
                ),
            };
            if let Some(Some(lacking)) = self.lacking.get_mut(place)
                && lacking.is_valid
                && lacking.next().unwrap_or(0) == queue_offset
            {
                lacking.entries.insert(queue_offset, unit);
            }
        }
    }

    /// The message's queue; `None` for a batch consume queue.
    fn queue(&mut self, view: &MessageView<'_>) -> Option<&mut Lacking> {
        let (name, queue_id) = (view.topic_bytes(), view.queue_id());
        let place = match self.lacking.find(name, queue_id) {
            Some(place) => place,
            None => self.lacking.add(name, queue_id, Lacking::of(view, self.queues)),
        };
        self.lacking.get_mut(place)?.as_mut()
    }

    /// Returns the entries to add, by topic, queue id and queue offset, and how many messages were refused. A rebuild accepts the last
    /// message of a queue after a hole: before it, verify has corrected the places that nothing supports. It also replaces entries that
    /// lead to no message, but for those of messages in the stretches `lost`.
    ///
    /// # Errors
    /// Those of reading an entry, and the message to which it leads.
    pub(super) fn into_entries(self, is_rebuilt: bool, lost: &[Range<i64>]) -> Result<(QueueTails, u64)> {
        let mut refused = self.refused;
        let mut tails = QueueTails::new();
        for mut lacking in self.lacking.into_values().into_iter().flatten() {
            if is_rebuilt {
                if let Some((offset, unit)) = lacking.refused {
                    refused -= u64::from(lacking.put_after_hole(offset, unit));
                }
                lacking.replace_entries_without_message(self.log, lost)?;
            }
            if !lacking.entries.is_empty() {
                tails.insert((lacking.topic, lacking.queue_id), lacking.entries);
            }
        }
        Ok((tails, refused))
    }
}

impl Lacking {
    /// Nothing yet; `None` for a batch consume queue.
    fn of(view: &MessageView<'_>, queues: &ConsumeQueueStore) -> Option<Self> {
        let (topic, queue_id) = (view.topic(), view.queue_id());
        Some(Self {
            queue: queues.queue(&topic, queue_id).ok()?,
            ahead: EntriesAhead::default(),
            // The directory of any other name would hold the entries of another topic.
            is_valid: matches!(topic, Cow::Borrowed(_)) && validate_topic(&topic, view.version()).is_ok(),
            topic: topic.into_owned(),
            queue_id,
            entries: QueueTail::default(),
            refused: None,
            placed_until: None,
            without_message: Vec::new(),
        })
    }

    /// Returns a light queue without new entries; `None` for a batch consume queue.
    fn of_light(topic: &str, version: Version, queues: &ConsumeQueueStore) -> Option<Self> {
        Some(Self {
            queue: queues.queue(topic, LIGHT_QUEUE_ID).ok()?,
            ahead: EntriesAhead::default(),
            is_valid: validate_topic(topic, version).is_ok(),
            topic: topic.to_owned(),
            queue_id: LIGHT_QUEUE_ID,
            entries: QueueTail::default(),
            refused: None,
            placed_until: None,
            without_message: Vec::new(),
        })
    }

    /// Whether the queue has no entry at this queue offset, nor after it.
    fn ends_before(&self, offset: i64) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.max_offset() <= offset)
    }

    /// Returns true if the entry before this queue offset leads to a later message of the log than `unit`.
    fn has_later_before(&mut self, offset: i64, unit: &CqUnit, log: &LogFiles) -> Result<bool> {
        let (Some(queue), Some(before)) = (&self.queue, offset.checked_sub(1)) else {
            return Ok(false);
        };
        match queue.known_unit(before, &mut EntriesAhead::default())? {
            Some(known) if known.physical_offset > unit.physical_offset => leads(log, &self.topic, self.queue_id, before, known),
            _ => Ok(false),
        }
    }

    /// Whether the last entry of the queue leads to a message that lies after this physical offset.
    fn leads_past(&self, log: &LogFiles, physical_offset: i64) -> Result<bool> {
        let Some(queue) = &self.queue else { return Ok(false) };
        let last = queue.max_offset() - 1;
        match queue.known_unit(last, &mut EntriesAhead::default())? {
            Some(unit) if unit.physical_offset > physical_offset => {
                Ok(leads(log, &self.topic, self.queue_id, last, unit)? || leads_to_salvage_record(log, unit)?)
            }
            _ => Ok(false),
        }
    }

    /// The queue offset of the queue's next message; `None` for a queue without a message.
    fn next(&self) -> Option<i64> {
        let gathered = self.entries.end();
        let known = self.queue.as_ref().map(|queue| queue.max_offset()).filter(|max| *max > 0);
        gathered.max(known)
    }

    fn is_after_a_gap(&self, offset: i64) -> bool {
        offset > self.next().unwrap_or(0)
    }

    /// Notes that a message has its place, and the queue offsets before it that no message has.
    fn note_place(&mut self, offset: i64, unit: CqUnit) {
        self.refused = None;
        if let Some(next) = self.placed_until.filter(|next| *next < offset) {
            self.without_message.push((next..offset, unit));
        }
        self.placed_until = self.placed_until.max(offset.checked_add(1));
    }

    /// Makes entries that lead to no message, in a stretch of the queue whose messages the log does not have, those of lost messages.
    fn replace_entries_without_message(&mut self, log: &LogFiles, lost: &[Range<i64>]) -> Result<()> {
        let Some(queue) = &self.queue else { return Ok(()) };
        for (offsets, next) in std::mem::take(&mut self.without_message) {
            for offset in offsets.take(MAX_HOLE as usize) {
                let Some(known) = queue.known_unit(offset, &mut EntriesAhead::default())? else {
                    continue;
                };
                let is_wrong = known.is_valid()
                    && !known.is_pre_blank()
                    && !known.is_lost()
                    && known.physical_offset >= log.first_offset()
                    && self.entries.get(offset).is_none()
                    && !lost.iter().any(|lost| lost.contains(&known.physical_offset))
                    && !matches!(log.read(known.physical_offset, Check::Structure)?, LogRecord::Missing)
                    && !leads(log, &self.topic, self.queue_id, offset, known)?;
                if is_wrong {
                    self.entries.insert(offset, next.of_lost());
                }
            }
        }
        Ok(())
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
    /// Gives the number of queue offsets that were filled, and of messages that were refused.
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

/// Whether the entry points to the message of this queue and queue offset.
pub(super) fn leads(log: &LogFiles, topic: &str, queue_id: i32, queue_offset: i64, unit: CqUnit) -> Result<bool> {
    Ok(match log.read(unit.physical_offset, Check::Structure)? {
        LogRecord::Message(message) => {
            let view = message.view();
            view.size() as i32 == unit.size && view.stands_in_queue(topic, queue_id, queue_offset)
        }
        _ => false,
    })
}
