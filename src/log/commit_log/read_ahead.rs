//! Reading many records from disk at once: one after the other, each would wait for the disk alone.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::log::commit_log::log_files::LogFiles;
use crate::storage::MappedFile;

/// Bytes that are read of a record. Those of a longer one follow when they are asked for.
const RECORD: usize = 4096;
/// Records with less between them are read in one piece.
const GAP: usize = 16 * 1024;
/// How many records are looked at, to learn whether the others are in memory.
const SAMPLES: usize = 8;

impl LogFiles {
    /// Starts reading the records at these offsets, ascending, from disk, without waiting, unless they seem to be in memory: to ask for one
    /// takes longer than reading it there.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io).
    pub fn read_ahead(&self, offsets: &[i64]) -> Result<()> {
        if self.seem_cached(offsets)? {
            return Ok(());
        }
        let mut piece: Option<(Arc<MappedFile>, Range<usize>)> = None;
        for offset in offsets {
            if let Some((file, range)) = &mut piece
                && let Some(at) = position_in(file, *offset)
                && at <= range.end + GAP
            {
                range.end = range.end.max((at + RECORD).min(file.len() as usize));
                continue;
            }
            let next = self.locate(*offset)?.map(|(file, at)| {
                let end = (at + RECORD).min(file.len() as usize);
                (file, at..end)
            });
            if let Some((file, range)) = std::mem::replace(&mut piece, next) {
                file.prefetch(range);
            }
        }
        if let Some((file, range)) = piece {
            file.prefetch(range);
        }
        Ok(())
    }

    fn seem_cached(&self, offsets: &[i64]) -> Result<bool> {
        for offset in offsets.iter().step_by((offsets.len() / SAMPLES).max(1)) {
            if self.locate(*offset)?.is_some_and(|(file, at)| !file.is_cached(at..at + 1)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn position_in(file: &MappedFile, offset: i64) -> Option<usize> {
    let offset = u64::try_from(offset).ok()?;
    (file.start()..file.end())
        .contains(&offset)
        .then(|| (offset - file.start()) as usize)
}
