//! A segment that is appended to: created with all of its blocks allocated, renamed into its directory, written through its mapping
//! or through the transient store pool, synced.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::env::{Access, Env, File, Step};
use super::region::Region;
use super::replace_file::remove_file;
use super::transient_store_pool::TransientStorePool;
use crate::config::PAGE_SIZE;
use crate::error::{Error, Result};
use crate::format::{UNFINISHED_PREFIX, segment_name};

/// The bytes of a segment that are prefaulted at once.
const WARMED_AT_ONCE: usize = 1 << 20;

/// The warm-up of a new segment, as `RocketMQ` calls it: all of its pages are prefaulted for writing.
#[derive(Debug, Clone, Copy)]
pub struct WarmUp {
    /// The number of bytes after which the zeros are synced, so that the disk does not get all of them at once.
    pub synced_every: Option<u64>,
}

/// A segment that is appended to.
#[derive(Debug)]
pub struct AppendFile {
    path: PathBuf,
    start: u64,
    file: Arc<dyn File>,
    region: Region,
    /// The pool in which appended bytes wait until they are written to the file; empty if they are written through the mapping.
    pool: OnceLock<Arc<TransientStorePool>>,
    /// Set if all of its pages were prefaulted at its creation.
    is_warm: bool,
    /// Set if the warm-up has locked its pages in memory. They stay locked until the segment is dropped.
    is_locked: bool,
    /// The offset after its last record, and after the BLANK that fills it.
    filled_until: AtomicU64,
}

impl AppendFile {
    fn new(path: PathBuf, start: u64, file: Arc<dyn File>, region: Region) -> Self {
        Self {
            path,
            start,
            filled_until: AtomicU64::new(start + region.len() as u64),
            file,
            region,
            pool: OnceLock::new(),
            is_warm: false,
            is_locked: false,
        }
    }

    /// Creates the segment that starts at `start` in `dir`, with all of its `len` bytes allocated. The file is created outside
    /// `dir`, because a broker does not start with a foreign file in there. It replaces no file. Its name is durable after
    /// [`AppendFile::sync_name`].
    ///
    /// # Errors
    /// [`Error::DiskFull`] on a full disk, [`Error::Io`]: no file remains, and another try starts again.
    pub fn create(env: &dyn Env, dir: &Path, start: u64, len: u64, warm_up: Option<WarmUp>) -> Result<Self> {
        let path = dir.join(segment_name(start));
        let new = unfinished_path(dir, start);
        // An earlier process may have died while it created this file.
        let _ = env.unlink(&new);
        let made = || {
            let file = env.create(&new)?;
            file.allocate(len)?;
            file.sync(Step::SegmentAllocated)?;
            let region = file.map(len as usize, Access::ReadWrite)?;
            let is_locked = warm_up.map_or(Ok(false), |warm_up| warm(file.as_ref(), &region, warm_up))?;
            env.rename_noreplace(&new, &path)?;
            Ok((file, region, is_locked))
        };
        match made() {
            Ok((file, region, is_locked)) => Ok(Self {
                is_warm: warm_up.is_some(),
                is_locked,
                ..Self::new(path, start, file, region)
            }),
            Err(error) => {
                // The unfinished file must not keep its space.
                let _ = env.unlink(&new);
                Err(Error::full_or_io("create", &path, error))
            }
        }
    }

    /// Replaces the segment that starts at `start` in `dir`, durably, by a new file with all of its `len` bytes allocated, whose first
    /// bytes `fill` writes. Whoever has the old file open or mapped keeps it.
    ///
    /// # Errors
    /// [`Error::DiskFull`] and those of `fill`: the old file remains. [`Error::Io`].
    pub fn replace(env: &dyn Env, dir: &Path, start: u64, len: u64, fill: impl FnOnce(&dyn File) -> Result<()>) -> Result<()> {
        let (path, new) = (dir.join(segment_name(start)), unfinished_path(dir, start));
        let refused = |error| Error::full_or_io("replace", &path, error);
        remove_file(env, &new)?;
        let made = || {
            let file = env.create(&new).map_err(refused)?;
            file.allocate(len).map_err(refused)?;
            fill(file.as_ref())?;
            file.sync(Step::SegmentCut).map_err(refused)?;
            env.rename(&new, &path).map_err(refused)
        };
        made().inspect_err(|_| {
            // The unfinished file must not keep its space.
            let _ = env.unlink(&new);
        })?;
        for dir in [dir, dir.parent().unwrap_or(dir)] {
            env.sync_dir(dir, Step::SegmentCutRenamed)
                .map_err(|error| Error::io("sync", dir, error))?;
        }
        Ok(())
    }

    /// Removes the unfinished file of a segment whose creation failed, if it still exists.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove_unfinished(env: &dyn Env, dir: &Path, start: u64) -> Result<()> {
        remove_file(env, &unfinished_path(dir, start))
    }

    /// Opens an existing segment to append to it; `open` opens its file for writing. A segment of a broker may be sparse, and a
    /// full disk would show only when a page is written. So its missing blocks are allocated now.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`].
    pub fn open(path: PathBuf, start: u64, len: u64, open: impl FnOnce() -> io::Result<Arc<dyn File>>) -> Result<Self> {
        let opened = || {
            let file = open()?;
            file.allocate(len)?;
            let region = file.map(len as usize, Access::ReadWrite)?;
            Ok((file, region))
        };
        match opened() {
            Ok((file, region)) => Ok(Self::new(path, start, file, region)),
            Err(error) => Err(Error::full_or_io("open", &path, error)),
        }
    }

    /// Makes the name of a new segment durable, and the removal of its temporary name. Only then may a record in it be
    /// acknowledged.
    ///
    /// # Errors
    /// A [shortage](Error::is_shortage): nothing was synced. [`Error::Io`]: the segment may not survive a power failure.
    pub fn sync_name(&self, env: &dyn Env) -> Result<()> {
        let dir = self.path.parent().unwrap_or(&self.path);
        for dir in [dir, dir.parent().unwrap_or(dir)] {
            env.sync_dir(dir, Step::SegmentRenamed)
                .map_err(|error| Error::io("sync", dir, error))?;
        }
        Ok(())
    }

    /// Removes a segment that holds no record, if it still exists. The removal is durable after a sync of the directory.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove(&self, env: &dyn Env) -> Result<()> {
        remove_file(env, &self.path)
    }

    /// Returns true if it was warmed up at its creation.
    pub fn is_warm(&self) -> bool {
        self.is_warm
    }

    /// Returns true if its warm-up has locked its pages in memory.
    pub fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the offset of its first byte.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns the offset after its last byte.
    pub fn end(&self) -> u64 {
        self.start + self.region.len() as u64
    }

    /// Makes appended bytes go through the pool. Must be called before the first append.
    pub fn use_pool(&self, pool: Arc<TransientStorePool>) {
        let _ = self.pool.set(pool);
    }

    /// Returns the pool that appended bytes go through, if there is one.
    pub fn pool(&self) -> Option<&TransientStorePool> {
        self.pool.get().map(Arc::as_ref)
    }

    /// Copies consecutive parts to a position in the file or in the pool; returns false if they were not written. See
    /// [`Region::write_parts`].
    #[inline]
    pub fn write(&self, at: usize, parts: &[&[u8]]) -> bool {
        match self.pool() {
            Some(pool) => pool.write(self.start + at as u64, parts),
            None => self.write_mapped(at, parts),
        }
    }

    /// Sets the offset from which on no byte is written.
    pub fn fill_until(&self, end: u64) {
        self.filled_until.store(end, Ordering::Release);
    }

    /// Writes a range of offsets from the pool to the file. Does nothing for a segment that is written through its mapping.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`]: the file may contain a part of the range. After a [shortage](Error::is_shortage) the
    /// range may be written again.
    pub fn commit(&self, range: Range<u64>) -> Result<()> {
        let Some(pool) = self.pool() else { return Ok(()) };
        let mut at = range.start;
        let waiting = pool.read(range.start..range.end.min(self.filled_until.load(Ordering::Acquire)));
        let too_many = || {
            Error::io(
                "write",
                &self.path,
                io::Error::other("pending bytes exceed the transient store pool"),
            )
        };
        for piece in waiting.ok_or_else(too_many)? {
            let written = self.file.write_all_at(piece, at - self.start);
            written.map_err(|error| Error::full_or_io("write", &self.path, error))?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Copies consecutive parts to a position in the file through the mapping, also if the segment has a pool.
    #[inline]
    pub fn write_mapped(&self, at: usize, parts: &[&[u8]]) -> bool {
        self.region.write_parts(at, parts)
    }

    /// Prefaults the pages of a range of offsets for writing; see [`Region::supply`].
    ///
    /// # Errors
    /// As [`Region::supply`].
    pub fn supply(&self, range: Range<u64>) -> io::Result<()> {
        let position = |offset: u64| offset.saturating_sub(self.start) as usize;
        self.region.supply(position(range.start)..position(range.end))
    }

    /// Writes zeros to a range of offsets of the file, not through the pool.
    ///
    /// # Errors
    /// As [`File::zero`].
    pub fn zero(&self, range: Range<u64>) -> io::Result<()> {
        self.file.zero(range.start - self.start..range.end - self.start)
    }

    /// Unmaps the pages of a range of offsets; see [`Region::release_pages`].
    pub fn release_pages(&self, range: Range<u64>) {
        let position = |offset: u64| offset.saturating_sub(self.start).min(self.region.len() as u64) as usize;
        self.region.release_pages(position(range.start)..position(range.end));
    }

    /// Overwrites the written parts of a range of offsets with zeros, durably. Bytes that read as zeros are overwritten, too: after
    /// a failed sync, memory may show zeros that are not on disk.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`].
    pub fn clear(&self, stale: Range<u64>) -> Result<()> {
        if stale.is_empty() {
            return Ok(());
        }
        let stale = stale.start - self.start..stale.end - self.start;
        let cleared = || {
            for part in self.file.written(stale.clone())? {
                self.file.zero(part)?;
            }
            self.file.sync_range(stale, Step::TailZeroed)
        };
        cleared().map_err(|error| Error::full_or_io("clear the end of", &self.path, error))
    }

    /// Syncs a range of offsets.
    ///
    /// # Errors
    /// [`Error::Io`]: unsynced bytes before this call may be durable or not.
    pub fn sync(&self, range: Range<u64>, step: Step) -> Result<()> {
        self.file
            .sync_range(range, step)
            .map_err(|error| Error::io("sync", &self.path, error))
    }
}

/// Prefaults every page of a new segment for writing, and locks the pages in memory. Returns true if they are locked.
fn warm(file: &dyn File, region: &Region, warm_up: WarmUp) -> io::Result<bool> {
    let chunk_starts = || (0..region.len()).step_by(WARMED_AT_ONCE);
    let chunk = |start: usize| start..region.len().min(start + WARMED_AT_ONCE);
    let mut unsynced = 0;
    for range in chunk_starts().map(chunk) {
        make_writable(region, range.clone());
        let is_last = range.end == region.len();
        if warm_up
            .synced_every
            .is_some_and(|every| is_last || (range.end - unsynced) as u64 >= every)
        {
            file.sync_range(unsynced as u64..range.end as u64, Step::SegmentAllocated)?;
            unsynced = range.end;
        }
    }
    let is_locked = region.lock().is_ok();
    region.prefetch(0..region.len());
    Ok(is_locked)
}

/// Prefaults the pages of a range of a new segment for writing.
fn make_writable(region: &Region, range: Range<usize>) {
    if region.supply(range.clone()).is_err() {
        // Before Linux 5.14 pages cannot be populated, so each is written. The bytes of a new segment are zeros.
        for page in range.step_by(PAGE_SIZE as usize) {
            region.write(page, &[0]);
        }
    }
}

/// Returns the path of an unfinished segment of the directory `dir`.
fn unfinished_path(dir: &Path, start: u64) -> PathBuf {
    dir.parent()
        .unwrap_or(dir)
        .join(format!("{UNFINISHED_PREFIX}{}", segment_name(start)))
}
