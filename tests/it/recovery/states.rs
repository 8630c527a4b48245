//! The plan of a writer for each state in which it finds a store, with each intent.

use mqstore::config::{Recovery, Sizes};
use mqstore::format::{Checkpoint, FlushedMark};
use mqstore::log::KeptIndex;
use mqstore::recovery::{
    DirectoryPlan, Exit, Facts, Intent, LastShutdown, LogPlan, QueuesPlan, RecordsPlan, RecoveryNote, RecoveryReport,
    ReplicaNote, WritePlan, WriterRecords,
};

/// The log: its segments, its end, and the offset past which it reads as zeros.
const SEGMENTS: std::ops::Range<i64> = 1000..9000;
const END: i64 = 5000;
const WRITTEN_UNTIL: i64 = 6000;
/// The mark of what was flushed, and the last message that the checkpoint covers.
const FLUSHED: i64 = 4500;
const UNSYNCED_FROM: i64 = 4000;
const CLAIM: i64 = 2000;
const NOTE: RecoveryNote = RecoveryNote {
    rewrite_from: 3000,
    closed_at: Some(4900),
};
const INTENTS: [Intent; 4] = [
    Intent::Heal,
    Intent::Salvage,
    Intent::Rebuild(Recovery::Heal),
    Intent::Rebuild(Recovery::Salvage),
];

fn report(log_end: i64) -> RecoveryReport {
    RecoveryReport {
        log_end,
        last_store_time: 70,
        ..RecoveryReport::default()
    }
}

fn facts(exit: Exit, note: Option<RecoveryNote>, intent: Intent, report: &RecoveryReport) -> Facts<'_> {
    let checkpoint = Checkpoint {
        physic_msg_timestamp: 60,
        logics_msg_timestamp: 60,
        index_msg_timestamp: 60,
        keys_stamp: 60,
        ..Checkpoint::default()
    };
    Facts {
        records: WriterRecords {
            shutdown: LastShutdown { exit, note },
            claim: Some(CLAIM),
            flushed: Some(FLUSHED),
            checkpoint,
            replica: ReplicaNote::default(),
        },
        intent,
        report,
        segments: SEGMENTS,
        written_until: WRITTEN_UNTIL,
        unsynced_from: UNSYNCED_FROM,
        stamps: checkpoint,
        now: 1000,
        kept_index: KeptIndex::default(),
        is_index_cut: false,
        index_from: 1200,
        sizes: Sizes::SMALL,
        is_sync: false,
    }
}

/// The offsets from which the log and the queue entries are written again, for one state and the intents in the order of [`INTENTS`].
type Rewritten = [(Option<i64>, Option<i64>); 4];

#[test]
fn each_state_of_a_store_has_its_plan_for_each_intent() {
    let start = Some(SEGMENTS.start);
    let clean: Rewritten = [
        (None, None),
        (Some(4000), Some(4000)),
        (Some(END), start),
        (Some(4000), start),
    ];
    let crashed: Rewritten = [
        (Some(FLUSHED), Some(4000)),
        (Some(4000), Some(4000)),
        (Some(FLUSHED), start),
        (Some(4000), start),
    ];
    // Neither the mark nor a stamp covers what an unfinished recovery has written.
    let unfinished: Rewritten = [
        (Some(3000), Some(3000)),
        (Some(3000), Some(3000)),
        (Some(3000), start),
        (Some(3000), start),
    ];
    for (exit, note, expected) in [
        (Exit::New, None, clean),
        (Exit::New, Some(NOTE), clean),
        (Exit::Clean, None, clean),
        (Exit::Clean, Some(NOTE), clean),
        (Exit::Crashed, None, crashed),
        (Exit::Crashed, Some(NOTE), unfinished),
    ] {
        for (intent, (log, entries)) in INTENTS.into_iter().zip(expected) {
            let report = report(END);
            let plan = WritePlan::new(&facts(exit, note, intent, &report));
            let what = format!("{exit:?}, {note:?}, {intent:?}");
            let is_redone = exit == Exit::Crashed && note.is_some();
            let expected = LogPlan {
                segment_size: Sizes::SMALL.commit_log,
                is_begun: false,
                lost: Vec::new(),
                end: END,
                zero_until: if is_redone { SEGMENTS.end } else { WRITTEN_UNTIL },
                rewrite_from: log,
                is_replaced: false,
                last_store_time: 70,
                covered_time: plan.log.covered_time,
            };
            assert_eq!(plan.log, expected, "{what}");
            let expected = QueuesPlan {
                rewrite_from: entries,
                is_redone,
                is_replaced: false,
                is_synced: matches!(intent, Intent::Rebuild(_)),
            };
            assert_eq!(plan.queues, expected, "{what}");
            let index = (plan.index.is_on_disk, plan.index.is_redone, plan.index.from);
            assert_eq!(index, (log.is_none(), is_redone, 1200), "{what}");
            // A stamp that covers less than the old one makes the next recovery read more.
            assert_eq!(plan.records.checkpoint.is_some(), intent != Intent::Heal, "{what}");
        }
    }
}

#[test]
fn a_recovery_writes_its_note_first_and_keeps_the_closed_end_of_the_log() {
    for (exit, note, closed_at) in [
        (Exit::New, None, Some(END)),
        (Exit::Clean, None, Some(END)),
        (Exit::Clean, Some(NOTE), Some(END)),
        (Exit::Crashed, None, None),
        (Exit::Crashed, Some(NOTE), NOTE.closed_at),
    ] {
        for intent in INTENTS {
            let report = report(END);
            let mut facts = facts(exit, note, intent, &report);
            let what = format!("{exit:?}, {note:?}, {intent:?}");
            let plan = WritePlan::new(&facts).directory;
            assert!(plan.note.is_some_and(|note| note.closed_at == closed_at), "{what}");
            assert!(plan.removes_note, "{what}");
            // A closed store whose log ends where nothing is written needs no change.
            facts.written_until = END;
            let is_unchanged = exit != Exit::Crashed && intent == Intent::Heal;
            let expected = DirectoryPlan {
                is_begun: exit == Exit::New,
                has_unfinished_files: !is_unchanged,
                note: plan.note.filter(|_| !is_unchanged),
                removes_note: !is_unchanged || note.is_some(),
            };
            assert_eq!(WritePlan::new(&facts).directory, expected, "{what}");
        }
    }
}

#[test]
fn a_store_without_a_record_may_have_directories_that_are_not_durable() {
    for exit in [Exit::New, Exit::Clean, Exit::Crashed] {
        let report = report(SEGMENTS.start);
        let plan = WritePlan::new(&facts(exit, None, Intent::Heal, &report)).directory;
        assert!(plan.is_begun, "{exit:?}");
        assert_eq!(plan.has_unfinished_files, exit != Exit::New, "{exit:?}");
    }
}

#[test]
fn a_claim_past_the_end_of_the_log_is_replaced_by_the_end() {
    for (claim, own_from) in [(Some(CLAIM), CLAIM), (Some(END), END), (Some(END + 1), END), (None, END)] {
        let report = report(END);
        let mut facts = facts(Exit::Clean, None, Intent::Heal, &report);
        facts.records.claim = claim;
        let expected = RecordsPlan {
            mark: FlushedMark {
                flushed: END,
                own_from,
                is_sync: false,
            },
            was_own_from: claim.filter(|claim| *claim <= END),
            is_claimed: claim.is_none_or(|claim| claim > END),
            replica: None,
            cut: None,
            checkpoint: None,
        };
        assert_eq!(WritePlan::new(&facts).records, expected, "{claim:?}");
    }
}
