//! A machine in memory. A seed decides what a power cut keeps of its files and directories, and chosen calls fail.
//!
//! A file has two images: as processes see it and as it is durable. A sync copies the first to the second; [`SimulatedEnv::crash`] mixes
//! the two sector by sector and name by name, [`SimulatedEnv::kill`] keeps both and ends the process. Either gives a new machine
//! that shares nothing with this one, so a test examines what a crash leaves and continues with the machine that did not crash.

mod calls;
mod claims;
mod directory;
mod disk;
mod file;
mod image;
mod random;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use mqstore::storage::{Access, DirEntry, DiskUsage, EntryKind, Env, File, FileSystem, Lock, Step};

pub(crate) use calls::{Call, Failure, Fault};
use calls::{Calls, Verdict};
use directory::Inode;
pub(crate) use disk::CrashReport;
use disk::Disk;
use file::SimulatedFile;
pub(crate) use image::SECTOR;
pub(crate) use random::Random;

/// When a machine starts.
pub(crate) const START_MS: i64 = 1_700_000_000_000;

/// A machine; clones are the same one.
#[derive(Debug, Clone)]
pub(crate) struct SimulatedEnv {
    machine: Arc<Machine>,
}

#[derive(Debug)]
struct Machine {
    disk: Mutex<Disk>,
    calls: Mutex<Calls>,
    /// Directories with a locked file.
    locked: Mutex<BTreeSet<Inode>>,
    now_ms: AtomicI64,
    /// Bytes of the disk.
    disk_size: AtomicU64,
    camera: Mutex<Option<Camera>>,
    pause: Mutex<Option<Pause>>,
    stall: Mutex<Option<Stall>>,
}

/// A hook that runs once, before a call.
struct Pause {
    before: Call,
    work: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pause before {:?}", self.before)
    }
}

/// A hook that runs once, during a slow sync.
struct Stall {
    steps: &'static [Step],
    work: Box<dyn FnOnce(&SimulatedEnv) + Send>,
}

impl fmt::Debug for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stall of {:?}", self.steps)
    }
}

/// Takes crash images while the store works.
#[derive(Debug)]
struct Camera {
    random: Random,
    /// One of this many changing calls is preceded by a power cut on a copy of the machine.
    one_in: u64,
    /// Images are those of a killed process instead of a power cut.
    are_kills: bool,
    taken: Vec<Image>,
}

/// The machine that a power cut before a call leaves.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) env: SimulatedEnv,
    pub(crate) report: CrashReport,
    pub(crate) seed: u64,
    /// Number of the call among all calls of the machine.
    pub(crate) call: u64,
}

impl SimulatedEnv {
    /// A machine with nothing but its root directory.
    pub(crate) fn new() -> Self {
        Self::with(Disk::new(), START_MS)
    }

    fn with(disk: Disk, now_ms: i64) -> Self {
        Self {
            machine: Arc::new(Machine {
                disk: Mutex::new(disk),
                calls: Mutex::default(),
                locked: Mutex::default(),
                now_ms: AtomicI64::new(now_ms),
                disk_size: AtomicU64::new(u64::MAX),
                camera: Mutex::default(),
                pause: Mutex::default(),
                stall: Mutex::default(),
            }),
        }
    }

    /// Returns the environment in the type that the crate takes.
    pub(crate) fn shared(&self) -> Arc<dyn Env> {
        Arc::new(self.clone())
    }

    /// Returns the machine after a power cut, while this one continues: every sector that no sync covered is old, new or torn,
    /// every name likewise there or not, as the seed says.
    pub(crate) fn crash(&self, seed: u64) -> (Self, CrashReport) {
        let are_lines_wanted = self.calls().are_logged;
        let (disk, report) = self.disk().crashed(seed, are_lines_wanted);
        (Self::with(disk, self.now()), report)
    }

    /// Returns the machine after a kill of the process: files as they were seen, and no more of them durable than before. This one stops.
    pub(crate) fn kill(&self) -> Self {
        let copy = self.copy();
        self.stop();
        copy
    }

    /// Returns a copy of the machine that shares nothing with it.
    pub(crate) fn copy(&self) -> Self {
        Self::with(self.disk().copy(), self.now())
    }

    /// Every call fails from now on, so that what is left of a process does no more.
    pub(crate) fn stop(&self) {
        self.calls().is_stopped = true;
    }

    pub(crate) fn set_now(&self, ms: i64) {
        self.machine.now_ms.store(ms, Ordering::Relaxed);
    }

    /// Sets the size of the disk, which the files of this machine use.
    pub(crate) fn set_disk_size(&self, bytes: u64) {
        self.machine.disk_size.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> i64 {
        self.machine.now_ms.load(Ordering::Relaxed)
    }

    /// Makes calls fail from now on, or none.
    pub(crate) fn set_fault(&self, fault: Option<Fault>) {
        let mut calls = self.calls();
        calls.fault = fault;
        calls.concerned = 0;
    }

    /// Lets every call through until [`resume_fault`](Self::resume_fault), for a test that only wants to look.
    pub(crate) fn pause_fault(&self) -> Option<Fault> {
        self.calls().fault.take()
    }

    pub(crate) fn resume_fault(&self, fault: Option<Fault>) {
        self.calls().fault = fault;
    }

    /// Returns the number of calls that the fault has concerned.
    pub(crate) fn concerned(&self) -> u64 {
        self.calls().concerned
    }

    /// The file of the first failed sync, if it was synced again after that.
    pub(crate) fn synced_again(&self) -> Option<PathBuf> {
        self.calls().synced_again.clone()
    }

    /// Makes a step do nothing and return `Ok`.
    pub(crate) fn leave_out(&self, step: Option<Step>) {
        self.calls().without = step;
    }

    /// Records every changing call and every decision of a crash from now on.
    pub(crate) fn log_calls(&self) {
        self.calls().are_logged = true;
    }

    /// The calls recorded since the last call of this function, a line each.
    pub(crate) fn take_log(&self) -> Vec<String> {
        let log = std::mem::take(&mut self.calls().log);
        log.iter()
            .map(|(call, path)| format!("{call:?} {}", path.display()))
            .collect()
    }

    /// Calls so far.
    pub(crate) fn count(&self) -> u64 {
        self.calls().count
    }

    /// Runs something before the next call of this kind.
    pub(crate) fn pause_before(&self, call: Call, work: impl FnOnce() + Send + 'static) {
        let work = Box::new(work);
        *self.machine.pause.lock().unwrap() = Some(Pause { before: call, work });
    }

    /// Makes the next sync for one of these steps slow: what was written before the call is durable, the call has not returned,
    /// and this runs during it.
    pub(crate) fn stall(&self, steps: &'static [Step], meanwhile: impl FnOnce(&Self) + Send + 'static) {
        let work = Box::new(meanwhile);
        *self.machine.stall.lock().unwrap() = Some(Stall { steps, work });
    }

    /// No sync is slow any more.
    pub(crate) fn end_stall(&self) {
        *self.machine.stall.lock().unwrap() = None;
    }

    /// From now on takes an image before one of this many calls, with seeds drawn from this one.
    pub(crate) fn take_images(&self, seed: u64, one_in: u64) {
        self.set_camera(seed, one_in, false);
    }

    /// Takes images as [`take_images`](Self::take_images), of a killed process.
    pub(crate) fn take_kills(&self, seed: u64, one_in: u64) {
        self.set_camera(seed, one_in, true);
    }

    fn set_camera(&self, seed: u64, one_in: u64, are_kills: bool) {
        *self.machine.camera.lock().unwrap() = Some(Camera {
            random: Random::new(seed),
            one_in,
            are_kills,
            taken: Vec::new(),
        });
    }

    /// The images taken since the last call of this function.
    pub(crate) fn taken(&self) -> Vec<Image> {
        let mut camera = self.machine.camera.lock().unwrap();
        camera
            .as_mut()
            .map(|camera| std::mem::take(&mut camera.taken))
            .unwrap_or_default()
    }

    /// Returns true if a power cut would change nothing below a path.
    pub(crate) fn is_durable(&self, path: &Path) -> bool {
        self.disk().is_durable(path)
    }

    /// Every file below a directory, in the order of their paths, as processes see it.
    pub(crate) fn files(&self, below: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let disk = self.disk();
        let mut files: Vec<_> = disk
            .files(below)
            .into_iter()
            .map(|(path, bytes)| (path, bytes.to_vec()))
            .collect();
        files.sort();
        files
    }

    /// Puts a file at a path, durably, and replaces what was there, as from a backup.
    pub(crate) fn put(&self, path: &Path, bytes: &[u8]) {
        let mut disk = self.disk();
        let _ = disk.unlink(path);
        let inode = disk.create(path).unwrap();
        disk.file_mut(inode).write(0, bytes);
        disk.sync_all();
    }

    /// Makes a directory, durably.
    pub(crate) fn make_dir(&self, path: &Path) {
        let mut disk = self.disk();
        disk.create_dir(path).unwrap();
        disk.sync_all();
    }

    /// Takes a file away, durably.
    pub(crate) fn remove(&self, path: &Path) {
        let mut disk = self.disk();
        disk.unlink(path).unwrap();
        disk.sync_dir(path.parent().unwrap()).unwrap();
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.machine.disk.lock().unwrap()
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.machine.calls.lock().unwrap()
    }

    fn judge(&self, call: Call, path: &Path) -> Verdict {
        let pause = self.machine.pause.lock().unwrap().take_if(|pause| pause.before == call);
        if let Some(pause) = pause {
            (pause.work)();
        }
        let verdict = self.calls().judge(call, path);
        if call.is_change() {
            self.take_image();
        }
        verdict
    }

    /// Decides a call that does all or nothing. `None` means: return `Ok` and do nothing.
    fn admit(&self, call: Call, path: &Path) -> io::Result<Option<()>> {
        match self.judge(call, path) {
            Verdict::Go | Verdict::Short => Ok(Some(())),
            Verdict::Nothing => Ok(None),
            Verdict::Fail(error) => Err(error),
        }
    }

    /// Runs between the work of a sync and its return.
    fn take_time(&self, step: Step) {
        let stall = self
            .machine
            .stall
            .lock()
            .unwrap()
            .take_if(|stall| stall.steps.contains(&step));
        if let Some(stall) = stall {
            (stall.work)(self);
        }
    }

    fn take_image(&self) {
        let mut camera = self.machine.camera.lock().unwrap();
        let Some(camera) = camera.as_mut() else { return };
        if self.calls().is_stopped || !camera.random.one_in(camera.one_in) {
            return;
        }
        let seed = camera.random.next();
        let (env, report) = if camera.are_kills {
            (self.copy(), CrashReport::default())
        } else {
            self.crash(seed)
        };
        let call = self.count();
        camera.taken.push(Image { env, report, seed, call });
    }

    fn file(&self, inode: Inode, path: &Path) -> Arc<dyn File> {
        Arc::new(SimulatedFile {
            env: self.clone(),
            inode,
            path: path.to_owned(),
        })
    }
}

#[derive(Debug)]
struct SimulatedFileSystem {
    env: SimulatedEnv,
    dir: PathBuf,
}

impl FileSystem for SimulatedFileSystem {
    fn sync(&self, step: Step) -> io::Result<()> {
        match self.env.judge(Call::SyncAll(step), &self.dir) {
            Verdict::Go | Verdict::Short => self.env.disk().sync_all(),
            Verdict::Nothing => {}
            Verdict::Fail(error) => {
                self.env.disk().fail_sync_all();
                return Err(error);
            }
        }
        self.env.take_time(step);
        Ok(())
    }
}

impl Env for SimulatedEnv {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        self.admit(Call::Open, path)?;
        let inode = {
            let mut disk = self.disk();
            let inode = disk.find(path)?;
            disk.file(inode)?;
            if access == Access::ReadWrite {
                disk.file_mut(inode).copy_up();
            }
            inode
        };
        Ok(self.file(inode, path))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.admit(Call::Create, path)?;
        let inode = self.disk().create(path)?;
        Ok(self.file(inode, path))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.admit(Call::CreateDir, path)?;
        self.disk().create_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.admit(Call::List, dir)?;
        let disk = self.disk();
        let entries = disk.directory(disk.find(dir)?)?.entries();
        Ok(entries
            .map(|(name, inode)| {
                let (kind, len) = match disk.file(inode) {
                    Ok(image) => (EntryKind::File, image.len() as u64),
                    Err(_) => (EntryKind::Directory, 0),
                };
                let name = name.clone();
                DirEntry { name, kind, len }
            })
            .collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.admit(Call::Rename, to)?;
        self.disk().rename(from, to)
    }

    fn rename_noreplace(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.admit(Call::Rename, to)?;
        let mut disk = self.disk();
        if disk.find(to).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        disk.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.admit(Call::Unlink, path)?;
        self.disk().unlink(path)
    }

    fn sync_dir(&self, dir: &Path, step: Step) -> io::Result<()> {
        if let Some(()) = self.admit(Call::SyncDir(step), dir)? {
            self.disk().sync_dir(dir)?;
        }
        self.take_time(step);
        Ok(())
    }

    fn file_system(&self, dir: &Path) -> io::Result<Arc<dyn FileSystem>> {
        let disk = self.disk();
        disk.directory(disk.find(dir)?)?;
        drop(disk);
        let (env, dir) = (self.clone(), dir.to_owned());
        Ok(Arc::new(SimulatedFileSystem { env, dir }))
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        self.admit(Call::Lock, path)?;
        let mut disk = self.disk();
        let dir = disk.find(path.parent().unwrap())?;
        if !self.machine.locked.lock().unwrap().insert(dir) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let file = match disk.find(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => disk.create(path)?,
            found => found?,
        };
        let locked = Locked {
            machine: self.machine.clone(),
            path: path.to_owned(),
            dir,
            file,
        };
        Ok(Lock::new(move || Ok(locked.is_replaced())))
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        let dir = self.disk().find(path.parent().unwrap());
        match dir {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            dir => Ok(self.machine.locked.lock().unwrap().contains(&dir?)),
        }
    }

    fn now_ms(&self) -> i64 {
        self.now()
    }

    fn now_local_ms(&self) -> i64 {
        self.now()
    }

    fn monotonic_ns(&self) -> i64 {
        self.now() * 1_000_000
    }

    fn physical_memory(&self) -> u64 {
        1 << 30
    }

    /// The disk has what [`SimulatedEnv::set_disk_size`] has set, and holds the files of this machine and nothing else.
    fn disk_usage(&self, path: &Path) -> io::Result<DiskUsage> {
        self.admit(Call::DiskUsage, path)?;
        let used = self.files(Path::new("/")).iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let size = self.machine.disk_size.load(Ordering::Relaxed);
        Ok(DiskUsage {
            used,
            available: size.saturating_sub(used),
        })
    }

    /// No file has such a time here.
    fn modified_ms(&self, _path: &Path) -> io::Result<i64> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

struct Locked {
    machine: Arc<Machine>,
    path: PathBuf,
    dir: Inode,
    file: Inode,
}

impl Locked {
    fn is_replaced(&self) -> bool {
        let disk = self.machine.disk.lock().unwrap();
        let is_moved = disk.find(self.path.parent().unwrap()).ok() != Some(self.dir);
        is_moved || disk.find(&self.path).is_ok_and(|file| file != self.file)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        self.machine.locked.lock().unwrap().remove(&self.dir);
    }
}
