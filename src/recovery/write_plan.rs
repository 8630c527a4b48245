//! The plan of a writer: for each family the changes after which its files on disk are what was recovered in memory. Planning is a pure
//! function of the facts that were read.

use std::ops::Range;

use crate::config::Sizes;
use crate::format::{Checkpoint, FlushedMark, NO_OWN_RECORDS};
use crate::log::KeptIndex;
use crate::recovery::plan::RecoveryReport;
use crate::recovery::recovery_note::RecoveryNote;
use crate::recovery::replica_note::ReplicaNote;
use crate::recovery::store_state::{Exit, Intent, LastShutdown, WriterRecords};

/// The facts from which the plan of a writer follows.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// The records of the last writer.
    pub records: WriterRecords,
    /// The intent of the writer.
    pub intent: Intent,
    /// The outcome of the recovery in memory.
    pub report: &'a RecoveryReport,
    /// The offsets of the log that have a segment.
    pub segments: Range<i64>,
    /// The offset past which every byte of the log reads as zero.
    pub written_until: i64,
    /// The end of the last message that the checkpoint covers: what was read after it may be in memory only.
    pub unsynced_from: i64,
    /// The checkpoint on disk, with stamps in the future.
    pub stamps: Checkpoint,
    /// The time, in ms.
    pub now: i64,
    /// The part of the index that is kept.
    pub kept_index: KeptIndex,
    /// True if index files have more than that part.
    pub is_index_cut: bool,
    /// The first message of which a key may be missing in the index.
    pub index_from: i64,
    /// The sizes of the files that the writer makes.
    pub sizes: Sizes,
    /// True if the writer shows only what is flushed (`SYNC_FLUSH`).
    pub is_sync: bool,
}

/// The changes by which a writer recovers a store, a plan for each family.
#[derive(Debug, Clone)]
pub struct WritePlan {
    /// The directory of the store and the files beside the families.
    pub directory: DirectoryPlan,
    /// The log.
    pub log: LogPlan,
    /// The queues.
    pub queues: QueuesPlan,
    /// The index.
    pub index: IndexPlan,
    /// The records with which the writer replaces those of the last one.
    pub records: RecordsPlan,
}

/// The changes in the directory of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryPlan {
    /// True if the names of the directories may not be durable: the first writer is making the store, or died while it made it.
    pub is_begun: bool,
    /// True if the last writer may have left files under temporary names.
    pub has_unfinished_files: bool,
    /// The recovery note to write before the first change; `None` if recovery changes nothing.
    pub note: Option<RecoveryNote>,
    /// True if there is a note to remove after the last sync.
    pub removes_note: bool,
}

/// The changes of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPlan {
    /// The size of its segments.
    pub segment_size: u64,
    /// True if its first segment is made at its end.
    pub is_begun: bool,
    /// Stretches over which salvage records are written.
    pub lost: Vec<Range<i64>>,
    /// Its end.
    pub end: i64,
    /// The offset up to which zeros are written past the end.
    pub zero_until: i64,
    /// The offset from which it is written again, because it may be in memory only; `None` if everything is on disk.
    pub rewrite_from: Option<i64>,
    /// True if its last segment is replaced by a copy of what is kept of it, as the files of [`QueuesPlan`] and [`IndexPlan`] are.
    pub is_replaced: bool,
    /// The store time of its last message.
    pub last_store_time: i64,
    /// The store time up to which the checkpoint covers messages.
    pub covered_time: i64,
}

/// The changes of the queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuesPlan {
    /// The physical offset from which the entries of messages are written again; `None` if all of them are on disk.
    pub rewrite_from: Option<i64>,
    /// True if an earlier recovery has not ended: zeros that are read may not be on disk.
    pub is_redone: bool,
    /// True if files that are cut are replaced by copies of what is kept: readers have them mapped.
    pub is_replaced: bool,
    /// True if the new entries are synced, because the next recovery starts after their messages.
    pub is_synced: bool,
}

/// The changes of the index.
#[derive(Debug, Clone, Copy)]
pub struct IndexPlan {
    /// The part that is kept.
    pub kept: KeptIndex,
    /// True if a file that is cut is replaced by a copy of what is kept: readers have it mapped.
    pub is_replaced: bool,
    /// True if all of that part is on disk.
    pub is_on_disk: bool,
    /// True if an earlier recovery has not ended: zeros that are read may not be on disk.
    pub is_redone: bool,
    /// The first message of which a key may be missing.
    pub from: i64,
}

/// The changes of the mark, the claim and the checkpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecordsPlan {
    /// The new mark of what was flushed, with the claim.
    pub mark: FlushedMark,
    /// The physical offset from which on every record is ours before this open; `None` if a broker has started since.
    pub was_own_from: Option<i64>,
    /// True if the claim is written into the lock file.
    pub is_claimed: bool,
    /// The note of a slave to store before the claim; `None` for another writer, unless it ends a cut that was interrupted.
    pub replica: Option<ReplicaNote>,
    /// The note of a slave to store before the log is cut. Mark and checkpoint are then replaced before it, too, because they cover what is
    /// cut. `None` without a cut.
    pub cut: Option<ReplicaNote>,
    /// The stamps that replace those on disk; `None` if those stay. A stamp in the future is replaced, because it would one day cover
    /// messages that came after it. So is a stamp that a salvage makes invalid.
    pub checkpoint: Option<Checkpoint>,
}

impl WritePlan {
    /// Plans the changes.
    pub fn new(facts: &Facts<'_>) -> Self {
        let Facts {
            records,
            intent,
            report,
            ref segments,
            ..
        } = *facts;
        let (found, log_end) = (records.shutdown, report.log_end);
        let is_redone = found.unfinished().is_some();
        let rewrite_from = rewrite_from(facts);
        let is_replaced = intent.cut_at().is_some();
        let is_changed = rewrite_from.is_some() || facts.written_until > log_end || facts.is_index_cut;
        let stamps = stamps(facts);
        let own_from = records.claim.filter(|from| *from <= log_end && !intent.is_replica());
        // A store without a record may be one whose first writer died while it made the store.
        let is_begun = found.exit == Exit::New || log_end <= segments.start;
        Self {
            directory: DirectoryPlan {
                is_begun,
                has_unfinished_files: (found.exit != Exit::New && log_end <= segments.start) || rewrite_from.is_some(),
                note: is_changed.then_some(RecoveryNote {
                    rewrite_from: rewrite_from.unwrap_or(log_end),
                    closed_at: found.closed_at(log_end),
                }),
                removes_note: is_changed || found.note.is_some(),
            },
            log: LogPlan {
                segment_size: facts.sizes.commit_log,
                is_begun: intent.begins_at().is_some(),
                lost: report.lost.clone(),
                end: log_end,
                zero_until: zero_until(facts),
                rewrite_from: rewrite_from.map(|from| from.max(on_disk_until(records, intent))),
                is_replaced,
                last_store_time: report.last_store_time,
                covered_time: stamps.physic_msg_timestamp.min(report.last_store_time),
            },
            queues: QueuesPlan {
                rewrite_from: if intent.is_rebuild() {
                    Some(segments.start)
                } else {
                    rewrite_from
                },
                is_redone,
                is_replaced,
                is_synced: intent.is_rebuild() || !report.lost.is_empty(),
            },
            index: IndexPlan {
                kept: facts.kept_index,
                is_replaced,
                is_on_disk: rewrite_from.is_none(),
                is_redone,
                from: facts.index_from,
            },
            records: RecordsPlan {
                mark: FlushedMark {
                    flushed: log_end,
                    own_from: claim_of(intent, own_from.unwrap_or(log_end)),
                    is_sync: facts.is_sync,
                },
                was_own_from: if is_begun { Some(log_end) } else { own_from },
                is_claimed: own_from.is_none() || rewrite_from.is_some(),
                replica: replica_note(records.replica, intent, log_end),
                cut: cut_note(records.replica, intent),
                checkpoint: Some(stamps).filter(|stamps| *stamps != facts.stamps),
            },
        }
    }
}

/// Returns the claim on a log whose records are ours from `own_from` on, unless a slave receives it.
fn claim_of(intent: Intent, own_from: i64) -> i64 {
    if intent.is_replica() { NO_OWN_RECORDS } else { own_from }
}

/// Returns the offset up to which zeros are written past the end of the log. A segment that is replaced has nothing there.
fn zero_until(facts: &Facts<'_>) -> i64 {
    if facts.intent.cut_at().is_some() {
        facts.report.log_end
    } else if facts.records.shutdown.unfinished().is_some() {
        facts.segments.end
    } else {
        facts.written_until
    }
}

/// Returns the note of a slave that begins a cut.
fn cut_note(found: ReplicaNote, intent: Intent) -> Option<ReplicaNote> {
    intent.cut_at().map(|at| ReplicaNote {
        cuts: found.cuts.begin(at),
        ..found
    })
}

/// Returns the note of a slave, or of another writer that ends a cut. No cut is under way once the store is recovered.
fn replica_note(found: ReplicaNote, intent: Intent, log_end: i64) -> Option<ReplicaNote> {
    let cuts = intent.cut_at().map_or(found.cuts, |at| found.cuts.begin(at));
    let received_from = found.received_from.unwrap_or(log_end).min(log_end);
    (intent.is_replica() || cuts.is_unfinished()).then(|| ReplicaNote {
        received_from: intent.is_replica().then_some(received_from),
        cuts: cuts.end(),
    })
}

/// Returns the offset from which what was read may be in memory only; `None` if everything is on disk.
fn rewrite_from(facts: &Facts<'_>) -> Option<i64> {
    let LastShutdown { exit, .. } = facts.records.shutdown;
    match (exit, facts.intent) {
        (Exit::New | Exit::Clean, Intent::Heal | Intent::Replicate(_)) => None,
        (Exit::New | Exit::Clean, Intent::Rebuild(_)) if !facts.intent.is_salvage() => Some(facts.report.log_end),
        _ => {
            let unfinished = facts.records.shutdown.unfinished();
            Some(unfinished.map_or(facts.unsynced_from, |note| note.rewrite_from.min(facts.unsynced_from)))
        }
    }
}

/// Returns the offset below which every byte of the log is on disk, although a stamp may not cover it. What an unfinished recovery, or a
/// salvage, has written may not be on disk.
fn on_disk_until(records: WriterRecords, intent: Intent) -> i64 {
    let flushed = records.flushed;
    flushed
        .filter(|_| records.shutdown.unfinished().is_none() && !intent.is_salvage())
        .unwrap_or(0)
}

/// Returns the stamps with which the writer continues. After a clock was set back, a stamp in the future is right if a message has its time.
fn stamps(facts: &Facts<'_>) -> Checkpoint {
    let last_store_time = facts.report.last_store_time;
    let mut stamps = facts.stamps.ignoring_future(facts.now.max(last_store_time));
    if facts.intent.is_salvage() {
        stamps = stamps.of_another_history(last_store_time);
    }
    if facts.intent.cut_at().is_some() {
        stamps = stamps.of_a_cut_log();
    }
    if facts.intent.is_rebuild() {
        stamps = stamps.without_index().of_another_history(last_store_time);
    }
    stamps
}
