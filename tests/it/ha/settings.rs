//! Topics, groups and progress on a slave, and the port at which a master answers for them.

use std::fs;
use std::io::{Cursor, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mqstore::broker::{BrokerController, Start, Subscription};
use mqstore::config::StoreConfig;
use mqstore::format::Message;
use mqstore::ha::{Master, RemotingCommand, RequestTimes, SettingsServer, Slave, SlaveOptions, Timing};
use mqstore::read::OnMissing;
use mqstore::store::{MessageStore, OpenMode};
use serde_json::{Value, json};

use super::slave::{Pair, TIMING, env, options};
use super::{LONG, asynchronous, message, wait_until};
use crate::played_broker::{CONSUMER_OFFSETS, DELAY_OFFSETS, GROUPS, PlayedBroker, RUNTIME_INFO, TOPICS};

const TIMES: RequestTimes = RequestTimes {
    idle: LONG,
    frame: Duration::from_millis(300),
};

/// A master with its groups.
pub(super) struct Node {
    pub(super) store: Arc<MessageStore>,
    pub(super) broker: Arc<BrokerController>,
    master: Master,
    settings: SettingsServer,
}

impl Node {
    pub(super) fn open(pair: &Pair, name: &str) -> Self {
        let config = StoreConfig {
            listen_port: Some(0),
            ..asynchronous()
        };
        let store = Arc::new(MessageStore::open(&env(), &pair.at(name), config, OpenMode::Append).unwrap());
        let broker = Arc::new(BrokerController::new(&store));
        Self {
            master: Master::start(&store).unwrap().unwrap(),
            settings: SettingsServer::start(&store, &broker, TIMES).unwrap().unwrap(),
            store,
            broker,
        }
    }

    pub(super) fn append(&self, messages: usize) {
        for n in 0..messages {
            self.store.append(message(&[n as u8; 700])).unwrap();
        }
    }

    /// Has the group acknowledge the messages before an offset, durably.
    fn commit(&self, group: &str, next: i64) {
        let consumer = self.broker.consumer(Some(group), subscription(), &Start::Earliest).unwrap();
        let given = consumer.poll(1000, Some(Instant::now() + LONG)).unwrap();
        assert!(!given.is_empty());
        consumer.ack((0..next).map(|offset| ("orders", 0, offset))).unwrap();
        consumer.commit().unwrap();
        consumer.close().unwrap();
    }

    fn settings_address(&self) -> SocketAddr {
        self.settings.address().unwrap()
    }

    pub(super) fn options(&self) -> SlaveOptions {
        SlaveOptions {
            broker: Some(self.settings_address().to_string()),
            ..options(self.master.address().to_string())
        }
    }

    fn ask(&self, code: i32) -> RemotingCommand {
        ask(self.settings_address(), code)
    }

    pub(super) fn close(self) {
        self.settings.close();
        self.broker.close().unwrap();
        self.store.close().unwrap();
        self.master.close();
    }
}

fn ask(address: SocketAddr, code: i32) -> RemotingCommand {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(&RemotingCommand::request(code, 7).encode().unwrap())
        .unwrap();
    let answer = RemotingCommand::read(&mut stream, 1 << 20).unwrap().unwrap();
    assert!(answer.is_answer() && answer.opaque == 7);
    answer
}

pub(super) fn subscription() -> Subscription {
    Subscription {
        topics: vec!["orders".to_owned()],
        tags: "*".to_owned(),
        is_ordered: false,
        max_reconsume_times: Some(16),
        consume_timeout: Duration::from_secs(900),
        on_missing: OnMissing::Refuse,
    }
}

/// A settings file of a store; `null` without one.
pub(super) fn settings(pair: &Pair, name: &str, file: &str) -> Value {
    let path = pair.at(name).join("config").join(file);
    fs::read(path).map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).unwrap())
}

/// The progress of "billing" on the slave.
pub(super) fn progress(pair: &Pair, topic: &str) -> Option<i64> {
    let offsets = settings(pair, "slave", "consumerOffset.json");
    offsets["offsetTable"][format!("{topic}@billing")]["0"].as_i64()
}

/// A slave of this master's log that asks a played broker for settings.
pub(super) fn slave_of(pair: &Pair, master: &Node, played: &PlayedBroker) -> Slave {
    let asked = SlaveOptions {
        broker: Some(played.address.to_string()),
        ..master.options()
    };
    let slave = pair.slave(asked);
    wait_until(|| master.store.replicas().connected().len() == 1);
    slave
}

/// Waits until the broker has given answers from now on.
fn wait_for_rounds(played: &PlayedBroker) {
    // The round that is under way may have the answers from before.
    let rounds = played.rounds();
    wait_until(|| played.rounds() >= rounds + 3);
}

/// Waits until an answer that the broker gives from now on was taken.
pub(super) fn wait_for_answer(played: &PlayedBroker, slave: &Slave) {
    wait_for_rounds(played);
    assert!(slave.settings().error.is_none(), "{:?}", slave.settings());
}

#[test]
fn a_promoted_slave_continues_the_groups_of_its_master() {
    let pair = Pair::new();
    let master = Node::open(&pair, "master");
    let slave = pair.slave(master.options());
    wait_until(|| master.store.replicas().connected().len() == 1);
    master.append(5);
    master.commit("billing", 3);
    wait_until(|| progress(&pair, "orders") == Some(3));
    let status = slave.settings();
    assert!(status.taken_at.is_some_and(|at| at > 0) && status.error.is_none());
    slave.close().unwrap();
    let of_both = |file| (settings(&pair, "slave", file), settings(&pair, "master", file));
    let (slave_topics, master_topics) = of_both("topics.json");
    assert_eq!(
        slave_topics["topicConfigTable"]["orders"],
        master_topics["topicConfigTable"]["orders"]
    );
    assert!(slave_topics["topicConfigTable"]["orders"].is_object());
    let (slave_groups, master_groups) = of_both("subscriptionGroup.json");
    assert_eq!(
        slave_groups["subscriptionGroupTable"]["billing"],
        master_groups["subscriptionGroupTable"]["billing"]
    );
    master.close();
    let promoted = Arc::new(MessageStore::open(&env(), &pair.at("slave"), StoreConfig::default(), OpenMode::Existing).unwrap());
    let broker = BrokerController::new(&promoted);
    let consumer = broker.consumer(Some("billing"), subscription(), &Start::Earliest).unwrap();
    let given = consumer.poll(10, Some(Instant::now() + LONG)).unwrap();
    let offsets: Vec<_> = given.iter().map(|message| message.view().queue_offset()).collect();
    assert_eq!(offsets, [3, 4]);
    broker.close().unwrap();
    promoted.close().unwrap();
}

#[test]
fn progress_on_a_slave_ends_with_the_queue_that_it_holds() {
    let pair = Pair::new();
    let master = Node::open(&pair, "master");
    let played = PlayedBroker::start();
    let slave = slave_of(&pair, &master, &played);
    master.append(4);
    played.set(
        CONSUMER_OFFSETS,
        &json!({ "offsetTable": { "orders@billing": { "0": 9, "5": 9 }, "absent@billing": { "0": 3 } } }),
    );
    played.set_text(DELAY_OFFSETS, "{\"offsetTable\":{1:20,2:0}}");
    wait_until(|| progress(&pair, "orders") == Some(4));
    let offsets = settings(&pair, "slave", "consumerOffset.json");
    assert_eq!(
        offsets["offsetTable"],
        json!({ "orders@billing": { "0": 4, "5": 0 }, "absent@billing": { "0": 0 } })
    );
    wait_until(|| settings(&pair, "slave", "delayOffset.json") == json!({ "offsetTable": { "1": 0, "2": 0 } }));
    slave.close().unwrap();
}

#[test]
fn progress_on_a_slave_never_goes_back() {
    let pair = Pair::new();
    let master = Node::open(&pair, "master");
    let played = PlayedBroker::start();
    let slave = slave_of(&pair, &master, &played);
    master.append(6);
    played.set_progress("orders", 5);
    wait_until(|| progress(&pair, "orders") == Some(5));
    played.set_progress("orders", 2);
    wait_for_answer(&played, &slave);
    assert_eq!(progress(&pair, "orders"), Some(5));
    played.set_progress("orders", 6);
    wait_until(|| progress(&pair, "orders") == Some(6));
    slave.close().unwrap();
}

#[test]
fn delay_progress_of_an_older_snapshot_changes_no_level() {
    let pair = Pair::new();
    let master = Node::open(&pair, "master");
    let played = PlayedBroker::start();
    let slave = slave_of(&pair, &master, &played);
    for queue_id in [0, 0, 1, 1] {
        let delayed = Message {
            topic: "SCHEDULE_TOPIC_XXXX".into(),
            queue_id,
            ..message(b"delayed")
        };
        master.store.append(delayed).unwrap();
    }
    let levels = |first: i64, second: i64, log_end: i64| json!({ "offsetTable": { "1": first, "2": second }, "mqstore": { "logEnd": log_end } });
    let taken = || settings(&pair, "slave", "delayOffset.json");
    played.set(DELAY_OFFSETS, &levels(2, 1, 100));
    wait_until(|| taken() == levels(2, 1, 100));
    played.set(DELAY_OFFSETS, &levels(1, 2, 200));
    wait_for_answer(&played, &slave);
    assert_eq!(taken(), levels(2, 1, 100));
    // The end of the log never passes that of the slave.
    played.set(DELAY_OFFSETS, &levels(2, 2, i64::MAX));
    wait_until(|| taken() == levels(2, 2, master.store.appended_offset()));
    slave.close().unwrap();
}

#[test]
fn progress_waits_for_the_log_that_settles_it() {
    let pair = Pair::new();
    let master = Node::open(&pair, "master");
    let played = PlayedBroker::start();
    master.append(3);
    let end = master.store.appended_offset();
    let size = end / 3;
    played.set_progress("orders", 2);
    played.set_log_end(end + size);
    let slave = slave_of(&pair, &master, &played);
    slave.wait(end - 1, Some(Instant::now() + LONG)).unwrap();
    wait_for_answer(&played, &slave);
    assert_eq!((progress(&pair, "orders"), slave.settings().taken_at), (None, None));
    // Newer answers are about more of the log, and the oldest one is taken first.
    played.set_progress("orders", 3);
    played.set_log_end(end + 100 * size);
    wait_for_answer(&played, &slave);
    master.append(1);
    wait_until(|| progress(&pair, "orders") == Some(2));
    wait_for_answer(&played, &slave);
    assert_eq!(progress(&pair, "orders"), Some(2));
    slave.close().unwrap();
}

#[test]
fn settings_wait_until_the_log_of_a_master_that_comes_back_is_compared() {
    let pair = Pair::new();
    let played = PlayedBroker::start();
    let master = pair.master("master", asynchronous());
    let asked = SlaveOptions {
        broker: Some(played.address.to_string()),
        ..pair.options()
    };
    let slave = pair.slave_from_the_start(&master, asked);
    master.append(0..3);
    slave.wait(master.end() - 1, Some(Instant::now() + LONG)).unwrap();
    master.close();
    wait_until(|| slave.status().error.is_some());
    played.set_progress("orders", 3);
    wait_for_rounds(&played);
    assert_eq!(progress(&pair, "orders"), None);
    let master = pair.master("master", asynchronous());
    wait_until(|| progress(&pair, "orders") == Some(3));
    slave.close().unwrap();
    master.close();
}

#[test]
fn settings_of_another_log_are_not_taken() {
    let pair = Pair::new();
    let (master, other) = (Node::open(&pair, "master"), Node::open(&pair, "other"));
    // The other log has as many bytes, and the same queue.
    master.append(9);
    for _ in 0..9 {
        other.store.append(message(&[b'x'; 700])).unwrap();
    }
    assert_eq!(master.store.appended_offset(), other.store.appended_offset());
    other.commit("billing", 5);
    let slave = pair.slave(SlaveOptions {
        broker: Some(other.settings_address().to_string()),
        ..master.options()
    });
    wait_until(|| {
        let error = slave.settings().error;
        error.is_some_and(|error| error.to_string().contains("are of another log"))
    });
    assert_eq!((progress(&pair, "orders"), slave.settings().taken_at), (None, None));
    slave.close().unwrap();
    other.close();
    master.close();
}

#[test]
fn a_broker_that_does_not_say_where_its_log_ends_is_an_error() {
    let pair = Pair::new();
    let master = Node::open(&pair, "master");
    let played = PlayedBroker::start();
    played.refuse(RUNTIME_INFO);
    played.set_progress("orders", 2);
    let slave = slave_of(&pair, &master, &played);
    master.append(2);
    slave
        .wait(master.store.appended_offset() - 1, Some(Instant::now() + LONG))
        .unwrap();
    wait_until(|| {
        let error = slave.settings().error;
        error.is_some_and(|error| error.to_string().contains("request 28 was answered with 3"))
    });
    wait_for_rounds(&played);
    assert_eq!(progress(&pair, "orders"), None);
    played.set_log_end(0);
    wait_until(|| progress(&pair, "orders") == Some(2) && slave.settings().error.is_none());
    slave.close().unwrap();
}

/// Writes a byte each 20 ms until the peer ends the connection, and returns after how long it did.
fn drip(mut stream: &TcpStream, bytes: &[u8]) -> Duration {
    let begun = Instant::now();
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    for byte in bytes {
        let is_over = matches!(stream.read(&mut [0; 1]), Ok(0)) || stream.write_all(&[*byte]).is_err();
        if is_over {
            break;
        }
    }
    begun.elapsed()
}

#[test]
fn a_request_that_drips_ends_its_connection() {
    let pair = Pair::new();
    let master = Node::open(&pair, "master");
    let stream = TcpStream::connect(master.settings_address()).unwrap();
    // Longer than the time of a frame: that begins with the first byte.
    thread::sleep(2 * TIMES.frame);
    let lasted = drip(&stream, &frame(1000, 0, 900, &[b' '; 996]));
    assert!((TIMES.frame..LONG / 4).contains(&lasted), "{lasted:?}");
    assert_eq!(master.ask(201).code, 0);
    master.close();
}

#[test]
fn an_answer_that_drips_is_an_error_and_the_next_one_is_awaited() {
    let pair = Pair::new();
    let master = Node::open(&pair, "master");
    let dripping = TcpListener::bind("127.0.0.1:0").unwrap();
    let asked = SlaveOptions {
        broker: Some(dripping.local_addr().unwrap().to_string()),
        timing: Timing {
            settings_answer: Duration::from_millis(200),
            ..TIMING
        },
        ..master.options()
    };
    let slave = pair.slave(asked);
    for _ in 0..2 {
        let (stream, _) = dripping.accept().unwrap();
        RemotingCommand::read(&mut &stream, 1 << 20).unwrap();
        let lasted = drip(&stream, &frame(1000, 0, 900, &[b' '; 996]));
        assert!(lasted < LONG / 4, "{lasted:?}");
        wait_until(|| {
            slave
                .settings()
                .error
                .is_some_and(|error| error.to_string().contains("in time"))
        });
    }
    slave.close().unwrap();
    master.close();
}

#[test]
fn entries_of_a_slave_that_its_master_does_not_name_stay() {
    let pair = Pair::new();
    let master = Node::open(&pair, "master");
    let played = PlayedBroker::start();
    let slave = slave_of(&pair, &master, &played);
    master.append(1);
    let topics = |queues: i32| json!({ "dataVersion": { "counter": queues }, "topicConfigTable": { "a": { "topicName": "a", "perm": 6, "readQueueNums": queues } } });
    played.set(TOPICS, &topics(4));
    played.set(
        GROUPS,
        &json!({ "subscriptionGroupTable": { "billing": { "groupName": "billing", "retryMaxTimes": 3 } } }),
    );
    let taken = |file| settings(&pair, "slave", file);
    wait_until(|| taken("subscriptionGroup.json")["subscriptionGroupTable"]["billing"]["retryMaxTimes"] == 3);
    wait_until(|| taken("topics.json") == topics(4));
    played.set(TOPICS, &json!({ "topicConfigTable": { "b": { "topicName": "b" } } }));
    played.set(GROUPS, &json!({ "subscriptionGroupTable": {} }));
    wait_until(|| taken("topics.json")["topicConfigTable"]["b"].is_object());
    assert_eq!(taken("topics.json")["topicConfigTable"]["a"]["readQueueNums"], 4);
    assert!(taken("subscriptionGroup.json")["subscriptionGroupTable"]["billing"].is_object());
    // Written only if something changes.
    let written = fs::metadata(pair.at("slave").join("config/topics.json"))
        .unwrap()
        .modified()
        .unwrap();
    wait_for_answer(&played, &slave);
    assert_eq!(
        fs::metadata(pair.at("slave").join("config/topics.json"))
            .unwrap()
            .modified()
            .unwrap(),
        written
    );
    slave.close().unwrap();
}

#[test]
fn a_damaged_settings_file_of_a_slave_stays_and_the_others_are_taken() {
    let pair = Pair::new();
    let master = Node::open(&pair, "master");
    let played = PlayedBroker::start();
    let slave = slave_of(&pair, &master, &played);
    master.append(2);
    wait_until(|| slave.settings().taken_at.is_some());
    let damaged = pair.at("slave").join("config/topics.json");
    fs::write(&damaged, b"{\"topicConfigTable\":").unwrap();
    let _ = fs::remove_file(pair.at("slave").join("config/topics.json.bak"));
    played.set(TOPICS, &json!({ "topicConfigTable": { "b": { "topicName": "b" } } }));
    played.set_progress("orders", 2);
    wait_until(|| progress(&pair, "orders") == Some(2));
    wait_until(|| {
        slave
            .settings()
            .error
            .is_some_and(|error| error.to_string().contains("topics.json"))
    });
    assert_eq!(fs::read(&damaged).unwrap(), b"{\"topicConfigTable\":");
    slave.close().unwrap();
}

#[test]
fn log_continues_without_settings_and_close_waits_for_no_answer() {
    let pair = Pair::new();
    let master = Node::open(&pair, "master");
    // It accepts, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let asked = SlaveOptions {
        broker: Some(silent.local_addr().unwrap().to_string()),
        ..master.options()
    };
    let slave = pair.slave(asked);
    wait_until(|| master.store.replicas().connected().len() == 1);
    master.append(3);
    slave
        .wait(master.store.appended_offset() - 1, Some(Instant::now() + LONG))
        .unwrap();
    wait_until(|| slave.settings().error.is_some());
    assert!(slave.status().error.is_none());
    let begun = Instant::now();
    slave.close().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_broker_that_answers_nonsense_changes_no_setting() {
    let pair = Pair::new();
    let master = Node::open(&pair, "master");
    let played = PlayedBroker::start();
    let slave = slave_of(&pair, &master, &played);
    master.append(2);
    wait_until(|| slave.settings().taken_at.is_some());
    played.set_progress("orders", 1);
    wait_until(|| progress(&pair, "orders") == Some(1));
    for (code, body) in [
        (TOPICS, "no json"),
        (TOPICS, "{\"topicConfigTable\":{\"a\":3}}"),
        (CONSUMER_OFFSETS, "{\"offsetTable\":{\"orders@billing\":{0:\"x\"}}}"),
        (DELAY_OFFSETS, "[1]"),
    ] {
        played.set_text(code, body);
        let stated = format!("the answer to request {code}");
        wait_until(|| {
            slave
                .settings()
                .error
                .is_some_and(|error| error.to_string().contains(&stated))
        });
        assert_eq!(progress(&pair, "orders"), Some(1));
        played.set(code, &json!({}));
        wait_until(|| slave.settings().error.is_none());
    }
    slave.close().unwrap();
}

#[test]
fn a_master_answers_what_is_on_disk_and_no_other_request() {
    let pair = Pair::new();
    let master = Node::open(&pair, "master");
    master.append(3);
    let consumer = master
        .broker
        .consumer(Some("billing"), subscription(), &Start::Earliest)
        .unwrap();
    assert_eq!(consumer.poll(10, Some(Instant::now() + LONG)).unwrap().len(), 3);
    consumer.ack((0..2).map(|offset| ("orders", 0, offset))).unwrap();
    let body = |answer: &RemotingCommand| -> Value { serde_json::from_slice(&answer.body).unwrap() };
    // It is in memory only: the start of the group is on disk.
    assert_eq!(body(&master.ask(43))["offsetTable"], json!({ "orders@billing": { "0": 0 } }));
    consumer.commit().unwrap();
    let answer = master.ask(43);
    assert_eq!(body(&answer)["offsetTable"], json!({ "orders@billing": { "0": 2 } }));
    let flushed = master.store.flushed_offset().to_string();
    assert_eq!(answer.ext_fields["mqstoreLogEnd"], flushed);
    // Also those of topics that no consumer has persisted.
    let other = Message {
        topic: "other".into(),
        ..message(b"x")
    };
    master.store.append(other).unwrap();
    assert_eq!(body(&master.ask(21))["topicConfigTable"]["other"]["readQueueNums"], 1);
    assert!(body(&master.ask(201))["subscriptionGroupTable"]["billing"].is_object());
    let delays = body(&master.ask(45));
    assert!(delays["offsetTable"].is_object() && delays["dataVersion"]["counter"] == 0);
    let refused = master.ask(105);
    assert_eq!((refused.code, refused.body.len()), (3, 0));
    assert!(refused.remark.unwrap().contains("105 not supported"));
    // A damaged file is an error of the answer.
    fs::write(pair.at("master").join("config/consumerOffset.json"), b"{").unwrap();
    let _ = fs::remove_file(pair.at("master").join("config/consumerOffset.json.bak"));
    let damaged = master.ask(43);
    assert_eq!(damaged.code, 1);
    assert!(damaged.remark.unwrap().contains("consumerOffset.json"));
    // At the second port, too.
    let address = master.settings_address();
    assert_eq!(ask(SocketAddr::new(address.ip(), address.port() - 2), 201).code, 0);
    drop(consumer);
    master.close();
    assert!(TcpStream::connect(address).is_err());
}

/// A frame of these parts.
fn frame(len: u32, serialization: u8, header_len: u32, rest: &[u8]) -> Vec<u8> {
    let word = u32::from(serialization) << 24 | header_len;
    [&len.to_be_bytes(), &word.to_be_bytes(), rest].concat()
}

#[test]
fn bytes_that_are_no_request_end_the_connection_with_a_reason() {
    let pair = Pair::new();
    let master = Node::open(&pair, "master");
    let answer = RemotingCommand::request(21, 1).answer(0, None).encode().unwrap();
    for (forged, reason) in [
        (frame(u32::MAX, 0, 2, b"{}"), "no remoting frame"),
        (frame(0, 0, 0, b""), "no remoting frame"),
        (frame(8, 0, 5, b"{}{}"), "no remoting frame"),
        (frame(1 << 17, 0, 2, b"{}"), "no remoting frame"),
        (frame(6, 1, 2, b"{}"), "serialization 1"),
        (frame(6, 0, 2, b"{}"), "not that of a remoting frame"),
        (frame(6, 0, 2, b"[]"), "not that of a remoting frame"),
        (frame(16, 0, 12, b"{\"code\":\"x\"}"), "not that of a remoting frame"),
        (answer, "nobody has asked for"),
    ] {
        let known = master.store.replicas().refused().len();
        let mut stream = TcpStream::connect(master.settings_address()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(&forged).unwrap();
        // The end, also by a reset for what was not read.
        assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0, "{reason}");
        wait_until(|| master.store.replicas().refused().len() > known);
        let refused = master.store.replicas().refused();
        assert!(refused.last().unwrap().reason.contains(reason), "{refused:?}");
    }
    // A request without an answer, and a part of one, are no damage.
    let mut one_way = RemotingCommand::request(21, 1);
    one_way.flag = 2;
    let mut stream = TcpStream::connect(master.settings_address()).unwrap();
    stream.write_all(&one_way.encode().unwrap()).unwrap();
    stream.write_all(&[0, 0]).unwrap();
    drop(stream);
    assert_eq!(master.ask(201).code, 0);
    assert_eq!(master.store.replicas().refused().len(), 9);
    master.close();
}

#[test]
fn a_frame_is_read_as_it_was_written_and_each_cut_of_it_is_noticed() {
    let mut command = RemotingCommand::request(43, 17).answer(1, Some("a \"reason\"".to_owned()));
    command.ext_fields.insert("mqstoreLogEnd".to_owned(), "123".to_owned());
    command.body = b"body".to_vec();
    let bytes = command.encode().unwrap();
    let read = |bytes: &[u8]| RemotingCommand::read(&mut Cursor::new(bytes), 1 << 20);
    assert_eq!(read(&bytes).unwrap(), Some(command.clone()));
    assert_eq!(read(b"").unwrap(), None);
    for len in 1..bytes.len() {
        assert!(read(&bytes[..len]).is_err(), "{len}");
    }
    assert!(RemotingCommand::read(&mut Cursor::new(&bytes), 10).is_err());
    // As a broker writes a header.
    let header =
        br#"{"code":0,"extFields":{"n":5},"flag":1,"language":"JAVA","opaque":4,"serializeTypeCurrentRPC":"JSON","version":479}"#;
    let len = 4 + header.len() as u32;
    let theirs = read(&frame(len, 0, header.len() as u32, header)).unwrap().unwrap();
    assert_eq!((theirs.code, theirs.opaque, theirs.is_answer()), (0, 4, true));
    assert_eq!(theirs.ext_fields["n"], "5");
    command.body = vec![0; 16 << 20];
    assert!(command.encode().is_err());
}

#[test]
fn settings_of_a_master_are_taken_while_its_log_grows() {
    let pair = Pair::new();
    let master = Node::open(&pair, "master");
    let slave = pair.slave(master.options());
    wait_until(|| master.store.replicas().connected().len() == 1);
    thread::scope(|scope| {
        let appending = scope.spawn(|| {
            for _ in 0..40 {
                master.append(20);
                thread::sleep(Duration::from_millis(2));
            }
        });
        wait_until(|| master.store.appended_offset() > 0);
        for next in 1..10 {
            master.commit("billing", next);
        }
        appending.join().unwrap();
    });
    wait_until(|| progress(&pair, "orders") == Some(9));
    slave.close().unwrap();
    master.close();
}
