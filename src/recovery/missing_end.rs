//! Signs that the end of a log, or all of it, is missing: an unmounted disk, a segment that was not copied. No crash removes a segment
//! that queue entries name, so a writer that truncated the queues there would assign their queue offsets a second time.

use crate::error::Result;
use crate::format::Check;
use crate::log::LogRecord;
use crate::recovery::report::RecoveryReport;
use crate::recovery::store_files::Opened;

/// Refuses a log whose end is missing.
///
/// # Errors
/// [`crate::error::Error::Corrupt`].
pub(super) fn expect_end(opened: &Opened<'_>, report: &RecoveryReport) -> Result<()> {
    let Some(sign) = find_sign(opened, report) else {
        return Ok(());
    };
    let reason = format!(
        "the log ends here ({}), and {sign}: a part of the log is missing; put its segments back (is the disk of the log mounted?), or \
         copy the store again with commitlog/ last if this is a copy of a store that was being written to, or open the store with \
         recovery=\"salvage\" to keep every whole message, or with mode \"r\" to read it unchanged",
        report.stop_reason
    );
    Err(opened.log.corrupt(report.log_end, reason))
}

/// Refuses a log whose end is missing, unless a live writer explains it by extending queues, index and log after the log was listed.
/// The segments are listed again in case the writer holds no lock that this process sees.
///
/// # Errors
/// As [`expect_end`], [`crate::error::Error::Io`].
pub(super) fn expect_end_beside_a_writer(opened: &Opened<'_>, report: &RecoveryReport) -> Result<()> {
    if opened.is_written_to || find_sign(opened, report).is_none() {
        return Ok(());
    }
    let end = opened.log.files_end();
    opened.log.list_again(report.log_end)?;
    let has_grown =
        opened.log.files_end() > end || matches!(opened.log.read(report.log_end, Check::Structure)?, LogRecord::Message(_));
    if has_grown { Ok(()) } else { expect_end(opened, report) }
}

/// Describes what shows that the end of the log is missing. One entry, item or stamp that names a place past the last segment may be
/// damaged itself, so two are needed unless there is no segment at all.
fn find_sign(opened: &Opened<'_>, report: &RecoveryReport) -> Option<String> {
    let (log, checkpoint) = (opened.log, opened.checkpoint);
    let segments_end = log.files_end();
    // After a power failure our queue files may have torn sectors. The mark of what was flushed shows what is missing of our log.
    let is_marked = !opened.clean && segments_end > 0 && opened.flushed.is_some();
    let entries = if is_marked { 0 } else { report.queue_entries_past_segments };
    let item = opened.last_indexed.filter(|at| *at >= segments_end);
    let stamped = Some(checkpoint.logics_physical_offset).filter(|at| *at > 0 && *at >= segments_end);
    let named = [
        (entries > 0).then(|| format!("{entries} queue entries")),
        item.map(|at| format!("an index item of the message at {at}")),
        stamped.map(|at| format!("a stamp of the message at {at}")),
    ];
    let named: Vec<String> = named.into_iter().flatten().collect();
    // A rebuild does not trust the queues: damage of one of them must not keep it from making all of them again.
    let is_shown = entries > 1 && !opened.is_rebuilt;
    if is_shown || named.len() > 1 || (segments_end == 0 && !named.is_empty()) {
        return Some(format!("{} lead past the last segment", named.join(" and ")));
    }
    // If the log starts later, all messages may have expired but those of a segment that was made ahead.
    if report.log_end > 0 {
        return None;
    }
    // A broker with a transient store pool stamps messages that are in memory only.
    let stamp = checkpoint.physic_msg_timestamp.max(checkpoint.logics_msg_timestamp);
    if stamp > 0 && (segments_end == 0 || checkpoint.is_ours()) {
        return Some(format!("the checkpoint says that a message of time {stamp} is on disk"));
    }
    // Our own queue entries may reach the disk before their messages in a power failure; the mark of what was flushed decides then.
    let ahead = report.queue_entries_ahead;
    (ahead > 1 && !opened.is_own(report.log_end)).then(|| format!("{ahead} queue entries lead into it"))
}
