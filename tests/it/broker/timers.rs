//! Timer messages: delivered once, at their time, in their order.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mqstore::broker::{BrokerService, DelayStats, Hold, NeededBy, TimerBacklog, TimerFate, TrimReport};
use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::error::Error;
use mqstore::format::{Message, Properties, TIMER_TOPIC, TimerCheck, TimerProgress, property};
use mqstore::read::{MessageReader, StoredMessage};
use mqstore::store::{AppendResult, Incoming, TrimTo};

use super::delay::{SEGMENT, Stepped, config, delayed, machine};
use crate::simulated_env::{Failure, Fault, SimulatedEnv};
use crate::writing::with;

pub(super) const TIMER_CHECK: &str = "/data/store/config/timercheck";

/// A message for queue 3 of `orders` with this property.
pub(super) fn timed(name: &str, value: i64, body: &str) -> Message<'static> {
    with(delayed(1, body), &[("KEYS", "k"), (name, &value.to_string())])
}

/// The message with further properties.
pub(super) fn and<'a>(message: Message<'a>, pairs: &[(&str, &str)]) -> Message<'a> {
    let known = Properties::new(&message.properties).to_pairs();
    let known: Vec<_> = known
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    let known = known.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let all: Vec<_> = known.chain(pairs.iter().copied()).collect();
    with(message, &all)
}

/// A message that is to be delivered `ms` from now.
pub(super) fn after(open: &Stepped, ms: i64, body: &str) -> Message<'static> {
    timed(property::TIMER_DELIVER_MS, open.env.now() + ms, body)
}

pub(super) fn append(open: &Stepped, ms: i64, body: &str) -> AppendResult {
    open.store.append(after(open, ms, body)).unwrap()
}

/// Delivers what is due. Returns the time until the next step.
pub(super) fn deliver(open: &Stepped) -> Option<Duration> {
    open.deliver_timers().map(|until| until - open.now())
}

pub(super) fn persist(open: &mut Stepped) {
    open.persist_by(BrokerService::PersistTimers);
}

/// The bodies of the delivered copies, in order.
pub(super) fn delivered(open: &Stepped) -> Vec<String> {
    let log = open.log();
    let copies = log
        .iter()
        .map(StoredMessage::view)
        .filter(|view| !view.has_topic(TIMER_TOPIC));
    copies.map(|view| String::from_utf8_lossy(view.body()).into_owned()).collect()
}

pub(super) fn check_file(env: &SimulatedEnv) -> Option<TimerCheck> {
    let files = env.files(Path::new("/data/store/config"));
    let found = files.into_iter().find(|(path, _)| path == Path::new(TIMER_CHECK));
    found.map(|(_, bytes)| TimerCheck::decode(&bytes))
}

pub(super) fn progress(open: &Stepped) -> Option<TimerProgress> {
    check_file(&open.env).and_then(|check| check.progress)
}

pub(super) fn with_services() -> StoreConfig {
    StoreConfig {
        services: Some(true),
        ..config()
    }
}

fn refused(open: &Stepped, message: Message<'_>) -> String {
    match open.store.append(message) {
        Err(error @ Error::IllegalMessage { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_timer_message_waits_in_the_record_that_a_broker_makes() {
    let open = Stepped::new();
    let now = open.env.now() / 1000 * 1000;
    open.env.set_now(now + 500);
    for (deliver_at, out) in [(now + 2000, now + 1000), (now + 2001, now + 2000), (now + 2999, now + 2000)] {
        open.store.append(timed(property::TIMER_DELIVER_MS, deliver_at, "a")).unwrap();
        let log = open.log();
        let record = log.last().unwrap().view();
        assert_eq!((record.topic().as_ref(), record.queue_id()), (TIMER_TOPIC, 0));
        let expected = [
            ("KEYS", "k".to_owned()),
            (property::TIMER_DELIVER_MS, deliver_at.to_string()),
            (property::TIMER_OUT_MS, out.to_string()),
            (property::REAL_TOPIC, "orders".to_owned()),
            (property::REAL_QID, "3".to_owned()),
        ];
        let stored = record.properties().to_pairs();
        let stored: Vec<_> = stored
            .iter()
            .map(|(name, value)| (name.as_ref(), value.to_string()))
            .collect();
        assert_eq!(stored, expected);
    }
}

#[test]
fn a_time_that_has_passed_is_no_delay_and_keeps_its_property() {
    let open = Stepped::new();
    for ms in [0, -1, -100_000] {
        append(&open, ms, "a");
        let log = open.log();
        let record = log.last().unwrap().view();
        assert_eq!(record.topic(), "orders");
        assert!(record.properties().get(property::TIMER_DELIVER_MS).is_some());
        assert!(record.properties().get(property::REAL_TOPIC).is_none());
    }
}

#[test]
fn a_delay_level_wins_over_a_time_as_in_a_broker() {
    let open = Stepped::new();
    open.store.append(and(after(&open, 5000, "a"), &[("DELAY", "1")])).unwrap();
    assert_eq!(open.log().last().unwrap().view().topic(), "SCHEDULE_TOPIC_XXXX");
}

#[test]
fn a_time_that_no_broker_accepts_is_refused_and_stores_nothing() {
    let open = Stepped::new();
    let most = 259_200_000;
    let text = refused(&open, after(&open, most + 1, "a"));
    assert!(text.contains("259201 s from now: timer_max_delay_sec is 259200"), "{text}");
    let text = refused(
        &open,
        with(delayed(1, "a"), &[(property::TIMER_DELAY_SEC, "soon"), ("DELAY", "0")]),
    );
    assert!(text.contains("property TIMER_DELAY_SEC is not a number"), "{text}");
    let mut message = after(&open, 1000, "a");
    message.topic = "RMQ_SYS_TRANS_HALF_TOPIC".into();
    assert!(refused(&open, message).contains("belongs to the broker"));
    assert_eq!(open.log().len(), 0);
    append(&open, most, "a");
    assert_eq!(open.log().len(), 1);
}

#[test]
fn a_timer_message_leaves_room_for_what_its_delivery_adds() {
    let roomy = StoreConfig {
        mapped_file_size_commit_log: Some(64 * 1024),
        ..config()
    };
    let mut open = Stepped::open(machine(), roomy).unwrap();
    let text = refused(&open, and(after(&open, 1000, "a"), &[("long", &"v".repeat(32_600))]));
    assert!(text.contains("with those that the delivery adds"), "{text}");
    open.store
        .append(and(after(&open, 1000, "a"), &[("long", &"v".repeat(32_500))]))
        .unwrap();
    open.pass(1000);
    deliver(&open);
    assert_eq!(delivered(&open), ["a"]);
}

#[test]
fn messages_are_delivered_at_their_times_in_their_order() {
    let mut open = Stepped::new();
    for (ms, body) in [(3000, "c"), (1500, "a"), (2999, "b"), (1500, "a2")] {
        append(&open, ms, body);
    }
    assert_eq!(
        (deliver(&open), delivered(&open)),
        (Some(Duration::from_millis(1500)), vec![])
    );
    open.pass(1499);
    assert_eq!((deliver(&open), delivered(&open)), (Some(Duration::from_millis(1)), vec![]));
    open.pass(1);
    assert_eq!(
        (deliver(&open), delivered(&open)),
        (Some(Duration::from_millis(1499)), vec!["a".into(), "a2".into()])
    );
    open.pass(1500);
    assert_eq!(
        (deliver(&open), delivered(&open)),
        (None, ["a", "a2", "b", "c"].map(str::to_owned).to_vec())
    );
}

#[test]
fn a_copy_in_a_store_with_sync_flush_is_shown_at_once() {
    let config = StoreConfig {
        flush_disk_type: FlushDiskType::Sync,
        ..config()
    };
    let mut open = Stepped::open(machine(), config).unwrap();
    append(&open, 1000, "a");
    open.pass(1001);
    deliver(&open);
    assert_eq!(open.store.flushed_offset(), open.store.appended_offset());
    assert_eq!(delivered(&open), ["a"]);
    open.close();
}

#[test]
fn a_copy_has_all_of_the_message_and_the_times_of_its_way() {
    let mut open = Stepped::new();
    let sent = Message {
        flag: 7,
        born_time: 12,
        reconsume_times: 2,
        prepared_transaction_offset: 99,
        ..after(&open, 1234, "a")
    };
    open.store.append(sent).unwrap();
    open.pass(1300);
    deliver(&open);
    let log = open.log();
    let [waiting, copy] = log.as_slice() else {
        panic!("{}", log.len())
    };
    let (waiting, copy) = (waiting.view(), copy.view());
    let mut expected: Vec<_> = waiting.properties().to_pairs();
    let times = [waiting.store_time(), open.env.now()].map(|time| time.to_string());
    let [enqueued, dequeued] = &times;
    expected.push((property::TIMER_ENQUEUE_MS.into(), enqueued.as_str().into()));
    expected.push((property::TIMER_DEQUEUE_MS.into(), dequeued.as_str().into()));
    assert_eq!(copy.properties().to_pairs(), expected);
    let fields = |message: Message<'_>| {
        Message {
            topic: "".into(),
            queue_id: 0,
            properties: vec![].into(),
            physical_offset: 0,
            store_time: 0,
            prepared_transaction_offset: 0,
            ..message
        }
        .encode()
        .unwrap()
    };
    assert_eq!(fields(copy.to_message()), fields(waiting.to_message()));
    assert_eq!((copy.topic().as_ref(), copy.queue_id()), ("orders", 3));
    assert_eq!(copy.prepared_transaction_offset(), 0);
}

#[test]
fn a_delay_of_a_producer_ends_in_its_second() {
    let mut open = Stepped::new();
    open.env.set_now(open.env.now() / 1000 * 1000 + 700);
    open.store.append(timed(property::TIMER_DELAY_SEC, 2, "s")).unwrap();
    open.store.append(timed(property::TIMER_DELAY_MS, 1500, "ms")).unwrap();
    assert_eq!(deliver(&open), Some(Duration::from_millis(1500)));
    open.pass(1500);
    assert_eq!(
        (deliver(&open), delivered(&open)),
        (Some(Duration::from_millis(500)), vec!["ms".into()])
    );
    open.pass(500);
    deliver(&open);
    assert_eq!(delivered(&open), ["ms", "s"]);
}

#[test]
fn a_nacked_copy_is_not_delivered_by_its_timer_again() {
    let mut open = Stepped::new();
    append(&open, 1000, "a");
    open.pass(1000);
    deliver(&open);
    let copy = open.log().pop().unwrap();
    let again = copy.view().to_message();
    open.store
        .append(Message {
            reconsume_times: 1,
            ..again
        })
        .unwrap();
    assert_eq!(delivered(&open), ["a", "a"]);
    let open = open.killed();
    deliver(&open);
    assert_eq!(delivered(&open), ["a", "a"]);
}

#[test]
fn what_cannot_be_delivered_is_passed_over_and_counted() {
    let mut open = Stepped::new();
    let out = (property::TIMER_OUT_MS, "1000");
    let place = [("REAL_TOPIC", "t"), ("REAL_QID", "0")];
    let mut done = Vec::new();
    for pairs in [
        vec![place[0], place[1]],
        vec![out, place[1]],
        vec![out, ("REAL_TOPIC", "a/b"), place[1]],
        vec![out, ("REAL_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC"), place[1]],
        vec![out, place[0], place[1], (property::TIMER_DEL_UNIQKEY, "x")],
    ] {
        let mut message = with(delayed(1, "lost"), &pairs);
        (message.topic, message.queue_id) = (TIMER_TOPIC.into(), 0);
        open.store
            .appender(None)
            .append_all(vec![Incoming::Copied(message)], &mut done)
            .unwrap();
    }
    append(&open, 1000, "a");
    open.pass(1000);
    deliver(&open);
    let expected = DelayStats {
        waiting: 0,
        passed_over: 4,
        overdue: 0,
        next_due: None,
    };
    let stats = open.broker.delay_stats().unwrap().unwrap();
    assert_eq!((delivered(&open), stats), (vec!["a".to_owned()], expected));
}

#[test]
fn a_full_disk_delays_a_delivery_and_loses_none() {
    let mut open = Stepped::new();
    for number in 0..200 {
        append(&open, 1000, &format!("{number:0100}"));
    }
    open.dispatch();
    open.env.set_fault(Some(Fault {
        failure: Failure::Full,
        number: 0,
        stays: true,
    }));
    open.pass(1000);
    assert_eq!(deliver(&open), Some(Duration::from_millis(100)));
    open.env.set_fault(None);
    assert!(delivered(&open).len() < 200);
    open.pass(100);
    deliver(&open);
    let expected: Vec<_> = (0..200).map(|number| format!("{number:0100}")).collect();
    assert_eq!(delivered(&open), expected);
}

#[test]
fn a_killed_process_delivers_nothing_again_and_the_rest_once() {
    let mut open = Stepped::new();
    for (ms, body) in [(9000, "late"), (1000, "a"), (1000, "a"), (2000, "b")] {
        append(&open, ms, body);
    }
    open.pass(1000);
    deliver(&open);
    let mut open = open.killed();
    deliver(&open);
    assert_eq!(delivered(&open), ["a", "a"]);
    persist(&mut open);
    open.pass(1000);
    deliver(&open);
    let mut open = open.killed();
    open.pass(8000);
    deliver(&open);
    assert_eq!(delivered(&open), ["a", "a", "b", "late"]);
}

#[test]
fn the_progress_is_a_time_and_the_first_message_that_waits() {
    let mut open = Stepped::new();
    let begun = open.env.now();
    for (ms, body) in [(1000, "a"), (5000, "late"), (2000, "b")] {
        append(&open, ms, body);
    }
    open.pass(2000);
    deliver(&open);
    persist(&mut open);
    let expected = TimerProgress {
        first: 1,
        queue_end: 3,
        delivered_until: begun + 2000,
        log_end: open.store.appended_offset(),
        handed_over: 0,
    };
    assert_eq!(progress(&open), Some(expected));
    append(&open, 1000, "c");
    open.close();
    let mut open = Stepped::open(open.env.clone(), config()).unwrap();
    open.pass(100_000);
    deliver(&open);
    assert_eq!(delivered(&open), ["a", "b", "c", "late"]);
}

#[test]
fn a_late_message_keeps_the_older_snapshot_until_it_is_delivered() {
    let mut open = Stepped::new();
    append(&open, 1000, "a");
    open.pass(1500);
    deliver(&open);
    persist(&mut open);
    let before = progress(&open).unwrap();
    open.pass(-1000);
    append(&open, 300, "late");
    append(&open, 100, "early");
    open.pass(150);
    // A delivery asks for a snapshot.
    deliver(&open);
    assert_eq!(delivered(&open), ["a", "early"]);
    persist(&mut open);
    assert_eq!(progress(&open), Some(before));
    let mut open = open.killed();
    deliver(&open);
    open.pass(300);
    deliver(&open);
    assert_eq!(delivered(&open), ["a", "early", "late"]);
    persist(&mut open);
    assert_eq!(progress(&open).map(|progress| progress.first), Some(3));
}

#[test]
fn a_clean_open_searches_no_log_for_copies() {
    let mut open = Stepped::new();
    append(&open, 50_000, "late");
    append(&open, 1000, "a");
    open.pass(1000);
    deliver(&open);
    open.close();
    assert_eq!(
        progress(&open).map(|progress| progress.log_end),
        Some(open.store.appended_offset())
    );
}

#[test]
fn what_a_broker_left_is_delivered_once() {
    let mut open = Stepped::new();
    for (ms, body) in [(1000, "a"), (2000, "b"), (60_000, "late")] {
        append(&open, ms, body);
    }
    open.pass(1000);
    deliver(&open);
    open.close();
    // A broker has read the whole queue into its timer wheel, and writes only its own fields.
    let files = open.env.files(Path::new("/data/store/config"));
    let (_, mut bytes) = files.into_iter().find(|(path, _)| path == Path::new(TIMER_CHECK)).unwrap();
    bytes[16..24].copy_from_slice(&3_i64.to_be_bytes());
    open.env.put(Path::new(TIMER_CHECK), &bytes);
    open.env.put(Path::new("/data/store/lock"), b"lock");
    let mut open = Stepped::open(open.env.clone(), config()).unwrap();
    assert!(!open.broker.serve_delayed().unwrap());
    open.close();
    open = Stepped::open(open.env.clone(), with_services()).unwrap();
    open.pass(1000);
    deliver(&open);
    assert_eq!(delivered(&open), ["a", "b"]);
    open.pass(60_000);
    deliver(&open);
    assert_eq!(delivered(&open), ["a", "b", "late"]);
    // From then on this writer delivers by default.
    let open = open.reopened(config());
    assert!(open.broker.serve_delayed().unwrap());
}

/// The record that a broker makes when it stores a timer message again.
fn rolled<'m>(message: &'m StoredMessage, times: &str) -> Incoming<'m> {
    Incoming::Copied(and(message.view().to_message(), &[(property::TIMER_ROLL_TIMES, times)]))
}

#[test]
fn a_message_that_a_broker_has_stored_again_is_delivered_once() {
    let mut open = Stepped::new();
    append(&open, 50_000, "a");
    append(&open, 50_000, "b");
    let log = open.log();
    let [a, b] = log.as_slice() else { panic!("{}", log.len()) };
    let again = vec![rolled(a, "1"), rolled(a, "2"), rolled(b, "1")];
    open.store.appender(None).append_all(again, &mut Vec::new()).unwrap();
    open = open.reopened(config());
    deliver(&open);
    open.pass(50_000);
    deliver(&open);
    assert_eq!(delivered(&open), ["a", "b"]);
    let open = open.killed();
    deliver(&open);
    assert_eq!(delivered(&open), ["a", "b"]);
}

/// Appends plain messages until the log has more than four segments.
fn fill_segments(open: &Stepped) {
    while open.store.appended_offset() < 4 * SEGMENT as i64 {
        open.store.append(plain(400)).unwrap();
    }
}

fn plain(len: usize) -> Message<'static> {
    Message {
        topic: "plain".into(),
        body: vec![b'p'; len].into(),
        ..Message::default()
    }
}

/// Removes three segments by force, as far as it may.
fn trim(open: &Stepped) -> TrimReport {
    open.broker.trim(TrimTo::Offset(3 * SEGMENT as i64), true, false).unwrap()
}

/// Opens the store of a machine, with this `timercheck`, without services, and trims it. Returns the number of removed segments.
fn trimmed_with(env: &SimulatedEnv, timer_check: &[u8]) -> usize {
    let env = env.copy();
    env.put(Path::new(TIMER_CHECK), timer_check);
    let off = StoreConfig {
        services: Some(false),
        ..config()
    };
    trim(&Stepped::open(env, off).unwrap()).trimmed.segments.len()
}

#[test]
fn a_trim_believes_no_progress_of_timers_that_is_not_of_its_log() {
    let mut open = Stepped::new();
    append(&open, 1000, "a");
    fill_segments(&open);
    open.pass(1000);
    deliver(&open);
    open.close();
    let check = check_file(&open.env).unwrap();
    let of_log = check.progress.unwrap();
    let with = |log_end: i64| {
        let progress = Some(TimerProgress { log_end, ..of_log });
        trimmed_with(&open.env, &TimerCheck { progress, ..check }.encode())
    };
    assert_eq!((of_log.first, with(of_log.log_end), with(of_log.log_end + 1)), (1, 3, 0));
}

#[test]
fn a_trim_keeps_the_timers_that_a_broker_has_not_delivered() {
    let mut open = Stepped::new();
    let begun = open.env.now();
    for (ms, body) in [(1000, "a"), (120_000, "late")] {
        append(&open, ms, body);
    }
    fill_segments(&open);
    // A writer without services appends long after the broker has stopped.
    open.pass(3_600_000);
    open.store.append(plain(1)).unwrap();
    open.close();
    let after = |ms: i64, queue_offset: i64| {
        let mut bytes = [0; 4096];
        for (at, value) in [(0, begun + ms), (16, queue_offset), (24, queue_offset)] {
            bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
        }
        trimmed_with(&open.env, &bytes)
    };
    assert_eq!([after(2000, 2), after(119_999, 2), after(120_000, 1)], [0; 3]);
    assert_eq!(after(120_000, 2), 3);
}

#[test]
fn a_trim_keeps_a_timer_message_also_by_force() {
    let mut open = Stepped::new();
    append(&open, 50_000, "late");
    append(&open, 1000, "a");
    fill_segments(&open);
    open.pass(1000);
    deliver(&open);
    persist(&mut open);
    let report = trim(&open);
    let expected = Hold {
        by: NeededBy::Timers,
        topic: TIMER_TOPIC.to_owned(),
        queue_id: 0,
        queue_offset: 0,
        messages: 1,
        physical_offset: 0,
    };
    assert_eq!((report.trimmed.segments.len(), report.holds), (0, vec![expected]));
    open.pass(50_000);
    deliver(&open);
    // Its copy is not counted on disk yet.
    assert_eq!(trim(&open).trimmed.segments.len(), 0);
    persist(&mut open);
    assert_eq!(trim(&open).trimmed.segments.len(), 3);
    append(&open, 1000, "b");
    let mut open = open.reopened(config());
    open.pass(1000);
    deliver(&open);
    assert_eq!(delivered(&open).last().map(String::as_str), Some("b"));
}

#[test]
fn a_close_before_the_search_has_ended_leaves_a_progress_without_copies() {
    let mut open = Stepped::new();
    append(&open, 1000, "a");
    append(&open, 9000, "late");
    open.pass(1000);
    deliver(&open);
    let open = open.killed();
    open.close();
    assert_eq!(progress(&open).map(|progress| progress.first), Some(1));
}

/// Returns a reader and its judgement.
pub(super) fn read_backlog(env: &SimulatedEnv) -> (Arc<MessageReader>, TimerBacklog) {
    let reader = MessageReader::open(&env.shared(), Path::new("/data/store"), config()).unwrap();
    let reader = Arc::new(reader);
    let backlog = TimerBacklog::read(&reader).unwrap();
    (reader, backlog)
}

#[test]
fn a_reader_judges_timer_messages_as_their_writer_does() {
    let mut open = Stepped::new();
    for (ms, body) in [(60_000, "late"), (1000, "a"), (2000, "b")] {
        append(&open, ms, body);
    }
    open.pass(1000);
    deliver(&open);
    persist(&mut open);
    open.pass(1000);
    deliver(&open);
    append(&open, 60_000, "later");
    open.dispatch();
    let expected = [TimerFate::Waiting, TimerFate::Done, TimerFate::Done, TimerFate::Waiting];
    let of_writer = (open.store.reader().clone(), open.broker.timer_backlog().unwrap());
    for (reader, known) in [of_writer, read_backlog(&open.env.kill())] {
        assert_eq!([0, 1, 2, 3].map(|offset| known.fate(&reader, offset).unwrap()), expected);
        assert_eq!((known.waiting(4), known.unknown(), known.damaged), (2, 0, 0));
    }
}

#[test]
fn a_reader_knows_of_a_broker_only_the_timer_messages_that_are_due_later() {
    let mut open = Stepped::new();
    for (ms, body) in [(60_000, "late"), (1000, "a")] {
        append(&open, ms, body);
    }
    open.pass(2000);
    open.store
        .append(Message {
            topic: "plain".into(),
            ..Message::default()
        })
        .unwrap();
    open.close();
    open.env.put(Path::new(TIMER_CHECK), b"a broker's");
    let (reader, known) = read_backlog(&open.env);
    assert_eq!(
        [0, 1].map(|offset| known.fate(&reader, offset).unwrap()),
        [TimerFate::Waiting, TimerFate::Unknown]
    );
    assert_eq!((known.waiting(2), known.unknown()), (1, 1));
}
