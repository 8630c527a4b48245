//! The delivery of delayed messages in one store: its progress and its two services.

use std::sync::{Arc, Mutex};

use super::delay::DelayService;
use super::delay_offset::{DelayOffsets, load_file, stored_log_end};
use super::progress_persister::{PersistedProgress, ProgressPersister};
use crate::error::Result;
use crate::services::Stepped;
use crate::store::MessageStore;

/// The delivery of delayed messages in a store that is open for writing.
#[derive(Debug)]
pub(super) struct DelaySchedule {
    pub(super) offsets: Arc<DelayOffsets>,
    /// The service that delivers.
    pub(super) deliverer: Arc<Mutex<dyn Stepped>>,
    /// The service that persists the progress.
    pub(super) persister: Arc<Mutex<dyn Stepped>>,
}

impl DelaySchedule {
    /// Prepares the delivery in a store that was just opened; `None` if it does not run there. By default it runs in a store that no
    /// broker has written since mqstore has made it, or since a writer has delivered messages in it: `has_progress` if it has delivered
    /// timer messages.
    ///
    /// # Errors
    /// The damage of `delayOffset.json`; those of reading the queues.
    pub(super) fn new(store: &Arc<MessageStore>, has_progress: bool) -> Result<Option<Self>> {
        let file = load_file(store);
        let is_own = |from: i64| {
            let is_absent = file.fields().is_ok_and(serde_json::Map::is_empty);
            let all_is_own = from <= store.reader().physical_bounds().start;
            has_progress || stored_log_end(&file).is_some() || (all_is_own && (is_absent || file.fields().is_err()))
        };
        if !store
            .config()
            .services
            .unwrap_or_else(|| store.was_own_from().is_some_and(is_own))
        {
            return Ok(None);
        }
        let offsets = Arc::new(DelayOffsets::load(store, file)?);
        let deliverer = DelayService::new(store, &offsets)?;
        let persister = ProgressPersister::new(offsets.clone());
        Ok(Some(Self {
            offsets,
            deliverer: Arc::new(Mutex::new(deliverer)),
            persister: Arc::new(Mutex::new(persister)),
        }))
    }

    /// Wakes the service that persists, which ends.
    pub(super) fn stop(&self) {
        self.offsets.changes().stop();
    }
}
