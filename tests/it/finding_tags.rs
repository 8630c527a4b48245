//! Queries by tag: from the index if an option says that it holds tags, otherwise by walking the log.

use std::path::Path;
use std::sync::Arc;

use mqstore::config::{Errors, StoreConfig};
use mqstore::format::{Message, encode_properties};
use mqstore::read::{MessageReader, QueryBy, QueryRequest};
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode};
use tempfile::tempdir;

use crate::counting_env::CountingEnv;
use crate::golden::golden_dir;

fn config(index_tags: bool) -> StoreConfig {
    StoreConfig {
        mapped_file_size_commit_log: Some(1 << 16),
        max_hash_slot_num: Some(100),
        max_index_num: Some(400),
        index_tags,
        ..StoreConfig::default()
    }
}

/// Appends messages with these properties to topic "orders".
fn append(path: &Path, index_tags: bool, messages: &[&[(&str, &str)]]) {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let store = MessageStore::open(&env, path, config(index_tags), OpenMode::Append).unwrap();
    for properties in messages {
        let message = Message {
            topic: "orders".into(),
            body: vec![7; 100].into(),
            properties: encode_properties(properties.iter().copied(), true).unwrap().into(),
            ..Message::default()
        };
        store.append(message).unwrap();
    }
    store.close().unwrap();
}

fn open(env: &CountingEnv, path: &Path, index_tags: bool) -> MessageReader {
    let env: Arc<dyn Env> = Arc::new(env.clone());
    MessageReader::open(
        &env,
        path,
        StoreConfig {
            index_tags,
            ..StoreConfig::default()
        },
    )
    .unwrap()
}

/// Queue offsets of the messages of a topic with a tag.
fn tagged(reader: &MessageReader, topic: &str, tag: &str) -> Vec<i64> {
    let request = QueryRequest {
        topic: topic.to_owned(),
        by: QueryBy::Tag(tag.to_owned()),
        times: i64::MIN..i64::MAX,
        limit: None,
        errors: Errors::Raise,
    };
    let result = reader.query(&request).unwrap();
    assert!(result.complete);
    assert_eq!(result.covers, reader.physical_bounds());
    result.hits.iter().map(|hit| hit.queue_offset).collect()
}

#[test]
fn a_tag_is_found_by_a_tag_index_and_otherwise_by_a_log_walk() {
    let dir = tempdir().unwrap();
    let messages: Vec<&[(&str, &str)]> = (0..600)
        .map(|n| match n % 100 {
            0 => &[("TAGS", "rare"), ("KEYS", "k")][..],
            1 => &[("KEYS", "rare")],
            _ => &[("TAGS", "many")],
        })
        .collect();
    append(dir.path(), true, &messages);
    let env = CountingEnv::new();
    let log = dir.path().join("commitlog");
    let read = |index_tags| {
        let reader = open(&env, dir.path(), index_tags);
        let before = env.bytes_read_below(&log);
        assert_eq!(tagged(&reader, "orders", "rare"), [0, 100, 200, 300, 400, 500]);
        assert_eq!(tagged(&reader, "orders", "nobody's"), [0_i64; 0]);
        env.bytes_read_below(&log) - before
    };
    let (by_index, by_walk) = (read(true), read(false));
    assert!(
        by_index * 10 < by_walk,
        "{by_index} bytes of the log by index, {by_walk} without it"
    );
}

#[test]
fn a_tag_is_compared_itself_and_is_no_key() {
    let dir = tempdir().unwrap();
    append(
        dir.path(),
        true,
        &[
            &[("TAGS", "Aa")],
            &[("TAGS", "BB")],
            &[("KEYS", "T#Aa")],
            &[("TAGS", "Aa || BB")],
            &[("TAGS", "aA")],
            &[("TAGS", "Aa"), ("KEYS", "T#BB")],
        ],
    );
    for index_tags in [true, false] {
        let reader = open(&CountingEnv::new(), dir.path(), index_tags);
        assert_eq!(tagged(&reader, "orders", "Aa"), [0, 5]);
        assert_eq!(tagged(&reader, "orders", "BB"), [1]);
        assert_eq!(tagged(&reader, "orders", "Aa || BB"), [3]);
        assert_eq!(tagged(&reader, "orders", ""), [0_i64; 0]);
        assert_eq!(tagged(&reader, "other", "Aa"), [0_i64; 0]);
    }
}

#[test]
fn an_index_file_without_its_first_or_last_tag_is_not_searched_for_tags() {
    let message: &[(&str, &str)] = &[("TAGS", "paid"), ("KEYS", "k")];
    for sessions in [&[false, true][..], &[true, false], &[false, true, false]] {
        let dir = tempdir().unwrap();
        for index_tags in sessions {
            append(dir.path(), *index_tags, &[message; 10]);
        }
        let reader = open(&CountingEnv::new(), dir.path(), true);
        let all: Vec<i64> = (0..10 * sessions.len() as i64).collect();
        assert_eq!(tagged(&reader, "orders", "paid"), all, "{sessions:?}");
    }
}

#[test]
fn the_tags_that_rocketmq_indexed_are_found_as_walking_finds_them() {
    let path = golden_dir().join("551_mixed");
    let [by_index, by_walk] = [true, false].map(|index_tags| open(&CountingEnv::new(), &path, index_tags));
    let mut found = 0;
    for topic in by_index.topics().unwrap() {
        for queue_id in by_index.queue_ids(&topic).unwrap() {
            for n in by_index.queue_bounds(&topic, queue_id).unwrap() {
                let message = by_index.message_in_queue(&topic, queue_id, n).unwrap();
                let Some(tag) = message.view().tags().map(String::from) else {
                    continue;
                };
                let numbers = tagged(&by_index, &topic, &tag);
                assert!(numbers.contains(&n));
                assert_eq!(numbers, tagged(&by_walk, &topic, &tag), "{topic} {tag}");
                found += 1;
            }
        }
    }
    assert!(found > 50, "{found} tagged messages");
}
