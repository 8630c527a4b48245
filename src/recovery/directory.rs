//! The directory of a store that is written to: its directories, `abort`, and files under temporary names.

use std::io;
use std::path::Path;

use crate::error::{Error, Result};
use crate::format::{ABORT_FILE, COMMIT_LOG_DIR, CONFIG_DIR, CONSUME_QUEUE_DIR, INDEX_DIR, UNFINISHED_PREFIX};
use crate::storage::{EntryKind, Env, Step, create_dir};

/// Makes the directories of the store that are missing. `is_begun`: their names may not be durable.
///
/// # Errors
/// [`Error::DiskFull`], [`Error::Io`].
pub(super) fn make_directories(env: &dyn Env, path: &Path, is_begun: bool) -> Result<()> {
    let mut made = false;
    for dir in [COMMIT_LOG_DIR, CONSUME_QUEUE_DIR, INDEX_DIR, CONFIG_DIR] {
        made |= create_dir(env, &path.join(dir))?;
    }
    if is_begun || made {
        sync_dir(env, path, Step::StoreDirectories)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync_dir(env, parent.unwrap_or(Path::new(".")), Step::StoreDirectories)?;
    }
    Ok(())
}

/// Makes `abort`, before anything in the store is changed. An `abort` that a crash left stays, and its name is synced.
///
/// # Errors
/// [`Error::DiskFull`], [`Error::Io`]: it is not marked.
pub(super) fn mark_open(env: &dyn Env, path: &Path) -> Result<()> {
    let abort = path.join(ABORT_FILE);
    let file = match env.create(&abort) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return sync_dir(env, path, Step::AbortCreated),
        created => created.map_err(|error| Error::full_or_io("create", &abort, error))?,
    };
    let marked = file
        .write_all_at(std::process::id().to_string().as_bytes(), 0)
        .and_then(|()| env.sync_dir(path, Step::AbortCreated));
    marked.map_err(|error| {
        let _ = env.unlink(&abort);
        Error::full_or_io("create", &abort, error)
    })
}

/// Removes the unfinished files that a writer left when it died, and makes the names in `config` durable.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn remove_unfinished(env: &dyn Env, path: &Path) -> Result<()> {
    let config = path.join(CONFIG_DIR);
    for dir in [path, &config] {
        for entry in env.list(dir).map_err(|error| Error::io("list", dir, error))? {
            if entry.kind == EntryKind::File && entry.name.to_string_lossy().starts_with(UNFINISHED_PREFIX) {
                let path = dir.join(entry.name);
                env.unlink(&path).map_err(|error| Error::io("remove", &path, error))?;
            }
        }
    }
    sync_dir(env, &config, Step::ConfigRenamed)
}

/// Removes `abort`, last of a clean close. It may be called again.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn remove_abort(env: &dyn Env, path: &Path) -> Result<()> {
    let abort = path.join(ABORT_FILE);
    match env.unlink(&abort) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", &abort, error)),
        _ => sync_dir(env, path, Step::AbortRemoved),
    }
}

fn sync_dir(env: &dyn Env, dir: &Path, step: Step) -> Result<()> {
    env.sync_dir(dir, step).map_err(|error| Error::io("sync", dir, error))
}
