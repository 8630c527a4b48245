//! What a writer finds in a store, and whether it refuses it, before it changes anything.

use std::path::Path;
use std::sync::Arc;

use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::format::{ABORT_FILE, CONFIG_DIR, CONSUME_QUEUE_DIR, FLUSHED_MARK_FILE, INDEX_DIR};
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

/// Refuses a directory where the writer is going to write a file that was not read, and a link that leads nowhere where it makes
/// a directory: it would fail when the store is half changed.
fn expect_files(env: &dyn Env, path: &Path) -> Result<()> {
    for entry in env.list(path).map_err(|error| Error::io("list", path, error))? {
        let is_directory = [CONSUME_QUEUE_DIR, INDEX_DIR, CONFIG_DIR]
            .iter()
            .any(|name| entry.name == *name);
        if is_directory && entry.kind == EntryKind::Other {
            let what = format!(
                "{} is a link that leads nowhere, or a device: put back what it leads to, or remove it",
                path.join(entry.name).display()
            );
            return Err(Error::Invalid { what });
        }
    }
    for file in [path.join(ABORT_FILE), path.join(CONFIG_DIR).join(FLUSHED_MARK_FILE)] {
        read_file(env, &file, 0)?;
    }
    Ok(())
}
