//! What a writing open does with what it found: it goes on, or refuses the store and does not change it. The table of outcomes is in
//! docs/DURABILITY.md, section "Opening a store after a crash". The rows that name [`expect_recoverable`] are decided here.

use crate::error::{Error, Result};
use crate::format::{COMMIT_LOG_DIR, CONFIG_DIR, Check, FLUSHED_MARK_FILE, has_lost_bytes};
use crate::interrupt;
use crate::log::{LogFiles, LogRecord};
use crate::recovery::opened::Opened;
use crate::recovery::plan::RecoveryReport;

/// Refuses what no writer may touch.
///
/// # Errors
/// [`Error::Corrupt`] names the place and what to do; [`Error::Io`].
pub fn expect_recoverable(opened: &Opened<'_>, report: &RecoveryReport) -> Result<()> {
    let log = opened.log;
    log.expect_whole()?;
    for end in report.lost.iter().map(|lost| lost.start).chain([report.log_end]) {
        log.expect_readable(end)?;
    }
    expect_no_hole(log)?;
    if opened.intent.is_salvage() {
        return Ok(());
    }
    expect_flushed(opened, report)?;
    let was_closed = opened.found.closed_at(report.log_end) == Some(report.log_end);
    if opened.intent.is_rebuild() && was_closed {
        expect_undamaged_end(opened, report)?;
        return expect_end(opened, report);
    }
    if opened.found.is_clean() {
        expect_agreement(opened, report)?;
        return expect_end(opened, report);
    }
    let after = records_after(opened, report)?;
    // Only our own stamp counts here: a broker with a pool of buffers stamps messages that are in memory only.
    let stamped = opened.own_stamp();
    let refused = if let Some(first) = after.first.filter(|_| report.log_end == log.first_offset()) {
        format!("no message starts here ({}), but one starts at {first}", report.stop_reason)
    } else if let Some(last) = after.covered.filter(|_| !is_stale(opened, report)) {
        format!(
            "{}; a later message, at {last}, was on disk before the crash",
            report.stop_reason
        )
    } else if let Some(stamped) = stamped.filter(|stamped| *stamped >= report.log_end) {
        format!("{}; a message at {stamped} was on disk before the crash", report.stop_reason)
    } else {
        return expect_end(opened, report);
    };
    let advice =
        "; open the store with recovery=\"salvage\" to keep every whole message, or with mode \"r\" to read it unchanged";
    Err(log.corrupt(report.log_end, refused + advice))
}

/// Whether the records past the end are stale: they were there when the store was closed, and no message was appended since. Such records
/// may have the store time of the last message.
fn is_stale(opened: &Opened<'_>, report: &RecoveryReport) -> bool {
    opened.found.closed_at(report.log_end) == Some(report.log_end)
        && opened.checkpoint.physic_msg_timestamp <= report.last_store_time
}

/// What shows that messages are missing; `None` if nothing does. A store with an `abort` file may have a live writer, whose queues run
/// ahead of the log that was read. Then only a hole in the log, the mark of what was flushed, our own stamp, and, if no writer has the
/// store open, signs of a log without its end are looked at.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn find_missing(opened: &Opened<'_>, report: &RecoveryReport) -> Result<Option<String>> {
    let lost: i64 = report.lost.iter().map(|lost| lost.end - lost.start).sum();
    if lost > 0 {
        return Ok(Some(format!("{lost} bytes inside the log are damaged, and were passed over")));
    }
    let agreed = expect_no_hole(opened.log)
        .and_then(|()| expect_flushed(opened, report))
        .and_then(|()| {
            if opened.found.is_clean() {
                opened.log.expect_whole()?;
                expect_agreement(opened, report)?;
                opened.queues.expect_whole()
            } else {
                expect_stamped_message(opened, report)
            }
        })
        .and_then(|()| expect_end_beside_a_writer(opened, report));
    match agreed {
        Ok(()) => Ok(None),
        Err(error @ Error::Corrupt { .. }) => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}

/// What shows that the log of a crashed store ends before whole messages, which its next writer removes; `None` if nothing does.
/// A record that is torn at the end of the log, as a crash leaves it, is followed by none. Beside a live writer the log only
/// grows.
///
/// # Errors
/// [`Error::Io`]; [`Error::Corrupt`] as [`RecordStarts::next_record`](crate::log::RecordStarts::next_record).
pub(super) fn find_cut(opened: &Opened<'_>, report: &RecoveryReport) -> Result<Option<String>> {
    let (log, end) = (opened.log, report.log_end);
    if opened.found.is_clean() || opened.is_written_to() || opened.intent.is_salvage() {
        return Ok(None);
    }
    let Some(next) = opened
        .record_starts()
        .next_record(end, end.saturating_add(1), report.last_store_time)?
    else {
        return Ok(None);
    };
    // A writer that cannot be seen has appended here since, unless this is the record whose torn end ended the scan.
    if let LogRecord::Message(message) = log.read(end, opened.check)?
        && !(opened.is_own(end) && has_lost_bytes(&message.view()))
    {
        return Ok(None);
    }
    let reason = format!(
        "the log ends here ({}), and whole messages follow, the first at {next}: they are not read, and the next start of a writer removes \
         them; open the store with recovery=\"salvage\" to read what is whole on both sides",
        report.stop_reason
    );
    Ok(Some(log.corrupt(end, reason).to_string()))
}

/// Refuses a log that ends before the mark of what was flushed, or starts after it. A live writer does not explain such an end: an open
/// reads the mark before the log.
fn expect_flushed(opened: &Opened<'_>, report: &RecoveryReport) -> Result<()> {
    let (start, end) = (opened.log.first_offset(), report.log_end);
    let Some(flushed) = opened.flushed.filter(|flushed| *flushed > end || *flushed < start) else {
        return Ok(());
    };
    // A segment that was made ahead may be all that is left.
    let (at, found) = if flushed < start {
        (start, "starts here".to_owned())
    } else {
        (end, format!("ends here ({})", report.stop_reason))
    };
    let reason = format!(
        "the log {found}, and {CONFIG_DIR}/{FLUSHED_MARK_FILE} says that it was on disk up to {flushed}: acknowledged messages are \
         damaged or missing, or this is a copy made while the store was written; put the segments back, or copy the store again \
         ({COMMIT_LOG_DIR}/ last), or open it with recovery=\"salvage\" to keep every whole message, or with mode \"r\" to read it unchanged"
    );
    Err(opened.log.corrupt(at, reason))
}

fn expect_no_hole(log: &LogFiles) -> Result<()> {
    if let Some((path, len)) = log.cut_short().first() {
        let reason = format!(
            "the segment ends here, {} bytes were expected, and later segments are there: copy it again; mode \"r\" reads the messages \
             before and after the gap",
            log.segment_size()
        );
        return Err(Error::Corrupt {
            path: path.clone(),
            offset: *len,
            reason,
        });
    }
    log.first_hole().map_or(Ok(()), |hole| {
        let reason =
            "this segment is missing, and later ones are there: put it back; mode \"r\" reads the messages before and after it";
        Err(log.corrupt(hole, reason.to_owned()))
    })
}

/// Whole records after the end of the log.
struct RecordsAfter {
    first: Option<i64>,
    /// The last one that the checkpoint covers.
    covered: Option<i64>,
}

/// Finds whole records past the end of the log. It stops at the first one that was stored after the checkpoint: store times do not fall,
/// so the checkpoint covers none after it.
fn records_after(opened: &Opened<'_>, report: &RecoveryReport) -> Result<RecordsAfter> {
    let until = opened.checkpoint.physic_msg_timestamp;
    let mut after = RecordsAfter {
        first: None,
        covered: None,
    };
    let is_start = report.log_end == opened.log.first_offset();
    if !is_start && report.last_store_time > until {
        return Ok(after);
    }
    let mut at = report.log_end;
    while let Some(next) = opened.record_starts().next_record(at, at + 1, report.last_store_time)? {
        after.first.get_or_insert(next);
        let mut scan = opened.log.scan(next, opened.log.files_end(), opened.check);
        for message in scan.by_ref() {
            interrupt::check()?;
            let message = message?;
            let view = message.view();
            if view.store_time() > until {
                return Ok(after);
            }
            after.covered = Some(view.physical_offset());
        }
        at = scan.position();
    }
    Ok(after)
}

/// Refuses a closed store whose files contradict each other. A part of its log may be missing, and an append would overwrite the place of
/// that part.
fn expect_agreement(opened: &Opened<'_>, report: &RecoveryReport) -> Result<()> {
    let refused = |reason: String| Err(opened.log.corrupt(report.log_end, reason));
    opened.log.expect_last_segment_at(report.log_end)?;
    if report.queue_entries_ahead > 0 {
        return refused(format!(
            "the log ends here ({}), and {} queue entries point at or past its end: a part of the log is missing; put it back, or \
             open the store with recovery=\"salvage\" to keep every whole message",
            report.stop_reason, report.queue_entries_ahead
        ));
    }
    // No margin: a store that a broker closed just after its clock was set back is refused, too.
    let stamped = opened.checkpoint.physic_msg_timestamp;
    if stamped > report.last_store_time {
        return refused(format!(
            "the log ends here ({}) with a message of time {}, and the checkpoint says that one of time {stamped} is on disk: a part \
             of the log is missing or damaged; open the store with recovery=\"salvage\" to keep every whole message",
            report.stop_reason, report.last_store_time
        ));
    }
    Ok(())
}

/// Refuses to rebuild queues and index from a log that damage has ended, and not its last message. Queues and checkpoint are not asked:
/// they may be what is damaged.
fn expect_undamaged_end(opened: &Opened<'_>, report: &RecoveryReport) -> Result<()> {
    let (log, end) = (opened.log, report.log_end);
    let found = match log.read(end, opened.check)? {
        LogRecord::Corrupt(_) => Some(end),
        _ => opened.record_starts().next_record(end, end + 1, report.last_store_time)?,
    };
    let Some(found) = found else {
        return log.expect_last_segment_at(end);
    };
    let goes_on = if found == end {
        String::new()
    } else {
        format!(", and a message starts at {found}")
    };
    let reason = format!(
        "the log ends here ({}){goes_on}: a part of the log is damaged: mqstore repair keeps every whole message",
        report.stop_reason
    );
    Err(log.corrupt(end, reason))
}

/// Refuses a log that ends before the message of our own stamp. A live writer does not explain such an end: it stamps only what the log
/// and the queues hold, and an open reads the stamp before the log.
fn expect_stamped_message(opened: &Opened<'_>, report: &RecoveryReport) -> Result<()> {
    let stamped = opened.checkpoint.logics_physical_offset;
    if !opened.checkpoint.is_ours() || stamped < report.log_end {
        return Ok(());
    }
    let reason = format!(
        "the log ends here ({}), and {} queue entries point at or past its end; the checkpoint says that the message at {stamped} was \
         on disk: a part of the log is missing or damaged; open the store with recovery=\"salvage\" to keep every whole message",
        report.stop_reason, report.queue_entries_ahead
    );
    Err(opened.log.corrupt(report.log_end, reason))
}

/// Refuses a log whose end is missing.
///
/// # Errors
/// [`Error::Corrupt`].
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
/// As [`expect_end`], [`Error::Io`].
pub(super) fn expect_end_beside_a_writer(opened: &Opened<'_>, report: &RecoveryReport) -> Result<()> {
    if opened.is_written_to() || find_sign(opened, report).is_none() {
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
    let is_marked = !opened.found.is_clean() && segments_end > 0 && opened.flushed.is_some();
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
    let is_shown = entries > 1 && !opened.intent.is_rebuild();
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
