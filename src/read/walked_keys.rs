//! The keys of stretches of the log that no index serves, kept in memory once they were walked: the next keys are looked for there.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::format::{DispatchRequest, MessageView, index_key_hash};
use crate::log::{Candidate, Candidates, KeyLookup};

/// Keys that are kept at most, of all stretches: 256 MiB.
const MOST_KEYS: usize = 1 << 24;

/// The keys of one stretch, as an index file has them.
#[derive(Debug, Clone)]
pub(super) struct WalkedKeys {
    /// From where the walk began to the end of the last message.
    range: Range<i64>,
    /// Hash and physical offset of each key, ascending.
    keys: Vec<(i32, i64)>,
}

impl WalkedKeys {
    /// None yet, of a stretch that is walked from `start` on.
    pub(super) fn new(start: i64) -> Self {
        Self {
            range: start..start,
            keys: Vec::new(),
        }
    }

    /// Up to where the stretch was walked.
    pub(super) fn end(&self) -> i64 {
        self.range.end
    }

    /// Takes the keys of the next message. Of a stretch that has too many to be kept, it takes no more.
    pub(super) fn add(&mut self, view: &MessageView<'_>) {
        self.range.end = view.end();
        if self.keys.len() <= MOST_KEYS {
            let (topic, offset) = (view.topic(), view.physical_offset());
            let keys = DispatchRequest::of(view).index_keys(false);
            self.keys.extend(keys.map(|key| (index_key_hash(&topic, &key), offset)));
        }
    }

    /// As [`IndexService::find_all`](crate::log::IndexService::find_all).
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
}

/// The stretches that were walked. Each begins at another place.
#[derive(Debug, Default)]
pub(super) struct WalkedStretches(Mutex<Vec<Arc<WalkedKeys>>>);

impl WalkedStretches {
    /// What is known of the first part of this stretch.
    pub(super) fn of(&self, range: &Range<i64>) -> Option<Arc<WalkedKeys>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|known| known.range.contains(&range.start)).cloned()
    }

    /// Keeps the keys of a stretch, if there is room for them. The walk has met no damage.
    pub(super) fn keep(&self, mut walked: WalkedKeys) {
        if walked.keys.len() > MOST_KEYS {
            return;
        }
        #[expect(
            clippy::stable_sort_primitive,
            reason = "fast where what was known before is in order already"
        )]
        walked.keys.sort();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|known| !walked.range.contains(&known.range.start));
        if walked.keys.len() + known.iter().map(|known| known.keys.len()).sum::<usize>() <= MOST_KEYS {
            known.push(Arc::new(walked));
        }
    }
}
