//! The table of outcomes: the stores that an open for writing refuses, and does not change. docs/DURABILITY.md has it with all other
//! outcomes, in section "Opening a store after a crash".

use crate::error::{Error, Result};
use crate::format::{COMMIT_LOG_DIR, CONFIG_DIR, Check, FLUSHED_MARK_FILE, has_lost_bytes, is_salvage_record};
use crate::interrupt;
use crate::log::{LogRecord, RecordStarts};
use crate::recovery::lost_offsets::LostOffsets;
use crate::recovery::plan::{Missing, RecoveryReport};
use crate::recovery::store_state::StoreState;
use crate::remedy::Remedy;

/// The opens for which a row of the table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowExit {
    /// Every open.
    Any,
    /// An open after a clean exit.
    Clean,
    /// An open after a crash.
    Crash,
    /// A rebuild of a store whose log ends where it was closed.
    Rebuild,
}

impl RowExit {
    fn of(store: &StoreState<'_>, report: &RecoveryReport) -> Self {
        let was_closed = store.records.shutdown.closed_at(report.log_end) == Some(report.log_end);
        if store.intent.is_rebuild() && was_closed {
            Self::Rebuild
        } else {
            Self::of_reader(store)
        }
    }

    fn of_reader(store: &StoreState<'_>) -> Self {
        if store.records.shutdown.is_clean() {
            Self::Clean
        } else {
            Self::Crash
        }
    }
}

/// A check that fails with the reason of a refusal.
type Rule = fn(&StoreState<'_>, &RecoveryReport) -> Result<()>;

/// A row of the table of outcomes that refuses a store.
#[derive(Debug)]
pub struct Outcome {
    /// The opens for which it is.
    pub exit: RowExit,
    /// The first words of the row in docs/DURABILITY.md.
    pub found: &'static str,
    /// True if no intent helps.
    pub refuses_salvage: bool,
    /// Fails for a store that no writer may touch.
    writer: Rule,
    /// Fails for a store of which a reader reports that messages are missing.
    reader: Option<Rule>,
}

/// The rows that refuse a store, in the order in which they are checked and in which the table in docs/DURABILITY.md has them. A store that
/// none of them refuses is recovered.
pub const OUTCOMES: &[Outcome] = &[
    Outcome {
        exit: RowExit::Any,
        found: "a segment cut short or empty",
        refuses_salvage: true,
        writer: expect_segments,
        reader: Some(expect_no_hole),
    },
    Outcome {
        exit: RowExit::Any,
        found: "the log ends before the mark of what was flushed",
        refuses_salvage: false,
        writer: expect_flushed,
        reader: Some(expect_flushed),
    },
    Outcome {
        exit: RowExit::Rebuild,
        found: "damage ends the log before its last message",
        refuses_salvage: false,
        writer: expect_undamaged_end,
        reader: None,
    },
    Outcome {
        exit: RowExit::Clean,
        found: "queues ahead of the log",
        refuses_salvage: false,
        writer: expect_agreement,
        reader: Some(expect_all_agreement),
    },
    Outcome {
        exit: RowExit::Crash,
        found: "no whole record at the start of the log",
        refuses_salvage: false,
        writer: expect_first_record,
        reader: None,
    },
    Outcome {
        exit: RowExit::Crash,
        found: "damage before a message that a broker's checkpoint covers",
        refuses_salvage: false,
        writer: expect_covered_messages,
        reader: None,
    },
    Outcome {
        exit: RowExit::Crash,
        found: "the last message of our own stamp is damaged or missing",
        refuses_salvage: false,
        writer: expect_own_stamp,
        reader: Some(expect_stamped_message),
    },
    Outcome {
        exit: RowExit::Any,
        found: "the end of the log is missing",
        refuses_salvage: false,
        writer: expect_end,
        reader: Some(expect_end_beside_a_writer),
    },
];

/// Refuses a store that no writer may touch.
///
/// # Errors
/// [`Error::Corrupt`] names the file and byte and what to do; [`Error::Io`].
pub fn expect_recoverable(store: &StoreState<'_>, report: &RecoveryReport) -> Result<()> {
    let exit = RowExit::of(store, report);
    let rows = OUTCOMES.iter().filter(|row| row.exit == RowExit::Any || row.exit == exit);
    // What a slave cuts was on disk, and the records of its writer still say so.
    for row in rows.filter(|row| row.refuses_salvage || !store.intent.removes_messages()) {
        (row.writer)(store, report).map_err(of_writer)?;
    }
    Ok(())
}

/// Returns the sign that messages are missing; `None` without one. A store with an `abort` file may have a live writer, whose queues run
/// ahead of the log that was read. Then only a hole in the log, the mark of what was flushed, our own stamp, and, if no writer has the
/// store open, signs of a log without its end are looked at. `cut_off` is what [`find_cut_off`] has found.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn find_missing(store: &StoreState<'_>, report: &RecoveryReport, cut_off: Option<&CutOff>) -> Result<Option<Missing>> {
    let lost: i64 = report.lost.iter().map(|lost| lost.end - lost.start).sum();
    let exit = RowExit::of_reader(store);
    let mut rows = OUTCOMES
        .iter()
        .filter(|row| row.exit == RowExit::Any || row.exit == exit)
        .filter(|row| lost == 0 || row.refuses_salvage);
    let sign = match rows.try_for_each(|row| row.reader.map_or(Ok(()), |rule| rule(store, report))) {
        Ok(()) => None,
        Err(error @ Error::Corrupt { .. }) => Some(error),
        Err(error) => return Err(error),
    };
    // What a writer has removed, no later open reads.
    let is_removed = cut_off.is_some() && store.is_for_writing();
    let remedy = remedy_of_reader(cut_off.is_some(), sign.as_ref().and_then(Error::remedy)).filter(|_| !is_removed);
    let at = match (cut_off, &sign) {
        _ if lost > 0 => None,
        (Some(_), _) => Some(store.log.path_of(report.log_end)),
        (None, Some(Error::Corrupt { path, offset, .. })) => Some((path.clone(), *offset)),
        (None, _) => None,
    };
    let sign = match (cut_off, sign) {
        (Some(cut_off), sign) => Some(cut_off.describe(store, report, sign)),
        (None, sign) => sign.map(|sign| sign.text().to_string()),
    };
    let passed_over = (lost > 0).then(|| format!("{lost} bytes inside the log are damaged, and were passed over"));
    let signs: Vec<String> = passed_over.into_iter().chain(sign).collect();
    Ok((!signs.is_empty()).then(|| Missing {
        what: signs.join("; "),
        at,
        remedy,
    }))
}

/// Returns what helps a reader, which has the store open and may want to write next.
fn remedy_of_reader(is_cut_off: bool, of_sign: Option<Remedy>) -> Option<Remedy> {
    match (is_cut_off, of_sign) {
        // A gap stops a writer that salvages, too.
        (true, Some(Remedy::ReadAroundGap)) => Some(Remedy::SalvageOrPutBack),
        (true, _) => Some(Remedy::SalvagePastEnd),
        (false, Some(Remedy::ReadAroundGap)) => Some(Remedy::SkipOrPutBack),
        (false, Some(Remedy::SalvageOrRead)) => Some(Remedy::SkipOrSalvage),
        (false, of_sign) => of_sign,
    }
}

/// Returns the refusal with what helps a writer.
fn of_writer(refusal: Error) -> Error {
    match refusal.remedy() {
        Some(Remedy::SalvagePastEnd) => refusal.with_remedy(Remedy::SalvageOrRead),
        _ => refusal,
    }
}

/// Refuses a log that ends at an unreadable page, or of which a segment is cut short, empty or missing.
fn expect_segments(store: &StoreState<'_>, report: &RecoveryReport) -> Result<()> {
    let log = store.log;
    log.expect_whole()?;
    for end in report.lost.iter().map(|lost| lost.start).chain([report.log_end]) {
        log.expect_readable(end)?;
    }
    expect_no_hole(store, report)
}

/// Refuses a log whose first record is damaged.
fn expect_first_record(store: &StoreState<'_>, report: &RecoveryReport) -> Result<()> {
    if report.log_end != store.log.first_offset() {
        return Ok(());
    }
    let end = report.log_end;
    let Some(first) = store.record_starts().next_record(end, end + 1, report.stale_before)? else {
        return Ok(());
    };
    let reason = format!("no message starts here ({}), but one starts at {first}", report.stop_reason);
    Err(refuse(store, report, reason))
}

/// Refuses a log that ends before a message that the checkpoint covers.
fn expect_covered_messages(store: &StoreState<'_>, report: &RecoveryReport) -> Result<()> {
    let Some(last) = last_covered(store, report)?.filter(|_| !is_stale(store, report)) else {
        return Ok(());
    };
    let stop = &report.stop_reason;
    let reason = format!("{stop}; a later message, at {last}, was on disk before the crash");
    Err(refuse(store, report, reason))
}

/// Refuses a log that ends before the message of our own stamp.
fn expect_own_stamp(store: &StoreState<'_>, report: &RecoveryReport) -> Result<()> {
    let Some(stamped) = store.own_stamp().filter(|stamped| *stamped >= report.log_end) else {
        return Ok(());
    };
    let reason = format!("{}; a message at {stamped} was on disk before the crash", report.stop_reason);
    Err(refuse(store, report, reason))
}

/// Returns the refusal of a store at the end of its log, of which a salvage keeps every whole message.
fn refuse(store: &StoreState<'_>, report: &RecoveryReport, reason: String) -> Error {
    let error = store.log.corrupt(report.log_end, reason);
    error.with_remedy(Remedy::SalvageOrRead)
}

/// Refuses a closed store of which a file is not whole, or whose files contradict each other.
fn expect_all_agreement(store: &StoreState<'_>, report: &RecoveryReport) -> Result<()> {
    store.log.expect_whole()?;
    expect_agreement(store, report)?;
    store.queues.expect_whole()
}

/// Returns true if the records past the end are stale: they were there when the store was closed, and no message was appended since.
/// Such records may have the store time of the last message.
fn is_stale(store: &StoreState<'_>, report: &RecoveryReport) -> bool {
    store.records.shutdown.closed_at(report.log_end) == Some(report.log_end)
        && store.records.checkpoint.physic_msg_timestamp <= report.last_store_time
}

/// Whole messages after the end of the log of a crashed store, or bytes there that were not searched for them. Only a salvage reads them.
#[derive(Debug)]
pub(super) struct CutOff {
    /// The start of the first of them; `None` if none was found in the bytes that were searched.
    first: Option<i64>,
    /// The end of the last bytes that were written after the log.
    written_until: i64,
    /// The number of these bytes that were not searched.
    unsearched: i64,
    /// All of them that were found, for a writer, which removes them.
    pub(super) messages: LostOffsets,
}

impl CutOff {
    /// Says where the log ends and what follows, with another sign of missing messages.
    fn describe(&self, store: &StoreState<'_>, report: &RecoveryReport, sign: Option<Error>) -> String {
        let log = store.log;
        let (follow, removed) = self.describe_messages(store.is_for_writing());
        let end_of_log = |removed: &str| {
            let reason = format!("the log ends here ({}), and {follow}{removed}", report.stop_reason);
            log.corrupt(report.log_end, reason).text().to_string()
        };
        let Some(sign) = sign else {
            return end_of_log(removed);
        };
        let end = log.path_of(report.log_end);
        let is_at_end = matches!(&sign, Error::Corrupt { path, offset, .. } if *path == end.0 && *offset == end.1);
        if is_at_end {
            format!("{}; {follow}", sign.text())
        } else {
            format!("{}; {}", end_of_log(""), sign.text())
        }
    }

    /// Says what follows the log, and what the next writer does with it, if this open is not that of a writer.
    fn describe_messages(&self, is_for_writing: bool) -> (String, &'static str) {
        let Some(first) = self.first else {
            let follow = format!("{} bytes that follow were not searched for whole messages", self.unsearched);
            return if is_for_writing {
                (format!("{follow}: this open removes them"), "")
            } else {
                (follow, ", and the next start of a writer removes them")
            };
        };
        let follow = format!(
            "whole messages follow in {} bytes, the first at {first}",
            self.written_until - first
        );
        let Some(messages) = self.messages.describe() else {
            return (
                format!("{follow}: they are not read"),
                ", and the next start of a writer removes them",
            );
        };
        let rest = match self.unsearched {
            0 => String::new(),
            unsearched => format!(", and {unsearched} bytes were not searched for more"),
        };
        (format!("{follow}: this open removes them: {messages}{rest}"), "")
    }
}

/// The bytes after the end of a crashed log that an open searches for whole messages. A search of more would take seconds.
const MAX_SEARCHED: i64 = 256 << 20;
/// The damaged stretches among these messages after which the search continues. For each, every queue is looked at.
const MAX_STRETCHES: usize = 1000;

/// Finds the whole messages after the end of the log of a crashed store. A record that is torn at the end of the log, as a crash leaves it,
/// is followed by none. Beside a live writer the log only grows. Call it before the queues drop their entries past the end: they show
/// where records start.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn find_cut_off(store: &StoreState<'_>, report: &RecoveryReport) -> Result<Option<CutOff>> {
    let (log, end) = (store.log, report.log_end);
    if store.records.shutdown.is_clean() || store.is_written_to() || store.intent.removes_messages() {
        return Ok(None);
    }
    let until = end.saturating_add(MAX_SEARCHED);
    let starts = store.record_starts().up_to(until);
    let searched = search(&starts, end, report.stale_before)?;
    if searched == Searched::Absent && log.files_end() <= until {
        return Ok(None);
    }
    // A writer that cannot be seen has appended here since, unless this is the record whose torn end ended the scan.
    if let LogRecord::Message(message) = log.read(end, store.check)?
        && !(store.is_own(end) && has_lost_bytes(&message.view()))
    {
        return Ok(None);
    }
    let written_until = log.written_until(end)?;
    let (first, (messages, searched_until)) = match searched {
        Searched::Found(first) if store.is_for_writing() => {
            (Some(first), find_whole_messages(store, report, &starts, first, until)?)
        }
        Searched::Found(first) => (Some(first), (LostOffsets::default(), until)),
        Searched::Absent => (None, (LostOffsets::default(), until)),
        Searched::GivenUp => (None, (LostOffsets::default(), end)),
    };
    let unsearched = written_until.saturating_sub(searched_until).max(0);
    Ok((first.is_some() || unsearched > 0).then_some(CutOff {
        first,
        written_until,
        unsearched,
        messages,
    }))
}

/// The outcome of a search for the next whole message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Searched {
    /// It starts here.
    Found(i64),
    Absent,
    /// Too many bytes imitate records.
    GivenUp,
}

/// Searches for the next whole message after `at`.
fn search(starts: &RecordStarts<'_>, at: i64, since: i64) -> Result<Searched> {
    match starts.next_record(at, at.saturating_add(1), since) {
        Err(Error::Corrupt { .. }) => Ok(Searched::GivenUp),
        found => Ok(found?.map_or(Searched::Absent, Searched::Found)),
    }
}

/// Finds the offsets of the whole messages from `first` on, which lies after the end of the log, and before `until`. Returns also where the
/// search ended.
fn find_whole_messages(
    store: &StoreState<'_>,
    report: &RecoveryReport,
    starts: &RecordStarts<'_>,
    first: i64,
    until: i64,
) -> Result<(LostOffsets, i64)> {
    let mut messages = LostOffsets::default();
    let mut at = first;
    for _ in 0..MAX_STRETCHES {
        let mut scan = store.log.scan(at, store.log.files_end().min(until), store.check);
        for message in scan.by_ref() {
            interrupt::check()?;
            let message = message?;
            let view = message.view();
            if !is_salvage_record(&view) {
                messages.add(&view.topic(), view.queue_id(), view.queue_offset());
            }
        }
        let end = scan.position();
        at = match search(starts, end, report.stale_before)? {
            Searched::Found(next) => next,
            Searched::Absent => return Ok((messages, until)),
            Searched::GivenUp => return Ok((messages, end)),
        };
    }
    Ok((messages, at))
}

/// Refuses a log that ends before the mark of what was flushed, or starts after it. A live writer does not explain such an end: an open
/// reads the mark before the log.
fn expect_flushed(store: &StoreState<'_>, report: &RecoveryReport) -> Result<()> {
    let (start, end) = (store.log.first_offset(), report.log_end);
    let Some(flushed) = store.records.flushed.filter(|flushed| *flushed > end || *flushed < start) else {
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
         ({COMMIT_LOG_DIR}/ last)"
    );
    Err(store.log.corrupt(at, reason).with_remedy(Remedy::SalvageOrRead))
}

/// Refuses a log with a segment that is cut short before others, or missing between others. Damage may end the log of a crashed store before
/// such a gap.
fn expect_no_hole(store: &StoreState<'_>, _report: &RecoveryReport) -> Result<()> {
    let log = store.log;
    if let Some((path, len)) = log.cut_short().first() {
        let reason = format!(
            "the segment ends here, {} bytes were expected, and later segments are there: copy it again",
            log.segment_size()
        );
        return Err(Error::corrupt(path, *len, reason).with_remedy(Remedy::ReadAroundGap));
    }
    log.first_hole().map_or(Ok(()), |hole| {
        let reason = "this segment is missing, and later ones are there: put it back".to_owned();
        Err(log.corrupt(hole, reason).with_remedy(Remedy::ReadAroundGap))
    })
}

/// Finds the last whole record past the end of the log that the checkpoint covers: its store time is not later than the stamp. Records of
/// other times do not matter, because one store time may be wrong, and the clock of a broker may have been set back. No record follows a
/// log that ends at its start: [`expect_first_record`] has refused such a store.
fn last_covered(store: &StoreState<'_>, report: &RecoveryReport) -> Result<Option<i64>> {
    let checkpoint = store.records.checkpoint;
    let until = checkpoint.physic_msg_timestamp;
    let mut covered = None;
    if report.log_end == store.log.first_offset() || until <= 0 {
        return Ok(covered);
    }
    let since = report.covered_stale_before;
    let mut at = report.log_end;
    let mut starts = store.record_starts();
    // The log that was read reaches the stamp by the times of its messages. Covered messages follow it only if one of these is wrong.
    let is_reached = report.last_store_time >= until;
    if is_reached {
        starts = starts.up_to(at.saturating_add(MAX_SEARCHED));
    }
    while let Some(next) = match starts.next_record(at, at + 1, since) {
        Err(Error::Corrupt { .. }) if is_reached => None,
        next => next?,
    } {
        let mut scan = store.log.scan(next, store.log.files_end(), store.check);
        for message in scan.by_ref() {
            interrupt::check()?;
            let message = message?;
            let view = message.view();
            let is_after_stamp = checkpoint.is_ours() && view.physical_offset() > checkpoint.logics_physical_offset;
            if (since..=until).contains(&view.store_time()) && !is_after_stamp {
                covered = Some(view.physical_offset());
            }
        }
        at = scan.position();
    }
    Ok(covered)
}

/// Refuses a closed store whose files contradict each other. A part of its log may be missing, and an append would reuse the offsets of
/// that part.
fn expect_agreement(store: &StoreState<'_>, report: &RecoveryReport) -> Result<()> {
    let refused = |reason: String| Err(refuse(store, report, reason));
    store.log.expect_last_segment_at(report.log_end)?;
    if report.queue_entries_ahead > 0 {
        return refused(format!(
            "the log ends here ({}), and {} queue entries point at or past its end: a part of the log is missing; put it back",
            report.stop_reason, report.queue_entries_ahead
        ));
    }
    // No margin: a store that a broker closed just after its clock was set back is refused, too.
    let stamped = store.records.checkpoint.physic_msg_timestamp;
    if stamped > report.last_store_time {
        return refused(format!(
            "the log ends here ({}) with a message of time {}, and the checkpoint says that one of time {stamped} is on disk: a part \
             of the log is missing or damaged",
            report.stop_reason, report.last_store_time
        ));
    }
    Ok(())
}

/// Refuses to rebuild queues and index from a log that damage has ended, and not its last message. Queues and checkpoint are not asked:
/// they may be what is damaged.
fn expect_undamaged_end(store: &StoreState<'_>, report: &RecoveryReport) -> Result<()> {
    let (log, end) = (store.log, report.log_end);
    let found = match log.read(end, store.check)? {
        LogRecord::Corrupt(_) => Some(end),
        _ => store.record_starts().next_record(end, end + 1, report.stale_before)?,
    };
    let Some(found) = found else {
        return log.expect_last_segment_at(end);
    };
    let continuation = if found == end {
        String::new()
    } else {
        format!(", and a message starts at {found}")
    };
    let reason = format!(
        "the log ends here ({}){continuation}: a part of the log is damaged",
        report.stop_reason
    );
    Err(log.corrupt(end, reason).with_remedy(Remedy::Repair))
}

/// Refuses a log that ends before the message of our own stamp. A live writer does not explain such an end: it stamps only what the log
/// and the queues hold, and an open reads the stamp before the log.
fn expect_stamped_message(store: &StoreState<'_>, report: &RecoveryReport) -> Result<()> {
    let stamped = store.records.checkpoint.logics_physical_offset;
    if !store.records.checkpoint.is_ours() || stamped < report.log_end {
        return Ok(());
    }
    let reason = format!(
        "the log ends here ({}), and {} queue entries point at or past its end; the checkpoint says that the message at {stamped} was \
         on disk: a part of the log is missing or damaged",
        report.stop_reason, report.queue_entries_ahead
    );
    Err(refuse(store, report, reason))
}

/// Refuses a log whose end is missing.
///
/// # Errors
/// [`Error::Corrupt`].
pub(super) fn expect_end(store: &StoreState<'_>, report: &RecoveryReport) -> Result<()> {
    let Some(sign) = find_sign(store, report) else {
        return Ok(());
    };
    let reason = format!(
        "the log ends here ({}), and {sign}: a part of the log is missing; put its segments back (is the disk of the log mounted?), or \
         copy the store again with commitlog/ last if this is a copy of a store that was being written to",
        report.stop_reason
    );
    Err(refuse(store, report, reason))
}

/// Refuses a log whose end is missing, unless a live writer explains it by extending queues, index and log after the log was listed.
/// The segments are listed again in case the writer holds no lock that this process sees.
///
/// # Errors
/// As [`expect_end`], [`Error::Io`].
pub(super) fn expect_end_beside_a_writer(store: &StoreState<'_>, report: &RecoveryReport) -> Result<()> {
    if store.is_written_to() || find_sign(store, report).is_none() {
        return Ok(());
    }
    let end = store.log.files_end();
    store.log.list_again(report.log_end)?;
    let has_grown =
        store.log.files_end() > end || matches!(store.log.read(report.log_end, Check::Structure)?, LogRecord::Message(_));
    if has_grown { Ok(()) } else { expect_end(store, report) }
}

/// Describes what shows that the end of the log is missing. One entry, item or stamp that names an offset past the last segment may be
/// damaged itself, so two are needed unless there is no segment at all.
fn find_sign(store: &StoreState<'_>, report: &RecoveryReport) -> Option<String> {
    let (log, checkpoint) = (store.log, store.records.checkpoint);
    let segments_end = log.files_end();
    // After a power failure our queue files may have torn sectors. The mark of what was flushed shows what is missing of our log.
    let is_marked = !store.records.shutdown.is_clean() && segments_end > 0 && store.records.flushed.is_some();
    let entries = if is_marked { 0 } else { report.queue_entries_past_segments };
    let item = store.last_indexed.filter(|at| *at >= segments_end);
    let stamped = Some(checkpoint.logics_physical_offset).filter(|at| *at > 0 && *at >= segments_end);
    let named = [
        (entries > 0).then(|| format!("{entries} queue entries")),
        item.map(|at| format!("an index item of the message at {at}")),
        stamped.map(|at| format!("a stamp of the message at {at}")),
    ];
    let named: Vec<String> = named.into_iter().flatten().collect();
    // A rebuild does not trust the queues: damage of one of them must not keep it from making all of them again.
    let is_shown = entries > 1 && !store.intent.is_rebuild();
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
    (ahead > 1 && !store.is_own(report.log_end)).then(|| format!("{ahead} queue entries lead into it"))
}
