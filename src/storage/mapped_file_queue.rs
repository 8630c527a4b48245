//! A directory of equally long files, each named by the offset of its first byte: `commitlog/`, `consumequeue/TOPIC/ID/`.

use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use super::append_file::AppendFile;
use super::directory::{FileKind, Fitted, Relisting, entries, segments};
use super::env::{Access, Advice, Env, File};
use super::mapped_file::MappedFile;
use super::mapping_pool::{MappingPool, PooledFile};
use super::open_file::OpenFile;
use crate::error::{Error, Result};
use crate::format::segment_name;
use crate::remedy::Remedy;

/// The most attempts to open a listed file. It may be missing because another process removes it and creates it again.
const MOST_ATTEMPTS: usize = 8;

/// The files that [`MappedFileQueue::expire`] has removed.
#[derive(Debug, Default)]
pub struct Expired {
    /// The range of offsets of each file, ascending.
    pub files: Vec<Range<u64>>,
    /// Bytes of these files that somebody in this process still reads: the system frees them when the last view of them ends.
    pub held_bytes: u64,
    /// The reason why the next file could not be removed.
    pub refused: Option<Error>,
}

/// The files of one queue, for reading, while a writer may add files at its end and remove files at its start. A file is mapped at
/// the first access, and then stays mapped until the [`MappingPool`] drops it. A file that is missing when it is opened has expired
/// if it was before all that remain. Otherwise it is forgotten until [`list_again`](MappedFileQueue::list_again) finds a file of
/// its name.
#[derive(Debug)]
pub struct MappedFileQueue {
    env: Arc<dyn Env>,
    dir: PathBuf,
    fitted: Fitted,
    files: RwLock<Vec<Arc<PooledFile>>>,
    ignored: Vec<OsString>,
    /// Empty files after the others.
    empty: Vec<PathBuf>,
    /// Files before this offset have expired, although the directory still has them.
    begins_at: u64,
    /// The files before `begins_at`.
    leftovers: Vec<PathBuf>,
    pool: Arc<MappingPool>,
    /// The number of times that files were found to have expired.
    removals: AtomicU64,
    /// Held while the directory is listed again and until `files` is updated: an older listing must not replace a newer one.
    relisting: Mutex<()>,
}

impl MappedFileQueue {
    /// Lists `dir` and maps nothing. A missing directory is an empty queue. The files have `file_size` bytes, or the length of the
    /// first one; the last may be shorter (half a copy, or still being written), and is left out while it is empty.
    ///
    /// # Errors
    /// [`Error::Io`] if the directory cannot be listed, [`Error::Corrupt`] if lengths or names do not fit together,
    /// [`Error::Invalid`] for a `file_size` of 0, or if all files contradict it.
    pub fn load(env: Arc<dyn Env>, dir: &Path, file_size: Option<u64>, pool: Arc<MappingPool>) -> Result<Self> {
        Self::load_files(env, dir, file_size, pool, FileKind::Whole)
    }

    /// Lists `dir` as [`load`](Self::load) does, but files before others may be cut short. The bytes up to the next file are
    /// missing then.
    ///
    /// # Errors
    /// Those of `load`.
    pub fn load_with_gaps(env: Arc<dyn Env>, dir: &Path, file_size: Option<u64>, pool: Arc<MappingPool>) -> Result<Self> {
        Self::load_files(env, dir, file_size, pool, FileKind::Segments)
    }

    /// Lists derived files, which may have any length because they can be rebuilt. Whole files have a multiple of `unit` bytes.
    ///
    /// # Errors
    /// Those of `load`, except for wrong lengths.
    pub fn load_derived(
        env: Arc<dyn Env>,
        dir: &Path,
        file_size: Option<u64>,
        pool: Arc<MappingPool>,
        unit: u64,
    ) -> Result<Self> {
        Self::load_files(env, dir, file_size, pool, FileKind::Derived { unit })
    }

    fn load_files(env: Arc<dyn Env>, dir: &Path, file_size: Option<u64>, pool: Arc<MappingPool>, kind: FileKind) -> Result<Self> {
        let (mut files, ignored) = segments(dir, entries(env.as_ref(), dir)?)?;
        let mut empty = Vec::new();
        while let Some(file) = files.pop_if(|file| file.len == 0) {
            empty.push(dir.join(segment_name(file.start)));
        }
        let fitted = Fitted::new(dir, &mut files, file_size, kind)?;
        files.retain(|file| file.len > 0);
        let mut files: Vec<_> = files.into_iter().map(Arc::new).collect();
        // The vector has the capacity of the list that it was collected from, and there may be very many queues.
        files.shrink_to_fit();
        Ok(Self {
            env,
            dir: dir.to_owned(),
            fitted,
            files: RwLock::new(files),
            ignored,
            empty,
            begins_at: 0,
            leftovers: Vec::new(),
            pool,
            removals: AtomicU64::new(0),
            relisting: Mutex::default(),
        })
    }

    /// Treats the files that start before `offset` as expired: a power failure has interrupted their removal.
    pub fn begin_at(&mut self, offset: u64) {
        self.begins_at = offset;
        let files = self.files.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.leftovers = files
            .extract_if(.., |file| file.start < offset)
            .map(|file| file.path().to_owned())
            .collect();
    }

    /// Returns the files that [`begin_at`](Self::begin_at) treats as expired.
    pub fn leftovers(&self) -> &[PathBuf] {
        &self.leftovers
    }

    /// Returns the files before others that are cut short, with their lengths.
    pub fn cut_short(&self) -> &[(PathBuf, u64)] {
        &self.fitted.cut_short
    }

    /// Returns the file size, and the files with other lengths.
    pub(crate) fn fitted(&self) -> &Fitted {
        &self.fitted
    }

    /// Returns the empty files after the others. A broker that was killed while it created a file leaves one, and then does not
    /// start.
    pub fn empty_files(&self) -> &[PathBuf] {
        &self.empty
    }

    /// Creates a queue without files.
    pub fn empty(env: Arc<dyn Env>, dir: &Path, file_size: u64, pool: Arc<MappingPool>) -> Self {
        Self {
            env,
            dir: dir.to_owned(),
            fitted: Fitted::without_files(file_size),
            files: RwLock::default(),
            ignored: Vec::new(),
            empty: Vec::new(),
            begins_at: 0,
            leftovers: Vec::new(),
            pool,
            removals: AtomicU64::new(0),
            relisting: Mutex::default(),
        }
    }

    /// Returns the directory of the files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the size of each file but the last; 0 if it is unknown.
    pub fn file_size(&self) -> u64 {
        self.fitted.file_size
    }

    /// Returns the offset of the first byte that was not removed; `None` if there were no files.
    pub fn first_offset(&self) -> Option<u64> {
        let files = self.files();
        let first = files.iter().find(|f| !f.is_removed()).map(|f| f.start);
        first.or_else(|| files.last().map(|f| f.end()))
    }

    /// Returns the offset after the last byte of the last file, by its real length. The removal of that file does not change it.
    pub fn end_offset(&self) -> Option<u64> {
        self.files().last().map(|f| f.end())
    }

    /// Returns the number of files.
    pub fn len(&self) -> usize {
        self.starts().len()
    }

    /// Returns true if there are no files.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the offset of each file's first byte, ascending.
    pub fn starts(&self) -> Vec<u64> {
        self.files().iter().filter(|f| !f.is_removed()).map(|f| f.start).collect()
    }

    /// Lists the directory again while another process writes to it: adds the files that the process has created, and removes those
    /// that it has removed. A file that has not reached its full length yet is added by a later call.
    ///
    /// # Errors
    /// Those of [`load`](Self::load).
    pub fn list_again(&self) -> Result<()> {
        let _one_at_a_time = self.relisting.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.files().clone();
        let listing = Relisting::new(&known, || self.list())?;
        self.remove_missing(&known, &listing);
        let new = listing.into_new(&known, self.file_size());
        if new.is_empty() {
            return Ok(());
        }
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        let mut all = files.clone();
        all.retain(|file| new.binary_search_by_key(&file.start, |new| new.start).is_err());
        all.extend(new.into_iter().map(Arc::new));
        all.sort_by_key(|file| file.start);
        self.fitted.check(&self.dir, &all)?;
        *files = all;
        Ok(())
    }

    /// Drops the mappings of the files that hold the byte at `offset` or a later one: another process may have replaced these
    /// files.
    pub fn forget_mappings(&self, offset: u64) {
        for file in self.files().iter().rev().take_while(|file| file.end() > offset) {
            file.forget_mapping();
        }
    }

    /// Returns the number of times that files were found to have expired. Values derived from the first offset are out of date once
    /// this number has risen.
    pub fn removals(&self) -> u64 {
        self.removals.load(Ordering::Acquire)
    }

    /// Returns true if the file that held the byte at `offset` has expired: another process has removed it and all files before it.
    pub fn is_removed(&self, offset: u64) -> bool {
        self.file_at(offset).is_some_and(|file| file.is_removed())
    }

    /// Adds a file that a writer has just created, almost always after all others.
    pub fn add(&self, start: u64) {
        let file = PooledFile::new(self.dir.join(segment_name(start)), start, self.file_size());
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        // An expired file of this name may be known.
        files.retain(|known| known.start != start);
        let index = files.partition_point(|f| f.start < start);
        files.insert(index, Arc::new(file));
    }

    /// Removes the file that starts at `start`. The removal is durable after a sync of the directory.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove(&self, start: u64) -> Result<()> {
        let path = self.dir.join(segment_name(start));
        self.env.unlink(&path).map_err(|error| Error::io("remove", path, error))?;
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        files.retain(|file| file.start != start);
        Ok(())
    }

    /// Removes the files that end at or before `until`, oldest first, and never the last one. Reads find that they have expired. It
    /// stops at a file that the system does not remove. The removals are durable after a sync of the directory.
    pub fn expire(&self, until: u64) -> Expired {
        let mut expired = Expired::default();
        let files = self.files().clone();
        let before_last = files.split_last().map_or(&[][..], |(_, before)| before);
        for file in before_last
            .iter()
            .filter(|file| !file.is_removed())
            .take_while(|file| file.end() <= until)
        {
            match self.env.unlink(file.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    expired.refused = Some(Error::io("remove", file.path(), error));
                    break;
                }
                _ => {}
            }
            let mapped = file.mapping();
            file.set_removed();
            // After it, so that whoever sees the number sees the removal.
            self.removals.fetch_add(1, Ordering::AcqRel);
            // One reference is this one.
            if mapped.is_some_and(|mapped| Arc::strong_count(&mapped) > 1) {
                expired.held_bytes += file.len;
            }
            expired.files.push(file.start..file.end());
        }
        expired
    }

    /// Returns true if a file starts there.
    pub fn has(&self, start: u64) -> bool {
        self.files().binary_search_by_key(&start, |f| f.start).is_ok()
    }

    /// Opens the file that starts at `start` for writing; see [`PooledFile::open_for_writing`].
    ///
    /// # Errors
    /// Those of [`Env::open`]; `NotFound` if no file starts there.
    pub fn open_for_writing(&self, start: u64) -> io::Result<Arc<dyn File>> {
        let found = {
            let files = self.files();
            let index = files.binary_search_by_key(&start, |f| f.start);
            index.ok().and_then(|n| files.get(n)).cloned()
        };
        found.ok_or(io::ErrorKind::NotFound)?.open_for_writing(self.env.as_ref())
    }

    /// Opens the file that starts at `start` to append to it.
    ///
    /// # Errors
    /// Those of [`AppendFile::open`].
    pub fn open_for_appending(&self, start: u64) -> Result<AppendFile> {
        let path = self.dir.join(segment_name(start));
        AppendFile::open(path, start, self.file_size(), || self.open_for_writing(start))
    }

    /// Returns the written parts, as [`File::written`] does, of the file that starts at `start`; an empty list if it was removed.
    /// Drops the cached pages of `range` first.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn written(&self, start: u64, range: Range<u64>) -> Result<Vec<Range<u64>>> {
        let written = self.with_file(start, |file| {
            let opened = self.open_by_name(file)?;
            let written = opened.written_on_disk(range.clone());
            written.map_err(|error| Error::io("examine", file.path(), error))
        })?;
        Ok(written.unwrap_or_default())
    }

    /// Drops a range of offsets inside one file from the page cache: the pages that are clean and that no other process has mapped.
    /// Does nothing if there is no file.
    ///
    /// # Errors
    /// Those of the system; the caller can ignore any.
    pub fn drop_cached(&self, range: Range<u64>) -> io::Result<()> {
        let Some(file) = self.file_at(range.start).filter(|file| !file.is_removed()) else {
            return Ok(());
        };
        let positions = range.start - file.start..range.end.min(file.end()) - file.start;
        if let Some(mapped) = file.mapping() {
            mapped.release_pages(positions.start as usize..positions.end as usize);
        }
        let opened = self.env.open(file.path(), Access::Read)?;
        opened.advise(positions, Advice::DontNeed)
    }

    /// Unmaps the pages of a range of offsets. They stay in the page cache.
    pub fn release_pages(&self, range: Range<u64>) {
        for file in self.files().iter() {
            let (first, end) = (range.start.max(file.start), range.end.min(file.end()));
            if first < end
                && let Some(mapped) = file.mapping()
            {
                mapped.release_pages((first - file.start) as usize..(end - file.start) as usize);
            }
        }
    }

    /// Refuses files that cannot be appended to: the last one has not `size` bytes, as all have, or the files do not start at
    /// multiples of that, so that the next file would not follow them. `remedy` helps in the first case if there is no copy.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn expect_whole(&self, size: u64, remedy: Remedy) -> Result<()> {
        let files = self.files();
        let corrupt = |file: &PooledFile, offset: u64, reason: String| {
            Error::corrupt(self.dir.join(segment_name(file.start)), offset, reason)
        };
        match (files.first(), files.last()) {
            (_, Some(last)) if last.len != size => {
                let reason =
                    format!("the file ends here, {size} bytes were expected: nothing can be written after it; copy it again");
                Err(corrupt(last, last.len, reason).with_remedy(remedy))
            }
            // There is a file, so `size` is not 0.
            (Some(first), _) if !first.start.is_multiple_of(size) => {
                let reason = format!(
                    "the name is not a multiple of the files' {size} bytes: nothing can be written after it; give it its own name"
                );
                Err(corrupt(first, 0, reason))
            }
            _ => Ok(()),
        }
    }

    /// Returns the names in the directory that are not those of segments, sorted. A broker refuses to start on some of them; a
    /// reader skips them.
    pub fn ignored(&self) -> &[OsString] {
        &self.ignored
    }

    /// Returns the file that holds the byte at `offset`, mapped; `None` before the first file, past the last byte, and if the file
    /// is missing or was removed.
    ///
    /// # Errors
    /// Those of [`MappedFile::open`]. A file that was listed, and is missing now, is not an error.
    pub fn find(&self, offset: u64) -> Result<Option<Arc<MappedFile>>> {
        self.with_file(offset, |file| self.pool.get(self.env.as_ref(), file))
    }

    /// Returns the file that holds the byte at `offset`, open and not mapped, for bytes that are read once. `None` as for
    /// [`find`](Self::find).
    ///
    /// # Errors
    /// Those of [`OpenFile::open`].
    pub fn open(&self, offset: u64) -> Result<Option<OpenFile>> {
        self.with_file(offset, |file| {
            OpenFile::open(self.env.as_ref(), file.path().to_owned(), file.start, file.len)
        })
    }

    /// Reads bytes from `offset` on from the file that has the name now, not from its mapping, and returns their number. `None` as
    /// for [`find`](Self::find).
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn read_reopened(&self, offset: u64, into: &mut [u8]) -> Result<Option<usize>> {
        self.with_file(offset, |file| {
            let read = self.open_by_name(file)?.read_full_at(into, offset - file.start);
            read.map_err(|error| Error::io("read", file.path(), error))
        })
    }

    fn open_by_name(&self, file: &PooledFile) -> Result<Arc<dyn File>> {
        let opened = self.env.open(file.path(), Access::Read);
        opened.map_err(|error| Error::io("open", file.path(), error))
    }

    /// Calls `take` with the file that holds the byte at `offset`; returns `None` if no file holds it or the file was removed. If
    /// `take` finds the file missing, the next writer may have created it again: then `take` is called again.
    fn with_file<T>(&self, offset: u64, mut take: impl FnMut(&Arc<PooledFile>) -> Result<T>) -> Result<Option<T>> {
        let mut attempts = 0;
        loop {
            let Some(file) = self.file_at(offset).filter(|file| !file.is_removed()) else {
                return Ok(None);
            };
            attempts += 1;
            match take(&file) {
                Err(error) if error.is_missing_file() && attempts < MOST_ATTEMPTS => self.note_missing()?,
                taken => return taken.map(Some),
            }
        }
    }

    /// Returns the file that contains `offset` by its length when it was listed or added.
    fn file_at(&self, offset: u64) -> Option<Arc<PooledFile>> {
        let files = self.files();
        let after = files.partition_point(|f| f.start <= offset);
        let file = after.checked_sub(1).and_then(|n| files.get(n)).cloned();
        file.filter(|f| offset < f.end())
    }

    /// Lists the directory after a file was found to be missing, and removes every missing file.
    fn note_missing(&self) -> Result<()> {
        let _one_at_a_time = self.relisting.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken before the listing: it may not have a file that a writer of this process adds later.
        let known = self.files().clone();
        let listing = Relisting::new(&known, || self.list())?;
        self.remove_missing(&known, &listing);
        Ok(())
    }

    /// Removes the `known` files that are not listed. Those that have expired stay known as such.
    fn remove_missing(&self, known: &[Arc<PooledFile>], listing: &Relisting) {
        let mut has_expired = false;
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        files.retain(|file| {
            let index = known.binary_search_by_key(&file.start, |known| known.start);
            let is_known = index.is_ok_and(|n| known.get(n).is_some_and(|known| Arc::ptr_eq(known, file)));
            if !is_known || listing.has(file.start) {
                return true;
            }
            let is_expired = listing.is_expired(file.start);
            if is_expired && !file.is_removed() {
                file.set_removed();
                has_expired = true;
            }
            is_expired
        });
        drop(files);
        if has_expired {
            self.removals.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Returns the files that exist now.
    fn list(&self) -> Result<Vec<PooledFile>> {
        let (mut files, _) = segments(&self.dir, entries(self.env.as_ref(), &self.dir)?)?;
        files.retain(|file| file.start >= self.begins_at);
        self.fitted.clip(&mut files);
        Ok(files)
    }

    fn files(&self) -> RwLockReadGuard<'_, Vec<Arc<PooledFile>>> {
        self.files.read().unwrap_or_else(PoisonError::into_inner)
    }
}
