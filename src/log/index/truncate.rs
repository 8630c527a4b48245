//! Truncation of the index when a store is opened for writing: the files and items that are kept, and the point at which indexing
//! continues.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{IndexGeometry, IndexHeader, UNFINISHED_PREFIX, is_zero};
use crate::log::index::chain::windows;
use crate::log::index::index_file::IndexFile;
use crate::log::index::index_service::IndexService;
use crate::storage::{File, Step, remove_file};

/// The slots that are written at once.
const SLOTS_AT_ONCE: usize = 64 * 1024;

/// The part of the index that is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeptIndex {
    /// The number of files that are kept, from the oldest.
    files: usize,
    /// The new header of the last kept file, if items of it are truncated.
    last: Option<IndexHeader>,
    /// Physical offset of the last message with a key in them.
    pub end: Option<i64>,
    /// The number of its keys in the index. Keys are put in order, so the missing ones are its last ones.
    keys: usize,
    /// The number of items in the kept files.
    pub items: i64,
    /// Set if keys of messages past the end of the log are truncated. Then all keys of messages before it are in the index.
    pub is_ahead: bool,
}

impl IndexService {
    /// Returns the number of files, from the oldest, that are kept. After a crash these are the full files that the checkpoint
    /// covers, and other files that are whole and whose begin time is that of the message at their first offset (`store_time_at`):
    /// a part of a header may be lost, too.
    ///
    /// # Errors
    /// [`Error::Io`], and those of `store_time_at`.
    pub fn count_kept(&self, geometry: IndexGeometry, store_time_at: impl Fn(i64) -> Result<Option<i64>>) -> Result<usize> {
        let files = self.files();
        for (number, file) in files.iter().enumerate() {
            let header = file.header();
            let is_usable = || {
                // Only the last file may have free items: an earlier one with free items has lost its header.
                let is_full = file.file_len() == geometry.file_len() && (number + 1 == files.len() || header.is_full(geometry));
                let begins = header.index_count == 1
                    || store_time_at(header.begin_physical_offset)?.is_none_or(|time| time == header.begin_time);
                Ok(is_full && begins && file.is_whole(geometry)?)
            };
            if !self.is_covered(file, geometry) && !is_usable()? {
                return Ok(number);
            }
        }
        Ok(files.len())
    }

    /// Returns the part that is kept: of the first `files` files, the items of messages in `log`. `store_time_at` returns the store
    /// time of the message at an offset, if there is one. A file whose last message is not in the log is not kept.
    ///
    /// # Errors
    /// [`Error::Io`], and those of `store_time_at`.
    pub fn kept_part(
        &self,
        geometry: IndexGeometry,
        files: usize,
        log: Range<i64>,
        store_time_at: impl Fn(i64) -> Result<Option<i64>>,
    ) -> Result<KeptIndex> {
        let all = self.files();
        let mut kept = kept_of(&all, geometry, files, log, store_time_at)?;
        let items = all.iter().take(kept.files).map(|file| file.header().items()).sum::<i64>();
        let last = kept.files.checked_sub(1).and_then(|last| all.get(last));
        let lost = last
            .zip(kept.last)
            .map_or(0, |(file, header)| file.header().items() - header.items());
        kept.items = items - lost;
        Ok(kept)
    }

    /// Returns true if truncating the index to this part changes a file.
    pub(crate) fn is_changed_by(&self, kept: KeptIndex) -> bool {
        kept.last.is_some() || kept.files < self.files().len()
    }

    /// Truncates the index to the kept part, durably. After a crash that part of each file that no stamp covers is rewritten,
    /// because a sync of it may have failed. With `is_redone` an earlier recovery was interrupted, so zeros that are read may not
    /// be on disk.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`].
    pub(crate) fn truncate_dirty(&self, geometry: IndexGeometry, kept: KeptIndex, clean: bool, is_redone: bool) -> Result<()> {
        if self.remove_after(kept.files)? || is_redone {
            self.sync_cut(&self.dir)?;
        }
        let files = self.files();
        for (number, file) in files.iter().enumerate() {
            let is_last = number + 1 == files.len();
            let header = kept.last.filter(|_| is_last).unwrap_or(file.header());
            if header != file.header() || (!clean && !self.is_covered(file, geometry)) {
                Self::rewrite(file, geometry, header, is_redone)?;
            }
        }
        self.resume_after_kept(kept);
        Ok(())
    }

    /// Cuts the index to the kept part, durably, without a change of the bytes of a file: one of which a part is kept is replaced by a copy
    /// of that part. Every file is on disk.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`].
    pub(crate) fn cut(&self, geometry: IndexGeometry, kept: KeptIndex) -> Result<()> {
        if self.remove_after(kept.files)? {
            self.sync_cut(&self.dir)?;
        }
        if let (Some(file), Some(header)) = (self.files().last(), kept.last) {
            let root = self.dir.parent().unwrap_or(&self.dir);
            let name = file.path().file_name().unwrap_or_default();
            let new = root.join(format!("{UNFINISHED_PREFIX}{}", name.display()));
            remove_file(self.env.as_ref(), &new)?;
            self.replace(file, &new, geometry, header).inspect_err(|_| {
                // The unfinished file must not keep its space.
                let _ = self.env.unlink(&new);
            })?;
            self.sync_cut(&self.dir)?;
            self.sync_cut(root)?;
        }
        self.resume_after_kept(kept);
        Ok(())
    }

    /// Removes the files after the oldest ones, the newest first. Returns true if there were any.
    fn remove_after(&self, kept: usize) -> Result<bool> {
        let gone = self.keep(kept);
        for file in gone.iter().rev() {
            let path = file.path();
            self.env.unlink(path).map_err(|error| Error::io("remove", path, error))?;
        }
        Ok(!gone.is_empty())
    }

    fn sync_cut(&self, dir: &Path) -> Result<()> {
        self.env
            .sync_dir(dir, Step::IndexCut)
            .map_err(|error| Error::io("sync", dir, error))
    }

    fn resume_after_kept(&self, kept: KeptIndex) {
        self.mark_all_durable();
        if let Some(end) = kept.end {
            self.resume_after(end, kept.keys);
        }
    }

    /// Replaces the file by a new one, created at `new`, that has only the items that this header counts.
    fn replace(&self, file: &IndexFile, new: &Path, geometry: IndexGeometry, header: IndexHeader) -> Result<()> {
        let path = file.path();
        let refused = |error| Error::full_or_io("replace", path, error);
        let handle = self.env.create(new).map_err(refused)?;
        handle.allocate(file.file_len()).map_err(refused)?;
        let header = Self::write_items(file, handle.as_ref(), geometry, header)?;
        handle.sync(Step::IndexCut).map_err(refused)?;
        self.env.rename(new, path).map_err(refused)?;
        file.forget_mapping();
        file.set_header(header);
        Ok(())
    }

    /// Rewrites the file with this header: its items, the slots that lead to them, and zeros after them.
    fn rewrite(file: &IndexFile, geometry: IndexGeometry, header: IndexHeader, is_redone: bool) -> Result<()> {
        let path = file.path();
        let refused = |error| Error::full_or_io("rewrite", path, error);
        let handle = file.open_for_writing().map_err(refused)?;
        let header = Self::write_items(file, handle.as_ref(), geometry, header)?;
        let items_end = geometry.item_position(header.index_count.cast_unsigned());
        // A broker's file is 400 MB, most of which was never written: reading it would fill the memory with zeros.
        for part in handle.written_on_disk(items_end..file.file_len()).map_err(refused)? {
            file.for_each_piece(part, |at, bytes| {
                if !is_redone && is_zero(bytes) {
                    return Ok(());
                }
                handle.zero(at..at + bytes.len() as u64).map_err(refused)
            })?;
        }
        handle.sync(Step::IndexCut).map_err(refused)?;
        file.set_header(header);
        Ok(())
    }

    /// Writes the items that the header counts, the slots that lead to them, and the header, to a file. Returns the header with the number
    /// of these slots.
    fn write_items(file: &IndexFile, into: &dyn File, geometry: IndexGeometry, header: IndexHeader) -> Result<IndexHeader> {
        let refused = |error| Error::full_or_io("write", file.path(), error);
        let mut slot_count = 0;
        for window in windows(geometry, header.index_count) {
            let newest = file.newest_items(geometry, header.index_count, window)?;
            let mut at = geometry.slot_position(newest.first());
            for numbers in newest.numbers().chunks(SLOTS_AT_ONCE) {
                slot_count += numbers.iter().filter(|newest| **newest != 0).count() as i32;
                let slots: Vec<u8> = numbers.iter().flat_map(|newest| newest.to_be_bytes()).collect();
                into.write_all_at(&slots, at).map_err(refused)?;
                at += slots.len() as u64;
            }
        }
        let header = IndexHeader { slot_count, ..header };
        into.write_all_at(&header.encode(), 0).map_err(refused)?;
        let items_end = geometry.item_position(header.index_count.cast_unsigned());
        file.for_each_piece(geometry.item_position(0)..items_end, |at, bytes| {
            into.write_all_at(bytes, at).map_err(refused)
        })?;
        Ok(header)
    }
}

/// Finds the kept part as [`IndexService::kept_part`] does, without the number of items.
fn kept_of(
    all: &[Arc<IndexFile>],
    geometry: IndexGeometry,
    files: usize,
    log: Range<i64>,
    store_time_at: impl Fn(i64) -> Result<Option<i64>>,
) -> Result<KeptIndex> {
    let mut kept = KeptIndex {
        files,
        ..KeptIndex::default()
    };
    // Files without keys, after the last file with keys, are kept if that file is unchanged.
    let mut empty = 0;
    while let Some(file) = kept.files.checked_sub(1).and_then(|last| all.get(last)) {
        let header = file.header();
        if header.index_count == 1 {
            (kept.files, empty) = (kept.files - 1, empty + 1);
            continue;
        }
        if header.index_count.cast_unsigned() > geometry.items {
            // The header is damaged, so the used items are unknown.
            (kept.files, empty) = (kept.files - 1, 0);
            continue;
        }
        let count = file.count_before(geometry, log.end)?;
        kept.is_ahead |= count < header.index_count;
        if count > 1 {
            (kept.end, kept.keys) = end_of(geometry, all, kept.files, count)?;
        }
        let Some(end) = kept.end.filter(|_| count > 1) else {
            // All keys of this file are truncated: the file is removed.
            (kept.files, empty) = (kept.files - 1, 0);
            continue;
        };
        let store_time = if end < log.start {
            Some(header.end_time)
        } else {
            store_time_at(end)?
        };
        match store_time {
            Some(time) if count < header.index_count => {
                kept.last = Some(header.truncated(count, end, time));
                return Ok(kept);
            }
            Some(time) if time == header.end_time => {
                kept.files += empty;
                return Ok(kept);
            }
            _ => (kept.files, kept.is_ahead, kept.end, empty) = (kept.files - 1, false, None, 0),
        }
    }
    Ok(KeptIndex {
        files: empty,
        is_ahead: kept.is_ahead,
        ..KeptIndex::default()
    })
}

/// Returns the last message with a key in the first `files` files, and the number of its keys in them. In the last file the items
/// before number `count` are in use. The keys of the message may begin in an earlier file.
fn end_of(geometry: IndexGeometry, all: &[Arc<IndexFile>], files: usize, count: i32) -> Result<(Option<i64>, usize)> {
    let (mut end, mut keys) = (None, 0);
    let mut count = Some(count);
    for file in all.iter().take(files).rev() {
        let count = count.take().unwrap_or(file.header().index_count);
        for number in (1..count).rev() {
            let offset = file.item(geometry, number)?.map(|item| item.physical_offset);
            if offset != *end.get_or_insert(offset) {
                return Ok((end.flatten(), keys));
            }
            keys += 1;
        }
    }
    Ok((end.flatten(), keys))
}
