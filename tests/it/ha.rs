//! A master and slaves that the test plays: the bytes that they get, and what an append waits for.

mod beside_cut;
mod played_master;
mod played_slave;
mod settings;
mod settings_cut;
mod slave;
mod tap;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use mqstore::broker::{BrokerController, TrimReport};
use mqstore::config::{BrokerRole, FlushDiskType, StoreConfig};
use mqstore::format::{Message, encode_properties};
use mqstore::ha::{Master, Timing};
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{AppendResult, MessageStore, OpenMode, PutStatus, TrimTo};
use tempfile::{TempDir, tempdir};

use crate::asleep::{thread_number, wait_until_asleep};
use crate::counting_env::CountingEnv;

const SEGMENT: i64 = 16384;
/// Longer than any test waits for what comes.
const LONG: Duration = Duration::from_secs(30);

fn asynchronous() -> StoreConfig {
    StoreConfig {
        mapped_file_size_commit_log: Some(SEGMENT as u64),
        max_hash_slot_num: Some(100),
        max_index_num: Some(1000),
        ha_listen_port: Some(0),
        flush_interval_commit_log: 1_000_000,
        ..StoreConfig::default()
    }
}

fn synchronous() -> StoreConfig {
    StoreConfig {
        broker_role: BrokerRole::SyncMaster,
        slave_timeout: 20_000,
        ..asynchronous()
    }
}

struct Node {
    store: Arc<MessageStore>,
    master: Master,
    _dir: TempDir,
}

impl Node {
    fn open(config: StoreConfig) -> Self {
        Self::open_with(config, Timing::default())
    }

    fn open_with(config: StoreConfig, timing: Timing) -> Self {
        let env: Arc<dyn Env> = Arc::new(RealEnv::new());
        Self::open_in(&env, config, timing)
    }

    fn open_in(env: &Arc<dyn Env>, config: StoreConfig, timing: Timing) -> Self {
        let dir = tempdir().unwrap();
        let store = Arc::new(MessageStore::open(env, &dir.path().join("store"), config, OpenMode::New).unwrap());
        let master = Master::start_with(&store, timing).unwrap().unwrap();
        Self {
            store,
            master,
            _dir: dir,
        }
    }

    fn append(&self, body: &[u8]) -> AppendResult {
        self.store.append(message(body)).unwrap()
    }

    fn slave(&self, asked: i64) -> Slave {
        Slave::connect(self.master.address(), asked)
    }

    fn log(&self, end: i64) -> Vec<u8> {
        let dir = self.store.reader().path().join("commitlog");
        let mut names: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        let mut bytes: Vec<u8> = names.iter().flat_map(|name| std::fs::read(name).unwrap()).collect();
        bytes.truncate(end as usize);
        bytes
    }

    /// Waits until this many slaves are connected.
    fn wait_for_slaves(&self, count: usize) {
        wait_until(|| self.store.replicas().connected().len() == count);
    }

    /// Waits for the reason of the last refusal.
    fn refusal(&self) -> String {
        wait_until(|| !self.store.replicas().refused().is_empty());
        self.store.replicas().refused().pop().unwrap().reason
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.store.close().unwrap();
        self.master.close();
    }
}

fn wait_until(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG);
        thread::sleep(Duration::from_millis(1));
    }
}

fn message(body: &[u8]) -> Message<'_> {
    Message {
        topic: "orders".into(),
        body: body.into(),
        ..Message::default()
    }
}

/// A slave that the test plays.
struct Slave {
    stream: TcpStream,
    /// The end of what it holds.
    end: i64,
    bytes: Vec<u8>,
}

impl Slave {
    fn connect(address: SocketAddr, asked: i64) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut slave = Self {
            stream,
            end: asked,
            bytes: Vec::new(),
        };
        slave.report(asked);
        slave
    }

    fn report(&mut self, end: i64) {
        // The master may have closed the connection.
        let _ = self.stream.write_all(&end.to_be_bytes());
    }

    /// The physical offset and the bytes of the next frame; `None` once the master has closed the connection.
    fn frame(&mut self) -> Option<(i64, Vec<u8>)> {
        let mut head = [0; 12];
        self.stream.read_exact(&mut head).ok()?;
        let offset = i64::from_be_bytes(head[..8].try_into().unwrap());
        let mut bytes = vec![0; i32::from_be_bytes(head[8..].try_into().unwrap()) as usize];
        self.stream.read_exact(&mut bytes).unwrap();
        Some((offset, bytes))
    }

    /// The next frame; `None` once the master has closed the connection, also in the middle of a frame.
    fn frame_or_end(&mut self) -> Option<Vec<u8>> {
        let mut head = [0; 12];
        self.stream.read_exact(&mut head).ok()?;
        let mut bytes = vec![0; i32::from_be_bytes(head[8..].try_into().unwrap()) as usize];
        self.stream.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }

    /// The next frame with bytes of the log.
    fn log_frame(&mut self) -> Option<(i64, Vec<u8>)> {
        loop {
            match self.frame()? {
                (_, bytes) if bytes.is_empty() => {}
                frame => return Some(frame),
            }
        }
    }

    /// Takes frames, and acknowledges each, until it holds the log up to `end`.
    fn take_until(&mut self, end: i64) {
        while self.end < end {
            let (offset, bytes) = self.frame().unwrap();
            assert!(offset == self.end || self.bytes.is_empty(), "{offset} after {}", self.end);
            self.end = offset + bytes.len() as i64;
            assert_eq!(
                offset / SEGMENT,
                (self.end - 1).max(offset) / SEGMENT,
                "a frame crosses a segment"
            );
            self.bytes.extend(bytes);
            self.report(self.end);
        }
    }
}

#[test]
fn a_slave_gets_the_bytes_of_the_log_in_each_write_mode() {
    for (flush, has_pool) in [
        (FlushDiskType::Async, false),
        (FlushDiskType::Async, true),
        (FlushDiskType::Sync, false),
    ] {
        let node = Node::open(StoreConfig {
            flush_disk_type: flush,
            transient_store_pool_enable: has_pool,
            ..asynchronous()
        });
        // It asks for byte 0 of an empty log.
        let mut slave = node.slave(0);
        node.wait_for_slaves(1);
        for n in 0..100 {
            node.append(&vec![n; 700]);
        }
        let end = node.store.appended_offset();
        assert!(end > 3 * SEGMENT);
        slave.take_until(end);
        assert!(slave.bytes == node.log(end), "{flush:?} {has_pool}");
        wait_until(|| node.store.replicas().connected()[0].acknowledged == end);
    }
}

#[test]
fn a_master_copies_none_of_the_long_frames_that_it_sends() {
    let env = CountingEnv::new();
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    let node = Node::open_in(
        &seam,
        StoreConfig {
            mapped_file_size_commit_log: Some(1 << 20),
            ..asynchronous()
        },
        Timing::default(),
    );
    for n in 0..200 {
        node.append(&vec![n; 4000]);
    }
    assert!(node.store.catch_up(LONG).unwrap());
    let end = node.store.appended_offset();
    let log = node.store.reader().path().join("commitlog");
    let before = env.bytes_read_below(&log);
    let mut slave = node.slave(0);
    while slave.end < end {
        let (offset, bytes) = slave.frame().unwrap();
        assert_eq!(offset, slave.end);
        slave.end += bytes.len() as i64;
        slave.bytes.extend(bytes);
    }
    assert!(slave.bytes == node.log(end));
    let copied = env.bytes_read_below(&log) - before;
    assert!(end > 800_000 && copied < 32 * 1024, "{copied} of {end} bytes");
}

#[test]
fn a_slave_continues_at_its_end_and_an_empty_one_with_the_last_segment() {
    let node = Node::open(asynchronous());
    for n in 0..100 {
        node.append(&vec![n; 700]);
    }
    let end = node.store.appended_offset();
    // In the middle of a record, too.
    for asked in [1, SEGMENT, SEGMENT + 5, end - 1, end] {
        let mut slave = node.slave(asked);
        slave.take_until(end);
        assert_eq!(slave.bytes, node.log(end)[asked as usize..], "{asked}");
    }
    let mut empty = node.slave(0);
    let (first, _) = empty.frame().unwrap();
    assert_eq!(first, end / SEGMENT * SEGMENT);
}

#[test]
fn a_slave_gets_only_what_is_committed() {
    let node = Node::open(StoreConfig {
        transient_store_pool_enable: true,
        commit_interval_commit_log: 1_000_000,
        commit_commit_log_thorough_interval: 1_000_000,
        ..asynchronous()
    });
    let mut slave = node.slave(0);
    node.wait_for_slaves(1);
    node.append(b"in the pool");
    // A heartbeat comes first, after 5 s.
    assert_eq!(slave.frame().unwrap(), (0, Vec::new()));
    node.store.commit().unwrap();
    slave.take_until(node.store.appended_offset());
}

#[test]
fn an_append_of_a_synchronous_master_returns_once_a_slave_holds_it() {
    for flush in [FlushDiskType::Async, FlushDiskType::Sync] {
        for has_pool in [false, true] {
            let node = Node::open(StoreConfig {
                flush_disk_type: flush,
                transient_store_pool_enable: has_pool,
                ..synchronous()
            });
            let mut slave = node.slave(0);
            node.wait_for_slaves(1);
            for n in 0..40 {
                thread::scope(|scope| {
                    let appended = scope.spawn(|| node.append(&vec![n; 700]));
                    let (offset, bytes) = slave.log_frame().unwrap();
                    assert!(!appended.is_finished(), "nothing was acknowledged");
                    slave.end = offset + bytes.len() as i64;
                    slave.report(slave.end);
                    slave.take_until(node.store.appended_offset());
                    let result = appended.join().unwrap();
                    assert_eq!(result.status, PutStatus::PutOk);
                    assert!(node.store.replicas().replicated() >= result.appended.end());
                    assert!(flush == FlushDiskType::Async || node.store.flushed_offset() >= result.appended.end());
                });
            }
        }
    }
}

#[test]
fn a_batch_waits_once_and_each_message_has_its_status() {
    let node = Node::open(synchronous());
    let append = || {
        let mut done = Vec::new();
        let messages = vec![message(b"a"), message(b"b")];
        node.store.appender(None).append_all(messages, &mut done).unwrap();
        done.iter().map(|result| result.status).collect::<Vec<_>>()
    };
    assert_eq!(append(), [PutStatus::SlaveNotAvailable; 2]);
    let end = node.store.appended_offset();
    let mut slave = node.slave(end);
    node.wait_for_slaves(1);
    thread::scope(|scope| {
        let appended = scope.spawn(append);
        slave.take_until(end + 1);
        while !appended.is_finished() {
            slave.take_until(node.store.appended_offset());
        }
        assert_eq!(appended.join().unwrap(), [PutStatus::PutOk; 2]);
    });
}

#[test]
fn an_append_without_a_slave_is_stored_and_does_not_wait() {
    let node = Node::open(synchronous());
    let begun = Instant::now();
    assert_eq!(node.append(b"x").status, PutStatus::SlaveNotAvailable);
    let properties = encode_properties([("WAIT", "false")], true).unwrap();
    let unawaited = Message {
        properties: properties.as_slice().into(),
        ..message(b"x")
    };
    assert_eq!(node.store.append(unawaited).unwrap().status, PutStatus::PutOk);
    let not_durable = node.store.appender(Some(false)).append(message(b"x")).unwrap();
    assert_eq!(not_durable.status, PutStatus::PutOk);
    assert!(begun.elapsed() < Duration::from_secs(15), "nothing waits");
    assert!(node.store.catch_up(LONG).unwrap());
    assert_eq!(node.store.reader().queue_bounds("orders", 0).unwrap().end, 3);
}

#[test]
fn a_silent_slave_is_waited_for_until_slave_timeout() {
    let node = Node::open(StoreConfig {
        slave_timeout: 150,
        ..synchronous()
    });
    let mut slave = node.slave(0);
    node.wait_for_slaves(1);
    let begun = Instant::now();
    assert_eq!(node.append(b"x").status, PutStatus::FlushSlaveTimeout);
    assert!(begun.elapsed() >= Duration::from_millis(150));
    slave.take_until(node.store.appended_offset());
    wait_until(|| node.store.replicas().replicated() == node.store.appended_offset());
}

#[test]
fn a_slave_that_is_far_behind_is_not_waited_for() {
    let node = Node::open(StoreConfig {
        ha_max_gap_not_in_sync: 2000,
        slave_timeout: 50,
        ..synchronous()
    });
    let _slave = node.slave(0);
    node.wait_for_slaves(1);
    assert_eq!(node.append(&[b'x'; 1000]).status, PutStatus::FlushSlaveTimeout);
    assert_eq!(node.append(&[b'x'; 1000]).status, PutStatus::SlaveNotAvailable);
}

#[test]
fn a_first_report_acknowledges_nothing() {
    let node = Node::open(StoreConfig {
        slave_timeout: 1000,
        ..synchronous()
    });
    let mut silent = node.slave(0);
    node.wait_for_slaves(1);
    thread::scope(|scope| {
        let appended = scope.spawn(|| node.append(b"one"));
        wait_until(|| node.store.appended_offset() > 0);
        let end = node.store.appended_offset();
        // Another one says that it holds the message already, from a log of which nobody knows what it holds. It gets, and acknowledges,
        // what comes later.
        let mut ahead = node.slave(end);
        node.wait_for_slaves(2);
        node.store.appender(Some(false)).append(message(b"two")).unwrap();
        ahead.take_until(node.store.appended_offset());
        wait_until(|| node.store.replicas().replicated() == node.store.appended_offset());
        assert_eq!(appended.join().unwrap().status, PutStatus::FlushSlaveTimeout);
        assert!(silent.frame().is_some());
    });
    // Later messages are acknowledged by either.
    thread::scope(|scope| {
        let appended = scope.spawn(|| node.append(b"three"));
        wait_until(|| node.store.appended_offset() > 300);
        while !appended.is_finished() {
            silent.take_until(node.store.appended_offset());
        }
        assert_eq!(appended.join().unwrap().status, PutStatus::PutOk);
    });
}

#[test]
fn a_slave_that_asks_for_other_bytes_than_there_are_is_refused() {
    let node = Node::open(asynchronous());
    node.append(b"x");
    let end = node.store.appended_offset();
    for (asked, reason) in [
        (end + 1, "is ahead"),
        (i64::MAX, "is ahead"),
        (-1, "from -1 on, where no log begins"),
        (-5, "from -5 on, where no log begins"),
        (i64::MIN, "where no log begins"),
    ] {
        let mut slave = node.slave(asked);
        assert!(slave.frame().is_none());
        wait_until(|| {
            node.store
                .replicas()
                .refused()
                .last()
                .is_some_and(|refused| refused.reason.contains(reason))
        });
    }
    // A slave that acknowledges more than it was sent gets nothing more.
    let mut slave = node.slave(end);
    node.wait_for_slaves(1);
    slave.report(end + 1);
    assert!(slave.log_frame().is_none());
    node.wait_for_slaves(0);
    assert!(node.refusal().contains("acknowledges the log up to"));
    assert_eq!(node.store.replicas().replicated(), 0);
}

#[test]
fn a_heartbeat_says_where_the_log_ends() {
    let node = Node::open(asynchronous());
    node.append(b"x");
    let end = node.store.appended_offset();
    // Of an idle master the next one comes after 5 s.
    let mut slave = node.slave(end);
    assert_eq!(slave.frame(), Some((end, Vec::new())));
    let mut slave = node.slave(1);
    assert_eq!(slave.frame(), Some((1, node.log(end)[1..].to_vec())));
    assert_eq!(slave.frame(), Some((end, Vec::new())));
}

#[test]
fn connections_of_one_host_count_as_one_slave() {
    let node = Node::open(StoreConfig {
        in_sync_replicas: Some(3),
        slave_timeout: 100,
        ..synchronous()
    });
    let (mut first, mut second) = (node.slave(0), node.slave(0));
    node.wait_for_slaves(2);
    assert_eq!(node.append(b"x").status, PutStatus::SlaveNotAvailable);
    let end = node.store.appended_offset();
    first.take_until(end);
    second.take_until(end);
    wait_until(|| {
        node.store
            .replicas()
            .connected()
            .iter()
            .all(|slave| slave.acknowledged == end)
    });
    assert_eq!(node.store.replicas().replicated(), 0);
    // One of another host.
    let replicas = node.store.replicas();
    let other = replicas.connect("192.0.2.1:4711".parse().unwrap(), 0, 0);
    replicas.acknowledge(other, end);
    assert_eq!(replicas.replicated(), end);
    replicas.disconnect(other);
}

#[test]
fn a_close_sends_what_is_left() {
    let node = Node::open(StoreConfig {
        transient_store_pool_enable: true,
        commit_interval_commit_log: 1_000_000,
        commit_commit_log_thorough_interval: 1_000_000,
        ..asynchronous()
    });
    let mut slave = node.slave(0);
    node.wait_for_slaves(1);
    for n in 0..60 {
        node.append(&vec![n; 700]);
    }
    let end = node.store.appended_offset();
    node.store.close().unwrap();
    slave.take_until(end);
    node.master.close();
    assert!(slave.log_frame().is_none());
    assert_eq!(slave.bytes, node.log(end));
}

#[test]
fn an_idle_master_sends_heartbeats_with_the_next_offset() {
    let node = Node::open(asynchronous());
    // No segment is there yet.
    let mut empty = node.slave(0);
    assert_eq!(empty.frame(), Some((0, Vec::new())));
    node.append(b"x");
    let end = node.store.appended_offset();
    let mut slave = node.slave(end);
    assert_eq!(slave.frame().unwrap(), (end, Vec::new()));
}

#[test]
fn a_trim_keeps_what_a_connected_slave_has_not_acknowledged() {
    let node = Node::open(asynchronous());
    for n in 0..100 {
        node.append(&vec![n; 700]);
    }
    assert!(node.store.catch_up(LONG).unwrap());
    let mut slave = node.slave(SEGMENT + 5);
    node.wait_for_slaves(1);
    let broker = BrokerController::new(&node.store);
    let trim = |is_dry_run| broker.trim(TrimTo::Offset(i64::MAX), false, is_dry_run).unwrap();
    let removed = |report: &TrimReport| report.trimmed.segments.last().map_or(0, |segment| segment.end);
    for is_dry_run in [true, false] {
        let report = trim(is_dry_run);
        assert_eq!((removed(&report), report.holds.len()), (SEGMENT, 0));
        let kept_for: Vec<_> = report
            .slaves
            .iter()
            .map(|slave| (slave.address, slave.acknowledged))
            .collect();
        assert_eq!(kept_for, [(slave.stream.local_addr().unwrap(), SEGMENT + 5)]);
        assert_eq!(report.unreplicated, []);
    }
    let end = node.store.appended_offset();
    slave.take_until(end);
    wait_until(|| node.store.replicas().connected()[0].acknowledged == end);
    let report = trim(false);
    assert_eq!((removed(&report), report.slaves), (end / SEGMENT * SEGMENT, Vec::new()));
    // A slave that asks for what was removed is refused.
    assert!(node.slave(SEGMENT).frame().is_none());
    assert!(node.refusal().contains("which was removed"));
    broker.close().unwrap();
}

#[test]
fn a_forced_trim_names_the_slave_that_it_leaves_and_refuses_it() {
    let node = Node::open(StoreConfig {
        mapped_file_size_commit_log: Some(1 << 20),
        ..asynchronous()
    });
    let mut slave = node.slave(0);
    node.wait_for_slaves(1);
    // More than the sockets hold: the master has not sent the rest.
    while node.store.appended_offset() < 32 << 20 {
        node.append(&vec![b'x'; 100_000]);
    }
    assert!(node.store.catch_up(LONG).unwrap());
    let broker = BrokerController::new(&node.store);
    let report = broker.trim(TrimTo::Offset(i64::MAX), true, false).unwrap();
    assert_eq!(report.trimmed.segments.len(), 32);
    let left: Vec<_> = report
        .unreplicated
        .iter()
        .map(|slave| (slave.address, slave.acknowledged))
        .collect();
    assert_eq!(
        (left, report.slaves),
        (vec![(slave.stream.local_addr().unwrap(), 0)], Vec::new())
    );
    while slave.frame_or_end().is_some() {}
    let refusal = node.refusal();
    assert!(refusal.contains("which was removed"), "{refusal}");
    broker.close().unwrap();
}

#[test]
fn a_close_ends_the_wait_for_a_slave() {
    let node = &Node::open(synchronous());
    let _slave = node.slave(0);
    node.wait_for_slaves(1);
    thread::scope(|scope| {
        let (sender, receiver) = channel();
        let appended = scope.spawn(move || {
            sender.send(thread_number()).unwrap();
            node.append(b"x")
        });
        let thread = receiver.recv().unwrap();
        wait_until(|| node.store.appended_offset() > 0);
        wait_until_asleep(&thread);
        let begun = Instant::now();
        node.store.close().unwrap();
        assert_eq!(appended.join().unwrap().status, PutStatus::FlushSlaveTimeout);
        assert!(begun.elapsed() < Duration::from_secs(15));
    });
}

/// Stores two messages for which nobody waits.
fn two_messages(node: &Node) -> (AppendResult, AppendResult) {
    let append = |body: &[u8]| node.store.appender(Some(false)).append(message(body)).unwrap();
    (append(&[b'x'; 1000]), append(b"y"))
}

/// Waits for slaves as a future of this append does.
fn status_of(node: &Node, result: AppendResult) -> PutStatus {
    let deadline = Instant::now() + Duration::from_millis(node.store.config().sync_flush_timeout);
    let waited = node.store.flushed().wait_for_copies(result, deadline, false);
    waited.unwrap().status
}

#[test]
fn a_slave_that_comes_back_takes_nothing_from_what_another_holds() {
    let node = Node::open(synchronous());
    let replicas = node.store.replicas();
    let steady = replicas.connect("192.0.2.1:1".parse().unwrap(), 0, 0);
    let (first, second) = two_messages(&node);
    let back = replicas.connect("192.0.2.2:1".parse().unwrap(), first.appended.end(), 0);
    replicas.acknowledge(back, second.appended.end());
    assert_eq!(replicas.replicated(), second.appended.end());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| status_of(&node, first));
        thread::sleep(Duration::from_millis(20));
        // The first slave may still acknowledge it.
        assert!(!waiting.is_finished());
        replicas.acknowledge(steady, first.appended.end());
        assert_eq!(waiting.join().unwrap(), PutStatus::PutOk);
    });
    assert_eq!(status_of(&node, second), PutStatus::PutOk);
    // Also once both have left, and others have come.
    for connection in [steady, back] {
        replicas.disconnect(connection);
    }
    let (third, fourth) = two_messages(&node);
    let late = replicas.connect("192.0.2.3:1".parse().unwrap(), third.appended.end(), 0);
    replicas.acknowledge(late, fourth.appended.end());
    for (result, status) in [
        (first, PutStatus::PutOk),
        (second, PutStatus::PutOk),
        (third, PutStatus::SlaveNotAvailable),
        (fourth, PutStatus::PutOk),
    ] {
        assert_eq!(status_of(&node, result), status, "{result:?}");
    }
}

#[test]
fn two_slaves_that_hold_a_part_each_do_not_hold_a_message() {
    let node = Node::open(StoreConfig {
        slave_timeout: 100,
        ..synchronous()
    });
    let replicas = node.store.replicas();
    let first_part = replicas.connect("192.0.2.1:1".parse().unwrap(), 0, 0);
    let (split, whole) = two_messages(&node);
    replicas.acknowledge(first_part, 500);
    replicas.disconnect(first_part);
    let rest = replicas.connect("192.0.2.2:1".parse().unwrap(), split.appended.end(), 0);
    replicas.acknowledge(rest, whole.appended.end());
    assert_eq!(status_of(&node, split), PutStatus::SlaveNotAvailable);
    assert_eq!(status_of(&node, whole), PutStatus::PutOk);
}

#[test]
fn each_of_the_needed_slaves_was_sent_the_message() {
    let node = Node::open(StoreConfig {
        in_sync_replicas: Some(3),
        slave_timeout: 100,
        ..synchronous()
    });
    let replicas = node.store.replicas();
    let one = replicas.connect("192.0.2.1:1".parse().unwrap(), 0, 0);
    let (first, second) = two_messages(&node);
    let two = replicas.connect("192.0.2.2:1".parse().unwrap(), first.appended.end(), 0);
    let end = second.appended.end();
    replicas.acknowledge(one, end);
    replicas.acknowledge(two, end);
    assert_eq!(replicas.replicated(), end);
    assert_eq!(status_of(&node, first), PutStatus::SlaveNotAvailable);
    assert_eq!(status_of(&node, second), PutStatus::PutOk);
    let three = replicas.connect("192.0.2.3:1".parse().unwrap(), 0, 0);
    replicas.acknowledge(three, end);
    assert_eq!(status_of(&node, first), PutStatus::PutOk);
}

#[test]
fn a_slave_that_leaves_is_gone_at_once() {
    let node = Node::open(asynchronous());
    let slave = node.slave(0);
    node.wait_for_slaves(1);
    let begun = Instant::now();
    drop(slave);
    node.wait_for_slaves(0);
    assert!(begun.elapsed() < Duration::from_secs(4), "not with the next heartbeat");
}

#[test]
fn a_close_does_not_wait_for_a_connection_that_reports_nothing() {
    let node = Node::open(asynchronous());
    let mut silent = TcpStream::connect(node.master.address()).unwrap();
    // Served after it.
    let _slave = node.slave(0);
    node.wait_for_slaves(1);
    node.store.close().unwrap();
    let begun = Instant::now();
    node.master.close();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
}
