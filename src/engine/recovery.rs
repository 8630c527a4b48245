//! Recovery's plan: where the log ends, what the queues lack, what of them points past the end. Pure: it reads and decides, and
//! changes nothing. A read-only open carries it out in memory.
//!
//! Source of the rules: docs/FORMAT.md, "Start and recovery". Two of `RocketMQ`'s habits are left out on purpose: the record that
//! starts exactly where the queues end is dispatched too (5.3.2 to 5.5.1 lose it), and the end of the log is not taken from a
//! record whose own offset says that it belongs elsewhere.

use std::collections::BTreeMap;

use crate::config::StoreConfig;
use crate::error::Result;
use crate::format::{CQ_UNIT_SIZE, Check, Checkpoint, CqUnit, DelayLevels, MessageView, Transaction, validate_topic};
use crate::log::{ConsumeQueueStore, LogFiles, LogRecord, StoredMessage};

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
    /// Store time of the log's last message, in ms; 0 if there is none.
    pub last_store_time: i64,
    /// Messages that the log holds and the queue files lack.
    pub undispatched: u64,
    /// Messages whose topic or queue offset no queue can have: they are read by physical offset, id and key alone.
    pub refused: u64,
    /// Queue entries that point at or past the end of the log.
    pub queue_entries_ahead: u64,
}

/// What to do so that queues and log agree.
#[derive(Debug)]
pub struct RecoveryPlan {
    report: RecoveryReport,
    /// For each topic and queue id: the entries to add, by queue offset.
    undispatched: BTreeMap<(String, i32), BTreeMap<i64, CqUnit>>,
}

impl RecoveryPlan {
    /// Carries the plan out in memory: the queues leave out what points past the log, and get what they lack in their tails.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`], [`crate::error::Error::Corrupt`] for a queue file that cannot be read.
    pub fn apply_in_memory(self, log: &LogFiles, queues: &ConsumeQueueStore) -> Result<RecoveryReport> {
        let mut report = self.report;
        for (_, _, queue) in queues.file_queues() {
            report.queue_entries_ahead += queue.cut(report.log_end)?;
        }
        for ((topic, queue_id), tail) in self.undispatched {
            if let Some(queue) = queues.queue_or_new(&topic, queue_id) {
                report.undispatched += tail.len() as u64;
                queue.extend(tail);
            }
        }
        for (_, _, queue) in queues.file_queues() {
            queue.correct_min_offset(log.first_offset())?;
        }
        Ok(report)
    }
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
    let start = scan_start(log, queues, checkpoint, clean, check)?;
    let (plan, gap) = plan_from(start, log, queues, check, clean, config)?;
    // A message whose predecessor in its queue is nowhere: the files of that queue are lost, or its first messages expired. Only
    // the whole log tells.
    if gap && start > log.first_offset() {
        return Ok(plan_from(log.first_offset(), log, queues, check, clean, config)?.0);
    }
    Ok(plan)
}

/// The plan when the log is read from `scan_start`, and whether a queue has a gap then.
fn plan_from(
    scan_start: i64,
    log: &LogFiles,
    queues: &ConsumeQueueStore,
    check: Check,
    clean: bool,
    config: &StoreConfig,
) -> Result<(RecoveryPlan, bool)> {
    let mut undispatched = Undispatched {
        queues,
        delay_levels: config.delay_levels()?,
        entries: BTreeMap::new(),
        gap: false,
        refused: 0,
    };
    let mut scan = log.scan(scan_start, log.files_end(), check);
    let mut last: Option<StoredMessage> = None;
    for message in scan.by_ref() {
        if let Some(before) = last.replace(message?) {
            undispatched.add(&before.view());
        }
    }
    let mut log_end = scan.position();
    let mut stop_reason = match scan.stopped_by() {
        None => "the last segment is full".to_owned(),
        Some(LogRecord::Corrupt(error) | LogRecord::NoRecord(error)) => error.to_string(),
        Some(LogRecord::Missing) => format!("no segment holds offset {log_end}"),
        Some(_) => "nothing was written behind it".to_owned(),
    };
    let last_store_time = match last {
        Some(last) if !clean && is_torn(&last.view()) => {
            log_end = last.view().physical_offset();
            stop_reason = format!("the record at {log_end} ends in zeros: its last bytes never reached the disk");
            last.view().store_time()
        }
        Some(last) => {
            undispatched.add(&last.view());
            last.view().store_time()
        }
        None => store_time_before(log, queues, scan_start)?,
    };
    let report = RecoveryReport {
        clean_exit: clean,
        scan_start,
        log_end,
        stop_reason,
        last_store_time,
        undispatched: 0,
        refused: undispatched.refused,
        queue_entries_ahead: 0,
    };
    Ok((
        RecoveryPlan {
            report,
            undispatched: undispatched.entries,
        },
        undispatched.gap,
    ))
}

/// Store time of the last message that a queue knows, where nothing behind it was read.
fn store_time_before(log: &LogFiles, queues: &ConsumeQueueStore, end: i64) -> Result<i64> {
    let Some(last) = last_unit(queues).filter(|unit| unit.end() <= end) else {
        return Ok(0);
    };
    Ok(match log.read(last.physical_offset, Check::Structure)? {
        LogRecord::Message(message) => message.view().store_time(),
        _ => 0,
    })
}

/// Gathers what the queues lack.
struct Undispatched<'a> {
    queues: &'a ConsumeQueueStore,
    delay_levels: DelayLevels,
    entries: BTreeMap<(String, i32), BTreeMap<i64, CqUnit>>,
    /// A message came whose predecessor in its queue did not.
    gap: bool,
    refused: u64,
}

impl Undispatched<'_> {
    fn add(&mut self, view: &MessageView<'_>) {
        if !has_queue_entry(view) || self.queues.rocksdb().is_some() {
            return;
        }
        let topic = view.topic();
        let (queue_id, queue_offset) = (view.queue_id(), view.queue_offset());
        let Ok(queue) = self.queues.queue(&topic, queue_id) else {
            return; // a batch consume queue, which is not built here
        };
        let unit = CqUnit {
            physical_offset: view.physical_offset(),
            size: view.size() as i32,
            tags_code: view.tags_code(&self.delay_levels),
        };
        if queue
            .as_ref()
            .and_then(|queue| queue.known_unit(queue_offset))
            .is_some_and(|known| known.physical_offset == unit.physical_offset)
        {
            return;
        }
        if validate_topic(&topic, view.version()).is_err() || !(0..MAX_QUEUE_OFFSET).contains(&queue_offset) || queue_id < 0 {
            self.refused += 1;
            return;
        }
        let entries = self.entries.entry((topic.into_owned(), queue_id)).or_default();
        let gathered = entries.last_key_value().map(|(offset, _)| offset + 1);
        let known = queue.map(|queue| queue.max_offset()).filter(|max| *max > 0);
        let gap = gathered.max(known).map_or(queue_offset > 0, |next| queue_offset > next);
        self.gap |= gap;
        if gap && gathered.max(known).is_some() {
            // Nobody ever appended the messages between: this number is not to be believed.
            self.refused += 1;
            return;
        }
        entries.insert(queue_offset, unit);
    }
}

/// Beyond it a queue file has no name.
const MAX_QUEUE_OFFSET: i64 = i64::MAX / CQ_UNIT_SIZE as i64;

/// Whether the end of the log's last record reads as zeros. No checksum covers topic and properties, so a record whose last
/// sectors were lost parses as long as its lengths arrived; text that ends in NUL is what tells.
fn is_torn(view: &MessageView<'_>) -> bool {
    view.bytes().last() == Some(&0) && (!view.properties().bytes().is_empty() || view.topic_bytes().contains(&0))
}

/// Half and rolled-back messages have no queue entry, and a producer batch stored whole belongs to a batch consume queue.
fn has_queue_entry(view: &MessageView<'_>) -> bool {
    matches!(view.transaction(), Transaction::None | Transaction::Commit) && !view.is_inner_batch()
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
    if queues.rocksdb().is_some() || queues.has_only_batch_queues() {
        return last_start(log, check, |_| true);
    }
    let Some(last) = last_unit(queues) else {
        return Ok(log.first_offset());
    };
    if let LogRecord::Message(message) = log.read(last.physical_offset, check)?
        && message.view().size() as i32 == last.size
    {
        return Ok(last.end());
    }
    last_start(log, check, |view| view.physical_offset() <= last.end())
}

/// The queue entry whose message ends furthest in the log.
fn last_unit(queues: &ConsumeQueueStore) -> Option<CqUnit> {
    let last_units = queues.file_queues().into_iter().filter_map(|(_, _, queue)| queue.last_unit());
    last_units.max_by_key(|unit| unit.end())
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
