//! One index file: a hash table from message keys to physical offsets, chained newest first.
//!
//! | at | what |
//! |-|-|
//! | 0 | header, 40 bytes |
//! | 40 | one 4-byte slot per hash value modulo the number of slots: number of the newest item of its chain, 0 = none |
//! | 40 + 4 slots | items of 20 bytes, numbered from 0; item 0 is never used |

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use crate::error::{Error, Result};
use crate::format::{
    GeometryGuess, INDEX_HEADER_SIZE, ITEM_SIZE, IndexGeometry, IndexHeader, IndexItem, detect_index_geometry, index_admits,
};
use crate::storage::{Access, Env, MappedFile};

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

    /// Physical offsets of the items whose key has this hash, newest first; stops at the first link that cannot be right.
    /// The second value tells whether the chain was whole.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn offsets(&self, geometry: IndexGeometry, key_hash: i32) -> Result<(Vec<i64>, bool)> {
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
                found.push(item.physical_offset);
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

    fn look_whole(&self, geometry: IndexGeometry) -> Result<bool> {
        let mapped = self.mapped()?;
        let count = self.header().index_count;
        if geometry.file_len() > self.len || count as u32 > geometry.items {
            return Ok(false);
        }
        let mut newest = vec![0_i32; geometry.slots as usize];
        for number in 1..count {
            let Some(item) = item(&mapped, geometry, number) else {
                return Ok(false);
            };
            let slot = geometry.slot_of(item.key_hash);
            let Some(newest) = newest.get_mut(slot as usize) else {
                return Ok(false);
            };
            if item.key_hash < 0 || item.previous != *newest {
                return Ok(false);
            }
            *newest = number;
        }
        for (slot, newest) in newest.iter().enumerate() {
            let mut head = slot_value(&mapped, geometry, slot as u32).unwrap_or(0);
            // A live broker may have put newer items in front since the header was read.
            while head >= count {
                head = item(&mapped, geometry, head).map_or(0, |item| item.previous.min(head - 1));
            }
            if head != *newest {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn mapped(&self) -> Result<Arc<MappedFile>> {
        if let Some(mapped) = self.mapped.get() {
            return Ok(mapped.clone());
        }
        let mapped = MappedFile::open(self.env.as_ref(), self.path.clone(), 0, self.len)?;
        Ok(self.mapped.get_or_init(|| mapped).clone())
    }
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
