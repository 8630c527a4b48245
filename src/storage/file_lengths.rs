//! Whether the files of a queue fit together.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::path::Path;

use super::mapping_pool::PooledFile;
use crate::error::{Error, Result};
use crate::format::segment_name;

/// The error of a file size that is not that of the files, although they fit together.
pub(super) fn contradicted(dir: &Path, given: u64, files: &[PooledFile]) -> Option<Error> {
    let first = files.first().filter(|first| first.len != given)?;
    check_lengths(dir, first.len, files, false).ok()?;
    let (path, found) = (dir.join(segment_name(first.start)), first.len);
    let what = format!(
        "the size given is {given} bytes, but {} has {found}, as the other files have: leave the option out, or give {found}",
        path.display()
    );
    Some(Error::Invalid { what })
}

/// The length of most files that have a byte; of several such lengths the largest. `None` if there is no such file.
pub fn usual_len(lens: impl IntoIterator<Item = u64>) -> Option<u64> {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    for len in lens.into_iter().filter(|len| *len > 0) {
        *counts.entry(len).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(len, count)| (*count, *len));
    most.map(|(len, _)| len)
}

/// Whether the files can follow each other: every length but the last is `file_size`, or less where there may be gaps (`has_gaps`), every
/// start is a multiple of it after the first, and every offset is a positive signed number.
pub(super) fn check_lengths(dir: &Path, file_size: u64, files: &[impl Borrow<PooledFile>], has_gaps: bool) -> Result<()> {
    let corrupt = |file: &PooledFile, offset: u64, reason: String| {
        Err(Error::Corrupt {
            path: dir.join(segment_name(file.start)),
            offset,
            reason,
        })
    };
    let first_start = files.first().map_or(0, |f| f.borrow().start);
    for (n, file) in files.iter().map(Borrow::borrow).enumerate() {
        let is_last = n + 1 == files.len();
        if file.len > file_size || (file.len < file_size && !is_last && !has_gaps) {
            let found = file.len;
            return corrupt(
                file,
                found.min(file_size),
                format!(
                    "expected {file_size} bytes, as in the other files or as the option says, found {found}: the copy of this \
                     file (or of the first) is incomplete, so copy it again, or give the right file size; if there is nothing to copy it \
                     from, move it out of the store, and mqstore verify says what else to do"
                ),
            );
        }
        if i64::try_from(file.start).is_err() || i64::try_from(file.end()).is_err() {
            return corrupt(
                file,
                0,
                "the offset in the name is beyond 2^63: no store writes such a file".to_owned(),
            );
        }
        // `file_size` is 0 only if there is no file.
        if !(file.start - first_start).is_multiple_of(file_size) {
            return corrupt(
                file,
                0,
                format!(
                    "the name is no multiple of {file_size} bytes after the first file's, {}: files of two stores or sizes \
                     are mixed; take this file away, or give the right file size",
                    segment_name(first_start)
                ),
            );
        }
    }
    Ok(())
}
