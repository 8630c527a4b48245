//! One index file: a hash table from message keys to physical offsets, chained newest first.
//!
//! | at | what |
//! |-|-|
//! | 0 | header, 40 bytes |
//! | 40 | one 4-byte slot per hash value modulo the number of slots: number of the newest item of its chain, 0 = none |
//! | 40 + 4 slots | items of 20 bytes, numbered from 0; item 0 is never used |

use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use crate::error::{Error, Result};
use crate::format::{
    GeometryGuess, INDEX_HEADER_SIZE, ITEM_SIZE, IndexGeometry, IndexHeader, IndexItem, detect_index_geometry, index_admits,
};
use crate::storage::{Access, Env, MappedFile};

/// Bytes that are copied at once.
const PIECE: usize = 64 * 1024;

/// An index file on disk.
#[derive(Debug)]
pub struct IndexFile {
    env: Arc<dyn Env>,
    path: PathBuf,
    len: u64,
    header: RwLock<IndexHeader>,
    whole: OnceLock<bool>,
    admits: OnceLock<bool>,
    ends: OnceLock<bool>,
    mapped: OnceLock<Arc<MappedFile>>,
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
            path,
            len,
            header: RwLock::new(header),
            whole: OnceLock::new(),
            admits: OnceLock::new(),
            ends: OnceLock::new(),
            mapped: OnceLock::new(),
        })
    }

    /// The file was made with the geometry that will be asked for: what is being put into it need not be looked at.
    pub(super) fn trust(&self) {
        let _ = self.admits.set(true);
        let _ = self.ends.set(true);
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file.
    pub fn file_len(&self) -> u64 {
        self.len
    }

    /// The header as it was when the store was opened, or as this process's writer has made it since.
    pub fn header(&self) -> IndexHeader {
        *self.header.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_header(&self, header: IndexHeader) {
        *self.header.write().unwrap_or_else(PoisonError::into_inner) = header;
    }

    /// The geometry that the file's own bytes admit.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn guess_geometry(&self) -> Result<GeometryGuess> {
        let mapped = self.mapped()?;
        Ok(mapped
            .bytes(0..mapped.len() as usize)
            .map_or(GeometryGuess::None, detect_index_geometry))
    }

    /// Whether the file can have this geometry; looked at once.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn admits(&self, geometry: IndexGeometry) -> Result<bool> {
        if let Some(admits) = self.admits.get() {
            return Ok(*admits);
        }
        let mapped = self.mapped()?;
        let admits = mapped
            .bytes(0..mapped.len() as usize)
            .is_some_and(|file| index_admits(file, geometry));
        Ok(*self.admits.get_or_init(|| admits))
    }

    /// Whether the header tells of these items: the first and the last lead where it says, and in a file that nobody `grows` none
    /// stands behind the last. Looked at once.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn has_own_ends(&self, geometry: IndexGeometry, grows: bool) -> Result<bool> {
        if let Some(fit) = self.ends.get() {
            return Ok(*fit);
        }
        let mapped = self.mapped()?;
        let header = self.header();
        let leads_to = |number: i32| item(&mapped, geometry, number).map(|item| item.physical_offset);
        let is_last = item(&mapped, geometry, header.index_count).is_none_or(|next| next == IndexItem::decode(&[0; ITEM_SIZE]));
        let fit = leads_to(1) == Some(header.begin_physical_offset)
            && leads_to(header.index_count - 1) == Some(header.end_physical_offset)
            && (grows || is_last);
        Ok(*self.ends.get_or_init(|| fit))
    }

    /// Physical offsets of the items whose key has this hash and whose record can be of one of these store times, newest first; stops
    /// at the first link that cannot be right. The second value tells whether the chain was whole.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn offsets(&self, geometry: IndexGeometry, key_hash: i32, times: &RangeInclusive<i64>) -> Result<(Vec<i64>, bool)> {
        let mapped = self.mapped()?;
        let mut found = Vec::new();
        let header = self.header();
        let count = header.index_count;
        let covered = header.begin_physical_offset..=header.end_physical_offset;
        let slot = geometry.slot_of(key_hash);
        let Some(mut number) = slot_value(&mapped, geometry, slot) else {
            return Ok((found, false));
        };
        let mut bound = i32::MAX;
        while number != 0 {
            // Links lead to older items of the same slot, so numbers must fall: a cycle or a stray link ends the walk.
            let in_order = number > 0 && number < bound;
            let item = if in_order { item(&mapped, geometry, number) } else { None };
            let Some(item) = item.filter(|item| geometry.slot_of(item.key_hash) == slot) else {
                return Ok((found, false));
            };
            if item.key_hash == key_hash && number < count {
                if !covered.contains(&item.physical_offset) {
                    return Ok((found, false));
                }
                let of_item = header.times(number, &item);
                if of_item.start() <= times.end() && times.start() <= of_item.end() {
                    found.push(item.physical_offset);
                }
            }
            bound = number;
            number = item.previous;
        }
        Ok((found, true))
    }

    /// Whether every item can be reached from its slot, as after a crash that lost no page of this file. Looked at once.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn is_whole(&self, geometry: IndexGeometry) -> Result<bool> {
        if let Some(whole) = self.whole.get() {
            return Ok(*whole);
        }
        let whole = self.look_whole(geometry)?;
        Ok(*self.whole.get_or_init(|| whole))
    }

    /// What a crash tears shows in one of these: each item links to the one before it in its slot, and offsets and times never fall
    /// (but for the first item of a file, whose time counts from the end of the file before); the header begins with the first item
    /// and ends with the last; each slot leads to its newest item.
    fn look_whole(&self, geometry: IndexGeometry) -> Result<bool> {
        let mapped = self.mapped()?;
        let header = self.header();
        let count = header.index_count;
        if geometry.file_len() > self.len || count as u32 > geometry.items {
            return Ok(false);
        }
        let mut newest = vec![0_i32; geometry.slots as usize];
        let mut before: Option<IndexItem> = None;
        for number in 1..count {
            let Some(item) = item(&mapped, geometry, number) else {
                return Ok(false);
            };
            let slot = geometry.slot_of(item.key_hash);
            let Some(newest) = newest.get_mut(slot as usize) else {
                return Ok(false);
            };
            let is_behind = match before {
                None => item.physical_offset == header.begin_physical_offset,
                Some(before) => {
                    item.physical_offset >= before.physical_offset && (number == 2 || item.time_diff >= before.time_diff)
                }
            };
            if item.key_hash < 0 || item.time_diff < 0 || item.previous != *newest || !is_behind {
                return Ok(false);
            }
            *newest = number;
            before = Some(item);
        }
        let ends = before.is_none_or(|last| last.physical_offset == header.end_physical_offset);
        Ok(ends && slots_lead_to(&mapped, geometry, &newest, count))
    }

    /// The item with this number; `None` behind the last one that the file has room for.
    pub(super) fn item(&self, geometry: IndexGeometry, number: i32) -> Result<Option<IndexItem>> {
        Ok(item(self.mapped()?.as_ref(), geometry, number))
    }

    /// The number that the next item would have if only those of messages in front of `log_end` were there. Offsets never fall.
    pub(super) fn count_in_front_of(&self, geometry: IndexGeometry, log_end: i64) -> Result<i32> {
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

    /// The number of the newest item of each slot, 0 for none, of the items in front of number `count`.
    pub(super) fn newest_items(&self, geometry: IndexGeometry, count: i32) -> Result<Vec<i32>> {
        let mapped = self.mapped()?;
        let mut newest = vec![0_i32; geometry.slots as usize];
        for number in 1..count {
            let item = item(&mapped, geometry, number);
            if let Some(slot) = item.and_then(|item| newest.get_mut(geometry.slot_of(item.key_hash) as usize)) {
                *slot = number;
            }
        }
        Ok(newest)
    }

    /// The bytes of a range, in pieces, with the position of each.
    pub(super) fn for_each_piece(&self, range: Range<u64>, mut take: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let mapped = self.mapped()?;
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

    fn mapped(&self) -> Result<Arc<MappedFile>> {
        if let Some(mapped) = self.mapped.get() {
            return Ok(mapped.clone());
        }
        let mapped = MappedFile::open(self.env.as_ref(), self.path.clone(), 0, self.len)?;
        Ok(self.mapped.get_or_init(|| mapped).clone())
    }
}

/// Whether each slot holds its newest item, or one that was put since the header was read: a live broker does that.
fn slots_lead_to(mapped: &MappedFile, geometry: IndexGeometry, newest: &[i32], count: i32) -> bool {
    newest.iter().enumerate().all(|(slot, newest)| {
        let mut head = slot_value(mapped, geometry, slot as u32).unwrap_or(0);
        while head >= count {
            head = item(mapped, geometry, head).map_or(0, |item| item.previous.min(head - 1));
        }
        head == *newest
    })
}

fn slot_value(mapped: &MappedFile, geometry: IndexGeometry, slot: u32) -> Option<i32> {
    let mut bytes = [0; 4];
    mapped
        .read(geometry.slot_position(slot) as usize, &mut bytes)
        .then(|| i32::from_be_bytes(bytes))
}

fn item(mapped: &MappedFile, geometry: IndexGeometry, number: i32) -> Option<IndexItem> {
    let mut bytes = [0; ITEM_SIZE];
    let number = u32::try_from(number).ok().filter(|number| *number < geometry.items)?;
    mapped
        .read(geometry.item_position(number) as usize, &mut bytes)
        .then(|| IndexItem::decode(&bytes))
}
