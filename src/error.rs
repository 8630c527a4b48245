//! The one error of the core: each variant is something a caller can act on.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::format::{GIVEN_UP_TOPIC, MAX_PROPERTIES_SIZE, Malformed};
use crate::remedy::Remedy;

/// The result of everything that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error: what is wrong, where, and what to do. Its `Display` is the [`text`](Self::text) and the [`remedy`](Self::remedy) in the words of
/// Rust.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The directory holds no message store; `found` lists what is there.
    NotAStore {
        /// The directory that was opened.
        path: PathBuf,
        /// The contents that show that it is not a store.
        found: String,
    },
    /// There is no directory under this name.
    NoSuchDirectory {
        /// The name.
        path: PathBuf,
    },
    /// Bytes on disk contradict the format, or could not be read back as they were.
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Byte position in that file.
        offset: u64,
        /// The contradiction, in words.
        reason: String,
        /// The remedy, if one is known.
        remedy: Option<Remedy>,
    },
    /// A valid store, in a form that this call does not read.
    Unsupported {
        /// The directory or file in that form.
        path: PathBuf,
        /// Its kind, and which calls work on it.
        what: String,
        /// The remedy, if one is known.
        remedy: Option<Remedy>,
    },
    /// No such message, queue or offset.
    NotFound {
        /// The message or offset, and the bounds that it is outside of.
        what: String,
        /// The remedy, if one is known.
        remedy: Option<Remedy>,
    },
    /// The position of a consumer lies outside its queue.
    OffsetOutOfRange {
        /// The topic.
        topic: String,
        /// The queue of the topic.
        queue_id: i32,
        /// The position.
        offset: i64,
        /// The offsets of the queue's messages.
        bounds: Range<i64>,
    },
    /// The record before the stored position of a consumer is not that of the store: the store was replaced or cut.
    PositionMismatch {
        /// The positions file.
        path: PathBuf,
        /// The topic.
        topic: String,
        /// The queue of the topic.
        queue_id: i32,
        /// The position.
        offset: i64,
        /// The difference, in words.
        reason: String,
    },
    /// Another consumer has the positions file.
    PositionsLocked {
        /// The lock file.
        path: PathBuf,
    },
    /// The call changes the store, which is only read.
    ReadOnly {
        /// The call, and what to do instead.
        what: String,
    },
    /// An argument or option that cannot be right.
    Invalid {
        /// Its name, its value and what is accepted.
        what: String,
    },
    /// A transaction was to be ended that has ended. Nothing was written.
    TransactionEnded {
        /// The physical offset of its half message.
        half: i64,
        /// The end that it had.
        outcome: TransactionOutcome,
    },
    /// A new store was wanted, and the directory is not empty.
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// Another process, or another handle of this one, writes to the store.
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The time for which the caller has waited for the lock (`lock_timeout`).
        waited: Duration,
    },
    /// A message that no store would take: nothing was written.
    IllegalMessage {
        /// The part of it, and what is accepted.
        what: String,
        /// `RocketMQ`'s status.
        status: &'static str,
    },
    /// The disk has no room; what found it full works again when it has.
    DiskFull {
        /// The file that could not be made or written.
        path: PathBuf,
    },
    /// A write or sync failed before: nothing is appended any more, what was durable can still be read. Reopen the store.
    Poisoned {
        /// The first failure.
        cause: Box<Error>,
        /// The log is durable up to this physical offset all the same: what starts below it survives.
        flushed: i64,
    },
    /// A message was appended, and then a write or sync failed, or the wait for it was interrupted. Whether it survives is not known.
    NotDurable {
        /// Its record's first byte; the last one of a batch.
        physical_offset: i64,
        /// The reason why it could not be made durable.
        cause: Box<Error>,
    },
    /// A service of the store panicked: a defect of this crate. What follows it is [`Error::Poisoned`].
    Panicked {
        /// Its name.
        service: &'static str,
        /// The text of its panic.
        message: String,
    },
    /// Another append holds the append lock for long: the disk or the machine stalls. Nothing was stored; a later append may work.
    Busy {
        /// For how long.
        held: Duration,
        /// From how many ms on an append is refused.
        limit: u64,
    },
    /// The buffers of the transient store pool are full, because the disk stalls or has no room. Nothing was stored; a later
    /// append may work.
    PoolFull {
        /// The time that the append has waited.
        waited: Duration,
    },
    /// The time was up first.
    TimedOut {
        /// The event that was waited for.
        what: String,
    },
    /// The caller ended the call before it was done: see [`crate::interrupt`].
    Interrupted {
        /// The cause.
        cause: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The store was closed.
    Closed,
    /// A slave has cut the log since it was opened for reading: its master has other messages there.
    LogCut {
        /// The directory of the store.
        path: PathBuf,
        /// The physical offset of the last cut.
        at: i64,
    },
    /// The operating system refused.
    Io {
        /// The action that failed: "open", "map", "list" ...
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's answer.
        source: Arc<io::Error>,
    },
}

/// The outcome of a transaction that has ended. Its `Display` continues the sentence "the transaction ...".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionOutcome {
    /// The committed message is at this physical offset.
    Committed(i64),
    /// Consumers do not get the message.
    RolledBack,
    /// Its producers never answered: the message was moved to the topic for that.
    GivenUp,
    /// A broker has stored the half message again, for a question: the later half message counts.
    StoredAgain,
    /// It was committed or rolled back before the store was opened.
    Ended,
}

impl TransactionOutcome {
    /// Returns the stable name, for programs in other languages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Committed(_) => "committed",
            Self::RolledBack => "rolled_back",
            Self::GivenUp => "given_up",
            Self::StoredAgain => "stored_again",
            Self::Ended => "ended",
        }
    }
}

impl fmt::Display for TransactionOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Committed(at) => write!(f, "was committed: its message is at physical offset {at}"),
            Self::RolledBack => f.write_str("was rolled back"),
            Self::GivenUp => write!(f, "was given up, because nobody answered: {GIVEN_UP_TOPIC} has its message"),
            Self::StoredAgain => f.write_str("was stored again by a broker, for a question: end the later half message"),
            Self::Ended => f.write_str("ended before the store was opened: a trace of its id shows how"),
        }
    }
}

impl Error {
    /// Creates an operating-system error with what was tried and where.
    pub fn io(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        // An error of an environment with checks.
        if let Some(own) = source.get_ref().and_then(|inner| inner.downcast_ref::<Self>()) {
            return own.clone();
        }
        Self::Io {
            action,
            path: path.into(),
            source: Arc::new(source),
        }
    }

    /// Creates the error of bytes that contradict the format, without a remedy.
    pub fn corrupt(path: impl Into<PathBuf>, offset: u64, reason: impl Into<String>) -> Self {
        Self::Corrupt {
            path: path.into(),
            offset,
            reason: reason.into(),
            remedy: None,
        }
    }

    /// Creates the error of a message, queue or offset that does not exist, without a remedy.
    pub fn not_found(what: impl Into<String>) -> Self {
        Self::NotFound {
            what: what.into(),
            remedy: None,
        }
    }

    /// Returns what helps, if something does.
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            Self::Corrupt { remedy, .. } | Self::Unsupported { remedy, .. } | Self::NotFound { remedy, .. } => *remedy,
            Self::OffsetOutOfRange { .. } | Self::PositionMismatch { .. } => Some(Remedy::StartAtBound),
            Self::Locked { .. } => Some(Remedy::ReadOnly),
            Self::Io { source, .. } if source.kind() == io::ErrorKind::ReadOnlyFilesystem => Some(Remedy::ReadOnly),
            _ => None,
        }
    }

    /// Returns the error with this remedy, if it can have one of its own.
    #[must_use]
    pub fn with_remedy(mut self, helps: Remedy) -> Self {
        if let Self::Corrupt { remedy, .. } | Self::Unsupported { remedy, .. } | Self::NotFound { remedy, .. } = &mut self {
            *remedy = Some(helps);
        }
        self
    }

    /// Returns what is wrong and where, without the remedy.
    pub fn text(&self) -> impl fmt::Display {
        Text(self)
    }
}

impl Error {
    /// Returns the error of calls after `cause` in a store whose log is durable up to `flushed`. A closed store is not poisoned.
    pub fn poisoned(cause: Self, flushed: i64) -> Self {
        match cause {
            Self::Closed | Self::Poisoned { .. } => cause,
            _ => Self::Poisoned {
                cause: Box::new(cause),
                flushed,
            },
        }
    }

    /// Returns the error of a message that was appended before `cause`.
    pub fn not_durable(physical_offset: i64, cause: Self, flushed: i64) -> Self {
        Self::NotDurable {
            physical_offset,
            cause: Box::new(Self::poisoned(cause, flushed)),
        }
    }

    /// Returns true if the same call may succeed later without any repair: the disk is full, no descriptor or no memory is left, or
    /// the process may not make a file that large (`EFBIG`). No sync that was begun fails so.
    pub fn is_shortage(&self) -> bool {
        match self {
            Self::DiskFull { .. } => true,
            Self::Io { source, .. } => is_short(source),
            _ => false,
        }
    }

    /// Returns true if it is about one message, which is lost or damaged: a reader that continues finds the next one.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::NotFound { .. })
    }

    /// Returns `RocketMQ`'s `PutMessageStatus` of a message whose append fails for this reason, where it has one. An append asks the system
    /// for something only where it makes a segment, or waits for room in the transient store pool.
    pub fn put_status(&self) -> Option<&'static str> {
        match self {
            Self::IllegalMessage { status, .. } => Some(status),
            Self::DiskFull { .. } | Self::Io { .. } => Some("CREATE_MAPPED_FILE_FAILED"),
            Self::Closed | Self::Poisoned { .. } | Self::ReadOnly { .. } => Some("SERVICE_NOT_AVAILABLE"),
            Self::NotDurable { .. } => Some("FLUSH_DISK_TIMEOUT"),
            Self::Busy { .. } | Self::PoolFull { .. } => Some("OS_PAGE_CACHE_BUSY"),
            _ => None,
        }
    }

    /// Creates the error of a message that `RocketMQ` calls illegal.
    pub fn illegal(what: String) -> Self {
        Self::IllegalMessage {
            what,
            status: "MESSAGE_ILLEGAL",
        }
    }

    /// Properties that the format does not allow.
    pub fn of_properties(malformed: Malformed) -> Self {
        let what = malformed.reason.into_owned();
        if malformed.at < MAX_PROPERTIES_SIZE {
            Self::illegal(what)
        } else {
            Self::properties_exceeded(what)
        }
    }

    /// Creates the error of a message whose properties are too long.
    pub fn properties_exceeded(what: String) -> Self {
        Self::IllegalMessage {
            what,
            status: "PROPERTIES_SIZE_EXCEEDED",
        }
    }

    /// Returns the error with more about damaged bytes.
    #[must_use]
    pub fn adding(mut self, more: &str) -> Self {
        if let Self::Corrupt { reason, .. } = &mut self {
            *reason = format!("{reason}; {more}");
        }
        self
    }

    /// Returns the error with the option that has the wrong value.
    #[must_use]
    pub fn of_option(self, name: &str) -> Self {
        match self {
            Self::Invalid { what } => Self::Invalid {
                what: format!("option {name}: {what}"),
            },
            other => other,
        }
    }

    /// Returns the error with the message that the damaged bytes are of.
    #[must_use]
    pub fn of_message(mut self, message: &str) -> Self {
        if let Self::Corrupt { reason, .. } = &mut self {
            *reason = format!("{message}: {reason}");
        }
        self
    }

    /// Adds the time that the caller waited before this attempt to take the lock.
    #[must_use]
    pub fn after_wait(self, before: Duration) -> Self {
        match self {
            Self::Locked { path, waited } => Self::Locked {
                path,
                waited: waited.saturating_add(before),
            },
            other => other,
        }
    }

    /// Returns the error of one message among several, with its number.
    #[must_use]
    pub fn at_row(self, row: usize) -> Self {
        match self {
            Self::IllegalMessage { what, status } => Self::IllegalMessage {
                what: format!("message {row}: {what}"),
                status,
            },
            Self::Invalid { what } => Self::Invalid {
                what: format!("message {row}: {what}"),
            },
            other => other,
        }
    }

    /// Returns true if a file to open does not exist.
    pub fn is_missing_file(&self) -> bool {
        matches!(self, Self::Io { action: "open", source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Creates an operating-system error, apart from a full disk.
    pub fn full_or_io(action: &'static str, path: &std::path::Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path: path.to_owned() },
            _ => Self::io(action, path, source),
        }
    }
}

/// Returns true if the process or the machine has no descriptor or no memory left, or the process may not make a file that large.
pub(crate) fn is_short(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::FileTooLarge)
        || matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Returns the part of the text of [`Error::Locked`] that says how long the caller has waited; it is empty if there was no wait.
pub(crate) fn wait_in_words(waited: Duration) -> String {
    if waited.is_zero() {
        return String::new();
    }
    format!(" (waited {:.2} s)", waited.as_secs_f64())
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Text(self).fmt(f)?;
        self.remedy().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

fn write_of_cut(path: &Path, at: i64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(
        f,
        "{}: the log was cut at physical offset {at} since the store was opened for reading, because the master of its slave has other \
         messages there; open the store again, and read again what was read after that offset",
        path.display()
    )
}

/// An error without its remedy, and without those of its causes.
struct Text<'a>(&'a Error);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Error::NotAStore { path, found } => write!(
                f,
                "{}: not a message store: expected a directory with commitlog/ and files named by 20 digits in it, found {found}",
                path.display()
            ),
            Error::NoSuchDirectory { path } => write!(f, "{}: no such directory", path.display()),
            Error::Corrupt {
                path, offset, reason, ..
            } => write!(f, "{} at byte {offset}: {reason}", path.display()),
            Error::Unsupported { path, what, .. } => write!(f, "{}: {what}", path.display()),
            Error::OffsetOutOfRange { .. } | Error::PositionMismatch { .. } | Error::PositionsLocked { .. } => {
                write_of_position(self.0, f)
            }
            Error::NotFound { what, .. } | Error::Invalid { what } | Error::TimedOut { what } | Error::ReadOnly { what } => {
                f.write_str(what)
            }
            Error::TransactionEnded { half, outcome } => {
                write!(f, "the transaction of the half message at physical offset {half} {outcome}")
            }
            Error::Exists { path } => write!(
                f,
                "{}: the directory is not empty: a store is created only in an empty directory",
                path.display()
            ),
            Error::Locked { path, waited } => write!(
                f,
                "{}: locked{}: another store, of this process or another, or a broker writes here; close it first (lsof on this file names \
                 its process)",
                path.display(),
                wait_in_words(*waited)
            ),
            Error::IllegalMessage { what, status } => write!(f, "{status}: {what}"),
            Error::DiskFull { path } => write!(f, "no space left on the disk for {}", path.display()),
            Error::Poisoned { cause, flushed } => write!(
                f,
                "a write or sync failed ({}), and the store takes no more writes; the log is durable up to {flushed}; close the store \
                 and reopen it",
                Text(cause)
            ),
            Error::NotDurable { physical_offset, cause } => write_not_durable(*physical_offset, cause, f),
            Error::Busy { held, limit } => write!(
                f,
                "the disk or the machine stalls: another append has been writing for {} ms, more than os_page_cache_busy_time_out_mills \
                 ({limit}); nothing was stored, append again later",
                held.as_millis()
            ),
            Error::LogCut { path, at } => write_of_cut(path, *at, f),
            Error::PoolFull { waited } => write!(
                f,
                "the disk stalls or has no room: no buffer of the transient store pool came free within {} ms (wait_time_out); nothing was \
                 stored, append again later",
                waited.as_millis()
            ),
            Error::Panicked { service, message } => write!(f, "the {service} panicked: {message}"),
            Error::Interrupted { cause } => write!(f, "interrupted: {cause}"),
            Error::Closed => f.write_str("the store is closed: open it again"),
            Error::Io { action, path, source } => {
                write!(f, "cannot {action} {}: {source}", path.display())
            }
        }
    }
}

/// Writes the text of an error about a message that was appended.
fn write_not_durable(physical_offset: i64, cause: &Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let outcome = if cause.is_shortage() {
        " and is not durable yet; do not append it again, it becomes durable when this is over"
    } else {
        ", and whether it survives is not known; open the store again and look for it before you append it again"
    };
    write!(
        f,
        "the message at physical offset {physical_offset} was appended{outcome}: {}",
        Text(cause)
    )
}

/// Writes the text of an error of a consumer's position.
fn write_of_position(error: &Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match error {
        Error::OffsetOutOfRange {
            topic,
            queue_id,
            offset,
            bounds,
        } => write!(
            f,
            "position {offset} is outside queue {topic}/{queue_id}, which spans {} to {} (exclusive)",
            bounds.start, bounds.end
        ),
        Error::PositionMismatch {
            path,
            topic,
            queue_id,
            offset,
            reason,
        } => write!(
            f,
            "{}: position {offset} of queue {topic}/{queue_id} is of another store, or of a log that was cut: {reason}",
            path.display()
        ),
        Error::PositionsLocked { path } => write!(
            f,
            "{}: locked: another consumer keeps its positions in this file; close it first, or choose another file",
            path.display()
        ),
        _ => Ok(()),
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
