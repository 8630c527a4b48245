//! Crashed stores that a broker recovers in another way than our own writer.

use std::env;
use std::fs;
use std::path::Path;

use mqstore::check::{FindingId, Fix, Severity};
use mqstore::format::Checkpoint;
use mqstore::store::OpenMode;
use tempfile::tempdir;

use super::table::{MESSAGES, ROWS, Store};
use super::{copy, told, verified};
use crate::damage::bases::append;
use crate::store_writer::StoreWriter;

/// Bytes of a segment.
const SEGMENT: i64 = 4096;
const TIME: i64 = 1_700_000_000_000;

/// A crashed store of a broker: a message a second in turn in `orders/0` and `orders/1`. Returns the offsets of its messages.
fn crashed(root: &Path, messages: i64) -> Vec<i64> {
    let mut writer = StoreWriter::new(root, SEGMENT as usize, 500, 10, 20);
    let offsets = (0..messages).map(|n| {
        writer.last_store_time = TIME + n * 1000 - 10;
        writer.put("orders", (n % 2) as i32, &[7; 200], &[("KEYS", &format!("k{n}"))])
    });
    let offsets = offsets.collect();
    writer.finish(false);
    offsets
}

/// Writes the checkpoint of a broker that has flushed everything up to message `n`.
fn stamp(root: &Path, n: i64, logics_physical_offset: i64) {
    let checkpoint = Checkpoint {
        physic_msg_timestamp: TIME + n * 1000,
        logics_msg_timestamp: TIME + n * 1000,
        logics_physical_offset,
        ..Checkpoint::default()
    };
    fs::write(root.join("checkpoint"), checkpoint.encode()).unwrap();
}

/// Zeroes the entries of `orders/0` from this queue offset on.
fn lose_tail(root: &Path, from: usize) {
    let path = root.join("consumequeue/orders/0/00000000000000000000");
    let mut bytes = fs::read(&path).unwrap();
    bytes[from * 20..].fill(0);
    fs::write(path, bytes).unwrap();
}

/// Counts the messages that verify reports as not recovered, and as not dispatched yet.
fn found(root: &Path) -> (u64, u64) {
    let report = verified(root);
    let count = |id: FindingId| {
        report
            .findings
            .iter()
            .filter(|finding| finding.id == id)
            .map(|finding| finding.count)
            .sum()
    };
    let counts = (count(FindingId::QueueNotRecovered), count(FindingId::QueueNotDispatched));
    assert_eq!(report.is_ok(), counts.0 == 0, "{}", told(&report));
    let reader = crate::reading::open(root);
    assert_eq!(reader.recovery().lost_by_brokers, counts.0);
    counts
}

/// The start of the segment that holds message `n`.
fn segment_of(offsets: &[i64], n: usize) -> i64 {
    offsets[n] / SEGMENT * SEGMENT
}

#[test]
fn messages_before_the_segment_that_a_checkpoint_names_are_not_recovered() {
    for (covered, field) in [(40, false), (40, true), (0, false), (70, false), (70, true)] {
        let dir = tempdir().unwrap();
        let offsets = crashed(dir.path(), 80);
        let at = if field { offsets[covered as usize] } else { 0 };
        stamp(dir.path(), covered, at);
        lose_tail(dir.path(), 5);
        // Until 5.4 three seconds are left as a margin; 5.5 takes the stamp of the queues, or the offset, as it is.
        let start = segment_of(&offsets, covered as usize);
        let (mut lost, mut later) = (0, 0);
        for offset in offsets.iter().step_by(2).skip(5) {
            // After a gap every later message gets a place that is too low.
            if *offset < start || lost > 0 {
                lost += 1;
            } else {
                later += 1;
            }
        }
        assert_eq!(found(dir.path()), (lost, later), "covered {covered}, field {field}");
        assert_eq!(lost > 0, covered > 0);
    }
}

#[test]
fn a_queue_without_files_is_recovered_from_the_named_segment_only() {
    let dir = tempdir().unwrap();
    let offsets = crashed(dir.path(), 80);
    stamp(dir.path(), 40, offsets[40]);
    fs::remove_dir_all(dir.path().join("consumequeue/orders/1")).unwrap();
    let start = segment_of(&offsets, 40);
    let lost = offsets.iter().skip(1).step_by(2).filter(|offset| **offset < start).count() as u64;
    assert!(lost > 0);
    // The first message that is dispatched into a queue without files gets the place that it names.
    assert_eq!(found(dir.path()), (lost, 40 - lost));
}

#[test]
fn without_a_checkpoint_ten_segments_are_recovered() {
    for segments in [8, 14] {
        let dir = tempdir().unwrap();
        let offsets = crashed(dir.path(), segments * 13);
        let all = (offsets.last().unwrap() / SEGMENT) + 1;
        fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
        let (lost, later) = found(dir.path());
        let start = (all - 10).max(0) * SEGMENT;
        let before = offsets.iter().filter(|offset| **offset < start).count() as u64;
        assert_eq!((lost, lost + later), (before, offsets.len() as u64), "{all} segments");
        assert_eq!(lost > 0, segments == 14);
    }
}

#[test]
fn keys_that_a_broker_drops_are_a_note_with_their_number() {
    let dir = tempdir().unwrap();
    let offsets = crashed(dir.path(), 80);
    stamp(dir.path(), 40, offsets[40]);
    let report = verified(dir.path());
    let notes = report
        .findings
        .iter()
        .filter(|finding| finding.id == FindingId::IndexNotRecovered);
    let count: u64 = notes.map(|finding| finding.count).sum();
    let start = segment_of(&offsets, 40);
    let lost = offsets.iter().filter(|offset| **offset < start).count() as u64;
    assert!(count == lost && lost > 0, "{count} {lost}");
    assert!(report.is_ok());
    assert_eq!(crate::reading::open(dir.path()).recovery().keys_lost_by_brokers, lost);
}

#[test]
fn a_topic_without_queues_is_an_error_unless_it_was_deleted() {
    let settings = |topics: &[&str]| {
        let configs: Vec<String> = topics
            .iter()
            .map(|topic| format!(r#""{topic}":{{"topicName":"{topic}"}}"#))
            .collect();
        Some(format!(r#"{{"topicConfigTable":{{{}}}}}"#, configs.join(",")))
    };
    for (content, severity) in [
        (None, Severity::Error),
        (settings(&["orders", "payments"]), Severity::Error),
        (settings(&["orders"]), Severity::Note),
    ] {
        for is_crashed in [false, true] {
            let dir = tempdir().unwrap();
            append(dir.path(), OpenMode::New, 0..MESSAGES);
            fs::remove_dir_all(dir.path().join("consumequeue/payments")).unwrap();
            if let Some(content) = &content {
                fs::write(dir.path().join("config/topics.json"), content).unwrap();
            }
            if is_crashed {
                fs::write(dir.path().join("abort"), "").unwrap();
            }
            let report = verified(dir.path());
            let finding = report
                .findings
                .iter()
                .find(|finding| finding.id == FindingId::QueueTopicMissing);
            assert_eq!(finding.unwrap().severity, severity, "{content:?}, crashed {is_crashed}");
            crate::repairing::repaired(dir.path(), false, None).unwrap();
            let is_back = dir.path().join("consumequeue/payments").exists();
            assert_eq!(is_back, severity == Severity::Error, "{content:?}, crashed {is_crashed}");
        }
    }
}

#[test]
fn a_rebuild_makes_a_store_that_no_broker_recovers_whole() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("store");
    let offsets = crashed(&root, 80);
    stamp(&root, 70, offsets[70]);
    lose_tail(&root, 5);
    let error = verified(&root).findings.remove(0);
    assert_eq!((error.id, error.severity), (FindingId::QueueNotRecovered, Severity::Error));
    assert_eq!(error.remedy, Fix::Rebuild);
    crate::repairing::repaired(&root, false, None).unwrap();
    assert_eq!(told(&verified(&root)), "");
}

/// tests/interop runs it: brokers open the stores that it puts into the directory `DAMAGED_STORES`.
#[test]
#[ignore = "a child of tests/interop"]
fn puts_each_damaged_store_into_a_directory_closed_and_crashed() {
    let Some(into) = env::var_os("DAMAGED_STORES") else { return };
    let dir = tempdir().unwrap();
    let intact = dir.path().join("intact");
    append(&intact, OpenMode::New, 0..MESSAGES);
    copy(&intact, &Path::new(&into).join("intact"));
    for (number, (id, _, damage)) in ROWS.iter().enumerate() {
        for crashed in [false, true] {
            let exit = if crashed { "crashed" } else { "closed" };
            let root = Path::new(&into).join(format!("{number:02} {} {exit}", id.facts().name));
            copy(&intact, &root);
            damage(&Store(&root));
            if crashed {
                fs::write(root.join("abort"), "").unwrap();
            }
        }
    }
}
