//! Consumer groups and their settings.

use std::fs;
use std::time::Instant;

use mqstore::broker::{Start, Subscription};
use mqstore::error::Error;
use mqstore::format::{Message, SCHEDULE_TOPIC, SubscriptionGroupConfig};
use serde_json::{Value, json};

use super::{CONSUME_TIMEOUT, Open, Settings, subscription};
use crate::writing::message;

const FILE: &str = "subscriptionGroup.json";

#[test]
fn a_new_group_gets_a_broker_s_defaults_once() {
    let place = Settings::new();
    let store = place.open();
    let groups = store.broker.subscription_groups();
    assert_eq!(groups.get("billing").unwrap(), None);
    groups.ensure("billing").unwrap();
    let expected = SubscriptionGroupConfig {
        group: "billing".to_owned(),
        consume_enable: Some(true),
        consume_broadcast_enable: Some(true),
        consume_message_orderly: Some(false),
        retry_queue_nums: Some(1),
        retry_max_times: Some(16),
        consume_timeout_minute: Some(15),
    };
    assert_eq!(groups.get("billing").unwrap(), Some(expected));
    let written = place.json(FILE);
    let entry = &written["subscriptionGroupTable"]["billing"];
    assert_eq!(
        (&entry["groupName"], &entry["groupRetryPolicy"]),
        (&json!("billing"), &json!({"type": "CUSTOMIZED"}))
    );
    assert_eq!(written["dataVersion"]["counter"], 1);
    groups.ensure("billing").unwrap();
    assert_eq!(place.json(FILE), written);
    groups.ensure("shipping").unwrap();
    assert_eq!(place.json(FILE)["dataVersion"]["counter"], 2);
    store.close();
    let store = place.open();
    store.broker.subscription_groups().ensure("shipping").unwrap();
    store.close();
    assert_eq!(place.json(FILE)["dataVersion"]["counter"], 2);
}

#[test]
fn the_settings_that_a_broker_gave_a_group_stay() {
    let settings = r#"{"dataVersion":{"counter":4,"timestamp":5},"forbiddenTable":{"g":{"t":1}},
        "subscriptionGroupTable":{"billing":{"groupName":"billing","retryMaxTimes":3,"later":1}}}"#;
    let place = Settings::with(FILE, settings);
    let store = place.open();
    let groups = store.broker.subscription_groups();
    groups.ensure("billing").unwrap();
    assert_eq!(fs::read_to_string(place.file(FILE)).unwrap(), settings);
    assert_eq!(groups.get("billing").unwrap().unwrap().retry_max_times, Some(3));
    groups.ensure("shipping").unwrap();
    let written = place.json(FILE);
    assert_eq!(written["forbiddenTable"], json!({"g": {"t": 1}}));
    assert_eq!(
        written["subscriptionGroupTable"]["billing"],
        json!({"groupName": "billing", "retryMaxTimes": 3, "later": 1})
    );
    store.close();
}

#[test]
fn a_group_that_no_broker_takes_is_refused() {
    let place = Settings::new();
    let store = place.open();
    for name in ["", "a b", "a@b", "a/b", &"g".repeat(121)] {
        let refused = store.broker.subscription_groups().ensure(name).unwrap_err();
        assert!(matches!(refused, Error::Invalid { .. }), "{name:?}: {refused}");
    }
    assert!(!place.file(FILE).exists());
    store.broker.subscription_groups().ensure(&"g".repeat(120)).unwrap();
    store.close();
}

#[test]
fn a_group_that_could_not_be_written_is_written_by_the_next_call() {
    let place = Settings::new();
    let store = place.open();
    fs::create_dir(place.file(FILE)).unwrap();
    store.broker.subscription_groups().ensure("billing").unwrap_err();
    fs::remove_dir(place.file(FILE)).unwrap();
    store.broker.subscription_groups().ensure("billing").unwrap();
    assert_eq!(place.json(FILE)["subscriptionGroupTable"]["billing"]["retryMaxTimes"], 16);
    store.close();
}

/// A store in which the group "billing" has these settings.
fn with_group(fields: &Value) -> Settings {
    Settings::with(FILE, &json!({ "subscriptionGroupTable": { "billing": fields } }).to_string())
}

/// Lets the group send back the messages of queue 0 of "orders", each with the number of its earlier retries. Returns the number of
/// retries that wait, and of dead letters.
fn fail_after(open: &Open, max_reconsume_times: Option<i32>, retries: &[i32]) -> (i64, i64) {
    for reconsume_times in retries {
        let failed = Message {
            reconsume_times: *reconsume_times,
            ..message("orders", 0, b"m")
        };
        open.store.append(failed).unwrap();
    }
    open.store.catch_up(CONSUME_TIMEOUT).unwrap();
    let by = Subscription {
        max_reconsume_times,
        ..subscription(&["orders"])
    };
    let consumer = open.consumer("billing", by);
    for given in consumer.poll(retries.len(), None).unwrap() {
        assert!(consumer.nack(&given.view(), Some(18), Instant::now()).unwrap());
    }
    consumer.close().unwrap();
    open.store.catch_up(CONSUME_TIMEOUT).unwrap();
    let end = |topic: &str, queue_id| open.store.reader().queue_bounds(topic, queue_id).unwrap().end;
    (end(SCHEDULE_TOPIC, 17), end("%DLQ%billing", 0))
}

#[test]
fn a_message_is_a_dead_letter_after_the_retries_of_its_group() {
    for (settings, stated, expected) in [
        (json!({ "retryMaxTimes": 2 }), None, (2, 2)),
        (json!({ "retryMaxTimes": 2 }), Some(3), (3, 1)),
        (json!({ "retryMaxTimes": 0 }), None, (0, 4)),
        (json!({ "retryMaxTimes": null }), None, (4, 0)),
        (json!({}), None, (4, 0)),
    ] {
        let place = with_group(&settings);
        let open = place.open();
        assert_eq!(fail_after(&open, stated, &[0, 1, 2, 3]), expected, "{settings}, {stated:?}");
        open.close();
    }
}

#[test]
fn a_consumer_that_states_the_retries_of_its_group_joins_the_others() {
    let place = with_group(&json!({ "retryMaxTimes": 2 }));
    let open = place.open();
    let with = |max_reconsume_times| Subscription {
        max_reconsume_times,
        ..subscription(&["orders"])
    };
    let consumers = [None, Some(2)].map(|stated| open.consumer("billing", with(stated)));
    let refused = open.broker.consumer(Some("billing"), with(Some(3)), &Start::Earliest);
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    drop(consumers);
    open.close();
}

#[test]
fn an_ordered_group_has_no_limit_of_retries_unless_it_states_one() {
    let place = with_group(&json!({ "retryMaxTimes": 0 }));
    let open = place.open();
    open.append("orders", 0, "m");
    let by = Subscription {
        is_ordered: true,
        max_reconsume_times: None,
        ..subscription(&["orders"])
    };
    let consumer = open.consumer("billing", by);
    let given = consumer.poll(1, None).unwrap();
    assert!(consumer.nack(&given[0].view(), None, Instant::now()).unwrap());
    let position = consumer.positions().unwrap().remove(0);
    assert_eq!((position.committed, position.in_flight), (0, 1));
    open.close();
}

#[test]
fn retries_go_to_all_retry_queues_of_their_group_in_turn() {
    let place = with_group(&json!({ "retryQueueNums": 3 }));
    let open = place.open();
    assert_eq!(fail_after(&open, None, &[0; 7]), (7, 0));
    let queue_of = |offset| {
        let waits = open.store.reader().message_in_queue(SCHEDULE_TOPIC, 17, offset).unwrap();
        waits.view().properties().get("REAL_QID").unwrap().into_owned()
    };
    assert_eq!((0..7).map(queue_of).collect::<String>(), "0120120");
    open.close();
}

#[test]
fn a_group_that_must_not_consume_or_has_no_retry_queue_is_refused() {
    for (settings, reason) in [
        (json!({ "consumeEnable": false }), "consumeEnable is false"),
        (json!({ "retryQueueNums": 0 }), "retryQueueNums is 0"),
        (json!({ "retryQueueNums": 65_537 }), "retryQueueNums is 65537"),
    ] {
        let place = with_group(&settings);
        let open = place.open();
        open.append("orders", 0, "m");
        let refused = open
            .broker
            .consumer(Some("billing"), subscription(&["orders"]), &Start::Earliest)
            .unwrap_err();
        assert!(matches!(refused, Error::Invalid { .. }), "{refused:?}");
        assert!(refused.to_string().contains(reason), "{refused}");
        // No other group, and no call about the group, is concerned.
        assert_eq!(
            open.consumer("shipping", subscription(&["orders"]))
                .poll(1, None)
                .unwrap()
                .len(),
            1
        );
        open.broker.reset("billing", "orders", &Start::Latest).unwrap();
        open.close();
    }
}

#[test]
fn a_setting_of_a_wrong_type_refuses_consumers_and_stays() {
    for settings in [
        json!({ "retryMaxTimes": "3" }),
        json!({ "consumeEnable": 0 }),
        json!({ "retryQueueNums": 1.5 }),
    ] {
        let place = with_group(&settings);
        let written = fs::read(place.file(FILE)).unwrap();
        let open = place.open();
        let refused = open
            .broker
            .consumer(Some("billing"), subscription(&["orders"]), &Start::Earliest);
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{settings}: {refused:?}");
        open.close();
        assert_eq!(fs::read(place.file(FILE)).unwrap(), written);
    }
}
