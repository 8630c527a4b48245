//! The environment of a writer, in which names change only while its lock is in place.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::env::{Access, DirEntry, DiskUsage, Env, File, FileSystem, Lock, Step};

/// An environment that refuses to create, open for writing, rename or remove a file once the lock of the store was released or
/// replaced. Open files stay usable: they are those of the store that was locked, while a path may lead into another store.
#[derive(Debug)]
pub struct LockedEnv {
    env: Arc<dyn Env>,
    lock: Weak<Lock>,
}

impl LockedEnv {
    /// Restricts `env` to the life of `lock`, which it does not keep.
    pub fn new(env: Arc<dyn Env>, lock: &Arc<Lock>) -> Self {
        Self {
            env,
            lock: Arc::downgrade(lock),
        }
    }

    fn expect_locked(&self) -> io::Result<()> {
        match self.lock.upgrade() {
            Some(lock) => lock.expect_in_place(),
            None => Err(io::Error::other("the store was closed")),
        }
    }
}

impl Env for LockedEnv {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        if access == Access::ReadWrite {
            self.expect_locked()?;
        }
        self.env.open(path, access)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.expect_locked()?;
        self.env.create(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.expect_locked()?;
        self.env.create_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.env.list(dir)
    }

    fn canonical(&self, dir: &Path) -> io::Result<PathBuf> {
        self.env.canonical(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.expect_locked()?;
        self.env.rename(from, to)
    }

    fn rename_noreplace(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.expect_locked()?;
        self.env.rename_noreplace(from, to)
    }

    fn can_rename(&self, from: &Path, to: &Path) -> io::Result<bool> {
        self.env.can_rename(from, to)
    }

    fn copy_mode_and_owner(&self, original: &Path, copy: &Path) -> io::Result<()> {
        self.expect_locked()?;
        self.env.copy_mode_and_owner(original, copy)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.expect_locked()?;
        self.env.unlink(path)
    }

    fn sync_dir(&self, dir: &Path, step: Step) -> io::Result<()> {
        self.env.sync_dir(dir, step)
    }

    fn file_system(&self, dir: &Path) -> io::Result<Arc<dyn FileSystem>> {
        self.env.file_system(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        self.expect_locked()?;
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

    fn longest_wall_clock_wait(&self) -> Duration {
        self.env.longest_wall_clock_wait()
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
