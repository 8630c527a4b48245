//! The delivery of timer messages in one store: its progress and its two services.

use std::sync::{Arc, Mutex};

use super::progress_persister::{PersistedProgress, ProgressPersister};
use super::timer::TimerService;
use super::timer_offset::TimerOffsets;
use crate::error::Result;
use crate::format::TimerCheck;
use crate::services::Stepped;
use crate::store::MessageStore;

/// The delivery of timer messages in a store that is open for writing.
#[derive(Debug)]
pub(super) struct TimerSchedule {
    pub(super) offsets: Arc<TimerOffsets>,
    /// The service that delivers.
    pub(super) deliverer: Arc<Mutex<dyn Stepped>>,
    /// The service that persists the progress.
    pub(super) persister: Arc<Mutex<dyn Stepped>>,
}

impl TimerSchedule {
    /// Prepares the delivery in a store that was just opened, with its `timercheck`.
    ///
    /// # Errors
    /// Those of reading the queue.
    pub(super) fn new(store: &Arc<MessageStore>, file: TimerCheck) -> Result<Self> {
        let offsets = Arc::new(TimerOffsets::load(store, file)?);
        let deliverer = TimerService::new(store, &offsets);
        let persister = ProgressPersister::new(offsets.clone());
        Ok(Self {
            offsets,
            deliverer: Arc::new(Mutex::new(deliverer)),
            persister: Arc::new(Mutex::new(persister)),
        })
    }

    /// Wakes the service that persists, which ends.
    pub(super) fn stop(&self) {
        self.offsets.changes().stop();
    }
}
