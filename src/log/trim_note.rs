//! `config/mqstore-trim.json`: the physical offset at which the log begins after a trim.
//!
//! A trim removes segments oldest first, and syncs their directory once. A power failure may bring back an older segment and not a newer
//! one. The note, durable before the first removal, says that such a hole is not damage: the segments before it were removed, too. A note
//! is never out of date: it only explains a hole that ends at or before its offset.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::Result;
use crate::format::{CONFIG_DIR, TRIM_NOTE_FILE};
use crate::storage::{Env, Step, read_file, replace_file};

const LOG_BEGINS_AT: &str = "log_begins_at";
/// Larger than any note.
const MAX_LEN: usize = 4096;

/// Returns the offset in the note of the store at `root`. A note that is missing, damaged or unreadable explains nothing.
pub(super) fn load_trim_note(env: &dyn Env, root: &Path) -> Option<i64> {
    let bytes = read_file(env, &path(root), MAX_LEN).ok()??;
    let fields: Map<String, Value> = serde_json::from_slice(&bytes).ok()?;
    fields.get(LOG_BEGINS_AT)?.as_i64()
}

/// Stores the note durably. The directory `config` is there.
///
/// # Errors
/// [`crate::error::Error::DiskFull`], [`crate::error::Error::Io`].
pub(super) fn save_trim_note(env: &dyn Env, root: &Path, log_begins_at: i64) -> Result<()> {
    let fields = Map::from_iter([(LOG_BEGINS_AT.to_owned(), Value::from(log_begins_at))]);
    let bytes = format!("{}\n", Value::Object(fields));
    replace_file(env, &path(root), bytes.as_bytes(), Step::ConfigFile, Step::ConfigRenamed)
}

fn path(root: &Path) -> PathBuf {
    root.join(CONFIG_DIR).join(TRIM_NOTE_FILE)
}
