//! An environment with a check before each change of a name, and one after each lookup of a name.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::env::{Access, DirEntry, DiskUsage, Env, File, FileSystem, Lock, Step};

type Check = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

/// An environment in which names change only while a check passes, and in which a lookup of a name fails if a check fails after it. Open
/// files stay usable.
pub struct CheckedEnv {
    env: Arc<dyn Env>,
    before_change: Check,
    after_lookup: Check,
}

impl CheckedEnv {
    /// Returns the environment of a writer, which refuses to create, open for writing, rename or remove a file once the lock of the store
    /// was released or replaced: its open files are those of the store that was locked, while a path may lead into another store. It does
    /// not keep the lock.
    pub fn locked(env: Arc<dyn Env>, lock: &Arc<Lock>) -> Self {
        let lock = Arc::downgrade(lock);
        let expect_locked = move || match lock.upgrade() {
            Some(lock) => lock.expect_in_place(),
            None => Err(io::Error::other("the store was closed")),
        };
        Self {
            env,
            before_change: Box::new(expect_locked),
            after_lookup: Box::new(|| Ok(())),
        }
    }

    /// Returns the environment of a reader. It fails to open or list what was looked up after the files of the store were replaced:
    /// `expect_unreplaced` is asked after each lookup, so what it has passed was there before.
    pub fn unreplaced(env: Arc<dyn Env>, expect_unreplaced: impl Fn() -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self {
            env,
            before_change: Box::new(|| Ok(())),
            after_lookup: Box::new(expect_unreplaced),
        }
    }

    fn looked_up<T>(&self, found: io::Result<T>) -> io::Result<T> {
        (self.after_lookup)()?;
        found
    }
}

impl fmt::Debug for CheckedEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckedEnv").field("env", &self.env).finish_non_exhaustive()
    }
}

impl Env for CheckedEnv {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        if access == Access::ReadWrite {
            (self.before_change)()?;
        }
        self.looked_up(self.env.open(path, access))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        (self.before_change)()?;
        self.env.create(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        (self.before_change)()?;
        self.env.create_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.looked_up(self.env.list(dir))
    }

    fn canonical(&self, dir: &Path) -> io::Result<PathBuf> {
        self.env.canonical(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        (self.before_change)()?;
        self.env.rename(from, to)
    }

    fn rename_noreplace(&self, from: &Path, to: &Path) -> io::Result<()> {
        (self.before_change)()?;
        self.env.rename_noreplace(from, to)
    }

    fn can_rename(&self, from: &Path, to: &Path) -> io::Result<bool> {
        self.env.can_rename(from, to)
    }

    fn copy_mode_and_owner(&self, original: &Path, copy: &Path) -> io::Result<()> {
        (self.before_change)()?;
        self.env.copy_mode_and_owner(original, copy)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        (self.before_change)()?;
        self.env.unlink(path)
    }

    fn sync_dir(&self, dir: &Path, step: Step) -> io::Result<()> {
        self.env.sync_dir(dir, step)
    }

    fn file_system(&self, dir: &Path) -> io::Result<Arc<dyn FileSystem>> {
        self.env.file_system(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        (self.before_change)()?;
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
