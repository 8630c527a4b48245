//! Mappings that are let go of when there are too many: a store has tens of thousands of queue files, the system allows 65,530
//! mappings and the guard 8,192.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

use super::env::Env;
use super::mapped_file::MappedFile;
use crate::error::Result;

/// A file that is mapped while it is in use.
#[derive(Debug)]
pub(super) struct PooledFile {
    path: PathBuf,
    pub(super) start: u64,
    pub(super) len: u64,
    mapped: RwLock<Option<Arc<MappedFile>>>,
    /// Asked for since the pool last passed by.
    used: AtomicBool,
    /// The file was not there any more when it was to be mapped.
    removed: AtomicBool,
}

impl PooledFile {
    pub(super) fn new(path: PathBuf, start: u64, len: u64) -> Self {
        Self {
            path,
            start,
            len,
            mapped: RwLock::new(None),
            used: AtomicBool::new(false),
            removed: AtomicBool::new(false),
        }
    }

    pub(super) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// Notes that the file is gone.
    pub(super) fn set_removed(&self) {
        self.removed.store(true, Ordering::Release);
    }

    pub(super) fn is_mapped(&self) -> bool {
        self.mapping().is_some()
    }

    pub(super) fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }

    fn mapping(&self) -> Option<Arc<MappedFile>> {
        self.mapped.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The pools of this process and of those that it was forked from, the oldest first.
#[derive(Debug)]
struct Generation {
    pid: u32,
    pool: Arc<MappingPool>,
    forked: OnceLock<Box<Generation>>,
}

impl Generation {
    fn new() -> Self {
        Self {
            pid: std::process::id(),
            pool: Arc::new(MappingPool::new(MAX_MAPPED_FILES)),
            forked: OnceLock::new(),
        }
    }
}

/// Holds at most so many files mapped; the one that was not asked for the longest goes first. A mapping that somebody still
/// holds lives until they drop it.
#[derive(Debug)]
pub struct MappingPool {
    capacity: usize,
    mapped: Mutex<VecDeque<Weak<PooledFile>>>,
}

/// Files that stay mapped in one process: the guard has 8,192 places, and those in use beside the pool need some.
const MAX_MAPPED_FILES: usize = 3500;

impl MappingPool {
    /// The pool of this process: its limit is the process's, however many stores are open. A fork has one of its own: the lock
    /// of the one that it inherits may be held by a thread that it has not.
    pub fn shared() -> Arc<Self> {
        static FIRST: OnceLock<Generation> = OnceLock::new();
        let pid = std::process::id();
        let mut generation = FIRST.get_or_init(Generation::new);
        while generation.pid != pid {
            generation = generation.forked.get_or_init(|| Box::new(Generation::new()));
        }
        Arc::clone(&generation.pool)
    }

    /// A pool for `capacity` mappings.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            mapped: Mutex::new(VecDeque::new()),
        }
    }

    /// The file's mapping, made if need be.
    pub(super) fn get(&self, env: &dyn Env, file: &Arc<PooledFile>) -> Result<Arc<MappedFile>> {
        file.used.store(true, Ordering::Relaxed);
        if let Some(mapped) = file.mapping() {
            return Ok(mapped);
        }
        let mapped = MappedFile::open(env, file.path.clone(), file.start, file.len)?;
        {
            let mut place = file.mapped.write().unwrap_or_else(PoisonError::into_inner);
            // Two threads may both have mapped it: the second mapping goes away again.
            if let Some(first) = place.as_ref() {
                return Ok(Arc::clone(first));
            }
            *place = Some(Arc::clone(&mapped));
        }
        self.admit(file);
        Ok(mapped)
    }

    /// Puts a newly mapped file in, and lets the oldest unused ones go for it (the clock rule: used ones get another round).
    fn admit(&self, file: &Arc<PooledFile>) {
        // Dropped behind the lock: unmapping takes long, and whoever maps a file would wait for it.
        let mut let_go = Vec::new();
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        mapped.push_back(Arc::downgrade(file));
        while mapped.len() > self.capacity {
            let Some(oldest) = mapped.pop_front() else { break };
            let Some(file) = oldest.upgrade() else { continue };
            if file.used.swap(false, Ordering::Relaxed) {
                mapped.push_back(oldest);
            } else {
                let_go.extend(file.mapped.write().unwrap_or_else(PoisonError::into_inner).take());
            }
        }
        drop(mapped);
    }
}
