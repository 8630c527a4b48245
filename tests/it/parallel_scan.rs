//! A scan that several threads read in sections gives what one thread gives, in the same order.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mqstore::config::{Errors, StoreConfig};
use mqstore::error::{Error, Result};
use mqstore::format::segment_name;
use mqstore::interrupt::{INTERVAL, interruptible};
use mqstore::read::{
    BodyFilter, Filled, MessageReader, OnDamage, Order, ParallelScan, Picked, Scan, ScanRequest, ScanSection, Transactions,
};
use mqstore::storage::Env;
use tempfile::{TempDir, tempdir};

use crate::counting_env::CountingEnv;
use crate::golden::golden_dir;
use crate::reading::open;
use crate::skipping::{DAMAGED, Damaged, SEGMENT};
use crate::store_writer::StoreWriter;

/// The outcome of a scan: physical offset and body of each message, how it ended, and what it reports afterwards.
type Outcome = (Vec<(i64, Vec<u8>)>, std::result::Result<(), String>, u64, bool);

/// A pass to be begun.
type Begin<'a> = &'a dyn Fn(OnDamage) -> Result<Scan>;

fn one_thread(begin: Begin<'_>, errors: Errors) -> Result<Outcome> {
    let (on_damage, mut found) = (OnDamage::new(errors), Vec::new());
    let mut scan = begin(on_damage.clone())?;
    let ended = loop {
        let filled = scan.fill(|picked| {
            found.push((picked.view.physical_offset(), picked.body.to_vec()));
            Ok(true)
        });
        match filled.unwrap() {
            Filled::Full | Filled::Paused => {}
            Filled::End => break Ok(()),
            Filled::Stopped(error) => break Err(error.to_string()),
        }
    };
    Ok((found, ended, on_damage.skipped(), scan.is_complete()))
}

/// The messages of a section, and why they end before it does.
fn gather(section: &mut ScanSection<'_>) -> (Vec<(i64, Vec<u8>)>, Option<Error>) {
    let mut found = Vec::new();
    let filled = section.fill(|picked| {
        found.push((picked.view.physical_offset(), picked.body.to_vec()));
        Ok(true)
    });
    match filled.unwrap() {
        Filled::Stopped(error) => (found, Some(error)),
        Filled::Full | Filled::Paused | Filled::End => (found, None),
    }
}

fn sections(begin: Begin<'_>, errors: Errors, threads: usize, bytes: u64) -> Result<Outcome> {
    let (on_damage, mut found) = (OnDamage::new(errors), Vec::new());
    let mut sections = ParallelScan::new(begin(on_damage.clone())?, threads, bytes, gather);
    let ended = loop {
        match sections.next_section() {
            Ok(Some(some)) => found.extend(some),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error.to_string()),
        }
    };
    Ok((found, ended, on_damage.skipped(), sections.is_complete()))
}

fn expect_the_same(what: &str, begin: Begin<'_>) {
    for errors in [Errors::Raise, Errors::Skip] {
        // Some ways are found only by reading the log.
        let Ok(expected) = one_thread(begin, errors) else { continue };
        for (threads, bytes) in [(0, 1), (1, 5000), (2, 1), (3, 20_000), (4, 1 << 20)] {
            let found = sections(begin, errors, threads, bytes).unwrap();
            assert_eq!(found, expected, "{what}, {errors:?}, {threads} threads, {bytes} bytes");
        }
    }
}

fn requests(reader: &MessageReader) -> Vec<(String, ScanRequest)> {
    let every = |order, transactions| ScanRequest {
        order,
        transactions,
        ..ScanRequest::default()
    };
    let mut requests = vec![
        ("the log".to_owned(), every(Order::Log, Transactions::Committed)),
        ("all of the log".to_owned(), every(Order::Log, Transactions::All)),
        ("the queues".to_owned(), every(Order::Queue, Transactions::Committed)),
        ("the queues of all".to_owned(), every(Order::Queue, Transactions::All)),
    ];
    for topic in reader.topics().unwrap() {
        for order in [Order::Log, Order::Queue] {
            let request = ScanRequest {
                topics: Some(vec![topic.clone()]),
                ..every(order, Transactions::Committed)
            };
            requests.push((format!("{topic} by {order:?}"), request));
        }
    }
    let searched = ScanRequest {
        body: BodyFilter::new(Some(b"1"), None).unwrap(),
        decode_body: true,
        reverse: true,
        ..ScanRequest::default()
    };
    requests.push(("bodies, reversed".to_owned(), searched));
    requests
}

fn expect_the_same_of_all(path: &Path) {
    let reader = open(path);
    for (name, request) in requests(&reader) {
        let begin = |on_damage| Scan::new(Arc::clone(&reader), request.clone(), on_damage);
        expect_the_same(&format!("{}: {name}", path.display()), &begin);
    }
}

#[test]
fn threads_give_what_one_gives_by_every_way_through_the_stores_of_brokers() {
    let names = ["491_multifile", "498_mixed", "533_mixed", "551_mixed", "491_crash_image"];
    for name in names {
        expect_the_same_of_all(&golden_dir().join(name));
    }
}

#[test]
fn threads_end_at_the_damage_where_one_ends_or_skip_as_many() {
    let lost = Damaged::new(&[3]);
    fs::remove_file(lost.path().join("commitlog").join(segment_name(2 * SEGMENT as u64))).unwrap();
    let lengths = Damaged::new(&[]);
    lengths.put_length(300, 7);
    for store in [Damaged::new(&DAMAGED), Damaged::salvaged(&DAMAGED), lost, lengths] {
        expect_the_same_of_all(store.path());
        let reader = open(store.path());
        let mut offsets = store.offsets.clone();
        offsets.reverse();
        offsets.insert(100, 7);
        let begin = |on_damage| Ok(Scan::of_records(Arc::clone(&reader), &offsets, on_damage));
        expect_the_same("records that are named", &begin);
        let stretches = [(0, 5..600), (7, 0..10)];
        let begin = |on_damage| Scan::of_queues(Arc::clone(&reader), "orders", &stretches, on_damage);
        expect_the_same("stretches of queues", &begin);
    }
}

fn scan(path: &Path) -> Scan {
    Scan::new(open(path), ScanRequest::default(), OnDamage::new(Errors::Raise)).unwrap()
}

#[test]
fn no_more_sections_are_read_than_threads_and_two() {
    let store = Damaged::new(&[]);
    let read = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&read);
    let mut sections = ParallelScan::new(scan(store.path()), 3, 1, move |section| {
        count.fetch_add(1, Ordering::Relaxed);
        gather(section)
    });
    assert_eq!(read.load(Ordering::Relaxed), 0, "nothing is read before it is asked for");
    for given in 1..=20 {
        assert_eq!(sections.next_section().unwrap().unwrap().len(), 1);
        assert!(read.load(Ordering::Relaxed) <= given + 4);
    }
    assert_eq!(sections.covers(), scan(store.path()).covers());
    drop(sections);
    assert_eq!(Arc::strong_count(&read), 1, "the threads have ended");
}

#[test]
fn a_panic_of_a_thread_ends_the_pass_with_an_error() {
    let store = Damaged::new(&[]);
    let mut sections = ParallelScan::new(scan(store.path()), 2, 5000, |_| -> (Vec<()>, Option<Error>) {
        panic!("planted")
    });
    let error = sections.next_section().unwrap_err();
    assert!(error.to_string().contains("planted"), "{error}");
    let begun = Instant::now();
    let is_late = move || {
        if begun.elapsed() > Duration::from_secs(10) {
            Err(Error::Closed)
        } else {
            Ok(())
        }
    };
    let after = interruptible(is_late, || sections.next_section());
    assert_eq!(after.unwrap(), None, "nothing follows it");
    assert!(!sections.is_complete());
}

#[test]
fn a_caller_that_is_interrupted_does_not_wait_for_the_next_section() {
    let store = Damaged::new(&[]);
    let (opens, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let mut sections = ParallelScan::new(scan(store.path()), 2, 5000, move |section| {
        let _ = gate.lock().unwrap().recv();
        gather(section)
    });
    let ended = interruptible(
        || Err(Error::Closed),
        || {
            std::thread::sleep(INTERVAL);
            sections.next_section()
        },
    );
    assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
    drop(opens);
    drop(sections);
}

/// Returns the number of messages that a scan returns, and whether it is complete: the same in both orders, with one thread and with
/// several.
fn counts(path: &Path) -> (usize, bool) {
    let reader = open(path);
    let outcomes = [Order::Log, Order::Queue].map(|order| {
        let request = ScanRequest {
            order,
            ..ScanRequest::default()
        };
        let begin = |on_damage| Scan::new(Arc::clone(&reader), request.clone(), on_damage);
        let (found, ended, _, is_complete) = one_thread(&begin, Errors::Raise).unwrap();
        assert_eq!(ended, Ok(()));
        let (at_once, ended, _, at_once_is_complete) = sections(&begin, Errors::Raise, 3, 2_000).unwrap();
        assert_eq!(ended, Ok(()));
        assert_eq!((at_once.len(), at_once_is_complete), (found.len(), is_complete), "{order:?}");
        (found.len(), is_complete)
    });
    assert_eq!(outcomes[0], outcomes[1]);
    outcomes[0]
}

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
