//! Sectors that a power cut tore, and their permitted effects: a message that nobody acknowledged, whose bytes
//! differ inside those sectors and in fields that no checksum covers, and a key whose item in the index was torn.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use mqstore::format::{Check, Record, parse_segment_name, read_record};

use super::examine::root;
use super::model::{Entries, Entry, Found};
use crate::simulated_env::{CrashReport, SECTOR};

/// Messages that nobody acknowledged and that a tear changed. What derives from them may be of either message.
#[derive(Debug, Clone, Default)]
pub(super) struct Garbled {
    /// Their positions.
    offsets: BTreeSet<i64>,
    /// The queues that either message names.
    queues: BTreeSet<(String, i32)>,
    /// A sector of an index file was torn. No checksum covers an item, so a changed hash finds nothing.
    pub(super) is_index_torn: bool,
}

impl Garbled {
    fn add(&mut self, appended: &Entry, found: &Entry) {
        self.offsets.insert(found.physical_offset);
        for entry in [appended, found] {
            self.queues
                .extend(entry.queue.map(|(queue_id, _)| (entry.topic.clone(), queue_id)));
        }
    }

    fn extend(&mut self, other: &Self) {
        self.offsets.extend(&other.offsets);
        self.queues.extend(other.queues.iter().cloned());
        self.is_index_torn |= other.is_index_torn;
    }

    pub(super) fn is_any(&self) -> bool {
        !self.offsets.is_empty()
    }

    pub(super) fn is_at(&self, physical_offset: i64) -> bool {
        self.offsets.contains(&physical_offset)
    }

    pub(super) fn is_in(&self, topic: &str, queue_id: i32) -> bool {
        self.queues.contains(&(topic.to_owned(), queue_id))
    }
}

/// The sectors of one image that are neither old nor new, at positions that no checksum covers whole.
#[derive(Debug, Clone, Default)]
pub(super) struct Torn {
    /// Physical offsets of those in the log.
    log: BTreeSet<i64>,
    /// Files of queues with one.
    queues: BTreeSet<PathBuf>,
    /// Its effects.
    garbled: Garbled,
}

impl Torn {
    pub(super) fn of(report: &CrashReport) -> Self {
        let mut torn = Self::default();
        for (path, at) in &report.torn {
            let segment = path.strip_prefix(root().join("commitlog")).ok();
            let start = segment.and_then(|name| parse_segment_name(name.to_str()?));
            if let Some(start) = start {
                torn.log.insert(start as i64 + *at as i64);
            } else if path.starts_with(root().join("index")) {
                torn.garbled.is_index_torn = true;
            } else if path.starts_with(root().join("consumequeue")) {
                torn.queues.insert(path.clone());
            }
        }
        torn
    }

    /// Sectors that are torn here, or were before.
    pub(super) fn and(mut self, before: &Self) -> Self {
        self.log.extend(&before.log);
        self.queues.extend(before.queues.iter().cloned());
        self.garbled.extend(&before.garbled);
        self
    }

    /// Its other known effects.
    pub(super) fn with(mut self, garbled: Garbled) -> Self {
        self.garbled = garbled;
        self
    }

    pub(super) fn garbled(&self) -> &Garbled {
        &self.garbled
    }

    pub(super) fn is_any(&self) -> bool {
        !(self.log.is_empty() && self.queues.is_empty()) || self.garbled.is_index_torn
    }

    pub(super) fn has_queues(&self) -> bool {
        !self.queues.is_empty()
    }

    /// The message at the offset of this one, if a tear explains the difference.
    fn other(&self, appended: &Entry, found: &[u8]) -> Option<Entry> {
        let start = appended.physical_offset;
        let is_torn = |at: usize| {
            let at = start + at as i64;
            self.log.contains(&(at - at % SECTOR as i64))
        };
        let mut differing = appended.bytes.iter().zip(found).enumerate().filter(|(_, (a, b))| a != b);
        let is_explained = appended.bytes.len() == found.len() && differing.all(|(at, _)| is_torn(at));
        match (read_record(&appended.bytes, Check::Body), read_record(found, Check::Body)) {
            (Record::Message(appended), Record::Message(view)) if is_explained && appended.body() == view.body() => {
                Some(Entry::new(&view))
            }
            _ => None,
        }
    }

    /// The messages that an image holds in the place of the appended ones. The first `sure` messages must be as they were appended: `Err`
    /// returns the position of a sector that is not.
    pub(super) fn held(&self, appended: &Entries, found: &[Vec<u8>], sure: usize) -> Result<Found, i64> {
        let mut garbled = self.garbled.clone();
        let mut entries = Entries::new();
        for (number, (entry, bytes)) in appended.iter().zip(found).enumerate() {
            if entry.bytes == *bytes {
                entries.push(entry.clone());
                continue;
            }
            let other = if number < sure { None } else { self.other(entry, bytes) };
            let other = other.ok_or(entry.physical_offset)?;
            garbled.add(entry, &other);
            entries.push(Arc::new(other));
        }
        entries.extend(appended.iter().skip(found.len()).cloned());
        Ok(Found {
            count: found.len(),
            entries,
            garbled,
        })
    }
}
