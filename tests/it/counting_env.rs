//! An environment that counts: what a reader opens for writing or changes (nothing), and how many bytes it reads of which file.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use mqstore::storage::{Access, Advice, DirEntry, Env, File, Lock, RealEnv, Region, Step};

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
}

impl CountingEnv {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Everything that made, changed, locked or removed a file, or could have: `"open for writing PATH"` ...
    pub(crate) fn changes(&self) -> Vec<String> {
        self.counts.changes.lock().unwrap().clone()
    }

    /// Each file opened, as often as it was.
    pub(crate) fn opened(&self) -> Vec<PathBuf> {
        self.counts.opened.lock().unwrap().clone()
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
    fn change(&self, what: &str, path: &Path) {
        self.changes.lock().unwrap().push(format!("{what} {}", path.display()));
    }
}

impl Env for CountingEnv {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        if access == Access::ReadWrite {
            self.counts.change("open for writing", path);
        }
        Ok(self.counted(self.env.open(path, access)?, path))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.counts.change("create", path);
        Ok(self.counted(self.env.create(path)?, path))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.counts.change("create directory", path);
        self.env.create_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.env.list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.counts.change("rename", from);
        self.env.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.counts.change("unlink", path);
        self.env.unlink(path)
    }

    fn sync_dir(&self, dir: &Path, step: Step) -> io::Result<()> {
        self.counts.change("sync directory", dir);
        self.env.sync_dir(dir, step)
    }

    fn sync_all(&self, path: &Path, step: Step) -> io::Result<()> {
        self.counts.change("sync everything at", path);
        self.env.sync_all(path, step)
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        self.counts.change("lock", path);
        self.env.lock(path)
    }

    fn now_ms(&self) -> i64 {
        self.env.now_ms()
    }

    fn physical_memory(&self) -> u64 {
        self.env.physical_memory()
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
        let read = self.file.read_at(into, at)?;
        self.bytes_read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.counts.change("write", &self.path);
        self.file.write_at(bytes, at)
    }

    fn sync(&self, step: Step) -> io::Result<()> {
        self.counts.change("sync", &self.path);
        self.file.sync(step)
    }

    fn sync_range(&self, range: Range<u64>, step: Step) -> io::Result<()> {
        self.counts.change("sync", &self.path);
        self.file.sync_range(range, step)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.counts.change("allocate", &self.path);
        self.file.allocate(len)
    }

    fn zero(&self, range: Range<u64>) -> io::Result<()> {
        self.counts.change("zero", &self.path);
        self.file.zero(range)
    }

    fn advise(&self, range: Range<u64>, advice: Advice) -> io::Result<()> {
        self.file.advise(range, advice)
    }

    fn map(&self, len: usize, access: Access) -> io::Result<Region> {
        if access == Access::ReadWrite {
            self.counts.change("map for writing", &self.path);
        }
        Ok(self.file.map(len, access)?.counted(Arc::clone(&self.bytes_read)))
    }
}
