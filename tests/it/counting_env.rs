//! An environment that counts: what is opened for writing or changed, in which order, and how many bytes are read of which file.
//! A test can set its clock, and make a change wait or fail.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use mqstore::storage::{Access, Advice, DirEntry, DiskUsage, Env, File, FileSystem, Lock, RealEnv, Region, Step};

/// The real environment with a count beside each call.
#[derive(Debug, Default, Clone)]
pub(crate) struct CountingEnv {
    env: RealEnv,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    changes: Mutex<Vec<String>>,
    opened: Mutex<Vec<PathBuf>>,
    bytes_read: Mutex<HashMap<PathBuf, Arc<AtomicU64>>>,
    calls: Mutex<BTreeMap<&'static str, usize>>,
    /// 0 means the real clock.
    now_ms: AtomicI64,
    /// 0 means the real clock.
    monotonic_ms: AtomicI64,
    /// 0 means the memory of this machine.
    memory: AtomicU64,
    measured: AtomicU64,
    hook: Mutex<Option<Arc<dyn Hook>>>,
    look_hook: Mutex<Option<Arc<dyn Hook>>>,
}

/// Called before a change or a look-up, with its text. It may wait, and may make the call fail.
trait Hook: Send + Sync {
    fn before(&self, call: &str) -> io::Result<()>;
}

impl<F: Fn(&str) -> io::Result<()> + Send + Sync> Hook for F {
    fn before(&self, call: &str) -> io::Result<()> {
        self(call)
    }
}

impl Debug for dyn Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hook")
    }
}

impl CountingEnv {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Every call that made, changed, locked or removed a file, or could have, in order: `"open for writing PATH"`,
    /// `"sync LogRange PATH"` ...
    pub(crate) fn changes(&self) -> Vec<String> {
        self.counts.changes.lock().unwrap().clone()
    }

    /// Each opened file or file system, once for each time it was opened.
    pub(crate) fn opened(&self) -> Vec<PathBuf> {
        self.counts.opened.lock().unwrap().clone()
    }

    /// Number of calls by kind: `"list"`, `"open"`, `"map"` ...
    pub(crate) fn calls(&self) -> BTreeMap<&'static str, usize> {
        self.counts.calls.lock().unwrap().clone()
    }

    /// Bytes read of one file, by `read_at` and through its mappings.
    pub(crate) fn bytes_read(&self, path: &Path) -> u64 {
        let counters = self.counts.bytes_read.lock().unwrap();
        counters.get(path).map_or(0, |read| read.load(Ordering::Relaxed))
    }

    /// Bytes read of all files below a directory.
    pub(crate) fn bytes_read_below(&self, dir: &Path) -> u64 {
        let counters = self.counts.bytes_read.lock().unwrap();
        let below = counters.iter().filter(|(path, _)| path.starts_with(dir));
        below.map(|(_, read)| read.load(Ordering::Relaxed)).sum()
    }

    /// Sets the clock, which no longer advances from here.
    pub(crate) fn set_now(&self, ms: i64) {
        self.counts.now_ms.store(ms, Ordering::SeqCst);
    }

    /// Sets the clock that measures durations, which no longer advances from here.
    pub(crate) fn set_monotonic(&self, ms: i64) {
        self.counts.monotonic_ms.store(ms, Ordering::SeqCst);
    }

    /// Sets the memory size that the machine reports, in bytes.
    pub(crate) fn set_memory(&self, bytes: u64) {
        self.counts.memory.store(bytes, Ordering::SeqCst);
    }

    /// Returns the number of times that the clock was read.
    pub(crate) fn measured(&self) -> u64 {
        self.counts.measured.load(Ordering::SeqCst)
    }

    /// Calls `hook` before each change (and with "clock" before each look at the clock) from now on. A call that the hook refuses
    /// fails.
    pub(crate) fn before_changes(&self, hook: impl Fn(&str) -> io::Result<()> + Send + Sync + 'static) {
        *self.counts.hook.lock().unwrap() = Some(Arc::new(hook));
    }

    /// Calls `hook` before each call that takes a descriptor or memory to look at something: `"list PATH"`, `"open PATH"`, `"map
    /// PATH"`. A call that it refuses fails.
    pub(crate) fn before_looks(&self, hook: impl Fn(&str) -> io::Result<()> + Send + Sync + 'static) {
        *self.counts.look_hook.lock().unwrap() = Some(Arc::new(hook));
    }

    /// Lets every call through again.
    pub(crate) fn heal(&self) {
        *self.counts.hook.lock().unwrap() = None;
        *self.counts.look_hook.lock().unwrap() = None;
    }

    fn counted(&self, file: Arc<dyn File>, path: &Path) -> Arc<dyn File> {
        self.counts.opened.lock().unwrap().push(path.to_owned());
        let mut counters = self.counts.bytes_read.lock().unwrap();
        Arc::new(CountingFile {
            file,
            path: path.to_owned(),
            bytes_read: Arc::clone(counters.entry(path.to_owned()).or_default()),
            counts: Arc::clone(&self.counts),
        })
    }
}

impl Counts {
    fn hook(&self) -> Option<Arc<dyn Hook>> {
        self.hook.lock().unwrap().clone()
    }

    fn call(&self, name: &'static str) {
        *self.calls.lock().unwrap().entry(name).or_default() += 1;
    }

    fn look(&self, name: &'static str, path: &Path) -> io::Result<()> {
        self.call(name);
        let hook = self.look_hook.lock().unwrap().clone();
        hook.map_or(Ok(()), |hook| hook.before(&format!("{name} {}", path.display())))
    }

    fn change(&self, what: &str, path: &Path) -> io::Result<()> {
        let change = format!("{what} {}", path.display());
        // A test that sees the change and then sets a hook does not get this change in it.
        let hook = self.hook();
        self.changes.lock().unwrap().push(change.clone());
        hook.map_or(Ok(()), |hook| hook.before(&change))
    }

    fn change_in_step(&self, what: &str, step: Step, path: &Path) -> io::Result<()> {
        self.change(&format!("{what} {step:?}"), path)
    }
}

impl Env for CountingEnv {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        if access == Access::ReadWrite {
            self.counts.change("open for writing", path)?;
        }
        self.counts.look("open", path)?;
        Ok(self.counted(self.env.open(path, access)?, path))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.counts.change("create", path)?;
        self.counts.call("open");
        Ok(self.counted(self.env.create(path)?, path))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.counts.change("create directory", path)?;
        self.env.create_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.counts.look("list", dir)?;
        self.env.list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.counts.change("rename", to)?;
        self.env.rename(from, to)
    }

    fn rename_noreplace(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.counts.change("rename", to)?;
        self.env.rename_noreplace(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.counts.change("unlink", path)?;
        self.env.unlink(path)
    }

    fn sync_dir(&self, dir: &Path, step: Step) -> io::Result<()> {
        self.counts.change_in_step("sync directory", step, dir)?;
        self.env.sync_dir(dir, step)
    }

    fn file_system(&self, dir: &Path) -> io::Result<Arc<dyn FileSystem>> {
        self.counts.opened.lock().unwrap().push(dir.to_owned());
        Ok(Arc::new(CountingFileSystem {
            file_system: self.env.file_system(dir)?,
            dir: dir.to_owned(),
            counts: Arc::clone(&self.counts),
        }))
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        self.counts.change("lock", path)?;
        self.env.lock(path)
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        self.env.is_locked(path)
    }

    fn now_ms(&self) -> i64 {
        if let Some(hook) = self.counts.hook() {
            let _ = hook.before("clock");
        }
        match self.counts.now_ms.load(Ordering::SeqCst) {
            0 => self.env.now_ms(),
            set => set,
        }
    }

    fn now_local_ms(&self) -> i64 {
        match self.counts.now_ms.load(Ordering::SeqCst) {
            0 => self.env.now_local_ms(),
            set => set,
        }
    }

    fn monotonic_ns(&self) -> i64 {
        let set = self.counts.monotonic_ms.load(Ordering::SeqCst);
        self.counts.measured.fetch_add(1, Ordering::SeqCst);
        if set == 0 { self.env.monotonic_ns() } else { set * 1_000_000 }
    }

    fn physical_memory(&self) -> u64 {
        match self.counts.memory.load(Ordering::SeqCst) {
            0 => self.env.physical_memory(),
            memory => memory,
        }
    }

    fn disk_usage(&self, path: &Path) -> io::Result<DiskUsage> {
        self.env.disk_usage(path)
    }

    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        self.env.modified_ms(path)
    }
}

#[derive(Debug)]
struct CountingFileSystem {
    file_system: Arc<dyn FileSystem>,
    dir: PathBuf,
    counts: Arc<Counts>,
}

impl FileSystem for CountingFileSystem {
    fn sync(&self, step: Step) -> io::Result<()> {
        self.counts.change_in_step("sync everything", step, &self.dir)?;
        self.file_system.sync(step)
    }
}

#[derive(Debug)]
struct CountingFile {
    file: Arc<dyn File>,
    path: PathBuf,
    bytes_read: Arc<AtomicU64>,
    counts: Arc<Counts>,
}

impl File for CountingFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        self.counts.call("read");
        let read = self.file.read_at(into, at)?;
        self.bytes_read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.counts.change("write", &self.path)?;
        self.file.write_at(bytes, at)
    }

    fn sync(&self, step: Step) -> io::Result<()> {
        self.counts.change_in_step("sync", step, &self.path)?;
        self.file.sync(step)
    }

    fn sync_range(&self, range: Range<u64>, step: Step) -> io::Result<()> {
        self.counts.change_in_step("sync", step, &self.path)?;
        self.file.sync_range(range, step)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.counts.change("allocate", &self.path)?;
        self.file.allocate(len)
    }

    fn zero(&self, range: Range<u64>) -> io::Result<()> {
        self.counts.change("zero", &self.path)?;
        self.file.zero(range)
    }

    fn written(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        self.counts.call("written");
        self.file.written(range)
    }

    fn advise(&self, range: Range<u64>, advice: Advice) -> io::Result<()> {
        if advice == Advice::DontNeed {
            self.counts.look("drop", &self.path)?;
        }
        self.file.advise(range, advice)
    }

    fn map(&self, len: usize, access: Access) -> io::Result<Region> {
        self.counts.look("map", &self.path)?;
        if access == Access::ReadWrite {
            self.counts.change("map for writing", &self.path)?;
        }
        Ok(self.file.map(len, access)?.counted(Arc::clone(&self.bytes_read)))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }
}
