//! Appending keys to an index file.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{IndexGeometry, IndexHeader, SLOT_SIZE};
use crate::log::index::index_file::IndexFile;
use crate::storage::{Access, Env, File, Region, Step};

/// The bytes whose pages are prefaulted at once, at the first write to one of them. Prefaulting page by page takes several times as
/// long.
const BLOCK: usize = 128 * 1024;

/// An index file mapped for writing.
#[derive(Debug)]
pub(super) struct IndexAppender {
    file: Arc<IndexFile>,
    geometry: IndexGeometry,
    header: IndexHeader,
    handle: Arc<dyn File>,
    region: Region,
    /// Set for each block that is prefaulted.
    supplied: Vec<bool>,
}

impl IndexAppender {
    /// Creates a file with all of its blocks allocated. After a failure the file is removed, because the next try uses its name.
    pub(super) fn create(env: &Arc<dyn Env>, path: &Path, geometry: IndexGeometry, header: IndexHeader) -> Result<Self> {
        let refused = |error| Error::full_or_io("allocate", path, error);
        let handle = env.create(path).map_err(refused)?;
        let filled = handle
            .allocate(geometry.file_len())
            .and_then(|()| handle.write_all_at(&header.encode(), 0));
        let made = filled.map_err(refused).and_then(|()| {
            let file = Arc::new(IndexFile::open(env.clone(), path.to_owned(), geometry.file_len())?);
            file.mark_whole();
            Self::open(file, geometry)
        });
        if made.is_err() {
            let _ = env.unlink(path);
        }
        made
    }

    /// Opens an existing file to append keys. A file of a broker is sparse, and a full disk would show only when a page is written.
    /// So its missing blocks are allocated now.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`].
    pub(super) fn open(file: Arc<IndexFile>, geometry: IndexGeometry) -> Result<Self> {
        let len = geometry.file_len();
        let opened = || {
            let handle = file.open_for_writing()?;
            handle.allocate(len)?;
            let region = handle.map(len as usize, Access::ReadWrite)?;
            region.advise_random_access();
            Ok((handle, region))
        };
        let (handle, region) = opened().map_err(|error| Error::full_or_io("open", file.path(), error))?;
        let header = file.header();
        Ok(Self {
            supplied: vec![false; region.len().div_ceil(BLOCK)],
            file,
            geometry,
            header,
            handle,
            region,
        })
    }

    pub(super) fn file(&self) -> &Arc<IndexFile> {
        &self.file
    }

    /// Puts one key; returns false if the file is full. The item is written before the slot that leads to it, and the count with
    /// [`publish`](Self::publish), so that a reader finds complete chains.
    #[inline]
    pub(super) fn put(&mut self, key_hash: i32, physical_offset: i64, store_time: i64) -> Result<bool> {
        let slot_at = self.geometry.slot_position(self.geometry.slot_of(key_hash)) as usize;
        self.supply(slot_at);
        let mut previous = [0; SLOT_SIZE];
        if !self.region.read(slot_at, &mut previous) {
            return Err(self.page_failed());
        }
        let number = self.header.index_count;
        let previous = i32::from_be_bytes(previous);
        let Some(item) = self
            .header
            .admit(self.geometry, previous, key_hash, physical_offset, store_time)
        else {
            return Ok(false);
        };
        let item_at = self.geometry.item_position(number.cast_unsigned()) as usize;
        self.supply(item_at);
        let written = self.region.write(item_at, &item.encode()) && self.region.store_be_u32(slot_at, number.cast_unsigned());
        if !written {
            return Err(self.page_failed());
        }
        Ok(true)
    }

    /// Writes the header, which counts the items put since the last call. Until then a reader treats them as those of an unfinished
    /// writer, and after a crash their keys are put again.
    pub(super) fn publish(&mut self) -> Result<()> {
        if self.file.header() == self.header {
            return Ok(());
        }
        if !self.region.write(0, &self.header.encode()) {
            return Err(self.page_failed());
        }
        self.file.set_header(self.header);
        Ok(())
    }

    /// Prefaults the pages of the block that contains this position.
    fn supply(&mut self, at: usize) {
        let block = at / BLOCK;
        if let Some(is_supplied) = self.supplied.get_mut(block).filter(|is_supplied| !**is_supplied) {
            *is_supplied = true;
            let start = block * BLOCK;
            // A page that is not ready only costs time.
            let _ = self.region.supply(start..self.region.len().min(start + BLOCK));
        }
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.handle
            .sync(Step::IndexFile)
            .map_err(|error| Error::io("sync", self.file.path(), error))
    }

    #[cold]
    fn page_failed(&self) -> Error {
        Error::corrupt(
            self.file.path(),
            self.region.intact_len() as u64,
            "the device failed under this page while a key was written",
        )
    }
}
