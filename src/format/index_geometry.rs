use std::ops::Range;

use super::index::{INDEX_HEADER_SIZE, ITEM_SIZE, IndexGeometry, IndexHeader, IndexItem, SLOT_SIZE};

/// The geometry of an index file as far as its content determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeometryGuess {
    /// Only this one fits, or it is RocketMQ's default and fits.
    One(IndexGeometry),
    /// More than one fits: ask for the options.
    Several,
    /// No geometry fits: the file is not an index file, is damaged, or is being written.
    None,
    /// The file has no keys yet, so every geometry of its length fits.
    Empty,
}

/// The number of items that are checked before a file of a broker's default length is taken for a broker's.
const SAMPLES: usize = 256;
/// The most geometries that are checked in full. A file with real keys leaves one; only zeros instead of keys leave more.
const MAX_FULL_CHECKS: usize = 8;
const ITEM_WORDS: usize = ITEM_SIZE / SLOT_SIZE;

/// Finds the geometry of a whole index file from its content. A geometry fits if every used slot holds the number of an item
/// whose hash belongs into that slot, links lead to older items of the same slot, the header counts the used slots, and
/// everything else is zero. RocketMQ's default is tried first (docs/FORMAT.md, section Index).
pub fn detect_index_geometry(file: &[u8]) -> GeometryGuess {
    detect_sparse_index_geometry(file, std::slice::from_ref(&(0..file.len())))
}

/// Finds the geometry as [`detect_index_geometry`] does, of a sparse file in which every byte outside the ascending ranges
/// `written` is zero. It reads only these ranges and a few words, because a file of 2 GiB may have one written page.
pub fn detect_sparse_index_geometry(file: &[u8], written: &[Range<usize>]) -> GeometryGuess {
    let Some((header, content)) = file.split_first_chunk::<INDEX_HEADER_SIZE>() else {
        return GeometryGuess::None;
    };
    let header = IndexHeader::decode(header);
    if file.len() as u64 == IndexGeometry::ROCKETMQ.file_len()
        && Content::of(content, header, IndexGeometry::ROCKETMQ).is_some_and(|content| content.sample_fits())
    {
        return GeometryGuess::One(IndexGeometry::ROCKETMQ);
    }
    let (words, []) = content.as_chunks::<SLOT_SIZE>() else {
        return GeometryGuess::None;
    };
    let written = written_words(written, words.len());
    let words = Words {
        words,
        written: &written,
    };
    match (header.index_count > 1, words.used(0..words.len()).next_back()) {
        (false, None) => GeometryGuess::Empty,
        (true, Some(last)) => search(content, words, last + 1, header),
        _ => GeometryGuess::None,
    }
}

/// Returns the words of these byte ranges, as ranges of word numbers after the header.
fn written_words(written: &[Range<usize>], count: usize) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::with_capacity(written.len());
    for part in written {
        let first = part.start.saturating_sub(INDEX_HEADER_SIZE) / SLOT_SIZE;
        let end = part.end.saturating_sub(INDEX_HEADER_SIZE).div_ceil(SLOT_SIZE).min(count);
        let first = first.max(parts.last().map_or(0, |before| before.end));
        if first < end {
            parts.push(first..end);
        }
    }
    parts
}

/// The words after the header, each of the size of a slot. Every word outside `written` is zero.
#[derive(Clone, Copy)]
struct Words<'a> {
    words: &'a [[u8; SLOT_SIZE]],
    written: &'a [Range<usize>],
}

impl<'a> Words<'a> {
    fn len(self) -> usize {
        self.words.len()
    }

    /// Returns the numbers of the non-zero words in `range`, ascending.
    fn used(self, range: Range<usize>) -> impl DoubleEndedIterator<Item = usize> + 'a {
        let first = self.written.partition_point(|written| written.end <= range.start);
        let after = self.written.partition_point(|written| written.start < range.end);
        let written = self.written.get(first..after).unwrap_or_default();
        let numbers = written
            .iter()
            .flat_map(move |written| written.start.max(range.start)..written.end.min(range.end));
        numbers.filter(move |number| self.words.get(*number).is_some_and(|word| *word != [0; SLOT_SIZE]))
    }
}

/// Returns true if an index file can have this geometry: its length matches, and a sample of its items is in the chains of their
/// slots.
pub fn index_admits(file: &[u8], geometry: IndexGeometry) -> bool {
    let Some((header, content)) = file.split_first_chunk::<INDEX_HEADER_SIZE>() else {
        return false;
    };
    let header = IndexHeader::decode(header);
    file.len() as u64 == geometry.file_len()
        && (header.index_count <= 1 || Content::of(content, header, geometry).is_some_and(|content| content.sample_fits()))
}

/// Searches for the geometry whose slots and items fit. `words` are the slots, then the items of five words each; the first
/// `written` words include all non-zero ones.
fn search(content: &[u8], words: Words<'_>, written: usize, header: IndexHeader) -> GeometryGuess {
    let fits = |slots: usize| {
        let geometry = geometry(words.len(), slots)?;
        Content::of(content, header, geometry)?.fits(words).then_some(geometry)
    };
    let default_slots = IndexGeometry::ROCKETMQ.slots as usize;
    let used_words = ITEM_WORDS * header.index_count as usize;
    // The items start so early that the last one covers the last non-zero word, and so that all items fit.
    let least = written.saturating_sub(used_words).max(1);
    let least = least + (words.len() + ITEM_WORDS - least % ITEM_WORDS) % ITEM_WORDS;
    let Some(most) = words.len().checked_sub(used_words) else {
        return GeometryGuess::None;
    };
    if (least..=most).contains(&default_slots)
        && let Some(geometry) = fits(default_slots)
    {
        return GeometryGuess::One(geometry);
    }

    // If all items are zeros, every geometry fits, and two are enough to prove that.
    let most = most.min(written + 2 * ITEM_WORDS);
    let mut found = None;
    let mut full_checks = 0;
    let mut counted = 0;
    let mut used_slots = 0;
    for slots in (least..=most).step_by(ITEM_WORDS) {
        used_slots += words.used(counted..slots).count();
        counted = slots;
        if used_slots > header.slot_count.max(0) as usize {
            break;
        }
        let mut item_0 = words.used(slots..slots + ITEM_WORDS);
        if used_slots as i64 != i64::from(header.slot_count) || item_0.next().is_some() {
            continue;
        }
        full_checks += 1;
        let another = fits(slots).is_some_and(|geometry| found.replace(geometry).is_some());
        if another || full_checks > MAX_FULL_CHECKS {
            return GeometryGuess::Several;
        }
    }
    found.map_or(GeometryGuess::None, GeometryGuess::One)
}

fn geometry(words: usize, slots: usize) -> Option<IndexGeometry> {
    let items = words.checked_sub(slots).filter(|words| words % ITEM_WORDS == 0)? / ITEM_WORDS;
    Some(IndexGeometry {
        slots: u32::try_from(slots).ok()?,
        items: u32::try_from(items).ok()?,
    })
}

/// The content of an index file, divided into slots and items by one geometry.
struct Content<'a> {
    geometry: IndexGeometry,
    header: IndexHeader,
    slots: &'a [[u8; SLOT_SIZE]],
    /// Item 0, which is never used, and the items in use.
    items: &'a [[u8; ITEM_SIZE]],
}

impl<'a> Content<'a> {
    fn of(content: &'a [u8], header: IndexHeader, geometry: IndexGeometry) -> Option<Self> {
        let (slots, items) = content.split_at_checked(geometry.slots as usize * SLOT_SIZE)?;
        let items = items.as_chunks().0.get(..header.index_count as usize)?;
        Some(Self {
            geometry,
            header,
            slots: slots.as_chunks().0,
            items,
        })
    }

    fn item(&self, number: i32) -> Option<IndexItem> {
        let index = usize::try_from(number).ok()?;
        self.items.get(index).map(IndexItem::decode)
    }

    fn newest_in_slot_of(&self, item: &IndexItem) -> i32 {
        let slot = self.slots.get(self.geometry.slot_of(item.key_hash) as usize);
        slot.copied().map_or(0, i32::from_be_bytes)
    }

    /// Returns true if a put can have written the item under this number, and its slot leads to it.
    fn is_linked(&self, number: i32, item: &IndexItem) -> bool {
        item.key_hash >= 0
            && item.time_diff >= 0
            && (0..number).contains(&item.previous)
            && self.newest_in_slot_of(item) >= number
    }

    fn sample_fits(&self) -> bool {
        let step = self.items.len().div_ceil(SAMPLES).max(1);
        let numbers = (1..self.header.index_count).rev().step_by(step);
        self.header.index_count > 1
            && numbers
                .into_iter()
                .all(|number| self.item(number).is_some_and(|item| self.is_linked(number, &item)))
    }

    fn fits(&self, words: Words<'_>) -> bool {
        self.items.first() == Some(&[0; ITEM_SIZE]) && self.slots_fit(words) && self.items_fit()
    }

    fn slots_fit(&self, words: Words<'_>) -> bool {
        let mut used = 0;
        let fit = words.used(0..self.slots.len()).all(|slot| {
            used += 1;
            let newest = self.slots.get(slot).copied().map_or(0, i32::from_be_bytes);
            let belongs = |item: IndexItem| item.key_hash >= 0 && self.geometry.slot_of(item.key_hash) as usize == slot;
            newest > 0 && self.item(newest).is_some_and(belongs)
        });
        fit && used == self.header.slot_count
    }

    /// Returns true if every item is in the chain of its slot. Each chain has one end, so there must be as many ends as used slots.
    fn items_fit(&self) -> bool {
        let mut ends = 0;
        let fit = (1..self.header.index_count).all(|number| {
            let Some(item) = self.item(number).filter(|item| self.is_linked(number, item)) else {
                return false;
            };
            ends += i32::from(item.previous == 0);
            let slot = self.geometry.slot_of(item.key_hash);
            let same_slot = |older: IndexItem| self.geometry.slot_of(older.key_hash) == slot;
            item.previous == 0 || self.item(item.previous).is_some_and(same_slot)
        });
        fit && ends == self.header.slot_count
    }
}
