//! Mappings that are dropped when there are too many: a store has tens of thousands of queue files, the system allows 65,530 mappings and
//! the guard 8,192.

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
    /// Asked for since the pool last looked at it.
    used: AtomicBool,
    /// The file has expired.
    removed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    mapped: Option<Arc<MappedFile>>,
    /// This process has opened the file for writing, so that a new mapping shows what is written.
    is_written: bool,
}

impl PooledFile {
    /// The first `len` bytes of the file at `path`, which have the offsets from `start` on in their queue.
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

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// Notes that the file has expired, and drops its mapping: its bytes stay on the disk as long as they are mapped.
    pub(super) fn set_removed(&self) {
        self.removed.store(true, Ordering::Release);
        self.forget_mapping();
    }

    /// The mapping, if there is one now.
    pub(super) fn mapping(&self) -> Option<Arc<MappedFile>> {
        self.state().mapped.clone()
    }

    pub(super) fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }

    /// Drops the mapping: the next read maps the file that has the name then.
    pub(super) fn forget_mapping(&self) {
        self.state_mut().mapped = None;
    }

    /// Opens the file for writing. On overlayfs, the first opening for writing copies a file of a lower layer to the upper one, and
    /// a mapping that was made before shows the lower file for ever, whatever device and inode `fstat` returns. So the first call here
    /// also drops the mapping, and the next read maps the file that is written.
    ///
    /// # Errors
    /// As [`Env::open`].
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

/// The pool of a process, and that of the process forked from it.
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

/// Keeps at most `capacity` files mapped. The file that was not asked for the longest is dropped first. A mapping that a caller still holds
/// lives until the caller drops it.
#[derive(Debug)]
pub struct MappingPool {
    capacity: usize,
    mapped: Mutex<VecDeque<Weak<PooledFile>>>,
}

/// Files that stay mapped in one process: the guard has 8,192 places, and those in use beside the pool need some.
const MAX_MAPPED_FILES: usize = 3500;
/// The limit while files stay open because they cannot be mapped: a process mostly has 1,024 descriptors.
const MAX_OPEN_FILES: usize = 256;

impl MappingPool {
    /// The pool of this process: its limit is the process's, however many stores are open. A child of fork has a pool of its own: a
    /// thread of the parent may hold the lock of the inherited pool.
    pub fn shared() -> Arc<Self> {
        static FIRST: OnceLock<ProcessPool> = OnceLock::new();
        let pid = std::process::id();
        let mut of_process = FIRST.get_or_init(ProcessPool::new);
        while of_process.pid != pid {
            of_process = of_process.forked.get_or_init(|| Box::new(ProcessPool::new()));
        }
        Arc::clone(&of_process.pool)
    }

    /// A pool for `capacity` mappings.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            mapped: Mutex::new(VecDeque::new()),
        }
    }

    /// The file's mapping, made if need be.
    ///
    /// # Errors
    /// As [`MappedFile::open`].
    pub fn get(&self, env: &dyn Env, file: &Arc<PooledFile>) -> Result<Arc<MappedFile>> {
        file.used.store(true, Ordering::Relaxed);
        if let Some(mapped) = &file.state().mapped {
            return Ok(Arc::clone(mapped));
        }
        let mapped = {
            let mut state = file.state_mut();
            // Another thread may have mapped it in the meantime.
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

    /// Adds a newly mapped file, and drops the oldest unused ones for it (the clock rule: used ones get another round).
    fn admit(&self, file: &Arc<PooledFile>, capacity: usize) {
        // Dropped after the lock: unmapping takes long, and a thread that maps a file would wait for it.
        let mut let_go = Vec::new();
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        mapped.push_back(Arc::downgrade(file));
        while mapped.len() > capacity {
            let Some(oldest) = mapped.pop_front() else { break };
            let Some(file) = oldest.upgrade() else { continue };
            if file.used.swap(false, Ordering::Relaxed) {
                mapped.push_back(oldest);
            } else {
                let_go.extend(file.state_mut().mapped.take());
            }
        }
        drop(mapped);
    }
}
