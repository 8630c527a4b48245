//! `consumerOffset.json`: merged with what is there, durable, and never ahead of the log.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use mqstore::broker::{BrokerService, Start};
use mqstore::error::Error;
use serde_json::{Value, json};

use super::{Open, ack, bodies, directory, subscription};

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
    let previous: Value = serde_json::from_slice(&fs::read(path.join("config/consumerOffset.json.bak")).unwrap()).unwrap();
    assert_eq!(previous["offsetTable"]["orders@billing"]["0"], 2);
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
    let consumer = open.consumer("billing", subscription(&["orders"]));
    let got = consumer.poll(2, None).unwrap();
    let now = Instant::now();
    open.broker.step(BrokerService::Keep, now).unwrap();
    open.broker
        .step(BrokerService::Keep, now + Duration::from_millis(4900))
        .unwrap();
    assert!(!path.join("config/consumerOffset.json").exists());
    open.broker.step(BrokerService::Keep, now + Duration::from_secs(6)).unwrap();
    assert_eq!(written(&path)["offsetTable"]["orders@billing"]["0"], 0);
    ack(&consumer, &got);
    open.close();
    assert_eq!(written(&path)["offsetTable"]["orders@billing"]["0"], 1);
}

#[test]
fn a_damaged_file_is_named_and_never_overwritten() {
    let (_dir, path) = directory();
    Open::at(&path).close();
    for damaged in ["", "{\"offsetTable\":", "\0\0\0\0", "[1]"] {
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
    let (_dir, path) = directory();
    let open = Open::at(&path);
    for tag in ["a", "b", "c"] {
        open.append("orders", 0, tag);
    }
    open.close();
    put_settings(&path, "consumerOffset.json", "{");
    put_settings(
        &path,
        "consumerOffset.json.bak",
        r#"{"offsetTable":{"orders@billing":{0:1}}}"#,
    );
    let open = Open::at(&path);
    let consumer = open.consumer("billing", subscription(&["orders"]));
    let got = consumer.poll(9, None).unwrap();
    assert_eq!(
        (bodies(&got), ack(&consumer, &got)),
        (vec!["b".to_owned(), "c".to_owned()], 2)
    );
    open.close();
    assert_eq!(written(&path)["offsetTable"]["orders@billing"]["0"], 3);
}
