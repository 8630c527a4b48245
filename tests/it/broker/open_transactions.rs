//! The open transactions of a store that is only read: those that the writer finds, and what may be wrong with the answer.

use std::path::Path;
use std::sync::Arc;

use mqstore::broker::{OpenHalves, TransactionEnd, UnreadEnds, open_transactions};
use mqstore::config::StoreConfig;
use mqstore::format::{HALF_TOPIC, OP_TOPIC};
use mqstore::read::{MessageReader, StoredMessage};
use mqstore::storage::{Env, RealEnv};

use super::delay::{SEGMENT, STORE, Stepped, config};
use super::directory;
use super::transactions::{CONSUMER_OFFSET, ask, bodies_of, checker, commit_of_a_broker, damage, paid};
use crate::simulated_env::SimulatedEnv;

/// The half messages that a reader finds open, in the order in which they were stored.
fn found_by_a_reader(env: &SimulatedEnv) -> OpenHalves {
    let reader = MessageReader::open(&env.copy().shared(), Path::new(STORE), config());
    open_transactions(&Arc::new(reader.unwrap()), None).unwrap().content
}

#[test]
fn a_reader_finds_a_commit_without_its_op_message_as_the_writer_does() {
    let open = Stepped::new();
    let halves = ["a", "b", "c"].map(|body| open.half(body));
    open.roll_back(halves[2]).unwrap();
    commit_of_a_broker(&open, halves[1]);
    let killed = open.env.kill();
    let found = found_by_a_reader(&killed);
    assert_eq!((bodies_of(&found), found.is_complete()), (vec!["a".to_owned()], true));
    let open = Stepped::open(killed, config()).unwrap();
    assert_eq!(open.open_bodies(), ["a"]);
    // The reader of the process that writes has its answer.
    let own = open_transactions(open.store.reader(), Some(open.transactions())).unwrap();
    assert_eq!(bodies_of(&own.content), ["a"]);
}

#[test]
fn a_reader_counts_the_questions_of_a_writer() {
    let mut open = Stepped::new();
    open.half("a");
    let mut first = checker(&open);
    open.pass(6000);
    assert_eq!(ask(&open, &mut first), ["a"]);
    open.keep();
    open.close();
    let found = found_by_a_reader(&open.env);
    assert_eq!(found.halves.iter().map(|half| half.checks).collect::<Vec<_>>(), [1]);
}

#[test]
fn damage_that_may_hide_an_end_makes_the_open_transactions_incomplete() {
    let open = Stepped::new();
    let halves = ["a", "b", "c"].map(|body| open.half(body));
    open.roll_back(halves[1]).unwrap();
    // An open does not read the first segment again.
    for _ in 0..40 {
        open.store.append(paid(&"x".repeat(1000))).unwrap();
    }
    let log = open.log();
    open.close();
    // Without the mark the log is read from the first half message on.
    open.env.put(Path::new(CONSUMER_OFFSET), b"{}");
    let unread = |ops, stretches| UnreadEnds {
        ops,
        stretches,
        ..UnreadEnds::default()
    };
    let cases = [
        ("no", vec!["a", "c"], 0, unread(0, 0)),
        (HALF_TOPIC, vec!["c"], 1, unread(0, 1)),
        (OP_TOPIC, vec!["a", "b", "c"], 0, unread(1, 1)),
        ("orders", vec!["a", "c"], 0, unread(0, 1)),
    ];
    for (topic, bodies, passed_over, unread) in cases {
        let env = open.env.copy();
        let first = log.iter().map(StoredMessage::view).find(|view| view.has_topic(topic));
        if let Some(magic_code) = first.map(|view| view.physical_offset() + 4) {
            damage(&env, magic_code..magic_code + 4);
        }
        let found = found_by_a_reader(&env);
        assert_eq!(bodies_of(&found), bodies);
        assert_eq!((found.passed_over, &found.unread), (passed_over, &unread));
        assert_eq!(found.is_complete(), topic == "no");
        assert_eq!(found.doubts().is_empty(), found.is_complete());
    }
}

#[test]
fn a_lost_queue_of_half_or_op_messages_is_named() {
    let (_dir, path) = directory();
    let open = super::Open::with_segments(&path, SEGMENT);
    let transactions = open.broker.transactions().unwrap().clone();
    let halves = ["a", "b"].map(|body| transactions.send_half(paid(body), "tellers", None).unwrap().appended);
    transactions
        .end(halves[0].physical_offset, TransactionEnd::Rollback, None)
        .unwrap();
    for _ in 0..40 {
        open.store.append(paid(&"x".repeat(1000))).unwrap();
    }
    open.close();
    // An open makes the queues again that our own stamp counts.
    std::fs::remove_file(path.join("checkpoint")).unwrap();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let lost = || {
        let reader = MessageReader::open(&env, &path, StoreConfig::default());
        let found = open_transactions(&Arc::new(reader.unwrap()), None).unwrap().content;
        (found.unread.queues.clone(), found.is_complete())
    };
    assert_eq!(lost(), (vec![], true));
    for (topic, named) in [(OP_TOPIC, vec![OP_TOPIC]), (HALF_TOPIC, vec![HALF_TOPIC, OP_TOPIC])] {
        std::fs::remove_dir_all(path.join("consumequeue").join(topic)).unwrap();
        assert_eq!(lost(), (named, false));
    }
}
