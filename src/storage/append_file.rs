//! A file that is being appended to through a mapping: made with every block in place, renamed into its directory, written, synced.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::env::{Access, Env, File, Step};
use super::region::Region;
use crate::error::{Error, Result};
use crate::format::segment_name;

/// A segment mapped for writing.
#[derive(Debug)]
pub struct AppendFile {
    path: PathBuf,
    start: u64,
    file: Arc<dyn File>,
    region: Region,
}

impl AppendFile {
    /// Makes the segment that starts at `start` in `dir`, all `len` bytes of it allocated. It is made beside `dir`, because a broker
    /// stops at a foreign file in there, and both directories are synced: after that a record in it can be acknowledged.
    ///
    /// # Errors
    /// [`Error::DiskFull`] when there is no room: nothing is left behind. [`Error::Io`].
    pub fn create(env: &dyn Env, dir: &Path, start: u64, len: u64) -> Result<Self> {
        let path = dir.join(segment_name(start));
        let parent = dir.parent().unwrap_or(dir);
        let new = parent.join(format!("mqstore-new-{}", segment_name(start)));
        let refused = |error| {
            // What was made so far must not hold the space; if even that fails, the next open removes it.
            let _ = env.unlink(&new);
            Error::full_or_io("allocate", &path, error)
        };
        let _ = env.unlink(&new);
        let file = env.create(&new).map_err(refused)?;
        file.allocate(len).map_err(refused)?;
        file.sync(Step::SegmentAllocated).map_err(refused)?;
        let region = file.map(len as usize, Access::ReadWrite).map_err(refused)?;
        env.rename(&new, &path).map_err(refused)?;
        for dir in [dir, parent] {
            env.sync_dir(dir, Step::SegmentRenamed)
                .map_err(|error| Error::io("sync", dir, error))?;
        }
        Ok(Self {
            path,
            start,
            file,
            region,
        })
    }

    /// Opens an existing segment to go on writing.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open(env: &dyn Env, dir: &Path, start: u64, len: u64) -> Result<Self> {
        let path = dir.join(segment_name(start));
        let file = env
            .open(&path, Access::ReadWrite)
            .map_err(|error| Error::io("open", &path, error))?;
        let region = file
            .map(len as usize, Access::ReadWrite)
            .map_err(|error| Error::io("map", &path, error))?;
        Ok(Self {
            path,
            start,
            file,
            region,
        })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Offset of its first byte.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Offset behind its last byte.
    pub fn end(&self) -> u64 {
        self.start + self.region.len() as u64
    }

    /// Copies bytes to a position; `false` if they are not in the file.
    pub fn write(&self, at: usize, bytes: &[u8]) -> bool {
        self.region.write(at, bytes)
    }

    /// Overwrites what stands from `at` to the end with zeros, durably, unless it is zero already.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn clear_from(&self, at: usize) -> Result<()> {
        let rest = self.region.bytes(at..self.region.len()).unwrap_or_default();
        let Some(last) = rest.iter().rposition(|byte| *byte != 0) else {
            return Ok(());
        };
        let stale = at as u64..(at + last + 1) as u64;
        let cleared = self
            .file
            .zero(stale.clone())
            .and_then(|()| self.file.sync_range(stale, Step::TailZeroed));
        cleared.map_err(|error| Error::io("clear the end of", &self.path, error))
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
