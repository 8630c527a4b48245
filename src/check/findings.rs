//! One finding, and the list of findings.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::check::contradictions::Decided;
use crate::check::finding_id::{FindingId, Fix, PAST_END, REFUSED, Severity};
use crate::format::MessageView;
use crate::recovery::LostOffsets;
use crate::remedy::Remedy;

/// Findings of one kind that are listed. The last of them counts those that follow.
const MOST: usize = 1000;

/// The message that a finding is about; unknown parts are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Affected {
    /// Its topic.
    pub topic: Option<String>,
    /// The id of its queue.
    pub queue_id: Option<i32>,
    /// Its queue offset.
    pub queue_offset: Option<i64>,
    /// The start of its record.
    pub physical_offset: Option<i64>,
    /// Its unique key, or the key that the finding is about.
    pub key: Option<String>,
}

impl Affected {
    /// Returns the message that a record names.
    pub(super) fn of(view: &MessageView<'_>) -> Self {
        Self {
            topic: Some(view.topic().into_owned()),
            queue_id: Some(view.queue_id()),
            queue_offset: Some(view.queue_offset()),
            physical_offset: Some(view.physical_offset()),
            key: view.unique_key().map(std::borrow::Cow::into_owned),
        }
    }
}

/// Something that is not as it should be, at one offset or at several that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub id: FindingId,
    /// Its severity in this store.
    pub severity: Severity,
    /// The file.
    pub file: PathBuf,
    /// The byte in it.
    pub offset: u64,
    /// The byte of the last of them.
    pub last_offset: u64,
    /// The number of equal findings that it stands for.
    pub count: u64,
    /// The message of the first of them.
    pub affected: Affected,
    /// The messages of a damaged stretch of the log to which queue entries lead.
    pub lost: LostOffsets,
    /// A sentence on what is wrong.
    pub what: String,
    /// Its fix in this store.
    pub remedy: Fix,
}

impl Finding {
    pub(super) fn new(id: FindingId, file: &Path, offset: u64, what: impl Into<String>) -> Self {
        Self {
            id,
            severity: id.facts().severity,
            file: file.to_owned(),
            offset,
            last_offset: offset,
            count: 1,
            affected: Affected::default(),
            lost: LostOffsets::default(),
            what: what.into(),
            remedy: id.facts().fix,
        }
    }

    pub(super) fn of(mut self, affected: Affected) -> Self {
        self.affected = affected;
        self
    }

    /// Adds a message that is lost. The finding names the first of them in the log.
    fn add_lost(&mut self, message: Affected) {
        if let (Some(topic), Some(queue_id), Some(offset)) = (&message.topic, message.queue_id, message.queue_offset) {
            self.lost.add(topic, queue_id, offset);
            if self.affected.topic.is_none() || message.physical_offset < self.affected.physical_offset {
                self.affected = message;
            }
        }
    }

    /// Ends the sentence with the messages that are lost.
    fn list_lost(&mut self) {
        if let Some(lost) = self.lost.describe() {
            self.what += "; messages lost from queues: ";
            self.what += &lost;
        }
    }

    pub(super) fn counting(mut self, count: u64) -> Self {
        self.count = count;
        self
    }

    pub(super) fn by_hand(mut self, what: &'static str) -> Self {
        self.remedy = Fix::ByHand(what);
        self
    }

    pub(super) fn with(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// Returns what helps after a refusal because of this finding.
    pub(super) fn helps(&self) -> Option<Remedy> {
        match self.remedy {
            // A rebuild drops the entries of that part.
            Fix::Rebuild if self.names_missing_part() => Some(Remedy::PutBack),
            Fix::PutBack => Some(Remedy::PutBack),
            Fix::Salvage | Fix::SetAside | Fix::Correct => Some(Remedy::Repair),
            Fix::CopyWhole => Some(Remedy::CopyWhole),
            Fix::Rebuild | Fix::Open | Fix::After(_) | Fix::ByHand(_) | Fix::Nothing => None,
        }
    }

    /// Returns true if it may be a part of the log that is missing, and not the entry that is wrong.
    pub fn names_missing_part(&self) -> bool {
        matches!(self.id, FindingId::QueueEntryPastEnd | FindingId::IndexItemPastEnd)
    }
}

/// The findings so far, in bounded memory.
#[derive(Debug, Default)]
pub(super) struct Findings {
    list: Vec<Finding>,
    /// The last one of each kind and file.
    last: HashMap<(FindingId, PathBuf), usize>,
    /// The number of listed findings of each kind, and the last of these.
    listed: HashMap<FindingId, (usize, usize)>,
}

impl Findings {
    /// Adds a finding and returns its index. A finding at most `step` bytes after the last one of its kind in its file is counted with
    /// that one.
    pub(super) fn add(&mut self, finding: Finding, step: u64) -> usize {
        let key = (finding.id, finding.file.clone());
        let continued = self.last.get(&key).copied().filter(|index| {
            let last = self.list.get(*index).map_or(0, |last| last.last_offset);
            step > 0 && (last..=last.saturating_add(step)).contains(&finding.offset)
        });
        let (listed, last_listed) = self.listed.get(&finding.id).copied().unwrap_or_default();
        if let Some(index) = continued.or((listed >= MOST).then_some(last_listed))
            && let Some(known) = self.list.get_mut(index)
        {
            known.count += 1;
            known.severity = known.severity.min(finding.severity);
            if known.file == finding.file {
                known.last_offset = finding.offset;
            }
            self.last.insert(key, index);
            return index;
        }
        let index = self.list.len();
        self.last.insert(key, index);
        self.listed.insert(finding.id, (listed + 1, index));
        self.list.push(finding);
        index
    }

    /// Returns true if a finding of this kind, of this file, was added.
    pub(super) fn has(&self, id: FindingId, file: &Path) -> bool {
        self.last.contains_key(&(id, file.to_owned()))
    }

    /// Returns whether an error of this kind was found.
    pub(super) fn has_error(&self, id: FindingId) -> bool {
        let mut errors = self.list.iter().filter(|finding| finding.severity == Severity::Error);
        errors.any(|finding| finding.id == id)
    }

    /// Adds a message that is lost to the finding at this index.
    pub(super) fn add_lost(&mut self, index: usize, message: Affected) {
        if let Some(finding) = self.list.get_mut(index) {
            finding.add_lost(message);
        }
    }

    /// Returns the worst ones first, and otherwise in the order in which they were found.
    pub(super) fn into_list(mut self, contradictions: &Decided) -> Vec<Finding> {
        let is_contradicted = |finding: &Finding| {
            let at = finding.affected.physical_offset;
            let is_of_place = matches!(
                finding.id,
                FindingId::QueueEntryWrong | FindingId::QueueMessageLost | FindingId::QueueNotDispatched
            );
            is_of_place && at.is_some_and(|at| contradictions.physical_offsets.contains(&at))
        };
        if let Some(remedy) = contradictions.remedy() {
            for finding in &mut self.list {
                if is_contradicted(finding) {
                    finding.id = FindingId::QueuePlaceContradicted;
                    finding.severity = Severity::Error;
                    finding.remedy = remedy;
                }
            }
        }
        let is_duplicate = |finding: &&mut Finding| finding.id == FindingId::LogDuplicateQueueOffset;
        for finding in self.list.iter_mut().filter(is_duplicate) {
            finding.remedy = if contradictions.has_unplaced {
                Fix::CopyWhole
            } else {
                contradictions.remedy().unwrap_or(Fix::CopyWhole)
            };
        }
        self.list.iter_mut().for_each(Finding::list_lost);
        self.list.sort_by_key(|finding| finding.severity);
        self.order_fixes(contradictions.remedy());
        self.list
    }

    /// Replaces the fix of a finding that the store refuses at present by the fix that must come first.
    fn order_fixes(&mut self, of_contradictions: Option<Fix>) {
        let is_in_the_way = |finding: &&Finding| finding.id == FindingId::StoreWrongType;
        let first = first_to_mend(&self.list).or_else(|| self.list.iter().find(is_in_the_way));
        let first = first.map(|finding| finding.id);
        let is_damaged = self.list.iter().any(|finding| finding.remedy == Fix::Salvage);
        for finding in &mut self.list {
            finding.remedy = match (finding.remedy, first) {
                (Fix::Rebuild, Some(first)) if PAST_END.contains(&first) && PAST_END.contains(&finding.id) => Fix::PutBack,
                (Fix::Rebuild | Fix::Salvage | Fix::Correct | Fix::Open, Some(first)) => Fix::After(first),
                (Fix::Rebuild | Fix::Correct | Fix::Open, None) if is_damaged => Fix::Salvage,
                (Fix::Rebuild | Fix::Open, None) => of_contradictions.unwrap_or(finding.remedy),
                (remedy, _) => remedy,
            };
        }
    }
}

/// Returns the error that makes a repair and a rebuild leave log, queues and index unchanged. Warnings, such as what a crash left, do not
/// count.
pub(super) fn first_to_mend(findings: &[Finding]) -> Option<&Finding> {
    let errors = |id| {
        let is_error = move |finding: &&Finding| finding.id == id && finding.severity == Severity::Error;
        findings.iter().filter(is_error)
    };
    let first_of = |ids: &[FindingId]| ids.iter().find_map(|id| errors(*id).next());
    let entries: u64 = errors(FindingId::QueueEntryPastEnd).map(|finding| finding.count).sum();
    let kinds = PAST_END.iter().filter(|id| errors(**id).next().is_some()).count();
    let lacks_end = entries > 1 || kinds > 1;
    let unknown_place = || {
        let mut contradicted = errors(FindingId::QueuePlaceContradicted);
        contradicted.find(|finding| finding.remedy == Fix::CopyWhole)
    };
    let refused = || {
        let mut of_kinds = REFUSED.iter().flat_map(|id| errors(*id));
        of_kinds.find(|finding| finding.remedy != Fix::SetAside)
    };
    refused()
        .or_else(unknown_place)
        .or_else(|| first_of(&PAST_END).filter(|_| lacks_end))
}
