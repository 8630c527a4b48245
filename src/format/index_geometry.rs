use std::ops::Range;

use super::index::{INDEX_HEADER_SIZE, ITEM_SIZE, IndexGeometry, IndexHeader, IndexItem, SLOT_SIZE};

/// What the bytes of an index file say about its geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeometryGuess {
    /// Only this one fits, or it is RocketMQ's default and fits.
    One(IndexGeometry),
    /// More than one fits: ask for the options.
    Several,
    /// None fits: no index file, or one that is damaged or being written.
    None,
    /// It holds no key yet, so that every geometry of its length fits.
    Empty,
}

/// Items that are checked before a file of a broker's default length counts as one of a broker.
const SAMPLES: usize = 256;
/// Geometries that are checked in full. A file with real keys leaves one; only zeros in place of keys leave more.
const MAX_FULL_CHECKS: usize = 8;
const ITEM_WORDS: usize = ITEM_SIZE / SLOT_SIZE;

/// Finds the geometry of a whole index file from its content. A geometry fits if every used slot holds the number of an item
/// whose hash belongs into that slot, links lead to older items of the same slot, the header counts the used slots, and
/// everything else is zero. RocketMQ's default is tried first (docs/FORMAT.md, section Index).
pub fn detect_index_geometry(file: &[u8]) -> GeometryGuess {
    detect_sparse_index_geometry(file, std::slice::from_ref(&(0..file.len())))
}

/// As [`detect_index_geometry`], of a file in which every byte outside the ranges `written` (ascending) is zero: apart from a few words,
/// no other is read. A file of 2 GiB may hold one page.
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
    let parts = parts_in_words(written, words.len());
    let words = Words { words, parts: &parts };
    match (header.index_count > 1, words.used(0..words.len()).next_back()) {
        (false, None) => GeometryGuess::Empty,
        (true, Some(last)) => search(content, words, last + 1, header),
        _ => GeometryGuess::None,
    }
}

/// The words that stand in these ranges of a file, `count` words after its header.
fn parts_in_words(written: &[Range<usize>], count: usize) -> Vec<Range<usize>> {
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

/// What follows the header, as slots are: every word outside the parts is zero.
#[derive(Clone, Copy)]
struct Words<'a> {
    words: &'a [[u8; SLOT_SIZE]],
    parts: &'a [Range<usize>],
}

impl<'a> Words<'a> {
    fn len(self) -> usize {
        self.words.len()
    }

    /// The numbers of those in `range` that are not zero, ascending.
    fn used(self, range: Range<usize>) -> impl DoubleEndedIterator<Item = usize> + 'a {
        let first = self.parts.partition_point(|part| part.end <= range.start);
        let after = self.parts.partition_point(|part| part.start < range.end);
        let parts = self.parts.get(first..after).unwrap_or_default();
        let numbers = parts
            .iter()
            .flat_map(move |part| part.start.max(range.start)..part.end.min(range.end));
        numbers.filter(move |number| self.words.get(*number).is_some_and(|word| *word != [0; SLOT_SIZE]))
    }
}

/// Whether an index file can have this geometry: its length is right, and items here and there hang in the slots of their keys.
pub fn index_admits(file: &[u8], geometry: IndexGeometry) -> bool {
    let Some((header, content)) = file.split_first_chunk::<INDEX_HEADER_SIZE>() else {
        return false;
    };
    let header = IndexHeader::decode(header);
    file.len() as u64 == geometry.file_len()
        && (header.index_count <= 1 || Content::of(content, header, geometry).is_some_and(|content| content.sample_fits()))
}

/// `words` are slots, then items of five words; `written` of them reach to the last that is not zero.
fn search(content: &[u8], words: Words<'_>, written: usize, header: IndexHeader) -> GeometryGuess {
    let fits = |slots: usize| {
        let geometry = geometry(words.len(), slots)?;
        Content::of(content, header, geometry)?.fits(words).then_some(geometry)
    };
    let default_slots = IndexGeometry::ROCKETMQ.slots as usize;
    let used_words = ITEM_WORDS * header.index_count as usize;
    // The items start where the last of them covers the last written word, and leave room for all of them.
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

    // Where all items are zeros one geometry fits as well as the next, and two are enough to say so.
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

/// The content of an index file, divided by one geometry.
struct Content<'a> {
    geometry: IndexGeometry,
    header: IndexHeader,
    slots: &'a [[u8; SLOT_SIZE]],
    /// Item 0 and those in use.
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

    /// An item that a put can have written as this number, in a slot that leads to it.
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

    /// Every chain ends once, so that there are as many ends as used slots.
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
