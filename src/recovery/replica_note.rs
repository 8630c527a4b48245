//! `config/mqstore-replica.json`: the physical offset from which on a slave has received the log.
//!
//! A slave may cut what it has received where its master has other bytes. What another writer has appended is cut only on request. The
//! note counts while the claim in the `lock` file is that of a slave: a writer or a broker that opens the store replaces that claim. So the
//! note is durable before the claim, and no other writer knows of it.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::format::{CONFIG_DIR, REPLICA_NOTE_FILE};
use crate::storage::{Env, Step, read_file, replace_file};

const RECEIVED_FROM: &str = "received_from";
/// Larger than any note.
const MAX_LEN: usize = 4096;

/// Reads the note of the store at `root`. A note that is missing, damaged or not a file says nothing: then nothing was received.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn load_replica_note(env: &dyn Env, root: &Path) -> Result<Option<i64>> {
    let bytes = match read_file(env, &path(root), MAX_LEN) {
        Err(Error::Io { source, .. })
            if matches!(source.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) =>
        {
            return Ok(None);
        }
        read => read?.unwrap_or_default(),
    };
    let fields: Option<Map<String, Value>> = serde_json::from_slice(&bytes).ok();
    Ok(fields.and_then(|fields| fields.get(RECEIVED_FROM)?.as_i64()))
}

/// Stores the note durably. The directory `config` is there.
///
/// # Errors
/// [`Error::DiskFull`], [`Error::Io`].
pub(super) fn save_replica_note(env: &dyn Env, root: &Path, received_from: i64) -> Result<()> {
    let fields = Map::from_iter([(RECEIVED_FROM.to_owned(), Value::from(received_from))]);
    let bytes = format!("{}\n", Value::Object(fields));
    replace_file(
        env,
        &path(root),
        bytes.as_bytes(),
        Step::ReplicaNote,
        Step::ReplicaNoteRenamed,
    )
}

fn path(root: &Path) -> PathBuf {
    root.join(CONFIG_DIR).join(REPLICA_NOTE_FILE)
}
