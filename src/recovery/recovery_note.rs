//! `config/mqstore-recovery.json`: a recovery has begun to change the store and has not ended.
//!
//! When a sync of recovery fails, memory shows what was written and the disk does not hold it. The kernel marks these pages clean, so
//! a later sync does not write them. The next open then finds nothing that is left to cut. While this note is there, an open does not
//! rely on what it reads past an end: it writes every zero and every recovered byte again, and syncs them.
//!
//! The note is written before the first change and removed after the last sync of recovery. For this it needs no sync: a power failure
//! empties the memory, and what is read after it comes from the disk. The note decides no end. Each open plans again where log, queues
//! and index end, and zeroes only bytes after these ends: a note that is out of date costs time, and no message.
//!
//! The note also has the end of the log of a store that was closed, and is synced then, before `abort` is there. A broker leaves old
//! records past that end, which would look like messages after damage in a crashed store; and records after damage that are older than
//! those before it would count as stale.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::format::{CONFIG_DIR, RECOVERY_NOTE_FILE};
use crate::storage::{Env, Step, put_file, read_file, remove_file, replace_file};

const REWRITE_FROM: &str = "rewrite_from";
const CLOSED_AT: &str = "closed_at";
/// Larger than any note.
const MAX_LEN: usize = 4096;

/// The intent of a recovery, on disk until it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveryNote {
    /// The physical offset from which it wrote the log again.
    pub rewrite_from: i64,
    /// The physical offset at which the log ended when the store was closed; `None` if this recovery followed a crash.
    pub closed_at: Option<i64>,
}

impl RecoveryNote {
    /// Reads the note of the store at `root`. A note that is not whole, or not a file, counts as absent: its recovery changed nothing, or
    /// a power failure came since.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub(super) fn load(env: &dyn Env, root: &Path) -> Result<Option<Self>> {
        let bytes = match read_file(env, &path(root), MAX_LEN) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::InvalidInput => Vec::new(),
            read => read?.unwrap_or_default(),
        };
        let fields: Option<Map<String, Value>> = serde_json::from_slice(&bytes).ok();
        let number = |name| fields.as_ref()?.get(name)?.as_i64();
        Ok(number(REWRITE_FROM).map(|rewrite_from| Self {
            rewrite_from,
            closed_at: number(CLOSED_AT),
        }))
    }

    /// Puts the note into the store at `root`, in one step. The directory `config` is there.
    ///
    /// # Errors
    /// [`crate::error::Error::DiskFull`], [`crate::error::Error::Io`].
    pub(super) fn save(self, env: &dyn Env, root: &Path) -> Result<()> {
        let closed_at = self.closed_at.map(|closed_at| (CLOSED_AT, closed_at));
        let numbers = [(REWRITE_FROM, self.rewrite_from)].into_iter().chain(closed_at);
        let fields: Map<_, _> = numbers.map(|(name, number)| (name.to_owned(), Value::from(number))).collect();
        let bytes = format!("{}\n", Value::Object(fields));
        if self.closed_at.is_some() {
            replace_file(
                env,
                &path(root),
                bytes.as_bytes(),
                Step::RecoveryNote,
                Step::RecoveryNoteRenamed,
            )
        } else {
            put_file(env, &path(root), bytes.as_bytes())
        }
    }

    /// Removes the note, if there is one. It may come back in a power failure: the next recovery then does more than it has to.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`].
    pub(super) fn remove(env: &dyn Env, root: &Path) -> Result<()> {
        remove_file(env, &path(root))
    }
}

fn path(root: &Path) -> PathBuf {
    root.join(CONFIG_DIR).join(RECOVERY_NOTE_FILE)
}
