//! An index file: a hash table from message keys to physical offsets, with chaining, newest first.
//!
//! | at | content |
//! |-|-|
//! | 0 | header, 40 bytes |
//! | 40 | one 4-byte slot per hash value modulo the number of slots: number of the newest item of its chain, 0 = none |
//! | 40 + 4 slots | items of 20 bytes, numbered from 0; item 0 is never used |
//!
//! Also the integrity check of its chains, and the chain of one key.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::{convert, io};

use crate::error::{Error, Result};
use crate::format::{
    GeometryGuess, INDEX_HEADER_SIZE, ITEM_SIZE, IndexGeometry, IndexHeader, IndexItem, SLOT_SIZE, detect_sparse_index_geometry,
    index_admits, parse_index_name,
};
use crate::interrupt;
use crate::log::index::chain::{Chain, Link, NewestItems, UNUSED, add_items, item, slot_value, windows};
use crate::log::index::hash_filter::{FilterSlot, HashFilter};
use crate::storage::{Access, DirEntry, EntryKind, Env, File, MappedFile, MappingPool, OpenFile, PooledFile};

/// The bytes that are copied at once.
const PIECE: usize = 64 * 1024;
/// The items that are copied at once.
const AT_ONCE: i32 = 4096;
/// An index file on disk.
#[derive(Debug)]
pub struct IndexFile {
    env: Arc<dyn Env>,
    file: Arc<PooledFile>,
    len: u64,
    pool: Arc<MappingPool>,
    header: RwLock<IndexHeader>,
    guess: CachedCheck<GeometryGuess>,
    whole: CachedCheck<bool>,
    admits: CachedCheck<bool>,
    ends: CachedCheck<bool>,
    is_own: AtomicBool,
    has_salvage_records: CachedCheck<bool>,
    filter: FilterSlot,
    /// The geometry once the file was found usable, which is final.
    pub(super) usable: OnceLock<IndexGeometry>,
}

/// The result of a check of the file, cached with the header at the time of the check. A good result is final. A bad one may come
/// from an unfinished put: the check is repeated when the header has changed.
#[derive(Debug)]
struct CachedCheck<T>(Mutex<Option<(IndexHeader, T)>>);

impl<T> Default for CachedCheck<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Copy> CachedCheck<T> {
    fn get(&self, header: IndexHeader, is_final: impl Fn(T) -> bool, check: impl FnOnce() -> Result<T>) -> Result<T> {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, result)) = known.filter(|(checked, result)| *checked == header || is_final(*result)) {
            return Ok(result);
        }
        let result = check()?;
        self.set(header, result);
        Ok(result)
    }

    fn set(&self, header: IndexHeader, result: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((header, result));
    }
}

impl IndexFile {
    /// Reads the header of the file at `path`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open(env: Arc<dyn Env>, path: PathBuf, len: u64) -> Result<Self> {
        let file = env
            .open(&path, Access::Read)
            .map_err(|error| Error::io("open", &path, error))?;
        let mut bytes = [0; INDEX_HEADER_SIZE];
        let read = file
            .read_full_at(&mut bytes, 0)
            .map_err(|error| Error::io("read", &path, error))?;
        let header = if read == INDEX_HEADER_SIZE {
            IndexHeader::decode(&bytes)
        } else {
            IndexHeader::rolled_from(None)
        };
        Ok(Self {
            env,
            file: Arc::new(PooledFile::new(path, 0, len)),
            len,
            pool: MappingPool::shared(),
            header: RwLock::new(header),
            guess: CachedCheck::default(),
            whole: CachedCheck::default(),
            admits: CachedCheck::default(),
            ends: CachedCheck::default(),
            is_own: AtomicBool::default(),
            has_salvage_records: CachedCheck::default(),
            filter: FilterSlot::default(),
            usable: OnceLock::new(),
        })
    }

    /// Declares that this process creates the file with the requested geometry: its items need no check.
    pub(super) fn mark_whole(&self) {
        self.admits.set(self.header(), true);
        self.ends.set(self.header(), true);
        self.is_own.store(true, Ordering::Relaxed);
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns the size of the file.
    pub fn file_len(&self) -> u64 {
        self.len
    }

    /// Returns the header as of the open, of the last read, or of the last put of this process's writer.
    pub fn header(&self) -> IndexHeader {
        *self.header.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_header(&self, header: IndexHeader) {
        *self.header.write().unwrap_or_else(PoisonError::into_inner) = header;
    }

    /// Reads the header again, since another process may write to the file. Returns true if it has changed.
    pub(crate) fn reread_header(&self) -> Result<bool> {
        let Some(mapped) = self.mapped()? else { return Ok(false) };
        let mut bytes = [0; INDEX_HEADER_SIZE];
        // The lock is held while the file is read. A writer of this process sets the header after it has written it, so that a torn
        // header read here is replaced.
        let mut header = self.header.write().unwrap_or_else(PoisonError::into_inner);
        if !mapped.read(0, &mut bytes) {
            return Ok(false);
        }
        let before = std::mem::replace(&mut *header, IndexHeader::decode(&bytes));
        Ok(before != *header)
    }

    /// Returns true if the file in this mapping still begins as it did when its header was read: another process may have cut or zeroed
    /// it since. A writer only adds items.
    pub(super) fn begins_with(mapped: &MappedFile, header: &IndexHeader) -> bool {
        let mut bytes = [0; INDEX_HEADER_SIZE];
        let is_read = mapped.read(0, &mut bytes);
        let now = IndexHeader::decode(&bytes);
        is_read && now.begin_physical_offset == header.begin_physical_offset && now.index_count >= header.index_count
    }

    /// Returns the geometry that the file's own bytes admit.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn guess_geometry(&self) -> Result<GeometryGuess> {
        let is_final = |guess| matches!(guess, GeometryGuess::One(_));
        self.guess.get(self.header(), is_final, || {
            let Some(mapped) = self.mapped()? else {
                return Ok(GeometryGuess::None);
            };
            let Some(opened) = self.open_unmapped()? else {
                return Ok(GeometryGuess::None);
            };
            let written = opened.written().iter();
            let written: Vec<_> = written.map(|part| part.start as usize..part.end as usize).collect();
            let file = mapped.bytes(0..mapped.len() as usize);
            Ok(file.map_or(GeometryGuess::None, |file| detect_sparse_index_geometry(file, &written)))
        })
    }

    /// Returns true if the file can have this geometry.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn admits(&self, geometry: IndexGeometry) -> Result<bool> {
        self.admits.get(self.header(), convert::identity, || {
            let mapped = self.mapped()?;
            let file = mapped.as_ref().and_then(|mapped| mapped.bytes(0..mapped.len() as usize));
            Ok(file.is_some_and(|file| index_admits(file, geometry)))
        })
    }

    /// Returns true if the header matches the items: the first and the last have its offsets, and unless a process appends to the
    /// file (`grows`), no item follows the last.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn has_own_ends(&self, geometry: IndexGeometry, grows: bool) -> Result<bool> {
        let header = self.header();
        self.ends.get(header, convert::identity, || {
            let Some(mapped) = self.mapped()? else { return Ok(false) };
            let leads_to = |number: i32| item(&mapped, geometry, number).map(|item| item.physical_offset);
            let is_last =
                item(&mapped, geometry, header.index_count).is_none_or(|next| next == IndexItem::decode(&[0; ITEM_SIZE]));
            Ok(leads_to(1) == Some(header.begin_physical_offset)
                && leads_to(header.index_count - 1) == Some(header.end_physical_offset)
                && (grows || is_last))
        })
    }

    /// Returns true if this process creates the file, so that it belongs to this log.
    pub(super) fn is_own(&self) -> bool {
        self.is_own.load(Ordering::Relaxed)
    }

    /// Returns true if the file contains a salvage record. `check` does that, once for each header.
    pub(super) fn has_salvage_records(&self, header: IndexHeader, check: impl FnOnce() -> Result<bool>) -> Result<bool> {
        self.has_salvage_records.get(header, convert::identity, check)
    }

    /// Returns the Bloom filter of a full file for a lookup of `keys` more keys; `None` until it is worth building. `budget` is the
    /// remaining memory budget of all filters, in bytes.
    pub(super) fn filter(&self, geometry: IndexGeometry, keys: usize, budget: &AtomicU64) -> Result<Option<&HashFilter>> {
        let items = self.header().items().unsigned_abs();
        self.filter.get(keys, items, || self.make_filter(geometry, budget))
    }

    /// Builds the filter of a full file; `None` if an item cannot be reached, because a lookup of its key must meet the broken
    /// chain.
    fn make_filter(&self, geometry: IndexGeometry, budget: &AtomicU64) -> Result<Option<HashFilter>> {
        let header = self.header();
        let items = header.items().unsigned_abs();
        let take = |left: u64| left.checked_sub(HashFilter::bytes(items));
        if !self.is_whole(geometry)? || budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return Ok(None);
        }
        let mapped = self.map()?;
        let mut filter = HashFilter::new(items);
        for number in 1..header.index_count {
            interrupt::check()?;
            if let Some(item) = item(&mapped, geometry, number) {
                filter.insert(item.key_hash);
            }
        }
        Ok(Some(filter))
    }

    /// Returns true if every item can be reached from its slot, so that no crash has lost a page of this file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn is_whole(&self, geometry: IndexGeometry) -> Result<bool> {
        let header = self.header();
        self.whole.get(header, convert::identity, || self.check_whole(geometry))
    }

    /// Returns the item with this number; `None` past the capacity of the file.
    pub(super) fn item(&self, geometry: IndexGeometry, number: i32) -> Result<Option<IndexItem>> {
        Ok(item(self.map()?.as_ref(), geometry, number))
    }

    /// Reads the items with these numbers, up to the capacity of the file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn items(&self, geometry: IndexGeometry, numbers: Range<i32>, into: &mut Vec<IndexItem>) -> Result<()> {
        let mapped = self.map()?;
        into.clear();
        add_items(&mapped, geometry, numbers, into);
        Ok(())
    }

    /// Returns the number of the first item, before number `count`, whose message starts at or after `offset`. Offsets never fall.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn first_at(&self, geometry: IndexGeometry, count: i32, offset: i64) -> Result<i32> {
        let (mut from, mut to) = (1, count);
        while from < to {
            let middle = from + (to - from) / 2;
            if self.item(geometry, middle)?.is_some_and(|item| item.physical_offset < offset) {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        Ok(from)
    }

    /// Returns the number of the next item if only the items of messages before `log_end` existed. Offsets never fall.
    pub(super) fn count_before(&self, geometry: IndexGeometry, log_end: i64) -> Result<i32> {
        let header = self.header();
        let mut count = header.index_count;
        if header.end_physical_offset >= log_end {
            while count > 1
                && self
                    .item(geometry, count - 1)?
                    .is_none_or(|item| item.physical_offset >= log_end)
            {
                count -= 1;
            }
        }
        Ok(count)
    }

    /// Returns the newest item of each slot of a window, among the items before number `count`.
    pub(super) fn newest_items(&self, geometry: IndexGeometry, count: i32, window: Range<u32>) -> Result<NewestItems> {
        let mapped = self.map()?;
        let mut newest = NewestItems::none(window);
        // The count in a damaged header may be any number.
        for number in 1..count.min(geometry.items.cast_signed()) {
            if let Some(item) = item(&mapped, geometry, number) {
                newest.replace(geometry.slot_of(item.key_hash), number);
            }
        }
        Ok(newest)
    }

    /// Reads a range in pieces, and passes each with its position to `take`.
    pub(super) fn for_each_piece(&self, range: Range<u64>, mut take: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let mapped = self.map()?;
        let mut bytes = vec![0; PIECE];
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(PIECE as u64) as usize;
            let piece = bytes.get_mut(..len).unwrap_or_default();
            if !mapped.read(at as usize, piece) {
                mapped.check_intact(at as usize..at as usize + len)?;
            }
            take(at, piece)?;
            at += len as u64;
        }
        Ok(())
    }

    /// Opens the file without mapping it; `None` if another process has removed it.
    pub(super) fn open_unmapped(&self) -> Result<Option<OpenFile>> {
        match OpenFile::open(self.env.as_ref(), self.path().to_owned(), 0, self.len) {
            Err(error) if error.is_missing_file() => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Drops the mapping: another file has the name now.
    pub(super) fn forget_mapping(&self) {
        self.file.forget_mapping();
    }

    /// Opens the file for writing; see [`PooledFile::open_for_writing`].
    pub(super) fn open_for_writing(&self) -> io::Result<Arc<dyn File>> {
        self.file.open_for_writing(self.env.as_ref())
    }

    /// Returns the mapping of the file; `None` if another process has removed the file, and it is not mapped.
    pub(super) fn mapped(&self) -> Result<Option<Arc<MappedFile>>> {
        match self.map() {
            Err(error) if error.is_missing_file() => Ok(None),
            mapped => mapped.map(Some),
        }
    }

    fn map(&self) -> Result<Arc<MappedFile>> {
        self.pool.get(self.env.as_ref(), &self.file)
    }

    /// Returns the chain with the items of a key; `None` if the file was removed, or its slot cannot be read.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub(crate) fn chain(&self, geometry: IndexGeometry, key_hash: i32, most: usize) -> Result<Option<SlotChain>> {
        let Some(mapped) = self.mapped()? else { return Ok(None) };
        let slot = geometry.slot_of(key_hash);
        let (Some(newest), Some(mut chain)) = (slot_value(&mapped, geometry, slot), Chain::new(&mapped, geometry, key_hash))
        else {
            return Ok(None);
        };
        let header = self.header();
        let mut items = Vec::new();
        let mut is_broken = false;
        while !chain.is_at_end() && !is_broken && items.len() < most {
            let number = chain.number();
            let item = chain.next_item(&mapped, geometry);
            let link = chain.follow(item, geometry, &header);
            is_broken = matches!(link, Link::Broken);
            let is_of_key = matches!(link, Link::OfKey(..));
            items.push(ChainItem {
                number,
                item,
                is_broken,
                is_of_key,
            });
        }
        let continues = !chain.is_at_end() && !is_broken;
        Ok(Some(SlotChain {
            slot,
            newest,
            items,
            continues,
        }))
    }

    /// Checks that no crash has torn the file, which would violate one of these: offsets and times never fall (except the time of
    /// the first item, which counts from the end of the previous file); the header begins with the first item and ends with the
    /// last; each item links to the previous item of its slot; each slot leads to its newest item.
    pub(super) fn check_whole(&self, geometry: IndexGeometry) -> Result<bool> {
        let Some(mapped) = self.mapped()? else { return Ok(false) };
        let header = self.header();
        if geometry.file_len() > self.file_len()
            || header.index_count.cast_unsigned() > geometry.items
            || !are_items_in_order(&mapped, geometry, header)
        {
            return Ok(false);
        }
        let links = self.links(geometry, header.index_count)?;
        Ok(links.is_some_and(|links| links.broken.is_none()))
    }

    /// Returns the position of the first non-zero byte after the header. Bytes that were never written are not read.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub fn first_used(&self) -> Result<Option<u64>> {
        let Some(file) = self.open_unmapped()? else {
            return Ok(None);
        };
        let mut bytes = vec![0; PIECE];
        for part in file.written() {
            let mut at = part.start.max(INDEX_HEADER_SIZE as u64);
            while at < part.end {
                interrupt::check()?;
                let len = (part.end - at).min(PIECE as u64);
                let piece = bytes.get_mut(..len as usize).unwrap_or_default();
                piece.fill(0);
                file.read(at, piece)?;
                if let Some(used) = piece.iter().position(|byte| *byte != 0) {
                    return Ok(Some(at + used as u64));
                }
                at += len;
            }
        }
        Ok(None)
    }

    /// Checks the links of the items before number `count`; `None` if the file was removed.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub fn links(&self, geometry: IndexGeometry, count: i32) -> Result<Option<Links>> {
        let broken = |at: u64, what: String, used_slots: u32| {
            let broken = Some((at, what));
            Ok(Some(Links { broken, used_slots }))
        };
        let (Some(mapped), Some(file)) = (self.mapped()?, self.open_unmapped()?) else {
            return Ok(None);
        };
        let (mut used_slots, mut items) = (0, Vec::new());
        for window in windows(geometry, count) {
            let mut newest = NewestItems::none(window);
            let mut number = 1;
            while number < count {
                interrupt::check()?;
                items.clear();
                add_items(
                    &mapped,
                    geometry,
                    number..count.min(number.saturating_add(AT_ONCE)),
                    &mut items,
                );
                for item in &items {
                    let before = newest.replace(geometry.slot_of(item.key_hash), number);
                    if let Some(before) = before.filter(|before| *before != item.previous) {
                        let what = format!(
                            "item {number} links to item {}, the one before it in its slot is {before}",
                            item.previous
                        );
                        return broken(geometry.item_position(number.cast_unsigned()), what, used_slots);
                    }
                    number += 1;
                }
                if items.is_empty() {
                    let at = geometry.item_position(number.cast_unsigned());
                    return broken(at, format!("item {number} exceeds the capacity of the file"), used_slots);
                }
            }
            used_slots += newest.numbers().iter().filter(|number| **number != 0).count() as u32;
            if let Some(at) = first_wrong_slot(&file, &mapped, geometry, &newest, count)? {
                let slot = (at - INDEX_HEADER_SIZE as u64) / SLOT_SIZE as u64;
                return broken(at, format!("slot {slot} does not lead to its newest item"), used_slots);
            }
        }
        Ok(Some(Links {
            broken: None,
            used_slots,
        }))
    }

    /// Returns the index files in `dir`, oldest first. Files too large to map are skipped, and known files are not opened again.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn open_all(env: &Arc<dyn Env>, dir: &Path, known: &[Arc<Self>]) -> Result<Vec<Arc<Self>>> {
        let mut names = match env.list(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            listed => listed.map_err(|error| Error::io("list", dir, error))?,
        };
        let is_index = |entry: &DirEntry| entry.kind == EntryKind::File && entry.len <= IndexGeometry::MAX_FILE_LEN;
        names.retain(|entry| is_index(entry) && entry.name.to_str().and_then(parse_index_name).is_some());
        names.sort_by(|a, b| a.name.cmp(&b.name));
        let open = |entry: &DirEntry| {
            let path = dir.join(&entry.name);
            if let Some(known) = known.iter().find(|file| file.path() == path && file.file_len() == entry.len) {
                return Some(Ok(known.clone()));
            }
            match Self::open(env.clone(), path, entry.len) {
                // A broker's retention has removed it since it was listed.
                Err(error) if error.is_missing_file() => None,
                opened => Some(opened.map(Arc::new)),
            }
        };
        names.iter().filter_map(open).collect()
    }
}

/// An item of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChainItem {
    /// Its number in the file.
    pub(crate) number: i32,
    /// The item; `None` if its number is out of range.
    pub(crate) item: Option<IndexItem>,
    /// Set if the chain is broken here.
    pub(crate) is_broken: bool,
    /// Set if it is an item of the requested key.
    pub(crate) is_of_key: bool,
}

/// The chain of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlotChain {
    /// The slot.
    pub(crate) slot: u32,
    /// The number of its newest item; 0 for an empty slot.
    pub(crate) newest: i32,
    /// The items, newest first.
    pub(crate) items: Vec<ChainItem>,
    /// Set if the chain continues after them.
    pub(crate) continues: bool,
}

/// The links of the items of a file.
#[derive(Debug)]
pub struct Links {
    /// The first broken link or slot: its position in the file, and the reason.
    pub broken: Option<(u64, String)>,
    /// The number of used slots before it.
    pub used_slots: u32,
}

/// Returns true if the items match the header, and none has a smaller offset or time than the previous one.
fn are_items_in_order(mapped: &MappedFile, geometry: IndexGeometry, header: IndexHeader) -> bool {
    let mut before: Option<IndexItem> = None;
    for number in 1..header.index_count {
        let Some(item) = item(mapped, geometry, number) else {
            return false;
        };
        let is_after = match before {
            None => item.physical_offset == header.begin_physical_offset,
            Some(before) => item.physical_offset >= before.physical_offset && (number == 2 || item.time_diff >= before.time_diff),
        };
        if item.key_hash < 0 || item.time_diff < 0 || !is_after {
            return false;
        }
        before = Some(item);
    }
    before.is_none_or(|last| last.physical_offset == header.end_physical_offset)
}

/// Returns the position of the first slot that leads neither to its newest item nor to an item that a live broker has put since the
/// header was read. Slots that were never written are not read: there may be a gigabyte of them.
fn first_wrong_slot(
    file: &OpenFile,
    mapped: &MappedFile,
    geometry: IndexGeometry,
    newest: &NewestItems,
    count: i32,
) -> Result<Option<u64>> {
    let mut bytes = vec![0; PIECE];
    let mut at = geometry.slot_position(newest.first());
    for numbers in newest.numbers().chunks(PIECE / SLOT_SIZE) {
        let piece = bytes.get_mut(..numbers.len() * SLOT_SIZE).unwrap_or_default();
        piece.fill(0);
        let is_written = !file.written_in(&(at..at + piece.len() as u64)).is_empty();
        if is_written && file.read(at, piece)? < piece.len() {
            return Ok(Some(at));
        }
        let is_wrong = |(head, newest): (&[u8; SLOT_SIZE], &i32)| {
            let mut head = i32::from_be_bytes(*head);
            while head >= count {
                let Some(item) = item(mapped, geometry, head).filter(|item| *item != UNUSED) else {
                    return true;
                };
                head = item.previous.min(head - 1);
            }
            head != *newest
        };
        if let Some(wrong) = piece.as_chunks().0.iter().zip(numbers).position(is_wrong) {
            return Ok(Some(at + (wrong * SLOT_SIZE) as u64));
        }
        at += piece.len() as u64;
    }
    Ok(None)
}
