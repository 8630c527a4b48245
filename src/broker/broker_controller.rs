//! The services and settings of one store.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use super::consumer_offset::{ConsumerOffsets, OffsetPersister};
use crate::error::{Error, Result};
use crate::services::{Next, Stepped, spawn, step};
use crate::store::MessageStore;
use crate::sync::lock;
use crate::watermark::Watermark;

/// What a broker does with a store that is open for writing. Close it before the store.
#[derive(Debug)]
pub struct BrokerController {
    offsets: Arc<ConsumerOffsets>,
    /// Poisoned at the close, which ends the services.
    open: Arc<Watermark>,
    services: Vec<(&'static str, Arc<Mutex<dyn Stepped>>)>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl BrokerController {
    /// Reads the settings of the store. No service runs yet.
    pub fn new(store: &Arc<MessageStore>) -> Self {
        let offsets = Arc::new(ConsumerOffsets::load(store));
        let open = Arc::new(Watermark::new(0));
        let persister = OffsetPersister::new(offsets.clone(), open.clone());
        Self {
            offsets,
            open,
            services: vec![("persister", Arc::new(Mutex::new(persister)))],
            threads: Mutex::default(),
        }
    }

    /// Starts a thread for each service.
    ///
    /// # Errors
    /// [`Error::Io`] if a thread cannot be started.
    pub fn start(&self) -> Result<()> {
        let mut threads = lock(&self.threads);
        for (name, service) in &self.services {
            let open = self.open.clone();
            threads.push(spawn(name, service.clone(), false, move || open.poisoned().is_some())?);
        }
        Ok(())
    }

    /// Runs one step of the service of this name, at the time `now`.
    ///
    /// # Errors
    /// The failure that ends the service.
    pub fn step(&self, name: &str, now: Instant) -> Result<Next> {
        let found = self.services.iter().find(|(listed, _)| *listed == name);
        found.map_or(Ok(Next::Done), |(name, service)| step(name, service, now))
    }

    /// Ends the services, and persists the progress of all groups. A second call does nothing.
    ///
    /// # Errors
    /// What could not be persisted.
    pub fn close(&self) -> Result<()> {
        self.open.poison(Error::Closed);
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            // A service that panicked has reported it.
            let _ = thread.join();
        }
        self.offsets.persist()
    }
}
