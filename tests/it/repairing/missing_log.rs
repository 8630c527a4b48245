//! Stores of which segments are missing, repaired in a copy.

use std::fs;

use mqstore::format::{CQ_UNIT_SIZE, ITEM_SIZE};
use mqstore::store::{MessageStore, OpenMode};
use tempfile::tempdir;

use super::{env, rebuilt, repaired};
use crate::damage::bases::{append, message, tiny};
use crate::damage::fields::record_starts;
use crate::reading::open;
use crate::verifying::table::{MESSAGES, ROWS, Store, edit};
use crate::verifying::{copy, told, verified};
use mqstore::check::FindingId;

/// The first item of an index file of the tiny stores.
const FIRST_ITEM: usize = 40 + 4 * 10;

#[test]
fn a_repaired_copy_assigns_no_offset_again() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    append(&root, OpenMode::New, 0..MESSAGES);
    let reader = open(&root);
    let log_end = reader.physical_bounds().end;
    let ends = |root: &std::path::Path| {
        let reader = open(root);
        [("orders", 0), ("orders", 1), ("payments", 0), ("payments", 1)]
            .map(|(topic, queue_id)| reader.queue_bounds(topic, queue_id).unwrap().end)
    };
    let queue_ends = ends(&root);
    let segments = Store(&root).files("commitlog");
    fs::remove_file(segments.last().unwrap()).unwrap();
    let refused = repaired(&root, false, None).unwrap();
    assert!(refused.refusal.is_some() && refused.changes.is_empty(), "{refused:?}");
    let into = dir.path().join("into");
    let planned = repaired(&root, true, Some(&into)).unwrap();
    let report = repaired(&root, false, Some(&into)).unwrap();
    assert_eq!((&planned.changes, &planned.lost), (&report.changes, &report.lost));
    assert!(report.refusal.is_none() && report.left.is_empty(), "{report:?}");
    assert!(verified(&into).is_ok(), "{}", told(&verified(&into)));
    assert_eq!(ends(&into), queue_ends);
    let store = MessageStore::open(&env(), &into, tiny(), OpenMode::Existing).unwrap();
    let appended = store.append(message(0)).unwrap().appended;
    assert!(appended.physical_offset >= log_end, "{appended:?}");
    assert_eq!(appended.queue_offset, queue_ends[0]);
    store.close().unwrap();
}

#[test]
fn a_damaged_index_item_does_not_extend_the_repaired_log() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    append(&root, OpenMode::New, 0..MESSAGES);
    let store = Store(&root);
    // The last item names a physical offset of 72 PB. A binary search for items past the end of the log finds no other one.
    edit(store.files("index").last().unwrap(), |bytes| {
        let count = i32::from_be_bytes(bytes[36..40].try_into().unwrap()) as usize;
        bytes[FIRST_ITEM + (count - 1) * ITEM_SIZE + 4] = 1;
    });
    fs::remove_file(&store.files("commitlog")[1]).unwrap();
    let into = dir.path().join("into");
    let report = repaired(&root, false, Some(&into)).unwrap();
    assert!(report.refusal.is_none() && report.left.is_empty(), "{report:?}");
    assert_eq!(open(&into).physical_bounds(), open(&root).physical_bounds());
}

/// A file that names offsets past the end of the log.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Witness {
    Mark,
    QueueEntries,
    IndexItems,
    Checkpoint,
}

/// Lets only `witness` name the last messages of the log: the queue entries of those from `after` on are blank, and the items and the stamp
/// name `after`.
fn leave_only(witness: Witness, store: &Store<'_>, after: i64) {
    if witness != Witness::Mark {
        store.remove("config/mqstore.flushed");
    }
    if witness != Witness::QueueEntries {
        for queue in ["orders/0", "orders/1", "payments/0", "payments/1"] {
            for file in store.files(&format!("consumequeue/{queue}")) {
                edit(&file, |bytes| {
                    let entries = bytes.chunks_exact_mut(CQ_UNIT_SIZE);
                    let is_late = |entry: &&mut [u8]| i64::from_be_bytes(entry[..8].try_into().unwrap()) > after;
                    entries.filter(is_late).for_each(|entry| entry.fill(0));
                });
            }
        }
    }
    if witness != Witness::IndexItems {
        edit(store.files("index").last().unwrap(), |bytes| {
            for item in bytes[FIRST_ITEM..].chunks_exact_mut(ITEM_SIZE) {
                let named = i64::from_be_bytes(item[4..12].try_into().unwrap());
                item[4..12].copy_from_slice(&named.min(after).to_be_bytes());
            }
        });
    }
    if witness != Witness::Checkpoint {
        store.edit_checkpoint(|checkpoint| checkpoint.logics_physical_offset = after);
    }
}

/// Repairs a copy of a store without its last segment, whose last message only `witness` names. Returns its physical and queue
/// offset, and those of the first message that is appended to its queue in the copy.
fn first_append(witness: Witness) -> [[i64; 2]; 2] {
    let dir = tempdir().unwrap();
    let (root, into) = (dir.path().join("store"), dir.path().join("into"));
    append(&root, OpenMode::New, 0..MESSAGES);
    let store = Store(&root);
    let segment = store.files("commitlog").pop().unwrap();
    let start: i64 = segment.file_name().unwrap().to_str().unwrap().parse().unwrap();
    let bytes = fs::read(&segment).unwrap();
    let starts = record_starts(&bytes);
    // The others name the first two messages of the segment, which shows that it is missing.
    assert!(starts.len() > 5, "{starts:?}");
    leave_only(witness, &store, start + starts[1] as i64);
    // `starts` has the end of the last record, too.
    let last = starts[starts.len() - 2];
    let lost = [
        start + last as i64,
        i64::from_be_bytes(bytes[last + 20..last + 28].try_into().unwrap()),
    ];
    fs::remove_file(&segment).unwrap();
    let report = repaired(&root, false, Some(&into)).unwrap();
    assert!(report.refusal.is_none() && report.left.is_empty(), "{report:?}");
    let store = MessageStore::open(&env(), &into, tiny(), OpenMode::Existing).unwrap();
    let appended = store.append(message(MESSAGES - 1)).unwrap().appended;
    store.close().unwrap();
    [lost, [appended.physical_offset, appended.queue_offset]]
}

#[test]
fn a_repaired_copy_ends_past_what_only_the_mark_names() {
    let [lost, appended] = first_append(Witness::Mark);
    assert!(appended[0] > lost[0], "{appended:?}, {lost:?}");
}

#[test]
fn a_repaired_copy_ends_past_what_only_queue_entries_name() {
    let [lost, appended] = first_append(Witness::QueueEntries);
    assert!(appended[0] > lost[0] && appended[1] > lost[1], "{appended:?}, {lost:?}");
}

#[test]
fn a_repaired_copy_ends_past_what_only_index_items_name() {
    let [lost, appended] = first_append(Witness::IndexItems);
    assert!(appended[0] > lost[0], "{appended:?}, {lost:?}");
}

#[test]
fn a_repaired_copy_ends_past_what_only_the_checkpoint_names() {
    let [lost, appended] = first_append(Witness::Checkpoint);
    assert!(appended[0] > lost[0], "{appended:?}, {lost:?}");
}

#[test]
fn a_store_without_any_segment_is_refused_also_for_a_copy() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    append(&root, OpenMode::New, 0..MESSAGES);
    for segment in Store(&root).files("commitlog") {
        fs::remove_file(segment).unwrap();
    }
    let into = dir.path().join("into");
    let report = repaired(&root, false, Some(&into)).unwrap();
    assert!(
        report.refusal.is_some() && report.changes.is_empty() && !into.exists(),
        "{report:?}"
    );
}

#[test]
fn whole_records_after_a_torn_one_are_kept_in_a_repaired_copy() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    append(&root, OpenMode::New, 0..MESSAGES);
    let reader = open(&root);
    let torn = reader.message_in_queue("orders", 0, 3).unwrap();
    let (at, end) = (torn.view().physical_offset(), torn.view().end() as usize);
    let store = Store(&root);
    store.crash();
    // Nothing shows how much was on disk.
    store.remove("config/mqstore.flushed");
    store.remove("checkpoint");
    edit(&store.files("commitlog")[0], |bytes| bytes[end - 3..end].fill(0));
    assert!(!verified(&root).is_ok());
    let into = dir.path().join("into");
    let report = repaired(&root, false, Some(&into)).unwrap();
    assert!(report.left.is_empty() && report.lost.len() == 1, "{report:?}");
    assert!(report.lost[0].contains(&at));
    let reader = open(&into);
    let last = reader.queue_bounds("orders", 0).unwrap().end - 1;
    assert!(reader.message_in_queue("orders", 0, last).is_ok());
}

/// The hole of a queue leads to the message that may belong there, which names another queue and the same queue offset.
#[test]
fn a_filled_hole_resolves_to_no_message_of_another_queue() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    append(&root, OpenMode::New, 0..MESSAGES);
    let at = open(&root).message_in_queue("orders", 0, 3).unwrap().view().physical_offset() as usize;
    edit(&Store(&root).files("commitlog")[0], |bytes| bytes[at + 15] ^= 8);
    Store(&root).remove("consumequeue");
    rebuilt(&root, false).unwrap();
    let reader = open(&root);
    assert_eq!(reader.position("orders", 8, 3).unwrap().unwrap().physical_offset as usize, at);
    assert_eq!(reader.position("orders", 0, 3).unwrap(), None);
    assert!(reader.message_in_queue("orders", 0, 3).is_err());
    assert!(reader.position("orders", 0, 4).unwrap().is_some());
}

#[test]
fn stale_records_in_the_last_segment_do_not_shorten_a_repaired_copy() {
    let dir = tempdir().unwrap();
    let intact = dir.path().join("intact");
    append(&intact, OpenMode::New, 0..MESSAGES);
    let end = open(&intact).physical_bounds().end;
    let segments = Store(&intact).files("commitlog");
    let mut tried = 0;
    for source in &segments[..2] {
        let bytes = fs::read(source).unwrap();
        // The lengths of the stale records lead to other places each time, also past the end of the log.
        for start in record_starts(&bytes) {
            let (root, into) = (dir.path().join("store"), dir.path().join("into"));
            copy(&intact, &root);
            edit(Store(&root).files("commitlog").last().unwrap(), |last| {
                last[..bytes.len() - start].copy_from_slice(&bytes[start..]);
            });
            let report = repaired(&root, false, Some(&into)).unwrap();
            assert!(report.left.is_empty(), "{start}: {report:?}");
            assert!(open(&into).physical_bounds().end >= end, "{start}: {report:?}");
            fs::remove_dir_all(&root).unwrap();
            fs::remove_dir_all(&into).unwrap();
            tried += 1;
        }
    }
    assert!(tried > 30);
}

#[test]
fn a_rebuild_without_queue_files_keeps_the_topic_that_was_made_again() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    append(&root, OpenMode::New, 0..MESSAGES);
    let (_, _, make_again) = ROWS.iter().find(|row| row.0 == FindingId::LogEarlierTopic).unwrap();
    make_again(&Store(&root));
    let answers = || {
        let reader = open(&root);
        let bounds = reader.queue_bounds("orders", 0).unwrap();
        bounds
            .map(|offset| reader.message_in_queue("orders", 0, offset).unwrap().view().physical_offset())
            .collect::<Vec<_>>()
    };
    let before = answers();
    Store(&root).remove("consumequeue");
    assert_eq!(answers(), before);
    rebuilt(&root, false).unwrap();
    assert_eq!(answers(), before);
    assert!(verified(&root).is_ok(), "{}", told(&verified(&root)));
}
