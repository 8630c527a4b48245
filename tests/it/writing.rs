//! Appending: what is written reads back, by us and by a second open, and the limits hold.

use std::path::Path;
use std::sync::Arc;

use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::format::{Message, encode_properties};
use mqstore::read::{MessageReader, QueryRequest, QueueScan};
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode};
use tempfile::tempdir;

fn env() -> Arc<dyn Env> {
    Arc::new(RealEnv::new())
}

fn small() -> StoreConfig {
    StoreConfig {
        mapped_file_size_commit_log: Some(16384),
        mapped_file_size_consume_queue: Some(1000),
        max_hash_slot_num: Some(100),
        max_index_num: Some(400),
        ..StoreConfig::default()
    }
}

fn create(path: &Path) -> MessageStore {
    MessageStore::open(&env(), path, small(), OpenMode::New).unwrap()
}

fn message<'a>(topic: &str, queue_id: i32, body: &'a [u8], keys: &str) -> Message<'a> {
    let properties = encode_properties([("KEYS", keys)].into_iter().filter(|(_, keys)| !keys.is_empty()), true).unwrap();
    Message {
        topic: topic.to_owned(),
        queue_id,
        body: body.into(),
        properties,
        ..Message::default()
    }
}

fn read_all(reader: &Arc<MessageReader>, topic: &str, queue_id: i32) -> Vec<Vec<u8>> {
    let scan = QueueScan::new(reader.clone(), topic.to_owned(), queue_id, 0..i64::MAX).unwrap();
    scan.map(|message| message.unwrap().view().body().to_vec()).collect()
}

#[test]
fn what_is_appended_is_read_at_once_and_after_every_reopening() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("store");
    let mut expected = Vec::new();
    for round in 0..3 {
        let mode = if round == 0 { OpenMode::New } else { OpenMode::Existing };
        let config = if round == 0 { small() } else { StoreConfig::default() };
        let store = MessageStore::open(&env(), &path, config, mode).unwrap();
        let mut last = 0;
        for n in 0..300 {
            let body = format!("round {round} body {n}").into_bytes();
            let result = store.append(message("orders", 0, &body, &format!("k{round}-{n}"))).unwrap();
            assert_eq!(result.appended.queue_offset, expected.len() as i64);
            assert_eq!(
                store
                    .reader()
                    .message_at(result.appended.physical_offset)
                    .unwrap()
                    .view()
                    .body(),
                body
            );
            last = result.appended.physical_offset;
            expected.push(body);
        }
        store.wait_dispatched(last, None).unwrap();
        assert_eq!(read_all(store.reader(), "orders", 0), expected);
        let key = format!("k{round}-77");
        let request = QueryRequest {
            topic: "orders".to_owned(),
            key,
            begin: i64::MIN,
            end: i64::MAX,
            limit: None,
        };
        assert_eq!(store.reader().query(&request).unwrap().messages.len(), 1);
        store.wait_durable(last, None).unwrap();
        store.close().unwrap();
        assert!(matches!(store.append(message("orders", 0, b"x", "")), Err(Error::Closed)));
        let reader = Arc::new(MessageReader::open(&env(), &path, StoreConfig::default()).unwrap());
        assert!(reader.recovery().clean_exit);
        assert_eq!(reader.recovery().undispatched, 0);
        assert_eq!(read_all(&reader, "orders", 0), expected);
    }
}

#[test]
fn sixty_four_threads_leave_no_gap_and_store_time_never_falls() {
    let dir = tempdir().unwrap();
    let store = create(&dir.path().join("store"));
    std::thread::scope(|scope| {
        for thread in 0..64 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..50 {
                    let topic = format!("topic{}", (thread * 50 + n) % 100);
                    store
                        .append(message(&topic, n % 3, format!("{thread}-{n}").as_bytes(), "k"))
                        .unwrap();
                }
            });
        }
    });
    store.close().unwrap();
    let reader = Arc::new(MessageReader::open(&env(), &dir.path().join("store"), StoreConfig::default()).unwrap());
    let mut count = 0;
    for topic in reader.topics().unwrap() {
        for queue_id in reader.queue_ids(&topic).unwrap() {
            let mut last = 0;
            for (n, message) in QueueScan::new(reader.clone(), topic.clone(), queue_id, 0..i64::MAX)
                .unwrap()
                .enumerate()
            {
                let message = message.unwrap();
                assert_eq!(message.view().queue_offset(), n as i64);
                assert!(message.view().store_time() >= last);
                last = message.view().store_time();
                count += 1;
            }
        }
    }
    assert_eq!(count, 64 * 50);
}

#[test]
fn a_second_writer_is_refused_while_the_first_is_open() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("store");
    let store = create(&path);
    let second = || MessageStore::open(&env(), &path, StoreConfig::default(), OpenMode::Existing);
    assert!(matches!(second(), Err(Error::Locked { .. })));
    store.close().unwrap();
    second().unwrap();
}
