//! The files in the directory of a queue.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use super::env::{DirEntry, EntryKind, Env};
use super::mapping_pool::PooledFile;
use crate::error::{Error, Result};
use crate::format::parse_segment_name;

/// What is in a directory; nothing if it is missing.
pub(super) fn entries(env: &dyn Env, dir: &Path) -> Result<Vec<DirEntry>> {
    match env.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.map_err(|error| Error::io("list", dir, error)),
    }
}

/// The segments among the entries, sorted by offset, and the other names.
pub(super) fn segments(dir: &Path, entries: Vec<DirEntry>) -> Result<(Vec<PooledFile>, Vec<OsString>)> {
    let mut files = Vec::new();
    let mut ignored = Vec::new();
    for entry in entries {
        match (entry.name.to_str().and_then(parse_segment_name), entry.kind) {
            (Some(start), EntryKind::File) => {
                files.push(PooledFile::new(dir.join(&entry.name), start, entry.len));
            }
            (Some(_), EntryKind::Directory | EntryKind::Other) => {
                return Err(Error::Corrupt {
                    path: dir.join(entry.name),
                    offset: 0,
                    reason: "a segment's name on something that is no regular file (a directory, a pipe, or a link that leads nowhere): \
                             put the file back, or remove the name"
                        .to_owned(),
                });
            }
            (None, EntryKind::Directory) => {}
            (None, _) => ignored.push(entry.name),
        }
    }
    files.sort_unstable_by_key(|f| f.start);
    Ok((files, ignored))
}
