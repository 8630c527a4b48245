//! Dispatch: for each message that the log gains, its entry in its consume queue and its keys in the index. `RocketMQ` calls it Reput.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::format::{Check, CqUnit, DelayLevels, IndexGeometry, MessageView, Transaction};
use crate::log::{ConsumeQueue, ConsumeQueueStore, IndexService, LogFiles, LogRecord};
use crate::watermark::{Wait, Watermark};

/// Messages that one step dispatches at most, so that a stop and a write-out are never far away.
const STEP_MESSAGES: usize = 4096;
/// Entries of a queue that wait in memory until they are written out.
const WRITE_OUT_ENTRIES: usize = 64;
/// How long an entry waits in memory at most.
const WRITE_OUT_AFTER: Duration = Duration::from_millis(10);

/// Follows the log's end.
#[derive(Debug)]
pub struct Dispatcher {
    log: Arc<LogFiles>,
    queues: Arc<ConsumeQueueStore>,
    index: Arc<IndexService>,
    appended: Arc<Watermark>,
    dispatched: Arc<Watermark>,
    delay_levels: DelayLevels,
    geometry: IndexGeometry,
    index_tags: bool,
    indexed_until: i64,
    /// Queues with entries in memory, and how many; written out together.
    waiting: HashMap<(String, i32), (Arc<ConsumeQueue>, usize)>,
    waiting_since: Option<Instant>,
}

impl Dispatcher {
    /// Starts at `dispatched`.
    #[expect(clippy::too_many_arguments, reason = "one each of what it connects")]
    pub fn new(
        log: Arc<LogFiles>,
        queues: Arc<ConsumeQueueStore>,
        index: Arc<IndexService>,
        appended: Arc<Watermark>,
        dispatched: Arc<Watermark>,
        delay_levels: DelayLevels,
        geometry: IndexGeometry,
        index_tags: bool,
    ) -> Self {
        let indexed_until = index.indexed_until();
        Self {
            log,
            queues,
            index,
            appended,
            dispatched,
            delay_levels,
            geometry,
            index_tags,
            indexed_until,
            waiting: HashMap::new(),
            waiting_since: None,
        }
    }

    /// Waits for messages (at most until entries in memory are due) and dispatches what has come. `false` when nothing can come any
    /// more.
    ///
    /// # Errors
    /// What reading the log or writing the queues and the index raises; nothing is dispatched behind it.
    pub fn step(&mut self) -> Result<bool> {
        let at = self.dispatched.get();
        let due = self.waiting_since.map(|since| since + WRITE_OUT_AFTER);
        let open = !matches!(self.appended.wait(at + 1, due), Wait::Poisoned(_));
        self.dispatch(at)?;
        let is_due = self.waiting_since.is_some_and(|since| since.elapsed() >= WRITE_OUT_AFTER);
        let is_full = self.waiting.values().any(|(_, entries)| *entries >= WRITE_OUT_ENTRIES);
        if is_due || is_full {
            self.write_out()?;
        }
        Ok(open)
    }

    /// Writes the entries in memory out to the queue files.
    ///
    /// # Errors
    /// As [`Dispatcher::step`].
    pub fn write_out(&mut self) -> Result<()> {
        for (queue, _) in self.waiting.values() {
            queue.write_out()?;
        }
        self.waiting.clear();
        self.waiting_since = None;
        Ok(())
    }

    fn dispatch(&mut self, from: i64) -> Result<()> {
        let log = self.log.clone();
        let mut scan = log.scan(from, self.appended.get(), Check::Structure);
        let mut failed = Ok(());
        for message in scan.by_ref().take(STEP_MESSAGES) {
            failed = message.and_then(|message| self.dispatch_one(&message.view()));
            if failed.is_err() {
                break;
            }
        }
        if failed.is_ok() {
            self.dispatched.advance(scan.position());
            failed = scan.stopped_by().map_or(Ok(()), |by| Err(damage(by, scan.position())));
        }
        failed
    }

    fn dispatch_one(&mut self, view: &MessageView<'_>) -> Result<()> {
        if matches!(view.transaction(), Transaction::None | Transaction::Commit) && !view.is_inner_batch() {
            self.add_to_queue(view)?;
        }
        if view.physical_offset() > self.indexed_until {
            self.index.put(view, self.geometry, self.index_tags)?;
        }
        Ok(())
    }

    fn add_to_queue(&mut self, view: &MessageView<'_>) -> Result<()> {
        let topic = view.topic();
        let Some(queue) = self.queues.queue_or_new(&topic, view.queue_id())? else {
            return Ok(()); // a batch consume queue, which is not built here
        };
        let unit = CqUnit {
            physical_offset: view.physical_offset(),
            size: view.size() as i32,
            tags_code: view.tags_code(&self.delay_levels),
        };
        let entries = queue.append(view.queue_offset(), unit);
        if entries > 0 {
            self.waiting.insert((topic.into_owned(), view.queue_id()), (queue, entries));
            self.waiting_since.get_or_insert_with(Instant::now);
        }
        Ok(())
    }
}

/// Why nothing can be dispatched at `at`, below the log's end: every byte there was a record's once.
fn damage(by: &LogRecord, at: i64) -> Error {
    match by {
        LogRecord::Corrupt(error) | LogRecord::NoRecord(error) => error.clone(),
        _ => Error::Corrupt {
            path: "commitlog".into(),
            offset: at as u64,
            reason: format!("no message starts at physical offset {at}, which was appended: another process has changed the log"),
        },
    }
}
