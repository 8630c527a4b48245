//! The files of a store as an open finds them.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::format::{
    ABORT_FILE, CHECKPOINT_FILE, COMMIT_LOG_DIR, CONFIG_DIR, CONSUME_QUEUE_DIR, Checkpoint, FlushedMark, INDEX_DIR, LOCK_FILE,
    UNFINISHED_PREFIX, parse_segment_name,
};
use crate::log::{ConsumeQueueStore, IndexService, LogFiles};
use crate::recovery::recovery_note::RecoveryNote;
use crate::recovery::store_state::{Exit, Families, LastShutdown, WriterRecords};
use crate::recovery::writer_state::{WriterState, is_locked, shown_until};
use crate::storage::{DirEntry, EntryKind, Env, install_guard};

/// The files of a store as they were found.
pub(crate) struct StoreFiles {
    pub(crate) log: Arc<LogFiles>,
    pub(crate) queues: Arc<ConsumeQueueStore>,
    pub(crate) index: Arc<IndexService>,
    /// Without stamps in the future.
    pub(crate) checkpoint: Checkpoint,
    /// Read before the other files.
    pub(crate) state: WriterState,
}

impl StoreFiles {
    /// Lists the files of the store. `state` was read before, because a live writer raises the mark.
    pub(crate) fn load(env: &Arc<dyn Env>, path: &Path, config: &StoreConfig, state: WriterState) -> Result<Self> {
        guard_against_sigbus(path, config)?;
        let checkpoint = state.checkpoint.ignoring_future(env.now_ms());
        let load = || LogFiles::load(env.clone(), &path.join(COMMIT_LOG_DIR), config.mapped_file_size_commit_log);
        let mut log = load()?;
        if log.has_gap() {
            // Hundreds of names are listed in several calls, and a live writer may make segments between them.
            log = load()?;
        }
        let queues = ConsumeQueueStore::load(env.clone(), path, config.mapped_file_size_consume_queue)?;
        let safe_until = (!state.clean).then_some(checkpoint.index_msg_timestamp);
        let index = IndexService::load(env, &path.join(INDEX_DIR), config.index_geometry(), safe_until)?;
        Ok(Self {
            log: Arc::new(log),
            queues: Arc::new(queues),
            index: Arc::new(index),
            checkpoint,
            state,
        })
    }

    /// Returns the file families.
    pub(super) fn families(&self) -> Families<'_> {
        Families {
            log: &self.log,
            queues: &self.queues,
            index: Some(&self.index),
        }
    }

    /// Returns the records of the last writer.
    pub(super) fn records(&self, exit: Exit, note: Option<RecoveryNote>) -> WriterRecords {
        WriterRecords {
            shutdown: LastShutdown { exit, note },
            claim: self.state.claim,
            flushed: self.own_mark().map(|mark| mark.flushed),
            checkpoint: self.checkpoint,
            replica: self.state.replica,
        }
    }

    /// Returns the mark, if it is about this log.
    fn own_mark(&self) -> Option<FlushedMark> {
        self.state.mark.filter(|mark| Some(mark.own_from) == self.state.claim)
    }

    /// Returns the physical offset after which a writer with `SYNC_FLUSH` that has the store open shows nothing yet.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn shown_until(&self, env: &dyn Env, path: &Path) -> Result<Option<i64>> {
        shown_until(env, path, self.own_mark().filter(|_| !self.state.clean))
    }

    /// Returns true if another process has the store open for writing, or has opened it since the state was read.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn is_written_to(&self, env: &dyn Env, path: &Path) -> Result<bool> {
        Ok(self.state.is_written_to || (!self.state.clean && is_locked(env, path)?))
    }
}

/// Fills in every size that the files in `path` show, for a writer that continues them, or (`is_rebuilt`) without their index. Returns
/// true if there is a segment.
///
/// # Errors
/// As [`crate::recovery::open_for_reading`]; [`Error::Invalid`] where the index files admit several geometries, and where no
/// writer would have made files of such sizes.
pub(crate) fn measure(env: &Arc<dyn Env>, path: &Path, config: &mut StoreConfig, is_rebuilt: bool) -> Result<bool> {
    guard_against_sigbus(path, config)?;
    let log = LogFiles::load(env.clone(), &path.join(COMMIT_LOG_DIR), config.mapped_file_size_commit_log)?;
    if log.segment_size() > 0 {
        config.mapped_file_size_commit_log = Some(log.segment_size());
    }
    if config.mapped_file_size_consume_queue.is_none() {
        config.mapped_file_size_consume_queue = ConsumeQueueStore::find_file_size(env, path)?;
    }
    let index = IndexService::load(env, &path.join(INDEX_DIR), config.index_geometry(), None)?;
    if let Some(geometry) = index.geometry()? {
        config.max_hash_slot_num = Some(u64::from(geometry.slots));
        config.max_index_num = Some(u64::from(geometry.items));
    } else if index.has_keys() && !is_rebuilt {
        let index = path.join(INDEX_DIR);
        return Err(Error::Invalid {
            what: format!(
                "{}: the files fit several index geometries: give the options max_hash_slot_num and max_index_num",
                index.display()
            ),
        });
    }
    config.validate().map_err(|error| {
        let reason = format!(
            "no store is written with files of these sizes ({error}): a file was cut short or extended, so copy it again"
        );
        Error::corrupt(log.path_of(log.first_offset()).0, 0, reason)
    })?;
    Ok(log.segment_size() > 0)
}

fn guard_against_sigbus(path: &Path, config: &StoreConfig) -> Result<()> {
    if config.sigbus_guard {
        install_guard().map_err(|error| Error::io("install the SIGBUS guard for", path, error))?;
    }
    Ok(())
}

/// Refuses a `path` that is not a store: neither a directory with a `commitlog` directory in it, nor a store whose first writer died while
/// it made the directories. The error says what it is.
///
/// # Errors
/// [`Error::NoSuchDirectory`], [`Error::NotAStore`].
pub(crate) fn expect_store(env: &dyn Env, path: &Path) -> Result<()> {
    let not_a_store = |found: String| {
        Err(Error::NotAStore {
            path: path.to_owned(),
            found,
        })
    };
    let entries = match env.list(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::NoSuchDirectory { path: path.to_owned() });
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return not_a_store("a file".to_owned()),
        Err(error) => return Err(Error::io("list", path, error)),
    };
    if entries
        .iter()
        .any(|entry| entry.name == COMMIT_LOG_DIR && entry.kind == EntryKind::Directory)
        || is_begun(env, path, &entries)?
    {
        return Ok(());
    }
    if entries
        .iter()
        .any(|entry| entry.name.to_str().and_then(parse_segment_name).is_some())
    {
        return not_a_store("the segments themselves: open the directory above".to_owned());
    }
    if entries.is_empty() {
        return not_a_store("an empty directory".to_owned());
    }
    if entries
        .iter()
        .any(|entry| entry.name.to_str().and_then(|name| name.strip_prefix(UNFINISHED_PREFIX)) == Some(COMMIT_LOG_DIR))
    {
        return not_a_store("a copy that a repair has not finished: remove it, and repair again".to_owned());
    }
    let mut names: Vec<_> = entries
        .iter()
        .take(8)
        .map(|entry| entry.name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    let more = entries.len().saturating_sub(names.len());
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let is_lost = entries
        .iter()
        .any(|entry| entry.name == CONSUME_QUEUE_DIR || entry.name == CHECKPOINT_FILE);
    let lost = if is_lost {
        ": the log of this store is gone; put it back"
    } else {
        ""
    };
    not_a_store(format!("{}{more}{lost}", names.join(", ")))
}

/// The directories of the files that are derived from the log.
const DERIVED: [&str; 2] = [CONSUME_QUEUE_DIR, INDEX_DIR];

/// Returns true if these are the first files that a writer makes, and nothing else. Queue or index files show that there was a log.
fn is_begun(env: &dyn Env, path: &Path, entries: &[DirEntry]) -> Result<bool> {
    for entry in entries {
        let name = entry.name.to_string_lossy();
        let is_ours = match entry.kind {
            EntryKind::Directory if DERIVED.contains(&name.as_ref()) => {
                let dir = path.join(&entry.name);
                env.list(&dir).map_err(|error| Error::io("list", &dir, error))?.is_empty()
            }
            EntryKind::Directory => name == CONFIG_DIR,
            EntryKind::File => name == LOCK_FILE || name == ABORT_FILE || name.starts_with(UNFINISHED_PREFIX),
            EntryKind::Other => false,
        };
        if !is_ours {
            return Ok(false);
        }
    }
    Ok(!entries.is_empty())
}
