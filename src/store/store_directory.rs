//! The directory of a store that is opened for writing: its lock, and what must be in it.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::format::{
    ABORT_FILE, COMMIT_LOG_DIR, CONFIG_DIR, CONSUME_QUEUE_DIR, FLUSHED_MARK_FILE, INDEX_DIR, LOCK_FILE, RECOVERY_NOTE_FILE,
};
use crate::interrupt;
use crate::recovery::{ReplicaLog, expect_store};
use crate::storage::{EntryKind, Env, Lock, create_dir, read_file};

/// The expectation about the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// A store is there.
    Existing,
    /// A store is there, or one is made.
    Append,
    /// An absent or empty directory: a store is made.
    New,
    /// A store whose queues, index and checkpoint are made again from the log.
    Rebuild,
    /// The store of a slave: its log is received from a master, and nothing is appended to it.
    Replica(ReplicaLog),
}

/// Takes the lock of the store at `path`, which is made if it may be, and waits for it up to `lock_timeout`. Says whether there was no
/// store.
///
/// # Errors
/// [`Error::NotAStore`], [`Error::Exists`], [`Error::Locked`], [`Error::DiskFull`], [`Error::Io`]; [`Error::Invalid`] for a new store in
/// another one.
pub(super) fn enter(env: &dyn Env, path: &Path, mode: OpenMode, lock_timeout: Duration) -> Result<(Lock, bool)> {
    let may_make = matches!(
        mode,
        OpenMode::Append | OpenMode::New | OpenMode::Replica(ReplicaLog::BeginsAt(_))
    );
    if may_make {
        if expect_store(env, path).is_err() {
            expect_outside(env, path)?;
        }
        create_dir(env, path)?;
    }
    // Checked twice: before the lock, so that no lock file is made where no store is, and under it, because only then nobody changes it.
    is_new(env, path, mode)?;
    let lock = take_lock(env, path, lock_timeout)?;
    let is_new = is_new(env, path, mode)?;
    Ok((lock, is_new))
}

/// Returns true if there is no store yet. Refuses what `mode` does not allow.
fn is_new(env: &dyn Env, path: &Path, mode: OpenMode) -> Result<bool> {
    let is_empty = match env.list(path) {
        Ok(entries) => entries.iter().all(|entry| entry.name == LOCK_FILE),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => false,
        Err(error) => return Err(Error::io("list", path, error)),
    };
    match mode {
        OpenMode::New | OpenMode::Append | OpenMode::Replica(ReplicaLog::BeginsAt(_)) if is_empty => Ok(true),
        OpenMode::New => Err(Error::Exists { path: path.to_owned() }),
        OpenMode::Existing | OpenMode::Append | OpenMode::Rebuild | OpenMode::Replica(_) => {
            expect_store(env, path).map(|()| false)
        }
    }
}

/// Refuses a `path` in a store, where a broker looks at every file: it does not start with a file that it does not know, or removes it.
///
/// # Errors
/// [`Error::Invalid`] with the store; [`Error::Io`].
pub(crate) fn expect_outside(env: &dyn Env, path: &Path) -> Result<()> {
    let absolute = std::path::absolute(path).map_err(|error| Error::io("find", path, error))?;
    let mut above = PathBuf::new();
    for part in absolute.components() {
        if part == Component::ParentDir {
            above.pop();
        } else {
            above.push(part);
        }
    }
    while above.pop() {
        if env.list(&above.join(COMMIT_LOG_DIR)).is_ok() {
            let (path, store) = (path.display(), above.display());
            return Err(Error::Invalid {
                what: format!("{path} lies in the store {store}: name a directory beside it"),
            });
        }
    }
    Ok(())
}

/// An entry of a store's directory that is of another type than a writer needs.
pub(crate) struct Misplaced {
    pub(crate) path: PathBuf,
    /// The type that it has.
    pub(crate) what: String,
    /// True for a link that leads nowhere: its target may be on a disk that is not mounted.
    pub(crate) is_link: bool,
}

/// Refuses a directory in which a writer would fail after it has changed a part of the store.
pub(super) fn expect_files(env: &dyn Env, path: &Path) -> Result<()> {
    let Some(first) = misplaced_entries(env, path)?.into_iter().next() else {
        return Ok(());
    };
    let (path, what) = (first.path.display(), first.what);
    let what = format!("{path} {what}: put back what belongs there, or move it out of the store");
    Err(Error::Invalid { what })
}

/// Lists the entries at which no writer opens the store: a link that leads nowhere where it makes a directory, and a directory
/// where it writes a file that recovery has not read.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn misplaced_entries(env: &dyn Env, path: &Path) -> Result<Vec<Misplaced>> {
    let mut misplaced = Vec::new();
    for entry in env.list(path).map_err(|error| Error::io("list", path, error))? {
        let is_directory = [CONSUME_QUEUE_DIR, INDEX_DIR, CONFIG_DIR]
            .iter()
            .any(|name| entry.name == *name);
        if is_directory && entry.kind == EntryKind::Other {
            misplaced.push(Misplaced {
                path: path.join(entry.name),
                what: "is a link that leads nowhere, or a device".to_owned(),
                is_link: true,
            });
        }
    }
    let config = path.join(CONFIG_DIR);
    for file in [
        path.join(ABORT_FILE),
        config.join(FLUSHED_MARK_FILE),
        config.join(RECOVERY_NOTE_FILE),
    ] {
        match read_file(env, &file, 0) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::InvalidInput => misplaced.push(Misplaced {
                path: file,
                what: format!("is not a file of a writer: {source}"),
                is_link: false,
            }),
            read => drop(read?),
        }
    }
    Ok(misplaced)
}

/// The pause between two attempts to take a lock that another writer holds. An attempt takes some 10 us.
const LOCK_RETRY: Duration = Duration::from_millis(20);

/// Takes the lock of the store at `path`, and waits for it up to `timeout`.
///
/// # Errors
/// [`Error::Locked`] if another writer has the store for longer; [`Error::DiskFull`], [`Error::Io`], [`Error::Interrupted`].
pub(crate) fn take_lock(env: &dyn Env, path: &Path, timeout: Duration) -> Result<Lock> {
    let path = path.join(LOCK_FILE);
    retry_while_locked(&path, timeout, || match env.lock(&path) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        taken => taken.map(Some).map_err(|error| Error::full_or_io("lock", &path, error)),
    })
}

/// Waits up to `timeout` until no writer has the store at `path`, and takes no lock.
///
/// # Errors
/// As [`take_lock`].
pub(crate) fn expect_unlocked(env: &dyn Env, path: &Path, timeout: Duration) -> Result<()> {
    let path = path.join(LOCK_FILE);
    retry_while_locked(&path, timeout, || match env.is_locked(&path) {
        Ok(is_locked) => Ok((!is_locked).then_some(())),
        Err(error) => Err(Error::io("query the lock of", &path, error)),
    })
}

/// Makes attempts until one returns a value, or `timeout` is over. The file is opened again for each, so a lock file that was replaced
/// is noticed.
fn retry_while_locked<T>(path: &Path, timeout: Duration, attempt: impl Fn() -> Result<Option<T>>) -> Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(free) = attempt()? {
            return Ok(free);
        }
        let waited = begun.elapsed();
        let left = timeout.saturating_sub(waited);
        if left.is_zero() {
            return Err(Error::Locked {
                path: path.to_owned(),
                waited: if timeout.is_zero() { Duration::ZERO } else { waited },
            });
        }
        thread::sleep(left.min(LOCK_RETRY));
        interrupt::check_after_wait()?;
    }
}
