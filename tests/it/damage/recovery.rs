//! Opening stores after a crash or an edit by hand: missing queues come back, and no field of a record leads outside the store.

use std::fs;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Duration;

use mqstore::config::{Recovery, StoreConfig};
use mqstore::error::Error;
use mqstore::format::CqUnit;
use mqstore::read::{MessageReader, QueueScan, Side};
use mqstore::storage::Env;
use tempfile::tempdir;

use super::{SEGMENT, edit, edit_log, get_request, log_file, put, query_all, whole_queue, write_checkpoint};
use crate::child::on_core;
use crate::counting_env::CountingEnv;
use crate::reading::{open, open_with};
use crate::store_writer::StoreWriter;

/// 300 messages each in `orders/0` and `other/0`, by turns, `orders` last; returns the offsets of `orders`.
fn two_queues(path: &Path, clean: bool) -> Vec<i64> {
    let mut writer = StoreWriter::small(path);
    let offsets = (0..300).map(|n| {
        put(&mut writer, "other", n);
        put(&mut writer, "orders", n)
    });
    let offsets = offsets.collect();
    writer.finish(clean);
    write_checkpoint(path, writer.last_store_time + 60_000);
    offsets
}

#[test]
fn a_queue_whose_directory_is_gone_comes_back_whole() {
    for (clean, gone) in [(true, "orders"), (false, "orders"), (false, "other")] {
        for all_of_the_topic in [true, false] {
            let dir = tempdir().unwrap();
            two_queues(dir.path(), clean);
            let topic = dir.path().join("consumequeue").join(gone);
            fs::remove_dir_all(if all_of_the_topic { topic } else { topic.join("0") }).unwrap();
            let reader = open(dir.path());
            for topic in ["orders", "other"] {
                let case = format!("{gone} removed, clean {clean}, {topic}");
                assert_eq!(reader.queue_bounds(topic, 0).unwrap(), 0..300, "{case}");
                assert_eq!(whole_queue(&reader, topic), (0..300).collect::<Vec<_>>(), "{case}");
            }
            assert_eq!(reader.recovery().undispatched, 300);
        }
    }
}

#[test]
fn a_queue_whose_early_messages_expired_keeps_its_late_start() {
    for clean in [true, false] {
        for removed in [None, Some("orders"), Some("other")] {
            let dir = tempdir().unwrap();
            let offsets = two_queues(dir.path(), clean);
            for start in [0, SEGMENT] {
                fs::remove_file(log_file(dir.path(), start)).unwrap();
            }
            if let Some(topic) = removed.filter(|topic| !clean || *topic == "orders") {
                fs::remove_dir_all(dir.path().join("consumequeue").join(topic)).unwrap();
            }
            let first = offsets.iter().filter(|offset| **offset < 2 * SEGMENT).count() as i64;
            let reader = open(dir.path());
            let case = format!("clean {clean}, {removed:?} removed");
            assert_eq!(reader.queue_bounds("orders", 0).unwrap(), first..300, "{case}");
            assert_eq!(whole_queue(&reader, "orders"), (first..300).collect::<Vec<_>>(), "{case}");
            let other = whole_queue(&reader, "other");
            assert_eq!(other.last(), Some(&299), "{case}");
            assert!((first - 1..=first + 1).contains(&other[0]), "{case}: starts at {}", other[0]);
            assert_eq!(other.len() as i64, 300 - other[0], "{case}");
        }
    }
}

/// A crashed store of 20 messages in `orders/0`, one in the topic `placeholder`, and 20 more; the queue of that one is gone.
fn with_stray_topic(root: &Path, placeholder: &str, topic: &[u8]) {
    assert_eq!(placeholder.len(), topic.len());
    let mut writer = StoreWriter::small(root);
    for n in 0..20 {
        put(&mut writer, "orders", n);
    }
    let stray = writer.put(placeholder, 0, b"stray", &[("KEYS", "stray")]);
    for n in 20..40 {
        put(&mut writer, "orders", n);
    }
    writer.finish(false);
    fs::remove_dir_all(root.join("consumequeue").join(placeholder)).unwrap();
    edit_log(root, stray, |bytes| {
        let at = bytes.windows(topic.len()).position(|window| window == placeholder.as_bytes());
        bytes[at.unwrap()..][..topic.len()].copy_from_slice(topic);
    });
}

#[test]
fn a_topic_that_is_no_directory_name_hides_no_other_message() {
    let outer = tempdir().unwrap();
    let absolute = format!("{}/evil", outer.path().display());
    let topics = [
        "..",
        ".",
        "../../evil",
        "../orders",
        "a/b",
        "nul\0nul",
        "/",
        "line\nbreak",
        absolute.as_str(),
    ];
    for (number, topic) in topics.into_iter().enumerate() {
        let root = outer.path().join(format!("store{number}"));
        with_stray_topic(&root, &"A".repeat(topic.len()), topic.as_bytes());
        // A queue that only such a topic leads to.
        let decoy = outer.path().join("evil/0");
        fs::create_dir_all(&decoy).unwrap();
        let unit = CqUnit {
            physical_offset: 0,
            size: 100,
            tags_code: 0,
        };
        fs::write(decoy.join("00000000000000000000"), unit.encode().repeat(50)).unwrap();

        let counting = CountingEnv::new();
        let env: Arc<dyn Env> = Arc::new(counting.clone());
        let reader = Arc::new(MessageReader::open(&env, &root, StoreConfig::default()).unwrap());
        assert_eq!(whole_queue(&reader, "orders"), (0..40).collect::<Vec<_>>(), "{topic:?}");
        assert_eq!(query_all(&reader, "orders", "k30", None).unwrap().hits.len(), 1);
        assert_eq!(reader.recovery().refused, 1, "{topic:?}");
        assert!(!reader.topics().unwrap().iter().any(|name| name == topic));
        for path in counting.opened() {
            let climbs = path.components().any(|part| matches!(part, Component::ParentDir));
            assert!(path.starts_with(&root) && !climbs, "{topic:?} opened {}", path.display());
        }
    }
}

/// 40 messages in `orders/0`; the log's last record then says `queue_id` and `queue_offset`.
fn with_last_record(root: &Path, own_topic: bool, clean: bool, queue_id: i32, queue_offset: i64) {
    let mut writer = StoreWriter::small(root);
    for n in 0..40 {
        put(&mut writer, "orders", n);
    }
    let topic = if own_topic { "last" } else { "orders" };
    let last = put(&mut writer, topic, 40);
    writer.finish(clean);
    edit_log(root, last, |bytes| {
        bytes[12..16].copy_from_slice(&queue_id.to_be_bytes());
        bytes[20..28].copy_from_slice(&queue_offset.to_be_bytes());
    });
    if own_topic {
        fs::remove_dir_all(root.join("consumequeue/last")).unwrap();
    } else {
        edit(&super::queue_file(root, "orders", 0), |bytes| bytes[800..820].fill(0));
    }
}

/// Every question about a queue; each is answered soon, whatever the answer.
fn ask_everything(reader: &Arc<MessageReader>, topic: &str, queue_id: i32) {
    let bounds = reader.queue_bounds(topic, queue_id).unwrap();
    let scan = QueueScan::new(reader.clone(), topic.to_owned(), queue_id, 0..i64::MAX).unwrap();
    assert!(
        scan.take(10_000).count() < 10_000,
        "{topic}/{queue_id} {bounds:?} is iterated without end"
    );
    let ends = [
        i64::MIN,
        -1,
        0,
        39,
        40,
        bounds.start,
        bounds.end - 1,
        bounds.end,
        i64::MAX - 1,
        i64::MAX,
    ];
    for offset in ends {
        for bounded in [true, false] {
            let request = mqstore::read::GetRequest {
                topic: topic.to_owned(),
                queue_id,
                bounded,
                errors: mqstore::config::Errors::Raise,
                ..get_request(offset, "*")
            };
            let _ = reader.get::<Error>(&request, |_| Ok(true));
        }
        let _ = reader.message_in_queue(topic, queue_id, offset);
        let _ = reader.position(topic, queue_id, offset);
    }
    for time in [i64::MIN, 0, 1_700_000_000_100, i64::MAX] {
        let _ = reader.offset_at(topic, queue_id, time, Side::Left);
        let _ = reader.offset_at(topic, queue_id, time, Side::Right);
    }
}

#[test]
fn the_largest_queue_offsets_and_ids_in_the_last_record_open_and_end() {
    let offsets = [
        1_000_000_000_000_000,
        i64::MAX,
        i64::MAX - 1,
        i64::MAX / 20,
        i64::MAX / 20 + 1,
        -1,
        i64::MIN,
    ];
    let ids = [0, i32::MAX, -1, i32::MIN];
    for queue_offset in offsets {
        for queue_id in ids {
            for (own_topic, clean) in [(true, true), (true, false), (false, true), (false, false)] {
                let started = on_core();
                let dir = tempdir().unwrap();
                with_last_record(dir.path(), own_topic, clean, queue_id, queue_offset);
                let reader = open(dir.path());
                for topic in reader.topics().unwrap() {
                    for id in reader.queue_ids(&topic).unwrap() {
                        ask_everything(&reader, &topic, id);
                    }
                }
                ask_everything(&reader, "last", queue_id);
                for n in 0..40 {
                    assert_eq!(reader.message_in_queue("orders", 0, n).unwrap().view().queue_offset(), n);
                }
                let took = on_core().saturating_sub(started);
                let case = format!("queue {queue_id}, offset {queue_offset}, own topic {own_topic}, clean {clean}");
                assert!(took < Duration::from_secs(2), "{case}: {took:?}");
            }
        }
    }
}

#[test]
fn recorded_sizes_that_cannot_be_right_are_corrected_by_files_or_damage() {
    let dir = tempdir().unwrap();
    super::plain(dir.path(), 40).0.finish(true);
    let path = dir.path().join("config/mqstore.json");
    fs::create_dir(dir.path().join("config")).unwrap();
    for sizes in [
        r#"{"mapped_file_size_commit_log": 0}"#,
        r#"{"mapped_file_size_commit_log": 4097}"#,
        r#"{"mapped_file_size_commit_log": 18446744073709551615}"#,
        r#"{"mapped_file_size_consume_queue": 19}"#,
    ] {
        fs::write(&path, sizes).unwrap();
        assert_eq!(whole_queue(&open(dir.path()), "orders").len(), 40, "{sizes}");
    }
    for sizes in [
        r#"{"max_hash_slot_num": 100}"#,
        r#"{"max_hash_slot_num": 4294967396, "max_index_num": 4294967696}"#,
    ] {
        fs::write(&path, sizes).unwrap();
        let opened = open_with(dir.path(), StoreConfig::default());
        let Err(error) = opened else { panic!("{sizes} was accepted") };
        assert_eq!(super::corrupt_place(error).0, path, "{sizes}");
    }
    fs::write(
        &path,
        r#"{"mapped_file_size_commit_log": 16384, "max_hash_slot_num": 100, "max_index_num": 400}"#,
    )
    .unwrap();
    assert_eq!(whole_queue(&open(dir.path()), "orders").len(), 40);
}

#[test]
fn one_absurd_queue_offset_hides_no_message_but_its_own() {
    for damaged in [0, 1, 20, 39] {
        for queue_offset in [1_i64 << 55, 1_000, 0, 3] {
            let dir = tempdir().unwrap();
            let mut writer = StoreWriter::small(dir.path());
            let offsets: Vec<i64> = (0..40).map(|n| put(&mut writer, "orders", n)).collect();
            writer.finish(false);
            fs::remove_dir_all(dir.path().join("consumequeue/orders")).unwrap();
            edit_log(dir.path(), offsets[damaged], |bytes| {
                bytes[20..28].copy_from_slice(&queue_offset.to_be_bytes());
            });
            let started = on_core();
            let reader = open(dir.path());
            let read: Vec<i64> = super::scan(&reader, "orders")
                .into_iter()
                .filter_map(|message| Some(message.ok()?.view().physical_offset()))
                .collect();
            let case = format!("message {damaged} says {queue_offset}: {} were read", read.len());
            if damaged == 0 {
                let others = offsets.iter().filter(|offset| **offset != offsets[0]);
                assert!(others.into_iter().all(|offset| read.contains(offset)), "{case}");
            }
            assert!(read.len() >= damaged, "{case}");
            assert!(on_core().saturating_sub(started) < Duration::from_secs(2), "{case}");
        }
    }
}

#[test]
fn a_salvage_of_a_log_without_a_segment_finds_nothing() {
    let dir = tempdir().unwrap();
    two_queues(dir.path(), true);
    for entry in fs::read_dir(dir.path().join("commitlog")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let config = StoreConfig {
        recovery: Recovery::Salvage,
        ..StoreConfig::default()
    };
    let reader = open_with(dir.path(), config).unwrap();
    assert_eq!((reader.recovery().log_end, reader.recovery().lost.len()), (0, 0));
}

#[test]
fn a_log_without_a_segment_is_said_to_have_none() {
    let dir = tempdir().unwrap();
    two_queues(dir.path(), true);
    for entry in fs::read_dir(dir.path().join("commitlog")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let reader = open(dir.path());
    assert_eq!(
        (reader.recovery().log_end, &*reader.recovery().stop_reason),
        (0, "there is no segment")
    );
}
