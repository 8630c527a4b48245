//! Index files beside a writer of another process.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crate::error::{Error, Result};
use crate::format::{IndexGeometry, parse_index_name};
use crate::log::index::index_file::IndexFile;
use crate::log::index::index_service::IndexService;
use crate::storage::{DirEntry, EntryKind, Env};

impl IndexFile {
    /// The index files in `dir`, oldest first; one that no broker can map is none. Those that are known already are not opened again.
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

impl IndexService {
    /// Notes that another process may have added keys and files. They are looked at when they are needed.
    pub(crate) fn note_growth(&self) {
        self.has_grown.store(true, Ordering::Release);
    }

    /// Looks at what another process has added.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub(super) fn follow_growth(&self) -> Result<()> {
        if !self.has_grown.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let known = self.files();
        if let Some(last) = known.last() {
            last.read_header_again()?;
        }
        let files = IndexFile::open_all(&self.env, &self.dir, &known)?;
        *self.files.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(files);
        Ok(())
    }
}
