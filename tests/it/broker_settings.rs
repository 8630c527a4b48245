//! A broker's files of settings: what they say, and what is read where one of them cannot be used.

use std::fs;
use std::path::Path;

use mqstore::error::{Error, Result};
use mqstore::format::{
    CONSUMER_OFFSET_FILE, ConsumerOffset, DelayOffset, TopicConfig, decode_consumer_offsets, decode_delay_offsets,
    decode_topic_configs,
};
use mqstore::log::{BrokerSettings, load_broker_settings};
use mqstore::storage::RealEnv;
use proptest::prelude::*;
use tempfile::tempdir;

/// Name, queue, offset.
fn offsets(json: &str) -> Vec<(String, i32, i64)> {
    let offsets = decode_consumer_offsets(json.as_bytes()).unwrap().into_iter();
    offsets
        .map(|offset| (offset.topic_group, offset.queue_id, offset.offset))
        .collect()
}

fn entry(name: &str, queue_id: i32, offset: i64) -> (String, i32, i64) {
    (name.to_owned(), queue_id, offset)
}

#[test]
fn names_that_are_numbers_need_no_quotes_and_texts_may_look_like_them() {
    let json = r#"{"offsetTable":{"{0:1,2:3@g":{0:12,1 : 34,-5:-1,2147483647:9223372036854775807},
        "a\"b\\,7:@g":{"3":4},"\u0007\u2028@caf\u00e9":{}, "none@g":{0:1, 0 :2}},"dataVersion":{"counter":0}}"#;
    assert_eq!(
        offsets(json),
        [
            entry("a\"b\\,7:@g", 3, 4),
            entry("none@g", 0, 2),
            entry("{0:1,2:3@g", -5, -1),
            entry("{0:1,2:3@g", 0, 12),
            entry("{0:1,2:3@g", 1, 34),
            entry("{0:1,2:3@g", i32::MAX, i64::MAX),
        ]
    );
    assert!(
        decode_consumer_offsets(br#"{"offsetTable":{1e3:{0:1}}}"#).is_err(),
        "only whole numbers may be without quotes"
    );
}

#[test]
fn a_broken_file_says_at_which_byte() {
    for (json, at, why) in [
        (r#"{"offsetTable":{"t@g":{0:12,1:3"#, 31, "not JSON: EOF"),
        (r#"{"offsetTable":{"t@g":{0:12,1:x}}}"#, 30, "not JSON: expected value"),
        (
            "{\n\t\"offsetTable\":{\n\t\t\"t@g\":{0:12,\n\t\t1:34]\n",
            40,
            "not JSON: expected `,` or `}`",
        ),
        ("{\"offsetTable\":{\"t\u{1}@g\":{}}}", 18, "not JSON: control character"),
        ("[1]", 0, "the file is an array, not an object"),
        (
            "{\"topicConfigTable\":{}}",
            0,
            "there is no field \"offsetTable\": this is another file",
        ),
        (r#"{"offsetTable":{"t@g":{a:1}}}"#, 23, "not JSON: key must be a string"),
        (
            r#"{"offsetTable":{"t@g":{"a":1}}}"#,
            0,
            "offsetTable, \"t@g\" has the name \"a\", not a 32-bit number",
        ),
        (
            r#"{"offsetTable":{"t@g":{0:1.5}}}"#,
            0,
            "offsetTable, \"t@g\", 0 is 1.5, not a 64-bit number",
        ),
        (r#"{"offsetTable":{"t@g":{0:9223372036854775808}}}"#, 0, "not a 64-bit number"),
        (r#"{"offsetTable":{"t@g":7}}"#, 0, "offsetTable, \"t@g\" is 7, not an object"),
        (
            r#"{"offsetTable":{"t":{0:1}}}"#,
            0,
            "\"t\" is not a topic and a group with a @ between them",
        ),
        (
            r#"{"offsetTable":{},"lmqOffsetTable":{"t@g":1}}"#,
            0,
            "\"t@g\" is not a topic and a group",
        ),
    ] {
        let malformed = decode_consumer_offsets(json.as_bytes()).unwrap_err();
        assert!(malformed.reason.contains(why), "{json}: {malformed}");
        assert_eq!(malformed.at, at, "{json}: {malformed}");
    }
    let malformed = decode_consumer_offsets(b"{\"offsetTable\":{\"\xff@g\":{}}}").unwrap_err();
    assert!((16..20).contains(&malformed.at), "{malformed}");
}

#[test]
fn deep_nesting_is_refused() {
    assert!(decode_topic_configs("[".repeat(1_000_000).as_bytes()).is_err());
    assert!(decode_topic_configs("{\"a\":".repeat(100_000).as_bytes()).is_err());
}

fn names<'a>(topic_group: &'a ConsumerOffset, topics: &[&str]) -> (&'a str, &'a str) {
    topic_group.names(|topic| topics.contains(&topic)).unwrap()
}

#[test]
fn an_at_sign_in_a_name_is_resolved_by_the_existing_topics() {
    let [plain, light]: [ConsumerOffset; 2] =
        [("a@b@c", false), ("%LMQ%a@b@%LMQ%c@@@d", true)].map(|(name, is_lmq)| ConsumerOffset {
            topic_group: name.to_owned(),
            queue_id: 0,
            offset: 0,
            is_lmq,
        });
    assert_eq!(names(&plain, &[]), ("a", "b@c"));
    assert_eq!(names(&plain, &["a", "a@b"]), ("a", "b@c"));
    assert_eq!(names(&plain, &["a@b", "a@b@c"]), ("a@b", "c"));
    assert_eq!(names(&light, &[]), ("%LMQ%a@b", "%LMQ%c@@@d"));
    assert_eq!(names(&light, &["%LMQ%a"]), ("%LMQ%a@b", "%LMQ%c@@@d"));
}

#[test]
fn the_offsets_of_light_queues_are_of_queue_0() {
    let json = r#"{"lmqOffsetTable":{"%LMQ%t@%LMQ%g":7},"offsetTable":{"t@g":{1:2}}}"#;
    assert_eq!(offsets(json), [entry("%LMQ%t@%LMQ%g", 0, 7), entry("t@g", 1, 2)]);
}

#[test]
fn levels_and_topics_come_in_order_with_what_the_file_says() {
    let levels = decode_delay_offsets(br#"{"offsetTable":{18:0,2:10,1:20}}"#).unwrap();
    let expected = [(1, 20), (2, 10), (18, 0)].map(|(level, offset)| DelayOffset { level, offset });
    assert_eq!(levels, expected);
    let topics = br#"{"topicConfigTable":{"b":{"topicName":"b"},"a":{"attributes":{"message.type":"FIFO"},"order":true,
        "perm":6,"readQueueNums":4,"writeQueueNums":8,"topicFilterType":"SINGLE_TAG","topicSysFlag":2,"new":[1,{}]}}}"#;
    let whole = TopicConfig {
        topic: "a".to_owned(),
        read_queue_nums: Some(4),
        write_queue_nums: Some(8),
        perm: Some(6),
        topic_filter_type: Some("SINGLE_TAG".to_owned()),
        topic_sys_flag: Some(2),
        order: Some(true),
        attributes: Some(vec![("message.type".to_owned(), "FIFO".to_owned())]),
        grows: false,
    };
    let bare = TopicConfig {
        topic: "b".to_owned(),
        ..TopicConfig::default()
    };
    assert_eq!(decode_topic_configs(topics).unwrap(), [whole, bare]);
    assert_eq!(decode_topic_configs(b"{}").unwrap(), [], "a broker that has nothing to say");
    for wrong in [
        r#""order":1"#,
        r#""perm":"6""#,
        r#""attributes":[]"#,
        r#""attributes":{"a":1}"#,
        r#""topicFilterType":0"#,
    ] {
        let json = format!("{{\"topicConfigTable\":{{\"t\":{{{wrong}}}}}}}");
        let malformed = decode_topic_configs(json.as_bytes()).unwrap_err();
        assert!(malformed.reason.starts_with("topicConfigTable, \"t\", "), "{malformed}");
    }
}

/// The file, its backup, and whether a RocksDB database of the same is there.
fn load(file: Option<&str>, backup: Option<&str>, database: bool) -> Result<Option<BrokerSettings<Vec<ConsumerOffset>>>> {
    let root = tempdir().unwrap();
    let config = root.path().join("config");
    fs::create_dir(&config).unwrap();
    for (name, content) in [("consumerOffset.json", file), ("consumerOffset.json.bak", backup)] {
        if let Some(content) = content {
            fs::write(config.join(name), content).unwrap();
        }
    }
    if database {
        fs::create_dir(config.join("consumerOffsets")).unwrap();
        fs::write(config.join("consumerOffsets/CURRENT"), "MANIFEST-000004\n").unwrap();
    }
    load_broker_settings(&RealEnv::new(), root.path(), CONSUMER_OFFSET_FILE, decode_consumer_offsets)
}

const ONE: &str = r#"{"offsetTable":{"t@g":{0:1}}}"#;
const TWO: &str = r#"{"offsetTable":{"t@g":{0:2}}}"#;

#[test]
fn the_file_before_is_read_where_a_broker_reads_it_and_that_is_said() {
    let read = |file, backup| {
        let settings = load(file, backup, false).unwrap().unwrap();
        (settings.content[0].offset, settings.doubts)
    };
    assert_eq!(read(Some(TWO), Some(ONE)), (2, Vec::new()));
    assert_eq!(read(Some(TWO), None), (2, Vec::new()));
    assert_eq!(read(Some(TWO), Some("{")), (2, Vec::new()));
    for (file, why) in [
        (Some("{"), "consumerOffset.json at byte 1: not JSON"),
        (Some(""), "consumerOffset.json at byte 0: the file is empty"),
        (Some("\0\0\0"), "the file is empty"),
        (None, "consumerOffset.json is missing"),
    ] {
        let (offset, doubts) = read(file, Some(ONE));
        assert_eq!((offset, doubts.len()), (1, 1));
        assert!(
            doubts[0].contains(why) && doubts[0].contains("consumerOffset.json.bak is older"),
            "{doubts:?}"
        );
    }
    assert!(load(None, None, false).unwrap().is_none());
}

#[test]
fn where_neither_file_can_be_used_the_error_is_about_both() {
    for (file, backup, why) in [
        (Some("{"), Some("["), "the previous version is damaged, too"),
        (Some("{"), Some(""), "the file is empty"),
        (Some("{"), None, "there is no previous version (.bak)"),
        (Some(""), None, "there is no previous version (.bak)"),
        (None, Some("{"), "not JSON"),
    ] {
        let error = load(file, backup, false).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn a_database_in_place_of_the_file_is_refused_and_a_second_one_reported() {
    let error = load(None, None, true).unwrap_err();
    assert!(
        matches!(&error, Error::Unsupported { path, .. } if path.ends_with("config/consumerOffsets")),
        "{error}"
    );
    let settings = load(Some(TWO), None, true).unwrap().unwrap();
    assert_eq!((settings.content[0].offset, settings.doubts.len()), (2, 1));
    assert!(settings.doubts[0].contains("RocksDB"), "{:?}", settings.doubts);
}

#[test]
fn what_is_no_file_is_an_error_of_the_system() {
    let root = tempdir().unwrap();
    fs::create_dir_all(root.path().join("config/consumerOffset.json")).unwrap();
    let read = load_broker_settings(&RealEnv::new(), root.path(), CONSUMER_OFFSET_FILE, decode_consumer_offsets);
    assert!(matches!(read, Err(Error::Io { .. })), "{read:?}");
    let missing = load_broker_settings(
        &RealEnv::new(),
        Path::new("/nowhere"),
        CONSUMER_OFFSET_FILE,
        decode_consumer_offsets,
    );
    assert!(missing.unwrap().is_none());
}

proptest! {
    #[test]
    fn any_offsets_read_as_they_were_written(
        tables in proptest::collection::btree_map(
            "\\PC{0,6}@\\PC{0,6}", proptest::collection::btree_map(any::<i32>(), any::<i64>(), 0..4), 0..4,
        ),
        space in prop_oneof![Just(""), Just("\n\t\t"), Just(" ")],
    ) {
        let table = |queues: &std::collections::BTreeMap<i32, i64>| {
            let entries: Vec<_> = queues.iter().map(|(id, offset)| format!("{id}{space}:{space}{offset}")).collect();
            format!("{{{}{space}}}", entries.join(&format!(",{space}")))
        };
        let topics: Vec<_> = tables.iter().map(|(name, queues)| {
            let escaped = name.replace('\\', "\\\\").replace('"', "\\\"");
            format!("\"{escaped}\":{}", table(queues))
        }).collect();
        let json = format!("{{\"offsetTable\":{{{}}}}}", topics.join(","));
        let written: Vec<_> = tables.iter()
            .flat_map(|(name, queues)| queues.iter().map(|(id, offset)| entry(name, *id, *offset)))
            .collect();
        prop_assert_eq!(offsets(&json), written);
    }

    #[test]
    fn any_bytes_are_settings_or_malformed_at_one_of_their_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        for malformed in [
            decode_consumer_offsets(&bytes).err(), decode_delay_offsets(&bytes).err(), decode_topic_configs(&bytes).err(),
        ].into_iter().flatten() {
            prop_assert!(malformed.at <= bytes.len(), "{malformed}");
        }
    }
}
