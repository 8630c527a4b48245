//! The files of a store before its writer changes anything, and the sizes of the files that the writer makes: given, recorded, shown by
//! the files that are there, or chosen.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::{Geometry, Sizes, StoreConfig, named_as_in_rocketmq};
use crate::error::{Error, Result};
use crate::log::fill_from_record;
use crate::read::MessageReader;
use crate::recovery::{Intent, Recovered, Unrecovered, expect_store, measure, open_for_writing};
use crate::storage::Env;
use crate::store::store_directory::{OpenMode, expect_files};

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
) -> Result<Unrecovered> {
    expect_files(env.as_ref(), path)?;
    let sizes = choose_sizes(env, path, config, is_new, mode)?;
    let intent = match mode {
        OpenMode::Rebuild => Intent::Rebuild(config.recovery),
        OpenMode::Replica(log) => Intent::Replicate(log),
        OpenMode::Existing | OpenMode::Append | OpenMode::New => Intent::of(config.recovery),
    };
    open_for_writing(env, path, config, sizes, is_new, intent)
}

/// Returns the report of a writer with [`OpenMode::Rebuild`] without taking a lock, for a dry run.
///
/// # Errors
/// Those with which that writer would refuse the store.
pub(crate) fn find_for_rebuild(env: &Arc<dyn Env>, path: &Path, mut config: StoreConfig) -> Result<Recovered> {
    config.validate()?;
    expect_store(env.as_ref(), path)?;
    Ok(find(env, path, &mut config, false, OpenMode::Rebuild)?.found)
}

/// Fills every size of `config`, and returns all.
///
/// # Errors
/// [`Error::Invalid`] for a geometry that is not the store's, and those of measuring it.
pub fn choose_sizes(env: &Arc<dyn Env>, path: &Path, config: &mut StoreConfig, is_new: bool, mode: OpenMode) -> Result<Sizes> {
    let given = config.clone();
    let is_recorded = fill_from_record(env, path, config)?;
    let is_empty = is_new || (!config.has_geometry() && !measure(env, path, config, mode == OpenMode::Rebuild)?);
    if config.geometry == Geometry::Broker && !is_empty {
        expect_broker(&given, config)?;
    }
    // Unknown sizes of an existing store are those of a broker, because its broker may come back.
    let is_own = is_empty || is_recorded;
    let is_small =
        is_own && config.geometry == Geometry::Small && config.mapped_file_size_commit_log != Some(Sizes::BROKER.commit_log);
    Ok(config.fill(if is_small { Sizes::SMALL } else { Sizes::BROKER }))
}

/// Returns the index file for which a writer with the options of `reader` asks for sizes, where no index file shows them.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn find_index_file_without_sizes(reader: &MessageReader) -> Result<Option<PathBuf>> {
    let mut config = reader.config().clone();
    let sizes = match choose_sizes(reader.env(), reader.path(), &mut config, false, OpenMode::Existing) {
        Ok(sizes) => sizes,
        Err(error @ Error::Io { .. }) => return Err(error),
        // The writer refuses the store for another reason.
        Err(_) => return Ok(None),
    };
    let other = reader.index().find_other_geometry(sizes.index)?;
    Ok(other.map(|file| file.path().to_owned()))
}

/// Refuses a broker's geometry for a store whose files have other sizes, but for those that options give.
fn expect_broker(given: &StoreConfig, found: &StoreConfig) -> Result<()> {
    let sizes = |config: &StoreConfig| {
        [
            ("mapped_file_size_commit_log", config.mapped_file_size_commit_log),
            ("mapped_file_size_consume_queue", config.mapped_file_size_consume_queue),
            ("max_hash_slot_num", config.max_hash_slot_num),
            ("max_index_num", config.max_index_num),
        ]
    };
    let mut broker = given.clone();
    broker.fill(Sizes::BROKER);
    for ((name, found), (_, expected)) in sizes(found).into_iter().zip(sizes(&broker)) {
        if let (Some(found), Some(expected)) = (found, expected)
            && found != expected
        {
            return Err(Error::Invalid {
                what: format!(
                    "geometry is \"broker\", which makes {} {expected} unless it is stated, but it is {found} in this store: state that \
                     size, or make geometry None",
                    named_as_in_rocketmq(name)
                ),
            });
        }
    }
    Ok(())
}
