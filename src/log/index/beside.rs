//! Index files beside a writer of another process.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::log::index::index_file::IndexFile;
use crate::log::index::index_service::IndexService;

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
        *self.files.write().unwrap_or_else(PoisonError::into_inner) = files;
        Ok(())
    }
}
