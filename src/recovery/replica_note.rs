//! `config/mqstore-replica.json`: the physical offset from which on a slave has received the log, and the cuts of that log.
//!
//! A slave may cut what it has received where its master has other bytes. What another writer has appended is cut only on request. The
//! offset counts while the claim in the `lock` file is that of a slave: a writer or a broker that opens the store replaces that claim. So
//! the note is durable before the claim, and no other writer knows of it.
//!
//! A cut changes no byte of a file: it removes names, and gives some of them to copies of what is kept. So the files that a reader has open
//! or mapped stay those of the log that it has opened. The generation shows it that a name may lead to a file of another log: it rises
//! before the first change of a cut and after the last one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::format::{CONFIG_DIR, REPLICA_NOTE_FILE};
use crate::storage::{CheckedEnv, Env, Step, read_file, replace_file};

const RECEIVED_FROM: &str = "received_from";
const GENERATION: &str = "generation";
const CUT_AT: &str = "cut_at";
/// Larger than any note.
const MAX_LEN: usize = 4096;

/// The cuts of a log by slaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cuts {
    /// Odd from before the first change of a cut until after its last one. Each cut raises it by two.
    generation: u64,
    /// The physical offset of the last cut.
    at: i64,
}

impl Cuts {
    /// Returns the cuts while one at this physical offset is under way.
    #[must_use]
    pub fn begin(self, at: i64) -> Self {
        Self {
            generation: self.end().generation + 1,
            at,
        }
    }

    /// Returns the cuts once the last one has ended.
    #[must_use]
    pub fn end(self) -> Self {
        Self {
            generation: self.generation + self.generation % 2,
            ..self
        }
    }

    /// Returns true if a cut is under way, or was interrupted.
    pub fn is_unfinished(self) -> bool {
        self.generation % 2 == 1
    }

    /// Returns true if there was one cut since `before`, which has ended and has kept the log up to `end`.
    pub fn have_kept(self, before: Self, end: i64) -> bool {
        !self.is_unfinished() && self.generation == before.generation + 2 && self.at >= end
    }

    /// Returns true if the log was cut, or a cut has begun, since `before`.
    pub fn are_after(self, before: Self) -> bool {
        self.generation != before.generation
    }
}

/// The note of a slave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplicaNote {
    /// The physical offset from which on it has received the log; `None` if it has received nothing.
    pub received_from: Option<i64>,
    /// The cuts of the log.
    pub cuts: Cuts,
}

impl ReplicaNote {
    /// Reads the note of the store at `root`. A note that is missing, damaged or not a file says nothing: then nothing was received.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn load(env: &dyn Env, root: &Path) -> Result<Self> {
        let bytes = match read_file(env, &path(root), MAX_LEN) {
            Err(Error::Io { source, .. })
                if matches!(source.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) =>
            {
                return Ok(Self::default());
            }
            read => read?.unwrap_or_default(),
        };
        let fields: Map<String, Value> = serde_json::from_slice(&bytes).unwrap_or_default();
        let number = |name| fields.get(name).and_then(Value::as_i64);
        Ok(Self {
            received_from: number(RECEIVED_FROM),
            cuts: Cuts {
                generation: number(GENERATION).unwrap_or(0).unsigned_abs(),
                at: number(CUT_AT).unwrap_or(0),
            },
        })
    }

    /// Stores the note durably. The directory `config` is there.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`].
    pub(super) fn save(&self, env: &dyn Env, root: &Path) -> Result<()> {
        let mut fields = Map::new();
        if let Some(received_from) = self.received_from {
            fields.insert(RECEIVED_FROM.to_owned(), received_from.into());
        }
        if self.cuts != Cuts::default() {
            fields.insert(GENERATION.to_owned(), self.cuts.generation.into());
            fields.insert(CUT_AT.to_owned(), self.cuts.at.into());
        }
        let bytes = format!("{}\n", Value::Object(fields));
        replace_file(
            env,
            &path(root),
            bytes.as_bytes(),
            Step::ReplicaNote,
            Step::ReplicaNoteRenamed,
        )
    }
}

/// Refuses to read on in a store of which a slave has cut the log since there were these cuts.
///
/// # Errors
/// [`Error::LogCut`], [`Error::Io`].
pub(crate) fn expect_uncut(env: &dyn Env, root: &Path, opened: Cuts) -> Result<()> {
    let cuts = ReplicaNote::load(env, root)?.cuts;
    if cuts.are_after(opened) {
        return Err(Error::LogCut {
            path: root.to_owned(),
            at: cuts.at,
        });
    }
    Ok(())
}

/// Returns the environment of a reader: no name leads it to a file of another log than that of the store when there were the cuts `opened`.
/// Names are checked from the time at which these are set: an open looks up thousands of names, and is checked at its end.
pub(super) fn uncut_env(env: &Arc<dyn Env>, root: &Path, opened: &Arc<OnceLock<Cuts>>) -> Arc<dyn Env> {
    let (named, root, opened) = (env.clone(), root.to_owned(), opened.clone());
    let expect_unreplaced = move || match opened.get() {
        Some(opened) => expect_uncut(named.as_ref(), &root, *opened).map_err(io::Error::other),
        None => Ok(()),
    };
    Arc::new(CheckedEnv::unreplaced(env.clone(), expect_unreplaced))
}

fn path(root: &Path) -> PathBuf {
    root.join(CONFIG_DIR).join(REPLICA_NOTE_FILE)
}
