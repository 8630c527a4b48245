//! Topics: created, completed with what is appended, and binding for producers.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use mqstore::broker::{BrokerController, BrokerService, TopicSettings};
use mqstore::check::FindingId;
use mqstore::error::{Error, Result};
use mqstore::format::{BatchUnit, Message, MessageType, encode_unit};
use mqstore::store::{Incoming, QueueChoice, TopicRule, TopicTable};
use serde_json::json;

use super::{Open, Settings, subscription};
use crate::verifying::verified;
use crate::writing::{message, with};

const FILE: &str = "topics.json";
const PLAIN: TopicSettings = TopicSettings {
    queues: 8,
    perm: 6,
    order: false,
    message_type: None,
};

fn create(store: &Open, topic: &str, settings: TopicSettings) -> Result<()> {
    store.broker.topics().create(topic, &settings)
}

/// Appends a message as a producer.
fn produce(store: &Open, message: Message<'_>) -> Result<()> {
    let producer = store.store.appender(None).of_producer();
    let sent = producer.append(message.clone());
    let all = producer.append_all(vec![message], &mut Vec::new());
    assert_eq!(
        sent.is_ok(),
        all.is_ok(),
        "one message and a batch are checked alike: {sent:?}, {all:?}"
    );
    sent.map(drop)
}

fn with_properties<'a>(topic: &'a str, pairs: &[(&str, &str)]) -> Message<'a> {
    with(message(topic, 0, b"x"), pairs)
}

#[test]
fn a_created_topic_is_on_disk_as_a_broker_writes_it() {
    let place = Settings::new();
    let store = place.open();
    let settings = TopicSettings {
        order: true,
        message_type: Some(MessageType::Fifo),
        ..PLAIN
    };
    create(&store, "orders", settings).unwrap();
    let written = place.json(FILE);
    assert_eq!(
        written["topicConfigTable"],
        json!({"orders": {
            "topicName": "orders", "readQueueNums": 8, "writeQueueNums": 8, "perm": 6, "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0, "order": true, "attributes": {"message.type": "FIFO"},
        }})
    );
    let version = &written["dataVersion"];
    assert_eq!((&version["counter"], &version["stateVersion"]), (&json!(1), &json!(0)));
    assert!(version["timestamp"].as_i64().unwrap() > 1_600_000_000_000);
    let config = store.broker.topics().get("orders").unwrap().unwrap();
    assert_eq!((config.read_queue_nums, config.order), (Some(8), Some(true)));
    assert_eq!(store.broker.topics().get("payments").unwrap(), None);
    assert_eq!(
        store.store.reader().topic_configs().unwrap().content,
        [config],
        "a reader finds the same"
    );
    store.close();
}

#[test]
fn a_topic_is_written_again_only_if_its_settings_change() {
    let place = Settings::new();
    let store = place.open();
    create(&store, "orders", PLAIN).unwrap();
    let first = fs::read(place.file(FILE)).unwrap();
    create(&store, "orders", PLAIN).unwrap();
    assert_eq!(fs::read(place.file(FILE)).unwrap(), first);
    create(
        &store,
        "orders",
        TopicSettings {
            perm: 4,
            queues: 3,
            ..PLAIN
        },
    )
    .unwrap();
    let changed = place.json(FILE);
    assert_eq!(changed["dataVersion"]["counter"], 2);
    let entry = &changed["topicConfigTable"]["orders"];
    assert_eq!(
        (&entry["perm"], &entry["readQueueNums"], &entry["writeQueueNums"]),
        (&json!(4), &json!(3), &json!(3))
    );
    store.close();
    // The next writer finds them.
    let store = place.open();
    create(
        &store,
        "orders",
        TopicSettings {
            perm: 4,
            queues: 3,
            ..PLAIN
        },
    )
    .unwrap();
    store.close();
    assert_eq!(place.json(FILE), changed);
}

#[test]
fn unknown_fields_and_entries_of_topics_stay() {
    let settings = r#"{"dataVersion":{"counter":7,"stateVersion":3,"timestamp":1},"later":[1],"topicConfigTable":{
        "orders":{"topicName":"orders","perm":6,"later":{"a":1},"attributes":{"queue.type":"SimpleCQ","message.type":"FIFO"}},
        "other@place":{"perm":5}}}"#;
    let place = Settings::with(FILE, settings);
    let store = place.open();
    create(&store, "orders", PLAIN).unwrap();
    let written = place.json(FILE);
    assert_eq!(written["later"], json!([1]));
    assert_eq!(
        (&written["dataVersion"]["counter"], &written["dataVersion"]["stateVersion"]),
        (&json!(8), &json!(3))
    );
    let topics = &written["topicConfigTable"];
    assert_eq!(topics["other@place"], json!({"perm": 5}));
    assert_eq!(topics["orders"]["later"], json!({"a": 1}));
    assert_eq!(
        topics["orders"]["attributes"],
        json!({"queue.type": "SimpleCQ", "message.type": "FIFO"}),
        "no type was given, so that the topic keeps its own"
    );
    let previous = fs::read_to_string(place.file("topics.json.bak")).unwrap();
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&previous).unwrap(),
        serde_json::from_str::<serde_json::Value>(settings).unwrap()
    );
    store.close();
}

#[test]
fn names_and_values_that_no_broker_takes_are_refused() {
    let place = Settings::new();
    let store = place.open();
    let long = "t".repeat(128);
    for name in [
        "",
        "a b",
        "a/b",
        "caf\u{e9}",
        "a@b",
        ".",
        &long,
        "SCHEDULE_TOPIC_XXXX",
        "TBW102",
        "rmq_sys_x",
    ] {
        let refused = create(&store, name, PLAIN).unwrap_err();
        assert!(matches!(refused, Error::Invalid { .. }), "{name:?}: {refused}");
    }
    for (queues, perm) in [(0, 6), (-1, 6), (65_537, 6), (8, 0), (8, 1), (8, 8), (8, -2)] {
        let refused = create(&store, "orders", TopicSettings { queues, perm, ..PLAIN }).unwrap_err();
        assert!(matches!(refused, Error::Invalid { .. }), "{queues} {perm}: {refused}");
    }
    assert!(!place.file(FILE).exists());
    let widest = TopicSettings {
        queues: 65_536,
        perm: 7,
        ..PLAIN
    };
    create(&store, &"%|aZ9_-"[..7], widest).unwrap();
    create(&store, &"t".repeat(127), PLAIN).unwrap();
    store.close();
}

#[test]
fn a_close_gives_each_topic_with_messages_an_entry() {
    let place = Settings::new();
    place.open().close();
    assert!(!place.file(FILE).exists(), "a store without messages needs no topics");
    let store = place.open();
    for (topic, queue_id) in [("orders", 0), ("orders", 5), ("%RETRY%billing", 0), ("%LMQ%light", 0)] {
        store.append(topic, queue_id, "x");
    }
    let delayed = with_properties("orders", &[("DELAY", "3")]);
    store.store.append(delayed).unwrap();
    store.close();
    let grown = |topic: &str, queues: i32| {
        json!({"topicName": topic, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6, "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0, "order": false, "mqstoreGrows": true})
    };
    let expected = json!({"orders": grown("orders", 6), "%RETRY%billing": grown("%RETRY%billing", 1),
        "SCHEDULE_TOPIC_XXXX": grown("SCHEDULE_TOPIC_XXXX", 18)});
    assert_eq!(place.json(FILE)["topicConfigTable"], expected);

    // Nothing new: the file stays. Then one more queue.
    let before = fs::read(place.file(FILE)).unwrap();
    let store = place.open();
    store.append("orders", 2, "x");
    store.close();
    assert_eq!(fs::read(place.file(FILE)).unwrap(), before);
    let store = place.open();
    produce(&store, message("orders", 9, b"x")).unwrap();
    store.close();
    assert_eq!(place.json(FILE)["topicConfigTable"]["orders"], grown("orders", 10));
}

#[test]
fn topics_of_a_writer_that_was_killed_get_entries_at_the_next_close() {
    let place = Settings::new();
    let store = place.open();
    store.append("orders", 0, "x");
    store.close();
    let killed = place.open();
    killed.append("payments", 0, "x");
    killed.store.close().unwrap();
    assert_eq!(place.json(FILE)["topicConfigTable"]["payments"], json!(null));
    place.open().close();
    assert_eq!(place.json(FILE)["topicConfigTable"]["payments"]["readQueueNums"], 1);
}

#[test]
fn topics_of_a_first_writer_that_was_killed_get_entries_at_the_next_close() {
    let place = Settings::new();
    let killed = place.open();
    killed.append("payments", 0, "x");
    killed.store.close().unwrap();
    place.open().close();
    assert_eq!(place.json(FILE)["topicConfigTable"]["payments"]["readQueueNums"], 1);
}

#[test]
fn progress_on_disk_passes_no_message_of_a_topic_without_an_entry() {
    let place = Settings::new();
    let killed = place.open();
    killed.append("orders", 0, "x");
    let consumer = killed.consumer("billing", subscription(&["orders"]));
    let got = consumer.poll(9, None).unwrap();
    consumer.nack(&got[0].view(), Some(-1), Instant::now()).unwrap();
    consumer.commit().unwrap();
    // A broker that takes over after a kill finds the message and the dead letter that has settled it.
    let topics = &place.json(FILE)["topicConfigTable"];
    for topic in ["orders", "%DLQ%billing"] {
        assert_eq!(topics[topic]["readQueueNums"], 1, "{topic}");
    }
    killed.close();
}

#[test]
fn verify_calls_no_new_topic_of_a_killed_writer_deleted() {
    let place = Settings::new();
    let store = place.open();
    store.append("orders", 0, "x");
    store.close();
    let killed = place.open();
    killed.append("payments", 0, "x");
    // The dispatcher writes the entries in memory once a second.
    let queue = place.0.path().join("consumequeue/payments/0");
    while fs::read_dir(&queue).map_or(0, Iterator::count) == 0 {
        thread::sleep(Duration::from_millis(10));
    }
    let missing = |expected: bool| {
        let verified = verified(place.0.path());
        let found = verified
            .findings
            .iter()
            .any(|finding| finding.id == FindingId::ConfigTopicMissing);
        assert_eq!(found, expected, "{:?}", verified.findings);
    };
    missing(false);
    killed.store.close().unwrap();
    // A clean close by a writer without these settings: a broker deletes the topic in time.
    missing(true);
}

#[test]
fn a_broker_s_topic_gets_queues_to_read_and_none_to_write() {
    let settings = r#"{"topicConfigTable":{"orders":{"topicName":"orders","readQueueNums":4,"writeQueueNums":2,"perm":6},
        "bare":{"topicName":"bare"}}}"#;
    let place = Settings::with(FILE, settings);
    let store = place.open();
    store.append("orders", 3, "x");
    store.append("bare", 15, "x");
    store.close();
    assert_eq!(
        fs::read_to_string(place.file(FILE)).unwrap(),
        settings,
        "both are served as they are"
    );
    let store = place.open();
    store.append("orders", 6, "x");
    store.append("bare", 16, "x");
    store.close();
    let topics = &place.json(FILE)["topicConfigTable"];
    let orders = json!({"topicName": "orders", "readQueueNums": 7, "writeQueueNums": 2, "perm": 6});
    assert_eq!(
        (&topics["orders"], &topics["bare"]),
        (&orders, &json!({"topicName": "bare", "readQueueNums": 17}))
    );
    // The producers of the store know it, too.
    let store = place.open();
    produce(&store, message("orders", 6, b"x")).unwrap();
    produce(&store, message("orders", 7, b"x")).unwrap_err();
    store.close();
}

#[test]
fn a_topic_that_is_created_late_keeps_its_queues_readable() {
    let place = Settings::new();
    let store = place.open();
    store.append("orders", 5, "x");
    create(&store, "orders", TopicSettings { queues: 4, ..PLAIN }).unwrap();
    let entry = &place.json(FILE)["topicConfigTable"]["orders"];
    assert_eq!((&entry["readQueueNums"], &entry["writeQueueNums"]), (&json!(6), &json!(4)));
    produce(&store, message("orders", 5, b"x")).unwrap();
    produce(&store, message("orders", 6, b"x")).unwrap_err();
    store.close();
}

#[test]
fn topics_are_persisted_at_the_interval_and_after_a_failure_again() {
    let place = Settings::new();
    let mut store = place.open();
    store.broker = BrokerController::new_stepped(&store.store);
    store.append("orders", 0, "x");
    let begun = Instant::now();
    let step = |after: u64| {
        let stepped = store.broker.step(BrokerService::Keep, begun + Duration::from_millis(after));
        stepped.map(drop)
    };
    step(0).unwrap();
    step(4_900).unwrap();
    assert!(!place.file(FILE).exists());
    step(5_000).unwrap();
    assert_eq!(place.json(FILE)["topicConfigTable"]["orders"]["readQueueNums"], 1);
    let before = fs::read(place.file(FILE)).unwrap();
    step(10_000).unwrap();
    assert_eq!(fs::read(place.file(FILE)).unwrap(), before);

    // A directory of that name cannot be replaced by a file.
    store.append("orders", 1, "x");
    fs::remove_file(place.file(FILE)).unwrap();
    fs::create_dir(place.file(FILE)).unwrap();
    step(15_000).unwrap();
    create(&store, "payments", PLAIN).unwrap_err();
    assert_eq!(
        store.broker.topics().get("payments").unwrap(),
        None,
        "what failed is not in force"
    );
    store.broker.close().unwrap_err();
    fs::remove_dir(place.file(FILE)).unwrap();
    store.close();
    let topics = &place.json(FILE)["topicConfigTable"];
    assert_eq!(
        (&topics["orders"]["readQueueNums"], &topics["payments"]),
        (&json!(2), &json!(null))
    );
}

#[test]
fn permission_and_queues_of_a_created_topic_bind_producers() {
    let place = Settings::new();
    let store = place.open();
    produce(&store, message("orders", 100, b"x")).unwrap();
    create(&store, "few", TopicSettings { queues: 2, ..PLAIN }).unwrap();
    create(&store, "readonly", TopicSettings { perm: 4, ..PLAIN }).unwrap();
    create(&store, "writeonly", TopicSettings { perm: 2, ..PLAIN }).unwrap();
    produce(&store, message("few", 1, b"x")).unwrap();
    produce(&store, message("writeonly", 7, b"x")).unwrap();
    produce(&store, message("orders", 200, b"x")).unwrap();
    for (refused, why) in [
        (
            message("few", 2, b"x"),
            "queue_id is 2: topic \"few\" has 2 queues, with ids from 0",
        ),
        (
            message("readonly", 0, b"x"),
            "perm of topic \"readonly\" is 4, without the permission to write, 2",
        ),
        (
            with_properties("readonly", &[("DELAY", "3")]),
            "perm of topic \"readonly\" is 4",
        ),
    ] {
        let error = produce(&store, refused).unwrap_err();
        assert!(
            matches!(&error, Error::IllegalMessage { .. }) && error.to_string().contains(why),
            "{error}"
        );
    }
    // What a broker moves itself is not bound: a retry, a delivery, a copy.
    store.append("readonly", 0, "x");
    create(&store, "readonly", PLAIN).unwrap();
    produce(&store, message("readonly", 0, b"x")).unwrap();
    store.close();
    let store = place.open();
    produce(&store, message("few", 2, b"x")).unwrap_err();
    store.close();
}

#[test]
fn the_type_of_a_topic_binds_producers_as_a_proxy_checks_it() {
    let place = Settings::new();
    let store = place.open();
    let (normal, fifo, transaction): (&[_], &[_], &[_]) = (
        &[("KEYS", "k")],
        &[("__SHARDINGKEY", "k")],
        &[("TRAN_MSG", "true"), ("DELAY", "1")],
    );
    let delays =
        ["DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"].map(|name| [("__SHARDINGKEY", "k"), (name, "1")]);
    let messages = [normal, fifo, transaction]
        .into_iter()
        .chain(delays.iter().map(|pairs| &pairs[..]));
    let types = [MessageType::Normal, MessageType::Fifo, MessageType::Transaction].into_iter();
    let messages: Vec<_> = messages.zip(types.chain([MessageType::Delay; 4])).collect();
    assert_eq!(messages.len(), 7);
    for (name, message_type) in MessageType::NAMES {
        create(
            &store,
            name,
            TopicSettings {
                message_type: Some(message_type),
                ..PLAIN
            },
        )
        .unwrap();
        for (pairs, found) in &messages {
            let is_any = matches!(message_type, MessageType::Mixed | MessageType::Unspecified);
            let outcome = produce(&store, with_properties(name, pairs));
            assert_eq!(
                outcome.is_ok(),
                is_any || *found == message_type,
                "{name}: {pairs:?}, {outcome:?}"
            );
        }
    }
    // A type of a later version, which this one does not know, binds nobody.
    store.close();
    let text = fs::read_to_string(place.file(FILE))
        .unwrap()
        .replace("\"FIFO\"", "\"PRIORITY\"");
    let _ = fs::write(place.file(FILE), text);
    let store = place.open();
    produce(&store, with_properties("FIFO", normal)).unwrap();
    store.close();
}

#[test]
fn a_copied_message_may_have_another_type_and_needs_a_queue() {
    let place = Settings::new();
    let store = place.open();
    let normal = TopicSettings {
        message_type: Some(MessageType::Normal),
        ..PLAIN
    };
    create(&store, "orders", normal).unwrap();
    let producer = store.store.appender(None).of_producer();
    let copy = |queue_id| {
        let delivered = with(message("orders", queue_id, b"x"), &[("DELAY", "3")]);
        producer.append_all(vec![Incoming::Copied(delivered)], &mut Vec::new())
    };
    copy(7).unwrap();
    copy(8).unwrap_err();
    let unit = BatchUnit {
        flag: 0,
        body: b"one",
        properties: b"",
    };
    let batch = encode_unit(&unit).unwrap();
    let common = |queue_id| Message {
        body: batch.clone().into(),
        ..message("orders", queue_id, b"")
    };
    producer.append_producer_batch(&common(7), None, &mut Vec::new()).unwrap();
    producer.append_producer_batch(&common(8), None, &mut Vec::new()).unwrap_err();
    store.close();
}

#[test]
fn a_sharding_key_has_the_queue_that_rocketmq_s_selector_gives_it() {
    let topics = TopicTable::default();
    let of = |queues| TopicRule::new(6, queues, queues, None);
    topics.set([
        ("eight".to_owned(), of(8)),
        ("seven".to_owned(), of(7)),
        ("none".to_owned(), of(0)),
    ]);
    let topics = topics.queues();
    let queue = |topic, key| topics.queue_id(topic, QueueChoice::Key(key));
    // The hash of the last one is i32::MIN, which has no absolute value.
    for (key, eight, seven) in [
        ("a", 1, 6),
        ("", 0, 0),
        ("order-1", 6, 6),
        ("\u{e9}", 1, 2),
        ("polygenelubricants", 0, 2),
    ] {
        assert_eq!(
            (queue("eight", key).unwrap(), queue("seven", key).unwrap()),
            (eight, seven),
            "{key:?}"
        );
    }
    for (topic, why) in [("absent", "create the topic first"), ("none", "writeQueueNums is 0")] {
        for choice in [QueueChoice::Key("a"), QueueChoice::Next] {
            let error = topics.queue_id(topic, choice).unwrap_err();
            assert!(
                matches!(&error, Error::IllegalMessage { .. }) && error.to_string().contains(why),
                "{error}"
            );
        }
        assert_eq!(topics.queue_id(topic, QueueChoice::Id(3)).unwrap(), 3);
    }
}

#[test]
fn queues_take_turns_on_request() {
    let topics = TopicTable::default();
    topics.set([
        ("three".to_owned(), TopicRule::new(6, 5, 3, None)),
        ("one".to_owned(), TopicRule::new(6, 1, 1, None)),
    ]);
    let turn = |topic| topics.queues().queue_id(topic, QueueChoice::Next).unwrap();
    assert_eq!(
        [(); 7].map(|()| turn("three")),
        [0, 1, 2, 0, 1, 2, 0],
        "only queues that are written"
    );
    assert_eq!([(); 3].map(|()| turn("one")), [0, 0, 0]);
    assert!(matches!(
        QueueChoice::of(Some(QueueChoice::Next), Some("k")),
        Err(Error::Invalid { .. })
    ));
    assert!(matches!(
        QueueChoice::of(Some(QueueChoice::Id(0)), Some("k")),
        Err(Error::Invalid { .. })
    ));
    assert_eq!(QueueChoice::of(None, None).unwrap(), QueueChoice::Id(0));
}
