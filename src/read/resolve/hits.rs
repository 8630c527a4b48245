//! What was found for each of many keys.

use crate::format::MessageView;

/// Where one message with a key lies.
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
    pub(super) fn of(view: &MessageView<'_>) -> Self {
        Self {
            queue_id: view.queue_id(),
            queue_offset: view.queue_offset(),
            physical_offset: view.physical_offset(),
            store_size: view.size() as i32,
        }
    }
}

/// The messages with each key, ascending by physical offset.
#[derive(Debug)]
pub struct KeyHits {
    /// Key by key.
    hits: Vec<KeyHit>,
    /// Where those of each key end.
    ends: Vec<usize>,
}

impl KeyHits {
    /// Hits with the number of their key. They come in the order of the log, but for damage and the ends of index files.
    pub(super) fn new(mut found: Vec<(usize, KeyHit)>, keys: usize) -> Self {
        let place = |(key, hit): &(usize, KeyHit)| (hit.physical_offset, *key);
        if !found.is_sorted_by(|one, next| place(one) < place(next)) {
            found.sort_by_key(place);
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
                && let Some(place) = hits.get_mut(*end)
            {
                *place = hit;
                *end += 1;
            }
        }
        ends.truncate(keys);
        Self { hits, ends }
    }

    /// Those of the key with this number.
    pub fn of(&self, key: usize) -> &[KeyHit] {
        let before = key.checked_sub(1).and_then(|before| self.ends.get(before));
        let start = before.copied().unwrap_or_default();
        let end = self.ends.get(key).copied().unwrap_or(start);
        self.hits.get(start..end).unwrap_or_default()
    }

    /// Those of each key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[KeyHit]> {
        (0..self.ends.len()).map(|key| self.of(key))
    }

    /// Those of all keys, key by key.
    pub fn all(&self) -> &[KeyHit] {
        &self.hits
    }
}
