//! Messages of which the record and the queue entry that leads to it name different places in the queues.
//!
//! No checksum covers topic, queue id and queue offset of a record without `__CRC32#`. The entry is right if it names the record's start and
//! size, no other message has the place of the entry, and the queue that the record names has no hole without this message. A repair
//! then writes the place of the entry into the record.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use crate::check::finding_id::Fix;
use crate::error::{Error, Result};
use crate::format::{Check, CqUnit, MessageView, Record, is_salvage_record, read_record};
use crate::log::{ConsumeQueueStore, LogFiles, LogRecord};

/// Contradictions that are kept. A repair of a store with more of them corrects no record.
const MOST: usize = 10_000;

/// A queue entry that names a record, which names another place.
#[derive(Debug)]
struct Contradiction {
    topic: Arc<str>,
    queue_id: i32,
    queue_offset: i64,
    unit: CqUnit,
}

/// New bytes for one record of the log.
#[derive(Debug, Clone)]
pub(super) struct Correction {
    /// The segment.
    pub(super) file: PathBuf,
    /// Positions in the segment, each with its new bytes.
    pub(super) changes: Vec<(u64, Vec<u8>)>,
    /// The correction in a sentence.
    pub(super) what: String,
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
        self.is_full = self.list.len() >= MOST;
        if !self.is_full {
            self.list.push(Contradiction {
                topic: Arc::clone(topic),
                queue_id,
                queue_offset,
                unit,
            });
        }
    }

    /// Decides about each contradiction.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn decide(&self, log: &LogFiles, queues: &ConsumeQueueStore) -> Result<Decided> {
        let mut decided = Decided {
            physical_offsets: HashSet::new(),
            corrections: (!self.is_full).then(Vec::new),
        };
        for contradiction in &self.list {
            let unit = contradiction.unit;
            let LogRecord::Message(message) = log.read(unit.physical_offset, Check::Structure)? else {
                continue; // It was damaged since.
            };
            let view = message.view();
            let entry = OwnEntry::of(&view, log, queues)?;
            if entry == OwnEntry::LeadsHere {
                continue; // The other entry is wrong, and a rebuild replaces it.
            }
            decided.physical_offsets.insert(unit.physical_offset);
            let correction = contradiction.correction(&view, entry, log);
            decided.corrections = decided.corrections.zip(correction).map(|(mut corrections, correction)| {
                corrections.push(correction);
                corrections
            });
        }
        Ok(decided)
    }
}

/// The contradictions in which the record may be wrong.
#[derive(Debug, Clone)]
pub(super) struct Decided {
    /// Where the records start.
    pub(super) physical_offsets: HashSet<i64>,
    /// The corrections of all records; `None` if the right place of one of them is not known.
    pub(super) corrections: Option<Vec<Correction>>,
}

impl Decided {
    /// Returns what sets the contradictions right; `None` if there is none.
    pub(super) fn remedy(&self) -> Option<Fix> {
        match &self.corrections {
            None => Some(Fix::CopyWhole),
            Some(corrections) => (!corrections.is_empty()).then_some(Fix::Correct),
        }
    }
}

impl Contradiction {
    /// Returns the correction of the record; `None` if nothing proves that the entry is right.
    fn correction(&self, view: &MessageView<'_>, entry: OwnEntry, log: &LogFiles) -> Option<Correction> {
        let changes = view.changes_of_place(&self.topic, self.queue_id, self.queue_offset)?;
        let mut bytes = view.bytes().to_vec();
        for (position, new) in &changes {
            bytes.get_mut(*position..position + new.len())?.copy_from_slice(new);
        }
        let Record::Message(corrected) = read_record(&bytes, Check::Whole) else {
            return None;
        };
        let is_proven = corrected.has_crc_property() || entry == OwnEntry::NotNeeded;
        if !is_proven || view.size() as i32 != self.unit.size {
            return None;
        }
        let (file, position) = log.path_of(self.unit.physical_offset);
        let what = format!(
            "the record at physical offset {} gets the place of its queue entry: topic {:?}, queue {}, queue offset {}, instead of topic \
             {:?}, queue {}, queue offset {}",
            self.unit.physical_offset,
            self.topic,
            self.queue_id,
            self.queue_offset,
            view.topic(),
            view.queue_id(),
            view.queue_offset()
        );
        let changes = changes.into_iter().map(|(at, new)| (position + at as u64, new)).collect();
        Some(Correction { file, changes, what })
    }
}

/// The queue entry at the place that a record names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnEntry {
    /// It leads to the record.
    LeadsHere,
    /// It leads to another message of that place, whole or lost, or the queue does not reach to that place.
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
                if is_lost || other.stands_in_queue(&topic, queue_id, offset) {
                    Self::NotNeeded
                } else {
                    Self::Missing
                }
            }
            _ => Self::Missing,
        })
    }
}
