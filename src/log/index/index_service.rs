//! The index files of a store, oldest first, and the range of the log that each of them indexes.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use crate::error::{Error, Result};
use crate::format::{GeometryGuess, IndexGeometry, IndexHeader, IndexItem, index_name, parse_index_name};
use crate::log::index::chain::{Candidates, KeyLookup};
use crate::log::index::index_appender::IndexAppender;
use crate::log::index::index_file::IndexFile;
use crate::log::index::source::{Indexed, Source};
use crate::storage::{Env, Step, remove_file};

/// The most checks by one query of a file whose header changes.
const MAX_CHECKS: usize = 4;
/// The memory budget of the Bloom filters of all files.
const FILTER_BUDGET: u64 = 256 << 20;
/// The items that are read at once.
const AT_ONCE: i32 = 64;

/// A check that a file belongs to this log, and not to another one.
pub(super) type IsOfLog<'a> = &'a dyn Fn(&IndexFile, IndexGeometry) -> Result<bool>;

/// All index files of a store; one may be appended to while they are read.
#[derive(Debug)]
pub struct IndexService {
    pub(super) env: Arc<dyn Env>,
    pub(super) dir: PathBuf,
    given: Option<IndexGeometry>,
    /// After a crash: full files whose last item was stored at this time or before are on disk. Other files are used only if they
    /// are whole. `None` if every file is on disk.
    safe_until: Mutex<Option<i64>>,
    pub(super) files: RwLock<Arc<Vec<Arc<IndexFile>>>>,
    /// Set if another process may have added keys and files since the last listing.
    pub(super) has_grown: AtomicBool,
    /// The geometry of all files, found in those of the first listing.
    shared_geometry: OnceLock<IndexGeometry>,
    appending: Mutex<Appending>,
    /// The unused memory budget of filters.
    filter_budget: AtomicU64,
}

/// The position of the next key.
#[derive(Debug, Default)]
struct Appending {
    file: Option<IndexAppender>,
    /// Set if the name of the last file is known to be on disk.
    is_named: bool,
    /// The message whose keys were put last, and the number of them that are in.
    offset: i64,
    keys: usize,
}

/// A session that puts the keys of new messages of the log.
#[derive(Debug)]
pub(crate) struct IndexPut<'a> {
    index: &'a IndexService,
    geometry: IndexGeometry,
    appending: MutexGuard<'a, Appending>,
}

impl IndexPut<'_> {
    /// Puts the keys of the message at `offset`, by their hashes. [`publish`](Self::publish) makes them visible. After an error it
    /// may be called for the same message again: keys that are in are not put twice.
    ///
    /// # Errors
    /// [`Error::DiskFull`] or [`Error::Io`] if the next file cannot be created, [`Error::Corrupt`] for a lost page.
    #[inline]
    pub(crate) fn put(&mut self, offset: i64, store_time: i64, hashes: &[i32]) -> Result<()> {
        if self.appending.offset != offset {
            self.appending.offset = offset;
            self.appending.keys = 0;
        }
        while let Some(hash) = hashes.get(self.appending.keys) {
            if let Some(file) = &mut self.appending.file
                && file.put(*hash, offset, store_time)?
            {
                self.appending.keys += 1;
            } else {
                let next = self.index.roll(&mut self.appending, self.geometry)?;
                self.appending.file = Some(next);
            }
        }
        Ok(())
    }

    /// Makes the keys visible to readers.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a lost page.
    pub(crate) fn publish(&mut self) -> Result<()> {
        self.appending.file.as_mut().map_or(Ok(()), IndexAppender::publish)
    }
}

impl IndexService {
    /// Lists the files in `dir`; files too large to map are skipped. After a crash, `safe_until` is the store time up to which
    /// index files are known to be on disk: the checkpoint's `index_msg_timestamp`. After a clean exit all are.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn load(env: &Arc<dyn Env>, dir: &Path, given: Option<IndexGeometry>, safe_until: Option<i64>) -> Result<Self> {
        let files = IndexFile::open_all(env, dir, &[])?;
        Ok(Self {
            env: env.clone(),
            dir: dir.to_owned(),
            given,
            safe_until: Mutex::new(safe_until),
            files: RwLock::new(Arc::new(files)),
            has_grown: AtomicBool::default(),
            shared_geometry: OnceLock::new(),
            appending: Mutex::default(),
            filter_budget: AtomicU64::new(FILTER_BUDGET),
        })
    }

    /// Returns the geometry of all files, if an option or a file determines it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn geometry(&self) -> Result<Option<IndexGeometry>> {
        if self.given.is_some() {
            Ok(self.given)
        } else {
            self.find_shared_geometry()
        }
    }

    /// Returns true if any file contains a key.
    pub fn has_keys(&self) -> bool {
        self.files().iter().any(|file| file.header().index_count > 1)
    }

    /// Divides `log` into ascending ranges, each with the source of its keys. Neighbours may share one record. The range between
    /// two files is walked: it has no key unless one was lost. A file that is not `is_of_log` serves no range. Reads whole index
    /// files at the first call, to find their geometry if none was given.
    ///
    /// # Errors
    /// [`Error::Io`], and those of `is_of_log`.
    pub fn sources(&self, log: Range<i64>, is_of_log: IsOfLog<'_>) -> Result<Vec<Source>> {
        self.follow_growth()?;
        let mut at = log.start;
        let mut walked: fn(Range<i64>) -> Source = Source::Log;
        let files = self.files();
        // Each file, the range before it, and the end of the log.
        let mut sources = Vec::with_capacity(2 * files.len() + 1);
        for file in files.iter() {
            let Some((geometry, header)) = self.usable(file, is_of_log)? else {
                continue;
            };
            let range = header.begin_physical_offset.max(at)..header.end_physical_offset.saturating_add(1).min(log.end);
            if range.is_empty() {
                continue;
            }
            if at < range.start {
                // Some keys of the first record of this file may be in the previous file, which is not used.
                sources.push(walked(at..range.start + 1));
            }
            // A walk starts where a record starts, so the one after this file begins at its last record again.
            at = header.end_physical_offset.min(log.end);
            walked = Source::LogAfterIndex;
            sources.push(Source::Index(Indexed {
                file: file.clone(),
                geometry,
                header,
                range,
            }));
        }
        if at < log.end {
            sources.push(walked(at..log.end));
        }
        Ok(sources)
    }

    /// Returns the records of a file that can have these keys; `None` if a chain is broken. If there are other files, a Bloom
    /// filter rules out keys that are not in this one.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn find_all(&self, indexed: &Indexed, lookup: KeyLookup<'_>) -> Result<Option<Candidates>> {
        let is_one_of_several = self.files().len() > 1;
        indexed.find_all(lookup, is_one_of_several.then_some(&self.filter_budget))
    }

    /// Starts putting keys. No other thread puts keys concurrently.
    pub(crate) fn put_keys(&self, geometry: IndexGeometry) -> IndexPut<'_> {
        IndexPut {
            index: self,
            geometry,
            appending: self.appending.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Refuses files of another geometry: keys put into files of two geometries would not be found.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::Io`].
    pub(crate) fn expect_geometry(&self, geometry: IndexGeometry) -> Result<()> {
        let Some(file) = self.find_other_geometry(geometry)? else {
            return Ok(());
        };
        Err(Error::Invalid {
            what: format!(
                "{} has {} bytes; index files of max_hash_slot_num {} and max_index_num {} have {}: give both as the \
                 store's broker has them, or remove the file: its keys are taken from the log again",
                file.path().display(),
                file.file_len(),
                geometry.slots,
                geometry.items,
                geometry.file_len(),
            ),
        })
    }

    /// Returns the first file of another geometry. A file of a wrong length does not count: it is rebuilt.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn find_other_geometry(&self, geometry: IndexGeometry) -> Result<Option<Arc<IndexFile>>> {
        for file in self.files().iter() {
            if file.file_len() != geometry.file_len() && !self.has_wrong_length(file, geometry)? {
                return Ok(Some(file.clone()));
            }
        }
        Ok(None)
    }

    /// Returns true if the file was cut short or extended. It has no other geometry if another file has the right length, or if its
    /// own bytes fit no geometry. After a crash a short file may be unfinished.
    fn has_wrong_length(&self, file: &IndexFile, geometry: IndexGeometry) -> Result<bool> {
        let (found, len) = (file.file_len(), geometry.file_len());
        if found == len {
            return Ok(false);
        }
        let (is_short, files) = (found < len, self.files());
        let is_sure = is_short && self.is_crashed() || files.iter().any(|other| other.file_len() == len);
        if is_short && is_sure {
            return Ok(true);
        }
        Ok(match file.guess_geometry()? {
            GeometryGuess::One(own) => is_sure && own.slots == geometry.slots,
            GeometryGuess::None => true,
            GeometryGuess::Empty => is_sure,
            GeometryGuess::Several => false,
        })
    }

    /// Returns the number of items in all files.
    pub fn items(&self) -> i64 {
        self.files().iter().map(|file| file.header().items()).sum()
    }

    /// Returns the geometry and the header of a usable file; `None` if it is not usable, or has no key. A check may meet an
    /// unfinished put of another process or thread. It is then repeated when the header has changed, in this query or in a later
    /// one. The check that a file is of this log is repeated as well: the file may contain messages past the end that the log had
    /// for this reader.
    pub(super) fn usable(&self, file: &IndexFile, is_of_log: IsOfLog<'_>) -> Result<Option<(IndexGeometry, IndexHeader)>> {
        for _ in 0..MAX_CHECKS {
            let header = file.header();
            if header.index_count <= 1 {
                break;
            }
            if let Some(known) = file.usable.get() {
                return Ok(Some((*known, header)));
            }
            if let Some(geometry) = self.geometry_of(file)?
                && self.is_usable(file, geometry)?
                && (file.is_own() || is_of_log(file, geometry)?)
            {
                return Ok(Some((*file.usable.get_or_init(|| geometry), file.header())));
            }
            if !file.reread_header()? {
                break;
            }
        }
        Ok(None)
    }

    /// Returns true if the file can be used.
    pub(super) fn is_usable(&self, file: &IndexFile, geometry: IndexGeometry) -> Result<bool> {
        Ok((self.is_covered(file, geometry) || file.is_whole(geometry)?) && file.has_own_ends(geometry, self.is_crashed())?)
    }

    /// Returns true if the file has the right length, and the store was closed or the checkpoint covers the file: stamps are those
    /// of full files. A file that ends earlier than an older one was written after the clock was set back, perhaps after the stamp.
    pub(super) fn is_covered(&self, file: &IndexFile, geometry: IndexGeometry) -> bool {
        if file.file_len() != geometry.file_len() {
            return false;
        }
        let Some(until) = self.safe_until() else { return true };
        let header = file.header();
        let is_stamped = header.end_time <= until && header.is_full(geometry);
        let files = self.files();
        let mut older = files.iter().take_while(|older| older.path() != file.path());
        is_stamped && older.all(|older| older.header().end_time <= header.end_time)
    }

    /// Returns true if the files that the checkpoint does not cover may have lost bytes in a crash.
    fn is_crashed(&self) -> bool {
        self.safe_until().is_some()
    }

    fn safe_until(&self) -> Option<i64> {
        *self.safe_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Declares every file durable: recovery has checked the files after a crash, and has removed the damaged ones.
    pub(super) fn mark_all_durable(&self) {
        *self.safe_until.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Keeps the oldest files, and returns the others.
    pub(super) fn keep(&self, count: usize) -> Vec<Arc<IndexFile>> {
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        let count = count.min(files.len());
        Arc::make_mut(&mut files).split_off(count)
    }

    /// Removes the files whose messages all start before `first_physical`, oldest first, and never the last one. Returns their number.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn expire(&self, first_physical: i64) -> Result<usize> {
        let files = self.files();
        let before_last = files.split_last().map_or(&[][..], |(_, before)| before);
        let mut removed = 0;
        for file in before_last {
            let header = file.header();
            if header.items() > 0 && header.end_physical_offset >= first_physical {
                break;
            }
            remove_file(self.env.as_ref(), file.path())?;
            let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
            Arc::make_mut(&mut files).retain(|known| known.path() != file.path());
            removed += 1;
        }
        Ok(removed)
    }

    /// Sets the message after which putting continues: the keys of it that are in are not put again.
    pub(super) fn resume_after(&self, physical_offset: i64, keys: usize) {
        let mut appending = self.appending.lock().unwrap_or_else(PoisonError::into_inner);
        (appending.offset, appending.keys) = (physical_offset, keys);
    }

    /// Syncs every file; returns the end time of the last full one, 0 if no file is full.
    pub(crate) fn sync(&self, geometry: IndexGeometry) -> Result<i64> {
        if let Some(file) = &self.appending.lock().unwrap_or_else(PoisonError::into_inner).file {
            file.sync()?;
        }
        self.sync_names()?;
        let full = self
            .files()
            .iter()
            .rev()
            .map(|file| file.header())
            .find(|header| header.is_full(geometry));
        Ok(full.map_or(0, |header| header.end_time))
    }

    fn sync_names(&self) -> Result<()> {
        self.env
            .sync_dir(&self.dir, Step::IndexDirectory)
            .map_err(|error| Error::io("sync", &self.dir, error))
    }

    /// Returns the file for the next key: the last one if it is not full, otherwise a new one after it.
    fn roll(&self, appending: &mut Appending, geometry: IndexGeometry) -> Result<IndexAppender> {
        let full = appending.file.take();
        let last = self.files().last().cloned();
        if let Some(last) = &last
            && full.is_none()
            && self.geometry_of(last)? == Some(geometry)
            && !last.header().is_full(geometry)
        {
            if last.header().index_count > 1 {
                // Checked before the first put, so that no query makes its first check during a put.
                self.is_usable(last, geometry)?;
            } else {
                last.mark_whole();
            }
            return IndexAppender::open(last.clone(), geometry);
        }
        if let Some(mut full) = full {
            full.publish()?;
            full.sync()?;
        }
        if last.is_some() && !appending.is_named {
            // A power failure could take the name of this file and leave the next file: keys would be lost undetected. The names are
            // synced only once, because on a full disk this is tried ten times a second.
            self.sync_names()?;
            appending.is_named = true;
        }
        // The files are ordered by name. A clock that was set back must not put this one before the others.
        let last_name = last
            .as_ref()
            .and_then(|file| parse_index_name(file.path().file_name()?.to_str()?))
            .unwrap_or(0);
        let name = index_name(self.env.now_local_ms()).max(last_name + 1);
        let header = IndexHeader::rolled_from(last.map(|file| file.header()).as_ref());
        let path = self.dir.join(format!("{name:017}"));
        let appender = IndexAppender::create(&self.env, &path, geometry, header)?;
        appending.is_named = false;
        Arc::make_mut(&mut self.files.write().unwrap_or_else(PoisonError::into_inner)).push(appender.file().clone());
        Ok(appender)
    }

    pub(super) fn files(&self) -> Arc<Vec<Arc<IndexFile>>> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the geometry of a file: the option, the shared one, or that of its own bytes; `None` if these admit several.
    pub(super) fn geometry_of(&self, file: &IndexFile) -> Result<Option<IndexGeometry>> {
        if let Some(given) = self.given {
            let (len, given_len) = (file.file_len(), given.file_len());
            if self.has_wrong_length(file, given)? {
                return Ok(None);
            }
            if len != given_len {
                return Err(Error::Invalid {
                    what: format!(
                        "max_hash_slot_num {} and max_index_num {} make index files of {given_len} bytes, and {} has {len} bytes: \
                         leave both out, or give those that it was written with",
                        given.slots,
                        given.items,
                        file.path().display()
                    ),
                });
            }
            // The file has the right length but another geometry, or is damaged: it is not used.
            return Ok(file.admits(given)?.then_some(given));
        }
        let shared = match self.shared_geometry.get() {
            Some(shared) => Some(*shared),
            None => self
                .find_shared_geometry()?
                .map(|found| *self.shared_geometry.get_or_init(|| found)),
        };
        match shared {
            Some(shared) if shared.file_len() == file.file_len() => Ok(Some(shared)),
            _ => Ok(match file.guess_geometry()? {
                GeometryGuess::One(geometry) => Some(geometry),
                _ => None,
            }),
        }
    }

    /// Returns the geometry of the first file that admits only one; files of the most frequent length come first. A file without a
    /// key admits every geometry of its length; at RocketMQ's own length it counts as RocketMQ's.
    fn find_shared_geometry(&self) -> Result<Option<IndexGeometry>> {
        let mut files = self.files().to_vec();
        let mut counts: HashMap<u64, usize> = HashMap::new();
        for file in &files {
            *counts.entry(file.file_len()).or_default() += 1;
        }
        files.sort_by_key(|file| Reverse(counts.get(&file.file_len()).copied()));
        for file in files {
            match file.guess_geometry()? {
                GeometryGuess::One(geometry) => return Ok(Some(geometry)),
                GeometryGuess::Empty if file.file_len() == IndexGeometry::ROCKETMQ.file_len() => {
                    return Ok(Some(IndexGeometry::ROCKETMQ));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Returns the number of keys of messages before `end` in the files whose last message was stored after `since`.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub(crate) fn count_keys(&self, since: i64, end: i64) -> Result<u64> {
        let mut keys = 0;
        for file in self.files().iter() {
            let header = file.header();
            if header.end_time <= since || header.begin_physical_offset >= end {
                continue;
            }
            let items = if header.end_physical_offset < end {
                header.items()
            } else {
                let geometry = self.geometry_of(file)?;
                let first = geometry.map_or(Ok(1), |geometry| file.first_at(geometry, header.index_count, end))?;
                i64::from(first) - 1
            };
            keys += items.max(0).unsigned_abs();
        }
        Ok(keys)
    }

    /// Returns the physical offset of the last message with a key, by the header of the newest file; `None` if no file has a key.
    pub(crate) fn last_offset(&self) -> Option<i64> {
        let files = self.files();
        let mut headers = files.iter().rev().map(|file| file.header());
        headers
            .find(|header| header.items() > 0)
            .map(|header| header.end_physical_offset)
    }

    /// Passes the items that point to an offset at or after `physical` to `take`, file by file, until it returns false. Files with
    /// an unknown geometry are skipped.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`], [`crate::error::Error::Invalid`] for a geometry option that the files contradict; those of `take`.
    pub(crate) fn visit_from(&self, physical: i64, mut take: impl FnMut(&IndexItem) -> Result<bool>) -> Result<()> {
        let mut items = Vec::new();
        for (file, geometry) in self.with_geometries()? {
            let Some(geometry) = geometry else { continue };
            let count = file.header().index_count;
            let mut number = file.first_at(geometry, count, physical)?;
            'of_file: while number < count {
                file.items(geometry, number..count.min(number.saturating_add(AT_ONCE)), &mut items)?;
                if items.is_empty() {
                    break;
                }
                for item in items.iter().filter(|item| item.physical_offset >= physical) {
                    if !take(item)? {
                        break 'of_file;
                    }
                }
                number = number.saturating_add(AT_ONCE);
            }
        }
        Ok(())
    }

    /// Notes that another process may have added keys and files. They are read when they are needed.
    pub(crate) fn note_growth(&self) {
        self.has_grown.store(true, Ordering::Release);
    }

    /// Reads the keys and files that another process has added.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub(super) fn follow_growth(&self) -> Result<()> {
        if !self.has_grown.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let known = self.files();
        if let Some(last) = known.last() {
            last.reread_header()?;
        }
        let files = IndexFile::open_all(&self.env, &self.dir, &known)?;
        *self.files.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(files);
        Ok(())
    }
}
