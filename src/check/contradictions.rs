//! Messages whose records name a wrong place in the queues, and the proof of the right place.
//!
//! No checksum covers topic, queue id and queue offset of a record without `__CRC32#`. Two places compete for such a record: that of the
//! queue entry that leads to it, or, without an entry, that after the message before it in its queue; and its own, which it names. In the
//! order of the log the queue offsets of a queue rise by one, so the messages of a queue before and after the record show which place fits:
//!
//! 1. A `__CRC32#` decides: the place with which it holds.
//! 2. If only one place lies between the queue offsets of its neighbours, that one.
//! 3. The place that the record names, if no message of the log names the queue of the entry: its directory was renamed.
//! 4. The place that follows its neighbours without a hole, if the other place does not; of two such places that between two messages,
//!    if the other place follows the last message of its queue.
//! 5. The place of the entry, if the entry of the other place leads to another message, or if the other queue does not reach so far.
//!
//! Without an entry, the record gets the other place only if its own is impossible, and no entry leads from there to another message. A hole
//! between that place and the next message must be one of lost messages, with none lost before the record.
//!
//! A repair writes the right place into the record. Where nothing proves a place, a salvage record replaces the record. A message whose
//! queue offset an earlier message has, and that no place fits, stays as it is: no queue leads to it, and `copy` takes it over.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use crate::check::finding_id::Fix;
use crate::error::{Error, Result};
use crate::format::{Check, CqUnit, MessageView, Record, encode_salvage_record, is_salvage_record, read_record};
use crate::log::{ConsumeQueueStore, LogFiles, LogRecord};
use crate::read::{MessageReader, Walked};

/// Contradictions that are kept. A repair of a store with more of them changes no record.
const MOST: usize = 100_000;

/// A place in the queues.
#[derive(Debug, Clone, PartialEq, Eq)]
struct QueuePlace {
    topic: Arc<str>,
    queue_id: i32,
    queue_offset: i64,
}

impl QueuePlace {
    fn named_by(view: &MessageView<'_>) -> Self {
        Self {
            topic: view.topic().into(),
            queue_id: view.queue_id(),
            queue_offset: view.queue_offset(),
        }
    }
}

/// A record whose place is in doubt.
#[derive(Debug)]
struct Contradiction {
    physical_offset: i64,
    /// The entry that leads to the record, and its place; `None` if no entry does.
    entry: Option<(QueuePlace, CqUnit)>,
    /// True if an earlier message has the place that the record names.
    is_taken: bool,
}

/// New bytes for one record of the log.
#[derive(Debug, Clone)]
pub(super) struct Correction {
    /// The start of the record.
    pub(super) physical_offset: i64,
    /// Its end.
    pub(super) end: i64,
    /// The segment.
    pub(super) file: PathBuf,
    /// Positions in the segment, each with its new bytes.
    pub(super) changes: Vec<(u64, Vec<u8>)>,
    /// The correction in a sentence.
    pub(super) what: String,
    /// True if nothing proves a place: the changes put a salvage record over the record.
    pub(super) is_loss: bool,
    /// True if the record is not whole before the changes.
    is_damaged: bool,
}

/// The contradictions of a store.
#[derive(Debug, Default)]
pub(super) struct Contradictions {
    list: Vec<Contradiction>,
    is_full: bool,
}

impl Contradictions {
    /// Adds an entry that leads to a message of another place.
    pub(super) fn add(&mut self, topic: &Arc<str>, queue_id: i32, queue_offset: i64, unit: CqUnit) {
        let place = QueuePlace {
            topic: Arc::clone(topic),
            queue_id,
            queue_offset,
        };
        self.push(Contradiction {
            physical_offset: unit.physical_offset,
            entry: Some((place, unit)),
            is_taken: false,
        });
    }

    /// Adds a message to which no entry leads: an earlier message has its queue offset, or it does not follow the message before it.
    pub(super) fn add_without_entry(&mut self, physical_offset: i64, is_taken: bool) {
        self.push(Contradiction {
            physical_offset,
            entry: None,
            is_taken,
        });
    }

    fn push(&mut self, contradiction: Contradiction) {
        self.is_full = self.list.len() >= MOST;
        if !self.is_full {
            self.list.push(contradiction);
        }
    }

    /// Decides about each contradiction. Reads the log once more if there are any.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`], those of [`interrupt::check`].
    pub(super) fn decide(&self, reader: &MessageReader, queues: &ConsumeQueueStore, end: i64) -> Result<Decided> {
        let mut decided = Decided {
            physical_offsets: HashSet::new(),
            corrections: (!self.is_full).then(Vec::new),
            has_unplaced: false,
        };
        if self.list.is_empty() {
            return Ok(decided);
        }
        let mut by_record: BTreeMap<i64, &Contradiction> = BTreeMap::new();
        for contradiction in &self.list {
            let known = by_record.entry(contradiction.physical_offset).or_insert(contradiction);
            if known.entry.is_none() {
                *known = contradiction;
            }
        }
        let list: Vec<_> = by_record.into_values().collect();
        let neighbours = Neighbours::of(&list, reader, end)?;
        for (number, contradiction) in list.into_iter().enumerate() {
            let LogRecord::Message(message) = reader.log().read(contradiction.physical_offset, Check::Structure)? else {
                continue; // It was damaged since.
            };
            let view = message.view();
            let candidates = Candidates::new(&view, contradiction, neighbours.of_record(number));
            let Some(correction) = candidates.decide(reader.log(), queues)? else {
                // The entry is wrong, and a rebuild replaces it; or no place fits.
                decided.has_unplaced |= contradiction.is_taken;
                continue;
            };
            decided.physical_offsets.insert(contradiction.physical_offset);
            if let Some(corrections) = &mut decided.corrections {
                corrections.push(correction);
            }
        }
        Ok(decided)
    }
}

/// The contradictions in which the record is wrong.
#[derive(Debug, Clone)]
pub(super) struct Decided {
    /// Starts of the records.
    pub(super) physical_offsets: HashSet<i64>,
    /// The corrections of all records; `None` if there are too many of them.
    pub(super) corrections: Option<Vec<Correction>>,
    /// True if a message has a queue offset that an earlier message has, and no place fits it.
    pub(super) has_unplaced: bool,
}

impl Decided {
    /// Returns true if a record is not whole before its correction.
    pub(super) fn is_damaged(&self) -> bool {
        self.corrections.iter().flatten().any(|correction| correction.is_damaged)
    }

    /// Returns what resolves the contradictions; `None` without any.
    pub(super) fn remedy(&self) -> Option<Fix> {
        match &self.corrections {
            None => Some(Fix::CopyWhole),
            Some(corrections) => (!corrections.is_empty()).then_some(Fix::Correct),
        }
    }
}

/// The queue offsets of the messages of one queue that come before and after a record in the log.
#[derive(Debug, Clone, Copy, Default)]
struct Around {
    before: Option<i64>,
    after: Option<i64>,
    /// True if messages may be lost between the one before and the record.
    has_loss_before: bool,
    /// True if messages may be lost between the record and the one after it.
    has_loss_after: bool,
}

impl Around {
    /// Returns true if the queue offset lies between those of the neighbours.
    fn admits(self, queue_offset: i64) -> bool {
        self.before.is_none_or(|before| before < queue_offset) && self.after.is_none_or(|after| queue_offset < after)
    }

    /// Returns true if messages of the queue come before and after the record.
    fn is_on_both_sides(self) -> bool {
        self.before.is_some() && self.after.is_some()
    }

    /// Returns true if the log has no other message of the queue.
    fn is_alone(self) -> bool {
        self.before.is_none() && self.after.is_none()
    }

    /// Returns the queue offset after that of the message before, if it fits: a hole before the message after it is one of lost messages.
    fn next(self) -> Option<i64> {
        let next = self.before.and_then(|before| before.checked_add(1))?;
        let may_leave_hole = self.has_loss_after && !self.has_loss_before && self.admits(next);
        (self.is_dense_with(next) || may_leave_hole).then_some(next)
    }

    /// Returns true if the queue offset follows its neighbours without a hole.
    fn is_dense_with(self, queue_offset: i64) -> bool {
        self.before.is_none_or(|before| before.checked_add(1) == Some(queue_offset))
            && self.after.is_none_or(|after| queue_offset.checked_add(1) == Some(after))
    }
}

/// The neighbours of each record in the queue of its entry, and in the queue that it names.
#[derive(Debug)]
struct Neighbours(Vec<[Around; 2]>);

/// One queue, while the log is read.
#[derive(Debug, Default)]
struct WatchedQueue {
    last: Option<i64>,
    /// The number of losses before the last message.
    losses: usize,
    /// Records that wait for the next message of the queue: their numbers, which of their places it is, and the number of losses before
    /// them.
    waiting: Vec<(usize, usize, usize)>,
}

impl Neighbours {
    /// Reads the log up to `end`.
    fn of(list: &[&Contradiction], reader: &MessageReader, end: i64) -> Result<Self> {
        let mut found = vec![[Around::default(); 2]; list.len()];
        let by_offset: BTreeMap<i64, usize> = list.iter().enumerate().map(|(n, one)| (one.physical_offset, n)).collect();
        let mut queues: HashMap<(Arc<str>, i32), WatchedQueue> = HashMap::new();
        let mut set = |(number, place): (usize, usize), change: &dyn Fn(&mut Around)| {
            if let Some(around) = found.get_mut(number).and_then(|both| both.get_mut(place)) {
                change(around);
            }
        };
        // Damaged stretches and salvage records.
        let mut losses = 0;
        let mut walk = reader.log_walk(reader.physical_bounds().start..end, Check::Structure);
        while let Some(walked) = walk.advance()? {
            let view = walk.view().filter(|_| walked == Walked::Record);
            if view.as_ref().is_none_or(is_salvage_record) {
                losses += 1;
            }
            let Some(view) = view else {
                walk.pass_damage()?;
                continue;
            };
            let mut named = QueuePlace::named_by(&view);
            let number = by_offset.get(&view.physical_offset()).copied();
            if view.has_queue_entry() {
                let queue = queues.entry((named.topic.clone(), named.queue_id)).or_default();
                let is_doubtful = number
                    .and_then(|number| list.get(number))
                    .is_some_and(|one| one.entry.is_none());
                // A topic that was made again begins at 0. Any other doubtful message probably follows the one before it.
                if let Some(last) = queue.last.filter(|_| is_doubtful && named.queue_offset != 0) {
                    named.queue_offset = last.saturating_add(1);
                }
                for (number, which, losses_before) in queue.waiting.drain(..) {
                    set((number, which), &|around| {
                        (around.after, around.has_loss_after) = (Some(named.queue_offset), losses_before != losses);
                    });
                }
            }
            if let Some(number) = number {
                let entry = list.get(number).and_then(|one| one.entry.as_ref()).map(|(place, _)| place);
                for (which, place) in [entry, Some(&named)].into_iter().enumerate() {
                    let Some(place) = place else { continue };
                    let queue = queues.entry((place.topic.clone(), place.queue_id)).or_default();
                    let (last, has_loss) = (queue.last, queue.losses != losses);
                    set((number, which), &|around| {
                        (around.before, around.has_loss_before) = (last, has_loss);
                    });
                    queue.waiting.push((number, which, losses));
                }
            }
            if view.has_queue_entry() {
                let queue = queues.entry((named.topic, named.queue_id)).or_default();
                (queue.last, queue.losses) = (Some(named.queue_offset), losses);
            }
        }
        Ok(Self(found))
    }

    fn of_record(&self, number: usize) -> [Around; 2] {
        self.0.get(number).copied().unwrap_or_default()
    }
}

/// The two places that compete for a record.
struct Candidates<'a> {
    view: &'a MessageView<'a>,
    /// The place that the record gets if its own is wrong.
    other: Option<QueuePlace>,
    /// The entry that leads to the record.
    unit: Option<CqUnit>,
    around_other: Around,
    around_named: Around,
    is_taken: bool,
}

impl<'a> Candidates<'a> {
    fn new(view: &'a MessageView<'a>, contradiction: &Contradiction, [mut around_other, around_named]: [Around; 2]) -> Self {
        let unit = contradiction.entry.as_ref().map(|(_, unit)| *unit);
        let other = if let Some((place, _)) = &contradiction.entry {
            Some(place.clone())
        } else {
            // Without an entry: the place after the message before it in its queue.
            around_other = around_named;
            let next = around_named.next().filter(|next| *next != view.queue_offset());
            next.map(|queue_offset| QueuePlace {
                queue_offset,
                ..QueuePlace::named_by(view)
            })
        };
        Self {
            view,
            other,
            unit,
            around_other,
            around_named,
            is_taken: contradiction.is_taken,
        }
    }

    /// Returns the change of the record; `None` if it names its place.
    fn decide(&self, log: &LogFiles, queues: &ConsumeQueueStore) -> Result<Option<Correction>> {
        let named = self.view.queue_offset();
        let own = OwnEntry::of(self.view, log, queues)?;
        if own == OwnEntry::LeadsHere && !self.is_own_entry_of_recovery() {
            return Ok(None);
        }
        if self.unit.is_none() {
            return self.decide_without_entry(log, queues);
        }
        let Some((other, correction)) = self
            .other
            .as_ref()
            .and_then(|other| Some((other, self.correction(other, log)?)))
        else {
            return Ok((!self.around_named.admits(named)).then(|| self.loss(log)));
        };
        if self.view.has_crc_property() {
            return Ok(Some(correction).filter(|correction| correction.is_damaged));
        }
        let admits = (self.around_other.admits(other.queue_offset), self.around_named.admits(named));
        let dense = (
            self.around_other.is_dense_with(other.queue_offset),
            self.around_named.is_dense_with(named),
        );
        // The directory of the queue may have been renamed: no message of the log names its queue.
        if self.around_other.is_alone() && !self.around_named.is_alone() && admits.1 {
            return Ok(None);
        }
        // Between two neighbours the place is needed; after the last message of a queue it is only possible.
        let needed = (self.around_other.is_on_both_sides(), self.around_named.is_on_both_sides());
        Ok(match (admits, dense) {
            ((true, true), (true, true)) if needed == (true, false) => Some(correction),
            ((true, true), (true, true)) if needed == (false, true) => None,
            ((true, false), _) | ((true, true), (true, false)) => Some(correction),
            ((false, true), _) | ((true, true), (false, true)) => None,
            _ if own == OwnEntry::NotNeeded => Some(correction),
            _ => Some(self.loss(log)),
        })
    }

    /// Returns true if recovery has given the record the entry that its damaged topic or queue id asks for, and has marked the message as
    /// lost in its queue: the log has no other message of the queue that the record names, and the other queue misses this queue offset.
    fn is_own_entry_of_recovery(&self) -> bool {
        let named = self.view.queue_offset();
        self.unit.is_some_and(CqUnit::is_lost)
            && self.other.as_ref().is_some_and(|other| other.queue_offset == named)
            && self.around_named.is_alone()
            && self.around_other.is_on_both_sides()
            && self.around_other.is_dense_with(named)
    }

    /// Returns the change of a record to which no entry leads. It gets the place after the message before it if its own is impossible, and
    /// no entry leads from the other place to another message. A topic that was made again begins at 0.
    fn decide_without_entry(&self, log: &LogFiles, queues: &ConsumeQueueStore) -> Result<Option<Correction>> {
        let named = self.view.queue_offset();
        let is_impossible = self.is_taken || (named != 0 && !self.around_named.admits(named));
        let Some(other) = self.other.as_ref().filter(|_| is_impossible) else {
            return Ok(None);
        };
        let queue = queues.queue(&other.topic, other.queue_id).ok().flatten();
        let entry = match queue.filter(|queue| queue.written().contains(&other.queue_offset)) {
            Some(queue) => queue.written_unit(other.queue_offset)?,
            None => None,
        };
        let found = match entry.filter(|entry| entry.is_valid()) {
            Some(entry) => log.read(entry.physical_offset, Check::Structure)?,
            None => LogRecord::Missing,
        };
        let is_taken = |message: &MessageView<'_>| message.is_in_queue_at(&other.topic, other.queue_id, other.queue_offset);
        Ok(match found {
            LogRecord::Message(message) if is_taken(&message.view()) => None,
            _ => self.correction(other, log),
        })
    }

    /// Returns the change that puts the record at a place; `None` if it is not whole there.
    fn correction(&self, place: &QueuePlace, log: &LogFiles) -> Option<Correction> {
        let view = self.view;
        let changes = changes_to_whole(view, place)?;
        let what = format!(
            "the record at physical offset {} gets the place {}: topic {:?}, queue {}, queue offset {}, instead of topic {:?}, queue {}, \
             queue offset {}",
            view.physical_offset(),
            if self.unit.is_some() {
                "of its queue entry"
            } else {
                "after the message before it"
            },
            place.topic,
            place.queue_id,
            place.queue_offset,
            view.topic(),
            view.queue_id(),
            view.queue_offset()
        );
        Some(self.change(log, changes, what, false))
    }

    /// Returns the change that removes the record.
    fn loss(&self, log: &LogFiles) -> Correction {
        let what = format!(
            "nothing proves the place of the record at physical offset {} (topic {:?}, queue {}, queue offset {}): a salvage record takes its \
             place",
            self.view.physical_offset(),
            self.view.topic(),
            self.view.queue_id(),
            self.view.queue_offset()
        );
        self.change(log, vec![(0, self.salvage_records())], what, true)
    }

    /// Returns salvage records that take as many bytes as the record: the log stays one chain of records.
    fn salvage_records(&self) -> Vec<u8> {
        let (at, size) = (self.view.physical_offset(), self.view.size() as usize);
        let mut records = Vec::with_capacity(size);
        while records.len() < size {
            let next = encode_salvage_record(at + records.len() as i64, size - records.len(), false, self.view.store_time());
            // A record has room for a salvage record, and so has the rest of a large one.
            let Ok(next) = next else { break };
            records.extend(next);
        }
        records
    }

    fn change(&self, log: &LogFiles, changes: Vec<(usize, Vec<u8>)>, what: String, is_loss: bool) -> Correction {
        let (file, position) = log.path_of(self.view.physical_offset());
        Correction {
            physical_offset: self.view.physical_offset(),
            end: self.view.end(),
            file,
            changes: changes.into_iter().map(|(at, new)| (position + at as u64, new)).collect(),
            what,
            is_loss,
            is_damaged: !matches!(read_record(self.view.bytes(), Check::Whole), Record::Message(_)),
        }
    }
}

/// Returns the changes that put a record at a place; `None` if it is not whole there.
fn changes_to_whole(view: &MessageView<'_>, place: &QueuePlace) -> Option<Vec<(usize, Vec<u8>)>> {
    let changes = view.queue_position_edits(&place.topic, place.queue_id, place.queue_offset)?;
    let mut bytes = view.bytes().to_vec();
    for (position, new) in &changes {
        bytes.get_mut(*position..position + new.len())?.copy_from_slice(new);
    }
    matches!(read_record(&bytes, Check::Whole), Record::Message(_)).then(|| changes.to_vec())
}

/// Returns true if the `__CRC32#` of a damaged record holds with the place of the queue entry that leads to it. Looks into every queue.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn is_proven_by_entry(view: &MessageView<'_>, queues: &ConsumeQueueStore) -> Result<bool> {
    if !view.has_crc_property() {
        return Ok(false);
    }
    let mut is_proven = false;
    for (topic, queue_id, queue) in queues.file_queues() {
        queue.visit_from(view.physical_offset(), |queue_offset, unit| {
            let place = QueuePlace {
                topic: topic.clone(),
                queue_id,
                queue_offset,
            };
            let leads_here = (unit.physical_offset, unit.size) == (view.physical_offset(), view.size() as i32);
            is_proven |= leads_here && changes_to_whole(view, &place).is_some();
            Ok(false)
        })?;
    }
    Ok(is_proven)
}

/// The queue entry at the place that a record names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnEntry {
    /// It leads to the record.
    LeadsHere,
    /// It leads to another message of that place, which may be lost or damaged, or the queue does not reach to that place.
    NotNeeded,
    /// The queue has other entries around that place, and none for it.
    Missing,
}

impl OwnEntry {
    fn of(view: &MessageView<'_>, log: &LogFiles, queues: &ConsumeQueueStore) -> Result<Self> {
        let (topic, queue_id, offset) = (view.topic(), view.queue_id(), view.queue_offset());
        let queue = match queues.queue(&topic, queue_id) {
            Ok(Some(queue)) => queue,
            Ok(None) => return Ok(Self::NotNeeded),
            Err(Error::Unsupported { .. }) => return Ok(Self::Missing),
            Err(error) => return Err(error),
        };
        if !queue.written().contains(&offset) {
            return Ok(Self::NotNeeded);
        }
        let Some(unit) = queue.written_unit(offset)?.filter(|unit| unit.is_valid()) else {
            return Ok(Self::Missing);
        };
        if unit.physical_offset == view.physical_offset() {
            return Ok(Self::LeadsHere);
        }
        Ok(match log.read(unit.physical_offset, Check::Structure)? {
            LogRecord::Message(other) => {
                let other = other.view();
                let is_lost = unit.is_lost() && is_salvage_record(&other);
                if is_lost || other.is_in_queue_at(&topic, queue_id, offset) {
                    Self::NotNeeded
                } else {
                    Self::Missing
                }
            }
            _ => Self::NotNeeded,
        })
    }
}
