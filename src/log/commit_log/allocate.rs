//! Making the segments of the log, one at a time.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::storage::{AppendFile, Env};

/// Makes segments of one size in the directory of the log.
#[derive(Debug)]
pub(super) struct SegmentAllocator {
    env: Arc<dyn Env>,
    dir: PathBuf,
    segment_size: u64,
    /// Held by the thread that makes a segment.
    allocating: Mutex<()>,
}

/// Why there is no new segment.
pub(super) enum NotMade {
    /// No file is left, and another try makes the segment again.
    Gone(Error),
    /// The file is there, and whether it survives a power cut is not known: no record in it can be acknowledged.
    Left(Error),
}

impl SegmentAllocator {
    pub(super) fn new(env: Arc<dyn Env>, dir: PathBuf, segment_size: u64) -> Self {
        Self {
            env,
            dir,
            segment_size,
            allocating: Mutex::default(),
        }
    }

    /// Bytes of each segment.
    pub(super) fn segment_size(&self) -> u64 {
        self.segment_size
    }

    /// Waits until no other thread makes a segment. No other thread begins one while the guard lives.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        self.allocating.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the segment that starts at `start`, durably. The caller holds the lock.
    pub(super) fn make(&self, start: u64) -> Result<Arc<AppendFile>, NotMade> {
        let env = self.env.as_ref();
        let file = AppendFile::create(env, &self.dir, start, self.segment_size).map_err(NotMade::Gone)?;
        match file.sync_name(env) {
            Ok(()) => Ok(Arc::new(file)),
            // The shortage came before the sync.
            Err(cause) if cause.is_shortage() && file.remove(env).is_ok() => Err(NotMade::Gone(cause)),
            Err(cause) => Err(NotMade::Left(cause)),
        }
    }
}
