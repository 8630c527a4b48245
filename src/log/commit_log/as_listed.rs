//! The files in the directory of the log, whether they belong there or not.

use std::path::PathBuf;

use crate::format::segment_name;
use crate::log::commit_log::log_files::LogFiles;

impl LogFiles {
    /// The segment that holds `offset`, there or missing, and the position in it.
    pub fn path_of(&self, offset: i64) -> (PathBuf, u64) {
        let (start, position) = self.place(offset);
        (self.dir().join(segment_name(start)), position)
    }

    /// The paths of the files that are no segments.
    pub fn foreign_files(&self) -> impl Iterator<Item = PathBuf> {
        self.files.ignored().iter().map(|name| self.dir().join(name))
    }

    /// The segments without a byte, after the others.
    pub fn empty_files(&self) -> &[PathBuf] {
        self.files.empty_files()
    }
}
