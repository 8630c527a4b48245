//! The implementation on Linux, through std, rustix and libc, so that a preloaded library can see every call.

use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use std::{fs, io};

use memmap2::MmapOptions;
use rustix::fs::{
    Advice as FileAdvice, AtFlags, CWD, FallocateFlags, IFlags, RenameFlags, SeekFrom, StatxFlags, fadvise, fallocate,
    ioctl_getflags, ioctl_setflags, renameat_with, seek, statx, syncfs,
};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::env::{Access, Advice, DirEntry, DiskUsage, EntryKind, Env, File, FileSystem, Lock, Step, WALL_CLOCK_WAIT};
use super::fork::ClosedInChild;
use super::guard;
use super::region::Region;
use crate::error::is_short;

/// The zeros that overwrite bytes. They are static because a commit writes them, and a process without memory would end at an
/// allocation.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// The time of the stopped wall clock.
static STOPPED_AT: AtomicI64 = AtomicI64::new(RUNS);
/// The value of [`STOPPED_AT`] while the wall clock runs.
const RUNS: i64 = i64::MIN;
/// The longest wait for a time of a stopped wall clock, which its test moves at any moment.
const STOPPED_CLOCK_WAIT: Duration = Duration::from_millis(10);
/// The mode bits that let the owner of a file read and write it.
const OWNER_READS_AND_WRITES: u32 = 0o600;

/// The files of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealEnv;

impl RealEnv {
    /// Returns the files of this machine.
    pub fn new() -> Self {
        Self
    }

    /// Stops the wall clock of every store of this process at this time, in ms since 1970; `None` lets it run again. For tests that
    /// need the same times in each run.
    pub fn stop_wall_clock(at: Option<i64>) {
        STOPPED_AT.store(at.unwrap_or(RUNS), Ordering::Relaxed);
    }
}

impl Env for RealEnv {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(access == Access::ReadWrite);
        Ok(Arc::new(RealFile(open_regular(&options, path)?)))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create_new(true);
        Ok(Arc::new(RealFile(open_regular(&options, path)?)))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir)? {
            entries.extend(describe(&entry?)?);
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn canonical(&self, dir: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn rename_noreplace(&self, from: &Path, to: &Path) -> io::Result<()> {
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // The file system or the kernel does not support the flag. A hard link replaces no file, either.
            Err(Errno::INVAL | Errno::NOSYS) => {
                fs::hard_link(from, to)?;
                fs::remove_file(from).inspect_err(|_| {
                    let _ = fs::remove_file(to);
                })
            }
            renamed => Ok(renamed?),
        }
    }

    fn can_rename(&self, from: &Path, to: &Path) -> io::Result<bool> {
        Ok(mount_of(from)? == mount_of(to)?)
    }

    fn copy_mode_and_owner(&self, original: &Path, copy: &Path) -> io::Result<()> {
        copy_mode_and_owner(original, copy)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path, _step: Step) -> io::Result<()> {
        checked_sync(open_directory(dir)?.sync_all())
    }

    fn file_system(&self, dir: &Path) -> io::Result<Arc<dyn FileSystem>> {
        Ok(Arc::new(RealFileSystem(open_directory(dir)?)))
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        loop {
            let locked = Locked::take(path)?;
            // A file that was replaced before it was locked excludes nobody.
            if !locked.is_replaced()? {
                return Ok(Lock::new(move || locked.is_replaced()));
            }
        }
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        let mut options = fs::OpenOptions::new();
        options.read(true);
        let is_held = match open_regular(&options, path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            opened => is_lock_held(&opened?)?,
        };
        if is_held {
            return Ok(true);
        }
        match open_directory(parent_of(path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            directory => Ok(is_directory_locked(&directory?)),
        }
    }

    fn now_ms(&self) -> i64 {
        let stopped_at = STOPPED_AT.load(Ordering::Relaxed);
        if stopped_at != RUNS {
            return stopped_at;
        }
        let now = read_clock(libc::CLOCK_REALTIME);
        now.tv_sec * 1000 + now.tv_nsec / 1_000_000
    }

    fn longest_wall_clock_wait(&self) -> Duration {
        if STOPPED_AT.load(Ordering::Relaxed) == RUNS {
            WALL_CLOCK_WAIT
        } else {
            STOPPED_CLOCK_WAIT
        }
    }

    fn monotonic_ns(&self) -> i64 {
        let now = read_clock(libc::CLOCK_MONOTONIC_COARSE);
        now.tv_sec * 1_000_000_000 + now.tv_nsec
    }

    fn now_local_ms(&self) -> i64 {
        let now = self.now_ms();
        let seconds: libc::time_t = now.div_euclid(1000);
        // SAFETY: all-zero is a valid tm.
        let mut local: libc::tm = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are valid for the call; a failure leaves an offset of 0, which is UTC.
        unsafe { libc::localtime_r(&raw const seconds, &raw mut local) };
        now + local.tm_gmtoff * 1000
    }

    fn physical_memory(&self) -> u64 {
        // SAFETY: sysconf has no preconditions; -1 (unknown) becomes 0.
        let (pages, page_size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
        u64::try_from(pages).unwrap_or(0) * u64::try_from(page_size).unwrap_or(0)
    }

    fn disk_usage(&self, path: &Path) -> io::Result<DiskUsage> {
        let found = retry(|| Ok(rustix::fs::statvfs(path)?))?;
        Ok(DiskUsage {
            used: found.f_blocks.saturating_sub(found.f_bfree) * found.f_frsize,
            available: found.f_bavail * found.f_frsize,
        })
    }

    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        let found = fs::metadata(path)?;
        Ok(found.mtime() * 1000 + found.mtime_nsec() / 1_000_000)
    }
}

/// A directory of the file system. Since Linux 5.8 each open file records which write errors of the file system were reported to
/// it; those before its open count as reported.
#[derive(Debug)]
struct RealFileSystem(fs::File);

impl FileSystem for RealFileSystem {
    fn sync(&self, _step: Step) -> io::Result<()> {
        checked_sync(retry(|| Ok(syncfs(&self.0)?)))
    }
}

#[derive(Debug)]
struct RealFile(fs::File);

impl File for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        retry(|| self.0.read_at(into, at))
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        retry(|| self.0.write_at(bytes, at))
    }

    fn sync(&self, _step: Step) -> io::Result<()> {
        // A writer may map nothing for hours, but it syncs regularly.
        guard::put_back()?;
        checked_sync(self.0.sync_data())
    }

    /// Syncs with `msync` of a temporary mapping. `fdatasync` has no range: it would write every page that was prefaulted ahead of
    /// the writer. The mapping belongs to this open file, so the system reports a write error to one of the two calls. If the range
    /// cannot be mapped, the whole file is synced.
    fn sync_range(&self, range: Range<u64>, step: Step) -> io::Result<()> {
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        if len == 0 {
            return Ok(());
        }
        match MmapOptions::new().offset(range.start).len(len).map_raw_read_only(&self.0) {
            Ok(mapping) => {
                guard::put_back()?;
                checked_sync(retry(|| mapping.flush()))
            }
            Err(_) => self.sync(step),
        }
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let Some(len) = NonZeroU64::new(len) else {
            return Ok(());
        };
        if self.len()? == 0 {
            disable_copy_on_write(&self.0);
        }
        match retry(|| Ok(fallocate(&self.0, FallocateFlags::empty(), 0, len.get())?)) {
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this file system cannot reserve space (fallocate): put the store on ext4, xfs, btrfs or tmpfs",
            )),
            done => done,
        }
    }

    fn zero(&self, range: Range<u64>) -> io::Result<()> {
        if range.end > self.len()? {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("zeroing bytes {range:?} of a file of {} bytes", self.len()?),
            ));
        }
        // Zeros are written, not punched: punched or converted extents need a journal commit at the next sync.
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(ZEROS.len() as u64);
            let (chunk, _) = ZEROS.split_at(len as usize);
            (self as &dyn File).write_all_at(chunk, at)?;
            at += len;
        }
        Ok(())
    }

    fn written(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        // This changes the file position, which no read or write uses.
        let mut found = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let start = match seek(&self.0, SeekFrom::Data(at)) {
                Err(Errno::NXIO) => break,
                Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(vec![range]), // the file system does not report holes
                start => start?,
            };
            let end = seek(&self.0, SeekFrom::Hole(start))?;
            found.push(start..end.min(range.end));
            at = end;
        }
        found.retain(|part| !part.is_empty());
        Ok(found)
    }

    fn advise(&self, range: Range<u64>, advice: Advice) -> io::Result<()> {
        let advice = match advice {
            Advice::Sequential => FileAdvice::Sequential,
            Advice::Random => FileAdvice::Random,
            Advice::WillNeed => FileAdvice::WillNeed,
            Advice::DontNeed => FileAdvice::DontNeed,
        };
        match NonZeroU64::new(range.end.saturating_sub(range.start)) {
            Some(len) => Ok(fadvise(&self.0, range.start, Some(len), advice)?),
            None => Ok(()),
        }
    }

    fn map(&self, len: usize, access: Access) -> io::Result<Region> {
        let found = self.len()?;
        if found < len as u64 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("mapping {len} bytes of a file of {found} bytes"),
            ));
        }
        if access == Access::Read && len as u64 > address_space_left() / 2 {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let mut options = MmapOptions::new();
        options.len(len);
        match access {
            Access::Read => Region::mapped(options.map_raw_read_only(&self.0)?, false),
            Access::ReadWrite => Region::mapped(options.map_raw(&self.0)?, true),
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// Returns the number of bytes by which the address space of this process may grow (`RLIMIT_AS`). The caller leaves half of it to
/// others: a process without address space ends at the next allocation that fails.
fn address_space_left() -> u64 {
    let Some(limit) = getrlimit(Resource::As).current else {
        return u64::MAX;
    };
    let used = || {
        let statm = fs::read_to_string("/proc/self/statm").ok()?;
        let pages: u64 = statm.split(' ').next()?.parse().ok()?;
        Some(pages * rustix::param::page_size() as u64)
    };
    // If the usage is unknown, nothing is mapped: every read works without a mapping.
    used().map_or(0, |used| limit.saturating_sub(used))
}

/// Disables copy-on-write for a file. btrfs otherwise writes each changed page to a new block, so that a full disk would be found
/// when a mapped page is written, as a SIGBUS, in spite of the reservation. Other file systems overwrite in place anyway and refuse
/// the flag; btrfs accepts it for empty files only. Without the flag a file works until the disk is full.
fn disable_copy_on_write(file: &fs::File) {
    let _ = ioctl_getflags(file).and_then(|flags| ioctl_setflags(file, flags | IFlags::NOCOW));
}

/// Opens a regular file and refuses anything else. The open does not wait for the other end of a pipe.
fn open_regular(options: &fs::OpenOptions, path: &Path) -> io::Result<fs::File> {
    let file = options.clone().custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    let found = if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a pipe"
    } else {
        "a device"
    };
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("expected a regular file, found {found}"),
    ))
}

fn read_clock(clock: libc::clockid_t) -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec to be written.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now
}

fn open_directory(dir: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(dir)
}

/// Returns the entry of a name, following links; `None` if it was removed since the listing.
fn describe(entry: &fs::DirEntry) -> io::Result<Option<DirEntry>> {
    let listed = match entry.file_type() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        listed => listed?,
    };
    let described = |kind, len| {
        Ok(Some(DirEntry {
            name: entry.file_name(),
            kind,
            len,
        }))
    };
    if listed.is_dir() {
        return described(EntryKind::Directory, 0);
    }
    match fs::metadata(entry.path()) {
        Ok(found) if found.is_file() => described(EntryKind::File, found.len()),
        Ok(found) if found.is_dir() => described(EntryKind::Directory, 0),
        Ok(_) => described(EntryKind::Other, 0),
        Err(e) if listed.is_symlink() && is_dangling(&e) => described(EntryKind::Other, 0),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

fn is_dangling(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP))
}

/// A locked lock file, and its directory with a lock of its own, which holds when the file is removed or replaced.
struct Locked {
    path: PathBuf,
    file: ClosedInChild<fs::File>,
    dir: ClosedInChild<fs::File>,
}

impl Locked {
    /// Locks the file and its directory.
    fn take(path: &Path) -> io::Result<Self> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let dir = ClosedInChild::open(|| open_directory(parent_of(path)))?;
        // Checked before the file is created: its new name would look like that of another holder to this one.
        dir.get().map_or(Ok(()), expect_unlocked_directory)?;
        let file = ClosedInChild::open(|| open_regular(&options, path))?;
        let locked = Self {
            path: path.to_owned(),
            file,
            dir,
        };
        if let (Some(file), Some(dir)) = (locked.file.get(), locked.dir.get()) {
            set_lock(file, libc::F_WRLCK as libc::c_short)?;
            // A directory is never open for writing, so this lock does not exclude others by itself: it is looked for.
            match set_lock(dir, libc::F_RDLCK as libc::c_short) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                // A file system without locks of directories relies on the file.
                _ => expect_unlocked_directory(dir)?,
            }
        }
        Ok(locked)
    }

    /// Returns true if the path leads to another file or into another directory. A file that was removed counts as not replaced.
    fn is_replaced(&self) -> io::Result<bool> {
        let (Some(file), Some(dir)) = (self.file.get(), self.dir.get()) else {
            return Ok(false);
        };
        Ok(!is_named(dir, parent_of(&self.path))?.unwrap_or(false) || !is_named(file, &self.path)?.unwrap_or(true))
    }
}

impl Drop for Locked {
    /// Releases the locks. Closing the files does not while a child that is about to exec has them open.
    fn drop(&mut self) {
        for file in [&self.dir, &self.file].into_iter().filter_map(ClosedInChild::get) {
            // If the release fails, the lock ends with the last process that has the file open.
            let _ = set_lock(file, libc::F_UNLCK as libc::c_short);
        }
    }
}

/// Returns the directory of a file.
fn parent_of(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Returns true if `path` leads to this open file or directory; `None` if it leads nowhere.
fn is_named(file: &fs::File, path: &Path) -> io::Result<Option<bool>> {
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    let open = file.metadata()?;
    Ok(Some((open.dev(), open.ino()) == (found.dev(), found.ino())))
}

/// Returns true if another open file has a lock on this directory; false on a file system without locks of directories.
fn is_directory_locked(dir: &fs::File) -> bool {
    is_lock_held(dir).unwrap_or(false)
}

fn expect_unlocked_directory(dir: &fs::File) -> io::Result<()> {
    if is_directory_locked(dir) {
        Err(locked_by_another())
    } else {
        Ok(())
    }
}

fn locked_by_another() -> io::Error {
    io::Error::new(io::ErrorKind::WouldBlock, "locked by another store or broker")
}

/// Takes or releases an open-file-description lock on byte 0. It conflicts with the classic lock that a broker takes (`flock` would
/// not), and survives the close of another descriptor of the file (a classic lock would not).
fn set_lock(file: &fs::File, kind: libc::c_short) -> io::Result<()> {
    let wanted = lock_of(kind);
    // SAFETY: the descriptor is open, and `wanted` outlives the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const wanted) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EAGAIN) => Err(locked_by_another()),
        _ => Err(error),
    }
}

/// Returns true if [`set_lock`] would be refused.
fn is_lock_held(file: &fs::File) -> io::Result<bool> {
    let mut found = lock_of(libc::F_WRLCK as libc::c_short);
    // SAFETY: the descriptor is open, and `found` is a flock to be read and written.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut found) } == 0 {
        return Ok(found.l_type != libc::F_UNLCK as libc::c_short);
    }
    Err(io::Error::last_os_error())
}

/// Returns the description of a lock on byte 0.
fn lock_of(kind: libc::c_short) -> libc::flock {
    // SAFETY: all-zero is a valid flock.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = 0;
    lock.l_len = 1;
    lock
}

/// Converts the result of a sync: a sync that was begun and failed, even with `ENOMEM`, must not be retried.
fn checked_sync(synced: io::Result<()>) -> io::Result<()> {
    match synced {
        Err(error) if is_short(&error) => Err(io::Error::other(format!("the sync failed: {error}"))),
        synced => synced,
    }
}

/// Retries a call that a signal interrupted.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Returns the device and the mount of a directory. The subvolumes of btrfs are devices of one mount, and one device may be mounted
/// in several directories. Before Linux 5.8 the number of every mount is 0.
pub(super) fn mount_of(dir: &Path) -> io::Result<(u32, u32, u64)> {
    let found = statx(CWD, dir, AtFlags::empty(), StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)?;
    Ok((found.stx_dev_major, found.stx_dev_minor, found.stx_mnt_id))
}

/// Implements [`Env::copy_mode_and_owner`](super::env::Env::copy_mode_and_owner).
pub(super) fn copy_mode_and_owner(original: &Path, copy: &Path) -> io::Result<()> {
    let found = fs::metadata(original)?;
    // A process may not give files away, and a container may not know the owner: then the copy keeps its own owner.
    let _ = chown(copy, Some(found.uid()), Some(found.gid()));
    fs::set_permissions(copy, fs::Permissions::from_mode(found.mode() | OWNER_READS_AND_WRITES))
}
