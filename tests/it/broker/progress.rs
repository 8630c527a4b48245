//! `consumerOffset.json`: merged with what is there, durable, and never ahead of the log.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use mqstore::broker::{BrokerService, Consumer, Start};
use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::read::StoredMessage;
use mqstore::storage::Env;
use serde_json::{Value, json};

use super::{Open, ack, bodies, directory, subscription};
use crate::asleep::{thread_number, wait_until_asleep};
use crate::counting_env::CountingEnv;

fn written(store: &Path) -> Value {
    serde_json::from_slice(&fs::read(store.join("config/consumerOffset.json")).unwrap()).unwrap()
}

fn put_settings(store: &Path, name: &str, text: &str) {
    fs::create_dir_all(store.join("config")).unwrap();
    fs::write(store.join("config").join(name), text).unwrap();
}

#[test]
fn progress_of_a_broker_is_continued_and_everything_else_is_kept() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    for tag in ["a", "b", "c"] {
        open.append("orders", 0, tag);
    }
    open.close();
    let broker =
        r#"{"dataVersion":{"counter":7},"groupTopicMap":{"g":["t"]},"offsetTable":{"orders@billing":{0:2,9:4},"t@g":{1:3}}}"#;
    put_settings(&path, "consumerOffset.json", broker);
    let open = Open::at(&path);
    let consumer = open.consumer("billing", subscription(&["orders"]));
    let got = consumer.poll(9, None).unwrap();
    assert_eq!((bodies(&got), ack(&consumer, &got)), (vec!["c".to_owned()], 1));
    consumer.commit().unwrap();
    let expected = json!({
        "dataVersion": {"counter": 7},
        "groupTopicMap": {"g": ["t"]},
        "offsetTable": {"orders@billing": {"0": 3, "9": 4}, "t@g": {"1": 3}},
    });
    assert_eq!(written(&path), expected);
    assert_eq!(
        fs::read_to_string(path.join("config/consumerOffset.json.bak")).unwrap(),
        broker
    );
    open.close();
}

#[test]
fn a_writer_drops_the_end_of_what_settled_the_progress_of_a_slave() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    for tag in ["a", "b"] {
        open.append("orders", 0, tag);
    }
    open.close();
    let of_slave = r#"{"offsetTable":{"orders@billing":{"0":1}},"mqstore":{"settledEnd":1,"ofCutLog":["t@g"]}}"#;
    put_settings(&path, "consumerOffset.json", of_slave);
    let open = Open::at(&path);
    let consumer = open.consumer("billing", subscription(&["orders"]));
    let got = consumer.poll(9, None).unwrap();
    assert_eq!((bodies(&got), ack(&consumer, &got)), (vec!["b".to_owned()], 1));
    consumer.commit().unwrap();
    let kept = &written(&path)["mqstore"];
    assert_eq!((&kept["settledEnd"], &kept["ofCutLog"]), (&Value::Null, &json!(["t@g"])));
    open.close();
}

#[test]
fn a_durable_commit_survives_the_process_and_a_plain_one_may_not() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    for tag in ["a", "b", "c"] {
        open.append("orders", 0, tag);
    }
    let consumer = open.consumer("billing", subscription(&["orders"]));
    let got = consumer.poll(2, None).unwrap();
    ack(&consumer, &got[..1]);
    consumer.commit().unwrap();
    ack(&consumer, &got[1..]);
    std::mem::forget(consumer);
    open.kill();
    assert_eq!(written(&path)["offsetTable"]["orders@billing"]["0"], 1);
}

#[test]
fn progress_is_persisted_every_five_seconds_and_by_the_close() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    open.append("orders", 0, "a");
    open.append("orders", 0, "b");
    let consumer = open.consumer("billing", subscription(&["orders"]));
    let got = consumer.poll(2, None).unwrap();
    let now = Instant::now();
    let written = || written(&path)["offsetTable"]["orders@billing"]["0"].as_i64().unwrap();
    ack(&consumer, &got[..1]);
    open.broker.step(BrokerService::Keep, now).unwrap();
    open.broker
        .step(BrokerService::Keep, now + Duration::from_millis(4900))
        .unwrap();
    assert_eq!(written(), 0);
    open.broker.step(BrokerService::Keep, now + Duration::from_secs(6)).unwrap();
    assert_eq!(written(), 1);
    ack(&consumer, &got[1..]);
    open.close();
    assert_eq!(written(), 2);
}

#[test]
fn a_damaged_file_is_named_and_never_overwritten() {
    let (_dir, path) = directory();
    Open::at(&path).close();
    // What is not the structure of the file is damage, too: a group would else begin again at its first message.
    let structures = [
        r#"{"offsetTable":{"orders@billing":7}}"#,
        r#"{"offsetTable":{"orders@billing":{"0":"5"}}}"#,
        r#"{"dataVersion":{}}"#,
    ];
    for damaged in ["", "{\"offsetTable\":", "\0\0\0\0", "[1]"].into_iter().chain(structures) {
        put_settings(&path, "consumerOffset.json", damaged);
        let open = Open::at(&path);
        open.append("orders", 0, "a");
        let refused = open
            .broker
            .consumer(Some("billing"), subscription(&["orders"]), &Start::Earliest);
        assert!(
            matches!(refused, Err(Error::Corrupt { path, .. }) if path.ends_with("config/consumerOffset.json")),
            "{damaged:?}"
        );
        let consumer = open
            .broker
            .consumer(None, subscription(&["orders"]), &Start::Earliest)
            .unwrap();
        assert!(!consumer.poll(9, None).unwrap().is_empty());
        open.close();
        assert_eq!(fs::read(path.join("config/consumerOffset.json")).unwrap(), damaged.as_bytes());
    }
}

#[test]
fn the_previous_version_is_used_where_the_file_is_damaged() {
    for damaged in ["{", r#"{"offsetTable":{"orders@billing":7}}"#] {
        let (_dir, path) = directory();
        let open = Open::at(&path);
        for tag in ["a", "b", "c"] {
            open.append("orders", 0, tag);
        }
        open.close();
        let previous = r#"{"offsetTable":{"orders@billing":{0:1}}}"#;
        put_settings(&path, "consumerOffset.json", damaged);
        put_settings(&path, "consumerOffset.json.bak", previous);
        let open = Open::at(&path);
        let consumer = open.consumer("billing", subscription(&["orders"]));
        let got = consumer.poll(9, None).unwrap();
        assert_eq!(bodies(&got), ["b", "c"]);
        assert_eq!(ack(&consumer, &got), 2);
        open.close();
        assert_eq!(written(&path)["offsetTable"]["orders@billing"]["0"], 3);
    }
}

/// Starts a thread that settles a message and then commits. Returns once it waits for the commit of this thread.
fn commit_beside(consumer: Arc<Consumer>, settle: impl FnOnce(&Consumer) + Send + 'static) -> thread::JoinHandle<()> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let beside = thread::spawn(move || {
        settle(&consumer);
        sender.send(thread_number()).unwrap();
        consumer.commit().unwrap();
    });
    wait_until_asleep(&receiver.recv().unwrap());
    beside
}

/// Commits one group, and a second one during the sync of the log for the first. The second settles its message by `settle`. Returns, in
/// order, the syncs of the log and the renames of the settings files since then.
fn commits_that_overlap(path: &Path, settle: fn(&Consumer, &StoredMessage)) -> Vec<String> {
    let env = CountingEnv::new();
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    let config = StoreConfig {
        flush_interval_commit_log: 3_600_000,
        ..StoreConfig::default()
    };
    let open = Open::in_env(&seam, path, config);
    open.append("orders", 0, "a");
    let [first, second] = ["billing", "shipping"].map(|group| Arc::new(open.consumer(group, subscription(&["orders"]))));
    let [given, late] = [&first, &second].map(|consumer| consumer.poll(1, None).unwrap().remove(0));
    // Something to flush: the joins have flushed the first message.
    open.append("orders", 0, "b");
    ack(&first, &[given]);
    let beside = Arc::new(Mutex::new(None));
    let before = Mutex::new(Some((second, late)));
    env.before_changes({
        let beside = beside.clone();
        move |change| {
            let waits = change
                .starts_with("sync LogRange")
                .then(|| before.lock().unwrap().take())
                .flatten();
            if let Some((second, late)) = waits {
                *beside.lock().unwrap() = Some(commit_beside(second, move |second| settle(second, &late)));
            }
            Ok(())
        }
    });
    let known = env.changes().len();
    first.commit().unwrap();
    beside.lock().unwrap().take().unwrap().join().unwrap();
    let changes = env.changes().split_off(known);
    env.heal();
    open.close();
    let kinds = ["LogRange", "topics.json", "consumerOffset.json"];
    let kind = |change: &String| kinds.into_iter().find(|kind| change.contains(kind)).map(str::to_owned);
    let ordered = |change: &&String| change.starts_with("rename") || change.starts_with("sync LogRange");
    changes.iter().filter(ordered).filter_map(kind).collect()
}

#[test]
fn commits_that_overlap_in_the_flush_share_one_write_of_the_file() {
    let (_dir, path) = directory();
    let acknowledge = |second: &Consumer, late: &StoredMessage| assert_eq!(ack(second, std::slice::from_ref(late)), 1);
    let changes = commits_that_overlap(&path, acknowledge);
    assert_eq!(changes, ["LogRange", "consumerOffset.json"]);
    assert_eq!(written(&path)["offsetTable"]["orders@shipping"]["0"], 1);
}

#[test]
fn a_shared_write_follows_the_flush_of_what_each_caller_settled() {
    let (_dir, path) = directory();
    let send_back = |second: &Consumer, late: &StoredMessage| assert!(second.nack(&late.view(), None, Instant::now()).unwrap());
    let changes = commits_that_overlap(&path, send_back);
    let expected = ["LogRange", "topics.json", "LogRange", "consumerOffset.json"];
    assert_eq!(changes, expected);
    assert_eq!(written(&path)["offsetTable"]["orders@shipping"]["0"], 1);
}
