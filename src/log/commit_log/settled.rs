//! Which bytes of the log never change.

use crate::log::commit_log::log_files::LogFiles;
use crate::storage::MappedFile;

impl LogFiles {
    /// Notes that no byte before `end` changes any more, in the last segment, too: the writer that has appended them has closed the store.
    pub(crate) fn settle(&self, end: i64) {
        // What was settled first stays so.
        let _ = self.settled_until.set(end);
    }

    /// Whether the segment never changes and is in memory, so that its bytes are used in place. The last one may be written or
    /// cut by its owner, so its bytes are copied.
    pub(super) fn is_sealed(&self, file: &MappedFile) -> bool {
        file.is_in_memory() && file.end() as i64 != self.files_end()
    }

    /// Up to which position of a segment its bytes never change and are in memory.
    pub(super) fn settled_in(&self, file: &MappedFile) -> usize {
        if self.is_sealed(file) {
            return file.len() as usize;
        }
        let end = self.settled_until.get().filter(|_| file.is_in_memory());
        end.map_or(0, |end| (end - file.start() as i64).clamp(0, file.len() as i64) as usize)
    }
}
