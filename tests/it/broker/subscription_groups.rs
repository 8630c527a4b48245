//! Consumer groups and their settings.

use std::fs;

use mqstore::error::Error;
use mqstore::format::SubscriptionGroupConfig;
use serde_json::json;

use super::Settings;

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
