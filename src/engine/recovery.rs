//! Recovery's plan: where the log ends, what the queues lack, what of them points past the end. Pure: it reads and decides, and
//! changes nothing. A read-only open carries it out in memory.
//!
//! Source of the rules: docs/FORMAT.md, "Start and recovery". Two of `RocketMQ`'s habits are left out on purpose: the record that
//! starts exactly where the queues end is dispatched too (5.3.2 to 5.5.1 lose it), and the end of the log is not taken from a
//! record whose own offset says that it belongs elsewhere.

use std::collections::BTreeMap;

use crate::config::StoreConfig;
use crate::error::Result;
use crate::format::{Check, Checkpoint, CqUnit, DelayLevels, MessageView, Transaction};
use crate::log::{ConsumeQueueStore, LogFiles, LogRecord, StoredMessage, TopicQueues};

/// What an open found, for people and programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Whether the last writer said goodbye: no `abort` file.
    pub clean_exit: bool,
    /// Physical offset from which the log was read.
    pub scan_start: i64,
    /// Physical offset at which the log ends.
    pub log_end: i64,
    /// Why it ends there.
    pub stop_reason: String,
    /// Messages that the log holds and the queue files lack.
    pub undispatched: u64,
    /// Queue entries that point at or past the end of the log.
    pub queue_entries_ahead: u64,
}

/// What to do so that queues and log agree.
#[derive(Debug)]
pub struct RecoveryPlan {
    /// Physical offset from which the log was read.
    pub scan_start: i64,
    /// Physical offset at which the log ends.
    pub log_end: i64,
    /// Why it ends there.
    pub stop_reason: String,
    /// For each topic and queue id: the entries to add, by queue offset.
    pub undispatched: BTreeMap<(String, i32), BTreeMap<i64, CqUnit>>,
}

/// Plans the recovery of a store from its log, queues and checkpoint.
///
/// # Errors
/// [`crate::error::Error::Io`] when a file cannot be read; damage is not an error but an end.
pub fn plan(
    log: &LogFiles,
    queues: &ConsumeQueueStore,
    checkpoint: &Checkpoint,
    clean: bool,
    config: &StoreConfig,
) -> Result<RecoveryPlan> {
    let check = if config.check_crc_on_recover {
        Check::Body
    } else {
        Check::Structure
    };
    let scan_start = scan_start(log, queues, checkpoint, clean, check)?;
    let mut undispatched = Undispatched {
        queues,
        delay_levels: config.delay_levels()?,
        entries: BTreeMap::new(),
    };
    let mut scan = log.scan(scan_start, log.files_end(), check);
    let mut last: Option<StoredMessage> = None;
    for message in scan.by_ref() {
        if let Some(before) = last.replace(message?) {
            undispatched.add(&before)?;
        }
    }
    let mut log_end = scan.position();
    let mut stop_reason = match scan.stopped_by() {
        None => "the last segment is full".to_owned(),
        Some(LogRecord::Corrupt(error) | LogRecord::NoRecord(error)) => error.to_string(),
        Some(LogRecord::Missing) => format!("no segment holds offset {log_end}"),
        Some(_) => "nothing was written behind it".to_owned(),
    };
    match last {
        Some(last) if !clean && is_torn(&last.view()) => {
            log_end = last.view().physical_offset();
            stop_reason = format!("the record at {log_end} ends in zeros: its last bytes never reached the disk");
        }
        Some(last) => undispatched.add(&last)?,
        None => {}
    }
    Ok(RecoveryPlan {
        scan_start,
        log_end,
        stop_reason,
        undispatched: undispatched.entries,
    })
}

/// Gathers what the queues lack.
struct Undispatched<'a> {
    queues: &'a ConsumeQueueStore,
    delay_levels: DelayLevels,
    entries: BTreeMap<(String, i32), BTreeMap<i64, CqUnit>>,
}

impl Undispatched<'_> {
    fn add(&mut self, message: &StoredMessage) -> Result<()> {
        let view = message.view();
        if !has_queue_entry(&view) || self.queues.rocksdb().is_some() {
            return Ok(());
        }
        let topic = view.topic();
        let (queue_id, queue_offset) = (view.queue_id(), view.queue_offset());
        let Ok(queue) = self.queues.queue(&topic, queue_id) else {
            return Ok(()); // a batch consume queue, which is not built here
        };
        let unit = CqUnit {
            physical_offset: view.physical_offset(),
            size: view.size() as i32,
            tags_code: view.tags_code(&self.delay_levels),
        };
        let known = queue.map_or(Ok(None), |queue| queue.unit(queue_offset))?;
        if known.is_none_or(|known| known.physical_offset != unit.physical_offset) {
            let entries = self.entries.entry((topic.into_owned(), queue_id)).or_default();
            entries.insert(queue_offset, unit);
        }
        Ok(())
    }
}

/// Whether the end of the log's last record reads as zeros. No checksum covers topic and properties, so a record whose last
/// sectors were lost parses as long as its lengths arrived; text that ends in NUL is what tells.
fn is_torn(view: &MessageView<'_>) -> bool {
    view.bytes().last() == Some(&0) && (!view.properties().bytes().is_empty() || view.topic_bytes().contains(&0))
}

/// Half and rolled-back messages have no queue entry, and a producer batch stored whole belongs to a batch consume queue.
fn has_queue_entry(view: &MessageView<'_>) -> bool {
    matches!(view.transaction(), Transaction::None | Transaction::Commit) && !view.is_inner_batch() && view.queue_offset() >= 0
}

/// The offset from which every record is read: at or before the first one that the queues may lack, and a place where a record
/// is known to start.
fn scan_start(log: &LogFiles, queues: &ConsumeQueueStore, checkpoint: &Checkpoint, clean: bool, check: Check) -> Result<i64> {
    let by_queues = start_by_queues(log, queues, check)?;
    if clean {
        return Ok(by_queues);
    }
    let until = checkpoint.min_timestamp();
    let by_checkpoint = last_start(log, check, |view| view.store_time() != 0 && view.store_time() <= until)?;
    Ok(by_queues.min(by_checkpoint))
}

/// Where the queues end, if a whole message ends there; else the start of the newest segment that the queues reach into and that
/// begins with a whole record.
fn start_by_queues(log: &LogFiles, queues: &ConsumeQueueStore, check: Check) -> Result<i64> {
    if !queues.has_files() && (queues.rocksdb().is_some() || queues.topics().any(|(_, q)| matches!(q, TopicQueues::Batch(_)))) {
        return last_start(log, check, |_| true);
    }
    let mut last: Option<CqUnit> = None;
    for queue in queues.file_queues() {
        let unit = queue.last_unit()?;
        if unit.is_some_and(|unit| last.is_none_or(|last| unit.end() > last.end())) {
            last = unit;
        }
    }
    let Some(last) = last else { return Ok(log.first_offset()) };
    if let LogRecord::Message(message) = log.read(last.physical_offset, check)?
        && message.view().size() as i32 == last.size
    {
        return Ok(last.end());
    }
    last_start(log, check, |view| view.physical_offset() <= last.end())
}

/// Start of the newest segment whose first record is whole and satisfies `wanted`; the first segment if there is none.
fn last_start(log: &LogFiles, check: Check, wanted: impl Fn(&MessageView<'_>) -> bool) -> Result<i64> {
    for start in log.starts().rev() {
        if let LogRecord::Message(message) = log.read(start, check)?
            && wanted(&message.view())
        {
            return Ok(start);
        }
    }
    Ok(log.first_offset())
}
