//! Transactions: ended once, checked, and handed over to a broker and back.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use mqstore::broker::{CheckRules, NeededBy, OpenHalves, Start, TransactionChecker, TransactionEnd, Transactions};
use mqstore::error::{Error, TransactionOutcome};
use mqstore::format::{COMMIT, GIVEN_UP_TOPIC, HALF_TOPIC, Message, MessageType, OP_TOPIC, property};
use mqstore::read::StoredMessage;
use mqstore::store::TrimTo;
use serde_json::{Value, json};

use super::delay::{SEGMENT, Stepped, config};
use super::{Settings, ack, directory, subscription};
use crate::simulated_env::{Failure, Fault, SimulatedEnv};
use crate::writing::with;

pub(super) const CONSUMER_OFFSET: &str = "/data/store/config/consumerOffset.json";
const HALF_PROGRESS: &str = "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS";
const OP_PROGRESS: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS";

pub(super) fn paid(body: &str) -> Message<'static> {
    Message {
        topic: "orders".into(),
        queue_id: 2,
        body: body.as_bytes().to_vec().into(),
        ..Message::default()
    }
}

impl Stepped {
    pub(super) fn transactions(&self) -> &Arc<Transactions> {
        self.broker.transactions().unwrap()
    }

    /// Appends a half message, and returns its physical offset.
    pub(super) fn half(&self, body: &str) -> i64 {
        let sent = self.transactions().send_half(paid(body), "tellers", Some(false));
        sent.unwrap().appended.physical_offset
    }

    fn commit(&self, half: i64) -> Result<i64, Error> {
        let ended = self.transactions().end(half, TransactionEnd::Commit, Some(false))?;
        Ok(ended.unwrap().appended.physical_offset)
    }

    pub(super) fn roll_back(&self, half: i64) -> Result<(), Error> {
        self.transactions().end(half, TransactionEnd::Rollback, Some(false)).map(drop)
    }

    /// The bodies of the messages of a topic, in order.
    fn bodies(&self, topic: &str) -> Vec<String> {
        let log = self.log();
        let of_topic = log.iter().map(StoredMessage::view).filter(|view| view.has_topic(topic));
        of_topic
            .map(|view| String::from_utf8_lossy(view.body()).into_owned())
            .collect()
    }

    /// Kills the process after a broker was started on the store.
    fn killed_after_a_broker(self) -> Self {
        let killed = self.env.kill();
        killed.put(Path::new("/data/store/lock"), b"lock");
        Self::open(killed, config()).unwrap()
    }

    pub(super) fn open_bodies(&self) -> Vec<String> {
        self.dispatch();
        bodies_of(&self.transactions().open().unwrap())
    }
}

pub(super) fn bodies_of(open: &OpenHalves) -> Vec<String> {
    let body = |message: &StoredMessage| String::from_utf8_lossy(message.view().body()).into_owned();
    open.halves.iter().map(|half| body(&half.message)).collect()
}

/// The file with the progress, if there is one and it is not damaged.
pub(super) fn progress_file(env: &SimulatedEnv) -> Option<Value> {
    let files = env.files(Path::new("/data/store/config"));
    let found = files.into_iter().find(|(path, _)| path == Path::new(CONSUMER_OFFSET));
    found.and_then(|(_, bytes)| serde_json::from_slice(&bytes).ok())
}

fn refused(result: Result<i64, Error>) -> String {
    match result {
        Err(Error::Invalid { what }) => what,
        other => panic!("{other:?}"),
    }
}

/// Returns the outcome with which a second end of a half message is refused.
fn refused_as(half: i64, result: Result<i64, Error>) -> TransactionOutcome {
    match result {
        Err(Error::TransactionEnded { half: named, outcome }) if named == half => outcome,
        other => panic!("{other:?}"),
    }
}

/// Flips bits in a part of the only segment of the log.
pub(super) fn damage(env: &SimulatedEnv, bytes: Range<i64>) {
    let log = Path::new("/data/store/commitlog/00000000000000000000");
    let (_, mut segment) = env
        .files(log.parent().unwrap())
        .into_iter()
        .find(|(path, _)| path == log)
        .unwrap();
    let bytes = usize::try_from(bytes.start).unwrap()..usize::try_from(bytes.end).unwrap();
    segment[bytes].iter_mut().for_each(|byte| *byte ^= 0x55);
    env.put(log, &segment);
}

/// Returns the bytes of the body of a message of a topic, by its number among these.
fn body_of(open: &Stepped, topic: &str, number: usize) -> Range<i64> {
    let log = open.log();
    let message = log
        .iter()
        .filter(|message| message.view().has_topic(topic))
        .nth(number)
        .unwrap();
    let (view, len) = (message.view(), message.view().body().len() as i64);
    let at = view
        .bytes()
        .windows(view.body().len())
        .rposition(|bytes| bytes == view.body())
        .unwrap();
    let start = view.physical_offset() + at as i64;
    start..start + len
}

pub(super) fn checker(open: &Stepped) -> TransactionChecker {
    TransactionChecker::new(open.transactions().clone(), CheckRules::default())
}

/// Asks at the time of the machine, and returns the bodies of the half messages that are asked about.
pub(super) fn ask(open: &Stepped, checker: &mut TransactionChecker) -> Vec<String> {
    open.dispatch();
    let (halves, _) = checker.take_due(open.env.now()).unwrap();
    bodies_of(&OpenHalves {
        halves,
        ..OpenHalves::default()
    })
}

#[test]
fn a_committed_message_is_seen_once_and_a_rolled_back_one_never() {
    let open = Stepped::new();
    let (a, b) = (open.half("a"), open.half("b"));
    open.dispatch();
    assert_eq!(
        (open.bodies("orders"), open.open_bodies()),
        (vec![], vec!["a".into(), "b".into()])
    );
    open.commit(a).unwrap();
    open.roll_back(b).unwrap();
    let open = open.reopened(config());
    assert_eq!((open.bodies("orders"), open.open_bodies()), (vec!["a".into()], vec![]));
    assert_eq!(open.bodies(OP_TOPIC), ["0", "1"]);
}

#[test]
fn the_records_of_a_transaction_are_those_of_rocketmq_4_9() {
    let open = Stepped::new();
    let sent = Message {
        flag: 7,
        born_time: 12,
        ..with(paid("a"), &[("KEYS", "k"), ("UNIQ_KEY", "u")])
    };
    let half = open.transactions().send_half(sent, "tellers", Some(false)).unwrap();
    open.commit(half.appended.physical_offset).unwrap();
    let log = open.log();
    let [half, committed, op] = log.iter().map(StoredMessage::view).collect::<Vec<_>>()[..] else {
        panic!("{} messages", log.len());
    };
    let properties = "KEYS\u{1}k\u{2}UNIQ_KEY\u{1}u\u{2}PGROUP\u{1}tellers\u{2}TRAN_MSG\u{1}true\u{2}REAL_TOPIC\u{1}orders\u{2}\
                      REAL_QID\u{1}2\u{2}";
    assert_eq!(half.properties().text(), properties);
    assert_eq!((&*half.topic(), half.queue_id(), half.sys_flag()), (HALF_TOPIC, 0, 0));
    let expected = Message {
        topic: "orders".into(),
        queue_id: 2,
        queue_offset: 0,
        physical_offset: half.end(),
        sys_flag: COMMIT,
        prepared_transaction_offset: half.physical_offset(),
        ..half.to_message()
    };
    assert_eq!(committed.bytes(), expected.encode().unwrap());
    assert_eq!(
        (&*op.topic(), op.queue_id(), op.sys_flag(), op.body()),
        (OP_TOPIC, 0, 0, &b"0"[..])
    );
    assert_eq!(op.properties().text(), "WAIT\u{1}true\u{2}TAGS\u{1}d\u{2}");
}

/// RocketMQ #10199: a half message that is committed twice is there twice.
#[test]
fn a_second_end_of_a_half_message_is_refused_with_the_outcome() {
    let mut open = Stepped::new();
    let (a, b) = (open.half("a"), open.half("b"));
    let committed = open.commit(a).unwrap();
    open.roll_back(b).unwrap();
    let outcome = TransactionOutcome::Committed(committed);
    assert_eq!(refused_as(a, open.commit(a)), outcome);
    assert_eq!(refused_as(a, open.roll_back(a).map(|()| 0)), outcome);
    assert_eq!(refused_as(b, open.commit(b)), TransactionOutcome::RolledBack);
    let text = open.commit(b).unwrap_err().to_string();
    assert_eq!(
        text,
        format!("the transaction of the half message at physical offset {b} was rolled back")
    );
    open = open.killed();
    for half in [a, b] {
        assert_eq!(refused_as(half, open.commit(half)), TransactionOutcome::Ended);
    }
    assert_eq!(open.bodies("orders"), ["a"]);
}

#[test]
fn two_threads_that_end_a_half_message_at_once_end_it_once() {
    let place = Settings::new();
    let open = place.open();
    let transactions = open.broker.transactions().unwrap().clone();
    for _ in 0..50 {
        let half = transactions
            .send_half(paid("a"), "tellers", None)
            .unwrap()
            .appended
            .physical_offset;
        let start = Arc::new(Barrier::new(2));
        let end = |how| {
            let (transactions, start) = (transactions.clone(), start.clone());
            thread::spawn(move || {
                start.wait();
                transactions.end(half, how, None).is_ok()
            })
        };
        let (commit, rollback) = (end(TransactionEnd::Commit), end(TransactionEnd::Rollback));
        assert!(commit.join().unwrap() != rollback.join().unwrap());
    }
    open.close();
}

#[test]
fn what_is_no_half_message_cannot_be_ended() {
    let open = Stepped::new();
    let plain = open.store.append(paid("plain")).unwrap().appended.physical_offset;
    let half = open.half("a");
    assert!(refused(open.commit(plain)).contains("no half message"));
    for nowhere in [half + 1, open.store.appended_offset(), 1 << 40, -1] {
        assert!(matches!(open.commit(nowhere), Err(Error::NotFound { .. })), "{nowhere}");
    }
    assert_eq!(open.open_bodies(), ["a"]);
}

#[test]
fn a_delayed_half_message_and_one_for_a_topic_of_the_broker_are_refused() {
    let open = Stepped::new();
    let send = |message| open.transactions().send_half(message, "tellers", None);
    for name in [
        property::DELAY,
        property::TIMER_DELIVER_MS,
        property::TIMER_DELAY_SEC,
        property::TIMER_DELAY_MS,
    ] {
        let sent = send(with(paid("a"), &[(name, "3")]));
        assert!(matches!(sent, Err(Error::IllegalMessage { .. })), "{name}: {sent:?}");
    }
    for topic in [HALF_TOPIC, OP_TOPIC, "SCHEDULE_TOPIC_XXXX", "a/b", ""] {
        let mut message = paid("a");
        message.topic = topic.into();
        assert!(matches!(send(message), Err(Error::IllegalMessage { .. })), "{topic}");
    }
    let committed = Message {
        sys_flag: COMMIT,
        ..paid("a")
    };
    assert!(matches!(send(committed), Err(Error::IllegalMessage { .. })));
    assert_eq!(open.log().len(), 0);
}

#[test]
fn a_half_message_follows_the_settings_of_the_topic_that_it_names() {
    let open = Stepped::new();
    let settings = |message_type| mqstore::broker::TopicSettings {
        queues: 3,
        perm: 6,
        order: false,
        message_type: Some(message_type),
    };
    let send = |queue_id| {
        let message = Message { queue_id, ..paid("a") };
        open.transactions().send_half(message, "tellers", None)
    };
    open.broker
        .topics()
        .create("orders", &settings(MessageType::Transaction))
        .unwrap();
    let half = send(2).unwrap().appended.physical_offset;
    assert!(matches!(send(3), Err(Error::IllegalMessage { .. })));
    open.broker.topics().create("orders", &settings(MessageType::Normal)).unwrap();
    assert!(matches!(send(2), Err(Error::IllegalMessage { .. })));
    // What was promised to a producer is kept.
    open.commit(half).unwrap();
}

/// Commits a half message whose copy fills the segment of the log, while the next one cannot be made. Returns the half message.
fn commit_on_a_disk_without_space_for_an_op_message(open: &Stepped) -> i64 {
    let half = open.half(&"x".repeat(2000));
    let filler = Message {
        topic: "plain".into(),
        ..Message::default()
    };
    let copy = SEGMENT as i64 - 2200;
    let rest = copy - open.store.appended_offset() - filler.encoded_len() as i64;
    let body = vec![b'x'; usize::try_from(rest).unwrap()];
    open.store
        .append(Message {
            body: body.into(),
            ..filler
        })
        .unwrap();
    open.env.set_fault(Some(Fault {
        failure: Failure::Full,
        number: 0,
        stays: true,
    }));
    open.commit(half).unwrap();
    assert_eq!((open.bodies("orders").len(), open.bodies(OP_TOPIC).len()), (1, 0));
    open.env.set_fault(None);
    half
}

#[test]
fn a_commit_whose_op_message_failed_is_settled_once() {
    for dies in [false, true] {
        let open = Stepped::new();
        let half = commit_on_a_disk_without_space_for_an_op_message(&open);
        let open = if dies { open.killed() } else { open.reopened(config()) };
        let outcome = refused_as(half, open.commit(half));
        assert!(
            matches!(outcome, TransactionOutcome::Committed(_) | TransactionOutcome::Ended),
            "{dies}: {outcome:?}"
        );
        assert_eq!(
            (open.bodies("orders").len(), open.bodies(OP_TOPIC)),
            (1, vec!["0".to_owned()])
        );
    }
}

#[test]
fn no_progress_passes_a_commit_whose_op_message_failed() {
    let open = Stepped::new();
    let half = commit_on_a_disk_without_space_for_an_op_message(&open);
    // A group persists its progress, and the transactions beside it.
    open.dispatch();
    let consumer = open
        .broker
        .consumer(Some("billing"), subscription(&["plain"]), &Start::Earliest);
    let consumer = consumer.unwrap();
    let filler = consumer.poll(1, Some(Instant::now())).unwrap();
    assert_eq!(ack(&consumer, &filler), 1);
    consumer.commit().unwrap();
    let kept = progress_file(&open.env).unwrap();
    assert_eq!(kept["offsetTable"]["plain@billing"], json!({"0": 1}));
    assert_eq!(kept["offsetTable"][HALF_PROGRESS]["0"].as_i64().unwrap_or(0), 0);
    let open = open.killed();
    let outcome = refused_as(half, open.commit(half));
    assert!(matches!(outcome, TransactionOutcome::Committed(_)), "{outcome:?}");
    assert_eq!(
        (open.bodies("orders").len(), open.bodies(OP_TOPIC)),
        (1, vec!["0".to_owned()])
    );
}

#[test]
fn a_commit_without_its_op_message_is_found_after_a_crash() {
    let open = Stepped::new();
    let halves = [open.half("a"), open.half("b")];
    commit_of_a_broker(&open, halves[1]);
    let open = open.killed();
    assert_eq!(open.open_bodies(), ["a"]);
    assert!(matches!(
        refused_as(halves[1], open.commit(halves[1])),
        TransactionOutcome::Committed(_)
    ));
    assert_eq!(
        (open.bodies(OP_TOPIC), open.bodies("orders")),
        (vec!["1".to_owned()], vec!["b".to_owned()])
    );
}

#[test]
fn progress_passes_ended_half_messages_and_a_broker_continues_there() {
    let mut open = Stepped::new();
    let halves: Vec<_> = ["a", "b", "c", "d"].map(|body| open.half(body)).into();
    open.commit(halves[0]).unwrap();
    open.roll_back(halves[1]).unwrap();
    open.commit(halves[3]).unwrap();
    open.keep();
    let table = progress_file(&open.env).unwrap()["offsetTable"].clone();
    assert_eq!(table, json!({HALF_PROGRESS: {"0": 2}, OP_PROGRESS: {"0": 2}}));
    open.commit(halves[2]).unwrap();
    open.close();
    let table = progress_file(&open.env).unwrap()["offsetTable"].clone();
    assert_eq!(table, json!({HALF_PROGRESS: {"0": 4}, OP_PROGRESS: {"0": 4}}));
}

#[test]
fn op_messages_of_4_9_and_5_x_and_the_progress_of_a_broker_are_read() {
    let open = Stepped::new();
    let halves = ["a", "b", "c", "d", "e"].map(|body| open.half(body));
    for body in ["1", "3,2,"] {
        let op = Message {
            topic: OP_TOPIC.into(),
            body: body.as_bytes().into(),
            ..Message::default()
        };
        open.store.append(with(op, &[("WAIT", "true"), ("TAGS", "d")])).unwrap();
    }
    let mut open = open.killed();
    assert_eq!(open.open_bodies(), ["a", "e"]);
    open.close();
    open.env.put(
        Path::new(CONSUMER_OFFSET),
        br#"{"offsetTable":{"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:1},"x@y":{0:3}}}"#,
    );
    open = Stepped::open(open.env.clone(), config()).unwrap();
    assert_eq!(open.open_bodies(), ["e"]);
    assert_eq!(refused_as(halves[0], open.commit(halves[0])), TransactionOutcome::Ended);
    open.commit(halves[4]).unwrap();
    open.close();
    let table = progress_file(&open.env).unwrap()["offsetTable"].clone();
    assert_eq!(
        table,
        json!({HALF_PROGRESS: {"0": 5}, OP_PROGRESS: {"0": 3}, "x@y": {"0": 3}})
    );
}

/// Appends a half message as a broker stores it: for the first time, or again for a question.
fn half_of_a_broker(open: &Stepped, unique_key: &str, checks: &str) -> i64 {
    let pairs = [
        ("UNIQ_KEY", unique_key),
        ("REAL_TOPIC", "orders"),
        ("REAL_QID", "2"),
        ("TRAN_MSG", "true"),
        ("PGROUP", "tellers"),
        ("TRANSACTION_CHECK_TIMES", checks),
    ];
    let pairs = if checks.is_empty() { &pairs[..5] } else { &pairs };
    let mut message = with(paid(unique_key), pairs);
    message.topic = HALF_TOPIC.into();
    message.queue_id = 0;
    open.store.append(message).unwrap().appended.physical_offset
}

#[test]
fn a_mark_from_before_the_session_of_a_broker_is_not_used() {
    let mut open = Stepped::new();
    let halves = ["a", "b"].map(|unique_key| half_of_a_broker(&open, unique_key, ""));
    open.store.flush().unwrap();
    open = open.killed();
    open.roll_back(open.half("c")).unwrap();
    open = open.reopened(config());
    let marked = progress_file(&open.env).unwrap();
    assert!(marked["mqstore"]["transactionsSettledEnd"].as_i64().unwrap() > halves[1]);
    // The broker asks about one and commits the other. It is killed before it lists the commit, and persists nothing.
    let again = half_of_a_broker(&open, "a", "1");
    commit_of_a_broker(&open, halves[1]);
    open.store.flush().unwrap();
    let open = open.killed_after_a_broker();
    assert_eq!(progress_file(&open.env).unwrap(), marked);
    let found = open.transactions().open().unwrap().halves;
    let found: Vec<_> = found
        .iter()
        .map(|half| (half.message.view().physical_offset(), half.checks))
        .collect();
    assert_eq!(found, [(again, 1)]);
    assert_eq!(refused_as(halves[0], open.commit(halves[0])), TransactionOutcome::StoredAgain);
    assert!(matches!(
        refused_as(halves[1], open.commit(halves[1])),
        TransactionOutcome::Committed(_)
    ));
    assert_eq!(
        (open.bodies("orders"), open.bodies(OP_TOPIC)),
        (vec!["b".to_owned()], vec!["2".to_owned(), "1".to_owned()])
    );
}

#[test]
fn a_mark_beyond_the_log_that_a_broker_had_is_not_used() {
    let open = Stepped::new();
    let halves = ["a", "b"].map(|body| open.half(body));
    open.store.flush().unwrap();
    let restored = open.env.copy();
    open.roll_back(open.half(&"c".repeat(1000))).unwrap();
    open.dispatch();
    let open = open.reopened(config());
    // A backup of the log is put beside newer settings, and a broker that commits is killed before it lists the commit.
    let (_, settings) = open
        .env
        .files(Path::new("/data/store/config"))
        .into_iter()
        .find(|(path, _)| path == Path::new(CONSUMER_OFFSET))
        .unwrap();
    restored.put(Path::new(CONSUMER_OFFSET), &settings);
    let open = Stepped::open(restored, config()).unwrap();
    commit_of_a_broker(&open, halves[1]);
    let marked = progress_file(&open.env).unwrap()["mqstore"]["transactionsSettledEnd"].as_i64();
    assert!(marked.unwrap() > open.store.appended_offset());
    open.store.flush().unwrap();
    let open = open.killed_after_a_broker();
    assert_eq!(open.open_bodies(), ["a"]);
    let outcome = refused_as(halves[1], open.commit(halves[1]));
    assert!(matches!(outcome, TransactionOutcome::Committed(_)), "{outcome:?}");
}

#[test]
fn a_commit_whose_op_message_is_damaged_is_not_repeated() {
    let mut open = Stepped::new();
    let halves = ["a", "b", "c"].map(|body| open.half(body));
    let committed = open.commit(halves[1]).unwrap();
    open.roll_back(halves[2]).unwrap();
    let ops = [0, 1].map(|number| body_of(&open, OP_TOPIC, number));
    // An open does not read the first segment again. The mark is past the commit.
    for _ in 0..40 {
        open.store.append(paid(&"x".repeat(1000))).unwrap();
    }
    // The close writes the mark only if the queue of half messages shows that a transaction is open.
    open.dispatch();
    open.close();
    assert!(open.env.files(Path::new(CONSUMER_OFFSET)).len() == 1, "no mark was written");
    for op in ops {
        damage(&open.env, op);
    }
    open = Stepped::open(open.env.clone(), config()).unwrap();
    let found = open.transactions().open().unwrap();
    // Nothing else shows the rollback, and the answer says so.
    assert_eq!(
        (bodies_of(&found), found.unread.ops),
        (vec!["a".to_owned(), "c".to_owned()], 2)
    );
    assert_eq!(
        refused_as(halves[1], open.commit(halves[1])),
        TransactionOutcome::Committed(committed)
    );
    assert_eq!(open.store.reader().queue_bounds("orders", 2).unwrap(), 0..41);
}

#[test]
fn a_damaged_half_message_is_counted_and_holds_the_log() {
    let mut open = Stepped::new();
    let halves = ["a", "b"].map(|body| open.half(body));
    let body = body_of(&open, HALF_TOPIC, 0);
    open.close();
    damage(&open.env, body);
    open = Stepped::open(open.env.clone(), config()).unwrap();
    let found = open.transactions().open().unwrap();
    assert_eq!((bodies_of(&found), found.passed_over), (vec!["b".to_owned()], 1));
    for end in [TransactionEnd::Commit, TransactionEnd::Rollback] {
        let ended = open.transactions().end(halves[0], end, Some(false));
        assert!(matches!(ended, Err(Error::Corrupt { .. })), "{ended:?}");
    }
    open.commit(halves[1]).unwrap();
    let holds = open.broker.holds().unwrap();
    let hold = holds.iter().find(|hold| hold.by == NeededBy::Transactions).unwrap();
    assert_eq!((hold.messages, hold.physical_offset), (1, halves[0]));
}

#[test]
fn a_half_message_that_a_broker_has_stored_again_counts_once() {
    let open = Stepped::new();
    let copies = ["", "1", "2"].map(|checks| half_of_a_broker(&open, "u", checks));
    open.store.flush().unwrap();
    open.close();
    // Without a mark nothing is known of what a broker has committed.
    let open = Stepped::open(open.env.clone(), config()).unwrap();
    let halves = open.transactions().open().unwrap().halves;
    assert_eq!((halves.len(), halves[0].checks), (1, 2));
    assert_eq!(refused_as(copies[0], open.commit(copies[0])), TransactionOutcome::StoredAgain);
    open.commit(copies[2]).unwrap();
    assert_eq!(open.open_bodies(), Vec::<String>::new());
}

/// Appends the message that commits a half message, as a broker that is killed before it lists the commit.
pub(super) fn commit_of_a_broker(open: &Stepped, half: i64) {
    let log = open.log();
    let half = log
        .iter()
        .map(StoredMessage::view)
        .find(|view| view.physical_offset() == half);
    let committed = Message {
        topic: "orders".into(),
        queue_id: 2,
        sys_flag: COMMIT,
        prepared_transaction_offset: half.unwrap().physical_offset(),
        ..half.unwrap().to_message()
    };
    open.store.append(committed).unwrap();
}

#[test]
fn a_half_message_stored_again_stays_so_beside_an_older_open_one() {
    let mut open = Stepped::new();
    half_of_a_broker(&open, "a", "");
    for checks in ["", "1"] {
        half_of_a_broker(&open, "u", checks);
    }
    open.store.flush().unwrap();
    open = open.killed();
    for _ in 0..2 {
        assert_eq!(open.open_bodies(), ["a", "u"]);
        open.roll_back(open.half("c")).unwrap();
        open = open.reopened(config());
    }
    assert!(progress_file(&open.env).unwrap()["mqstore"]["transactionsSettledEnd"].is_i64());
}

#[test]
fn a_commit_of_an_older_copy_of_a_half_message_ends_the_last_one() {
    let open = Stepped::new();
    let copies = ["", "1"].map(|checks| half_of_a_broker(&open, "u", checks));
    commit_of_a_broker(&open, copies[0]);
    open.store.flush().unwrap();
    let open = open.killed();
    assert_eq!(open.open_bodies(), Vec::<String>::new());
    let outcome = refused_as(copies[1], open.commit(copies[1]));
    assert!(matches!(outcome, TransactionOutcome::Committed(_)), "{outcome:?}");
    assert_eq!(open.bodies("orders"), ["u"]);
}

#[test]
fn a_half_message_is_asked_about_every_minute_and_given_up_after_15_times() {
    let mut open = Stepped::new();
    open.half("a");
    open.half("b");
    let mut checker = checker(&open);
    open.pass(5999);
    assert_eq!(ask(&open, &mut checker), Vec::<String>::new());
    open.pass(1);
    for times in 1..=15 {
        assert_eq!(ask(&open, &mut checker), ["a", "b"], "{times}");
        open.pass(59_999);
        assert_eq!(ask(&open, &mut checker), Vec::<String>::new());
        open.pass(1);
    }
    assert_eq!(ask(&open, &mut checker), Vec::<String>::new());
    assert_eq!(
        (open.bodies(GIVEN_UP_TOPIC), open.bodies(OP_TOPIC)),
        (vec!["a".into(), "b".into()], vec!["0".into(), "1".into()])
    );
    let log = open.log();
    let given_up = log
        .iter()
        .map(StoredMessage::view)
        .find(|view| view.has_topic(GIVEN_UP_TOPIC))
        .unwrap();
    assert_eq!(given_up.properties().get(property::TRANSACTION_CHECK_TIMES).unwrap(), "15");
    let half = given_up.prepared_transaction_offset();
    assert_eq!(refused_as(half, open.commit(half)), TransactionOutcome::GivenUp);
}

#[test]
fn questions_are_counted_across_a_reopen_and_only_in_a_check() {
    let mut open = Stepped::new();
    open.half("a");
    let mut first = checker(&open);
    open.pass(6000);
    assert_eq!(ask(&open, &mut first), ["a"]);
    let mut open = open.reopened(config());
    open.pass(1_000_000);
    open.keep();
    let halves = open.transactions().open().unwrap().halves;
    assert_eq!((halves.len(), halves[0].checks), (1, 1));
    assert_eq!(open.log().len(), 1);
}

#[test]
fn a_new_check_and_the_close_end_the_one_before() {
    let open = Stepped::new();
    let first = checker(&open);
    assert!(first.wait(Duration::ZERO));
    let second = checker(&open);
    assert!(!first.wait(Duration::from_secs(60)) && second.wait(Duration::ZERO));
    open.close();
    assert!(!second.wait(Duration::from_secs(60)));
}

#[test]
fn a_trim_keeps_the_half_messages_of_open_transactions_alone() {
    let (_dir, path) = directory();
    let open = super::Open::with_segments(&path, SEGMENT);
    let transactions = open.broker.transactions().unwrap().clone();
    let halves: Vec<_> = (0..60)
        .map(|_| {
            transactions
                .send_half(paid(&"x".repeat(1000)), "tellers", None)
                .unwrap()
                .appended
                .physical_offset
        })
        .collect();
    open.store.wait_dispatched(open.store.appended_offset() - 1, None).unwrap();
    let trim = || open.broker.trim(TrimTo::Offset(i64::MAX), false, false).unwrap();
    let report = trim();
    assert!(report.trimmed.segments.is_empty());
    let holds: Vec<_> = report
        .holds
        .iter()
        .map(|hold| (&hold.by, hold.messages, hold.physical_offset))
        .collect();
    assert_eq!(holds, [(&NeededBy::Transactions, 60, 0)]);
    for half in &halves[..50] {
        transactions.end(*half, TransactionEnd::Rollback, None).unwrap();
    }
    let report = trim();
    assert_eq!((report.holds[0].messages, report.holds[0].physical_offset), (10, halves[50]));
    assert!(!report.trimmed.segments.is_empty());
    let expired = transactions.end(halves[0], TransactionEnd::Commit, None);
    assert!(matches!(expired, Err(Error::NotFound { .. })), "{expired:?}");
    transactions.end(halves[50], TransactionEnd::Commit, None).unwrap();
    open.close();
}

#[test]
fn a_damaged_progress_file_refuses_ends_and_stays_as_it_is() {
    let place = Settings::with("consumerOffset.json", "{");
    let open = place.open();
    let transactions = open.broker.transactions().unwrap().clone();
    let half = transactions
        .send_half(paid("a"), "tellers", None)
        .unwrap()
        .appended
        .physical_offset;
    let ended = transactions.end(half, TransactionEnd::Commit, None);
    assert!(matches!(ended, Err(Error::Corrupt { .. })), "{ended:?}");
    assert!(matches!(transactions.open(), Err(Error::Corrupt { .. })));
    drop(open.broker.close());
    open.store.close().unwrap();
    assert_eq!(std::fs::read(place.file("consumerOffset.json")).unwrap(), b"{");
}

#[test]
fn a_retry_of_another_transaction_does_not_commit_the_first_half_message() {
    let open = Stepped::new();
    let halves = ["a", "a"].map(|body| open.half(body));
    open.commit(halves[1]).unwrap();
    let log = open.log();
    let copy = log.iter().map(StoredMessage::view).find(|view| view.has_topic("orders"));
    let retry = Message {
        topic: "%RETRY%billing".into(),
        queue_id: 0,
        reconsume_times: 1,
        prepared_transaction_offset: 0,
        ..copy.unwrap().to_message()
    };
    open.store.append(retry).unwrap();
    open.store.flush().unwrap();
    assert_eq!((halves[0], open.killed().open_bodies()), (0, vec!["a".to_owned()]));
}
