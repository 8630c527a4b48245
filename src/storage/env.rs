//! The interface to the operating system. All code above it uses files, directories, locks and the clock only through [`Env`] and
//! [`File`]. The real implementation is [`RealEnv`](super::RealEnv); the tests have others, which count calls, fail, tear writes or
//! lose unsynced bytes.
//!
//! The terms of the contract:
//! - *visible*: any process sees it. Every write and directory change is visible when its call returns.
//! - *durable*: it survives a power failure. Nothing is durable before the sync that names it has returned `Ok`: bytes need
//!   [`File::sync`] (or `sync_range`, or [`FileSystem::sync`]), a name in a directory needs [`Env::sync_dir`]. Unsynced bytes may
//!   become durable in any order, by the sector.
//! - A failed sync proves nothing about the bytes that it covered, and neither does a later sync that succeeds: the caller stops
//!   writing, reopens, and rewrites what was not durable.
//! - A call that fails for a shortage of descriptors or memory (`EMFILE`, `ENFILE`, [`io::ErrorKind::OutOfMemory`]) has done nothing, and
//!   may be repeated. A sync that was begun never fails with one of these: [`Env::sync_dir`] does when it cannot open the
//!   directory.
//! - Interrupted system calls are retried below the seam; no call returns [`io::ErrorKind::Interrupted`], except those of [`Socket`], which
//!   wait for a peer: their caller first runs the handlers of signals.
//! - Errors are plain [`io::Error`]s: the caller adds the path and the consequence for the store.

use std::ffi::OsString;
use std::fmt::{self, Debug};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::region::Region;

/// The access that a file is opened or mapped for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reading only.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// The expected use of a range of a file. A hint: it changes no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// In ascending order: use a large read-ahead.
    Sequential,
    /// In random order: use no read-ahead.
    Random,
    /// Soon: start reading it now (prefetch).
    WillNeed,
    /// Not again: its pages may leave the page cache.
    DontNeed,
}

/// The kind of a directory entry, symbolic links followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file, or a link to one.
    File,
    /// A directory, or a link to one.
    Directory,
    /// A pipe, a socket, a device, a dangling link.
    Other,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, without the directory.
    pub name: OsString,
    /// The kind of the file.
    pub kind: EntryKind,
    /// The size of the file (of a link: of its target), 0 for anything but a file.
    pub len: u64,
}

/// The used and the available bytes of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUsage {
    /// Bytes of files.
    pub used: u64,
    /// Bytes that a process without privileges may still use. Reserved blocks are neither used nor available.
    pub available: u64,
}

impl DiskUsage {
    /// Returns the used percentage, rounded up, as RocketMQ 5.x and `df` do.
    pub fn percent(self) -> u64 {
        let total = u128::from(self.used) + u128::from(self.available);
        let percent = (u128::from(self.used) * 100).div_ceil(total.max(1));
        u64::try_from(percent).unwrap_or(100)
    }
}

/// The ordering steps that durability rests on: each sync is called for one of them, and tests can turn each into a no-op. Each
/// variant states what a power failure does to a store without the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The store's directories are in their parents, before anything is created in them. Without: the store is lost, including
    /// acknowledged messages.
    StoreDirectories,
    /// The note of the end of a closed log, under its temporary name, before it is renamed. Without: `abort` is there and the note is
    /// empty, and a repair takes messages after damage for stale ones.
    RecoveryNote,
    /// The name of that note, before `abort` is made. Without: as `RecoveryNote`.
    RecoveryNoteRenamed,
    /// `abort` is in the store's directory, before the first append. Without: the store looks closed, recovery skips its scan, and a torn
    /// end is served.
    AbortCreated,
    /// A new segment's length and blocks, before it is renamed into the log. Without: the log has a segment of a wrong length, and
    /// a broker refuses the store.
    SegmentAllocated,
    /// The segment's new name in `commitlog/` and the removal of its temporary name in the store's directory, before the first
    /// acknowledgement inside it. Without: the segment is lost with acknowledged records in it.
    SegmentRenamed,
    /// The removal of a segment without records, before `abort` is removed. Without: it reappears, and a closed store with a
    /// segment past its end is refused.
    SegmentRemoved,
    /// The removal of expired segments, before queue and index files that lead to nothing else are removed; also before that of the next
    /// segment where no note explains a hole. Without: no queue leads to the messages of a segment that comes back, or an older segment
    /// comes back and a newer one does not, which is a hole in the log.
    LogExpired,
    /// The records below an offset, before `flushed` rises to it. Without: acknowledged records are lost or torn.
    LogRange,
    /// The removal of queue entries past the recovered end of the log, before the log itself is cut. Without: entries point to
    /// bytes that later records overwrite, and lead to the wrong messages.
    QueuesCut,
    /// The removal of index files that a crash has damaged, and the kept part of the others, before the log is cut. Without: a
    /// damaged file looks like one of a closed store, and keys are not found.
    IndexCut,
    /// The removal of a segment past the recovered end of the log, newest first, each before the next. Without: a later segment
    /// reappears and an earlier one does not. That is a hole in the log, and the store is refused.
    LogCut,
    /// The kept part of a segment of a slave's log, copied to a new file, before that gets the name of the segment. Without: messages
    /// before the cut are lost.
    SegmentCut,
    /// The new file has the name of the segment, before a record is appended to it. Without: the old file comes back, with the tail that
    /// was cut, and without the messages that were received and acknowledged since.
    SegmentCutRenamed,
    /// The recovered end of the log, rewritten with the bytes that were read, and the records of a salvage, before they are served.
    /// Without: after a failed sync the system shows bytes that are not on disk; they are read, acknowledged, and lost in the next
    /// power failure.
    LogRewritten,
    /// The log past its recovered end is zeros, before a record is appended there. Without: a stale record after the new
    /// end looks like the next one.
    TailZeroed,
    /// The claim in the lock file that every later record is ours, before the first of them. Without: a record that lost a sector
    /// is served, because it might be a broker's.
    LogClaimed,
    /// The entries in the consume-queue files, before a checkpoint stamp that covers them. Without: recovery starts after
    /// entries that are lost, and their messages are never dispatched again.
    QueueFiles,
    /// An index file, before the checkpoint stamp that covers it. Without: keys are not found although the stamp says that
    /// they are indexed.
    IndexFile,
    /// The name of a new index file in `index/`, before the same stamp. Without: as `IndexFile`, for the whole file.
    IndexDirectory,
    /// The mark of the flushed offset, before the checkpoint is stamped, and after it was lowered to the end of a salvaged log.
    /// Without: a closed store changes, or a salvaged store is refused because its log ends before the mark.
    FlushedMark,
    /// The checkpoint under its temporary name, after everything that it covers and before it is renamed. Without: an empty or torn
    /// file gets the name, and its stamps may cover messages that are not on disk.
    Checkpoint,
    /// The checkpoint's name, before `abort` is removed. Without: a clean store starts from an old stamp, or from no stamp.
    CheckpointRenamed,
    /// The removal of `abort`, the last step of a clean close. Without: the next open recovers a store that needs no recovery.
    AbortRemoved,
    /// A configuration file under its temporary name, before it is renamed. Without: the new name has an empty file, and the recorded
    /// sizes of the store are lost.
    ConfigFile,
    /// The configuration file's new name, before any write that relies on it. Without: the store has files of the new geometry and
    /// the record of the old one.
    ConfigRenamed,
    /// A broker's settings file, or a positions file, under its temporary name, before it is renamed. Without: the new name has an empty
    /// file, and the progress of groups or of delayed messages is lost.
    SettingsFile,
    /// The settings file's new name, before a caller relies on it. Without: progress that was committed durably is the older one.
    SettingsRenamed,
    /// The removal of a broker's timer wheel, after the progress of timer messages that replaces it. Without: the wheel comes back, and
    /// a broker delivers twice what it has on it.
    TimerWheelRemoved,
    /// The note of a slave under its temporary name, before it is renamed. Without: the note is empty, and what the slave received counts
    /// as appended by a writer, which it does not cut.
    ReplicaNote,
    /// The note's name, before the claim of the slave. Without: an older note counts, and what a writer has appended since is cut as if it
    /// were received.
    ReplicaNoteRenamed,
    /// The bytes that a repair has copied or moved, before it changes the store, or before the repaired copy is a store. Without: a
    /// damaged segment is salvaged, and its original bytes are lost.
    SetAside,
}

/// A held lock. It is released when it is dropped, and when the process ends.
pub struct Lock {
    is_replaced: Box<dyn Fn() -> io::Result<bool> + Send + Sync>,
}

impl Lock {
    /// Keeps `is_replaced`, whose drop releases the lock. It returns true if the path that was locked leads to another file, or into
    /// another directory.
    pub fn new(is_replaced: impl Fn() -> io::Result<bool> + Send + Sync + 'static) -> Self {
        Self {
            is_replaced: Box::new(is_replaced),
        }
    }

    /// Refuses a lock that no longer excludes others: its file was replaced, or its directory was moved or replaced.
    ///
    /// # Errors
    /// An error that says so; those of the system.
    pub fn expect_in_place(&self) -> io::Result<()> {
        if (self.is_replaced)()? {
            return Err(io::Error::other(
                "the lock file was replaced, or its directory moved, while the store was open: another writer may have this store, so \
                 nothing is changed; open the store again",
            ));
        }
        Ok(())
    }
}

impl Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").finish_non_exhaustive()
    }
}

/// The longest wait for a time of a wall clock that runs.
pub(super) const WALL_CLOCK_WAIT: Duration = Duration::from_secs(10);

/// Files by name, directories, the store's lock, and the machine's clock and memory.
pub trait Env: Send + Sync + Debug {
    /// Opens an existing regular file. Follows links; never creates or shortens a file, and never waits for the other end of a
    /// pipe.
    ///
    /// # Errors
    /// `NotFound`; `InvalidInput` for anything but a regular file; `PermissionDenied`, `ReadOnlyFilesystem` ...
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>>;

    /// Creates an empty file and opens it for reading and writing. Its name is durable after `sync_dir` of its parent.
    ///
    /// # Errors
    /// `AlreadyExists` if anything has this name, even a dangling link.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Creates a directory. Its name is durable after `sync_dir` of its parent.
    ///
    /// # Errors
    /// `AlreadyExists`; `NotFound` if the parent is missing.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Lists a directory, sorted by name. A name that is removed during the call is left out.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `PermissionDenied` ...
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;

    /// Returns the path of a directory with links and `..` resolved. An implementation without links returns it unchanged.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied` ...
    fn canonical(&self, dir: &Path) -> io::Result<PathBuf> {
        Ok(dir.to_owned())
    }

    /// Renames a file or directory on one file system, atomically: another process sees the old or the new name. A file with the
    /// new name is replaced. Durable after `sync_dir` of both parents; until then a power failure leaves either name, or (across
    /// directories) both or none.
    ///
    /// # Errors
    /// Those of the system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Renames a file without replacing another one.
    ///
    /// # Errors
    /// `AlreadyExists` if anything has the new name: nothing was changed.
    fn rename_noreplace(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Returns true if files can be renamed between two directories: both are on one file system, in one mount of it. An
    /// implementation with one file system returns true.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied` ...
    fn can_rename(&self, _from: &Path, _to: &Path) -> io::Result<bool> {
        Ok(true)
    }

    /// Gives a copy the mode of the original, and its owner if the system permits it. The copy's own user may write to it. An
    /// implementation without owners does nothing.
    ///
    /// # Errors
    /// Those of the system.
    fn copy_mode_and_owner(&self, _original: &Path, _copy: &Path) -> io::Result<()> {
        Ok(())
    }

    /// Removes a file's name. Its bytes are freed with its last open file and mapping. Durable after `sync_dir`.
    ///
    /// # Errors
    /// `NotFound`; `IsADirectory` ...
    fn unlink(&self, path: &Path) -> io::Result<()>;

    /// Syncs a directory. On `Ok`, every name created, changed or removed in `dir` before the call is durable (not the files'
    /// bytes).
    ///
    /// # Errors
    /// Any error means that these names may be durable or not. A later call that succeeds covers them, too.
    fn sync_dir(&self, dir: &Path, step: Step) -> io::Result<()>;

    /// Opens the file system that holds the directory `dir`, to sync all of it.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `PermissionDenied` ...
    fn file_system(&self, dir: &Path) -> io::Result<Arc<dyn FileSystem>>;

    /// Locks byte 0 of the file, which is created (empty) if it is missing, against every other holder: of this process, of another
    /// one, and a broker. It also locks the directory of the file, so that no other holder but a broker finds the lock free after the
    /// file was removed or replaced. Never waits.
    ///
    /// # Errors
    /// `WouldBlock` if another holder has the lock; `InvalidInput` for anything but a regular file.
    fn lock(&self, path: &Path) -> io::Result<Lock>;

    /// Returns true if a store of this process or another, or a broker, holds the lock of this file, or a store that of its directory.
    ///
    /// # Errors
    /// `PermissionDenied` ...
    fn is_locked(&self, path: &Path) -> io::Result<bool>;

    /// Returns the wall-clock time in ms since 1970-01-01 UTC, by the clock that every program reads. A message stored after this
    /// call never gets an earlier time, unless the clock steps back.
    fn now_ms(&self) -> i64;

    /// Returns the longest time after which a thread that waits for a time of the wall clock reads it again: the clock may be set.
    fn longest_wall_clock_wait(&self) -> Duration {
        WALL_CLOCK_WAIT
    }

    /// Returns `now_ms` in local time: shifted by the time zone.
    fn now_local_ms(&self) -> i64;

    /// Returns nanoseconds of a clock that never steps back, to measure durations. A call costs less than
    /// [`Instant::now`](std::time::Instant::now), and the clock lags by some ms.
    fn monotonic_ns(&self) -> i64;

    /// Returns the physical memory of the machine, not the limit of a container.
    fn physical_memory(&self) -> u64;

    /// Returns the used and the available bytes of the file system that holds `path`.
    ///
    /// # Errors
    /// `NotFound` ...
    fn disk_usage(&self, path: &Path) -> io::Result<DiskUsage>;

    /// Returns the time of the last change of a file's bytes (mtime), in ms since 1970.
    ///
    /// # Errors
    /// `NotFound` ...
    fn modified_ms(&self, path: &Path) -> io::Result<i64>;
}

/// A file system, held open.
pub trait FileSystem: Send + Sync + Debug {
    /// Syncs the file system. On `Ok`, everything written before the call on the file system is durable, names and bytes: one call
    /// instead of one for each of thousands of small files. A write error that occurs while this is open is reported here once,
    /// even if another process gets it, too. An earlier error may have been reported to another process only. So this must be
    /// opened before the first write that it covers.
    ///
    /// # Errors
    /// Any error means that bytes and names before the call may be durable or not.
    fn sync(&self, step: Step) -> io::Result<()>;
}

/// An open file. Many threads can use it at once; it holds one descriptor until dropped.
#[expect(clippy::len_without_is_empty, reason = "`len` asks the system each time")]
pub trait File: Send + Sync + Debug {
    /// Returns the current size of the file.
    ///
    /// # Errors
    /// Those of the system.
    fn len(&self) -> io::Result<u64>;

    /// Copies bytes from position `at` on and returns their number. A number below that of `into` means that the file ended or that
    /// the system stopped early; 0 (for a non-empty `into`) means that there is no byte at `at`.
    ///
    /// # Errors
    /// A block that cannot be read is an error here, and never a signal.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize>;

    /// Writes bytes from position `at` on, growing the file if necessary, and returns how many were written. A smaller number is
    /// not an error (a disk that fills up causes it), and the caller continues after them. The bytes are visible on return, and not
    /// durable.
    ///
    /// # Errors
    /// `StorageFull`, `FileTooLarge` at the process's limit of file sizes, and others: the bytes of this call may be written or
    /// not.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize>;

    /// Syncs the file. On `Ok`, its length and all bytes written before the call, by `write_at` or through a mapping, are durable.
    ///
    /// # Errors
    /// Any error means that these bytes may be durable or not, now and after another call.
    fn sync(&self, step: Step) -> io::Result<()>;

    /// Syncs at least the bytes of `range`, as `sync` does; an implementation may sync more.
    ///
    /// # Errors
    /// As `sync`.
    fn sync_range(&self, range: Range<u64>, step: Step) -> io::Result<()>;

    /// Extends the file to at least `len` bytes, with a disk block for every byte, so that no later write into them can find the
    /// disk full. New bytes read as zeros. Durable after `sync`. On a copy-on-write file system, this holds only if the file is
    /// empty before the call, and has no snapshot or reflink afterwards.
    ///
    /// # Errors
    /// `StorageFull`: the file may have grown and filled the disk, so the caller unlinks it. `Unsupported` if the file system
    /// cannot reserve blocks: a sparse file is never created instead.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Overwrites a range inside the file with zeros, keeping its blocks. The zeros are visible on return, and not durable.
    ///
    /// # Errors
    /// `InvalidInput` if the range exceeds the end; otherwise as `write_at`.
    fn zero(&self, range: Range<u64>) -> io::Result<()>;

    /// Returns the parts of a range that were ever written, ascending: every byte outside them is zero. An implementation that does
    /// not know them returns the whole range. A cached page of zeros may count as written (ext4, xfs, in blocks that were
    /// allocated).
    ///
    /// # Errors
    /// Those of the system.
    fn written(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        Ok(vec![range])
    }

    /// Advises the system of the expected use of a range.
    ///
    /// # Errors
    /// Those of the system; the caller can ignore any.
    fn advise(&self, range: Range<u64>, advice: Advice) -> io::Result<()>;

    /// Maps the first `len` bytes, shared with every other mapping and with `read_at`/`write_at`. The mapping outlives the `File`.
    /// A mapping that was created before the first open for writing may show the old file for ever (overlayfs).
    ///
    /// # Errors
    /// `InvalidInput` if the file is shorter than `len`: a mapping never exceeds the file. `OutOfMemory` if the process has too
    /// many mappings, or too little address space.
    fn map(&self, len: usize, access: Access) -> io::Result<Region>;

    /// Returns the descriptor, for [`Socket::send_file`]. An implementation without files of the system returns `None`.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A connected stream socket of a caller, to which bytes are sent. If it blocks, each call waits for room in its buffer.
pub trait Socket: Debug {
    /// Copies the first bytes of consecutive parts to the socket (`sendmsg`), and returns their number. Less than all of them means that the
    /// buffer is full, or that a signal has come. `has_more`: more bytes follow at once, so an incomplete packet may wait for them.
    ///
    /// # Errors
    /// `WouldBlock`, `Interrupted`, `BrokenPipe`, `ConnectionReset` ...; no signal is raised. `EFAULT` if a byte of a mapping cannot be
    /// read.
    fn send(&self, parts: &[IoSlice<'_>], has_more: bool) -> io::Result<usize>;

    /// Sends at most `len` bytes of a file, from position `at` on, out of the page cache (`sendfile`), and returns their number; 0 means that
    /// the file ends at `at`. The bytes may leave after the call returns, so no process may write them any more.
    ///
    /// # Errors
    /// As [`send`](Self::send); `Unsupported` if the file system cannot do it.
    fn send_file(&self, file: BorrowedFd<'_>, at: u64, len: usize) -> io::Result<usize>;

    /// Waits until the socket takes bytes or has failed, for a time at most.
    ///
    /// # Errors
    /// `Interrupted`.
    fn wait_writable(&self, timeout: Duration) -> io::Result<()>;
}

impl dyn File + '_ {
    /// Returns the [`written`](File::written) parts, after dropping the clean, unmapped pages of the range from the page cache.
    /// Read-ahead caches pages of zeros past those that are read, so otherwise each read of the written parts would extend them.
    ///
    /// # Errors
    /// As `written`.
    pub fn written_on_disk(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        // A refused hint only costs time.
        let _ = self.advise(range.clone(), Advice::DontNeed);
        self.written(range)
    }

    /// Reads, as [`read_at`](File::read_at) does, until `into` is full or the file ends, and returns the number of bytes.
    ///
    /// # Errors
    /// As `read_at`.
    pub fn read_full_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.read_at(rest, at.saturating_add(done as u64))? {
                0 => break,
                read => done += read,
            }
        }
        Ok(done)
    }

    /// Writes, as [`write_at`](File::write_at) does, until all of `bytes` is written.
    ///
    /// # Errors
    /// As `write_at`; `WriteZero` if the system takes no more bytes.
    pub fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            match self.write_at(rest, at.saturating_add(done as u64))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => done += written,
            }
        }
        Ok(())
    }
}
