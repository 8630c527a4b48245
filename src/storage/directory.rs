//! The directory of a queue of files: its listing, the lengths of its files, and a later listing compared with an earlier one.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::env::{DirEntry, EntryKind, Env};
use super::mapping_pool::PooledFile;
use crate::config::PAGE_SIZE;
use crate::error::{Error, Result};
use crate::format::{parse_segment_name, segment_name};
use crate::remedy::Remedy;

/// The most listings that are compared before a missing file counts as a hole.
const MOST_LISTINGS: usize = 8;

/// Returns the entries of a directory; no entries if it is missing.
pub(super) fn entries(env: &dyn Env, dir: &Path) -> Result<Vec<DirEntry>> {
    match env.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.map_err(|error| Error::io("list", dir, error)),
    }
}

/// Returns the segments among the entries, sorted by offset, and the other names.
pub(super) fn segments(dir: &Path, entries: Vec<DirEntry>) -> Result<(Vec<PooledFile>, Vec<OsString>)> {
    let mut files = Vec::new();
    let mut ignored = Vec::new();
    for entry in entries {
        match (entry.name.to_str().and_then(parse_segment_name), entry.kind) {
            (Some(start), EntryKind::File) => {
                files.push(PooledFile::new(dir.join(&entry.name), start, entry.len));
            }
            (Some(_), EntryKind::Directory | EntryKind::Other) => {
                let reason = "a segment's name on something that is not a regular file (a directory, a pipe, or a link that leads \
                              nowhere): put the file back, or remove the name";
                return Err(Error::corrupt(dir.join(entry.name), 0, reason));
            }
            (None, EntryKind::Directory) => {}
            (None, _) => ignored.push(entry.name),
        }
    }
    files.sort_unstable_by_key(|f| f.start);
    Ok((files, ignored))
}

/// The rule for the lengths of a queue's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// All files have the file size; only the last one may be shorter.
    Whole,
    /// Segments of the log: files before the last may also be cut short. The bytes up to the next file are missing then.
    Segments,
    /// Files that are derived from others: they may have any length, and the excess of a longer one is not read. Whole files have a
    /// multiple of `unit` bytes.
    Derived { unit: u64 },
}

/// The file size of a queue, and the files that have another length.
#[derive(Debug)]
pub(crate) struct Fitted {
    kind: FileKind,
    pub(super) file_size: u64,
    /// The files before others that are cut short, with their lengths.
    pub(super) cut_short: Vec<(PathBuf, u64)>,
    /// The files that are too long, with their lengths.
    too_long: Vec<(PathBuf, u64)>,
    /// The error of a given file size that all files contradict.
    contradiction: Option<Error>,
    /// Set if a file has exactly this size.
    has_whole: bool,
}

impl Fitted {
    pub(super) fn without_files(file_size: u64) -> Self {
        Self {
            kind: FileKind::Whole,
            file_size,
            cut_short: Vec::new(),
            too_long: Vec::new(),
            contradiction: None,
            has_whole: false,
        }
    }

    /// Determines the file size, if it is not given, and ignores the excess of files that may be too long.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if lengths or names do not fit together, [`Error::Invalid`] for a `file_size` of 0, and for a
    /// `file_size` that all files contradict.
    pub(super) fn new(dir: &Path, files: &mut [PooledFile], file_size: Option<u64>, kind: FileKind) -> Result<Self> {
        let file_size = match (file_size, kind) {
            (Some(0), _) => {
                return Err(Error::Invalid {
                    what: format!("the file size given for {} is 0", dir.display()),
                });
            }
            (Some(size), _) => size,
            (None, FileKind::Whole) => files.first().map_or(0, |file| file.len),
            (None, _) => length_of_most(files),
        };
        let mut fitted = Self {
            kind,
            ..Self::without_files(file_size)
        };
        let before_last = files.split_last().map_or(&[][..], |(_, before)| before);
        let cut_short = before_last.iter().filter(|file| file.len < file_size);
        fitted.cut_short = cut_short.map(|file| (file.path().to_owned(), file.len)).collect();
        let too_long = files.iter().filter(|file| file.len > file_size);
        fitted.too_long = too_long.map(|file| (file.path().to_owned(), file.len)).collect();
        fitted.has_whole = files.iter().any(|file| file.len == file_size);
        let fit = check_lengths(dir, file_size, files, kind == FileKind::Segments);
        fitted.contradiction = fit.err().and_then(|_| contradicted(dir, file_size, files, kind));
        fitted.clip(files);
        match fitted.check(dir, files) {
            Ok(()) => Ok(fitted),
            Err(damage) => Err(fitted.contradiction.unwrap_or(damage)),
        }
    }

    /// Returns the files that are too long, or are cut short before others, with their lengths.
    pub(crate) fn wrong_lengths(&self) -> impl Iterator<Item = &(PathBuf, u64)> {
        self.too_long.iter().chain(&self.cut_short)
    }

    /// Returns the error of the given file size, if the files agree on another one.
    pub(crate) fn contradiction(&self) -> Option<&Error> {
        self.contradiction.as_ref()
    }

    /// Returns true if a file has exactly the file size.
    pub(crate) fn has_whole(&self) -> bool {
        self.has_whole
    }

    /// Ignores the excess of files that may be too long.
    pub(super) fn clip(&self, files: &mut [PooledFile]) {
        if matches!(self.kind, FileKind::Derived { .. }) && self.file_size > 0 {
            for file in files.iter_mut() {
                file.len = file.len.min(self.file_size);
            }
        }
    }

    /// Checks that names and lengths make a contiguous queue, as far as its rule requires.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(super) fn check(&self, dir: &Path, files: &[impl Borrow<PooledFile>]) -> Result<()> {
        let has_gaps = match self.kind {
            FileKind::Whole => false,
            FileKind::Segments => !self.cut_short.is_empty(),
            FileKind::Derived { .. } => true,
        };
        check_lengths(dir, self.file_size, files, has_gaps)
    }
}

/// Returns the error of a given file size that contradicts the files, although they fit together and have a possible length.
fn contradicted(dir: &Path, given: u64, files: &[PooledFile], kind: FileKind) -> Option<Error> {
    let unit = match kind {
        FileKind::Whole => 1,
        FileKind::Segments => PAGE_SIZE,
        FileKind::Derived { unit } => unit,
    };
    let first = files
        .first()
        .filter(|first| first.len != given && first.len.is_multiple_of(unit))?;
    check_lengths(dir, first.len, files, false).ok()?;
    let (path, found) = (dir.join(segment_name(first.start)), first.len);
    let what = format!(
        "the size given is {given} bytes, but {} has {found}, as the other files have: leave the option out, or give {found}",
        path.display()
    );
    Some(Error::Invalid { what })
}

/// Returns the most frequent non-zero length; of several such lengths the largest. `None` without files.
pub fn usual_len(lens: impl IntoIterator<Item = u64>) -> Option<u64> {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    for len in lens.into_iter().filter(|len| *len > 0) {
        *counts.entry(len).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(len, count)| (*count, *len));
    most.map(|(len, _)| len)
}

/// Returns the most frequent length of the files that agrees with the distances between their names; 0 if no file has a byte. A
/// length that does not agree is that of a damaged file.
fn length_of_most(files: &[PooledFile]) -> u64 {
    let first = files.first().map_or(0, |file| file.start);
    let distance = |file: &PooledFile| file.start - first;
    let step = files.iter().map(distance).fold(0, greatest_common_divisor);
    let lens = || files.iter().map(|file| file.len).filter(|len| *len > 0);
    usual_len(lens().filter(|len| step.is_multiple_of(*len)))
        .or_else(|| usual_len(lens()))
        .unwrap_or(0)
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Checks the names and lengths: every length but the last is `file_size`, or less where there may be gaps (`has_gaps`), every
/// start is a multiple of it after the first, and every offset is a positive signed number.
fn check_lengths(dir: &Path, file_size: u64, files: &[impl Borrow<PooledFile>], has_gaps: bool) -> Result<()> {
    let corrupt =
        |file: &PooledFile, offset: u64, reason: String| Err(Error::corrupt(dir.join(segment_name(file.start)), offset, reason));
    let first_start = files.first().map_or(0, |f| f.borrow().start);
    for (n, file) in files.iter().map(Borrow::borrow).enumerate() {
        let is_last = n + 1 == files.len();
        if file.len > file_size || (file.len < file_size && !is_last && !has_gaps) {
            return Err(wrong_length(dir.join(segment_name(file.start)), file.len, file_size));
        }
        if i64::try_from(file.start).is_err() || i64::try_from(file.end()).is_err() {
            return corrupt(
                file,
                0,
                "the offset in the name is beyond 2^63: no store writes such a file".to_owned(),
            );
        }
        // `file_size` is 0 only without files.
        if !(file.start - first_start).is_multiple_of(file_size) {
            return corrupt(
                file,
                0,
                format!(
                    "the name is not a multiple of {file_size} bytes after the first file's, {}: files of two stores or sizes \
                     are mixed; take this file away, or give the right file size",
                    segment_name(first_start)
                ),
            );
        }
    }
    Ok(())
}

/// Returns the error of a file that is too long or too short.
fn wrong_length(path: PathBuf, found: u64, expected: u64) -> Error {
    let (change, remedy) = if found > expected {
        (format!("extended by {} bytes", found - expected), Remedy::CutFile)
    } else {
        (
            format!("cut short by {} bytes; copy it again", expected - found),
            Remedy::ExtendCopy,
        )
    };
    let reason =
        format!("expected {expected} bytes, the length of the store's files of this kind, found {found}: it was {change}");
    Error::corrupt(path, found.min(expected), reason).with_remedy(remedy)
}

/// A repeated listing of a directory: its files at one moment.
pub(super) struct Relisting(BTreeMap<u64, PooledFile>);

impl Relisting {
    /// Lists the directory. A listing is not atomic: it may show a file that is then removed, and miss the next one, which was
    /// removed right after it. So the listing is repeated until no `known` file is missing between others, or the same ones are
    /// missing twice in a row.
    ///
    /// # Errors
    /// Those of `list`.
    pub(super) fn new(known: &[Arc<PooledFile>], list: impl Fn() -> Result<Vec<PooledFile>>) -> Result<Self> {
        let mut holes = None;
        let mut listings = 0;
        loop {
            let listed = Self(list()?.into_iter().map(|file| (file.start, file)).collect());
            let found = listed.holes_among(known);
            listings += 1;
            if found.is_empty() || holes.as_ref() == Some(&found) || listings == MOST_LISTINGS {
                return Ok(listed);
            }
            holes = Some(found);
        }
    }

    /// Returns the starts of the known files that are missing between others.
    fn holes_among(&self, known: &[Arc<PooledFile>]) -> Vec<u64> {
        let last = self.0.keys().next_back().copied().unwrap_or(0);
        let missing = known.iter().filter(|file| file.start < last && !self.has(file.start));
        missing
            .filter(|file| !self.is_expired(file.start))
            .map(|file| file.start)
            .collect()
    }

    /// Returns true if a file that starts there was listed.
    pub(super) fn has(&self, start: u64) -> bool {
        self.0.contains_key(&start)
    }

    /// Returns true if a file that started there has expired. Files expire from the first one on, so a missing file has expired
    /// only if it lies before all that remain. A missing file after them was allocated ahead and removed unused, and the next
    /// writer creates it again.
    pub(super) fn is_expired(&self, start: u64) -> bool {
        self.0.keys().next().is_none_or(|first| start < *first)
    }

    /// Returns, ascending, the listed files that are new, were created again after their removal, or have reached the full length.
    /// Shorter files at the end are left out until they have reached it.
    pub(super) fn into_new(self, known: &[Arc<PooledFile>], file_size: u64) -> Vec<PooledFile> {
        let known: BTreeMap<u64, &PooledFile> = known.iter().map(|file| (file.start, &**file)).collect();
        let is_new = |file: &PooledFile| {
            let known = known.get(&file.start).filter(|known| !known.is_removed());
            known.is_none_or(|known| known.len < file_size && file.len >= file_size)
        };
        let mut new: Vec<_> = self.0.into_values().filter(is_new).collect();
        while new.pop_if(|file| file.len < file_size).is_some() {}
        new
    }
}
