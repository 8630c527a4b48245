//! What runs beside the callers of a store: a thread each, or the caller's own steps.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::error::{Error, Result};
use crate::services::{Dispatcher, FlushRealTime, Next, Stepped};

/// A service of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    /// Puts what the log has gained into queues and index.
    Dispatch,
    /// Makes the log durable.
    Flush,
}

impl Service {
    /// Every one of them.
    pub const ALL: [Self; 2] = [Self::Dispatch, Self::Flush];

    fn name(self) -> &'static str {
        match self {
            Self::Dispatch => "dispatcher",
            Self::Flush => "flusher",
        }
    }
}

/// The services of one store.
#[derive(Debug, Clone)]
pub(crate) struct Services {
    dispatcher: Arc<Mutex<Dispatcher>>,
    flusher: Arc<Mutex<FlushRealTime>>,
}

impl Services {
    pub(crate) fn new(dispatcher: Dispatcher, flusher: FlushRealTime) -> Self {
        Self {
            dispatcher: Arc::new(Mutex::new(dispatcher)),
            flusher: Arc::new(Mutex::new(flusher)),
        }
    }

    /// One step. A panic counts as a failure, and no failure leaves anybody waiting.
    pub(crate) fn step(&self, service: Service, now: Instant) -> Result<Next> {
        let mut stepped = self.lock(service);
        let outcome = without_panic(service.name(), || stepped.step(now));
        outcome.inspect_err(|cause| stepped.fail(cause.clone()))
    }

    /// Starts a thread for the service. It ends when the service does, fails or `is_over`.
    pub(crate) fn spawn(&self, service: Service, is_over: impl Fn() -> bool + Send + 'static) -> Result<JoinHandle<()>> {
        let services = self.clone();
        let run = move || {
            while !is_over() {
                match services.step(service, Instant::now()) {
                    Ok(Next::Again) => {}
                    Ok(Next::Idle { until }) => {
                        let (mark, target) = services.lock(service).awaited();
                        mark.wait(target, until);
                    }
                    Ok(Next::Done) | Err(_) => return,
                }
            }
        };
        let spawned = thread::Builder::new().name(format!("mqstore-{}", service.name())).spawn(run);
        spawned.map_err(|error| Error::io("start a thread for", service.name(), error))
    }

    /// Dispatches what a log that was stopped still holds.
    ///
    /// # Errors
    /// What dispatching raises; after a shortage it may be called again.
    pub(crate) fn drain(&self) -> Result<()> {
        let mut dispatcher = self.lock(Service::Dispatch);
        while dispatcher.step(Instant::now())? != Next::Done {}
        Ok(())
    }

    /// Stamps the checkpoint for all that is dispatched.
    pub(crate) fn stamp(&self) -> Result<()> {
        self.dispatcher.lock().unwrap_or_else(PoisonError::into_inner).stamp()
    }

    fn lock(&self, service: Service) -> MutexGuard<'_, dyn Stepped + 'static> {
        match service {
            Service::Dispatch => lock(self.dispatcher.as_ref()),
            Service::Flush => lock(self.flusher.as_ref()),
        }
    }
}

/// Of a service that panicked nothing is asked any more but to tell those who wait.
fn lock(stepped: &Mutex<dyn Stepped>) -> MutexGuard<'_, dyn Stepped + 'static> {
    stepped.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A panic of `work` as a failure.
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
