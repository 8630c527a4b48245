//! A file that is being appended to through a mapping: made with every block in place, renamed into its directory, written, synced.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::env::{Access, Env, File, Step};
use super::region::Region;
use super::replace_file::remove_file;
use crate::error::{Error, Result};
use crate::format::{UNFINISHED_PREFIX, segment_name};

/// A segment mapped for writing.
#[derive(Debug)]
pub struct AppendFile {
    path: PathBuf,
    start: u64,
    file: Arc<dyn File>,
    region: Region,
}

impl AppendFile {
    /// Makes the segment that starts at `start` in `dir`, with all of its `len` bytes allocated. It is made beside `dir`, because a broker
    /// does not start with a foreign file in there. It replaces no file. Its name is durable after [`AppendFile::sync_name`].
    ///
    /// # Errors
    /// [`Error::DiskFull`] when there is no room, [`Error::Io`]: no file is left, and another try starts again.
    pub fn create(env: &dyn Env, dir: &Path, start: u64, len: u64) -> Result<Self> {
        let path = dir.join(segment_name(start));
        let new = unfinished_path(dir, start);
        // An earlier process may have died while it made this file.
        let _ = env.unlink(&new);
        let made = || {
            let file = env.create(&new)?;
            file.allocate(len)?;
            file.sync(Step::SegmentAllocated)?;
            let region = file.map(len as usize, Access::ReadWrite)?;
            env.rename_noreplace(&new, &path)?;
            Ok((file, region))
        };
        match made() {
            Ok((file, region)) => Ok(Self {
                path,
                start,
                file,
                region,
            }),
            Err(error) => {
                // The unfinished file must not keep its space.
                let _ = env.unlink(&new);
                Err(Error::full_or_io("make", &path, error))
            }
        }
    }

    /// Removes the file of a segment that could not be made, if it is still there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove_unfinished(env: &dyn Env, dir: &Path, start: u64) -> Result<()> {
        remove_file(env, &unfinished_path(dir, start))
    }

    /// Appends to an existing segment, which `open` opens for writing. A segment of a broker may be sparse, and a full disk would show
    /// only when a page is written. So its missing blocks are allocated now.
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
            Ok((file, region)) => Ok(Self {
                path,
                start,
                file,
                region,
            }),
            Err(error) => Err(Error::full_or_io("open", &path, error)),
        }
    }

    /// Makes the name of a new segment durable, and the removal of its temporary name. After that a record in it can be acknowledged.
    ///
    /// # Errors
    /// A [shortage](Error::is_shortage): nothing was synced. [`Error::Io`]: whether the segment survives a power cut is not known.
    pub fn sync_name(&self, env: &dyn Env) -> Result<()> {
        let dir = self.path.parent().unwrap_or(&self.path);
        for dir in [dir, dir.parent().unwrap_or(dir)] {
            env.sync_dir(dir, Step::SegmentRenamed)
                .map_err(|error| Error::io("sync", dir, error))?;
        }
        Ok(())
    }

    /// Removes a segment that holds no record, if it is still there. The removal is durable after a sync of the directory.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove(&self, env: &dyn Env) -> Result<()> {
        remove_file(env, &self.path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Offset of its first byte.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Offset after its last byte.
    pub fn end(&self) -> u64 {
        self.start + self.region.len() as u64
    }

    /// Copies bytes to a position; `false` if they are not in the file.
    pub fn write(&self, at: usize, bytes: &[u8]) -> bool {
        self.region.write(at, bytes)
    }

    /// Makes the pages of a range, by offset, ready to be written; see [`Region::supply`].
    ///
    /// # Errors
    /// As [`Region::supply`].
    pub fn supply(&self, range: Range<u64>) -> io::Result<()> {
        let position = |offset: u64| offset.saturating_sub(self.start) as usize;
        self.region.supply(position(range.start)..position(range.end))
    }

    /// Overwrites the written parts of a range, by offset, with zeros, durably. Bytes that read as zeros are written, too: where a sync has
    /// failed, memory may show zeros that are not on disk.
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

    /// Makes a range durable.
    ///
    /// # Errors
    /// [`Error::Io`]: nothing is known about what was not durable before.
    pub fn sync(&self, range: Range<u64>, step: Step) -> Result<()> {
        self.file
            .sync_range(range, step)
            .map_err(|error| Error::io("sync", &self.path, error))
    }
}

/// Where a segment of the directory `dir` lies until it is finished.
fn unfinished_path(dir: &Path, start: u64) -> PathBuf {
    dir.parent()
        .unwrap_or(dir)
        .join(format!("{UNFINISHED_PREFIX}{}", segment_name(start)))
}
