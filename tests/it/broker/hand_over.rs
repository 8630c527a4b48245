//! Timer messages that are handed over to a broker: each is stored again once, and nothing else waits for the broker.

use std::path::Path;

use mqstore::broker::{DelayStats, HandOver};
use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::format::{MessageView, TIMER_TOPIC, TimerProgress, property};
use mqstore::read::StoredMessage;

use super::delay::{Stepped, config};
use super::timers::{TIMER_CHECK, append, deliver, delivered, persist, progress, with_services};
use crate::simulated_env::{Failure, Fault};

/// Files of a broker's timer wheel.
const WHEEL: [&str; 4] = [
    "timerwheel",
    "timerwheel.52",
    "timerlog/00000000000000000000",
    "config/timerwheel.104",
];

fn hand_over(open: &Stepped) -> u64 {
    open.dispatch();
    let report = open.broker.hand_over().unwrap();
    assert_eq!(report.passed_over, 0);
    report.timers
}

/// The bodies of the timer messages that a broker enqueues when it starts on the store.
fn awaited_by_a_broker(open: &Stepped) -> Vec<String> {
    let files = open.env.files(Path::new("/data/store/config"));
    let (_, bytes) = files.into_iter().find(|(path, _)| path == Path::new(TIMER_CHECK)).unwrap();
    let offset = |at: usize| i64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(offset(16), offset(24));
    let log = open.log();
    let of_broker = |view: &MessageView<'_>| view.has_topic(TIMER_TOPIC) && view.queue_offset() >= offset(16);
    let views = log.iter().map(StoredMessage::view).filter(of_broker);
    views.map(|view| String::from_utf8_lossy(view.body()).into_owned()).collect()
}

fn has_wheel(open: &Stepped) -> bool {
    let files = open.env.files(Path::new("/data/store"));
    files
        .iter()
        .any(|(path, _)| path.to_string_lossy().contains("timerwheel") || path.to_string_lossy().contains("timerlog"))
}

#[test]
fn a_handed_over_timer_is_stored_again_in_the_form_of_a_broker() {
    let mut open = Stepped::new();
    append(&open, 60_000, "a");
    let stored = open.env.now();
    open.pass(5000);
    assert_eq!(hand_over(&open), 1);
    let log = open.log();
    let [waiting, again] = log.as_slice() else {
        panic!("{}", log.len())
    };
    let (waiting, again) = (waiting.view(), again.view());
    assert_eq!(
        (again.topic().as_ref(), again.queue_id(), again.queue_offset()),
        (TIMER_TOPIC, 0, 1)
    );
    let mut expected: Vec<_> = waiting.properties().to_pairs();
    let times = [stored, open.env.now()].map(|time| time.to_string());
    let [enqueued, dequeued] = &times;
    expected.push((property::TIMER_ENQUEUE_MS.into(), enqueued.as_str().into()));
    expected.push((property::TIMER_DEQUEUE_MS.into(), dequeued.as_str().into()));
    expected.push((property::TIMER_ROLL_TIMES.into(), "1".into()));
    assert_eq!(again.properties().to_pairs(), expected);
    assert_eq!((again.body(), again.born_time()), (waiting.body(), waiting.born_time()));
    let open = open.reopened(config());
    assert_eq!(hand_over(&open), 1);
    let last = open.log().pop().unwrap();
    assert_eq!(last.view().properties().get(property::TIMER_ROLL_TIMES).as_deref(), Some("2"));
    assert_eq!(last.view().properties().to_pairs().len(), expected.len());
}

#[test]
fn a_broker_gets_what_waits_and_the_next_writer_delivers_it_once() {
    let mut open = Stepped::new();
    for (ms, body) in [(90_000, "late"), (1000, "a"), (60_000, "b"), (60_000, "b")] {
        append(&open, ms, body);
    }
    open.pass(1000);
    deliver(&open);
    assert_eq!(hand_over(&open), 3);
    assert_eq!(awaited_by_a_broker(&open), ["b", "b", "late"]);
    open.pass(60_000);
    assert_eq!((deliver(&open), delivered(&open)), (None, vec!["a".to_owned()]));
    open.close();
    assert_eq!(awaited_by_a_broker(&open), ["b", "b", "late"]);
    let mut open = Stepped::open(open.env.clone(), config()).unwrap();
    deliver(&open);
    open.pass(60_000);
    deliver(&open);
    assert_eq!(delivered(&open), ["a", "b", "b", "late"]);
    let open = open.killed();
    deliver(&open);
    assert_eq!(delivered(&open), ["a", "b", "b", "late"]);
}

#[test]
fn a_timer_appended_after_a_hand_over_waits_with_the_others() {
    let mut open = Stepped::new();
    append(&open, 60_000, "a");
    assert_eq!((hand_over(&open), hand_over(&open)), (1, 0));
    append(&open, 1000, "b");
    open.pass(1000);
    assert_eq!((deliver(&open), delivered(&open)), (None, vec![]));
    let stats = open.broker.delay_stats().unwrap().unwrap();
    let next_due = Some(open.env.now());
    let expected = DelayStats {
        waiting: 2,
        passed_over: 0,
        overdue: 0,
        next_due,
    };
    assert_eq!(stats, expected);
    persist(&mut open);
    open.close();
    assert_eq!(awaited_by_a_broker(&open), ["a", "b"]);
    let mut open = Stepped::open(open.env.clone(), config()).unwrap();
    open.pass(60_000);
    deliver(&open);
    assert_eq!(delivered(&open), ["b", "a"]);
}

#[test]
fn a_timer_that_is_not_in_its_queue_yet_is_handed_over_too() {
    let open = Stepped::new();
    append(&open, 60_000, "a");
    open.dispatch();
    append(&open, 50_000, "b");
    assert_eq!(open.broker.hand_over().unwrap().timers, 1);
    open.close();
    assert_eq!(awaited_by_a_broker(&open), ["b", "a"]);
}

#[test]
fn a_twin_of_a_handed_over_timer_is_delivered_too() {
    let open = Stepped::new();
    append(&open, 60_000, "a");
    open.dispatch();
    append(&open, 60_000, "a");
    assert_eq!(open.broker.hand_over().unwrap().timers, 1);
    open.close();
    assert_eq!(awaited_by_a_broker(&open), ["a", "a"]);
    let mut open = Stepped::open(open.env.clone(), config()).unwrap();
    open.pass(60_000);
    deliver(&open);
    assert_eq!(delivered(&open), ["a", "a"]);
}

#[test]
fn a_hand_over_removes_the_wheel_of_an_earlier_broker() {
    let open = Stepped::new();
    append(&open, 60_000, "a");
    open.close();
    for name in WHEEL {
        let path = Path::new("/data/store").join(name);
        let _ = open.env.shared().create_dir(path.parent().unwrap());
        open.env.put(&path, b"wheel");
    }
    open.env.put(Path::new("/data/store/lock"), b"lock");
    let open = Stepped::open(
        open.env.clone(),
        StoreConfig {
            services: Some(false),
            ..config()
        },
    )
    .unwrap();
    match open.broker.hand_over() {
        Err(Error::Invalid { what }) => assert!(what.contains("delivers no timers"), "{what}"),
        other => panic!("{other:?}"),
    }
    open.close();
    assert!(has_wheel(&open));
    let open = Stepped::open(open.env.clone(), with_services()).unwrap();
    assert_eq!(hand_over(&open), 1);
    assert!(!has_wheel(&open));
    assert_eq!(awaited_by_a_broker(&open), ["a"]);
}

#[test]
fn a_persisted_progress_replaces_the_wheel_of_an_earlier_broker() {
    let mut open = Stepped::new();
    append(&open, 1000, "a");
    open.env.put(Path::new("/data/store/timerwheel"), b"wheel");
    open.pass(1000);
    deliver(&open);
    assert!(has_wheel(&open));
    persist(&mut open);
    assert!(!has_wheel(&open));
    assert_eq!(awaited_by_a_broker(&open), [""; 0]);
}

#[test]
fn a_full_disk_ends_a_hand_over_which_a_later_call_completes() {
    let mut open = Stepped::new();
    let bodies: Vec<_> = (0..200).map(|number| format!("{number:0100}")).collect();
    for body in &bodies {
        append(&open, 60_000, body);
    }
    open.dispatch();
    open.env.set_fault(Some(Fault {
        failure: Failure::Full,
        number: 0,
        stays: true,
    }));
    assert!(matches!(open.broker.hand_over(), Err(Error::DiskFull { .. })));
    open.env.set_fault(None);
    let began = open.log().len();
    assert!((200..400).contains(&began), "{began}");
    open.dispatch();
    assert_eq!(
        open.broker.hand_over().unwrap(),
        HandOver {
            timers: 200,
            passed_over: 0
        }
    );
    let mut awaited = awaited_by_a_broker(&open);
    awaited.sort();
    assert_eq!(awaited, bodies);
    open.pass(60_000);
    let open = open.killed();
    deliver(&open);
    let mut delivered = delivered(&open);
    delivered.sort();
    assert_eq!(delivered, bodies);
}

#[test]
fn a_writer_continues_to_deliver_after_a_failed_hand_over() {
    let mut open = Stepped::new();
    let bodies: Vec<_> = (0..200).map(|number| format!("{number:0100}")).collect();
    // Those that are stored again first lie between others in the queue.
    for (number, body) in bodies.iter().enumerate() {
        append(&open, if number % 2 == 0 { 2000 } else { 1000 }, body);
    }
    open.dispatch();
    open.env.set_fault(Some(Fault {
        failure: Failure::Full,
        number: 0,
        stays: true,
    }));
    assert!(open.broker.hand_over().is_err());
    open.env.set_fault(None);
    // The file keeps the older progress while some of them wait.
    persist(&mut open);
    assert_eq!(progress(&open), None);
    open.pass(2000);
    deliver(&open);
    let mut of_writer = delivered(&open);
    of_writer.sort();
    assert_eq!(of_writer, bodies);
    persist(&mut open);
    assert!(progress(&open).is_some());
    let open = open.killed();
    deliver(&open);
    assert_eq!(delivered(&open).len(), bodies.len());
}

#[test]
fn the_progress_of_a_hand_over_begins_at_the_end_of_the_queue() {
    let mut open = Stepped::new();
    let begun = open.env.now();
    for (ms, body) in [(1000, "a"), (60_000, "b")] {
        append(&open, ms, body);
    }
    open.pass(1000);
    deliver(&open);
    hand_over(&open);
    let expected = TimerProgress {
        first: 2,
        queue_end: 2,
        delivered_until: begun + 1000,
        log_end: open.store.appended_offset(),
        handed_over: 3,
    };
    assert_eq!(progress(&open), Some(expected));
    assert_eq!(open.store.flushed_offset(), open.store.appended_offset());
}

#[test]
fn a_lost_timer_is_passed_over_and_counted_by_a_hand_over() {
    let open = Stepped::new();
    let first = append(&open, 60_000, "a");
    append(&open, 60_000, "b");
    open.close();
    let path = Path::new("/data/store/commitlog/00000000000000000000");
    let files = open.env.files(path.parent().unwrap());
    let (_, mut bytes) = files.into_iter().find(|(found, _)| found == path).unwrap();
    // A byte of the topic's length, which ends the record before its properties.
    let at = first.appended.physical_offset as usize + 100;
    bytes[at] ^= 0xff;
    open.env.put(path, &bytes);
    let open = Stepped::open(open.env.clone(), config()).unwrap();
    open.dispatch();
    let report = open.broker.hand_over().unwrap();
    assert_eq!(
        report,
        HandOver {
            timers: 1,
            passed_over: 1
        }
    );
    assert_eq!(awaited_by_a_broker(&open), ["b"]);
}
