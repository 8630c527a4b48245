//! What a writer finds in a store, and whether it refuses it, before it changes anything.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::format::{ABORT_FILE, CONFIG_DIR, CONSUME_QUEUE_DIR, FLUSHED_MARK_FILE, INDEX_DIR, RECOVERY_NOTE_FILE};
use crate::recovery::{Recovered, WritePlan, expect_store, open_for_writing};
use crate::storage::{EntryKind, Env, read_file};
use crate::store::geometry::choose_sizes;
use crate::store::store_directory::OpenMode;

/// Reads the files of the store at `path`, and fills in the sizes that `config` leaves open.
///
/// # Errors
/// Those with which a writer refuses a store: see [`MessageStore::open`](crate::store::MessageStore::open).
pub(super) fn find(
    env: &Arc<dyn Env>,
    path: &Path,
    config: &mut StoreConfig,
    is_new: bool,
    mode: OpenMode,
) -> Result<(Recovered, WritePlan)> {
    expect_files(env.as_ref(), path)?;
    let sizes = choose_sizes(env, path, config, is_new, mode)?;
    open_for_writing(env, path, config, sizes, mode == OpenMode::Rebuild)
}

/// What a writer with [`OpenMode::Rebuild`] would find, for those who only ask: it takes no lock.
///
/// # Errors
/// Those with which that writer would refuse the store.
pub(crate) fn find_for_rebuild(env: &Arc<dyn Env>, path: &Path, mut config: StoreConfig) -> Result<Recovered> {
    config.validate()?;
    expect_store(env.as_ref(), path)?;
    Ok(find(env, path, &mut config, false, OpenMode::Rebuild)?.0)
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
fn expect_files(env: &dyn Env, path: &Path) -> Result<()> {
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
                what: format!("is no file of a writer: {source}"),
                is_link: false,
            }),
            read => drop(read?),
        }
    }
    Ok(misplaced)
}
