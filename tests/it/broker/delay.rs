//! Delayed messages: delivered once, in time, in order, and handed over to a broker and back.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mqstore::broker::{BrokerController, BrokerService, DelayStats};
use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::error::Error;
use mqstore::format::{DelayLevels, Message, SCHEDULE_TOPIC, property};
use mqstore::read::StoredMessage;
use mqstore::services::{Next, Service};
use mqstore::store::{AppendResult, Incoming, MessageStore, OpenMode};
use serde_json::{Value, json};

use super::delayed_log::every_message;
use crate::simulated_env::{Failure, Fault, SimulatedEnv};
use crate::writing::{message, with};

pub(super) const STORE: &str = "/data/store";
const DELAY_OFFSET: &str = "/data/store/config/delayOffset.json";
pub(super) const SEGMENT: u64 = 16 * 1024;
/// More than the interval at which progress is persisted.
const PERSIST_INTERVAL: Duration = Duration::from_secs(11);

/// A store on a simulated machine, whose services run step by step.
pub(super) struct Stepped {
    pub(super) env: SimulatedEnv,
    pub(super) store: Arc<MessageStore>,
    pub(super) broker: BrokerController,
    now: Instant,
    /// The lead of the clock of the services that persist, so that no message becomes due during a persist.
    persisters_ahead: Duration,
}

pub(super) fn config() -> StoreConfig {
    StoreConfig {
        mapped_file_size_commit_log: Some(SEGMENT),
        mapped_file_size_consume_queue: Some(2000),
        max_hash_slot_num: Some(10),
        max_index_num: Some(40),
        sigbus_guard: false,
        ..StoreConfig::default()
    }
}

pub(super) fn machine() -> SimulatedEnv {
    let env = SimulatedEnv::new();
    env.make_dir(Path::new("/data"));
    env
}

impl Stepped {
    pub(super) fn open(env: SimulatedEnv, config: StoreConfig) -> Result<Self, Error> {
        let store = MessageStore::open_stepped(&env.shared(), Path::new(STORE), config, OpenMode::Append)?;
        let store = Arc::new(store);
        let broker = BrokerController::new_stepped(&store);
        let now = Instant::now();
        Ok(Self {
            env,
            store,
            broker,
            now,
            persisters_ahead: Duration::ZERO,
        })
    }

    pub(super) fn new() -> Self {
        Self::open(machine(), config()).unwrap()
    }

    /// Closes the store, and opens it again.
    pub(super) fn reopened(self, config: StoreConfig) -> Self {
        self.close();
        Self::open(self.env.clone(), config).unwrap()
    }

    pub(super) fn close(&self) {
        self.broker.close().unwrap();
        self.store.close().unwrap();
    }

    /// Kills the process, and opens the store again.
    pub(super) fn killed(self) -> Self {
        Self::open(self.env.kill(), config()).unwrap()
    }

    pub(super) fn append(&self, level: i32, body: &str) -> AppendResult {
        self.store.append(delayed(level, body)).unwrap()
    }

    pub(super) fn dispatch(&self) {
        while self.store.step(Service::Dispatch, self.now).unwrap() == Next::Again {}
    }

    /// Moves both clocks.
    pub(super) fn pass(&mut self, ms: i64) {
        self.env.set_now(self.env.now() + ms);
        self.now += Duration::from_millis(ms.max(0).unsigned_abs());
    }

    /// Dispatches, and delivers the delayed messages that are due.
    pub(super) fn deliver(&self) -> Option<Instant> {
        self.deliver_by(BrokerService::Deliver)
    }

    /// Dispatches, and delivers the timer messages that are due.
    pub(super) fn deliver_timers(&self) -> Option<Instant> {
        self.deliver_by(BrokerService::DeliverTimers)
    }

    fn deliver_by(&self, service: BrokerService) -> Option<Instant> {
        self.dispatch();
        loop {
            match self.broker.step(service, self.now).unwrap() {
                Next::Again => {}
                Next::Idle { until } => break until,
                Next::Done => break None,
            }
        }
    }

    /// Persists the progress of the delivery.
    pub(super) fn persist(&mut self) {
        self.persist_by(BrokerService::PersistDelays);
    }

    /// Persists the progress that a service has.
    pub(super) fn persist_by(&mut self, service: BrokerService) {
        for _ in 0..2 {
            self.broker.step(service, self.now + self.persisters_ahead).unwrap();
            self.persisters_ahead += PERSIST_INTERVAL;
        }
    }

    /// The time of the services.
    pub(super) fn now(&self) -> Instant {
        self.now
    }

    /// Persists the progress of groups and transactions.
    pub(super) fn keep(&mut self) {
        for _ in 0..2 {
            self.broker.step(BrokerService::Keep, self.now).unwrap();
            self.now += PERSIST_INTERVAL;
        }
    }

    /// Every message of the log that can be read, in order.
    pub(super) fn log(&self) -> Vec<StoredMessage> {
        every_message(self.store.reader(), SEGMENT).unwrap()
    }

    /// The bodies of the delivered copies, in order.
    fn delivered(&self) -> Vec<String> {
        let log = self.log();
        let copies = log
            .iter()
            .map(StoredMessage::view)
            .filter(|view| !view.has_topic(SCHEDULE_TOPIC));
        copies.map(|view| String::from_utf8_lossy(view.body()).into_owned()).collect()
    }

    fn stats(&self) -> DelayStats {
        self.broker.delay_stats().unwrap().unwrap()
    }

    fn file(&self) -> Value {
        delay_file(&self.env).unwrap()
    }
}

pub(super) fn delayed(level: i32, body: &str) -> Message<'static> {
    let message = Message {
        topic: "orders".into(),
        queue_id: 3,
        body: body.as_bytes().to_vec().into(),
        ..Message::default()
    };
    with(message, &[(property::DELAY, &level.to_string())])
}

/// The file with the progress, if there is one and it is not damaged.
pub(super) fn delay_file(env: &SimulatedEnv) -> Option<Value> {
    let files = env.files(Path::new("/data/store/config"));
    let found = files.into_iter().find(|(path, _)| path == Path::new(DELAY_OFFSET));
    found.and_then(|(_, bytes)| serde_json::from_slice(&bytes).ok())
}

fn level_1(file: &Value) -> i64 {
    file["offsetTable"]["1"].as_i64().unwrap()
}

#[test]
fn a_delayed_message_is_delivered_when_it_is_due_and_not_before() {
    let mut open = Stepped::new();
    open.append(1, "a");
    open.pass(999);
    let until = open.deliver().unwrap();
    assert_eq!((open.delivered(), until - open.now), (vec![], Duration::from_millis(1)));
    open.pass(1);
    assert_eq!((open.deliver(), open.delivered()), (None, vec!["a".to_owned()]));
    open.pass(100_000);
    open.deliver();
    assert_eq!(open.delivered(), ["a"]);
}

#[test]
fn a_copy_in_a_store_with_sync_flush_is_readable_once_it_is_delivered() {
    let config = StoreConfig {
        flush_disk_type: FlushDiskType::Sync,
        ..config()
    };
    let mut open = Stepped::open(machine(), config).unwrap();
    open.append(1, "a");
    open.pass(1000);
    open.deliver();
    assert_eq!(open.store.flushed_offset(), open.store.appended_offset());
    open.dispatch();
    assert_eq!(open.store.reader().queue_bounds("orders", 3).unwrap(), 0..1);
    open.close();
}

#[test]
fn a_copy_has_every_field_of_the_message_but_places_and_times() {
    let mut open = Stepped::new();
    let sent = Message {
        flag: 7,
        born_time: 12,
        reconsume_times: 2,
        prepared_transaction_offset: 99,
        ..with(delayed(2, "a"), &[("KEYS", "k"), ("mine", "1"), ("WAIT", "true")])
    };
    open.store.append(with(sent, &[(property::DELAY, "2")])).unwrap();
    open.pass(5000);
    open.deliver();
    let log = open.log();
    let [scheduled, copy] = log.as_slice() else {
        panic!("{} messages", log.len());
    };
    let (scheduled, copy) = (scheduled.view(), copy.view());
    assert_eq!((copy.topic().as_ref(), copy.queue_id()), ("orders", 3));
    let expected = Message {
        topic: "orders".into(),
        queue_id: 3,
        queue_offset: 0,
        physical_offset: scheduled.end(),
        store_time: scheduled.store_time() + 5000,
        prepared_transaction_offset: 0,
        ..scheduled.to_message()
    };
    assert_eq!(copy.bytes(), expected.encode().unwrap());
    assert_eq!(copy.properties().get(property::DELAY).unwrap(), "2");
}

#[test]
fn each_level_is_delivered_in_its_order() {
    let mut open = Stepped::new();
    for number in 0..3000 {
        open.append(1 + number % 2, &number.to_string());
    }
    open.pass(5000);
    open.deliver();
    let delivered: Vec<i32> = open.delivered().iter().map(|body| body.parse().unwrap()).collect();
    for level in 0..2 {
        let of_level: Vec<_> = delivered.iter().copied().filter(|number| number % 2 == level).collect();
        assert_eq!(of_level, (0..3000).filter(|number| number % 2 == level).collect::<Vec<_>>());
    }
}

#[test]
fn an_open_delivers_at_once_if_the_clock_was_set_far_back() {
    let open = Stepped::new();
    open.append(5, "a");
    let mut open = open.reopened(config());
    open.pass(-10_000);
    open.deliver();
    assert_eq!(open.delivered(), Vec::<String>::new());
    open.pass(-1);
    open.deliver();
    assert_eq!(open.delivered(), ["a"]);
}

#[test]
fn a_message_waits_its_delay_although_the_clock_is_set_back() {
    let mut open = Stepped::new();
    open.append(5, "a");
    assert!(open.deliver().is_some());
    open.pass(30_000);
    open.pass(-3_600_000);
    open.pass(29_999);
    let until = open.deliver().unwrap();
    assert_eq!((open.delivered(), until - open.now), (vec![], Duration::from_millis(1)));
    open.pass(1);
    open.deliver();
    assert_eq!(open.delivered(), ["a"]);
}

#[test]
fn a_clock_that_was_ahead_for_a_while_shortens_no_delay() {
    let mut open = Stepped::new();
    open.pass(3_600_000);
    open.store.append(message("plain", 0, b"later")).unwrap();
    open.pass(-3_600_000);
    let bodies = |open: &Stepped| open.delivered().split_off(1);
    for body in ["a", "b"] {
        open.append(3, body);
        assert!(open.deliver().is_some());
        open.pass(4000);
    }
    open.append(17, "1h");
    assert!(open.deliver().is_some());
    open.pass(1999);
    assert_eq!(open.deliver().unwrap() - open.now, Duration::from_millis(1));
    assert_eq!(bodies(&open), Vec::<String>::new());
    open.pass(1);
    open.deliver();
    assert_eq!(bodies(&open), ["a"]);
    open.pass(4000);
    open.deliver();
    assert_eq!(bodies(&open), ["a", "b"]);
    // The clock reaches the store times again before the hour has passed.
    open.pass(3_593_999);
    assert_eq!(open.deliver().unwrap() - open.now, Duration::from_millis(1));
    open.pass(1);
    open.deliver();
    assert_eq!(bodies(&open), ["a", "b", "1h"]);
}

#[test]
fn a_copy_is_found_again_whatever_the_clock_shows_at_the_open() {
    for back in [4000, 60_000] {
        let mut open = Stepped::new();
        open.append(1, "a");
        open.pass(1000);
        open.deliver();
        let mut open = open.killed();
        open.pass(-back);
        open.deliver();
        open.pass(back + 1000);
        open.deliver();
        assert_eq!(open.delivered(), ["a"]);
        open.append(1, "b");
        open.pass(1000);
        open.deliver();
        assert_eq!(open.delivered(), ["a", "b"]);
    }
}

#[test]
fn a_copy_made_while_the_clock_was_behind_is_found_again() {
    let open = Stepped::new();
    open.append(5, "a");
    let mut open = open.killed();
    open.pass(-3_600_000);
    open.deliver();
    assert_eq!(open.delivered(), ["a"]);
    let mut open = open.killed();
    open.pass(3_600_000);
    open.deliver();
    open.pass(60_000);
    open.deliver();
    assert_eq!(open.delivered(), ["a"]);
}

#[test]
fn what_cannot_be_delivered_is_passed_over_and_counted() {
    let mut open = Stepped::new();
    let copied = |pairs: &[(&str, &str)]| {
        let mut message = with(delayed(1, "lost"), pairs);
        message.topic = SCHEDULE_TOPIC.into();
        message.queue_id = 0;
        vec![Incoming::Copied(message)]
    };
    let mut done = Vec::new();
    let half = [("REAL_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC"), ("REAL_QID", "0"), ("DELAY", "1")];
    for pairs in [
        &[("DELAY", "1")][..],
        &[("REAL_TOPIC", "a/b"), ("REAL_QID", "0"), ("DELAY", "1")],
        &[("REAL_TOPIC", "t"), ("REAL_QID", "x"), ("DELAY", "1")],
        &half,
    ] {
        open.store.appender(None).append_all(copied(pairs), &mut done).unwrap();
    }
    open.append(1, "a");
    open.pass(1000);
    open.deliver();
    let expected = DelayStats {
        waiting: 0,
        passed_over: 3,
        overdue: 0,
        next_due: None,
    };
    assert_eq!((open.delivered(), open.stats()), (vec!["a".to_owned()], expected));
}

#[test]
fn the_backlog_is_the_messages_that_wait_and_those_that_are_overdue() {
    let mut open = Stepped::new();
    let stats = |waiting, overdue, next_due| DelayStats {
        waiting,
        passed_over: 0,
        overdue,
        next_due,
    };
    assert_eq!(open.stats(), stats(0, 0, None));
    let begun = open.env.now();
    for level in [2, 1, 1] {
        open.append(level, "a");
    }
    open.dispatch();
    assert_eq!(open.stats(), stats(3, 0, Some(begun + 1000)));
    open.pass(1500);
    assert_eq!(open.stats(), stats(3, 2, Some(begun + 1000)));
    open.deliver();
    assert_eq!(open.stats(), stats(1, 0, Some(begun + 5000)));
}

#[test]
fn a_full_disk_delays_a_delivery_and_loses_none() {
    let mut open = Stepped::new();
    for number in 0..200 {
        open.append(1, &format!("{number:0100}"));
    }
    open.dispatch();
    open.env.set_fault(Some(Fault {
        failure: Failure::Full,
        number: 0,
        stays: true,
    }));
    open.pass(1000);
    let until = open.deliver().unwrap();
    assert_eq!(until - open.now, Duration::from_millis(100));
    open.env.set_fault(None);
    assert!(open.delivered().len() < 200);
    open.pass(100);
    open.deliver();
    let expected: Vec<_> = (0..200).map(|number| format!("{number:0100}")).collect();
    assert_eq!(open.delivered(), expected);
}

#[test]
fn progress_is_merged_into_the_file_of_a_broker() {
    let mut open = Stepped::new();
    open.append(1, "a");
    open.append(1, "b");
    open.close();
    let broker = r#"{"dataVersion":{"counter":7},"mine":1,"offsetTable":{1:1,44:9}}"#;
    open.env.put(Path::new(DELAY_OFFSET), broker.as_bytes());
    open.pass(1000);
    let on = StoreConfig {
        services: Some(true),
        ..config()
    };
    let mut open = Stepped::open(open.env.clone(), on).unwrap();
    open.deliver();
    open.persist();
    assert_eq!(open.delivered(), ["b"]);
    let expected = json!({
        "dataVersion": {"counter": 7},
        "mine": 1,
        "mqstore": {"logEnd": open.store.appended_offset()},
        "offsetTable": {"1": 2, "44": 9},
    });
    assert_eq!(open.file(), expected);
}

#[test]
fn progress_outside_of_its_queue_is_moved_to_its_nearest_end() {
    let open = Stepped::new();
    open.append(1, "a");
    open.append(2, "b");
    open.close();
    open.env.put(
        Path::new(DELAY_OFFSET),
        br#"{"offsetTable":{"1":7,"2":-5},"mqstore":{"logEnd":0}}"#,
    );
    let mut open = Stepped::open(open.env.clone(), config()).unwrap();
    open.pass(5000);
    open.deliver();
    assert_eq!(open.delivered(), ["b"]);
}

#[test]
fn a_damaged_file_stops_the_delivery_and_stays_as_it_is() {
    let open = Stepped::new();
    open.append(1, "a");
    open.close();
    open.env.put(Path::new(DELAY_OFFSET), b"{broken");
    let mut open = Stepped::open(open.env.clone(), config()).unwrap();
    open.pass(5000);
    open.deliver();
    assert_eq!(open.delivered(), Vec::<String>::new());
    assert!(matches!(open.broker.serve_delayed(), Err(Error::Corrupt { .. })));
    open.close();
    let files = open.env.files(Path::new("/data/store/config"));
    assert!(files.contains(&(DELAY_OFFSET.into(), b"{broken".to_vec())));
}

#[test]
fn a_killed_process_delivers_nothing_again() {
    let mut open = Stepped::new();
    for body in ["a", "a", "b"] {
        open.append(1, body);
    }
    open.pass(1000);
    open.deliver();
    open.append(1, "a");
    let mut open = open.killed();
    open.deliver();
    assert_eq!(open.delivered(), ["a", "a", "b"]);
    open.pass(1000);
    open.deliver();
    assert_eq!(open.delivered(), ["a", "a", "b", "a"]);
    open.persist();
    assert_eq!(level_1(&open.file()), 4);
}

#[test]
fn a_persist_before_the_struck_copies_are_passed_keeps_the_old_snapshot() {
    let mut open = Stepped::new();
    open.append(1, "a");
    open.pass(1000);
    open.deliver();
    let mut open = open.killed();
    open.append(1, "b");
    open.persist();
    assert!(delay_file(&open.env).is_none());
    let open = open.killed();
    open.deliver();
    assert_eq!(open.delivered(), ["a"]);
}

#[test]
fn an_open_and_a_close_after_a_crash_hand_over_what_was_delivered() {
    let mut open = Stepped::new();
    open.append(1, "a");
    open.append(5, "late");
    open.pass(1000);
    open.deliver();
    let open = open.killed();
    open.close();
    assert_eq!(level_1(&open.file()), 1);
    assert_eq!(open.file()["offsetTable"]["5"].as_i64().unwrap_or(0), 0);
}

#[test]
fn a_close_after_a_crash_does_not_wait_for_a_long_search() {
    let config = StoreConfig {
        mapped_file_size_commit_log: Some(32 << 20),
        ..config()
    };
    let mut open = Stepped::open(machine(), config.clone()).unwrap();
    open.append(1, "a");
    open.append(5, "late");
    open.pass(1000);
    open.deliver();
    let filler = vec![b'x'; 64 << 10];
    for _ in 0..2800 {
        open.store.append(message("filler", 0, &filler)).unwrap();
        open.dispatch();
    }
    let open = Stepped::open(open.env.kill(), config.clone()).unwrap();
    open.close();
    // The copy was not found, so the file does not pass its message, and the next open searches again.
    let passed = delay_file(&open.env).and_then(|file| file["offsetTable"]["1"].as_i64());
    assert_eq!(passed.unwrap_or(0), 0);
    let mut open = Stepped::open(open.env.clone(), config).unwrap();
    open.pass(60_000);
    open.deliver();
    open.dispatch();
    let reader = open.store.reader();
    let bodies = (0..2).map(|offset| reader.message_in_queue("orders", 3, offset).unwrap().view().body().to_vec());
    assert_eq!(bodies.collect::<Vec<_>>(), [b"a".to_vec(), b"late".to_vec()]);
    assert_eq!(reader.queue_bounds("orders", 3).unwrap(), 0..2);
    open.close();
}

#[test]
fn what_a_broker_left_is_delivered_once() {
    let mut open = Stepped::new();
    for body in ["a", "b", "c"] {
        open.append(1, body);
    }
    open.append(5, "late");
    open.pass(1000);
    open.deliver();
    open.close();
    // Its broker has persisted the progress before it delivered the last two, and has written the lock file.
    open.env.put(Path::new(DELAY_OFFSET), br#"{"offsetTable":{1:1}}"#);
    open.env.put(Path::new("/data/store/lock"), b"lock");
    let on = StoreConfig {
        services: Some(true),
        ..config()
    };
    let mut open = Stepped::open(open.env.clone(), on).unwrap();
    open.deliver();
    assert_eq!(open.delivered(), ["a", "b", "c"]);
    open.pass(60_000);
    open.deliver();
    assert_eq!(open.delivered(), ["a", "b", "c", "late"]);
}

#[test]
fn a_twin_of_a_message_that_a_broker_has_delivered_is_delivered() {
    let mut open = Stepped::new();
    for _ in 0..2 {
        open.append(1, "twin");
    }
    open.pass(500);
    open.append(1, "twin");
    open.pass(500);
    open.deliver();
    open.close();
    open.env.put(Path::new(DELAY_OFFSET), br#"{"offsetTable":{1:2}}"#);
    let on = StoreConfig {
        services: Some(true),
        ..config()
    };
    open.pass(500);
    let open = Stepped::open(open.env.clone(), on).unwrap();
    open.deliver();
    assert_eq!(open.delivered(), ["twin"; 3]);
}

#[test]
fn a_store_that_a_broker_has_written_last_delivers_nothing_by_itself() {
    let runs = |open: &Stepped| open.broker.serve_delayed().unwrap();
    let open = Stepped::new();
    open.append(1, "a");
    assert!(runs(&open));
    let open = open.reopened(config());
    assert!(runs(&open));
    open.close();
    open.env.put(Path::new("/data/store/lock"), b"lock");
    open.env.put(Path::new(DELAY_OFFSET), br#"{"offsetTable":{1:0}}"#);
    let open = Stepped::open(open.env.clone(), config()).unwrap();
    assert!(!runs(&open));
    // A writer of ours was the last one, and has delivered nothing.
    let open = open.reopened(config());
    assert!(!runs(&open));
    let on = StoreConfig {
        services: Some(true),
        ..config()
    };
    let open = open.reopened(on);
    assert!(runs(&open));
    open.deliver();
    let open = open.reopened(config());
    assert!(runs(&open));
    let off = StoreConfig {
        services: Some(false),
        ..config()
    };
    assert!(!runs(&open.reopened(off)));
}

#[test]
fn progress_is_persisted_at_the_close_and_ten_seconds_after_a_change() {
    let mut open = Stepped::new();
    open.append(1, "a");
    open.pass(1000);
    open.deliver();
    let begun = open.now;
    let step = |after: u64| {
        open.broker
            .step(BrokerService::PersistDelays, begun + Duration::from_millis(after))
    };
    assert_eq!(
        step(0).unwrap(),
        Next::Idle {
            until: Some(begun + Duration::from_secs(10))
        }
    );
    step(9999).unwrap();
    assert!(delay_file(&open.env).is_none());
    assert_eq!(step(10_000).unwrap(), Next::Idle { until: None });
    assert_eq!(level_1(&open.file()), 1);
    open.append(1, "b");
    open.pass(1000);
    open.deliver();
    open.close();
    assert_eq!(level_1(&open.file()), 2);
}

#[test]
fn levels_of_other_delays_are_served() {
    let levels = StoreConfig {
        message_delay_level: "2s 1d".to_owned(),
        ..config()
    };
    assert_eq!(levels.delay_levels().unwrap(), DelayLevels::parse("2s 1d").unwrap());
    let mut open = Stepped::open(machine(), levels).unwrap();
    open.append(18, "b");
    open.append(1, "a");
    open.pass(2000);
    open.deliver();
    assert_eq!(open.delivered(), ["a"]);
    open.pass(86_398_000);
    open.deliver();
    assert_eq!(open.delivered(), ["a", "b"]);
}
