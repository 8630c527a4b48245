//! Reading many records at once, from disk or from memory: one after the other, each would be waited for alone.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::log::commit_log::log_files::LogFiles;
use crate::storage::MappedFile;

/// Bytes that are read of a record. Those of a longer one follow when they are asked for.
const RECORD: usize = 4096;
/// Records with less between them are read in one piece.
const GAP: usize = 16 * 1024;
/// Bytes that are read of a record in memory. The processor brings what follows by itself.
const HEAD: usize = 256;
/// How many records are looked at, to learn whether the others are in memory.
const SAMPLES: usize = 8;

impl LogFiles {
    /// Starts reading the records at these offsets, ascending, from disk, without waiting. Where they seem to be in memory, to ask for one takes
    /// longer than reading it there: they are brought into the caches of the processor.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io).
    pub fn read_ahead(&self, offsets: &[i64]) -> Result<()> {
        if self.seem_cached(offsets)? {
            return self.touch(offsets);
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

    /// Reads the heads of the records in memory that lie apart: those that lie close the processor brings by itself. No read depends on another
    /// one, so that it waits for many at once.
    fn touch(&self, offsets: &[i64]) -> Result<()> {
        let mut head = [0; HEAD];
        for of_segment in offsets.chunk_by(|one, next| self.end_of_segment(*one) == self.end_of_segment(*next)) {
            let Some(first) = of_segment.first() else { continue };
            let Some((file, _)) = self.locate(*first)?.filter(|(file, _)| file.is_in_memory()) else {
                continue;
            };
            let mut near = 0;
            for at in of_segment.iter().filter_map(|offset| position_in(&file, *offset)) {
                if at >= near {
                    file.read(at, &mut head);
                }
                near = at + RECORD;
            }
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
