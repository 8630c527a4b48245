//! The hits of many keys.

use std::cmp::Reverse;
use std::ops::Range;

use crate::format::MessageView;

/// Hits that are collected before those that are too many are dropped.
const AT_LEAST: usize = 1 << 20;

/// The bounds of the wanted hits of a key.
#[derive(Debug, Clone)]
pub struct HitBounds {
    /// The physical offsets at which their records start.
    pub physical: Range<i64>,
    /// Most messages for each key, the newest; `None` for all.
    pub limit: Option<usize>,
}

impl Default for HitBounds {
    /// Returns the limits that keep all hits.
    fn default() -> Self {
        Self {
            physical: 0..i64::MAX,
            limit: None,
        }
    }
}

/// The location of one message with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHit {
    /// Its queue.
    pub queue_id: i32,
    /// Its offset in that queue.
    pub queue_offset: i64,
    /// Its record's first byte.
    pub physical_offset: i64,
    /// Its record's bytes.
    pub store_size: i32,
}

impl KeyHit {
    #[inline]
    pub(crate) fn of(view: &MessageView<'_>) -> Self {
        Self {
            queue_id: view.queue_id(),
            queue_offset: view.queue_offset(),
            physical_offset: view.physical_offset(),
            store_size: view.size() as i32,
        }
    }
}

/// The hits so far, within the limit of each key.
#[derive(Debug)]
pub(crate) struct KeyMatches {
    /// With the number of their key.
    hits: Vec<(usize, KeyHit)>,
    limit: Option<usize>,
    /// The number of hits of each key at the last `keep_newest`. Empty without a limit, and for one key: all hits are of it.
    counts: Vec<usize>,
    /// The number of hits after which dropping the surplus pays.
    look_at: usize,
}

impl KeyMatches {
    pub(super) fn new(keys: usize, limit: Option<usize>) -> Self {
        Self {
            // Most keys have one message.
            hits: Vec::with_capacity(keys.min(AT_LEAST)),
            limit,
            counts: if limit.is_some() && keys > 1 {
                vec![0; keys]
            } else {
                Vec::new()
            },
            look_at: AT_LEAST,
        }
    }

    /// Drops surplus hits once `look_at` is reached; call it before each message.
    pub(super) fn drop_surplus(&mut self) {
        if self.limit.is_some() && self.hits.len() >= self.look_at {
            self.keep_newest();
            self.look_at = AT_LEAST.max(2 * self.hits.len());
        }
    }

    pub(super) fn push(&mut self, key: usize, hit: KeyHit) {
        self.hits.push((key, hit));
    }

    pub(crate) fn len(&self) -> usize {
        self.hits.len()
    }

    /// Removes all but the first `len` hits.
    pub(super) fn truncate(&mut self, len: usize) {
        self.hits.truncate(len);
    }

    /// Takes the hits of these keys, which ascend, in a stretch of the log back.
    pub(super) fn forget(&mut self, keys: &[(usize, i32)], stretch: &Range<i64>) {
        let is_asked_for = |number: &usize| keys.binary_search_by_key(number, |(key, _)| *key).is_ok();
        self.hits
            .retain(|(key, hit)| !(stretch.contains(&hit.physical_offset) && is_asked_for(key)));
    }

    /// Drops the hits at these physical offsets, which ascend.
    pub(super) fn drop_at(&mut self, offsets: &[i64]) {
        if !offsets.is_empty() {
            self.hits
                .retain(|(_, hit)| offsets.binary_search(&hit.physical_offset).is_err());
        }
    }

    /// Drops what is beyond the limit, and counts.
    pub(super) fn keep_newest(&mut self) {
        let Some(limit) = self.limit else { return };
        self.hits
            .sort_unstable_by_key(|(key, hit)| (*key, Reverse(hit.physical_offset)));
        self.hits.dedup_by_key(|(key, hit)| (*key, hit.physical_offset));
        if self.counts.is_empty() {
            self.hits.truncate(limit);
            return;
        }
        self.counts.fill(0);
        self.hits.retain(|(key, _)| {
            self.counts.get_mut(*key).is_some_and(|count| {
                *count += 1;
                *count <= limit
            })
        });
    }

    /// Returns true if older messages with the key are beyond the limit.
    pub(super) fn is_full(&self, key: usize) -> bool {
        let count = self.counts.get(key).copied().unwrap_or(self.hits.len());
        self.limit.is_some_and(|limit| count >= limit)
    }

    /// Drops the hits of the only key that are older than the newest `limit`. Returns where the oldest of the others starts, and true if any
    /// were dropped; `None` if there are fewer hits, and without a limit.
    pub(crate) fn cut(&mut self, limit: usize) -> Option<(i64, bool)> {
        self.limit?;
        self.keep_newest();
        let (_, oldest) = self.hits.get(limit.checked_sub(1)?)?;
        let (start, has_more) = (oldest.physical_offset, self.hits.len() > limit);
        self.hits.truncate(limit);
        Some((start, has_more))
    }

    /// Returns the hits of all keys, ascending by physical offset.
    pub(crate) fn into_ascending(mut self) -> Vec<KeyHit> {
        self.hits.sort_unstable_by_key(|(_, hit)| hit.physical_offset);
        self.hits.dedup_by_key(|(_, hit)| hit.physical_offset);
        self.hits.into_iter().map(|(_, hit)| hit).collect()
    }

    /// Returns the hits of each of `keys` keys.
    pub(super) fn finish(mut self, keys: usize) -> KeyHits {
        self.keep_newest();
        KeyHits::new(self.hits, keys)
    }
}

/// The messages with each key, ascending by physical offset.
#[derive(Debug)]
pub struct KeyHits {
    /// Key by key.
    hits: Vec<KeyHit>,
    /// Ends of the hits of each key.
    ends: Vec<usize>,
}

impl KeyHits {
    /// Hits with the number of their key. They come in the order of the log, but for damage and the ends of index files.
    fn new(mut found: Vec<(usize, KeyHit)>, keys: usize) -> Self {
        let order = |(key, hit): &(usize, KeyHit)| (hit.physical_offset, *key);
        if !found.is_sorted_by(|one, next| order(one) < order(next)) {
            found.sort_by_key(order);
            found.dedup();
        }
        // Where those of each key start, and then, as they are put there, where they end.
        let mut ends = vec![0; keys + 1];
        for (key, _) in &found {
            if let Some(count) = ends.get_mut(*key + 1) {
                *count += 1;
            }
        }
        for key in 0..keys {
            let start = ends.get(key).copied().unwrap_or_default();
            if let Some(count) = ends.get_mut(key + 1) {
                *count += start;
            }
        }
        let mut hits: Vec<KeyHit> = found.iter().map(|(_, hit)| *hit).collect();
        for (key, hit) in found {
            if let Some(end) = ends.get_mut(key)
                && let Some(slot) = hits.get_mut(*end)
            {
                *slot = hit;
                *end += 1;
            }
        }
        ends.truncate(keys);
        Self { hits, ends }
    }

    /// Returns the hits of the key with this number.
    pub fn of(&self, key: usize) -> &[KeyHit] {
        let before = key.checked_sub(1).and_then(|before| self.ends.get(before));
        let start = before.copied().unwrap_or_default();
        let end = self.ends.get(key).copied().unwrap_or(start);
        self.hits.get(start..end).unwrap_or_default()
    }

    /// Iterates over the hits of each key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[KeyHit]> {
        (0..self.ends.len()).map(|key| self.of(key))
    }

    /// Returns the hits of all keys, key by key.
    pub fn all(&self) -> &[KeyHit] {
        &self.hits
    }
}
