//! The calls to the machine: their log, which of them fail, and which steps do nothing.

use std::io;
use std::path::{Path, PathBuf};

use mqstore::storage::Step;

/// The kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Open,
    Create,
    CreateDir,
    List,
    Rename,
    Unlink,
    SyncDir(Step),
    SyncAll(Step),
    Lock,
    Length,
    Read,
    Write,
    Sync(Step),
    Allocate,
    Zero,
    Map,
    DiskUsage,
}

impl Call {
    fn step(self) -> Option<Step> {
        match self {
            Self::SyncDir(step) | Self::SyncAll(step) | Self::Sync(step) => Some(step),
            _ => None,
        }
    }

    /// Returns true if it changes files, names, or what is durable of them.
    pub(crate) fn is_change(self) -> bool {
        !matches!(
            self,
            Self::Open | Self::List | Self::Length | Self::Read | Self::Map | Self::DiskUsage
        )
    }
}

/// `EMFILE`, `ENFILE`, `ENOMEM`.
const SHORTAGES: [i32; 3] = [24, 23, 12];

/// The ways in which calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The device fails: any call. If the failure stays, reads still work.
    Device,
    /// The disk is full: any call that needs room.
    Full,
    /// The process may not make a file longer (`EFBIG`): any call that makes one longer.
    TooLarge,
    /// The file system became read-only: any call that changes it, except a sync.
    ReadOnly,
    /// No descriptor or memory is left: any call that needs one. Of the syncs only that of a directory fails so, because it opens
    /// it.
    Shortage,
    /// A part of the bytes is written, or read; no error.
    Short,
}

impl Failure {
    fn concerns(self, call: Call, is_first: bool) -> bool {
        match self {
            Self::Device => is_first || call.is_change(),
            Self::Full => matches!(call, Call::Create | Call::CreateDir | Call::Write | Call::Allocate),
            Self::TooLarge => matches!(call, Call::Write | Call::Allocate),
            Self::ReadOnly => call.is_change() && call.step().is_none(),
            Self::Shortage => matches!(
                call,
                Call::Open | Call::Create | Call::List | Call::Map | Call::SyncDir(_) | Call::Lock
            ),
            Self::Short => matches!(call, Call::Read | Call::Write),
        }
    }

    fn error(self, number: u64) -> io::Error {
        match self {
            Self::Shortage => io::Error::from_raw_os_error(SHORTAGES[number as usize % SHORTAGES.len()]),
            Self::Full => io::ErrorKind::StorageFull.into(),
            Self::ReadOnly => io::ErrorKind::ReadOnlyFilesystem.into(),
            Self::TooLarge => io::Error::from_raw_os_error(27),
            Self::Device | Self::Short => io::Error::from_raw_os_error(5),
        }
    }
}

/// The `number`th call that it concerns fails. If the fault stays, all later ones fail, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) failure: Failure,
    pub(crate) number: u64,
    pub(crate) stays: bool,
}

/// The action for a call.
pub(super) enum Verdict {
    Go,
    /// Return `Ok` and do nothing.
    Nothing,
    /// Do a part of it.
    Short,
    Fail(io::Error),
}

/// The calls so far, and the plan for those to come.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) is_stopped: bool,
    pub(super) fault: Option<Fault>,
    /// Calls that the fault concerned so far.
    pub(super) concerned: u64,
    pub(super) without: Option<Step>,
    pub(super) are_logged: bool,
    pub(super) log: Vec<(Call, PathBuf)>,
    /// Calls of any kind.
    pub(super) count: u64,
    /// The file whose sync failed first, as long as it is there.
    pub(super) failed_sync: Option<PathBuf>,
    pub(super) synced_again: Option<PathBuf>,
}

impl Calls {
    pub(super) fn judge(&mut self, call: Call, path: &Path) -> Verdict {
        if self.is_stopped {
            return Verdict::Fail(io::Error::other("the process was killed"));
        }
        self.count += 1;
        if self.are_logged && call.is_change() {
            self.log.push((call, path.to_owned()));
        }
        if call.step().is_some() && call.step() == self.without {
            return Verdict::Nothing;
        }
        if call == Call::Unlink && self.failed_sync.as_deref() == Some(path) {
            self.failed_sync = None;
        }
        if matches!(call, Call::Sync(_)) && self.failed_sync.as_deref() == Some(path) {
            self.synced_again.get_or_insert_with(|| path.to_owned());
        }
        let verdict = self.fault.map_or(Verdict::Go, |fault| self.apply(fault, call));
        if matches!((&verdict, call), (Verdict::Fail(_), Call::Sync(_))) {
            self.failed_sync.get_or_insert_with(|| path.to_owned());
        }
        verdict
    }

    fn apply(&mut self, fault: Fault, call: Call) -> Verdict {
        let is_first = self.concerned <= fault.number;
        if !fault.failure.concerns(call, is_first) {
            return Verdict::Go;
        }
        self.concerned += 1;
        let now = self.concerned - 1;
        if now < fault.number || (now > fault.number && !fault.stays) {
            Verdict::Go
        } else if fault.failure == Failure::Short {
            Verdict::Short
        } else {
            Verdict::Fail(fault.failure.error(fault.number))
        }
    }
}
