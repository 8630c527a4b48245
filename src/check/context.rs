//! Shared state of the comparisons: the log, its end, its writer, and the findings so far.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use crate::check::contradictions::{Contradictions, Decided};
use crate::check::finding_id::{FindingId, Severity};
use crate::check::findings::{Affected, Finding, Findings};
use crate::log::{LogFiles, StorePart};
use crate::read::MessageReader;
use crate::recovery::BrokerRecovery;

/// Damaged stretches that are kept. The last of them then takes all that follow.
const MOST_STRETCHES: usize = 1 << 16;

/// The last process that had the store open for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writer {
    /// It has closed the store.
    Closed,
    /// It has died.
    Crashed,
    /// It runs: its later appends are not verified.
    Live,
}

/// The store that is verified.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) reader: &'a MessageReader,
    pub(super) root: &'a Path,
    pub(super) log: &'a LogFiles,
    /// The physical offsets of the log that is compared.
    pub(super) bounds: Range<i64>,
    pub(super) writer: Writer,
    /// The physical offset of the last message that a live writer is known to have dispatched.
    pub(super) last_dispatched: Option<i64>,
    /// The log has no whole message, and other files show that it had some.
    is_log_lost: bool,
    /// The topics in a broker's settings; `None` without readable settings.
    pub(super) known_topics: Option<BTreeSet<String>>,
    /// The parts of the store that are in files of another format.
    pub(super) kept_elsewhere: BTreeSet<StorePart>,
    /// The model of a broker's next start; `None` unless a crash left the store.
    pub(super) brokers: Option<BrokerRecovery>,
    /// Messages of which record and queue entry name different places.
    pub(super) contradictions: Contradictions,
    findings: Findings,
    /// Stretches of the log that hold no whole record, ascending, each with the index of its finding.
    damaged: Vec<(Range<i64>, usize)>,
}

impl<'a> Context<'a> {
    pub(super) fn of(reader: &'a MessageReader, writer: Writer) -> Self {
        let bounds = reader.physical_bounds();
        Self {
            is_log_lost: reader.recovery().missing.is_some() && bounds.is_empty(),
            reader,
            root: reader.path(),
            log: reader.log(),
            bounds,
            known_topics: None,
            kept_elsewhere: BTreeSet::new(),
            brokers: None,
            writer,
            last_dispatched: None,
            contradictions: Contradictions::default(),
            findings: Findings::default(),
            damaged: Vec::new(),
        }
    }

    /// Returns true if the offset is before the log, also if its segment was removed since.
    pub(super) fn has_expired(&self, at: i64) -> bool {
        at < self.bounds.start.max(self.log.first_offset())
    }

    /// Returns true if the entry of the message at this physical offset was in its queue: the live writer dispatches in the order of the log.
    pub(super) fn was_dispatched(&self, at: i64) -> bool {
        self.last_dispatched.is_some_and(|last| at <= last)
    }

    /// Lowers a finding about a topic without queues, of which a message is at `at`, to a note if the topic was deleted, because a broker's
    /// settings do not name it, or may just have been made by a live writer.
    pub(super) fn of_deleted_topic(&self, topic: &str, at: i64, finding: Finding) -> Finding {
        let is_deleted = self.known_topics.as_ref().is_some_and(|known| !known.contains(topic));
        let may_be_new = self.writer == Writer::Live && !self.was_dispatched(at);
        let is_note = finding.id == FindingId::QueueTopicMissing && (is_deleted || may_be_new);
        if is_note { finding.with(Severity::Note) } else { finding }
    }

    /// Adds a finding that stands alone.
    pub(super) fn add(&mut self, finding: Finding) {
        self.findings.add(finding, 0);
    }

    /// Adds a finding, and counts it with the last one of its kind and file that ends `step` bytes before it.
    pub(super) fn add_after(&mut self, finding: Finding, step: u64) {
        self.findings.add(finding, step);
    }

    /// Adds a finding about what names this physical offset, which is past the end of the log. A crash leaves such entries and items. It
    /// never leaves one past the last segment, nor a log without any message of theirs.
    pub(super) fn add_past_end(&mut self, at: i64, finding: Finding, step: u64) {
        if at < self.log.files_end() && !self.is_log_lost {
            self.add_left_by_crash(finding, step);
        } else {
            self.add_after(finding, step);
        }
    }

    /// Adds a finding that the next open of a crashed store sets right.
    pub(super) fn add_left_by_crash(&mut self, finding: Finding, step: u64) {
        let severity = match self.writer {
            Writer::Closed => finding.severity,
            Writer::Crashed | Writer::Live => finding.severity.max(Severity::Warning),
        };
        self.findings.add(finding.with(severity), step);
    }

    /// Adds a stretch of the log that holds no whole record.
    pub(super) fn add_damaged(&mut self, stretch: Range<i64>, finding: Finding) {
        let index = self.findings.add(finding, 0);
        let is_full = self.damaged.len() >= MOST_STRETCHES;
        match self.damaged.last_mut() {
            Some((last, _)) if is_full => last.end = stretch.end,
            _ => self.damaged.push((stretch, index)),
        }
    }

    /// Returns true if a message that started there is in a damaged stretch, and adds the message to the finding about that stretch.
    pub(super) fn is_damaged(&mut self, at: i64, affected: impl FnOnce() -> Affected) -> bool {
        let before = self.damaged.partition_point(|(stretch, _)| stretch.start <= at);
        let Some((stretch, index)) = before.checked_sub(1).and_then(|index| self.damaged.get(index)) else {
            return false;
        };
        let is_inside = stretch.contains(&at);
        if is_inside {
            self.findings.add_lost(*index, affected());
        }
        is_inside
    }

    /// Returns true if messages may have been lost in damaged stretches.
    pub(super) fn has_damage(&self) -> bool {
        !self.damaged.is_empty()
    }

    pub(super) fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Returns the findings, the worst first.
    pub(super) fn into_findings(self, contradictions: &Decided) -> Vec<Finding> {
        self.findings.into_list(contradictions)
    }
}
