//! The creation of queue files beside the dispatcher. A new file is synced before it gets its name, and a sync takes as long as the
//! disk takes. Until then the entries wait in memory, where this process reads them. It has a thread of its own: an append may wait
//! for the thread that creates segments.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::error::{Error, Result};
use crate::log::{ConsumeQueue, ConsumeQueueStore};
use crate::services::stepped::{Next, Stepped};
use crate::sync::lock;
use crate::watermark::Watermark;

/// The most files that are created together. The dispatcher writes no queue back while they get their names.
const AT_ONCE: usize = 1000;

/// The queues that need a new file. The dispatcher requests them, and takes each queue back.
#[derive(Debug)]
pub(super) struct QueueFiles {
    queues: Arc<ConsumeQueueStore>,
    /// Set once a service answers requests.
    is_served: AtomicBool,
    /// Held while files are created.
    creating: Mutex<()>,
    requests: Mutex<Requests>,
    /// The number of requests so far.
    asked: Arc<Watermark>,
}

#[derive(Debug, Default)]
struct Requests {
    /// The queues that need a new file.
    wanted: Vec<Arc<ConsumeQueue>>,
    /// The answered queues that have entries in memory.
    answered: Vec<Arc<ConsumeQueue>>,
    failure: Option<Error>,
}

/// Queues that the dispatcher takes back.
#[derive(Debug)]
pub(super) struct TakenBack {
    /// Queues with entries in memory.
    pub(super) queues: Vec<Arc<ConsumeQueue>>,
    /// Set if other queues still wait for their files.
    pub(super) is_partial: bool,
    /// The failure to create a file.
    pub(super) outcome: Result<()>,
}

impl QueueFiles {
    pub(super) fn new(queues: Arc<ConsumeQueueStore>) -> Self {
        Self {
            queues,
            is_served: AtomicBool::default(),
            creating: Mutex::default(),
            requests: Mutex::default(),
            asked: Arc::default(),
        }
    }

    /// Declares that a service answers the requests from now on.
    pub(super) fn serve(&self) {
        self.is_served.store(true, Ordering::Relaxed);
    }

    /// Returns true if a service answers requests. Otherwise the dispatcher creates files itself.
    pub(super) fn is_served(&self) -> bool {
        self.is_served.load(Ordering::Relaxed)
    }

    /// Requests the next file of each of these queues. No earlier request of them is still to be answered.
    pub(super) fn ask(&self, mut queues: Vec<Arc<ConsumeQueue>>) {
        lock(&self.requests).wanted.append(&mut queues);
        self.asked.advance(self.asked.get() + 1);
    }

    /// Creates some of the requested files. Returns true if there are more. `progressed` is called as by
    /// [`ConsumeQueueStore::create_files`].
    pub(super) fn create(&self, progressed: &dyn Fn(bool)) -> bool {
        let _one_at_a_time = lock(&self.creating);
        // They stay requested: another thread must find them after a panic of this one.
        let mut queues: Vec<_> = lock(&self.requests).wanted.iter().take(AT_ONCE).cloned().collect();
        let count = queues.len();
        if count == 0 {
            return false;
        }
        let created = self.queues.create_files(&mut queues, progressed);
        let mut requests = lock(&self.requests);
        requests.wanted.drain(..count);
        requests.answered.append(&mut queues);
        // A shortage is tried again, and must not hide what a sync has reported once.
        if let Err(error) = created
            && requests.failure.as_ref().is_none_or(Error::is_shortage)
        {
            requests.failure = Some(error);
        }
        !requests.wanted.is_empty()
    }

    /// Takes the queues of the answered requests that have entries in memory, and the failure to create a file.
    pub(super) fn take_back(&self) -> TakenBack {
        let mut requests = lock(&self.requests);
        TakenBack {
            queues: std::mem::take(&mut requests.answered),
            is_partial: !requests.wanted.is_empty(),
            outcome: requests.failure.take().map_or(Ok(()), Err),
        }
    }

    /// Ends the service. The dispatcher creates the other files.
    pub(super) fn end(&self) {
        self.is_served.store(false, Ordering::Relaxed);
        self.asked.poison(Error::Closed);
    }
}

/// The service that creates the queue files that the dispatcher requests.
#[derive(Debug)]
pub(super) struct CreateQueueFiles {
    files: Arc<QueueFiles>,
    /// The number of requests before the last step.
    answered: i64,
}

impl CreateQueueFiles {
    pub(super) fn new(files: Arc<QueueFiles>) -> Self {
        Self { files, answered: 0 }
    }
}

impl Stepped for CreateQueueFiles {
    /// # Errors
    /// None: the dispatcher reports the failure to create a file.
    fn step(&mut self, _now: Instant) -> Result<Next> {
        if self.files.asked.poisoned().is_some() {
            return Ok(Next::Done);
        }
        self.files.serve();
        self.answered = self.files.asked.get();
        if self.files.create(&|_| ()) {
            return Ok(Next::Again);
        }
        Ok(Next::Idle { until: None })
    }

    fn awaited(&self) -> (Arc<Watermark>, i64) {
        (self.files.asked.clone(), self.answered + 1)
    }

    /// Leaves the requests to the dispatcher, which reports `cause`.
    fn fail(&self, cause: Error) {
        lock(&self.files.requests).failure = Some(cause);
        self.files.end();
    }
}
