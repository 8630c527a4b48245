//! `config/mqstore.json`: the recorded file sizes of a store that this crate has created, so that no option is needed to open it
//! again.

use std::io;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::config::{PAGE_SIZE, Sizes, StoreConfig, named_as_in_rocketmq};
use crate::error::{Error, Result};
use crate::format::{
    COMMIT_LOG_DIR, CONFIG_DIR, CQ_UNIT_SIZE, GEOMETRY_FILE, INDEX_DIR, IndexGeometry, parse_index_name, parse_segment_name,
};
use crate::log::consume_queue::ConsumeQueueStore;
use crate::log::index::IndexService;
use crate::storage::{DirEntry, Env, Step, install_guard, read_file, replace_file, usual_len};

/// A limit above the size of any such record.
const MAX_LEN: usize = 64 * 1024;

/// Lists the lengths of the files of one family, or enough of them to show that a file has the recorded length.
type ListLens = fn(&dyn Env, &Path, u64) -> Result<Vec<u64>>;

type Field = (&'static str, fn(&mut StoreConfig) -> &mut Option<u64>);

const FIELDS: [Field; 4] = [
    ("mapped_file_size_commit_log", |config| {
        &mut config.mapped_file_size_commit_log
    }),
    ("mapped_file_size_consume_queue", |config| {
        &mut config.mapped_file_size_consume_queue
    }),
    ("max_hash_slot_num", |config| &mut config.max_hash_slot_num),
    ("max_index_num", |config| &mut config.max_index_num),
];

/// Fills the sizes that `config` leaves open with the recorded ones, and returns true if there are any. If `config` leaves none
/// open, the record is not read, so that a store with a damaged record can be opened. A recorded size that is impossible, or that
/// the files [contradict](is_contradicted), is left open: the files decide it.
///
/// # Errors
/// [`Error::Corrupt`] if the file is not a JSON object of numbers, or has impossible sizes that no file corrects;
/// [`Error::Invalid`] for a segment size that it and the first segment contradict; [`Error::Io`].
pub fn fill_from_record(env: &Arc<dyn Env>, root: &Path, config: &mut StoreConfig) -> Result<bool> {
    if config.has_geometry() {
        return Ok(false);
    }
    let path = root.join(CONFIG_DIR).join(GEOMETRY_FILE);
    let Some(bytes) = read_file(env.as_ref(), &path, MAX_LEN)? else {
        return Ok(false);
    };
    let corrupt = |reason: String| Error::corrupt(&path, 0, reason);
    let recorded: Map<String, Value> = serde_json::from_slice(&bytes).map_err(|error| {
        let names = FIELDS.map(|(name, _)| name).join(", ");
        corrupt(format!("expected a JSON object of sizes: {error}; give {names} as options"))
    })?;
    if let Some(given) = config.mapped_file_size_commit_log {
        expect_size_of_segments(env.as_ref(), root, given, recorded.get(FIELDS[0].0).and_then(Value::as_u64))?;
    }
    let mut filled = config.clone();
    for (name, field) in FIELDS {
        let Some(value) = recorded.get(name).filter(|_| field(config).is_none()) else {
            continue;
        };
        let Some(value) = value.as_u64() else {
            return Err(corrupt(format!("{name} is {value}, expected a number; give it as an option")));
        };
        *field(&mut filled) = Some(value);
    }
    leave_contradicted_open(env, root, config, &mut filled)?;
    // Every option was valid before, so a recorded size is wrong.
    filled
        .validate()
        .map_err(|error| corrupt(format!("{error}; give it as an option")))?;
    *config = filled;
    Ok(true)
}

/// Resets the sizes of `filled` that are not given and that the files contradict.
fn leave_contradicted_open(env: &Arc<dyn Env>, root: &Path, given: &StoreConfig, filled: &mut StoreConfig) -> Result<()> {
    let (small, broker) = (Sizes::SMALL, Sizes::BROKER);
    let log = (PAGE_SIZE, segment_lens as ListLens, [small.commit_log, broker.commit_log]);
    let queues = (
        CQ_UNIT_SIZE as u64,
        ConsumeQueueStore::sample_file_lens as ListLens,
        [small.consume_queue, broker.consume_queue],
    );
    let mut given = given.clone();
    for ((_, field), (step, lens, defaults)) in FIELDS.into_iter().zip([log, queues]) {
        if field(&mut given).is_none()
            && let Some(recorded) = *field(filled)
            && is_contradicted(recorded, step, &lens(env.as_ref(), root, recorded)?, defaults)
        {
            *field(filled) = None;
        }
    }
    if given.max_hash_slot_num.is_none()
        && given.max_index_num.is_none()
        && let Some(recorded) = filled.index_geometry()
        && is_index_contradicted(env, root, recorded, filled.sigbus_guard)?
    {
        (filled.max_hash_slot_num, filled.max_index_num) = (None, None);
    }
    Ok(())
}

/// Returns true if the lengths of files disprove the `recorded` one: no file has it, and it is not a multiple of `step`, or most
/// have the same other multiple. A single file proves only a minimal length, because a copy may be cut short; but a copy is never
/// cut short to one of the `defaults`.
fn is_contradicted(recorded: u64, step: u64, lens: &[u64], defaults: [u64; 2]) -> bool {
    let Some(usual) = usual_len(lens.iter().copied()).filter(|usual| usual.is_multiple_of(step)) else {
        return false;
    };
    let is_usual = defaults.contains(&usual) || lens.iter().filter(|len| **len == usual).count() > 1;
    let is_sure = usual > recorded || is_usual;
    !lens.contains(&recorded) && (is_sure || recorded == 0 || !recorded.is_multiple_of(step))
}

/// Returns true if no index file has the length of the `recorded` geometry, and the files have a geometry of their own. The content
/// of an index file shows its geometry, so one file is enough.
fn is_index_contradicted(env: &Arc<dyn Env>, root: &Path, recorded: IndexGeometry, sigbus_guard: bool) -> Result<bool> {
    let dir = root.join(INDEX_DIR);
    let is_index = |entry: &DirEntry| entry.name.to_str().and_then(parse_index_name).is_some();
    let lens = file_lens(env.as_ref(), &dir, is_index)?;
    if lens.is_empty() || lens.contains(&recorded.file_len()) {
        return Ok(false);
    }
    if sigbus_guard {
        install_guard().map_err(|error| Error::io("install the SIGBUS guard for", root, error))?;
    }
    Ok(IndexService::load(env, &dir, None, None)?.geometry()?.is_some())
}

fn segment_lens(env: &dyn Env, root: &Path, _recorded: u64) -> Result<Vec<u64>> {
    file_lens(env, &root.join(COMMIT_LOG_DIR), is_segment)
}

/// Returns the lengths of the files in `dir` whose name `is_named` accepts; an empty list if there is no directory.
fn file_lens(env: &dyn Env, dir: &Path, is_named: fn(&DirEntry) -> bool) -> Result<Vec<u64>> {
    let entries = match env.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.map_err(|error| Error::io("list", dir, error))?,
    };
    Ok(entries
        .iter()
        .filter(|entry| is_named(entry))
        .map(|entry| entry.len)
        .collect())
}

fn is_segment(entry: &DirEntry) -> bool {
    entry.name.to_str().and_then(parse_segment_name).is_some()
}

/// Refuses a size that the record and the first segment contradict. Without the record, a single segment of another size could have
/// been cut short.
fn expect_size_of_segments(env: &dyn Env, root: &Path, given: u64, recorded: Option<u64>) -> Result<()> {
    let dir = root.join(COMMIT_LOG_DIR);
    let first = env.list(&dir).ok().and_then(|entries| entries.into_iter().find(is_segment));
    let Some(first) = first.filter(|first| Some(first.len) == recorded && first.len != given) else {
        return Ok(());
    };
    Err(Error::Invalid {
        what: format!(
            "option {} is {given}, but {} has {} bytes, and this store was made with segments of that size: state that size, or make \
             the option None",
            named_as_in_rocketmq("mapped_file_size_commit_log"),
            dir.join(&first.name).display(),
            first.len
        ),
    })
}

/// Records the sizes of `config`, which are all given, durably. Does nothing if they are recorded already. A damaged record is
/// replaced.
///
/// # Errors
/// [`Error::DiskFull`], [`Error::Io`].
pub fn record(env: &Arc<dyn Env>, root: &Path, config: &StoreConfig) -> Result<()> {
    let mut config = config.clone();
    let mut recorded = StoreConfig::default();
    let was_read = fill_from_record(env, root, &mut recorded).unwrap_or(false);
    if was_read && FIELDS.iter().all(|(_, field)| field(&mut config) == field(&mut recorded)) {
        return Ok(());
    }
    let recorded: Map<String, Value> = FIELDS
        .iter()
        .filter_map(|(name, field)| Some(((*name).to_owned(), Value::from((*field(&mut config))?))))
        .collect();
    let path = root.join(CONFIG_DIR).join(GEOMETRY_FILE);
    let text = format!("{:#}\n", Value::Object(recorded));
    replace_file(env.as_ref(), &path, text.as_bytes(), Step::ConfigFile, Step::ConfigRenamed)
}
