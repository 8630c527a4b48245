//! Mending what was found: queues, index and checkpoint are made anew from the log, damage of the log is salvaged, and files that do not
//! belong there are set aside.

use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::check::finding_id::{FindingId, Fix, Severity};
use crate::check::findings::Finding;
use crate::check::set_aside::{copy_store, set_aside};
use crate::check::verify::{VerifyReport, VerifyRequest, verify};
use crate::config::{Recovery, StoreConfig};
use crate::error::{Error, Result};
use crate::format::{COMMIT_LOG_DIR, CONSUME_QUEUE_DIR, LOCK_FILE, segment_name};
use crate::read::MessageReader;
use crate::storage::Env;
use crate::store::{MessageStore, OpenMode, take_lock};

/// Findings with which a repair leaves a store as it is. Of the first three a part is missing, and a writer refuses the store. Of the last the
/// log or a queue is damaged, nothing tells which, and a rebuild would believe the log.
pub const REFUSED: [FindingId; 4] = [
    FindingId::LogMissingSegment,
    FindingId::LogCutShort,
    FindingId::QueueFileLength,
    FindingId::QueuePlaceContradicted,
];

/// How a store is repaired.
#[derive(Debug, Clone, Copy)]
pub struct RepairRequest<'a> {
    /// Nothing is changed: the report says what would be.
    pub is_dry_run: bool,
    /// The directory that gets a repaired copy; the store stays as it is.
    pub into: Option<&'a Path>,
}

/// What a change does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// All files are copied, and the copy is repaired.
    Copy,
    /// The file is moved into the backup.
    SetAside,
    /// The segment is copied into the backup, because it is changed.
    BackUp,
    /// A salvage record is put over a stretch that holds no whole record.
    Salvage,
    /// Queues, index and checkpoint are made anew from the log.
    Rebuild,
}

impl Action {
    /// As Python and JSON have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::SetAside => "set_aside",
            Self::BackUp => "back_up",
            Self::Salvage => "salvage",
            Self::Rebuild => "rebuild",
        }
    }
}

/// One change, made or planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What is done.
    pub action: Action,
    /// The file or directory.
    pub file: PathBuf,
    /// The change in a sentence.
    pub what: String,
}

/// What a repair has done, or would do.
#[derive(Debug, Clone)]
pub struct RepairReport {
    /// The store that was repaired, or its repaired copy.
    pub path: PathBuf,
    /// Whether nothing was changed.
    pub is_dry_run: bool,
    /// What was found before.
    pub found: VerifyReport,
    /// The changes, in order; none if nothing has to be done.
    pub changes: Vec<Change>,
    /// Where files were set aside, if any was.
    pub backup: Option<PathBuf>,
    /// Stretches of the log whose messages are lost.
    pub lost: Vec<Range<i64>>,
    /// What is found after it; of a dry run: what would not be mended. Without notes.
    pub left: Vec<Finding>,
}

/// Makes queues, index and checkpoint of the store at `path` anew from its log. Entries of messages that the log has no more stay.
///
/// # Errors
/// [`Error::Corrupt`] for a damaged log: the store stays as it is. [`Error::Locked`], and those of [`MessageStore::open`] and
/// [`MessageStore::close`]: it may be called again.
pub fn rebuild(env: &Arc<dyn Env>, path: &Path, config: StoreConfig) -> Result<()> {
    // No thread is needed: the close dispatches everything.
    MessageStore::open_stepped(env, path, config, OpenMode::Rebuild)?.close()
}

/// Verifies the store at `path`, mends what can be mended, and verifies it again. `tell` is called as by [`verify`], in each pass.
///
/// # Errors
/// [`Error::Locked`], also while a writer has the store from which a copy is made; [`Error::Exists`] for a copy in a directory that is not
/// empty; [`Error::Invalid`] for one in the store; those of [`verify`] and [`rebuild`]. It may be called again after an error.
pub fn repair(
    env: &Arc<dyn Env>,
    path: &Path,
    config: &StoreConfig,
    request: RepairRequest<'_>,
    mut tell: impl FnMut(i64, i64) -> Result<()>,
) -> Result<RepairReport> {
    if let Some(into) = request.into {
        expect_outside(path, into)?;
    }
    let found = look(env, path, config, &mut tell)?;
    let plan = Plan::of(env, path, config, &found, request.into.is_some())?;
    let mut report = RepairReport {
        path: request.into.unwrap_or(path).to_owned(),
        is_dry_run: request.is_dry_run,
        changes: plan.changes(path, request.into),
        backup: None,
        lost: plan.lost.clone(),
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
        expect_unlocked(env.as_ref(), path)?;
        copy_store(env.as_ref(), path, into, &plan.aside)?;
    } else if plan.sets_aside() {
        let _lock = take_lock(env.as_ref(), path)?;
        report.backup = Some(set_aside(env.as_ref(), path, &plan.segments, &plan.aside)?);
    }
    if plan.is_rebuilt {
        let config = StoreConfig {
            recovery: plan.recovery,
            ..config.clone()
        };
        rebuild(env, &report.path, config)?;
    }
    report.left = look(env, &report.path, config, &mut tell)?.findings;
    report.left.retain(|finding| finding.severity != Severity::Note);
    Ok(report)
}

fn look(
    env: &Arc<dyn Env>,
    path: &Path,
    config: &StoreConfig,
    tell: &mut impl FnMut(i64, i64) -> Result<()>,
) -> Result<VerifyReport> {
    let reader = MessageReader::open(env, path, config.clone())?;
    verify(env, &reader, VerifyRequest::default(), tell)
}

/// A copy in the store would be copied, too.
fn expect_outside(path: &Path, into: &Path) -> Result<()> {
    let absolute = |path: &Path| std::path::absolute(path).map_err(|error| Error::io("find", path, error));
    if !absolute(into)?.starts_with(absolute(path)?) {
        return Ok(());
    }
    Err(Error::Invalid {
        what: format!(
            "into: {} lies in the store {}: name a directory beside it",
            into.display(),
            path.display()
        ),
    })
}

fn expect_unlocked(env: &dyn Env, path: &Path) -> Result<()> {
    let path = path.join(LOCK_FILE);
    let is_locked = env
        .is_locked(&path)
        .map_err(|error| Error::io("look at the lock of", &path, error))?;
    if is_locked { Err(Error::Locked { path }) } else { Ok(()) }
}

/// What is going to be done.
struct Plan {
    /// Files that are moved aside.
    aside: Vec<PathBuf>,
    /// Segments that are changed.
    segments: Vec<PathBuf>,
    lost: Vec<Range<i64>>,
    /// Where a salvage ends the log.
    salvaged_until: i64,
    /// Queue entries of messages that the log does not have. They are not made anew.
    entries_ahead: u64,
    recovery: Recovery,
    is_rebuilt: bool,
}

impl Plan {
    fn of(env: &Arc<dyn Env>, path: &Path, config: &StoreConfig, found: &VerifyReport, is_copy: bool) -> Result<Self> {
        let ids = || found.findings.iter();
        let is_refused = ids().any(|finding| REFUSED.contains(&finding.id)) || lacks_the_end(found);
        let has = |fix: Fix| !is_refused && ids().any(|finding| finding.id.facts().fix == fix && is_mended(finding));
        let mut plan = Self {
            // Nothing is copied that cannot be repaired.
            aside: ids()
                .filter(|finding| finding.id.facts().fix == Fix::SetAside && !(is_copy && is_refused))
                .map(|finding| finding.file.clone())
                .collect(),
            segments: Vec::new(),
            lost: Vec::new(),
            salvaged_until: i64::MAX,
            entries_ahead: 0,
            recovery: Recovery::Heal,
            is_rebuilt: !is_refused && (is_copy || has(Fix::Rebuild) || has(Fix::Open)),
        };
        if has(Fix::Salvage) {
            plan.look_what_is_lost(env, path, config, Recovery::Salvage)?;
            if ids().any(|finding| finding.id.facts().fix == Fix::Salvage && !plan.passes_over(finding)) {
                plan.recovery = Recovery::Salvage;
                plan.is_rebuilt = true;
            } else {
                plan.segments.clear();
            }
        }
        if plan.is_rebuilt && plan.recovery == Recovery::Heal {
            plan.look_what_is_lost(env, path, config, Recovery::Heal)?;
        }
        Ok(plan)
    }

    /// Whether a salvage leaves the damage where it is: recovery does not compare the checksum of a whole record.
    fn passes_over(&self, finding: &Finding) -> bool {
        let is_kept = |at| at < self.salvaged_until && !self.lost.iter().any(|lost| lost.contains(&at));
        finding.id == FindingId::LogDamagedRecord && finding.affected.physical_offset.is_some_and(is_kept)
    }

    /// A recovery that is carried out in memory tells what one on disk does.
    fn look_what_is_lost(&mut self, env: &Arc<dyn Env>, path: &Path, config: &StoreConfig, recovery: Recovery) -> Result<()> {
        let config = StoreConfig {
            recovery,
            ..config.clone()
        };
        let reader = MessageReader::open(env, path, config)?;
        let (log, report) = (reader.log(), reader.recovery());
        self.lost.clone_from(&report.lost);
        self.salvaged_until = report.log_end;
        self.entries_ahead = report.queue_entries_ahead;
        if recovery != Recovery::Salvage {
            return Ok(());
        }
        for start in log.starts() {
            let end = log.end_of_segment(start);
            if end > report.log_end || self.lost.iter().any(|lost| lost.start < end && start < lost.end) {
                self.segments
                    .push(path.join(COMMIT_LOG_DIR).join(segment_name(start.unsigned_abs())));
            }
        }
        Ok(())
    }

    fn sets_aside(&self) -> bool {
        !self.aside.is_empty() || !self.segments.is_empty()
    }

    /// Whether the finding is there afterwards, too, as far as it can be known before.
    fn leaves(&self, finding: &Finding) -> bool {
        finding.severity != Severity::Note
            && match finding.id.facts().fix {
                Fix::SetAside => false,
                Fix::Salvage | Fix::Rebuild | Fix::Open => !self.is_rebuilt || self.passes_over(finding),
                Fix::CopyWhole | Fix::ByHand(_) | Fix::Nothing => true,
            }
    }

    fn changes(&self, path: &Path, into: Option<&Path>) -> Vec<Change> {
        let change = |action, file: &Path, what: String| Change {
            action,
            file: file.to_owned(),
            what,
        };
        let mut changes = Vec::new();
        if let Some(into) = into.filter(|_| self.is_rebuilt) {
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
        let root = into.unwrap_or(path);
        for lost in &self.lost {
            let what = format!(
                "physical offsets {} to {} hold no whole record: a salvage record takes the place of the messages that were there",
                lost.start, lost.end
            );
            changes.push(change(Action::Salvage, &root.join(COMMIT_LOG_DIR), what));
        }
        if self.is_rebuilt {
            let mut what = "queues, index and checkpoint are made anew from the log".to_owned();
            if self.entries_ahead > 0 {
                let _ = write!(
                    what,
                    ", without {} that queues name and the log does not have",
                    messages(self.entries_ahead)
                );
            }
            changes.push(change(Action::Rebuild, &root.join(CONSUME_QUEUE_DIR), what));
        }
        changes
    }
}

fn messages(count: u64) -> String {
    format!("{count} message{}", if count == 1 { "" } else { "s" })
}

/// Whether queues and another family name messages past the end of the log: a part of it is missing, and may be put back. Without it queue
/// offsets would be given again.
fn lacks_the_end(found: &VerifyReport) -> bool {
    let has = |id| found.findings.iter().any(|finding| finding.id == id);
    let is_salvaged = found.findings.iter().any(|finding| finding.id.facts().fix == Fix::Salvage);
    !is_salvaged && has(FindingId::QueueEntryPastEnd) && (has(FindingId::IndexItemPastEnd) || has(FindingId::CheckpointAhead))
}

/// Whether a repair is made for it. A topic without queues may have been deleted on purpose, and notes about what a crash or a broker left
/// mean no harm.
fn is_mended(finding: &Finding) -> bool {
    match finding.id.facts().fix {
        Fix::Open => finding.severity != Severity::Note,
        _ => finding.id != FindingId::QueueTopicMissing,
    }
}
