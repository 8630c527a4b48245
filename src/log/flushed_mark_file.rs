//! The file of the mark of the flushed offset.
//!
//! It is written after each successful sync of the log, so it is never above the durable end. It is synced with each checkpoint
//! stamp only. After the death of the process it is exact, and after a power failure it is as old as its last write-back.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{CONFIG_DIR, FLUSHED_MARK_FILE, FLUSHED_MARK_SIZE, FlushedMark};
use crate::storage::{Access, Env, File, Lock, Step, read_file, replace_file};

/// Reads the mark of the store at `root`, whatever log it belongs to; `None` if the file is missing or damaged.
///
/// # Errors
/// [`Error::Io`] if the file exists and cannot be read.
pub fn load_flushed_mark(env: &dyn Env, root: &Path) -> Result<Option<FlushedMark>> {
    let mark = read_flushed_mark(env, root)?;
    // A live writer may just have overwritten a part of it.
    mark.map_or_else(|| read_flushed_mark(env, root), |mark| Ok(Some(mark)))
}

fn read_flushed_mark(env: &dyn Env, root: &Path) -> Result<Option<FlushedMark>> {
    // One byte more than a mark: a longer file is not a mark.
    match read_file(env, &path(root), FLUSHED_MARK_SIZE + 1) {
        // Not a regular file, or a file that only its writer may read.
        Err(Error::Io { source, .. })
            if matches!(source.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) =>
        {
            Ok(None)
        }
        read => Ok(read?.and_then(|bytes| FlushedMark::decode(&bytes))),
    }
}

/// Takes the lock that restricts readers of other processes to the bytes below the mark. A writer that recovers the store does not
/// hold it: the records of a dead writer are read up to the end of the log.
///
/// # Errors
/// [`Error::Io`].
pub fn lock_flushed_mark(env: &dyn Env, root: &Path) -> Result<Lock> {
    let path = path(root);
    env.lock(&path).map_err(|error| Error::full_or_io("lock", &path, error))
}

/// Returns true if a writer holds the lock of [`lock_flushed_mark`].
///
/// # Errors
/// [`Error::Io`].
pub fn is_flushed_mark_locked(env: &dyn Env, root: &Path) -> Result<bool> {
    let path = path(root);
    env.is_locked(&path)
        .map_err(|error| Error::io("query the lock of", path, error))
}

/// The mark file of an appendable log.
#[derive(Debug)]
pub struct FlushedMarkFile {
    path: PathBuf,
    file: Arc<dyn File>,
    /// The mark without its current offset.
    mark: FlushedMark,
}

impl FlushedMarkFile {
    /// Stores `mark` in the store at `root`. A file that contains a mark is overwritten in place, and synced if its old mark was
    /// higher.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`].
    pub fn open(env: &dyn Env, root: &Path, mark: FlushedMark) -> Result<Self> {
        let path = path(root);
        let found = load_flushed_mark(env, root)?;
        if found.is_none() {
            replace_file(env, &path, &mark.encode(), Step::ConfigFile, Step::ConfigRenamed)?;
        }
        let file = env
            .open(&path, Access::ReadWrite)
            .map_err(|error| Error::full_or_io("open", &path, error))?;
        let file = Self { path, file, mark };
        let written = match found {
            Some(found) if found != mark => file.put(mark.flushed),
            _ => Ok(()),
        };
        written.map_err(|error| Error::full_or_io("write", &file.path, error))?;
        if found.is_some_and(|found| found.flushed > mark.flushed) {
            file.sync()?;
        }
        Ok(file)
    }

    /// Stores the flushed offset. A failed write leaves the old offset or an unreadable mark, and neither is wrong.
    pub fn write(&self, flushed: i64) {
        let _ = self.put(flushed);
    }

    /// Stores the flushed offset durably.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`].
    pub fn write_durably(&self, flushed: i64) -> Result<()> {
        self.put(flushed)
            .map_err(|error| Error::full_or_io("write", &self.path, error))?;
        self.sync()
    }

    /// Syncs the mark.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn sync(&self) -> Result<()> {
        self.file
            .sync(Step::FlushedMark)
            .map_err(|error| Error::io("sync", &self.path, error))
    }

    fn put(&self, flushed: i64) -> io::Result<()> {
        let mark = FlushedMark { flushed, ..self.mark };
        self.file.write_all_at(&mark.encode(), 0)
    }
}

fn path(root: &Path) -> PathBuf {
    root.join(CONFIG_DIR).join(FLUSHED_MARK_FILE)
}
