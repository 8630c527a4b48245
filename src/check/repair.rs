//! Repairs what was found: queues, index and checkpoint are rebuilt from the log, damage of the log is salvaged, records that name another
//! place than their queue entry are corrected or, without a proof of their place, replaced, and files that do not belong there are set aside.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use crate::check::contradictions::Correction;
use crate::check::finding_id::{FindingId, Fix, PAST_END, Severity};
use crate::check::findings::{Finding, first_to_mend};
use crate::check::missing_log::MissingLog;
use crate::check::queues::could_be_of_record;
use crate::check::set_aside::{copy_store, expect_empty, set_aside};
use crate::check::verify::{VerifyReport, VerifyRequest, verify};
use crate::config::{Recovery, StoreConfig};
use crate::error::{Error, Result};
use crate::format::{COMMIT_LOG_DIR, CONSUME_QUEUE_DIR, Check, segment_name};
use crate::interrupt;
use crate::log::{ConsumeQueueStore, LogFiles, LogRecord};
use crate::read::MessageReader;
use crate::recovery::{LostOffsets, RecoveryReport};
use crate::remedy::Remedy;
use crate::services::{Next, Service};
use crate::storage::Env;
use crate::store::{MessageStore, OpenMode, expect_outside, expect_unlocked, find_for_rebuild, take_lock};

/// The options of a repair.
#[derive(Debug, Clone, Copy)]
pub struct RepairRequest<'a> {
    /// True for a dry run: the report lists the changes and none is made.
    pub is_dry_run: bool,
    /// The directory that gets a repaired copy; the store stays as it is.
    pub into: Option<&'a Path>,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// All files are copied, and the copy is repaired.
    Copy,
    /// The file is moved into the backup.
    SetAside,
    /// The segment is copied into the backup, because it is changed.
    BackUp,
    /// The right place in the queues is written into a record.
    Correct,
    /// A segment that is missing or cut short is made in the copy, with salvage records.
    Fill,
    /// A salvage record is put over a stretch that holds no whole record.
    Salvage,
    /// Queues, index and checkpoint are made again from the log.
    Rebuild,
}

impl Action {
    /// Returns its name in Python and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::SetAside => "set_aside",
            Self::BackUp => "back_up",
            Self::Correct => "correct",
            Self::Fill => "fill",
            Self::Salvage => "salvage",
            Self::Rebuild => "rebuild",
        }
    }
}

/// One change, made or planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The kind of the change.
    pub action: Action,
    /// The file or directory.
    pub file: PathBuf,
    /// The change in a sentence.
    pub what: String,
}

/// The report of a repair, or of its dry run.
#[derive(Debug, Clone)]
pub struct RepairReport {
    /// The store that was repaired, or its repaired copy.
    pub path: PathBuf,
    /// True if nothing was changed.
    pub is_dry_run: bool,
    /// The findings before it.
    pub found: VerifyReport,
    /// The changes, in order; none if nothing has to be done.
    pub changes: Vec<Change>,
    /// The reason why log, queues and index are left as they are, although something is wrong with them.
    pub refusal: Option<Error>,
    /// The directory of the files that were set aside, if there are any.
    pub backup: Option<PathBuf>,
    /// Stretches of the log whose messages are lost.
    pub lost: Vec<Range<i64>>,
    /// The findings after it; of a dry run: those that it would not fix. Without notes.
    pub left: Vec<Finding>,
}

impl RepairReport {
    /// Returns what helps after the refusal; without one, what helps to read a store that has lost messages.
    pub fn remedy(&self) -> Option<Remedy> {
        match &self.refusal {
            Some(refusal) => refusal.remedy(),
            None => (!self.lost.is_empty()).then_some(Remedy::Skip),
        }
    }
}

/// Makes queues, index and checkpoint of the store at `path` again from its log. Entries of messages that have expired stay.
/// `progress` is called as by [`repair`].
///
/// # Errors
/// [`Error::Corrupt`] for a log that is damaged, or of which a part is missing, and for a queue entry and a message that
/// contradict each other about a place: the store stays as it is. [`Error::Locked`], unless it is a dry run; those of [`verify`],
/// [`MessageStore::open`] and [`MessageStore::close`]. It may be called again after an error.
pub fn rebuild(
    env: &Arc<dyn Env>,
    path: &Path,
    config: &StoreConfig,
    is_dry_run: bool,
    mut progress: impl FnMut(i64, i64) -> Result<()>,
) -> Result<RepairReport> {
    if !is_dry_run {
        expect_unlocked(env.as_ref(), path, config.lock_timeout)?;
    }
    let subject = Subject { env, path, config };
    let found = subject.look(&mut progress)?;
    let plan = Plan::of_rebuild(subject, &found, !is_dry_run)?;
    if let Some(refusal) = plan.refusal {
        return Err(refusal);
    }
    let request = RepairRequest { is_dry_run, into: None };
    carry_out(subject, request, found, &plan, progress)
}

/// Verifies the store at `path`, fixes what can be fixed, and verifies it again. `progress` is called with the bytes that are done,
/// and with all of them, in each pass: while the store is verified, while it is written, and while it is verified again.
///
/// # Errors
/// [`Error::Locked`], also while a writer has the store from which a copy is made; [`Error::Exists`] for a copy in a directory that is not
/// empty; [`Error::Invalid`] for one in a store; those of [`verify`] and [`rebuild`]. It may be called again after an error.
pub fn repair(
    env: &Arc<dyn Env>,
    path: &Path,
    config: &StoreConfig,
    request: RepairRequest<'_>,
    mut progress: impl FnMut(i64, i64) -> Result<()>,
) -> Result<RepairReport> {
    if let Some(into) = request.into {
        expect_outside(env.as_ref(), into)?;
        expect_empty(env.as_ref(), into)?;
    }
    // What is found beside a writer is out of date when it has closed the store.
    if !request.is_dry_run {
        expect_unlocked(env.as_ref(), path, config.lock_timeout)?;
    }
    let subject = Subject { env, path, config };
    let found = subject.look(&mut progress)?;
    let plan = Plan::of_repair(subject, &found, request)?;
    carry_out(subject, request, found, &plan, progress)
}

fn carry_out(
    subject: Subject<'_>,
    request: RepairRequest<'_>,
    found: VerifyReport,
    plan: &Plan,
    mut progress: impl FnMut(i64, i64) -> Result<()>,
) -> Result<RepairReport> {
    let Subject { env, path, config } = subject;
    let changes = plan.changes(path, request.into);
    // Where nothing is to be changed no copy is made.
    let repaired = request.into.filter(|_| !changes.is_empty()).unwrap_or(path);
    let mut report = RepairReport {
        path: repaired.to_owned(),
        is_dry_run: request.is_dry_run,
        changes,
        refusal: plan.refusal.clone(),
        backup: None,
        lost: plan.lost.iter().chain(&plan.cut).cloned().collect(),
        left: found
            .findings
            .iter()
            .filter(|finding| plan.leaves(finding))
            .cloned()
            .collect(),
        found,
    };
    if request.is_dry_run || report.changes.is_empty() {
        return Ok(report);
    }
    if let Some(into) = request.into {
        expect_unlocked(env.as_ref(), path, config.lock_timeout)?;
        copy_store(env.as_ref(), path, into, &plan.aside, &plan.corrections, &plan.missing)?;
    } else if !plan.aside.is_empty() || !plan.segments.is_empty() {
        let _lock = take_lock(env.as_ref(), path, config.lock_timeout)?;
        report.backup = Some(set_aside(env.as_ref(), path, &plan.segments, &plan.aside, &plan.corrections)?);
    }
    let subject = Subject {
        path: &report.path,
        ..subject
    };
    if let Some(recovery) = plan.recovery {
        subject.make_anew(recovery, &mut progress)?;
    }
    report.left = subject.look(&mut progress)?.findings;
    report.left.retain(|finding| finding.severity != Severity::Note);
    Ok(report)
}

/// The store that is repaired.
#[derive(Clone, Copy)]
struct Subject<'a> {
    env: &'a Arc<dyn Env>,
    path: &'a Path,
    config: &'a StoreConfig,
}

impl Subject<'_> {
    /// Verifies the store.
    fn look(self, progress: &mut impl FnMut(i64, i64) -> Result<()>) -> Result<VerifyReport> {
        let reader = MessageReader::open(self.env, self.path, self.config.clone())?;
        verify(self.env, &reader, VerifyRequest::default(), progress)
    }

    /// Returns the options for an open that recovers the store. The log has what a read takes for whole, whatever the options say.
    fn recovering(self, recovery: Recovery) -> StoreConfig {
        StoreConfig {
            recovery,
            check_crc_on_recover: true,
            ..self.config.clone()
        }
    }

    /// Opens a reader that salvages the store in memory.
    fn salvaged(self) -> Result<MessageReader> {
        MessageReader::open(self.env, self.path, self.recovering(Recovery::Salvage))
    }

    /// Finds what is missing of the log.
    fn find_missing(self) -> Result<MissingLog> {
        MissingLog::find(self.env, self.path, self.config, &self.salvaged()?)
    }

    /// Makes queues, index and checkpoint again from the log.
    fn make_anew(self, recovery: Recovery, progress: &mut impl FnMut(i64, i64) -> Result<()>) -> Result<()> {
        let store = MessageStore::open_stepped(self.env, self.path, self.recovering(recovery), OpenMode::Rebuild)?;
        let Range { start, end } = store.reader().physical_bounds();
        while store.step(Service::Dispatch, Instant::now())? == Next::Again {
            interrupt::check()?;
            progress(store.dispatched_offset() - start, end - start)?;
        }
        store.close()
    }
}

/// The plan of a repair.
#[derive(Default)]
struct Plan {
    /// Files that are moved aside.
    aside: Vec<PathBuf>,
    /// Segments that are changed.
    segments: Vec<PathBuf>,
    /// Records that get their right place, or are removed.
    corrections: Vec<Correction>,
    /// The segments that the copy gets.
    missing: MissingLog,
    lost: Vec<Range<i64>>,
    /// The end of the log where no whole record follows the damage, up to the last message that a queue entry names.
    cut: Option<Range<i64>>,
    /// Queue entries of messages that the log does not have. They are not made again.
    entries_ahead: u64,
    /// The log has lost its end.
    is_end_lost: bool,
    /// The queue offsets of the messages after the end of the log, which new messages get again.
    reassigned: LostOffsets,
    /// The recovery with which queues, index and checkpoint are made again; `None` if they stay.
    recovery: Option<Recovery>,
    /// The reason why the log should not be cut at its end: whole messages follow.
    removal: Option<Error>,
    refusal: Option<Error>,
}

impl Plan {
    fn of_rebuild(subject: Subject<'_>, found: &VerifyReport, takes_lock: bool) -> Result<Self> {
        let mut plan = Self::default();
        // A rebuild changes no record, and the queue entry may be the only proof of the right place. It moves no file aside.
        let is_contradicted = |finding: &&Finding| finding.severity == Severity::Error;
        let contradicted = found
            .contradictions
            .remedy()
            .and_then(|_| found.findings.iter().find(is_contradicted).or(found.findings.first()));
        if let Some(first) = contradicted.or_else(|| found.findings.iter().find(|finding| is_in_the_way(finding))) {
            plan.refusal = Some(refused_by(first));
            return Ok(plan);
        }
        plan.make_anew(subject, found, Recovery::Heal, takes_lock)?;
        plan.refusal = plan.refusal.take().or(plan.removal.take());
        Ok(plan)
    }

    fn of_repair(subject: Subject<'_>, found: &VerifyReport, request: RepairRequest<'_>) -> Result<Self> {
        let is_copy = request.into.is_some();
        let has = |fix| {
            let is_asked = |finding: &Finding| match finding.remedy {
                Fix::After(_) => finding.id.facts().fix == fix,
                remedy => remedy == fix,
            };
            found.findings.iter().any(|finding| is_asked(finding) && is_mended(finding))
        };
        let mut plan = Self::default();
        let is_log_incomplete = first_to_mend(&found.findings).is_some_and(shows_missing_log);
        let is_damaged = has(Fix::Salvage);
        if is_copy && (is_log_incomplete || is_damaged) {
            plan.missing = subject.find_missing()?;
        }
        let recovery = if is_damaged || (is_copy && is_log_incomplete) {
            Recovery::Salvage
        } else {
            Recovery::Heal
        };
        let is_rebuilt = is_damaged || has(Fix::Correct) || has(Fix::Rebuild) || has(Fix::Open);
        if is_copy || is_rebuilt || first_to_mend(&found.findings).is_some() {
            let takes_lock = !request.is_dry_run && !is_copy;
            plan.make_anew(subject, found, recovery, takes_lock)?;
            if plan.refusal.is_some() && recovery == Recovery::Heal && !is_log_missing(subject)? {
                let mut salvage = Self::default();
                salvage.make_anew(subject, found, Recovery::Salvage, takes_lock)?;
                if salvage.refusal.is_none() {
                    plan = salvage;
                }
            }
        }
        // Nothing is copied that cannot be repaired.
        if !is_copy || plan.recovery.is_some() {
            let aside = found.findings.iter().filter(|finding| finding.remedy == Fix::SetAside);
            plan.aside.extend(aside.map(|finding| finding.file.clone()));
        }
        if !is_copy && let Some(refusal) = plan.refuse_other_file_systems(subject)? {
            plan = Self {
                refusal: Some(refusal),
                ..Self::default()
            };
        }
        Ok(plan)
    }

    /// Returns the error of a directory on another file system: files are moved between it and the store's, each in one step.
    fn refuse_other_file_systems(&self, subject: Subject<'_>) -> Result<Option<Error>> {
        let dirs: BTreeSet<_> = self
            .aside
            .iter()
            .chain(&self.segments)
            .filter_map(|file| file.parent())
            .collect();
        for dir in dirs {
            let is_same = subject.env.can_rename(subject.path, dir);
            if !is_same.map_err(|error| Error::io("look at", dir, error))? {
                return Ok(Some(Error::Unsupported {
                    path: dir.to_owned(),
                    what: "the directory lies on another file system than the store, or in another mount: no file can be moved there"
                        .to_owned(),
                    remedy: Some(Remedy::RepairCopy),
                }));
            }
        }
        Ok(None)
    }

    /// Plans a rebuild of queues, index and checkpoint, unless the store has to be left as it is. The writer that will
    /// do it reports what it would find.
    fn make_anew(&mut self, subject: Subject<'_>, found: &VerifyReport, recovery: Recovery, takes_lock: bool) -> Result<()> {
        let Subject { env, path, config } = subject;
        let too_many = || found.findings.first().filter(|_| found.contradictions.corrections.is_none());
        let first = first_to_mend(&found.findings).or_else(too_many);
        if let Some(first) = first.filter(|first| !(self.missing.is_known() && shows_missing_log(first))) {
            self.refusal = Some(refused_by(first));
            return Ok(());
        }
        // A writer refuses the store as it is. The copy has the missing segments, and what is set aside is out of its way.
        let is_filled = first.is_some() || !self.missing.is_empty();
        if is_filled || found.findings.iter().any(is_in_the_way) || found.contradictions.is_damaged() {
            let reader = subject.salvaged()?;
            return self.derive(subject, found, recovery, reader.log(), reader.recovery().clone());
        }
        // The log looks damaged where a writer appends while its end is searched.
        let _lock = takes_lock
            .then(|| take_lock(env.as_ref(), path, config.lock_timeout))
            .transpose()?;
        match find_for_rebuild(env, path, subject.recovering(recovery)) {
            Ok(opened) => self.derive(subject, found, recovery, &opened.log, opened.report),
            Err(refusal @ (Error::Corrupt { .. } | Error::Invalid { .. } | Error::Unsupported { .. })) => {
                self.refusal = Some(refusal);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Plans what follows from the recovery of the log.
    fn derive(
        &mut self,
        subject: Subject<'_>,
        found: &VerifyReport,
        recovery: Recovery,
        log: &LogFiles,
        report: RecoveryReport,
    ) -> Result<()> {
        self.recovery = Some(recovery);
        // Nothing is written into a file of a wrong length: the queue gets another one.
        let wrong = found
            .findings
            .iter()
            .filter(|finding| finding.id == FindingId::QueueFileLength);
        self.aside = wrong.map(|finding| finding.file.clone()).collect();
        self.entries_ahead = report.queue_entries_ahead;
        self.removal = removal(log, &report);
        self.corrections = found.contradictions.corrections.clone().unwrap_or_default();
        self.segments = corrected_segments(&self.corrections);
        if recovery == Recovery::Salvage {
            if !self.missing.extends_log() {
                let named_end = end_of_named(subject, log, report.log_end)?;
                let named_end = named_end.max(end_of_damaged(found, log, report.log_end)?);
                self.cut = (report.log_end < named_end).then_some(report.log_end..named_end);
            }
            let is_changed = |end: i64, start: i64| {
                end > report.log_end || report.lost.iter().any(|lost| lost.start < end && start < lost.end)
            };
            let changed = log.starts().filter(|start| is_changed(log.end_of_segment(*start), *start));
            let path_of = |start: i64| subject.path.join(COMMIT_LOG_DIR).join(segment_name(start.unsigned_abs()));
            self.segments.extend(changed.map(path_of));
            self.segments.sort_unstable();
            self.segments.dedup();
        }
        if !self.missing.extends_log() {
            self.reassigned = named_after(subject, log, report.log_end)?;
        }
        // A copy whose log is extended keeps the ends of its queues.
        self.is_end_lost = self.cut.is_some() || !self.reassigned.ranges().is_empty();
        self.lost = report.lost;
        self.lost.extend(self.missing.lost.iter().cloned());
        // A correction makes a record whole that its checksum calls damaged, or removes it.
        for correction in &self.corrections {
            let record = correction.physical_offset..correction.end;
            self.lost.retain(|lost| *lost != record);
            if correction.is_loss {
                self.lost.push(record);
            }
        }
        self.lost.sort_by_key(|lost| lost.start);
        Ok(())
    }

    /// Returns true if the finding remains afterwards, as far as that can be known before.
    fn leaves(&self, finding: &Finding) -> bool {
        finding.severity != Severity::Note
            && match finding.remedy {
                // A writer removes a segment without a byte.
                Fix::SetAside if finding.id == FindingId::LogEmptyFile && self.recovery.is_some() => false,
                Fix::SetAside => !self.aside.contains(&finding.file),
                Fix::Salvage | Fix::Correct | Fix::Rebuild | Fix::Open | Fix::PutBack | Fix::After(_) => self.recovery.is_none(),
                // A rebuild makes the index again and records the sizes.
                Fix::ByHand(_) if finding.id == FindingId::IndexSizesUnknown => self.recovery.is_none(),
                Fix::CopyWhole | Fix::ByHand(_) | Fix::Nothing => true,
            }
    }

    /// Says which queue offsets new messages may get although consumers have read others there; `None` if the log keeps its end.
    fn reassigned_in_words(&self) -> Option<String> {
        let known = self
            .reassigned
            .describe()
            .map_or_else(String::new, |known| format!(": {known}"));
        let what = "new messages may get queue offsets of messages lost at the end of the log, which consumers have read";
        self.is_end_lost.then(|| what.to_owned() + &known)
    }

    fn changes(&self, path: &Path, into: Option<&Path>) -> Vec<Change> {
        let change = |action, file: &Path, what: String| Change {
            action,
            file: file.to_owned(),
            what,
        };
        let mut changes = Vec::new();
        if let Some(into) = into.filter(|_| self.recovery.is_some()) {
            changes.push(change(
                Action::Copy,
                into,
                format!("every file of {} is copied", path.display()),
            ));
        }
        for file in &self.aside {
            let what = if into.is_some() {
                "it is not copied".to_owned()
            } else {
                "it is moved into the backup".to_owned()
            };
            changes.push(change(Action::SetAside, file, what));
        }
        for file in self.segments.iter().filter(|_| into.is_none()) {
            changes.push(change(Action::BackUp, file, "it is copied into the backup".to_owned()));
        }
        for correction in &self.corrections {
            let action = if correction.is_loss {
                Action::Salvage
            } else {
                Action::Correct
            };
            changes.push(change(action, &correction.file, correction.what.clone()));
        }
        let root = into.unwrap_or(path);
        for (file, what) in self.missing.changes(root) {
            changes.push(change(Action::Fill, &file, what));
        }
        for lost in &self.lost {
            let what = format!(
                "physical offsets {} to {} hold no whole record: a salvage record takes the place of the messages that were there",
                lost.start, lost.end
            );
            changes.push(change(Action::Salvage, &root.join(COMMIT_LOG_DIR), what));
        }
        if let Some(cut) = &self.cut {
            let what = format!(
                "physical offsets {} to {} hold no whole record, and none follows: the log ends before the messages that were there",
                cut.start, cut.end
            );
            changes.push(change(Action::Salvage, &root.join(COMMIT_LOG_DIR), what));
        }
        if self.recovery.is_some() {
            let mut what = "queues, index and checkpoint are rebuilt from the log".to_owned();
            if self.entries_ahead > 0 {
                let _ = write!(
                    what,
                    ", without {} that queues name and the log does not have",
                    messages(self.entries_ahead)
                );
            }
            if let Some(reassigned) = self.reassigned_in_words() {
                changes.push(change(Action::Rebuild, &root.join(CONSUME_QUEUE_DIR), reassigned));
            }
            changes.push(change(Action::Rebuild, &root.join(CONSUME_QUEUE_DIR), what));
        }
        changes
    }
}

/// Returns true if the finding shows that a part of the log is missing.
fn shows_missing_log(finding: &Finding) -> bool {
    PAST_END.contains(&finding.id) || matches!(finding.id, FindingId::LogMissingSegment | FindingId::LogCutShort)
}

/// Returns true if a writer refuses the store until the entry is set aside.
fn is_in_the_way(finding: &Finding) -> bool {
    finding.id == FindingId::StoreWrongType && finding.remedy == Fix::SetAside
}

/// Returns the segments of the corrected records, each once, in their order.
fn corrected_segments(corrections: &[Correction]) -> Vec<PathBuf> {
    let files: BTreeSet<_> = corrections.iter().map(|correction| correction.file.clone()).collect();
    files.into_iter().collect()
}

/// Returns true if a part of the log is missing: no segment is there, or the mark, a queue entry, an index item or the checkpoint names a
/// message past the end of the log. Otherwise a salvage loses nothing: it removes the rest of an earlier repair that was ended.
fn is_log_missing(subject: Subject<'_>) -> Result<bool> {
    let missing = subject.find_missing()?;
    Ok(!missing.is_known() || !missing.is_empty())
}

/// Returns the end of the last message from `log_end` on that the queue files name; 0 if they name none.
fn end_of_named(Subject { env, path, config }: Subject<'_>, log: &LogFiles, log_end: i64) -> Result<i64> {
    let queues = ConsumeQueueStore::load(Arc::clone(env), path, config.mapped_file_size_consume_queue)?;
    let mut end = 0;
    for (_, _, queue) in queues.file_queues() {
        let last = queue.last_before(log.files_end())?;
        if let Some(unit) = last.filter(|unit| unit.physical_offset >= log_end && could_be_of_record(*unit, log)) {
            end = end.max(unit.end().min(log.files_end()));
        }
    }
    Ok(end)
}

/// Returns the queue offsets of messages from `log_end` on that the queue files name.
fn named_after(Subject { env, path, config }: Subject<'_>, log: &LogFiles, log_end: i64) -> Result<LostOffsets> {
    let queues = ConsumeQueueStore::load(Arc::clone(env), path, config.mapped_file_size_consume_queue)?;
    let mut named = LostOffsets::default();
    for (topic, queue_id, queue) in queues.file_queues() {
        let mut offsets = Vec::new();
        queue.visit_from(log_end, |offset, unit| {
            if could_be_of_record(unit, log) {
                offsets.push(offset);
            }
            Ok(true)
        })?;
        // Before an entry that leads into the log an entry is damaged, and no message is lost: the queue keeps its end.
        let last = queue.known_unit(queue.max_offset() - 1)?;
        if last.is_none_or(|last| last.physical_offset >= log_end) {
            for offset in offsets {
                named.add(&topic, queue_id, offset);
            }
        }
    }
    Ok(named)
}

/// Returns the end of the damaged record that was found at `log_end`, if its lengths are right; 0 otherwise. Not every queue is read.
fn end_of_damaged(found: &VerifyReport, log: &LogFiles, log_end: i64) -> Result<i64> {
    let (file, position) = log.path_of(log_end);
    let is_damaged = found.findings.iter().any(|finding| {
        finding.id == FindingId::LogDamagedRecord
            && finding.file == file
            && (finding.offset..=finding.last_offset).contains(&position)
    });
    Ok(match log.read(log_end, Check::Structure)? {
        LogRecord::Message(message) if is_damaged => message.view().end(),
        _ => 0,
    })
}

/// Returns the error that a log ends before whole messages, which its recovery removes; `None` if it removes none.
fn removal(log: &LogFiles, report: &RecoveryReport) -> Option<Error> {
    let count = report.cut.count();
    let reason = format!(
        "the log ends here ({}), and a rebuild would remove the whole messages after it: {count}",
        report.stop_reason
    );
    (count > 0).then(|| log.corrupt(report.log_end, reason).with_remedy(Remedy::Repair))
}

fn refused_by(finding: &Finding) -> Error {
    let reason = match finding.remedy {
        Fix::ByHand(what) => format!("{}; {what}", finding.what),
        _ => finding.what.clone(),
    };
    let refusal = Error::corrupt(&finding.file, finding.offset, reason);
    match finding.helps() {
        Some(remedy) => refusal.with_remedy(remedy),
        None => refusal,
    }
}

fn messages(count: u64) -> String {
    format!("{count} message{}", if count == 1 { "" } else { "s" })
}

/// Returns whether a repair is made for the finding. A topic that was deleted stays so, and notes about what a crash or a broker left mean
/// no harm.
fn is_mended(finding: &Finding) -> bool {
    match finding.remedy {
        Fix::Open => finding.severity != Severity::Note,
        _ => finding.severity != Severity::Note || finding.id != FindingId::QueueTopicMissing,
    }
}
