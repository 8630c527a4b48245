//! The names in the directories of consume queues: topics, queue ids, and what is neither.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::format::UNFINISHED_PREFIX;
use crate::storage::{DirEntry, EntryKind, Env};

/// The topics in a directory of queues, ascending by name.
pub(super) fn topic_dirs<'a>(dir: &'a Path, entries: &'a [DirEntry]) -> impl Iterator<Item = (String, PathBuf)> + 'a {
    let topics = entries.iter().filter(|entry| is_directory(entry));
    topics.filter_map(|entry| Some((entry.name.to_str()?.to_owned(), dir.join(&entry.name))))
}

/// The unfinished files in a topic's directory.
pub(super) fn staged_files(dir: &Path, entries: &[DirEntry]) -> Vec<PathBuf> {
    let names = entries.iter().map(|entry| &entry.name);
    let staged = names.filter(|name| name.to_str().is_some_and(|name| name.starts_with(UNFINISHED_PREFIX)));
    staged.map(|name| dir.join(name)).collect()
}

/// Returns the entries with such names that are not directories, without a writer's unfinished files.
pub(super) fn no_directories<'a>(
    dir: &'a Path,
    entries: &'a [DirEntry],
    has_name: impl Fn(&str) -> bool + 'a,
) -> impl Iterator<Item = PathBuf> + 'a {
    let names = entries.iter().filter(|entry| !is_directory(entry));
    let names = names.filter_map(|entry| entry.name.to_str());
    let named = names.filter(move |name| !name.starts_with(UNFINISHED_PREFIX) && has_name(name));
    named.map(|name| dir.join(name))
}

/// The ids and directories of a topic's queues. RocketMQ passes over entries that are no number, too.
pub(super) fn queue_dirs(topic: &Path, entries: &[DirEntry]) -> impl Iterator<Item = (i32, PathBuf)> {
    let dirs = entries.iter().filter(|entry| is_directory(entry));
    dirs.filter_map(|entry| Some((parse_queue_id(entry.name.to_str()?)?, topic.join(&entry.name))))
}

/// Returns true for a directory.
pub(super) fn is_directory(entry: &DirEntry) -> bool {
    entry.kind == EntryKind::Directory
}

/// The id in the name of a queue's directory, written as a broker writes it.
pub(super) fn parse_queue_id(name: &str) -> Option<i32> {
    name.parse().ok().filter(|id: &i32| *id >= 0 && id.to_string() == name)
}

/// The entries of a directory; none if it is missing.
pub(super) fn list(env: &dyn Env, dir: &Path) -> Result<Vec<DirEntry>> {
    match env.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.map_err(|error| Error::io("list", dir, error)),
    }
}
