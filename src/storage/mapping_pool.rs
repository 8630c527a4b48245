//! A pool of file mappings with CLOCK replacement (second chance): a store has tens of thousands of queue files, the system allows
//! 65,530 mappings and the guard 8,192.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use super::env::{Access, Env, File};
use super::mapped_file::MappedFile;
use crate::error::Result;

/// A file that is mapped while it is in use, and that this process may write to.
#[derive(Debug)]
pub struct PooledFile {
    path: PathBuf,
    pub(super) start: u64,
    pub(super) len: u64,
    state: RwLock<State>,
    /// The reference bit of the CLOCK algorithm: set by each access, cleared by the pool.
    used: AtomicBool,
    /// Set once the file has expired.
    removed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    mapped: Option<Arc<MappedFile>>,
    /// Set once this process has opened the file for writing, so that a new mapping shows the written bytes.
    is_written: bool,
}

impl PooledFile {
    /// Creates the entry of the first `len` bytes of the file at `path`, whose first byte has the offset `start` in its queue.
    pub fn new(path: PathBuf, start: u64, len: u64) -> Self {
        Self {
            path,
            start,
            len,
            state: RwLock::default(),
            used: AtomicBool::new(false),
            removed: AtomicBool::new(false),
        }
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// Marks the file as expired, and drops its mapping: its bytes occupy the disk as long as they are mapped.
    pub(super) fn set_removed(&self) {
        self.removed.store(true, Ordering::Release);
        self.forget_mapping();
    }

    /// Returns the current mapping, if there is one.
    pub(super) fn mapping(&self) -> Option<Arc<MappedFile>> {
        self.state().mapped.clone()
    }

    pub(super) fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }

    /// Drops the mapping: the next read maps the file that has the name then.
    pub fn forget_mapping(&self) {
        self.state_mut().mapped = None;
    }

    /// Opens the file for writing. On overlayfs, the first open for writing copies a file of a lower layer to the upper one, and an
    /// older mapping shows the lower file for ever, although `fstat` returns the same device and inode. So the first call here also
    /// drops the mapping, and the next read maps the file that is written.
    ///
    /// # Errors
    /// Those of [`Env::open`].
    pub fn open_for_writing(&self, env: &dyn Env) -> io::Result<Arc<dyn File>> {
        if self.state().is_written {
            return env.open(&self.path, Access::ReadWrite);
        }
        // The lock is held while the file is opened: a reader that maps it before the copy must not keep that mapping after it.
        let mut state = self.state_mut();
        let file = env.open(&self.path, Access::ReadWrite)?;
        *state = State {
            mapped: None,
            is_written: true,
        };
        Ok(file)
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pool of a process, linked to that of the process forked from it.
#[derive(Debug)]
struct ProcessPool {
    pid: u32,
    pool: Arc<MappingPool>,
    forked: OnceLock<Box<ProcessPool>>,
}

impl ProcessPool {
    fn new() -> Self {
        Self {
            pid: std::process::id(),
            pool: Arc::new(MappingPool::new(MAX_MAPPED_FILES)),
            forked: OnceLock::new(),
        }
    }
}

/// A pool that keeps at most `capacity` files mapped, and drops the least recently used one first (CLOCK). A mapping lives until
/// the last caller that holds it drops it.
#[derive(Debug)]
pub struct MappingPool {
    capacity: usize,
    mapped: Mutex<VecDeque<Weak<PooledFile>>>,
}

/// The most mapped files of a process: the guard has 8,192 slots, and mappings outside the pool need some of them.
const MAX_MAPPED_FILES: usize = 3500;
/// The most files that stay open because they cannot be mapped: a process usually has 1,024 descriptors.
const MAX_OPEN_FILES: usize = 256;

impl MappingPool {
    /// Returns the pool of this process, shared by all of its open stores. A child of fork has a pool of its own, because a thread
    /// of the parent may hold the lock of the inherited one.
    pub fn shared() -> Arc<Self> {
        static FIRST: OnceLock<ProcessPool> = OnceLock::new();
        let pid = std::process::id();
        let mut of_process = FIRST.get_or_init(ProcessPool::new);
        while of_process.pid != pid {
            of_process = of_process.forked.get_or_init(|| Box::new(ProcessPool::new()));
        }
        Arc::clone(&of_process.pool)
    }

    /// Creates a pool for `capacity` mappings.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            mapped: Mutex::new(VecDeque::new()),
        }
    }

    /// Returns the file's mapping, which is created if necessary.
    ///
    /// # Errors
    /// Those of [`MappedFile::open`].
    pub fn get(&self, env: &dyn Env, file: &Arc<PooledFile>) -> Result<Arc<MappedFile>> {
        file.used.store(true, Ordering::Relaxed);
        if let Some(mapped) = &file.state().mapped {
            return Ok(Arc::clone(mapped));
        }
        let mapped = {
            let mut state = file.state_mut();
            // Another thread may have mapped it since.
            if let Some(mapped) = &state.mapped {
                return Ok(Arc::clone(mapped));
            }
            let mapped = MappedFile::open(env, file.path.clone(), file.start, file.len)?;
            state.mapped = Some(Arc::clone(&mapped));
            mapped
        };
        let capacity = if mapped.is_in_memory() {
            self.capacity
        } else {
            self.capacity.min(MAX_OPEN_FILES)
        };
        self.admit(file, capacity);
        Ok(mapped)
    }

    /// Adds a newly mapped file, and drops the oldest unused ones. Those with a reference bit get a second chance.
    fn admit(&self, file: &Arc<PooledFile>, capacity: usize) {
        // Dropped after the lock is released: unmapping takes long, and a thread that maps a file would wait for it.
        let mut evicted = Vec::new();
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        mapped.push_back(Arc::downgrade(file));
        while mapped.len() > capacity {
            let Some(oldest) = mapped.pop_front() else { break };
            let Some(file) = oldest.upgrade() else { continue };
            if file.used.swap(false, Ordering::Relaxed) {
                mapped.push_back(oldest);
            } else {
                evicted.extend(file.state_mut().mapped.take());
            }
        }
        drop(mapped);
    }
}
