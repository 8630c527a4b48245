//! A scan that several threads read in sections gives what one thread gives, in the same order.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mqstore::config::Errors;
use mqstore::error::{Error, Result};
use mqstore::format::segment_name;
use mqstore::interrupt::{INTERVAL, interruptible};
use mqstore::read::{
    BodyFilter, Filled, MessageReader, OnDamage, Order, ParallelScan, Scan, ScanRequest, ScanSection, Transactions,
};

use crate::golden::golden_dir;
use crate::reading::open;
use crate::skipping::{DAMAGED, Damaged, SEGMENT};

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
        let begin = |on_damage| Scan::of_topic(Arc::clone(&reader), "orders", &stretches, on_damage);
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
pub(crate) fn counts(path: &Path) -> (usize, bool) {
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
