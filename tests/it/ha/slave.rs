//! Our slave with our master.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::error::Error;
use mqstore::format::encode_properties;
use mqstore::ha::{Master, Slave, SlaveOptions, SlaveState, Timing};
use mqstore::read::MessageReader;
use mqstore::recovery::ReplicaLog;
use mqstore::remedy::Remedy;
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode, TrimTo};
use tempfile::{TempDir, tempdir};

use crate::queries::by_key;

use super::{LONG, SEGMENT, asynchronous, message, synchronous, wait_until};

/// Short, so that a lost connection is replaced soon.
pub(super) const TIMING: Timing = Timing {
    pause: Duration::from_millis(20),
    heartbeat: Duration::from_millis(100),
    silence: Duration::from_secs(20),
    settings: Duration::from_millis(20),
    settings_answer: Duration::from_secs(1),
};

pub(super) fn env() -> Arc<dyn Env> {
    Arc::new(RealEnv::new())
}

/// The directories of a master and a slave, and the port of the master.
pub(super) struct Pair {
    pub(super) dir: TempDir,
    port: u16,
}

pub(super) struct Running {
    store: Arc<MessageStore>,
    master: Master,
}

impl Running {
    pub(super) fn append(&self, numbers: std::ops::Range<u8>) {
        self.append_sized(numbers, 700);
    }

    pub(super) fn append_sized(&self, numbers: std::ops::Range<u8>, size: usize) {
        for n in numbers {
            let (key, body) = (format!("key-{n}"), vec![n; size]);
            let properties = encode_properties([("KEYS", key.as_str())], true).unwrap();
            let mut keyed = message(&body);
            keyed.properties = properties.as_slice().into();
            self.store.append(keyed).unwrap();
        }
    }

    pub(super) fn end(&self) -> i64 {
        self.store.appended_offset()
    }

    pub(super) fn close(self) {
        self.store.close().unwrap();
        self.master.close();
    }
}

impl Pair {
    pub(super) fn new() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        Self {
            dir: tempdir().unwrap(),
            port: free.port(),
        }
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn master(&self, name: &str, config: StoreConfig) -> Running {
        let config = StoreConfig {
            ha_listen_port: Some(self.port.into()),
            ..config
        };
        let store = Arc::new(MessageStore::open(&env(), &self.at(name), config, OpenMode::Append).unwrap());
        let master = Master::start(&store).unwrap().unwrap();
        Running { store, master }
    }

    pub(super) fn options(&self) -> SlaveOptions {
        options(format!("127.0.0.1:{}", self.port))
    }

    pub(super) fn slave(&self, options: SlaveOptions) -> Slave {
        Slave::start(&env(), &self.at("slave"), options).unwrap()
    }

    /// Starts a new slave of an empty master. A new slave begins with the segment in which its master is when it asks, so nothing may
    /// be appended before.
    pub(super) fn slave_from_the_start(&self, master: &Running, options: SlaveOptions) -> Slave {
        let slave = self.slave(options);
        wait_until(|| master.store.replicas().connected().len() == 1);
        slave
    }

    /// The bytes of the log of a store, up to its end.
    pub(super) fn log(&self, name: &str, end: i64) -> Vec<u8> {
        log_bytes(&self.at(name), end)
    }

    /// Checks that both logs are equal, and that the slave's queue ends as the master's.
    fn expect_equal(&self, end: i64) {
        assert!(self.log("slave", end) == self.log("master", end), "the logs differ");
        let open = |name| MessageReader::open(&env(), &self.at(name), StoreConfig::default()).unwrap();
        let (master, slave) = (open("master"), open("slave"));
        assert_eq!(slave.recovery().log_end, end);
        let bounds = |reader: &MessageReader| reader.queue_bounds("orders", 0).unwrap().end;
        assert_eq!(bounds(&slave), bounds(&master));
    }
}

pub(super) fn options(master: String) -> SlaveOptions {
    SlaveOptions {
        master,
        broker: None,
        tap: None,
        is_sync: true,
        discards_tail: false,
        config: StoreConfig {
            ha_listen_port: None,
            ..asynchronous()
        },
        timing: TIMING,
    }
}

pub(super) fn log_bytes(store: &Path, end: i64) -> Vec<u8> {
    let mut names: Vec<_> = fs::read_dir(store.join("commitlog"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.sort();
    let begin: i64 = names[0].file_name().unwrap().to_str().unwrap().parse().unwrap();
    let mut bytes: Vec<u8> = names.iter().flat_map(|name| fs::read(name).unwrap()).collect();
    bytes.truncate((end - begin) as usize);
    bytes
}

pub(super) fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            // A running store renames its small files.
            match fs::copy(entry.path(), target) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                copied => {
                    copied.unwrap();
                }
            }
        }
    }
}

/// Waits until the slave holds the log up to `end`.
pub(super) fn wait_for(slave: &Slave, end: i64) {
    let waited = slave.wait(end - 1, Some(Instant::now() + LONG));
    waited.unwrap_or_else(|error| panic!("{error}: {:?}", slave.status()));
}

pub(super) fn failure(slave: &Slave) -> Error {
    wait_until(|| slave.status().state == SlaveState::Failed);
    slave.status().error.unwrap()
}

/// Waits for a reason why the slave does not follow, in which this text is.
pub(super) fn wait_for_error(slave: &Slave, text: &str) {
    let begun = Instant::now();
    loop {
        let error = slave.status().error.map(|error| error.to_string());
        if error.as_ref().is_some_and(|error| error.contains(text)) {
            return;
        }
        assert!(begun.elapsed() < LONG, "{error:?} is not {text:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_slave_has_the_log_of_its_master_in_each_write_mode() {
    for (flush, has_pool) in [
        (FlushDiskType::Async, false),
        (FlushDiskType::Async, true),
        (FlushDiskType::Sync, false),
    ] {
        for is_sync in [false, true] {
            let pair = Pair::new();
            let master = pair.master(
                "master",
                StoreConfig {
                    flush_disk_type: flush,
                    transient_store_pool_enable: has_pool,
                    ..synchronous()
                },
            );
            let options = SlaveOptions {
                is_sync,
                ..pair.options()
            };
            let slave = pair.slave_from_the_start(&master, options);
            master.append(0..90);
            assert_eq!(master.store.replicas().replicated(), master.end());
            let end = master.end();
            assert!(end > 3 * SEGMENT);
            wait_for(&slave, end);
            let status = slave.status();
            assert_eq!((status.state, status.lag()), (SlaveState::Following, Some(0)));
            assert_eq!(slave.reader().unwrap().physical_bounds(), 0..end);
            master.close();
            slave.close().unwrap();
            pair.expect_equal(end);
        }
    }
}

#[test]
fn a_reader_of_the_directory_of_a_running_slave_finds_its_messages() {
    let pair = Pair::new();
    let master = pair.master("master", asynchronous());
    let slave = pair.slave_from_the_start(&master, pair.options());
    master.append(0..60);
    wait_for(&slave, master.end());
    let found = |n: u8| {
        let reader = MessageReader::open(&env(), &pair.at("slave"), StoreConfig::default()).unwrap();
        let bounds = reader.queue_bounds("orders", 0).unwrap();
        bounds.contains(&i64::from(n))
    };
    assert!(found(59) && !found(60));
    // Its own reader has what it has dispatched.
    wait_until(|| slave.reader().unwrap().queue_bounds("orders", 0).unwrap() == (0..60));
    slave.close().unwrap();
    slave.close().unwrap();
    master.close();
}

#[test]
fn a_slave_follows_through_restarts_on_both_sides() {
    let pair = Pair::new();
    let mut master = pair.master("master", asynchronous());
    let mut slave = pair.slave_from_the_start(&master, pair.options());
    for round in 0..8_u8 {
        master.append(round * 20..round * 20 + 20);
        if round % 2 == 0 {
            master.close();
            master = pair.master("master", asynchronous());
        } else {
            // In the middle of a record, perhaps.
            slave.close().unwrap();
            slave = pair.slave(pair.options());
        }
    }
    let end = master.end();
    wait_for(&slave, end);
    master.close();
    slave.close().unwrap();
    pair.expect_equal(end);
}

/// A slave whose log has a tail that its master has lost: the numbers of the messages of each.
pub(super) fn with_a_stale_tail(pair: &Pair, kept: u8, lost: u8) -> i64 {
    let master = pair.master("master", asynchronous());
    let slave = pair.slave_from_the_start(&master, pair.options());
    master.append(0..kept);
    wait_for(&slave, master.end());
    let common = master.end();
    master.close();
    copy_dir(&pair.at("master"), &pair.at("older"));
    let master = pair.master("master", asynchronous());
    master.append(100..100 + lost);
    wait_for(&slave, master.end());
    master.close();
    slave.close().unwrap();
    fs::remove_dir_all(pair.at("master")).unwrap();
    fs::rename(pair.at("older"), pair.at("master")).unwrap();
    common
}

#[test]
fn a_received_tail_that_the_master_has_not_is_cut() {
    // In one segment, over several, and the new log longer and shorter than the old one.
    for (kept, lost, new) in [(5, 3, 6), (5, 3, 1), (30, 60, 5), (30, 5, 60), (1, 50, 60), (40, 2, 1)] {
        let pair = Pair::new();
        let common = with_a_stale_tail(&pair, kept, lost);
        let master = pair.master("master", asynchronous());
        master.append(190..190 + new);
        let slave = pair.slave(pair.options());
        wait_for(&slave, master.end());
        let end = master.end();
        let cut = slave.reader().unwrap().recovery().clone();
        assert!(cut.log_end <= end && cut.log_end >= common, "{cut:?}");
        master.append(0..30);
        let end = master.end();
        wait_for(&slave, end);
        master.close();
        slave.close().unwrap();
        pair.expect_equal(end);
        let reader = MessageReader::open(&env(), &pair.at("slave"), StoreConfig::default()).unwrap();
        let found = |key: &str| reader.query(&by_key("orders", key)).unwrap().hits.len();
        assert_eq!(found("key-100"), 0, "a key of the stale tail");
        assert_eq!(found("key-190"), 1);
        assert_eq!(found("key-0"), 2);
    }
}

#[test]
fn a_slave_that_is_ahead_cuts_nothing_until_the_logs_differ() {
    let pair = Pair::new();
    let common = with_a_stale_tail(&pair, 30, 30);
    let master = pair.master("master", asynchronous());
    let slave = pair.slave(pair.options());
    wait_until(|| slave.status().held == Some(common));
    let ahead = slave.reader().unwrap().physical_bounds().end;
    assert!(ahead > common);
    assert_eq!(slave.status().state, SlaveState::Comparing);
    assert_eq!(slave.status().lag(), None);
    let timed_out = slave.wait(common, Some(Instant::now() + Duration::from_millis(50)));
    assert!(matches!(timed_out, Err(Error::TimedOut { .. })), "{timed_out:?}");
    assert_eq!(slave.reader().unwrap().physical_bounds().end, ahead);
    master.append(200..205);
    wait_for(&slave, master.end());
    let end = master.end();
    master.close();
    slave.close().unwrap();
    pair.expect_equal(end);
}

#[test]
fn a_tail_that_a_writer_has_appended_is_cut_only_on_request() {
    let pair = Pair::new();
    let master = pair.master("master", asynchronous());
    let slave = pair.slave_from_the_start(&master, pair.options());
    master.append(0..30);
    wait_for(&slave, master.end());
    let common = master.end();
    slave.close().unwrap();
    // A promotion.
    let config = StoreConfig::default();
    let promoted = MessageStore::open(&env(), &pair.at("slave"), config, OpenMode::Existing).unwrap();
    for n in 0..3 {
        promoted.append(message(&[n; 300])).unwrap();
    }
    let own_end = promoted.appended_offset();
    promoted.close().unwrap();
    master.append(30..60);
    let before = pair.log("slave", own_end);

    let slave = pair.slave(pair.options());
    let refused = failure(&slave);
    assert_eq!(refused.remedy(), Some(Remedy::DiscardTail));
    let text = refused.to_string();
    let expected = format!("differ from physical offset {common} on");
    assert!(text.contains(&expected), "{text}");
    assert!(
        text.contains(&format!("{} bytes with 3 messages", own_end - common)),
        "{text}"
    );
    let waited = slave.wait(own_end, None);
    assert_eq!(waited.unwrap_err().to_string(), text);
    slave.close().unwrap();
    assert!(pair.log("slave", own_end) == before);

    // Also after it was a slave again: what it has not received stays its own.
    let slave = pair.slave(pair.options());
    failure(&slave);
    slave.close().unwrap();
    let slave = pair.slave(SlaveOptions {
        discards_tail: true,
        ..pair.options()
    });
    let end = master.end();
    wait_for(&slave, end);
    slave.close().unwrap();
    master.close();
    pair.expect_equal(end);

    // What it has received since is cut without a request.
    copy_dir(&pair.at("master"), &pair.at("older"));
    let master = pair.master("master", asynchronous());
    let slave = pair.slave(pair.options());
    master.append(60..70);
    wait_for(&slave, master.end());
    slave.close().unwrap();
    master.close();
    fs::remove_dir_all(pair.at("master")).unwrap();
    fs::rename(pair.at("older"), pair.at("master")).unwrap();
    let master = pair.master("master", asynchronous());
    master.append(80..85);
    let slave = pair.slave(pair.options());
    let end = master.end();
    wait_for(&slave, end);
    slave.close().unwrap();
    master.close();
    pair.expect_equal(end);
}

#[test]
fn a_slave_appends_nothing_of_its_own_and_a_writer_does_after_it() {
    let pair = Pair::new();
    let master = pair.master("master", asynchronous());
    let slave = pair.slave_from_the_start(&master, pair.options());
    master.append(0..5);
    wait_for(&slave, master.end());
    let open = || MessageStore::open(&env(), &pair.at("slave"), StoreConfig::default(), OpenMode::Existing);
    assert!(matches!(open(), Err(Error::Locked { .. })));
    slave.close().unwrap();
    let promoted = open().unwrap();
    promoted.append(message(b"own")).unwrap();
    assert!(promoted.catch_up(LONG).unwrap());
    assert_eq!(promoted.reader().queue_bounds("orders", 0).unwrap(), 0..6);
    promoted.close().unwrap();
    master.close();
}

#[test]
fn nothing_is_appended_to_the_store_of_a_slave() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("store");
    let begin = OpenMode::Replica(ReplicaLog::BeginsAt(2 * SEGMENT));
    let store = MessageStore::open(&env(), &path, options("host:1".to_owned()).config, begin).unwrap();
    assert_eq!(store.reader().physical_bounds(), 2 * SEGMENT..2 * SEGMENT);
    let refused = store.append(message(b"x")).unwrap_err();
    assert!(matches!(refused, Error::ReadOnly { .. }) && refused.put_status() == Some("SERVICE_NOT_AVAILABLE"));
    let mut done = Vec::new();
    let together = store.appender(None).append_together(vec![message(b"x")], &mut done);
    assert!(matches!(together, Err(Error::ReadOnly { .. })) && done.is_empty());
    store.close().unwrap();
    let again = MessageStore::open(&env(), &path, StoreConfig::default(), begin);
    assert!(matches!(again, Err(Error::Exists { .. })));
    let promoted = MessageStore::open(&env(), &path, StoreConfig::default(), OpenMode::Existing).unwrap();
    assert_eq!(promoted.append(message(b"x")).unwrap().appended.physical_offset, 2 * SEGMENT);
    promoted.close().unwrap();
    let cut = OpenMode::Replica(ReplicaLog::CutAt(2 * SEGMENT));
    let refused = MessageStore::open(&env(), &path, StoreConfig::default(), cut);
    assert!(matches!(refused, Err(Error::Invalid { .. })), "it is no slave's");
}

#[test]
fn another_log_is_not_cut_even_on_request() {
    let pair = Pair::new();
    let with_messages = |name: &str, n: u8| {
        let master = pair.master(name, asynchronous());
        master.append(n..n + 30);
        let end = master.end();
        master.close();
        end
    };
    with_messages("master", 100);
    let end = with_messages("slave", 0);
    let before = pair.log("slave", end);
    let master = pair.master("master", asynchronous());
    let slave = pair.slave(SlaveOptions {
        discards_tail: true,
        ..pair.options()
    });
    let refused = failure(&slave).to_string();
    assert!(refused.contains("it is another log"), "{refused}");
    slave.close().unwrap();
    master.close();
    assert!(pair.log("slave", end) == before);
}

#[test]
fn a_slave_below_the_begin_of_its_master_says_so_and_keeps_its_log() {
    let pair = Pair::new();
    let master = pair.master("master", asynchronous());
    let slave = pair.slave_from_the_start(&master, pair.options());
    master.append(0..10);
    let end = master.end();
    wait_for(&slave, end);
    slave.close().unwrap();
    master.append(10..100);
    assert!(master.store.catch_up(LONG).unwrap());
    master.store.trim(TrimTo::Offset(3 * SEGMENT), i64::MAX).unwrap();
    let slave = pair.slave(pair.options());
    wait_for_error(&slave, "or the master has removed what this one holds");
    slave.close().unwrap();
    assert_eq!(
        MessageReader::open(&env(), &pair.at("slave"), StoreConfig::default())
            .unwrap()
            .recovery()
            .log_end,
        end
    );
    // An empty one gets the last segment.
    fs::remove_dir_all(pair.at("slave")).unwrap();
    let slave = pair.slave(pair.options());
    let end = master.end();
    wait_for(&slave, end);
    let first = slave.reader().unwrap().physical_bounds().start;
    assert_eq!(first, end / SEGMENT * SEGMENT);
    slave.close().unwrap();
    let slave = pair.slave(pair.options());
    master.append(0..40);
    wait_for(&slave, master.end());
    slave.close().unwrap();
    let end = master.end();
    let (begin, whole) = (first as usize, pair.log("master", end));
    master.close();
    let removed = whole.len() as i64 - end;
    assert!(pair.log("slave", end)[..] == whole[(begin as i64 + removed) as usize..]);
}

#[test]
fn a_slave_waits_for_a_master_that_is_not_there_and_closes_at_once() {
    let pair = Pair::new();
    let slave = pair.slave(SlaveOptions {
        timing: Timing::default(),
        ..pair.options()
    });
    wait_for_error(&slave, "refused");
    assert_eq!(slave.status().state, SlaveState::Connecting);
    assert!(slave.reader().is_none());
    let begun = Instant::now();
    slave.close().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2), "the pause is 5 s");
    assert!(matches!(slave.wait(0, None), Err(Error::Closed)));
    for master in ["localhost", ":1", "host:0", "host:65536", "host:x"] {
        let refused = Slave::start(&env(), &pair.at("slave"), options(master.to_owned()));
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{master}");
    }
    fs::write(pair.at("file"), b"").unwrap();
    for path in ["file", "."] {
        let refused = Slave::start(&env(), &pair.at(path), pair.options());
        assert!(matches!(refused, Err(Error::NotAStore { .. })), "{path}");
    }
}

#[test]
fn a_master_with_other_segments_is_refused_where_the_first_one_ends() {
    for segment in [2 * SEGMENT, SEGMENT / 2] {
        let pair = Pair::new();
        let master = pair.master(
            "master",
            StoreConfig {
                mapped_file_size_commit_log: Some(segment as u64),
                ..asynchronous()
            },
        );
        let slave = pair.slave_from_the_start(&master, pair.options());
        master.append(0..40);
        let refused = failure(&slave).to_string();
        assert!(refused.contains("mapped_file_size_commit_log"), "{refused}");
        let end = slave.reader().unwrap().physical_bounds().end;
        assert!(end > 0 && end <= segment.min(SEGMENT), "{end}");
        slave.close().unwrap();
        master.close();
        assert!(pair.log("slave", end) == pair.log("master", end), "the logs differ");
    }
}

#[test]
fn a_slave_continues_after_a_segment_that_came_too_late() {
    let pair = Pair::new();
    let master = pair.master("master", asynchronous());
    let mut options = pair.options();
    options.config.wait_time_out = 0;
    let slave = pair.slave_from_the_start(&master, options);
    master.append(0..90);
    let end = master.end();
    wait_for(&slave, end);
    slave.close().unwrap();
    master.close();
    pair.expect_equal(end);
}
