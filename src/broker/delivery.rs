//! The two services of a delivery, of delayed messages or of timer messages: one delivers what is due, the other persists the progress.
//!
//! A delivery that fails for a while, as on a full disk, is tried again at the same message: it skips none, and repeats none.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::progress_persister::{PersistedProgress, ProgressPersister};
use crate::error::{Error, Result};
use crate::services::{Next, Stepped};
use crate::store::{AppendResult, MessageStore};
use crate::watermark::Watermark;

/// The pause after a failure that may pass, such as a full disk.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// The most messages of a queue that one step delivers.
pub(super) const STEP_MESSAGES: usize = 1024;
/// The bytes of them after which the step takes no more.
pub(super) const STEP_BYTES: usize = 1 << 20;

/// The steps of a delivery.
pub(super) trait Delivery: Debug + Send {
    /// Searches for copies, or delivers what is due. It notes the copies that it appends.
    ///
    /// # Errors
    /// Those of reading and appending; the next call continues.
    fn work(&mut self, now: Instant, copies: &mut LastCopy) -> Result<Next>;
}

/// The last copy that a delivery has appended.
#[derive(Debug, Default)]
pub(super) struct LastCopy(Option<i64>);

impl LastCopy {
    /// Notes the copies of a call.
    pub(super) fn note(&mut self, done: &[AppendResult]) {
        if let Some(last) = done.last() {
            self.0 = Some(last.appended.physical_offset);
        }
    }
}

/// The delivery in a store that is open for writing.
#[derive(Debug)]
pub(super) struct DeliverySchedule<P> {
    pub(super) offsets: Arc<P>,
    /// The service that delivers.
    pub(super) deliverer: Arc<Mutex<dyn Stepped>>,
    /// The service that persists the progress.
    pub(super) persister: Arc<Mutex<dyn Stepped>>,
}

impl<P: PersistedProgress + 'static> DeliverySchedule<P> {
    pub(super) fn new(store: &Arc<MessageStore>, offsets: Arc<P>, delivery: impl Delivery + 'static) -> Self {
        let deliverer = Deliverer {
            store: store.clone(),
            delivery,
            seen: 0,
            retry_at: None,
        };
        Self {
            deliverer: Arc::new(Mutex::new(deliverer)),
            persister: Arc::new(Mutex::new(ProgressPersister::new(offsets.clone()))),
            offsets,
        }
    }

    /// Wakes the service that persists, which ends.
    pub(super) fn stop(&self) {
        self.offsets.changes().stop();
    }
}

/// Returns the time of the next step: when a message is due, in ms, or earlier.
pub(super) fn until_due(store: &MessageStore, due: i64, now_ms: i64, now: Instant) -> Instant {
    let longest = store.reader().env().longest_wall_clock_wait();
    now + Duration::from_millis(due.abs_diff(now_ms)).min(longest)
}

/// The service that delivers.
#[derive(Debug)]
struct Deliverer<D> {
    store: Arc<MessageStore>,
    delivery: D,
    /// The end of the last message that the queues had before the last step.
    seen: i64,
    retry_at: Option<Instant>,
}

impl<D: Delivery> Stepped for Deliverer<D> {
    /// Delivers what is due. A failure that may pass is tried again after a moment, at the same message.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`]: nothing can be appended any more.
    fn step(&mut self, now: Instant) -> Result<Next> {
        if self.store.scheduled().poisoned().is_some() {
            return Ok(Next::Done);
        }
        if self.retry_at.is_none_or(|at| now >= at) {
            self.retry_at = None;
            // Read before the queues, so that no message is missed.
            self.seen = self.store.scheduled().get();
            let mut copies = LastCopy::default();
            let worked = self.delivery.work(now, &mut copies);
            if let LastCopy(Some(last)) = copies {
                self.store.show(last.saturating_add(1))?;
            }
            match worked {
                Err(error) if !matches!(error, Error::Poisoned { .. } | Error::Closed) => self.retry_at = Some(now + RETRY_AFTER),
                worked => return worked,
            }
        }
        Ok(Next::Idle { until: self.retry_at })
    }

    fn awaited(&self) -> (Arc<Watermark>, i64) {
        // During a failure new messages wait with the rest.
        let next = self.retry_at.map_or(self.seen + 1, |_| i64::MAX);
        (self.store.scheduled().clone(), next)
    }

    fn fail(&self, _cause: Error) {}
}
