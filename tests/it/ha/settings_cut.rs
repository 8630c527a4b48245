//! Progress on a slave whose log is cut.

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use mqstore::broker::{BrokerController, Start};
use mqstore::config::StoreConfig;
use mqstore::format::{Message, TimerCheck, TimerProgress, encode_properties};
use mqstore::ha::SlaveOptions;
use mqstore::store::{MessageStore, OpenMode};
use serde_json::{Value, json};

use super::settings::{Node, progress, settings, slave_of, subscription, wait_for_answer};
use super::slave::{Pair, copy_dir, env};
use super::{LONG, message, wait_until};
use crate::played_broker::{CONSUMER_OFFSETS, DELAY_OFFSETS, PlayedBroker};

/// A slave takes progress of 7 of its master, and is then the slave of a master that has the first 3 messages of it and another one, which
/// answers for no settings: it cuts its log, and is closed. Returns the new master.
fn cut_without_settings(pair: &Pair, played: &PlayedBroker) -> Node {
    cut_after(pair, played, |old, _| {
        old.append(4);
        played.set_progress("orders", 7);
        wait_until(|| progress(pair, "orders") == Some(7));
    })
}

/// A slave has the first 3 messages of its master, and what `goes_on` appends there. `goes_on` gets the end of these messages, and the slave
/// is then the slave of a master that has them and another one, as in [`cut_without_settings`].
fn cut_after(pair: &Pair, played: &PlayedBroker, goes_on: impl FnOnce(&Node, i64)) -> Node {
    cut_between(pair, played, |old| old.append(3), goes_on)
}

/// Same as [`cut_after`], with what `begins` appends in place of the first 3 messages.
fn cut_between(pair: &Pair, played: &PlayedBroker, begins: impl FnOnce(&Node), goes_on: impl FnOnce(&Node, i64)) -> Node {
    let old = Node::open(pair, "master");
    let slave = slave_of(pair, &old, played);
    begins(&old);
    let common = old.store.appended_offset();
    slave.wait(common - 1, Some(Instant::now() + LONG)).unwrap();
    copy_dir(&pair.at("master"), &pair.at("new"));
    goes_on(&old, common);
    slave
        .wait(old.store.appended_offset() - 1, Some(Instant::now() + LONG))
        .unwrap();
    slave.close().unwrap();
    old.close();
    let new = Node::open(pair, "new");
    assert_eq!(new.store.appended_offset(), common);
    new.store.append(message(b"another one")).unwrap();
    let silent = SlaveOptions {
        broker: None,
        ..new.options()
    };
    let slave = pair.slave(silent);
    slave
        .wait(new.store.appended_offset() - 1, Some(Instant::now() + LONG))
        .unwrap();
    slave.close().unwrap();
    new
}

#[test]
fn progress_is_cut_with_the_log() {
    let pair = Pair::new();
    let new = cut_without_settings(&pair, &PlayedBroker::start());
    assert_eq!(progress(&pair, "orders"), Some(3));
    let bak = settings(&pair, "slave", "consumerOffset.json.bak");
    assert_eq!(bak["offsetTable"]["orders@billing"]["0"], 3);
    new.close();
}

/// A retry, as if "billing" had failed on a message of "orders" with this id.
fn retry_of(origin: &str) -> Message<'static> {
    let properties = encode_properties([("RETRY_TOPIC", "orders"), ("ORIGIN_MESSAGE_ID", origin)], true).unwrap();
    Message {
        topic: "%RETRY%billing".into(),
        properties: properties.into(),
        ..message(b"again")
    }
}

/// Cuts a retry of a message that nobody can find, with the progress of two groups.
fn cut_retry_of_unknown(pair: &Pair, played: &PlayedBroker, log_end: impl FnOnce(i64) -> i64) -> Node {
    cut_after(pair, played, |old, common| {
        old.store.append(retry_of("00")).unwrap();
        old.store.flush().unwrap();
        played.set_log_end(log_end(common));
        let both = json!({ "orders@billing": { "0": 3 }, "orders@audit": { "0": 3 } });
        played.set(CONSUMER_OFFSETS, &json!({ "offsetTable": both }));
        wait_until(|| progress(pair, "orders") == Some(3));
        played.set(CONSUMER_OFFSETS, &json!({ "offsetTable": {} }));
    })
}

#[test]
fn a_cut_takes_a_group_back_to_a_message_whose_retry_goes() {
    let pair = Pair::new();
    let played = PlayedBroker::start();
    let new = cut_after(&pair, &played, |old, _| {
        let consumer = old
            .broker
            .consumer(Some("billing"), subscription(), &Start::Earliest)
            .unwrap();
        let given = consumer.poll(10, Some(Instant::now() + LONG)).unwrap();
        assert_eq!(given.len(), 3);
        consumer.ack([0, 2].map(|offset| ("orders", 0, offset))).unwrap();
        assert!(consumer.nack(&given[1].view(), None, Instant::now()).unwrap());
        consumer.commit().unwrap();
        consumer.close().unwrap();
        played.set_log_end(old.store.flushed_offset());
        played.set_progress("orders", 3);
        wait_until(|| progress(&pair, "orders") == Some(3));
    });
    let cut = settings(&pair, "slave", "consumerOffset.json");
    assert_eq!(cut["offsetTable"]["orders@billing"]["0"], 1);
    assert!(
        cut["mqstore"]["ofCutLog"].is_null() && cut["mqstore"]["settledEnd"].is_i64(),
        "{cut}"
    );
    new.close();
}

#[test]
fn progress_past_a_lost_origin_restarts_unless_the_answer_names_it() {
    for (answered, taken) in [(None, 0), (Some(2), 2)] {
        let pair = Pair::new();
        let played = PlayedBroker::start();
        let new = cut_retry_of_unknown(&pair, &played, |end| end + 1);
        let cut = settings(&pair, "slave", "consumerOffset.json");
        assert_eq!(cut["mqstore"]["ofCutLog"], json!(["orders@billing"]));
        assert_eq!(progress(&pair, "orders"), Some(3));
        if let Some(offset) = answered {
            played.set_progress("orders", offset);
        }
        played.set_log_end(0);
        let slave = slave_of(&pair, &new, &played);
        wait_until(|| progress(&pair, "orders") == Some(taken));
        played.set_progress("orders", 1);
        wait_for_answer(&played, &slave);
        slave.close().unwrap();
        let after = settings(&pair, "slave", "consumerOffset.json");
        assert_eq!(after["offsetTable"]["orders@billing"]["0"], taken.max(1));
        assert_eq!(after["offsetTable"]["orders@audit"]["0"], 3);
        assert!(after["mqstore"]["ofCutLog"].is_null());
        new.close();
    }
}

#[test]
fn a_promoted_writer_names_progress_past_a_cut_until_it_is_reset() {
    let pair = Pair::new();
    let played = PlayedBroker::start();
    cut_retry_of_unknown(&pair, &played, |end| end + 1).close();
    let open = || Arc::new(MessageStore::open(&env(), &pair.at("slave"), StoreConfig::default(), OpenMode::Existing).unwrap());
    let names = |broker: &BrokerController| broker.progress_of_cut_log().into_iter().collect::<Vec<_>>();
    for (group, left) in [("audit", vec!["orders@billing"]), ("billing", vec![])] {
        let store = open();
        let broker = BrokerController::new(&store);
        assert_eq!(names(&broker), ["orders@billing"]);
        broker.reset(group, "orders", &Start::Earliest).unwrap();
        broker.close().unwrap();
        store.close().unwrap();
        let store = open();
        let broker = BrokerController::new(&store);
        assert_eq!(names(&broker), left);
        broker.close().unwrap();
        store.close().unwrap();
    }
}

#[test]
fn a_cut_after_the_end_that_the_master_answered_lowers_no_progress() {
    let pair = Pair::new();
    let played = PlayedBroker::start();
    let new = cut_retry_of_unknown(&pair, &played, |end| end);
    let cut = settings(&pair, "slave", "consumerOffset.json");
    assert_eq!(cut["offsetTable"]["orders@billing"]["0"], 3);
    assert!(cut["mqstore"]["ofCutLog"].is_null(), "{cut}");
    new.close();
}

/// The progress of a level and of timer messages after a cut, before which they say where the log ended.
fn cut_deliveries(log_end: impl Fn(i64) -> i64) -> (Value, TimerProgress) {
    let pair = Pair::new();
    let played = PlayedBroker::start();
    let timers = pair.at("slave").join("config/timercheck");
    let new = cut_after(&pair, &played, |old, common| {
        old.append(1);
        played.set(
            DELAY_OFFSETS,
            &json!({ "offsetTable": { "1": 0 }, "mqstore": { "logEnd": log_end(common) } }),
        );
        wait_until(|| settings(&pair, "slave", "delayOffset.json")["mqstore"]["logEnd"].is_i64());
        let check = TimerCheck {
            progress: Some(TimerProgress {
                first: 5,
                queue_end: 9,
                log_end: log_end(common),
                ..TimerProgress::default()
            }),
            ..TimerCheck::default()
        };
        fs::write(&timers, check.encode()).unwrap();
    });
    new.close();
    let timers = TimerCheck::decode(&fs::read(timers).unwrap());
    (settings(&pair, "slave", "delayOffset.json"), timers.progress.unwrap())
}

#[test]
fn a_cut_of_delivered_copies_restarts_delays_and_timers() {
    let (delays, timers) = cut_deliveries(|common| common + 1);
    assert_eq!(
        (delays["mqstore"]["logEnd"].as_i64(), timers),
        (None, TimerProgress::default())
    );
    let (delays, timers) = cut_deliveries(|common| common);
    assert_eq!(delays["mqstore"]["logEnd"].as_i64(), Some(timers.log_end));
    assert_eq!((timers.first, timers.queue_end), (5, 9));
}

/// The bodies of the messages of "orders".
fn bodies(store: &MessageStore) -> Vec<Vec<u8>> {
    store.catch_up(LONG).unwrap();
    let end = store.reader().queue_bounds("orders", 0).unwrap().end;
    let body = |offset| {
        let found = store.reader().position("orders", 0, offset).unwrap().unwrap();
        let message = store.reader().message_at(found.physical_offset).unwrap();
        message.view().body().to_vec()
    };
    (0..end).map(body).collect()
}

#[test]
fn a_promoted_writer_delivers_once_what_a_cut_has_removed() {
    let pair = Pair::new();
    let played = PlayedBroker::start();
    let append = |node: &Node, level: &str, body: &'static [u8]| {
        let properties = encode_properties([("DELAY", level)], true).unwrap();
        let delayed = Message {
            properties: properties.into(),
            ..message(body)
        };
        node.store.append(delayed).unwrap();
    };
    // The common part has the copy of one message, and no copy of another, which is due 5 s later.
    let begins = |old: &Node| {
        append(old, "1", b"first");
        assert!(old.broker.serve_delayed().unwrap());
        wait_until(|| bodies(&old.store).len() == 1);
        append(old, "2", b"second");
    };
    let new = cut_between(&pair, &played, begins, |old, _| {
        wait_until(|| bodies(&old.store).len() == 2);
        old.store.flush().unwrap();
        played.set_text(DELAY_OFFSETS, "{\"offsetTable\":{1:1,2:1}}");
        wait_until(|| settings(&pair, "slave", "delayOffset.json")["offsetTable"] == json!({ "1": 1, "2": 1 }));
    });
    for file in ["delayOffset.json", "delayOffset.json.bak"] {
        assert_eq!(settings(&pair, "slave", file)["offsetTable"], json!({ "1": 0, "2": 0 }));
    }
    new.close();
    let config = StoreConfig {
        services: Some(true),
        ..StoreConfig::default()
    };
    let promoted = Arc::new(MessageStore::open(&env(), &pair.at("slave"), config, OpenMode::Existing).unwrap());
    let broker = BrokerController::new(&promoted);
    broker.start().unwrap();
    wait_until(|| broker.delay_stats().unwrap().unwrap().waiting == 0);
    assert_eq!(bodies(&promoted), [&b"first"[..], b"another one", b"second"]);
    broker.close().unwrap();
    promoted.close().unwrap();
}

#[test]
fn a_cut_of_what_ends_transactions_restarts_their_progress() {
    const PROGRESS: &str = "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS";
    let pair = Pair::new();
    let played = PlayedBroker::start();
    let begins = |old: &Node| {
        let half = Message {
            topic: "RMQ_SYS_TRANS_HALF_TOPIC".into(),
            ..message(b"half")
        };
        old.store.append(half).unwrap();
    };
    let new = cut_between(&pair, &played, begins, |old, common| {
        old.append(1);
        played.set_log_end(common + 1);
        played.set(CONSUMER_OFFSETS, &json!({ "offsetTable": { PROGRESS: { "0": 1 } } }));
        wait_until(|| settings(&pair, "slave", "consumerOffset.json")["offsetTable"][PROGRESS]["0"] == 1);
    });
    let cut = settings(&pair, "slave", "consumerOffset.json");
    assert_eq!(cut["offsetTable"][PROGRESS]["0"], 0);
    new.close();
}
