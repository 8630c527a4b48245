//! Damaged files of settings: the store works on, what needs the file says so, and nothing overwrites it.

use std::fs;

use mqstore::broker::{Start, TopicSettings};
use mqstore::error::{Error, Result};

use super::{Open, Settings, subscription};
use crate::writing::message;

const TOPICS: &str = "topics.json";
const GROUPS: &str = "subscriptionGroup.json";
const PROGRESS: &str = "consumerOffset.json";
const DELAYS: &str = "delayOffset.json";
const SETTINGS: TopicSettings = TopicSettings {
    queues: 2,
    perm: 6,
    order: false,
    message_type: None,
};

/// Asks for what is in the file, and for a change of it.
fn need(store: &Open, file: &str) -> Vec<Result<()>> {
    let (topics, groups) = (store.broker.topics(), store.broker.subscription_groups());
    let join = |group| store.broker.consumer(Some(group), subscription(&["orders"]), &Start::Latest);
    match file {
        TOPICS => vec![topics.get("orders").map(drop), topics.create("orders", &SETTINGS)],
        GROUPS => vec![groups.get("billing").map(drop), groups.ensure("billing")],
        PROGRESS => vec![
            join("billing").map(drop),
            store.broker.reset("audit", "orders", &Start::Latest).map(drop),
        ],
        _ => vec![store.broker.delay_stats().map(drop), store.broker.serve_delayed().map(drop)],
    }
}

#[test]
fn appends_and_close_succeed_beside_a_damaged_file_that_stays() {
    for (file, table) in [
        (TOPICS, "topicConfigTable"),
        (GROUPS, "subscriptionGroupTable"),
        (PROGRESS, "offsetTable"),
        (DELAYS, "offsetTable"),
    ] {
        for damaged in unusable(table) {
            let place = Settings::with(file, &damaged);
            let store = place.open();
            store
                .store
                .appender(None)
                .of_producer()
                .append(message("orders", 7, b"x"))
                .unwrap();
            for needed in need(&store, file) {
                let error = needed.unwrap_err();
                assert!(
                    matches!(&error, Error::Corrupt { path, .. } if path.ends_with(file)),
                    "{file} {damaged:?}: {error}"
                );
            }
            store.close();
            assert_eq!(fs::read_to_string(place.file(file)).unwrap(), damaged);
            assert!(!place.file(&format!("{file}.bak")).exists());
            let again = place.open();
            assert_eq!(again.store.reader().queue_bounds("orders", 7).unwrap(), 0..1);
            again.close();
        }
    }
}

#[test]
fn a_damaged_file_with_a_usable_previous_version_is_replaced() {
    let place = Settings::with(TOPICS, "{");
    let previous = r#"{"topicConfigTable":{"few":{"topicName":"few","readQueueNums":2,"writeQueueNums":2,"perm":6}}}"#;
    fs::write(place.file("topics.json.bak"), previous).unwrap();
    let store = place.open();
    let producer = store.store.appender(None).of_producer();
    producer.append(message("few", 2, b"x")).unwrap_err();
    producer.append(message("orders", 2, b"x")).unwrap();
    store.close();
    let topics = &place.json(TOPICS)["topicConfigTable"];
    assert_eq!(
        (&topics["few"]["perm"], &topics["orders"]["readQueueNums"]),
        (&6.into(), &3.into())
    );
}

#[test]
fn a_flipped_bit_of_any_byte_of_the_settings_is_named_or_harmless() {
    for (file, text) in [
        (
            TOPICS,
            "{\"topicConfigTable\":{\"few\":{\"topicName\":\"few\",\"readQueueNums\":2,\"perm\":6}}}",
        ),
        (
            GROUPS,
            "{\"subscriptionGroupTable\":{\"billing\":{\"groupName\":\"billing\",\"retryMaxTimes\":3}}}",
        ),
        (
            PROGRESS,
            "{\"offsetTable\":{\"orders@billing\":{\"0\":15,\"1\":31},\"refunds@billing\":{\"0\":1111}}}",
        ),
        (
            DELAYS,
            "{\"offsetTable\":{\"1\":111111,\"2\":333333,\"11\":555555,\"13\":111111}}",
        ),
    ] {
        let place = Settings::with(file, text);
        let (mut named, mut harmless) = (0, 0);
        for at in 0..text.len() {
            let mut damaged = text.as_bytes().to_vec();
            damaged[at] ^= 1 << (at % 8);
            fs::write(place.file(file), &damaged).unwrap();
            let _ = fs::remove_file(place.file(&format!("{file}.bak")));
            let store = place.open();
            store.append("orders", 0, "x");
            let needed = need(&store, file);
            store.close();
            if needed.iter().all(Result::is_ok) {
                harmless += 1;
            } else {
                assert!(needed.iter().all(Result::is_err), "{damaged:?}: {needed:?}");
                assert_eq!(fs::read(place.file(file)).unwrap(), damaged);
                named += 1;
            }
        }
        assert!(named > 30 && harmless > 10, "{named} {harmless}");
    }
}

/// Versions of a file that no broker can use.
fn unusable(table: &str) -> Vec<String> {
    let with_table = |entries: &str| format!("{{{table:?}:{entries}}}");
    let whole = ["", "\0\0\0\0", "{", "[]", "{\"otherTable\":{}}", "{\"dataVersion\":{}}"].map(str::to_owned);
    let entries = [
        "[]",
        "{\"x\":7}",
        "{\"x\":{",
        "{},\"dataVersion\":7",
        "{\"orders@billing\":7}",
        "{\"1\":\"7\"}",
    ]
    .map(with_table);
    whole.into_iter().chain(entries).collect()
}
