//! The allocator of segments: it creates one at a time, ahead of need, and serves the requests for them.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::format::segment_name;
use crate::storage::{AppendFile, Env, Step, WarmUp};
use crate::sync::lock;
use crate::watermark::{Wait, Watermark};

/// Creates segments of one size in the directory of the log.
#[derive(Debug)]
pub(super) struct SegmentAllocator {
    env: Arc<dyn Env>,
    dir: PathBuf,
    segment_size: u64,
    /// The warm-up of the pages of a new segment.
    warm_up: Option<WarmUp>,
    /// Held by the thread that creates a segment.
    allocating: Mutex<()>,
    /// The start of the last segment whose creation failed. Its unfinished file may still exist, and the removal of its name is not
    /// durable.
    unfinished: Mutex<Option<u64>>,
    requests: AtomicI64,
    /// The number of requests so far.
    asked: Arc<Watermark>,
    /// The number of the last request that was answered.
    answered: Watermark,
    /// The reason why the last request was answered without a segment.
    refusal: Mutex<Option<Error>>,
    /// Set once the allocator thread runs: the longest an append waits for it.
    patience: OnceLock<Duration>,
}

/// The failure to create a segment.
pub(super) enum CreateError {
    /// No file remains, and another try can create the segment.
    Retryable(Error),
    /// The file exists, and may not survive a power failure: no record in it can be acknowledged.
    Uncertain(Error),
}

impl SegmentAllocator {
    pub(super) fn new(env: Arc<dyn Env>, dir: PathBuf, segment_size: u64) -> Self {
        Self {
            env,
            dir,
            segment_size,
            warm_up: None,
            allocating: Mutex::default(),
            unfinished: Mutex::default(),
            requests: AtomicI64::default(),
            asked: Arc::default(),
            answered: Watermark::default(),
            refusal: Mutex::default(),
            patience: OnceLock::new(),
        }
    }

    /// Warms up new segments from now on.
    pub(super) fn warm(&mut self, warm_up: WarmUp) {
        self.warm_up = Some(warm_up);
    }

    /// Returns the size of a segment.
    pub(super) fn segment_size(&self) -> u64 {
        self.segment_size
    }

    /// Waits until no other thread creates a segment. No other thread starts while the guard lives.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        lock(&self.allocating)
    }

    /// Creates the segment that starts at `start`, durably. The caller holds the lock.
    pub(super) fn create(&self, start: u64) -> Result<Arc<AppendFile>, CreateError> {
        let env = self.env.as_ref();
        let gone = |cause| {
            *lock(&self.unfinished) = Some(start);
            CreateError::Retryable(cause)
        };
        let file = AppendFile::create(env, &self.dir, start, self.segment_size, self.warm_up).map_err(gone)?;
        match file.sync_name(env) {
            Ok(()) => Ok(Arc::new(file)),
            // A shortage means that the sync was not begun.
            Err(cause) if cause.is_shortage() && file.remove(env).is_ok() => Err(gone(cause)),
            Err(cause) => Err(CreateError::Uncertain(cause)),
        }
    }

    /// Removes, durably, the segment that was created and not used, and the unfinished file of a segment whose creation failed. The
    /// caller holds the lock.
    ///
    /// # Errors
    /// [`Error::Io`]; after a [shortage](Error::is_shortage) the caller may retry.
    pub(super) fn remove(&self, unused: Option<&AppendFile>) -> Result<()> {
        let env = self.env.as_ref();
        let mut unfinished = lock(&self.unfinished);
        if let Some(unused) = unused {
            unused.remove(env)?;
        }
        if let Some(start) = *unfinished {
            AppendFile::remove_unfinished(env, &self.dir, start)?;
        }
        if unused.is_some() || unfinished.is_some() {
            let synced = env.sync_dir(&self.dir, Step::SegmentRemoved);
            synced.map_err(|error| Error::io("sync", &self.dir, error))?;
        }
        *unfinished = None;
        Ok(())
    }

    /// Declares that a thread answers the requests from now on. An append waits for an answer for at most `patience`.
    pub(super) fn serve(&self, patience: Duration) {
        let _ = self.patience.set(patience);
    }

    /// Returns the longest wait for an answer; `None` if no thread answers requests.
    pub(super) fn patience(&self) -> Option<Duration> {
        self.patience.get().copied()
    }

    /// Requests the next segment. Returns the number of the request.
    pub(super) fn ask(&self) -> i64 {
        let request = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        self.asked.advance(request);
        request
    }

    /// Returns the watermark of the requests and the number of the first unanswered one, for which the allocator thread waits.
    pub(super) fn awaited(&self) -> (Arc<Watermark>, i64) {
        (self.asked.clone(), self.answered.get() + 1)
    }

    /// Answers all requests made before the call, if there are any, by one call of `make`.
    pub(super) fn answer(&self, make: impl FnOnce() -> Result<()>) {
        let request = self.asked.get();
        if self.answered.get() < request {
            *lock(&self.refusal) = make().err();
            self.answered.advance(request);
        }
    }

    /// Waits until the request is answered.
    ///
    /// # Errors
    /// The reason in the last answer why no segment was created, or no answer within `patience`.
    pub(super) fn wait(&self, request: i64, patience: Duration, start: u64) -> Result<()> {
        match self.answered.wait(request, Some(Instant::now() + patience)) {
            Wait::Reached => lock(&self.refusal).clone().map_or(Ok(()), Err),
            Wait::Poisoned(cause) => Err(cause),
            Wait::TimedOut => {
                let waited = format!(
                    "it was not created within {} ms (wait_time_out): a later append may find it; warm-up and large segments take longer",
                    patience.as_millis()
                );
                let path = self.dir.join(segment_name(start));
                Err(Error::io("create", path, io::Error::new(io::ErrorKind::TimedOut, waited)))
            }
        }
    }

    /// Ends the requests: no later one is answered.
    pub(super) fn end(&self, cause: &Error) {
        self.asked.poison(cause.clone());
        self.answered.poison(cause.clone());
    }
}
