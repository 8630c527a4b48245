//! The one error of the core: each variant is something a caller can act on.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The result of everything that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, where, and (in its text) what to do.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The directory holds no message store; `found` lists what is there.
    NotAStore {
        /// The directory that was opened.
        path: PathBuf,
        /// What was found instead of a store.
        found: String,
    },
    /// Bytes on disk contradict the format, or could not be read back as they were.
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Byte position in that file.
        offset: u64,
        /// What is wrong and what to do.
        reason: String,
    },
    /// A valid store, in a form that this call does not read.
    Unsupported {
        /// The directory or file in that form.
        path: PathBuf,
        /// What it is, and which calls work on it.
        what: String,
    },
    /// No such message, queue or offset.
    NotFound {
        /// What was looked for and the bounds it lies outside of.
        what: String,
    },
    /// An argument or option that cannot be right.
    Invalid {
        /// Its name, its value and what is accepted.
        what: String,
    },
    /// The operating system refused.
    Io {
        /// What was tried: "open", "map", "list" ...
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's answer.
        source: Arc<io::Error>,
    },
}

impl Error {
    /// An operating-system error with what was tried and where.
    pub fn io(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io {
            action,
            path: path.into(),
            source: Arc::new(source),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAStore { path, found } => write!(
                f,
                "{}: not a message store: expected a directory with commitlog/ and files named by 20 digits in it, found {found}",
                path.display()
            ),
            Self::Corrupt { path, offset, reason } => write!(f, "{} at byte {offset}: {reason}", path.display()),
            Self::Unsupported { path, what } => write!(f, "{}: {what}", path.display()),
            Self::NotFound { what } | Self::Invalid { what } => f.write_str(what),
            Self::Io { action, path, source } => write!(f, "cannot {action} {}: {source}", path.display()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}
