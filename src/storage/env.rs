//! The seam. All code above it uses files, directories, locks and the clock only through [`Env`] and [`File`]. The real implementation is
//! [`RealEnv`](super::RealEnv); the tests have others, which count, fail, tear or forget.
//!
//! The words of the contract:
//! - *visible*: any process that looks sees it. Every write and directory change is visible when its call returns.
//! - *durable*: a power cut does not take it back. Nothing is durable before the sync that names it has returned `Ok`:
//!   bytes need [`File::sync`] (or `sync_range`, or [`FileSystem::sync`]), a name in a directory needs [`Env::sync_dir`].
//!   Unsynced bytes may become durable in any order, by the sector.
//! - A failed sync says nothing about the bytes that it covered, and a later one that succeeds does not either: the caller
//!   stops writing, reopens, and rewrites what was not durable.
//! - A call that finds no descriptor or no memory left (`EMFILE`, `ENFILE`, [`io::ErrorKind::OutOfMemory`]) has done nothing, and may be
//!   made again. A sync that was begun never fails with one of these: [`Env::sync_dir`] does when it cannot open the directory.
//! - Interrupted system calls are retried below the seam; no call returns [`io::ErrorKind::Interrupted`].
//! - Errors are plain [`io::Error`]s: the caller adds the path and what it means for a store.

use std::any::Any;
use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::region::Region;

/// The access that a file is opened or mapped for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing can be changed through it.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// The expected use of a range of a file. A hint: it changes no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// From the start to the end: read far ahead.
    Sequential,
    /// At random places: do not read ahead.
    Random,
    /// Soon: start reading it now.
    WillNeed,
    /// Not again: its cached pages may go.
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

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, without the directory.
    pub name: OsString,
    /// The kind of the file.
    pub kind: EntryKind,
    /// Bytes of the file (of a link: of its target), 0 for anything but a file.
    pub len: u64,
}

/// The ordering steps that durability rests on: each sync is called for one of them, and each can be made a no-op under
/// test. What a power cut does to a store in which the step is missing stands beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The store's directories are in their parents, before anything is made in them. Without: the store is gone, acks
    /// and all.
    StoreDirectories,
    /// The note of the end of a closed log, under its temporary name, before it is renamed. Without: `abort` is there and the note is
    /// empty, and a repair takes messages after damage for stale ones.
    RecoveryNote,
    /// The name of that note, before `abort` is made. Without: as `RecoveryNote`.
    RecoveryNoteRenamed,
    /// `abort` is in the store's directory, before the first append. Without: the store looks closed, recovery skips its scan, and a torn
    /// end is served.
    AbortCreated,
    /// A new segment's length and blocks, before it is renamed into the log. Without: a segment of a foreign length stands
    /// in the log, and a broker refuses the store.
    SegmentAllocated,
    /// The segment's new name in `commitlog/` and the removal of its temporary name in the store's directory, before the first ack
    /// inside it. Without: the segment is gone with acked records in it.
    SegmentRenamed,
    /// The removal of a segment that no record was put into, before `abort` goes. Without: it comes back, and a closed store with a
    /// segment past its end is refused.
    SegmentRemoved,
    /// The records below an offset, before `flushed` rises to it. Without: acked records are lost or torn.
    LogRange,
    /// Queue entries past the recovered end of the log are gone, before the log itself is cut. Without: entries point at
    /// bytes that later records overwrite, and name the wrong messages.
    QueuesCut,
    /// Index files that a crash has damaged are gone, and what is kept of the others is on disk again, before the log is cut.
    /// Without: a damaged file looks like one of a store that was closed, and keys are not found.
    IndexCut,
    /// The removal of a segment past the recovered end of the log, newest first, each before the next. Without: a later segment
    /// comes back and an earlier one does not. That is a hole in the log, and the store is refused.
    LogCut,
    /// The recovered end of the log, written again with the bytes that were read, and the records of a salvage, before they are
    /// served. Without: after a sync that failed the system shows bytes that are not on disk; they are read, acknowledged, and lost
    /// in the next power cut.
    LogRewritten,
    /// The log past its recovered end is zeros, before a record is appended there. Without: a stale record after the new
    /// end looks like the next one.
    TailZeroed,
    /// The claim in the lock file that every later record is ours, before the first of them. Without: a record that lost a sector
    /// is served, for it might be a broker's.
    LogClaimed,
    /// The entries in the consume-queue files, before a checkpoint stamp that covers them. Without: recovery starts after
    /// entries that are lost, and their messages are never dispatched again.
    QueueFiles,
    /// An index file, before the checkpoint stamp that covers it. Without: keys are not found although the stamp says that
    /// they are indexed.
    IndexFile,
    /// The name of a new index file in `index/`, before the same stamp. Without: as `IndexFile`, by the whole file.
    IndexDirectory,
    /// The mark of what was flushed, before the checkpoint is stamped, and after it was lowered to the end of a salvaged log. Without: a
    /// closed store changes, or a salvaged store is refused because its log ends before the mark.
    FlushedMark,
    /// The checkpoint under its temporary name, after everything that it covers and before it is renamed. Without: an empty or torn file
    /// gets the name, and its stamps may cover what is not there.
    Checkpoint,
    /// The checkpoint's name, before `abort` goes. Without: a clean store starts from a stamp of long ago, or none.
    CheckpointRenamed,
    /// The removal of `abort`, the last thing of a clean close. Without: the next open recovers a store that needs none.
    AbortRemoved,
    /// A configuration file under its temporary name, before it is renamed. Without: the new name has an empty file, and the recorded
    /// sizes of the store are lost.
    ConfigFile,
    /// The configuration file's new name, before anything is written that relies on it. Without: files of the new geometry
    /// stand beside the old one's record.
    ConfigRenamed,
    /// What a repair has copied or moved aside, before it changes the store, or before the repaired copy is a store. Without: a damaged
    /// segment is salvaged, and its bytes as they were are gone.
    SetAside,
}

/// A held lock. It is released when it is dropped, and when the process ends.
#[derive(Debug)]
pub struct Lock {
    _held: Box<dyn Any + Send + Sync>,
}

impl Lock {
    /// Keeps `held`, whose drop is what releases the lock.
    pub fn new(held: impl Any + Send + Sync) -> Self {
        Self { _held: Box::new(held) }
    }
}

/// Files by name, directories, the store's lock, and the machine's clock and memory.
pub trait Env: Send + Sync + Debug {
    /// Opens an existing regular file, links followed; never creates or shortens one, and never waits for a peer.
    ///
    /// # Errors
    /// `NotFound`; `InvalidInput` for anything that is no regular file; `PermissionDenied`, `ReadOnlyFilesystem` ...
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>>;

    /// Makes a new, empty file and opens it for reading and writing. Its name is durable after `sync_dir` of its parent.
    ///
    /// # Errors
    /// `AlreadyExists` if anything has this name, even a link that leads nowhere.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Makes one new directory. Its name is durable after `sync_dir` of its parent.
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

    /// Gives a file or directory a new name, on the same file system, in one step: a process that looks sees the old or the new
    /// one. A file that had the new name is replaced. Durable after `sync_dir` of both parents; until then a power cut
    /// leaves either name, or (across directories) both or none.
    ///
    /// # Errors
    /// As the system gives them.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Renames a file, but replaces none.
    ///
    /// # Errors
    /// `AlreadyExists` if anything has the new name: nothing was changed.
    fn rename_noreplace(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Returns true if files can be renamed between two directories: both lie on one file system, in one mount of it. An implementation
    /// with one file system returns true.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied` ...
    fn can_rename(&self, _from: &Path, _to: &Path) -> io::Result<bool> {
        Ok(true)
    }

    /// Gives a copy the mode of the original, and its owner where the system lets this process. Its own user may write to it. An
    /// implementation without owners does nothing.
    ///
    /// # Errors
    /// As the system gives them.
    fn copy_mode_and_owner(&self, _original: &Path, _copy: &Path) -> io::Result<()> {
        Ok(())
    }

    /// Removes a file's name. Its bytes are freed with its last open file and mapping. Durable after `sync_dir`.
    ///
    /// # Errors
    /// `NotFound`; `IsADirectory` ...
    fn unlink(&self, path: &Path) -> io::Result<()>;

    /// On `Ok`, every name made, changed or removed in `dir` before the call is durable (not the files' bytes).
    ///
    /// # Errors
    /// Any error means that nothing is known to be durable. A later call that succeeds covers these names, too.
    fn sync_dir(&self, dir: &Path, step: Step) -> io::Result<()>;

    /// Opens the file system that holds the directory `dir`, to sync all of it.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `PermissionDenied` ...
    fn file_system(&self, dir: &Path) -> io::Result<Arc<dyn FileSystem>>;

    /// Locks byte 0 of the file, which is made (empty) if it is missing, against every other holder: of this process, of
    /// another one, and a broker. Never waits.
    ///
    /// # Errors
    /// `WouldBlock` if it is held; `InvalidInput` if it is no regular file.
    fn lock(&self, path: &Path) -> io::Result<Lock>;

    /// Returns true if a store of this process or another, or a broker, holds the lock of this file; false if the file is missing.
    ///
    /// # Errors
    /// `PermissionDenied` ...
    fn is_locked(&self, path: &Path) -> io::Result<bool>;

    /// Milliseconds since 1970-01-01 UTC by the wall clock that every program reads: what is stored after a reading of it is never
    /// stored at an earlier time, unless the clock steps back.
    fn now_ms(&self) -> i64;

    /// `now_ms` as the wall clocks of this place show it: shifted by the time zone.
    fn now_local_ms(&self) -> i64;

    /// Nanoseconds since some moment, by a clock that never steps back: to measure how long something lasts. It costs less than
    /// [`Instant::now`](std::time::Instant::now), and lags by some ms.
    fn monotonic_ns(&self) -> i64;

    /// Bytes of memory that the machine has (not what a container may use of it).
    fn physical_memory(&self) -> u64;
}

/// A file system, held open.
pub trait FileSystem: Send + Sync + Debug {
    /// On `Ok`, everything written before the call on the file system is durable, names and bytes: one call where thousands of small
    /// files would need one each. A write error that occurs while this is open is reported here once, even if another process gets it,
    /// too. An earlier error may have been reported to another process only. So this is opened before the first write that it must cover.
    ///
    /// # Errors
    /// Any error means that nothing is known to be durable.
    fn sync(&self, step: Step) -> io::Result<()>;
}

/// An open file. Usable from many threads at once; holds one descriptor until dropped.
#[expect(clippy::len_without_is_empty, reason = "`len` asks the system each time")]
pub trait File: Send + Sync + Debug {
    /// Bytes from the start to the end of the file, now.
    ///
    /// # Errors
    /// As the system gives them.
    fn len(&self) -> io::Result<u64>;

    /// Copies bytes from position `at` on and says how many: fewer than asked for means that the file ended or that the
    /// system stopped early; 0 (of a non-empty `into`) means that there is no byte at `at`.
    ///
    /// # Errors
    /// A block that cannot be read is an error here (never a signal).
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize>;

    /// Writes bytes from position `at` on, growing the file if need be, and returns how many were written: fewer than given is
    /// not an error (a disk that fills up does that), and the caller continues after them. Visible on return, not durable.
    ///
    /// # Errors
    /// `StorageFull`, `FileTooLarge` where the process may make no file as large, and others: nothing is known about the bytes of this
    /// call.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize>;

    /// On `Ok`, all bytes written before the call, by `write_at` or through a mapping, and the length, are durable.
    ///
    /// # Errors
    /// Any error means that nothing is known to be durable, now or after another call.
    fn sync(&self, step: Step) -> io::Result<()>;

    /// Syncs at least the bytes of `range`, as `sync` does; an implementation may sync more.
    ///
    /// # Errors
    /// As `sync`.
    fn sync_range(&self, range: Range<u64>, step: Step) -> io::Result<()>;

    /// Makes the file at least `len` bytes long with a disk block for every byte, so that no later write into them can
    /// find the disk full. New bytes read as zeros. Durable after `sync`. On a file system that copies on write, that needs a file
    /// that is empty before the call, and no snapshot or reflink of it afterwards.
    ///
    /// # Errors
    /// `StorageFull`: the file may have grown and the disk be full of it, so the caller unlinks it. `Unsupported` where
    /// the file system cannot reserve blocks: a sparse file is never made instead.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Overwrites a range inside the file with zeros, keeping its blocks. Visible on return, not durable.
    ///
    /// # Errors
    /// `InvalidInput` if the range reaches past the end; otherwise as `write_at`.
    fn zero(&self, range: Range<u64>) -> io::Result<()>;

    /// The parts of a range that were ever written, ascending: every byte beside them is zero. An implementation that does not know
    /// gives the whole range. A cached page of zeros may count as written (ext4, xfs, in blocks that were allocated).
    ///
    /// # Errors
    /// As the system gives them.
    fn written(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        Ok(vec![range])
    }

    /// Says how a range will be used.
    ///
    /// # Errors
    /// As the system gives them; ignoring one is always right.
    fn advise(&self, range: Range<u64>, advice: Advice) -> io::Result<()>;

    /// Maps the first `len` bytes, shared with every other mapping and with `read_at`/`write_at`. Outlives the `File`. A mapping that
    /// is made before the file is first opened for writing may show the file as it was then, for ever (overlayfs).
    ///
    /// # Errors
    /// `InvalidInput` if the file is shorter than `len`: a mapping never goes past the end. `OutOfMemory` if the process
    /// has too many mappings, or too little address space.
    fn map(&self, len: usize, access: Access) -> io::Result<Region>;
}

impl dyn File + '_ {
    /// Returns the same as [`written`](File::written), after the cached pages of the range are dropped, but for those that are changed or
    /// mapped. Read-ahead
    /// caches pages of zeros past those that are read, so each reading of the written parts would make them longer.
    ///
    /// # Errors
    /// As `written`.
    pub fn written_on_disk(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        // A refused hint costs only time.
        let _ = self.advise(range.clone(), Advice::DontNeed);
        self.written(range)
    }

    /// [`read_at`](File::read_at) until `into` is full or the file ends; says how many bytes were read.
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

    /// [`write_at`](File::write_at) until all of `bytes` is written.
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
