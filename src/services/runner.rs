//! The runner of the background services of a store: each runs on a thread, or in the steps of a caller.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::config::StoreConfig;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::log::CommitLog;
use crate::services::poll_then_park::PollThenPark;
use crate::services::queue_files::{CreateQueueFiles, QueueFiles};
use crate::services::{AllocateMappedFile, CommitRealTime, Dispatcher, FlushRealTime, Next, Stepped, SupplyPages};
use crate::sync::try_lock;
use crate::watermark::Watermark;

/// A service of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    /// Puts the messages of the log into their queues and into the index.
    Dispatch,
    /// Syncs the log.
    Flush,
    /// Writes the pending bytes of the transient store pool to the log.
    Commit,
    /// Creates the segments of the log ahead of need.
    Allocate,
    /// Prefaults the pages that appends are about to write.
    Supply,
    /// Creates the queue files that the dispatcher requests. From its first step on the dispatcher leaves them to it.
    CreateQueueFiles,
}

impl Service {
    fn name(self) -> &'static str {
        match self {
            Self::Dispatch => "dispatcher",
            Self::Flush => "flusher",
            Self::Commit => "committer",
            Self::Allocate => "allocator",
            Self::Supply => "supplier",
            Self::CreateQueueFiles => "queue files",
        }
    }
}

/// The services of one store.
#[derive(Debug)]
pub(crate) struct Services {
    /// The dispatcher, which is also in `all`. A close uses it directly, to drain the log and to stamp the checkpoint.
    dispatcher: Arc<Mutex<Dispatcher>>,
    queue_files: Arc<QueueFiles>,
    all: Vec<(Service, Arc<Mutex<dyn Stepped>>)>,
    /// Set if each of them has a thread.
    has_threads: AtomicBool,
}

impl Services {
    /// Creates the services. A log with a pool has a committer. Any other log is written through its mappings, whose pages are
    /// prefaulted.
    pub(crate) fn new(dispatcher: Dispatcher, flusher: FlushRealTime, log: &Arc<CommitLog>, config: &StoreConfig) -> Self {
        let queue_files = dispatcher.queue_files().clone();
        let creator = CreateQueueFiles::new(queue_files.clone());
        let dispatcher = Arc::new(Mutex::new(dispatcher));
        let mut all: Vec<(Service, Arc<Mutex<dyn Stepped>>)> = vec![
            (Service::Dispatch, dispatcher.clone()),
            (Service::CreateQueueFiles, Arc::new(Mutex::new(creator))),
            (Service::Flush, Arc::new(Mutex::new(flusher))),
            (Service::Allocate, Arc::new(Mutex::new(AllocateMappedFile::new(log.clone())))),
        ];
        all.push(if config.uses_pool() {
            let committer = CommitRealTime::new(log.clone(), config);
            (Service::Commit, Arc::new(Mutex::new(committer)))
        } else {
            (Service::Supply, Arc::new(Mutex::new(SupplyPages::new(log.clone()))))
        });
        Self {
            dispatcher,
            queue_files,
            all,
            has_threads: AtomicBool::default(),
        }
    }

    /// Runs one step of a service. A service that fails or panics reports the failure to all threads that wait for it.
    pub(crate) fn step(&self, service: Service, now: Instant) -> Result<Next> {
        let found = self.all.iter().find(|(listed, _)| *listed == service);
        found.map_or(Ok(Next::Done), |(_, stepped)| step(service.name(), stepped, now))
    }

    /// Starts a thread for each service. A thread ends when its service is done or has failed, or when `is_over` returns true.
    /// Started threads are added to `threads`.
    ///
    /// # Errors
    /// [`Error::Io`] if a thread cannot be started.
    pub(crate) fn spawn(
        &self,
        threads: &mut Vec<JoinHandle<()>>,
        is_over: impl Fn() -> bool + Clone + Send + 'static,
    ) -> Result<()> {
        self.queue_files.serve();
        for (service, stepped) in &self.all {
            let polls = *service == Service::Dispatch;
            threads.push(spawn(service.name(), stepped.clone(), polls, is_over.clone())?);
        }
        self.has_threads.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Dispatches for a caller that waits until `dispatched` is at least `target`, unless another thread dispatches. Does nothing
    /// without threads: then only [`Services::step`] dispatches.
    ///
    /// # Errors
    /// Those of [`interrupt::check`].
    pub(crate) fn help(&self, dispatched: &Watermark, target: i64) -> Result<()> {
        while self.has_threads.load(Ordering::Relaxed) && dispatched.get() < target {
            let Some(mut dispatcher) = try_lock(&self.dispatcher) else {
                break;
            };
            match guarded(Service::Dispatch.name(), &mut *dispatcher, |dispatcher| {
                dispatcher.help(Instant::now())
            }) {
                Ok(Next::Again) => interrupt::check()?,
                // The dispatcher itself reports to other waiting threads.
                Ok(Next::Idle { .. } | Next::Done) | Err(_) => break,
            }
        }
        Ok(())
    }

    /// Ends the services that wait for requests of the dispatcher.
    pub(crate) fn end_requests(&self) {
        self.queue_files.end();
    }

    /// Dispatches the rest of a stopped log.
    ///
    /// # Errors
    /// Those of dispatching; after a shortage it may be called again.
    pub(crate) fn drain(&self) -> Result<()> {
        let mut dispatcher = lock(self.dispatcher.as_ref());
        while dispatcher.step(Instant::now())? != Next::Done {}
        Ok(())
    }

    /// Stamps the checkpoint for all dispatched messages.
    pub(crate) fn stamp(&self) -> Result<()> {
        lock(self.dispatcher.as_ref()).stamp()
    }

    /// Syncs the queue files, and returns the physical offset before which each message has its queue entry on disk.
    pub(crate) fn sync_queues(&self) -> Result<i64> {
        lock(self.dispatcher.as_ref()).sync_queues()
    }
}

/// Starts a thread that runs the steps of a service. It ends when the service is done or has failed, or when `is_over` returns true.
/// With `polls` the thread waits for work by spin-then-park.
///
/// # Errors
/// [`Error::Io`] if the thread cannot be started.
pub(crate) fn spawn(
    name: &'static str,
    stepped: Arc<Mutex<dyn Stepped>>,
    polls: bool,
    is_over: impl Fn() -> bool + Send + 'static,
) -> Result<JoinHandle<()>> {
    let run = move || {
        let mut polling = polls.then(PollThenPark::begin);
        while !is_over() {
            match step(name, &stepped, Instant::now()) {
                Ok(Next::Again) => {}
                Ok(Next::Idle { until }) => {
                    let (mark, target) = lock(&stepped).awaited();
                    match &mut polling {
                        Some(polling) => polling.wait(&mark, target, until),
                        None => drop(mark.wait(target, until)),
                    }
                }
                Ok(Next::Done) | Err(_) => return,
            }
        }
    };
    let spawned = thread::Builder::new().name(format!("mqstore-{name}")).spawn(run);
    spawned.map_err(|error| Error::io("start a thread for", name, error))
}

/// Runs one step of a service of this name. If it fails or panics, it reports the failure to all threads that wait for it.
pub(crate) fn step(name: &'static str, stepped: &Mutex<dyn Stepped>, now: Instant) -> Result<Next> {
    guarded(name, &mut *lock(stepped), |stepped| stepped.step(now))
}

/// Runs work of a service. A service that fails or panics reports the failure to all threads that wait for it.
fn guarded<S: Stepped + ?Sized>(name: &'static str, stepped: &mut S, work: impl FnOnce(&mut S) -> Result<Next>) -> Result<Next> {
    let outcome = without_panic(name, || work(stepped));
    outcome.inspect_err(|cause| stepped.fail(cause.clone()))
}

/// Locks a service, even after a panic: it still reports to threads that wait for it.
fn lock<S: Stepped + ?Sized>(stepped: &Mutex<S>) -> MutexGuard<'_, S> {
    stepped.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work`, and converts a panic into an error.
pub(crate) fn without_panic<T>(service: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Error::Panicked {
            service,
            message: message_of(panic.as_ref()),
        })
    })
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
