//! The files of a store as an open finds them.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::config::{Recovery, StoreConfig};
use crate::error::{Error, Result};
use crate::format::{
    ABORT_FILE, CHECKPOINT_FILE, COMMIT_LOG_DIR, CONFIG_DIR, CONSUME_QUEUE_DIR, Check, Checkpoint, FlushedMark, INDEX_DIR,
    LOCK_FILE, UNFINISHED_PREFIX, parse_segment_name,
};
use crate::log::{
    ConsumeQueueStore, IndexService, LastWriter, LogFiles, RecordStarts, is_flushed_mark_locked, load_checkpoint,
    load_flushed_mark,
};
use crate::recovery::own_records::load_own_from;
use crate::storage::{Access, DirEntry, EntryKind, Env, install_guard};

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

/// The small files in which a writer records what it has done. Each open, recovery, flush and close changes one of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WriterState {
    /// There is no `abort` file: the last writer has closed the store.
    pub(crate) clean: bool,
    /// Another store of this process or another, or a broker, has the store open for writing. A closed store counts as not open:
    /// its next writer changes nothing before it makes the `abort` file.
    pub(crate) is_written_to: bool,
    /// The physical offset from which on every record is ours, as the lock file says.
    pub(crate) claim: Option<i64>,
    mark: Option<FlushedMark>,
    /// The stamps, also those in the future.
    pub(crate) found: Checkpoint,
}

impl WriterState {
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn read(env: &dyn Env, path: &Path) -> Result<Self> {
        let clean = is_closed(env, path)?;
        Ok(Self {
            clean,
            is_written_to: !clean && is_locked(env, path)?,
            claim: load_own_from(env, path)?,
            mark: load_flushed_mark(env, path)?,
            found: load_checkpoint(env, &path.join(CHECKPOINT_FILE))?,
        })
    }
}

/// Returns true if no writer has the store open, and the last one has closed it.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn is_closed(env: &dyn Env, path: &Path) -> Result<bool> {
    Ok(!exists(env, path, ABORT_FILE)?)
}

fn is_locked(env: &dyn Env, path: &Path) -> Result<bool> {
    let path = path.join(LOCK_FILE);
    match env.is_locked(&path) {
        // Not a regular file, or a file that only its writer may read.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) => Ok(false),
        is_locked => is_locked.map_err(|error| Error::io("look at the lock of", path, error)),
    }
}

impl StoreFiles {
    /// Lists the files of the store. `state` was read before, because a live writer raises the mark.
    pub(crate) fn load(env: &Arc<dyn Env>, path: &Path, config: &StoreConfig, state: WriterState) -> Result<Self> {
        guard_against_sigbus(path, config)?;
        let checkpoint = state.found.ignoring_future(env.now_ms());
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

    pub(crate) fn opened<'a>(&'a self, config: &'a StoreConfig, index_from: Option<i64>) -> Opened<'a> {
        Opened {
            log: &self.log,
            queues: &self.queues,
            index: Some(&self.index),
            checkpoint: &self.checkpoint,
            clean: self.state.clean,
            is_written_to: false,
            own_from: self.state.claim.filter(|_| !self.state.clean),
            flushed: self.own_mark().map(|mark| mark.flushed),
            last_indexed: self.index.last_offset(),
            closed_at: None,
            shown_until: None,
            check: check_of(config),
            index_from,
            is_rebuilt: false,
            config,
        }
    }
}

impl StoreFiles {
    /// The mark, if it is about this log.
    fn own_mark(&self) -> Option<FlushedMark> {
        self.state.mark.filter(|mark| Some(mark.own_from) == self.state.claim)
    }

    /// Up to where a writer with `SYNC_FLUSH` that has the store open shows its messages; `None` if there is none.
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

/// Up to where a writer with `SYNC_FLUSH` that has the store open shows its messages, by the mark of what was flushed; `None` if
/// there is none.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn shown_until(env: &dyn Env, path: &Path, mark: Option<FlushedMark>) -> Result<Option<i64>> {
    let Some(mark) = mark.filter(|mark| mark.is_sync) else {
        return Ok(None);
    };
    let is_locked = is_flushed_mark_locked(env, path)?;
    Ok(is_locked.then_some(mark.flushed))
}

/// Up to which physical offset the log of a store is on disk, as the mark of its writer says; `None` if the store was closed, and
/// if no mark is about this log.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn flushed_mark(env: &dyn Env, path: &Path) -> Result<Option<i64>> {
    if exists(env, path, ABORT_FILE)? {
        mark_of_log(env, path)
    } else {
        Ok(None)
    }
}

/// Returns the physical offset below which every byte of the log was on disk, by the mark of its writer, whether the store was closed
/// since or not; `None` if no mark is about this log.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn mark_of_log(env: &dyn Env, path: &Path) -> Result<Option<i64>> {
    let claim = load_own_from(env, path)?;
    let mark = load_flushed_mark(env, path)?.filter(|mark| Some(mark.own_from) == claim);
    Ok(mark.map(|mark| mark.flushed))
}

/// The families of a store, and what is known of its last writer.
#[derive(Debug, Clone, Copy)]
pub struct Opened<'a> {
    /// The log.
    pub log: &'a LogFiles,
    /// The queues.
    pub queues: &'a ConsumeQueueStore,
    /// The index; `None` where nothing was opened of it.
    pub index: Option<&'a IndexService>,
    /// The stamps, without those in the future.
    pub checkpoint: &'a Checkpoint,
    /// Whether the last writer closed the store: there is no `abort` file.
    pub clean: bool,
    /// Whether another process may be appending: its last record may be half written.
    pub is_written_to: bool,
    /// The physical offset from which on every record is ours.
    pub own_from: Option<i64>,
    /// Every byte of the log below this physical offset was on disk: the mark of what was flushed. `None` if there is none, or if
    /// it is about the log of another history.
    pub flushed: Option<i64>,
    /// The physical offset of the last message with a key, by the headers of the index files.
    pub last_indexed: Option<i64>,
    /// A live writer shows nothing after this physical offset yet: it waits for its messages to be durable. `None` for any other store.
    pub shown_until: Option<i64>,
    /// Where the log ended when the store was last closed, if every later open has failed; `None` if one succeeded, or if nothing says so.
    pub closed_at: Option<i64>,
    /// How much of a record is verified.
    pub check: Check,
    /// Where a writer goes on putting keys into the index; a reader does not.
    pub index_from: Option<i64>,
    /// Whether a writer makes queues, index and checkpoint anew from the log.
    pub is_rebuilt: bool,
    /// The options.
    pub config: &'a StoreConfig,
}

impl Opened<'_> {
    /// Whether damage inside the log is passed over.
    pub fn is_salvage(&self) -> bool {
        self.config.recovery == Recovery::Salvage
    }

    /// Returns the evidence of where records start, for a search after damage.
    pub fn record_starts(&self) -> RecordStarts<'_> {
        RecordStarts::new(self.log, self.queues, self.index, self.last_writer())
    }

    /// Returns what the last writer left. A recovery that has not ended hides that the store was closed before it.
    pub(super) fn last_writer(&self) -> LastWriter {
        let stamped = Some(self.checkpoint.logics_physical_offset).filter(|_| self.checkpoint.is_ours());
        LastWriter {
            named: [self.flushed, stamped],
            has_closed: self.clean || self.closed_at.is_some(),
        }
    }

    /// Whether this process is the only one that writes to the store.
    pub(super) fn is_for_writing(&self) -> bool {
        self.index_from.is_some()
    }

    /// Whether the record at this physical offset is known to be ours.
    pub(super) fn is_own(&self, physical_offset: i64) -> bool {
        self.own_from.is_some_and(|from| from <= physical_offset)
    }

    /// Whether everything that is read is on disk.
    pub fn is_on_disk(&self) -> bool {
        self.clean && !self.is_salvage()
    }

    /// Whether the entries of the queues are taken for what they say, because their writer has closed the store.
    pub(super) fn trusts_queues(&self) -> bool {
        self.clean && !self.is_rebuilt
    }
}

/// Fills in every size that the files in `path` tell, for a writer that goes on with them, or (`is_rebuilt`) without their index. Says
/// whether there is a segment.
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
    config.validate().map_err(|error| Error::Corrupt {
        path: log.path_of(log.first_offset()).0,
        offset: 0,
        reason: format!(
            "no store is written with files of these sizes ({error}): a file was cut short or extended, so copy it again"
        ),
    })?;
    Ok(log.segment_size() > 0)
}

/// How much of a record is verified.
pub(super) fn check_of(config: &StoreConfig) -> Check {
    if config.check_crc_on_recover {
        Check::Whole
    } else {
        Check::Structure
    }
}

fn guard_against_sigbus(path: &Path, config: &StoreConfig) -> Result<()> {
    if config.sigbus_guard {
        install_guard().map_err(|error| Error::io("install the SIGBUS guard for", path, error))?;
    }
    Ok(())
}

/// Returns true if there is an entry of this name that is no link that leads nowhere. It is not read, and may be of any type.
fn exists(env: &dyn Env, dir: &Path, name: &str) -> Result<bool> {
    let path = dir.join(name);
    match env.open(&path, Access::Read) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io("look for", path, error)),
    }
}

/// Refuses a `path` that is no store: neither a directory with a `commitlog` directory in it, nor a store whose first writer died while
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

/// Whether these are the first things that a writer makes, and nothing else. Queue or index files show that there was a log.
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
