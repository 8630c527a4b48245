//! The keys of stretches of the log that no index serves, kept in memory once they were walked: the next keys are looked for there.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::format::{DispatchRequest, MessageView};
use crate::log::{Candidate, Candidates, KeyLookup};
use crate::sync::lock;

/// Keys that are kept at most, of all stretches: 256 MiB.
const MOST_KEYS: usize = 1 << 24;
/// Keys of a part, about, so that no more than 32 MiB are copied or sorted at once.
const PART_KEYS: usize = 1 << 21;

/// The keys of a part of a stretch, as an index file has them.
#[derive(Debug)]
pub(super) struct WalkedKeys {
    /// From the end of the part before it, or where the walk began, to the end of the last message.
    range: Range<i64>,
    /// Hash and physical offset of each key, ascending.
    keys: Vec<(i32, i64)>,
}

impl WalkedKeys {
    fn new(start: i64) -> Self {
        Self {
            range: start..start,
            keys: Vec::new(),
        }
    }

    /// Returns the end of the walked part.
    pub(super) fn end(&self) -> i64 {
        self.range.end
    }

    /// Returns the candidates, as [`IndexService::find_all`](crate::log::IndexService::find_all).
    pub(super) fn find_all(&self, lookup: KeyLookup<'_>) -> Candidates {
        let mut found = Candidates::default();
        for (key, hash) in lookup.keys {
            let end = self.keys.partition_point(|known| *known < (*hash, lookup.range.end));
            let newest_first = self.keys.iter().take(end).rev();
            let of_key = newest_first.take_while(|known| **known >= (*hash, lookup.range.start));
            let before = found.records.len();
            found
                .records
                .extend(of_key.take(lookup.most).map(|(_, physical_offset)| Candidate {
                    physical_offset: *physical_offset,
                    key: *key,
                }));
            if found.records.len() - before == lookup.most {
                found.cut.push((*key, *hash));
            }
        }
        found
    }

    #[expect(
        clippy::stable_sort_primitive,
        reason = "fast where two parts that are in order come one after the other"
    )]
    fn sort(&mut self) {
        self.keys.sort();
    }
}

/// The keys that a walk has met, within the memory budget.
#[derive(Debug)]
pub(super) struct Walk {
    /// One after the other.
    parts: Vec<WalkedKeys>,
    last: WalkedKeys,
    /// The number of keys that may still be kept.
    room: usize,
}

impl Walk {
    /// Takes the keys of the next message.
    pub(super) fn add(&mut self, view: &MessageView<'_>) {
        if self.room == 0 {
            return;
        }
        if self.last.keys.len() >= PART_KEYS {
            self.last.keys.shrink_to_fit();
            let next = WalkedKeys::new(self.last.end());
            self.parts.push(std::mem::replace(&mut self.last, next));
        }
        let (last, offset) = (&mut self.last, view.physical_offset());
        let before = last.keys.len();
        let hashes = DispatchRequest::of(view).index_key_hashes(false);
        last.keys.extend(hashes.map(|hash| (hash, offset)));
        if let Some(room) = self.room.checked_sub(last.keys.len() - before) {
            (self.room, last.range.end) = (room, view.end());
        } else {
            // All keys of a message, or none.
            last.keys.truncate(before);
            self.room = 0;
        }
    }
}

/// The parts that were walked. Each begins at another offset.
#[derive(Debug, Default)]
pub(super) struct WalkedStretches(Mutex<Vec<Arc<WalkedKeys>>>);

impl WalkedStretches {
    /// Returns the parts of a stretch from its start on, one after the other, up to where it was walked.
    pub(super) fn parts_of(&self, range: &Range<i64>) -> Vec<Arc<WalkedKeys>> {
        let known = lock(&self.0);
        let mut parts: Vec<Arc<WalkedKeys>> = Vec::new();
        let mut at = range.start;
        while at < range.end
            && let Some(part) = known.iter().find(|part| part.range.contains(&at))
        {
            at = part.end();
            parts.push(part.clone());
        }
        parts
    }

    /// Starts a walk from `start` on, in a log that begins at `log_start`: what has expired takes no room.
    pub(super) fn walk_from(&self, start: i64, log_start: i64) -> Walk {
        let mut known = lock(&self.0);
        known.retain(|known| known.end() > log_start);
        Walk {
            parts: Vec::new(),
            last: WalkedKeys::new(start),
            room: MOST_KEYS.saturating_sub(count(&known)),
        }
    }

    /// Keeps the keys of a walk that has met no damage.
    pub(super) fn keep(&self, walk: Walk) {
        for mut part in walk.parts.into_iter().chain([walk.last]) {
            part.sort();
            let mut known = lock(&self.0);
            known.retain(|known| !part.range.contains(&known.range.start));
            let is_before =
                |known: &Arc<WalkedKeys>| known.end() == part.range.start && known.keys.len() + part.keys.len() <= PART_KEYS;
            if let Some(before) = known.iter().position(is_before) {
                let before = known.swap_remove(before);
                part.range.start = before.range.start;
                part.keys.splice(..0, before.keys.iter().copied());
                part.sort();
            }
            // Other walks may have kept theirs since.
            if !part.range.is_empty() && count(&known) + part.keys.len() <= MOST_KEYS {
                part.keys.shrink_to_fit();
                known.push(Arc::new(part));
            }
        }
    }
}

fn count(known: &[Arc<WalkedKeys>]) -> usize {
    known.iter().map(|known| known.keys.len()).sum()
}
