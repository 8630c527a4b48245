//! Hash chains: from the newest item of a slot to the oldest.

use std::ops::Range;

use crate::error::Result;
use crate::format::{ITEM_SIZE, IndexGeometry, IndexHeader, IndexItem, SLOT_SIZE};
use crate::interrupt;
use crate::storage::MappedFile;

/// The chains that are followed at once. Each round reads one item of each chain, which the previous round has prefetched.
const AT_ONCE: usize = 32;
/// The items that are copied at once.
const COPIED_AT_ONCE: usize = 128;
/// The most slots of one window, which take 64 MiB. A broker's file has five million slots; a file of 2 GiB may have five hundred
/// million.
const MAX_WINDOW: u32 = 1 << 24;
/// The least slots of one window, which take little memory.
const MIN_WINDOW: u32 = 1 << 16;

/// The bytes of an item that was never put, or that was zeroed.
pub(super) const UNUSED: IndexItem = IndexItem {
    key_hash: 0,
    physical_offset: 0,
    time_diff: 0,
    previous: 0,
};

/// A record that may have a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// The start of the record.
    pub physical_offset: i64,
    /// The number of the key.
    pub key: usize,
}

/// A lookup of several keys.
#[derive(Debug, Clone, Copy)]
pub struct KeyLookup<'a> {
    /// The number and the hash of each.
    pub keys: &'a [(usize, i32)],
    /// The range of physical offsets of wanted records.
    pub range: &'a Range<i64>,
    /// The wanted store times; `None` for any.
    pub times: Option<&'a Range<i64>>,
    /// The most records for each key, the newest.
    pub most: usize,
}

impl KeyLookup<'_> {
    /// Returns false if the store time of the item is certainly not wanted.
    #[inline]
    fn may_be_in_time(&self, number: i32, item: &IndexItem, header: &IndexHeader) -> bool {
        self.times.is_none_or(|times| {
            let of_item = header.times(number, item);
            *of_item.start() < times.end && times.start <= *of_item.end()
        })
    }
}

/// The records that may have the keys of a lookup.
#[derive(Debug, Default)]
pub struct Candidates {
    /// The records, in no order.
    pub records: Vec<Candidate>,
    /// The number and the hash of each key for which the limit was reached, so that there may be more records.
    pub cut: Vec<(usize, i32)>,
}

/// A cursor over the chain of one key's slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chain {
    key_hash: i32,
    slot: u32,
    /// The number of the next item; 0 after the last one.
    number: i32,
    /// The number of the previous item in the chain.
    before: i32,
}

/// The result of following a chain to its next item.
#[derive(Debug)]
pub(super) enum Link {
    /// Not an item of this chain: the chain is broken here.
    Broken,
    /// An item of another key, or past the header's count.
    Other,
    /// An item of the key, with its number.
    OfKey(i32, IndexItem),
}

impl Chain {
    /// Starts at the newest item; `None` if the slot could not be read.
    #[inline]
    pub(super) fn new(mapped: &MappedFile, geometry: IndexGeometry, key_hash: i32) -> Option<Self> {
        let slot = geometry.slot_of(key_hash);
        Some(Self {
            key_hash,
            slot,
            number: slot_value(mapped, geometry, slot)?,
            before: i32::MAX,
        })
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.number == 0
    }

    /// Returns the number of the next item.
    pub(super) fn number(&self) -> i32 {
        self.number
    }

    /// Returns the next item; `None` if its number is out of range or it could not be read.
    #[inline]
    pub(super) fn next_item(&self, mapped: &MappedFile, geometry: IndexGeometry) -> Option<IndexItem> {
        item(mapped, geometry, self.number)
    }

    /// Prefetches the next item into the processor's cache.
    #[inline]
    fn touch(&self, mapped: &MappedFile, geometry: IndexGeometry) {
        let at = geometry.item_position(self.number.cast_unsigned()) as usize;
        mapped.touch(at..at + ITEM_SIZE);
    }

    /// Moves past the next item, which was read.
    #[inline]
    pub(super) fn follow(&mut self, item: Option<IndexItem>, geometry: IndexGeometry, header: &IndexHeader) -> Link {
        let number = self.number;
        // Links lead to older items of the same slot, so numbers must fall: this detects cycles and stray links.
        let in_order = number > 0 && number < self.before;
        let is_of_slot = |item: &IndexItem| geometry.slot_of(item.key_hash) == self.slot && *item != UNUSED;
        let Some(item) = item.filter(|item| in_order && is_of_slot(item)) else {
            return Link::Broken;
        };
        self.before = number;
        self.number = item.previous;
        if item.key_hash != self.key_hash || number >= header.index_count {
            return Link::Other;
        }
        if (header.begin_physical_offset..=header.end_physical_offset).contains(&item.physical_offset) {
            Link::OfKey(number, item)
        } else {
            Link::Broken
        }
    }
}

/// Follows the chain of one key from its newest item on, and passes the items of the key to `take` until it returns false. Returns
/// false if the chain is broken, or its slot cannot be read.
///
/// # Errors
/// Those of [`interrupt::check`].
#[inline]
pub(super) fn follow_one(
    mapped: &MappedFile,
    geometry: IndexGeometry,
    header: &IndexHeader,
    key_hash: i32,
    mut take: impl FnMut(i32, &IndexItem) -> bool,
) -> Result<bool> {
    let Some(mut chain) = Chain::new(mapped, geometry, key_hash) else {
        return Ok(false);
    };
    while !chain.is_at_end() {
        interrupt::check()?;
        match chain.follow(chain.next_item(mapped, geometry), geometry, header) {
            Link::Broken => return Ok(false),
            Link::Other => {}
            Link::OfKey(number, item) => {
                if !take(number, &item) {
                    break;
                }
            }
        }
    }
    Ok(true)
}

/// Returns the records to which the chain of a single key leads; `None` if the chain is broken.
///
/// # Errors
/// Those of [`interrupt::check`].
pub(super) fn find_one(
    mapped: &MappedFile,
    geometry: IndexGeometry,
    header: &IndexHeader,
    lookup: KeyLookup<'_>,
    (key, key_hash): (usize, i32),
) -> Result<Option<Candidates>> {
    let mut found = Candidates::default();
    let is_whole = follow_one(mapped, geometry, header, key_hash, |number, item| {
        if lookup.range.contains(&item.physical_offset) && lookup.may_be_in_time(number, item, header) {
            let physical_offset = item.physical_offset;
            found.records.push(Candidate { physical_offset, key });
        }
        found.records.len() < lookup.most
    })?;
    if found.records.len() >= lookup.most {
        found.cut.push((key, key_hash));
    }
    Ok(is_whole.then_some(found))
}

/// Returns the records to which the chains of those keys lead that pass `may_hold`, following many chains at once to overlap memory
/// accesses; `None` if a chain is broken.
///
/// # Errors
/// Those of [`interrupt::check`].
pub(super) fn find_many(
    mapped: &MappedFile,
    geometry: IndexGeometry,
    header: &IndexHeader,
    lookup: KeyLookup<'_>,
    may_hold: impl Fn(i32) -> bool,
) -> Result<Option<Candidates>> {
    let mut keys = lookup.keys.iter().filter(|(_, hash)| may_hold(*hash)).fuse();
    let mut found = Candidates::default();
    // Keys whose slots are prefetched.
    let mut next: Vec<(usize, i32)> = Vec::with_capacity(AT_ONCE);
    // Chains, each with the number of its key and the number of records still wanted. The next item of each is prefetched.
    let mut chains: Vec<(usize, usize, Chain)> = Vec::with_capacity(AT_ONCE);
    loop {
        interrupt::check()?;
        let mut is_whole = true;
        chains.retain_mut(|(key, left, chain)| {
            match chain.follow(chain.next_item(mapped, geometry), geometry, header) {
                Link::Broken => is_whole = false,
                Link::OfKey(number, item)
                    if lookup.range.contains(&item.physical_offset) && lookup.may_be_in_time(number, &item, header) =>
                {
                    let (physical_offset, key) = (item.physical_offset, *key);
                    found.records.push(Candidate { physical_offset, key });
                    *left -= 1;
                    if *left == 0 {
                        found.cut.push((key, chain.key_hash));
                    }
                }
                Link::Other | Link::OfKey(..) => {}
            }
            chain.touch(mapped, geometry);
            *left > 0 && !chain.is_at_end()
        });
        for (key, key_hash) in next.drain(..) {
            let Some(chain) = Chain::new(mapped, geometry, key_hash) else {
                return Ok(None);
            };
            if !chain.is_at_end() {
                chain.touch(mapped, geometry);
                chains.push((key, lookup.most, chain));
            }
        }
        if !is_whole {
            return Ok(None);
        }
        next.extend(keys.by_ref().take(AT_ONCE - chains.len()));
        for (_, key_hash) in &next {
            let at = geometry.slot_position(geometry.slot_of(*key_hash)) as usize;
            mapped.touch(at..at + SLOT_SIZE);
        }
        if next.is_empty() && chains.is_empty() {
            return Ok(Some(found));
        }
    }
}

#[inline]
pub(super) fn slot_value(mapped: &MappedFile, geometry: IndexGeometry, slot: u32) -> Option<i32> {
    let mut bytes = [0; 4];
    mapped
        .read(geometry.slot_position(slot) as usize, &mut bytes)
        .then(|| i32::from_be_bytes(bytes))
}

/// Returns the item with this number; `None` past the capacity of the file.
#[inline]
pub(super) fn item(mapped: &MappedFile, geometry: IndexGeometry, number: i32) -> Option<IndexItem> {
    let mut bytes = [0; ITEM_SIZE];
    let number = u32::try_from(number).ok().filter(|number| *number < geometry.items)?;
    mapped
        .read(geometry.item_position(number) as usize, &mut bytes)
        .then(|| IndexItem::decode(&bytes))
}

/// Adds the items with these numbers, up to the capacity of the file.
pub(super) fn add_items(mapped: &MappedFile, geometry: IndexGeometry, mut numbers: Range<i32>, into: &mut Vec<IndexItem>) {
    numbers.end = numbers.end.min(i32::try_from(geometry.items).unwrap_or(i32::MAX));
    let mut copy = [0; COPIED_AT_ONCE * ITEM_SIZE];
    while !numbers.is_empty() {
        let next = numbers.end.min(numbers.start.saturating_add(COPIED_AT_ONCE as i32));
        let position = geometry.item_position(numbers.start.cast_unsigned()) as usize;
        let copied = copy.get_mut(..(next - numbers.start) as usize * ITEM_SIZE);
        let Some(bytes) = copied.filter(|_| numbers.start >= 0) else {
            return;
        };
        if !mapped.read(position, bytes) {
            into.extend(numbers.map_while(|number| item(mapped, geometry, number)));
            return;
        }
        into.extend(bytes.as_chunks().0.iter().map(IndexItem::decode));
        numbers.start = next;
    }
}

/// Returns windows over the slots of a file. Each window needs one pass over the items before number `count`. So for few items a
/// window takes little memory, and for many items it has enough slots that few passes are needed.
pub(super) fn windows(geometry: IndexGeometry, count: i32) -> impl Iterator<Item = Range<u32>> {
    let size = count.unsigned_abs().saturating_mul(4).clamp(MIN_WINDOW, MAX_WINDOW);
    let firsts = (0..geometry.slots).step_by(size as usize);
    firsts.map(move |first| first..geometry.slots.min(first.saturating_add(size)))
}

/// The number of the newest item of each slot of a window, 0 for an empty slot.
#[derive(Debug)]
pub(super) struct NewestItems {
    first: u32,
    numbers: Vec<i32>,
}

impl NewestItems {
    /// Creates a window of empty slots.
    pub(super) fn none(window: Range<u32>) -> Self {
        Self {
            first: window.start,
            numbers: vec![0; window.len()],
        }
    }

    /// Sets the newest item of a slot, and returns the previous one; `None` if the slot is not in the window.
    pub(super) fn replace(&mut self, slot: u32, number: i32) -> Option<i32> {
        let newest = self.numbers.get_mut(slot.checked_sub(self.first)? as usize)?;
        Some(std::mem::replace(newest, number))
    }

    /// Returns the first slot of the window.
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// Returns the numbers, by slot.
    pub(super) fn numbers(&self) -> &[i32] {
        &self.numbers
    }
}
