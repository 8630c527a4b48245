//! Old segments go by themselves: by age, by the length of the log, on a full disk, and never what is still needed.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use mqstore::broker::{BrokerController, BrokerService, CleanStats, NeededBy, Start};
use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::services::{CleanReason, Next, Service};
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode, TrimTo};

use super::{ack, delay, directory, subscription};
use crate::simulated_env::{Call, Failure, Fault, SimulatedEnv};
use crate::writing::{message, with};

const SEGMENT: i64 = delay::SEGMENT as i64;
const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;
/// The messages that fill a segment.
const MESSAGES: i64 = 8;

/// The next call fails.
const ONE_FAILURE: Fault = Fault {
    failure: Failure::Device,
    number: 0,
    stays: false,
};

/// A store on a simulated machine, with a segment of messages for each hour.
struct Cleaning {
    env: SimulatedEnv,
    store: Arc<MessageStore>,
    broker: BrokerController,
    now: Instant,
}

impl Cleaning {
    fn open(env: SimulatedEnv, config: StoreConfig) -> Self {
        let path = Path::new("/data/store");
        let store = Arc::new(MessageStore::open_stepped(&env.shared(), path, config, OpenMode::Append).unwrap());
        let broker = BrokerController::new_stepped(&store);
        let now = Instant::now();
        Self { env, store, broker, now }
    }

    /// A store with this number of full segments and a message after them.
    fn filled(config: StoreConfig, segments: i64) -> Self {
        let mut open = Self::open(delay::machine(), config);
        for _ in 0..segments {
            open.fill();
            open.pass(HOUR);
        }
        open.fill_one();
        open
    }

    fn fill(&self) {
        for _ in 0..MESSAGES {
            self.fill_one();
        }
    }

    fn fill_one(&self) {
        self.store.append(message("orders", 0, &[b'x'; 1800])).unwrap();
        self.dispatch();
    }

    fn dispatch(&self) {
        while self.store.step(Service::Dispatch, self.now).unwrap() == Next::Again {}
    }

    /// Moves both clocks.
    fn pass(&mut self, ms: i64) {
        self.env.set_now(self.env.now() + ms);
        self.now += Duration::from_millis(ms.unsigned_abs());
    }

    fn step(&self) -> Next {
        self.broker.step(BrokerService::Clean, self.now).unwrap()
    }

    /// Runs the service for a minute, and returns the first offset of the log.
    fn clean(&mut self) -> i64 {
        self.dispatch();
        let end = self.now + Duration::from_secs(61);
        while self.now < end {
            let Next::Idle { until: Some(until) } = self.step() else {
                break;
            };
            self.now = until.max(self.now);
        }
        self.first()
    }

    fn first(&self) -> i64 {
        self.store.reader().physical_bounds().start
    }

    fn stats(&self) -> CleanStats {
        self.broker.clean_stats(self.now).unwrap().unwrap()
    }

    fn close(&self) {
        self.broker.close().unwrap();
        self.store.close().unwrap();
    }
}

fn config() -> StoreConfig {
    delay::config()
}

/// Messages go after three days.
fn by_age() -> StoreConfig {
    StoreConfig {
        file_reserved_time: Some(Duration::from_secs(72 * 3600)),
        ..config()
    }
}

/// The log keeps at most three segments.
fn by_length() -> StoreConfig {
    StoreConfig {
        max_log_bytes: Some(3 * delay::SEGMENT),
        ..config()
    }
}

/// The disk may be used by half, and then by three quarters.
fn by_disk() -> StoreConfig {
    StoreConfig {
        disk_max_used_space_ratio: Some(50),
        disk_space_clean_forcibly_ratio: 75,
        ..config()
    }
}

#[test]
fn a_segment_goes_once_its_last_message_is_old_enough() {
    let mut open = Cleaning::filled(by_age(), 4);
    open.pass(3 * DAY - 4 * HOUR - 1);
    assert_eq!((open.clean(), open.stats().removal.reason), (0, None));
    // As long as the first message is too young, the last one is not looked for: it is at most as young as the next segment.
    let due = open.stats().removal.due.unwrap();
    open.pass(1);
    assert!((0..=HOUR).contains(&(due - open.env.now())), "{due}");
    assert_eq!(open.clean(), SEGMENT);
    open.pass(HOUR);
    assert_eq!(open.clean(), 2 * SEGMENT);
    open.pass(100 * DAY);
    // The last segment stays.
    assert_eq!(open.clean(), 4 * SEGMENT);
    let stats = open.stats();
    assert_eq!(
        (stats.segments, stats.bytes, stats.removal.segment),
        (4, 4 * delay::SEGMENT, None)
    );
    let reader = open.store.reader();
    assert_eq!(reader.queue_bounds("orders", 0).unwrap(), 4 * MESSAGES..4 * MESSAGES + 1);
    open.close();
}

#[test]
fn a_long_last_message_keeps_a_segment_whose_next_one_is_young() {
    let mut open = Cleaning::open(delay::machine(), by_age());
    for _ in 0..MESSAGES {
        open.fill_one();
        open.pass(HOUR);
    }
    open.fill_one();
    // The last message of the first segment was stored after seven hours, the first one of the next after eight.
    open.pass(3 * DAY - HOUR - 1);
    assert_eq!(open.clean(), 0);
    open.pass(1);
    assert_eq!(open.clean(), SEGMENT);
    open.close();
}

#[test]
fn nothing_is_removed_unless_an_option_asks_for_it() {
    let mut open = Cleaning::filled(config(), 4);
    open.pass(1000 * DAY);
    assert_eq!((open.step(), open.first()), (Next::Done, 0));
    assert!(open.broker.clean_stats(open.now).unwrap().is_none());
    open.close();
    let without_services = StoreConfig {
        services: Some(false),
        ..by_length()
    };
    let open = Cleaning::open(open.env.clone(), without_services);
    assert_eq!((open.step(), open.first()), (Next::Done, 0));
    open.close();
}

#[test]
fn age_counts_only_in_the_hours_of_delete_when() {
    let config = StoreConfig {
        delete_when: "04;16".to_owned(),
        ..by_age()
    };
    let mut open = Cleaning::filled(config, 3);
    open.pass(10 * DAY);
    let midnight = open.env.now() / DAY * DAY;
    open.pass(midnight + DAY + HOUR - open.env.now());
    assert_eq!((open.clean(), open.stats().removal.due), (0, Some(midnight + DAY + 4 * HOUR)));
    open.pass(3 * HOUR - 60_000);
    assert_eq!((open.clean(), open.stats().removal.reason), (0, None));
    open.pass(60_000);
    assert_eq!(open.stats().removal.reason, Some(CleanReason::Age));
    assert_eq!(open.clean(), 3 * SEGMENT);
    open.close();
}

#[test]
fn a_log_over_max_log_bytes_loses_its_oldest_segments_one_a_round() {
    let mut open = Cleaning::filled(by_length(), 6);
    let Next::Idle { until: Some(first) } = open.step() else {
        panic!()
    };
    assert_eq!(first, open.now + Duration::from_secs(60));
    open.now = first;
    for removed in 1..=4 {
        let Next::Idle { until } = open.step() else { panic!() };
        assert_eq!(
            (open.first(), until),
            (removed * SEGMENT, Some(open.now + Duration::from_millis(100)))
        );
        open.now = until.unwrap();
    }
    let until = Some(open.now + Duration::from_secs(10));
    assert_eq!((open.step(), open.first()), (Next::Idle { until }, 4 * SEGMENT));
    open.close();
}

#[test]
fn age_and_length_wait_for_every_group() {
    let mut open = Cleaning::filled(by_length(), 6);
    let consumer = open
        .broker
        .consumer(Some("billing"), subscription(&["orders"]), &Start::Earliest)
        .unwrap();
    assert_eq!(open.clean(), 0);
    let stats = open.stats();
    assert_eq!(stats.removal.reason, Some(CleanReason::LogBytes));
    assert_eq!(stats.removal.holds[0].by, NeededBy::Group("billing".to_owned()));
    for _ in 0..2 {
        let got = consumer.poll(MESSAGES as usize, Some(Instant::now())).unwrap();
        ack(&consumer, &got);
    }
    assert_eq!(open.clean(), 2 * SEGMENT);
    assert!(open.broker.clean_warnings().take().is_empty());
    open.close();
}

#[test]
fn retention_removes_nothing_while_the_progress_of_a_group_is_lost() {
    let open = Cleaning::filled(by_length(), 6);
    let consumer = open
        .broker
        .consumer(Some("billing"), subscription(&["orders"]), &Start::Latest)
        .unwrap();
    consumer.commit().unwrap();
    consumer.close().unwrap();
    open.close();
    let machine = open.env.shared();
    machine.unlink(Path::new("/data/store/config/consumerOffset.json")).unwrap();
    let mut open = Cleaning::open(open.env.clone(), by_length());
    let is_named = |stats: &CleanStats| {
        stats
            .refused
            .as_ref()
            .is_some_and(|error| error.to_string().contains("\"billing\""))
    };
    assert!(is_named(&open.stats()));
    assert_eq!((open.clean(), is_named(&open.stats())), (0, true));
    open.broker.delete_group("billing").unwrap();
    assert_eq!(open.clean(), 4 * SEGMENT);
    assert!(open.stats().refused.is_none());
    open.close();
}

#[test]
fn a_deleted_group_ends_its_hold_and_an_open_one_is_refused() {
    let mut open = Cleaning::filled(by_length(), 6);
    let join = |open: &Cleaning, group| {
        let subscription = subscription(&["orders"]);
        open.broker.consumer(Some(group), subscription, &Start::Earliest).unwrap()
    };
    let consumer = join(&open, "dead");
    let got = consumer.poll(1, Some(Instant::now())).unwrap();
    ack(&consumer, &got);
    assert!(matches!(open.broker.delete_group("dead"), Err(Error::Invalid { .. })));
    consumer.close().unwrap();
    assert_eq!(open.clean(), 0);
    open.broker.delete_group("dead").unwrap();
    let gone = open.broker.delete_group("dead");
    assert!(matches!(gone, Err(Error::NotFound { .. })), "{gone:?}");
    assert_eq!(open.broker.subscription_groups().get("dead").unwrap(), None);
    // It stays deleted after a kill.
    let mut killed = Cleaning::open(open.env.kill(), by_length());
    assert_eq!((killed.broker.holds().unwrap(), killed.clean()), (vec![], 4 * SEGMENT));
    let transactions = killed.broker.delete_group("CID_RMQ_SYS_TRANS");
    assert!(matches!(transactions, Err(Error::Invalid { .. })), "{transactions:?}");
    killed.close();
}

#[test]
fn without_retain_unconsumed_no_group_is_waited_for() {
    let config = StoreConfig {
        retain_unconsumed: false,
        ..by_length()
    };
    let mut open = Cleaning::filled(config, 6);
    drop(
        open.broker
            .consumer(Some("billing"), subscription(&["orders"]), &Start::Earliest),
    );
    assert_eq!(
        (open.clean(), open.stats().unread),
        (4 * SEGMENT, 4 * MESSAGES.unsigned_abs())
    );
    assert!(open.broker.clean_warnings().take().is_empty());
    open.close();
}

#[test]
fn a_full_disk_removes_unread_messages_and_names_the_group() {
    let mut open = Cleaning::filled(by_disk(), 6);
    drop(
        open.broker
            .consumer(Some("billing"), subscription(&["orders"]), &Start::Earliest),
    );
    assert_eq!((open.clean(), open.stats().removal.disk_percent), (0, Some(1)));
    let used = open.env.disk_usage(Path::new("/data")).unwrap().used;
    open.env.set_disk_size(used * 4 / 3 - 1000);
    assert_eq!(open.stats().removal.reason, Some(CleanReason::Disk));
    assert_eq!(open.clean(), SEGMENT);
    let warnings = open.broker.clean_warnings().take();
    let expected =
        "the disk is full: removed from queue 0 of topic \"orders\" 8 messages that group \"billing\" has not consumed";
    assert_eq!(warnings, [expected]);
    assert!(open.broker.clean_warnings().take().is_empty());
    open.close();
}

#[test]
fn age_and_length_wait_for_a_connected_slave_which_stats_name() {
    let mut open = Cleaning::filled(by_length(), 6);
    let replicas = open.store.replicas().clone();
    let slave = replicas.connect("192.0.2.1:4711".parse().unwrap(), 100, 0);
    assert_eq!(open.clean(), 0);
    let removal = open.stats().removal;
    assert_eq!(
        (removal.segment, removal.reason),
        (Some(0..SEGMENT), Some(CleanReason::LogBytes))
    );
    let kept_for: Vec<_> = removal
        .slaves
        .iter()
        .map(|slave| (slave.address, slave.acknowledged))
        .collect();
    assert_eq!(kept_for, [("192.0.2.1:4711".parse().unwrap(), 100)]);
    replicas.acknowledge(slave, SEGMENT);
    assert_eq!((open.clean(), open.stats().removal.slaves.len()), (SEGMENT, 1));
    replicas.disconnect(slave);
    assert!(open.clean() > SEGMENT);
    open.close();
}

#[test]
fn a_full_disk_waits_for_no_slave_and_names_it() {
    let mut open = Cleaning::filled(by_disk(), 6);
    let replicas = open.store.replicas();
    replicas.connect("192.0.2.1:4711".parse().unwrap(), 100, 0);
    let used = open.env.disk_usage(Path::new("/data")).unwrap().used;
    open.env.set_disk_size(used * 4 / 3 - 1000);
    assert_eq!(open.clean(), SEGMENT);
    let expected = format!(
        "the disk is full: removed messages up to the physical offset {SEGMENT}; \
         the slave 192.0.2.1:4711 had acknowledged the log up to 100"
    );
    assert_eq!(open.broker.clean_warnings().take(), [expected]);
    open.close();
}

#[test]
fn a_disk_over_the_first_ratio_removes_what_is_old_in_any_hour() {
    let config = StoreConfig {
        delete_when: "04".to_owned(),
        file_reserved_time: Some(Duration::from_secs(5 * 3600)),
        clean_file_forcibly_enable: false,
        ..by_disk()
    };
    let mut open = Cleaning::filled(config, 6);
    let hour = open.env.now() / HOUR % 24;
    assert_eq!(hour, 4);
    open.pass(HOUR);
    drop(
        open.broker
            .consumer(Some("billing"), subscription(&["orders"]), &Start::Earliest),
    );
    assert_eq!(open.clean(), 0);
    open.env
        .set_disk_size(open.env.disk_usage(Path::new("/data")).unwrap().used + 1);
    assert_eq!((open.clean(), open.broker.clean_warnings().take().len()), (3 * SEGMENT, 3));
    open.close();
}

#[test]
fn a_delayed_message_stays_on_a_full_disk_and_a_warning_says_so() {
    let mut open = Cleaning::open(delay::machine(), by_disk());
    open.store
        .append(with(message("orders", 0, b"later"), &[("DELAY", "18")]))
        .unwrap();
    for _ in 0..4 {
        open.fill();
    }
    // A group is in nobody's way on a full disk.
    drop(
        open.broker
            .consumer(Some("billing"), subscription(&["orders"]), &Start::Earliest),
    );
    open.env.set_disk_size(1);
    assert_eq!(open.clean(), 0);
    let expected = "the disk is full, and the oldest segment cannot be removed: it has delayed messages that were not delivered";
    assert_eq!(open.broker.clean_warnings().take(), [expected]);
    open.pass(DAY);
    while open.broker.step(BrokerService::Deliver, open.now).unwrap() == Next::Again {}
    assert_eq!(open.clean(), 0);
    open.broker.step(BrokerService::PersistDelays, open.now).unwrap();
    open.now += Duration::from_secs(11);
    open.broker.step(BrokerService::PersistDelays, open.now).unwrap();
    assert!(open.clean() > SEGMENT);
    open.close();
}

#[test]
fn a_clock_that_jumps_years_ahead_removes_at_most_a_day_more() {
    let mut open = Cleaning::filled(by_age(), 4);
    let right = open.env.now();
    open.env.set_now(right + 1000 * DAY);
    assert_eq!((open.clean(), open.stats().removal.reason), (0, None));
    open.fill_one();
    assert_eq!(open.clean(), 0);
    // In two days of the other clock the first messages are three days old, by a clock that is a day ahead.
    open.now += Duration::from_secs(2 * 24 * 3600 - 4 * 3600);
    assert_eq!(open.clean(), SEGMENT);
    open.close();
}

#[test]
fn a_store_that_opens_with_a_clock_years_ahead_keeps_its_messages() {
    let open = Cleaning::filled(by_age(), 4);
    open.close();
    open.env.set_now(open.env.now() + 1000 * DAY);
    let mut open = Cleaning::open(open.env.clone(), by_age());
    assert_eq!((open.clean(), open.stats().removal.reason), (0, None));
    open.env.set_now(open.env.now() - 1000 * DAY);
    open.pass(3 * DAY);
    assert_eq!(open.clean(), 4 * SEGMENT);
    open.close();
}

#[test]
fn a_clock_that_steps_back_removes_nothing_early() {
    let mut open = Cleaning::filled(by_age(), 4);
    open.pass(3 * DAY);
    open.env.set_now(open.env.now() - 3 * DAY);
    assert_eq!(open.clean(), 0);
    open.env.set_now(open.env.now() + 3 * DAY);
    assert_eq!(open.clean(), 4 * SEGMENT);
    open.close();
}

#[test]
fn what_cannot_be_removed_is_reported_and_tried_again() {
    let mut open = Cleaning::filled(by_length(), 6);
    let machine = open.env.clone();
    open.env
        .pause_before(Call::Unlink, move || machine.set_fault(Some(ONE_FAILURE)));
    assert_eq!(open.clean(), 0);
    let refused = open.stats().refused.unwrap();
    assert!(matches!(refused, Error::Io { .. }), "{refused}");
    open.env.set_fault(None);
    assert_eq!((open.clean(), open.stats().refused.is_none()), (4 * SEGMENT, true));
    open.close();
}

#[test]
fn damaged_progress_of_groups_removes_nothing_and_is_reported() {
    let mut open = Cleaning::filled(by_length(), 6);
    open.env.put(Path::new("/data/store/config/consumerOffset.json"), b"{");
    assert_eq!(open.clean(), 0);
    assert!(open.broker.clean_stats(open.now).is_err());
    open.close();
}

#[test]
fn a_power_cut_while_segments_go_leaves_no_hole() {
    for seed in 0..10 {
        let mut open = Cleaning::filled(by_length(), 6);
        open.store.flush().unwrap();
        open.env.take_images(seed, 1);
        open.clean();
        let images = open.env.taken();
        assert!(images.len() > 8);
        for image in images {
            let mut cut = Cleaning::open(image.env, by_length());
            let first = cut.store.reader().message_at(cut.first()).unwrap().view().queue_offset();
            assert_eq!(cut.store.reader().queue_bounds("orders", 0).unwrap(), first..6 * MESSAGES + 1);
            assert_eq!(cut.clean(), 4 * SEGMENT);
            cut.close();
        }
    }
}

#[test]
fn a_failing_call_leaves_a_store_that_works_or_opens_again() {
    for number in 0.. {
        let mut open = Cleaning::filled(by_length(), 6);
        open.env.set_fault(Some(Fault { number, ..ONE_FAILURE }));
        open.clean();
        let was_concerned = open.env.concerned() > number;
        open.env.set_fault(None);
        let mut again = Cleaning::open(open.env.kill(), by_length());
        assert_eq!(again.clean(), 4 * SEGMENT, "call {number}");
        let first = again.store.reader().message_at(4 * SEGMENT).unwrap().view().queue_offset();
        assert_eq!(
            again.store.reader().queue_bounds("orders", 0).unwrap(),
            first..6 * MESSAGES + 1
        );
        again.close();
        if !was_concerned {
            assert!(number > 20);
            break;
        }
    }
}

#[test]
fn a_trim_beside_the_service_removes_each_segment_once() {
    let open = Cleaning::filled(by_length(), 6);
    open.step();
    let (broker, now) = (&open.broker, open.now + Duration::from_secs(60));
    let trimmed = std::thread::scope(|scope| {
        let service = scope.spawn(|| {
            for round in 0..4 {
                broker
                    .step(BrokerService::Clean, now + Duration::from_millis(100 * round))
                    .unwrap();
            }
        });
        let trims = (0..4).map(|end| broker.trim(TrimTo::Offset((end + 1) * SEGMENT), false, false).unwrap());
        let trimmed: u64 = trims.map(|report| report.trimmed.segments.len() as u64).sum();
        service.join().unwrap();
        trimmed
    });
    assert_eq!((trimmed + open.stats().segments, open.first()), (4, 4 * SEGMENT));
    open.close();
}

#[test]
fn the_age_of_a_file_counts_where_a_broker_s_does() {
    let (_dir, path) = directory();
    let config = StoreConfig {
        expire_by_file_time: true,
        ..by_age()
    };
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let store = Arc::new(MessageStore::open(&env, &path, config, OpenMode::Append).unwrap());
    let broker = BrokerController::new_stepped(&store);
    while store.appended_offset() < 3 * SEGMENT {
        store.append(message("orders", 0, &[b'x'; 1800])).unwrap();
    }
    store.wait_dispatched(store.appended_offset() - 1, None).unwrap();
    store.flush().unwrap();
    let now = Instant::now();
    broker.step(BrokerService::Clean, now).unwrap();
    let first = std::fs::File::options()
        .write(true)
        .open(path.join("commitlog/00000000000000000000"))
        .unwrap();
    first
        .set_modified(SystemTime::now() - Duration::from_secs(72 * 3600 + 60))
        .unwrap();
    for ms in [60_000, 60_100, 60_200] {
        broker.step(BrokerService::Clean, now + Duration::from_millis(ms)).unwrap();
    }
    assert_eq!(store.reader().physical_bounds().start, SEGMENT);
    broker.close().unwrap();
    store.close().unwrap();
}

#[test]
fn a_reader_of_expired_messages_gets_the_offset_that_comes_next() {
    let mut open = Cleaning::filled(by_length(), 6);
    let reader = open.store.reader().clone();
    let view = reader.message_in_queue("orders", 0, 0).unwrap();
    assert_eq!(open.clean(), 4 * SEGMENT);
    assert_eq!(view.view().body().len(), 1800);
    assert!(reader.message_in_queue("orders", 0, 0).is_err());
    assert_eq!(reader.queue_bounds("orders", 0).unwrap().start, 4 * MESSAGES);
    open.close();
}

#[test]
fn a_disk_that_cannot_be_measured_is_reported_and_age_still_counts() {
    let config = StoreConfig {
        file_reserved_time: Some(Duration::from_secs(3600)),
        ..by_disk()
    };
    let mut open = Cleaning::filled(config, 3);
    open.step();
    open.now += Duration::from_secs(60);
    let machine = open.env.clone();
    open.env
        .pause_before(Call::DiskUsage, move || machine.set_fault(Some(ONE_FAILURE)));
    open.step();
    open.env.set_fault(None);
    assert_eq!((open.first(), open.stats().refused.is_some()), (SEGMENT, true));
    open.close();
}
