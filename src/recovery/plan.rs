//! The plan of recovery: the end of the log, missing queue entries, and entries past the end. Planning reads and decides, and changes
//! nothing. Every open executes the plan in memory, a writing open then also on disk.
//!
//! Source of the rules: docs/FORMAT.md, "Start and recovery". Two rules differ from `RocketMQ`'s on purpose. The record that starts
//! exactly where the queues end is dispatched; 5.3.2 to 5.5.1 lose it. A record whose own offset says that it belongs elsewhere does not
//! count for the end of the log.

use std::ops::Range;
use std::path::PathBuf;

use crate::error::Result;
use crate::format::{Check, CqUnit, MIN_RECORD_SIZE, MessageView, has_lost_bytes, is_light_queue, is_salvage_record};
use crate::interrupt;
use crate::log::{LogFiles, LogRecord, LogScan, StoredMessage};
use crate::recovery::lost_offsets::LostOffsets;
use crate::recovery::scan_start::{last_stamped, last_unit, scan_start};
use crate::recovery::store_state::StoreState;
use crate::recovery::undispatched::{QueueRanges, QueueTails, Undispatched, leads, leads_to_salvage_record};
use crate::remedy::Remedy;

/// The findings of an open, for people and programs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// True if the last writer closed the store: there was no `abort` file.
    pub clean_exit: bool,
    /// Physical offset from which the log was read.
    pub scan_start: i64,
    /// Physical offset at which the log ends.
    pub log_end: i64,
    /// The reason for the end of the log.
    pub stop_reason: String,
    /// Store time of the log's last message, in ms; 0 in an empty log.
    pub last_store_time: i64,
    /// Physical offset of the log's last message; 0 in an empty log.
    pub last_offset: i64,
    /// The store time before which whole records past the end of the log are stale.
    pub stale_before: i64,
    /// The store time before which such records are not covered by the checkpoint, whatever the messages after its stamp show.
    pub covered_stale_before: i64,
    /// Messages of the log without an entry in the queue files.
    pub undispatched: u64,
    /// Undispatched messages that the recovery of a broker does not put at their queue offsets: rebuild before a broker starts. 0 beside
    /// a live writer and for a writing open.
    pub lost_by_brokers: u64,
    /// Keys in the index that the recovery of a broker drops, under the same conditions.
    pub keys_lost_by_brokers: u64,
    /// Messages without a queue entry, because their topic or queue offset is impossible, or another message has it. They are read by
    /// physical offset, id and key only.
    pub refused: u64,
    /// Queue entries that point at or past the end of the log, or into what was lost of it.
    pub queue_entries_ahead: u64,
    /// Queue entries past the last segment. More than one shows that the end of the log is missing.
    pub queue_entries_past_segments: u64,
    /// Written bytes past the end of the log that were overwritten with zeros or removed. 0 for a reader.
    pub bytes_cut: u64,
    /// The whole messages in these bytes. Nothing proves that they were on disk before the crash. None for a reader.
    pub cut: LostOffsets,
    /// Damaged stretches inside the log that were skipped, by physical offset: only with
    /// [`Recovery::Salvage`](crate::config::Recovery::Salvage).
    pub lost: Vec<Range<i64>>,
    /// The sign that messages are missing; `None` without one.
    pub missing: Option<Missing>,
}

/// A sign that messages are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The evidence, with its file and byte.
    pub what: String,
    /// The file and the byte of the evidence, with which the text begins. `None` if it begins with bytes that were skipped.
    pub at: Option<(PathBuf, u64)>,
    /// The remedy, if one is known.
    pub remedy: Option<Remedy>,
}

/// The plan that makes queues and log agree.
#[derive(Debug)]
pub struct RecoveryPlan {
    /// The report of what was found.
    pub report: RecoveryReport,
    /// The last message that the checkpoint covers ends here. What was read after it may be in memory only.
    pub unsynced_from: i64,
    pub(super) undispatched: QueueTails,
    /// In a rebuild: queue offsets between messages of the log that no message has.
    unused: QueueRanges,
}

impl RecoveryPlan {
    /// Executes the plan in memory: the queues drop entries that point past the log, and get their missing entries in their tails.
    ///
    /// # Errors
    /// [`crate::error::Error::Io`], [`crate::error::Error::Corrupt`] for a queue file that cannot be read.
    pub fn apply_in_memory(self, store: &StoreState<'_>) -> Result<RecoveryReport> {
        let StoreState { log, queues, .. } = *store;
        let mut report = self.report;
        let longest = if log.files_end() == 0 { u64::MAX } else { log.segment_size() };
        report.queue_entries_past_segments = queues.count_entries_from(log.files_end(), longest)?;
        for (topic, queue_id, queue) in queues.file_queues() {
            let leads = |queue_offset: i64, unit: CqUnit, before: Option<CqUnit>| {
                Ok(store.trusts_queues()
                    || is_kept_unread(log, &report, unit, before)?
                    || leads(log, &topic, queue_id, queue_offset, unit)?
                    || leads_to_salvage_record(log, unit)?)
            };
            report.queue_entries_ahead += queue.leave_out(log.first_offset()..report.log_end, leads)?;
        }
        for lost in &report.lost {
            let Some(substitute) = substitute_for_lost(log, lost) else {
                continue;
            };
            for (_, _, queue) in queues.file_queues() {
                report.queue_entries_ahead += queue.redirect(substitute, lost)?;
            }
        }
        for ((topic, queue_id), tail) in self.undispatched {
            if let Some(queue) = queues.queue_or_new(&topic, queue_id) {
                // Messages of a light queue are those of another queue.
                report.undispatched += if is_light_queue(&topic) { 0 } else { tail.len() as u64 };
                queue.extend(tail);
            }
        }
        for (topic, queue_id, queue) in queues.file_queues() {
            if store.intent.is_rebuild() {
                let unused = self.unused.get(&(topic.to_string(), queue_id)).map_or(&[][..], Vec::as_slice);
                let is_kept = |offset, unit| {
                    Ok(!contains(unused, offset)
                        || is_of_lost_message(log, &report, unit)?
                        || leads(log, &topic, queue_id, offset, unit)?)
                };
                queue.fill_holes(is_kept)?;
            }
            queue.correct_min_offset(log.first_offset())?;
        }
        Ok(report)
    }
}

/// Plans the recovery of a store from its log, queues and checkpoint. A key may be missing in the index of a message from `index_from` on.
///
/// # Errors
/// [`crate::error::Error::Io`] when a file cannot be read; damage is not an error but an end. Those of [`interrupt::check`].
pub fn plan(store: &StoreState<'_>, index_from: i64) -> Result<RecoveryPlan> {
    let start = scan_start(store, index_from)?;
    let until = scan_end(start, store)?;
    let (mut plan, gap) = plan_from(start, until, store)?;
    // A queue has no entry for a message before one of its messages that was read: its files are lost, or its first messages expired. Only the whole log shows it.
    let first = store.log.first_offset();
    if gap && start > first {
        plan = plan_from(first, until, store)?.0;
    }
    if plan.report.last_store_time == 0
        && let Some(message) = last_before(plan.report.scan_start, store)?
    {
        note(&mut plan.report, &message.view());
        let time = plan.report.last_store_time;
        (plan.report.stale_before, plan.report.covered_stale_before) = (time, time);
    }
    Ok(plan)
}

/// Returns the bound of a scan from `scan_start`. It excludes records that a live writer appends concurrently or does not
/// show yet; the open of a writer has no bound. Neither has a salvage: it would take whole records past the bound for
/// records after damage.
pub(super) fn scan_end(scan_start: i64, store: &StoreState<'_>) -> Result<i64> {
    if let Some(cut) = store.intent.cut_at() {
        return Ok(cut);
    }
    if store.records.shutdown.is_clean() || store.intent.is_salvage() || store.is_for_writing() {
        return Ok(store.log.files_end());
    }
    let last = store.log.newest_record(scan_start)?;
    // Looked at before the record is read: its end is written last, so what is read later is whole.
    let end = if is_half_written(store, &last)? {
        last.start
    } else {
        last.end
    };
    // A stamp that was read after the mark may cover more.
    Ok(store.shown_until().map_or(end, |shown| end.min(shown.max(scan_start))))
}

/// Returns true if a broker is still writing the properties of the last record, which no checksum covers: they end in zeros.
fn is_half_written(store: &StoreState<'_>, last: &Range<i64>) -> Result<bool> {
    if !store.is_written_to() || last.is_empty() || store.is_own(last.start) {
        return Ok(false);
    }
    Ok(match store.log.read(last.start, Check::Structure)? {
        LogRecord::Message(message) => message.view().properties().bytes().last() == Some(&0),
        _ => false,
    })
}

/// Returns the plan when the log is read from `scan_start` to `until`, and true if a queue has a gap then.
pub(super) fn plan_from(scan_start: i64, until: i64, store: &StoreState<'_>) -> Result<(RecoveryPlan, bool)> {
    let StoreState { log, queues, check, .. } = *store;
    let mut undispatched = Undispatched::new(log, queues, store.config.delay_levels()?, store.intent.is_rebuild());
    let mut report = RecoveryReport {
        clean_exit: store.records.shutdown.is_clean(),
        scan_start,
        log_end: scan_start,
        ..RecoveryReport::default()
    };
    let mut at = scan_start;
    let mut times = StoreTimes::new(store, scan_start);
    let mut is_sure = !store.intent.is_salvage();
    let mut unsynced_from = scan_start;
    loop {
        let mut scan = scan_of(store, at..until);
        let mut torn = None;
        while interrupt::check().and_then(|()| scan.advance())? {
            let Some(view) = scan.view() else { break };
            if !store.records.shutdown.is_clean() && store.is_own(view.physical_offset()) && has_lost_bytes(&view) {
                torn = Some(view.physical_offset());
                break;
            }
            is_sure &= store.records.checkpoint.covers(view.physical_offset(), view.store_time());
            if is_sure {
                unsynced_from = view.end();
            }
            note(&mut report, &view);
            times.add(&mut report, view.store_time());
            if is_salvage_record(&view) {
                // An earlier recovery has put a salvage record where messages were lost.
                undispatched.pass_over(Some(substitute_for_record(&view)), i64::from(view.size()));
            }
            undispatched.add(&view)?;
            undispatched.add_to_light_queues(&view)?;
        }
        (report.log_end, report.stop_reason) = stop(&scan, store)?;
        if let Some(torn) = torn {
            report.log_end = torn;
            report.stop_reason = format!("the record at {torn} is without bytes that never reached the disk");
        }
        at = if let Some(next) = end_of_hole(log, report.log_end)? {
            undispatched.pass_over(Some(substitute_for_hole(report.log_end)), next - report.log_end);
            next
        } else if let Some(next) = find_next_record(store, &report)? {
            if torn.is_none() && matches!(log.read(report.log_end, check)?, LogRecord::Message(_)) {
                at = report.log_end; // a live writer appended it after the scan
                continue;
            }
            let lost = report.log_end..next;
            undispatched.pass_over(substitute_for_lost(log, &lost), lost.end - lost.start);
            report.lost.push(lost);
            next
        } else {
            break;
        };
    }
    let gap = undispatched.gap;
    let dispatched = undispatched.into_dispatched();
    report.refused = dispatched.refused;
    let plan = RecoveryPlan {
        report,
        unsynced_from,
        undispatched: dispatched.entries,
        unused: dispatched.unused,
    };
    Ok((plan, gap))
}

/// Scans the records of a range. Nobody changes them beside the open of a writer.
fn scan_of<'a>(store: &StoreState<'a>, range: Range<i64>) -> LogScan<'a> {
    let scan = store.log.scan(range.start, range.end, store.check);
    if store.is_for_writing() { scan.of_immutable() } else { scan }
}

/// Returns the last message that our stamp or a queue entry names, if it ends at or before the start of the scan.
fn last_before(scan_start: i64, store: &StoreState<'_>) -> Result<Option<StoredMessage>> {
    let is_before = |message: &StoredMessage| message.view().end() <= scan_start;
    if let Some(message) = last_stamped(store)?.filter(is_before) {
        return Ok(Some(message));
    }
    let Some(last) = last_unit(store.queues)? else {
        return Ok(None);
    };
    Ok(match store.log.read(last.physical_offset, Check::Structure)? {
        LogRecord::Message(message) => Some(message).filter(is_before),
        _ => None,
    })
}

/// Returns the start of the next whole record after damage; `None` if absent, or without a salvage.
fn find_next_record(store: &StoreState<'_>, report: &RecoveryReport) -> Result<Option<i64>> {
    if !store.intent.is_salvage() {
        return Ok(None);
    }
    // The damaged stretch must have room for a salvage record, unless it ends where the segment does.
    let end = report.log_end;
    let from = (end + MIN_RECORD_SIZE as i64).min(store.log.end_of_segment(end));
    store.record_starts().next_record(end, from, report.stale_before)
}

/// Returns where the log continues after missing segments, or after the last whole record of a shortened one. A writing open plans
/// this, too, and then refuses the store.
fn end_of_hole(log: &LogFiles, at: i64) -> Result<Option<i64>> {
    if log.holds(at)? && !log.is_cut_short(at)? {
        return Ok(None);
    }
    for start in log.starts().skip_while(|start| *start <= at) {
        if matches!(log.read(start, Check::Structure)?, LogRecord::Message(_)) {
            return Ok(Some(start));
        }
    }
    Ok(None)
}

/// Returns true if an entry stays although its record is not read. Before the start of the scan it stays if the entry before it
/// points to a smaller offset: reading a record for each of thousands of queues takes long. From there on every record was read, and an
/// entry that points to none of its queue is stale or torn. An entry also stays if its message was lost, or if its segment is not there.
fn is_kept_unread(log: &LogFiles, report: &RecoveryReport, unit: CqUnit, before: Option<CqUnit>) -> Result<bool> {
    let at = unit.physical_offset;
    Ok(match before {
        Some(before) if before.physical_offset > at => false,
        Some(_) if at < report.scan_start => true,
        _ => report.lost.iter().any(|lost| lost.contains(&at)) || !log.holds(at)?,
    })
}

/// Returns true if the message of an entry may have been lost, or have expired.
fn is_of_lost_message(log: &LogFiles, report: &RecoveryReport, unit: CqUnit) -> Result<bool> {
    let at = unit.physical_offset;
    Ok(unit.is_lost()
        || at < log.first_offset()
        || report.lost.iter().any(|lost| lost.contains(&at))
        || matches!(log.read(at, Check::Structure)?, LogRecord::Missing))
}

/// Returns true if one of these ranges, which ascend, contains the offset.
fn contains(ranges: &[Range<i64>], offset: i64) -> bool {
    let after = ranges.partition_point(|range| range.start <= offset);
    after
        .checked_sub(1)
        .and_then(|at| ranges.get(at))
        .is_some_and(|range| range.contains(&offset))
}

/// Returns where a scan has stopped, and the reason.
fn stop(scan: &LogScan<'_>, store: &StoreState<'_>) -> Result<(i64, String)> {
    let (at, log) = (scan.position(), store.log);
    let found = match scan.stopped_by() {
        // The scan came to its bound: there is damage, or nothing was written there when the bound was set.
        None if at < log.files_end() => Some(&log.read(at, Check::Structure)?.kind()),
        stopped_by => stopped_by,
    };
    let reason = match found {
        None if log.starts().next().is_none() => "there is no segment".to_owned(),
        None => "the last segment is full".to_owned(),
        Some(LogRecord::Corrupt(error) | LogRecord::NoRecord(error)) => error.text().to_string(),
        Some(LogRecord::Missing) => format!("no segment holds offset {at}"),
        Some(_) if store.shown_until() == Some(at) => "its writer has made nothing durable after it yet".to_owned(),
        Some(_) => "nothing is written after it".to_owned(),
    };
    Ok((at, reason))
}

/// Returns an entry that leads to a salvage record.
fn substitute_for_record(salvage_record: &MessageView<'_>) -> CqUnit {
    CqUnit {
        physical_offset: salvage_record.physical_offset(),
        size: salvage_record.size() as i32,
        tags_code: CqUnit::LOST,
    }
}

/// Returns the entry for messages that were lost in this stretch: it leads to the salvage record. `None` if none fits into the stretch.
fn substitute_for_lost(log: &LogFiles, lost: &Range<i64>) -> Option<CqUnit> {
    let (physical_offset, size) = log.first_salvage_record(lost)?;
    Some(CqUnit {
        physical_offset,
        size,
        tags_code: CqUnit::LOST,
    })
}

/// Returns the entry for messages of a missing segment. It is never written to a file.
fn substitute_for_hole(hole: i64) -> CqUnit {
    CqUnit {
        physical_offset: hole,
        size: MIN_RECORD_SIZE as i32,
        tags_code: CqUnit::LOST,
    }
}

fn note(report: &mut RecoveryReport, view: &MessageView<'_>) {
    (report.last_offset, report.last_store_time) = (view.physical_offset(), view.store_time());
}

/// The store times of the messages that were read, which show what is stale after damage.
struct StoreTimes {
    /// No message of a closed store is stale that a queue entry names, so all its store times count.
    is_clean: bool,
    /// The store time up to which the checkpoint covers messages.
    covered_until: i64,
    last: i64,
    last_covered: i64,
}

impl StoreTimes {
    fn new(store: &StoreState<'_>, scan_start: i64) -> Self {
        // No message comes before the first one of the log, so nothing confirms its store time.
        let before = if scan_start == store.log.first_offset() { 0 } else { i64::MAX };
        Self {
            is_clean: store.records.shutdown.is_clean(),
            covered_until: store.records.checkpoint.physic_msg_timestamp,
            last: before,
            last_covered: before,
        }
    }

    /// Adds the next message. The earlier one of the last two times counts, because one store time may be wrong.
    fn add(&mut self, report: &mut RecoveryReport, time: i64) {
        report.stale_before = if self.is_clean { time } else { self.last.min(time) };
        self.last = time;
        if time <= self.covered_until {
            report.covered_stale_before = self.last_covered.min(time);
            self.last_covered = time;
        }
    }
}
