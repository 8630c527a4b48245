//! `config/mqstore.json`: the sizes of a store that this crate has made, so that no option is needed to open it again.

use std::path::Path;

use serde_json::{Map, Value};

use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::format::{COMMIT_LOG_DIR, CONFIG_DIR, GEOMETRY_FILE, parse_segment_name};
use crate::storage::{DirEntry, Env, Step, read_file, replace_file};

/// More bytes than any record of sizes has.
const MAX_LEN: usize = 64 * 1024;

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

/// Fills the sizes that `config` leaves open with the recorded ones, and says whether there are any. If `config` leaves none open, the
/// record is not read, so that a store with a damaged record can be opened.
///
/// # Errors
/// [`Error::Corrupt`] if the file is no JSON object of numbers, or of sizes that cannot be right; [`Error::Invalid`] for a size of segments
/// that it and the first segment contradict; [`Error::Io`].
pub fn fill_from_record(env: &dyn Env, root: &Path, config: &mut StoreConfig) -> Result<bool> {
    if config.has_geometry() {
        return Ok(false);
    }
    let path = root.join(CONFIG_DIR).join(GEOMETRY_FILE);
    let Some(bytes) = read_file(env, &path, MAX_LEN)? else {
        return Ok(false);
    };
    let corrupt = |reason: String| Error::Corrupt {
        path: path.clone(),
        offset: 0,
        reason,
    };
    let recorded: Map<String, Value> = serde_json::from_slice(&bytes).map_err(|error| {
        let names = FIELDS.map(|(name, _)| name).join(", ");
        corrupt(format!("expected a JSON object of sizes: {error}; give {names} as options"))
    })?;
    if let Some(given) = config.mapped_file_size_commit_log {
        expect_size_of_segments(env, root, given, recorded.get(FIELDS[0].0).and_then(Value::as_u64))?;
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
    // Every option was valid before, so a recorded size is wrong.
    filled
        .validate()
        .map_err(|error| corrupt(format!("{error}; give it as an option")))?;
    *config = filled;
    Ok(true)
}

/// Refuses a size that the record and the first segment contradict. Without the record, a single segment of another size could be
/// one that was cut short.
fn expect_size_of_segments(env: &dyn Env, root: &Path, given: u64, recorded: Option<u64>) -> Result<()> {
    let dir = root.join(COMMIT_LOG_DIR);
    let is_segment = |entry: &DirEntry| entry.name.to_str().and_then(parse_segment_name).is_some();
    let first = env.list(&dir).ok().and_then(|entries| entries.into_iter().find(is_segment));
    let Some(first) = first.filter(|first| Some(first.len) == recorded && first.len != given) else {
        return Ok(());
    };
    Err(Error::Invalid {
        what: format!(
            "option mapped_file_size_commit_log is {given}, but {} has {} bytes, and this store was made with segments of that size: \
             leave the option out",
            dir.join(&first.name).display(),
            first.len
        ),
    })
}

/// Records the sizes of `config`, which are all given, durably. Does nothing if they are recorded already. A damaged record is replaced.
///
/// # Errors
/// [`Error::DiskFull`], [`Error::Io`].
pub fn record(env: &dyn Env, root: &Path, config: &StoreConfig) -> Result<()> {
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
    replace_file(env, &path, text.as_bytes(), Step::ConfigFile, Step::ConfigRenamed)
}
