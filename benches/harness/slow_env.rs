//! The real environment with a fixed minimal latency of the syncs of the log and of settings files.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mqstore::storage::{Access, Advice, DirEntry, DiskUsage, Env, File, FileSystem, Lock, RealEnv, Region, Step};

use crate::limits::wait_at_least;

/// The environment. Calls of all threads pass through without a lock.
#[derive(Debug)]
pub struct SlowEnv {
    env: RealEnv,
    sync: Duration,
}

#[derive(Debug)]
struct SlowFile {
    file: Arc<dyn File>,
    sync: Duration,
}

impl SlowEnv {
    /// Creates an environment in which each sync of the log, of a settings file or of its directory takes at least `sync`.
    pub fn new(sync: Duration) -> Self {
        let env = RealEnv::new();
        Self { env, sync }
    }

    fn slow(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(SlowFile { file, sync: self.sync })
    }
}

impl Env for SlowEnv {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        Ok(self.slow(self.env.open(path, access)?))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.slow(self.env.create(path)?))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.env.create_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.env.list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.env.rename(from, to)
    }

    fn rename_noreplace(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.env.rename_noreplace(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.env.unlink(path)
    }

    fn sync_dir(&self, dir: &Path, step: Step) -> io::Result<()> {
        if step == Step::SettingsRenamed {
            wait_at_least(self.sync);
        }
        self.env.sync_dir(dir, step)
    }

    fn file_system(&self, dir: &Path) -> io::Result<Arc<dyn FileSystem>> {
        self.env.file_system(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        self.env.lock(path)
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        self.env.is_locked(path)
    }

    fn now_ms(&self) -> i64 {
        self.env.now_ms()
    }

    fn now_local_ms(&self) -> i64 {
        self.env.now_local_ms()
    }

    fn monotonic_ns(&self) -> i64 {
        self.env.monotonic_ns()
    }

    fn physical_memory(&self) -> u64 {
        self.env.physical_memory()
    }

    fn disk_usage(&self, path: &Path) -> io::Result<DiskUsage> {
        self.env.disk_usage(path)
    }

    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        self.env.modified_ms(path)
    }
}

impl File for SlowFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(into, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.file.write_at(bytes, at)
    }

    fn sync(&self, step: Step) -> io::Result<()> {
        if step == Step::SettingsFile {
            wait_at_least(self.sync);
        }
        self.file.sync(step)
    }

    fn sync_range(&self, range: Range<u64>, step: Step) -> io::Result<()> {
        if step == Step::LogRange {
            wait_at_least(self.sync);
        }
        self.file.sync_range(range, step)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }

    fn zero(&self, range: Range<u64>) -> io::Result<()> {
        self.file.zero(range)
    }

    fn written(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        self.file.written(range)
    }

    fn advise(&self, range: Range<u64>, advice: Advice) -> io::Result<()> {
        self.file.advise(range, advice)
    }

    fn map(&self, len: usize, access: Access) -> io::Result<Region> {
        self.file.map(len, access)
    }
}
