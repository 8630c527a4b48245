//! What a sync of the queues has to cover.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::storage::{File, Step};

/// Queue files that are synced one by one; of more, the whole file system is synced in one call.
pub(super) const SYNCED_ONE_BY_ONE: usize = 16;

/// The queue files with writes that no sync has covered.
#[derive(Debug)]
pub(super) enum Unsynced {
    /// All of them, each held open since the first such write: the system tells a file's write error to those who had it open then.
    Files(BTreeMap<PathBuf, Arc<dyn File>>),
    /// Too many to hold open, or some with new names: only a sync of the file system covers them.
    Everything,
}

impl Unsynced {
    /// Opens a file to be written, unless it is held open.
    pub(super) fn open(&mut self, path: &Path, open: impl FnOnce() -> io::Result<Arc<dyn File>>) -> io::Result<Arc<dyn File>> {
        let Self::Files(files) = self else { return open() };
        if let Some(file) = files.get(path) {
            return Ok(file.clone());
        }
        let file = open()?;
        if files.len() < SYNCED_ONE_BY_ONE {
            files.insert(path.to_owned(), file.clone());
        } else {
            *self = Self::Everything;
        }
        Ok(file)
    }

    /// Makes what was written durable: the files one by one, or `everything`.
    pub(super) fn sync(&mut self, everything: impl FnOnce() -> Result<()>) -> Result<()> {
        match self {
            Self::Files(files) => files.iter().try_for_each(|(path, file)| {
                let synced = file.sync(Step::QueueFiles);
                synced.map_err(|error| Error::io("sync", path, error))
            }),
            Self::Everything => everything(),
        }?;
        *self = Self::Files(BTreeMap::new());
        Ok(())
    }
}
