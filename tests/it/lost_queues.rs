//! Queues whose files are lost: each pass names them, and reads no more of the log than it needs for that.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use mqstore::config::{Errors, StoreConfig};
use mqstore::read::{
    Filled, Follow, FollowFrom, MessageReader, OnDamage, OnMissing, Order, Picked, QueueOffsets, Scan, ScanRequest, lost_queues,
};
use mqstore::storage::Env;
use tempfile::{TempDir, tempdir};

use crate::counting_env::CountingEnv;
use crate::parallel_scan::counts;
use crate::reading::open;
use crate::skipping::SEGMENT;
use crate::store_writer::StoreWriter;

/// Messages of another topic.
const BILLS: usize = 1200;

/// A store with messages of a topic in this order of queue ids, of which queue 1 has no file any more. They have a small part of the log.
fn without_queue_1(queue_ids: impl Iterator<Item = i32>) -> TempDir {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::small(dir.path());
    for queue_id in queue_ids {
        writer.put("orders", queue_id, b"body", &[]);
    }
    for _ in 0..BILLS {
        writer.put("bills", 0, b"body", &[]);
    }
    writer.finish(true);
    fs::remove_dir_all(dir.path().join("consumequeue/orders/1")).unwrap();
    dir
}

#[test]
fn a_scan_of_the_log_is_incomplete_if_the_files_of_a_queue_are_lost() {
    let dir = without_queue_1((0..40).map(|n| n % 2));
    assert_eq!(counts(dir.path()), (20 + BILLS, false));
    let mut scan = Scan::new(open(dir.path()), ScanRequest::default(), OnDamage::new(Errors::Raise)).unwrap();
    while !matches!(scan.fill(|_| Ok(true)).unwrap(), Filled::End) {}
    assert_eq!(scan.lost_queues(), [("orders".to_owned(), 1)]);
}

/// Gives the topic this number of queues in the settings of the store.
fn set_queues(dir: &Path, count: u32) {
    let orders = format!(r#"{{"topicName":"orders","readQueueNums":{count},"writeQueueNums":{count}}}"#);
    fs::create_dir_all(dir.join("config")).unwrap();
    fs::write(
        dir.join("config/topics.json"),
        format!(r#"{{"topicConfigTable":{{"orders":{orders}}}}}"#),
    )
    .unwrap();
}

/// Scans the topic, which has less than half of the log.
fn scan_orders(dir: &Path) -> (usize, bool, Vec<(String, i32)>) {
    scan_orders_of(open(dir))
}

fn scan_orders_of(reader: Arc<MessageReader>) -> (usize, bool, Vec<(String, i32)>) {
    scan_orders_as(reader, ScanRequest::default())
}

fn scan_orders_as(reader: Arc<MessageReader>, request: ScanRequest) -> (usize, bool, Vec<(String, i32)>) {
    let request = ScanRequest {
        topics: Some(vec!["orders".to_owned()]),
        ..request
    };
    let mut scan = Scan::new(reader, request, OnDamage::new(Errors::Raise)).unwrap();
    let mut found = 0;
    let mut take = |_: Picked<'_>| {
        found += 1;
        Ok(true)
    };
    while !matches!(scan.fill(&mut take).unwrap(), Filled::End) {}
    (found, scan.is_complete(), scan.lost_queues())
}

#[test]
fn a_scan_of_a_small_topic_is_incomplete_if_a_queue_between_is_lost() {
    let dir = without_queue_1((0..60).map(|n| n % 3));
    set_queues(dir.path(), 2);
    assert_eq!(scan_orders(dir.path()), (40, false, vec![("orders".to_owned(), 1)]));
}

#[test]
fn a_scan_of_a_small_topic_notices_that_a_queue_of_its_settings_is_lost() {
    let dir = without_queue_1((0..40).map(|n| n % 2));
    set_queues(dir.path(), 2);
    assert_eq!(scan_orders(dir.path()), (20, false, vec![("orders".to_owned(), 1)]));
}

#[test]
fn a_scan_without_settings_notices_that_the_highest_queue_is_lost() {
    let dir = without_queue_1((0..40).map(|n| n % 2));
    assert!(!dir.path().join("config/topics.json").exists());
    assert_eq!(scan_orders(dir.path()), (20, false, vec![("orders".to_owned(), 1)]));
}

#[test]
fn a_scan_in_the_order_of_queues_notices_that_a_queue_is_lost() {
    for queues in [2, 3] {
        let dir = without_queue_1((0..60).map(|n| n % queues));
        let request = ScanRequest {
            order: Order::Queue,
            ..ScanRequest::default()
        };
        let kept = 60 - 60 / queues as usize;
        let found = scan_orders_as(open(dir.path()), request);
        assert_eq!(found, (kept, false, vec![("orders".to_owned(), 1)]));
    }
}

#[test]
fn a_scan_of_a_stretch_counts_the_entries_of_its_segments() {
    // The lost queue has messages at the begin of the log alone.
    let dir = without_queue_1((0..40).map(|n| n % 2));
    let reader = open(dir.path());
    let physical = |offsets| ScanRequest {
        physical: offsets,
        ..ScanRequest::default()
    };
    let Range { start, end } = reader.physical_bounds();
    assert!(end > 3 * SEGMENT, "{end}");
    let later = SEGMENT..end;
    assert!(scan_orders_as(Arc::clone(&reader), physical(later)).1);
    let first = start..1000;
    assert!(!scan_orders_as(Arc::clone(&reader), physical(first)).1);
    assert!(!scan_orders_as(reader, physical(0..end)).1);
}

#[test]
fn a_scan_of_a_small_topic_reads_its_queues_if_ids_were_never_used() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::small(dir.path());
    for n in 0..400 {
        let (topic, queue_id) = if n < 20 { ("orders", n % 2 * 2) } else { ("bills", 0) };
        writer.put(topic, queue_id, b"body", &[]);
    }
    writer.finish(true);
    let (log, env) = (dir.path().join("commitlog"), Arc::new(CountingEnv::new()));
    let as_env: Arc<dyn Env> = env.clone();
    let reader = Arc::new(MessageReader::open(&as_env, dir.path(), StoreConfig::default()).unwrap());
    let before = env.bytes_read_below(&log);
    assert_eq!(scan_orders_of(reader), (20, true, Vec::new()));
    let (read, written) = (env.bytes_read_below(&log) - before, writer.end().unsigned_abs());
    assert!(read < written / 4, "{read} of {written}");
}

#[test]
fn messages_of_a_deleted_topic_leave_a_scan_of_its_successor_complete() {
    let dir = without_queue_1([1; 20].into_iter().chain([0; 20]));
    assert_eq!(counts(dir.path()), (20 + BILLS, true));
}

#[test]
fn a_pass_over_a_topic_is_incomplete_if_a_queue_is_lost() {
    let dir = without_queue_1((0..60).map(|n| n % 3));
    let pass = |topic: &str| {
        let reader = open(dir.path());
        let bounds = |id| (id, reader.queue_bounds(topic, id).unwrap());
        let stretches: Vec<_> = reader.queue_ids(topic).unwrap().into_iter().map(bounds).collect();
        let mut scan = Scan::of_topic(reader, topic, &stretches, OnDamage::new(Errors::Raise)).unwrap();
        while !matches!(scan.fill(|_| Ok(true)).unwrap(), Filled::End) {}
        (scan.is_complete(), scan.lost_queues())
    };
    assert_eq!(pass("orders"), (false, vec![("orders".to_owned(), 1)]));
    assert_eq!(pass("bills"), (true, Vec::new()));
    // A pass over one queue misses no message of it.
    let (reader, on_damage) = (open(dir.path()), OnDamage::new(Errors::Raise));
    let mut scan = Scan::of_queue(reader, "orders", 0, 0..20, on_damage).unwrap();
    while !matches!(scan.fill(|_| Ok(true)).unwrap(), Filled::End) {}
    assert!(scan.is_complete());
}

/// Looks for lost queues of a topic, and returns their names and the bytes of the log that were read.
fn looked_for(dir: &Path, topic: &str) -> (Vec<(String, i32)>, u64) {
    let (log, env) = (dir.join("commitlog"), Arc::new(CountingEnv::new()));
    let as_env: Arc<dyn Env> = env.clone();
    let reader = MessageReader::open(&as_env, dir, StoreConfig::default()).unwrap();
    let before = env.bytes_read_below(&log);
    let lost = lost_queues(&reader, Some(vec![topic.to_owned()])).unwrap();
    (lost.names(), env.bytes_read_below(&log) - before)
}

#[test]
fn a_search_for_lost_queues_reads_only_segments_that_are_not_filled() {
    // The lost queue has messages at the begin of the log alone.
    let dir = without_queue_1((0..40).map(|n| n % 2));
    let written = open(dir.path()).physical_bounds().end.unsigned_abs();
    let (lost, read) = looked_for(dir.path(), "orders");
    assert_eq!(lost, [("orders".to_owned(), 1)]);
    assert!(read < written / 2, "{read} of {written}");
    set_queues(dir.path(), 1);
    assert_eq!(looked_for(dir.path(), "orders"), (Vec::new(), 0));
}

/// Follows the store from its first message, and returns the number of messages and the lost queues.
fn follow_from(dir: &Path, topics: Option<Vec<String>>, from: FollowFrom) -> (usize, Vec<(String, i32)>) {
    let (reader, request) = (
        open(dir),
        ScanRequest {
            topics,
            ..ScanRequest::default()
        },
    );
    let end = reader.queued_until();
    let mut follow = Follow::of_log(reader, request, from, OnDamage::new(Errors::Raise)).unwrap();
    let lost = follow.lost_queues();
    assert!(lost.is_empty());
    let mut found = 0;
    while follow.next_until(end).unwrap().is_some() {
        found += 1;
    }
    (found, lost.names())
}

#[test]
fn a_follower_names_a_lost_queue_when_it_comes_to_its_messages() {
    let dir = without_queue_1((0..60).map(|n| n % 3));
    let (orders, bills) = (|| Some(vec!["orders".to_owned()]), || Some(vec!["bills".to_owned()]));
    let lost = vec![("orders".to_owned(), 1)];
    assert_eq!(follow_from(dir.path(), orders(), FollowFrom::Earliest), (40, lost.clone()));
    assert_eq!(follow_from(dir.path(), None, FollowFrom::Earliest), (40 + BILLS, lost));
    assert_eq!(follow_from(dir.path(), bills(), FollowFrom::Earliest), (BILLS, Vec::new()));
    assert_eq!(follow_from(dir.path(), None, FollowFrom::Latest), (0, Vec::new()));
}

#[test]
fn a_follower_from_positions_names_only_lost_queues_among_them() {
    let dir = without_queue_1((0..60).map(|n| n % 3));
    let from = |queue_ids: &[i32]| {
        let offsets: QueueOffsets = queue_ids.iter().map(|id| (("orders".to_owned(), *id), 0)).collect();
        follow_from(dir.path(), None, FollowFrom::Offsets(offsets, OnMissing::Refuse))
    };
    assert_eq!(from(&[0, 2]), (40, Vec::new()));
    assert_eq!(from(&[0, 1]), (20, vec![("orders".to_owned(), 1)]));
}
